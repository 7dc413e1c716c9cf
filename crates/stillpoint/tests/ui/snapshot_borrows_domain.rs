//! A snapshot with a guard that borrows from its domain goes before the domain's handle.

use stillpoint::{Rcu, Snapshot, tasks_trace::TraceDomain};

fn keep() -> Snapshot<u32> {
    let domain = TraceDomain::new();
    Rcu::new_in(&domain, 1).load_owned(domain.read_lock_owned())
}

fn main() {
    drop(keep());
}
