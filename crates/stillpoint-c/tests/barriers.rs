//! What C's barriers wait for, of what Rust code of the process has retired.

use std::{
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use stillpoint::global;
use stillpoint_c::domain;

/// Its drop retires the rest of it.
struct List {
    left: usize,
    dropped: Arc<AtomicUsize>,
}

impl Drop for List {
    fn drop(&mut self) {
        if self.left > 0 {
            retire(self.left - 1, &self.dropped);
        }
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

fn retire(left: usize, dropped: &Arc<AtomicUsize>) {
    let dropped = Arc::clone(dropped);
    let list = NonNull::from(Box::leak(Box::new(List { left, dropped })));
    // SAFETY: from a box just now, and no other thread has ever known it.
    unsafe { global().retire(list) };
}

#[test]
fn the_nested_barrier_waits_for_what_destructors_retire() {
    const PARTS: usize = 12;
    let dropped = Arc::new(AtomicUsize::new(0));
    for lists in 1..=20 {
        retire(PARTS - 1, &dropped);
        // SAFETY: null is the global domain.
        let outcome = unsafe { domain::stillpoint_domain_kvfree_barrier_nested(ptr::null_mut()) };
        assert_eq!(outcome, 0);
        assert_eq!(dropped.load(Ordering::SeqCst), lists * PARTS);
    }
    let section = global().read_lock();
    retire(0, &dropped);
    // SAFETY: the same.
    let outcome = unsafe { domain::stillpoint_domain_kvfree_barrier_nested(ptr::null_mut()) };
    assert_eq!(outcome, -libc::EDEADLK);
    drop(section);
}
