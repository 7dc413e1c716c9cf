//! A cell's value is read by many threads at once: it must be `Sync`.

fn keep(_: stillpoint::Rcu<std::cell::Cell<u32>>) {}

fn main() {}
