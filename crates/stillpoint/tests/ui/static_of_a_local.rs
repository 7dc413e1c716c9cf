//! The first value of a cell that frees none has to be static.

fn main() {
    let first = 1;
    let cell = stillpoint::Rcu::from_static(&first);
    cell.store(2);
}
