//! A table that is to become smaller needs memory, which may be refused.
#![cfg(not(miri))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};
use stillpoint_cache::Cache;

struct Allocator;

/// Smaller than any table of this test.
const LARGE: usize = 64 << 10;

static REFUSES: AtomicBool = AtomicBool::new(false);
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Large blocks that other threads than the test's have got.
static GRANTED: AtomicU64 = AtomicU64::new(0);

thread_local!(static IS_THE_TEST: Cell<bool> = const { Cell::new(false) });

// SAFETY: all is done by the system's allocator; a null pointer is always a permitted answer.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE && !IS_THE_TEST.get() {
            if REFUSES.load(Ordering::Relaxed) {
                REFUSED.fetch_add(1, Ordering::Relaxed);
                return ptr::null_mut();
            }
            GRANTED.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; the block came from `System`.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn wait_until(is_so: impl Fn() -> bool, what: &str) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        thread::yield_now();
    }
}

/// One test of its own process: all other threads are the library's.
#[test]
fn a_trim_that_was_refused_memory_is_tried_again_without_a_change() {
    IS_THE_TEST.set(true);
    let entries = 1 << 18;
    let cache: Cache<u64, u64> = Cache::builder()
        .max_bytes(entries)
        .weigher(|_, _| 1)
        .build();
    (0..entries).for_each(|key| cache.insert(key, key));
    REFUSES.store(true, Ordering::Relaxed);
    // Fewer than an eighth are left, for which a smaller table is still a large block.
    let left = entries / 16;
    (left..entries).for_each(|key| assert!(cache.invalidate(&key)));
    wait_until(
        || REFUSED.load(Ordering::Relaxed) > 0,
        "no table is too large",
    );
    // Nothing changes the cache from now on.
    let granted = GRANTED.load(Ordering::Relaxed);
    REFUSES.store(false, Ordering::Relaxed);
    wait_until(
        || GRANTED.load(Ordering::Relaxed) > granted,
        "it is not tried again",
    );
    assert_eq!(cache.entry_count(), left);
}
