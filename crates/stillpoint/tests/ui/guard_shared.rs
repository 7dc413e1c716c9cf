//! A guard belongs to its thread: it is not `Sync`.

fn is_sync<T: Sync>(_: T) {}

fn main() {
    is_sync(stillpoint::read_lock());
}
