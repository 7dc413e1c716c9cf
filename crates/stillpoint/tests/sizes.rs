//! The memory of a domain, and of a thread in it: programs have thousands of both.
//!
//! Detects histograms and records that are allocated before they are needed.
#![cfg(not(miri))]

#[path = "common/counting.rs"]
mod counting;

use counting::kept_by;
use std::ptr::NonNull;
use stillpoint::Domain;

/// Returns the bytes that `work` allocates and keeps, divided by `count`.
fn bytes_each(count: usize, work: impl FnOnce()) -> usize {
    kept_by(work).1 / count
}

#[test]
fn domains_and_threads_take_what_they_need() {
    const MANY: usize = 100;
    // Allocates what a process and a thread need once.
    drop(Domain::new().read_lock());
    let mut domains = Vec::with_capacity(MANY);
    let domain = bytes_each(MANY, || domains.extend((0..MANY).map(|_| Domain::new())));
    let section = bytes_each(MANY, || {
        domains.iter().for_each(|domain| drop(domain.read_lock()));
    });
    let retire = bytes_each(MANY, || {
        for domain in &domains {
            let object = NonNull::from(Box::leak(Box::new(1_u64)));
            // SAFETY: no other thread has ever known the object.
            unsafe { domain.retire(object) };
        }
    });
    assert!(domain <= 2752, "a domain takes {domain} bytes");
    assert!(section <= 512, "a thread's first section takes {section}");
    // Two pages: the thread's, and the one in reserve.
    assert!(retire <= 2 * 4096 + 1024, "its first retire takes {retire}");
}
