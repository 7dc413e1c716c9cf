//! A cell's value is dropped by another thread: it must be `Send`.

fn keep(_: stillpoint::Rcu<std::sync::MutexGuard<'static, u32>>) {}

fn main() {}
