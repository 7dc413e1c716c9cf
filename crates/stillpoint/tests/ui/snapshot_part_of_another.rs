//! A part of a snapshot's value is a part of that value, and not of what lives for less.

use stillpoint::{Rcu, Snapshot, read_lock};

fn main() {
    let other = 2;
    let snapshot = Rcu::new(1).load_owned(read_lock());
    let part = Snapshot::map(snapshot, |_| &other);
    drop(other);
    let mut kept = None;
    Snapshot::map(part, |part| {
        kept = Some(part);
        part
    });
}
