//! `get_mut` needs the cell to itself, for as long as the value is changed.

fn main() {
    let mut cell = stillpoint::Rcu::new(1);
    let value = cell.get_mut();
    cell.store(2);
    *value = 3;
}
