//! A cell is what its value is: one that a panic may leave half changed is not `RefUnwindSafe`.

use std::panic::RefUnwindSafe;

struct Half(std::cell::UnsafeCell<u32>);
unsafe impl Sync for Half {}

fn may_be_used_after_a_panic<T: RefUnwindSafe>(_: &T) {}

fn main() {
    may_be_used_after_a_panic(&stillpoint::Rcu::new(Half(0.into())));
}
