//! What is compared by its address must still be protected: nothing else can have come to lie there.

fn main() {
    let cell = stillpoint::Rcu::new(1);
    let before = stillpoint::read_lock();
    let current = cell.load(&before);
    drop(before);
    let after = stillpoint::read_lock();
    let _ = cell.compare_exchange(current, Box::new(2), &after);
}
