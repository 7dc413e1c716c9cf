//! Memory of futures: one that is dropped leaves nothing behind, however long its readers stay.
//!
//! The allocator of this program counts what each thread has allocated and not freed.
#![cfg(not(miri))]

mod common;
#[path = "common/counting.rs"]
mod counting;

use common::{Reader, assert_counts, eventually};
use counting::kept_by;
use std::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
};
use stillpoint::Domain;

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
    // A task that tries again and again, and gives up each time.
    let ((), left) = kept_by(|| (0..100_000).for_each(|_| try_once()));
    assert!(left.cast_signed() < SLACK, "{left} bytes are left");
    // Many at a time.
    let ((), left) = kept_by(|| {
        let wait = |_| {
            let mut future = Box::pin(domain.synchronize_async());
            let mut context = Context::from_waker(Waker::noop());
            assert!(future.as_mut().poll(&mut context).is_pending());
            future
        };
        let futures: Vec<_> = (0..10_000).map(wait).collect();
        assert_eq!(domain.statistics().futures_pending, 10_000);
        drop(futures);
    });
    assert!(left.cast_signed() < SLACK, "{left} bytes are left");
    assert_counts!(domain, futures_pending: 0, callbacks_pending: 1);
    reader.leave();
}
