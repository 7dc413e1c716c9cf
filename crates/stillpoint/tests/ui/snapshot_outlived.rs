//! What a snapshot lends does not outlive it.

fn main() {
    let snapshot = stillpoint::Rcu::new(1).load_owned(stillpoint::read_lock());
    let value: &i32 = &snapshot;
    drop(snapshot);
    println!("{value:?}");
}
