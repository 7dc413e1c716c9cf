//! A part that threads must not share keeps the snapshot where it is.

use std::cell::Cell;
use stillpoint::Snapshot;

fn is_send<T: Send>(_: T) {}

fn main() {
    let leaked: &'static Cell<u32> = Box::leak(Box::new(Cell::new(1)));
    let cell = stillpoint::Rcu::new_in(stillpoint::tasks_trace::global(), 1);
    let snapshot = cell.load_owned(stillpoint::tasks_trace::read_lock_owned());
    is_send(Snapshot::map(snapshot, |_| leaked));
}
