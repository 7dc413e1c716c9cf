//! Memory of futures: one that is dropped leaves nothing behind, however long its readers stay.
//!
//! The allocator of this program counts.
#![cfg(not(miri))]

mod common;

use common::{Reader, eventually};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    future::Future,
    pin::pin,
    sync::atomic::{AtomicIsize, Ordering},
    task::{Context, Waker},
};
use stillpoint::Domain;

struct Allocator;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: all is done by the system's allocator.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise; the block came from `System`.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// What a few futures may leave: tables that are not given back.
const SLACK: isize = 16 << 10;

#[test]
fn futures_that_are_dropped_leave_nothing_while_their_reader_stays() {
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    domain.call(|| ());
    let try_once = || {
        let mut context = Context::from_waker(Waker::noop());
        assert!(
            pin!(domain.synchronize_async())
                .poll(&mut context)
                .is_pending()
        );
        assert!(pin!(domain.barrier_async()).poll(&mut context).is_pending());
    };
    try_once();
    // The service thread has come to its sleep.
    eventually(|| domain.statistics().heavy_barriers > 1);
    let before = LIVE.load(Ordering::SeqCst);
    // A task that tries again and again, and gives up each time.
    (0..100_000).for_each(|_| try_once());
    let left = LIVE.load(Ordering::SeqCst) - before;
    assert!(left < SLACK, "{left} bytes are left");
    // Many at a time.
    let futures: Vec<_> = (0..10_000)
        .map(|_| {
            let mut future = Box::pin(domain.synchronize_async());
            assert!(
                future
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()))
                    .is_pending()
            );
            future
        })
        .collect();
    assert_eq!(domain.statistics().futures_pending, 10_000);
    drop(futures);
    let left = LIVE.load(Ordering::SeqCst) - before;
    assert!(left < SLACK, "{left} bytes are left");
    let statistics = domain.statistics();
    assert_eq!(
        (statistics.futures_pending, statistics.callbacks_pending),
        (0, 1)
    );
    reader.leave();
}
