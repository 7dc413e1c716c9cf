//! A reference lives no longer than the guard through which it was found.

fn main() {
    let cell = stillpoint::Rcu::new(1);
    let guard = stillpoint::read_lock();
    let value = cell.load(&guard);
    drop(guard);
    println!("{value:?}");
}
