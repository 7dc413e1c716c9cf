//! A snapshot is `Send` only where its guard is.

fn is_send<T: Send>(_: T) {}

fn main() {
    is_send(stillpoint::Rcu::new(1).load_owned(stillpoint::read_lock()));
}
