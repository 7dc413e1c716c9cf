//! What is no section protects nothing, and the compiler says what does.

use std::sync::Mutex;

fn main() {
    let cell = stillpoint::Rcu::new(1);
    let lock = Mutex::new(());
    let guard = lock.lock().unwrap();
    cell.load(&guard);
}
