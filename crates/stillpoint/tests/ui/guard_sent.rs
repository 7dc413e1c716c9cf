//! A guard belongs to its thread: it is not `Send`.

fn is_send<T: Send>(_: T) {}

fn main() {
    is_send(stillpoint::read_lock());
}
