//! What an optional cell lends does not outlive the guard, whether it was there or has been made.

fn main() {
    let cell = stillpoint::RcuOption::empty();
    let guard = stillpoint::read_lock();
    let found = cell.load(&guard);
    let made = cell.load_or_init(&guard, || 1);
    drop(guard);
    println!("{found:?} {made:?}");
}
