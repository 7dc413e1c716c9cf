//! The memory of a domain, and of a thread in it: programs have thousands of both.
//!
//! Detects histograms and records that are allocated before they are needed.
#![cfg(not(miri))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr::NonNull,
};
use stillpoint::Domain;

/// Counts what each thread has allocated and not freed.
struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's promise; the block came from `System`.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the bytes that `work` allocates and keeps, divided by `count`.
fn bytes_each(count: usize, work: impl FnOnce()) -> usize {
    let before = LIVE.get();
    work();
    LIVE.get().wrapping_sub(before) / count
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
