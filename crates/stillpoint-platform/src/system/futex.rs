//! A counter in a futex word.

use crate::clock::Nanos;
use rustix::thread::futex::{Flags, Timespec, wait_bitset, wake};
use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicU32, Ordering},
};

/// A counter in a futex word.
#[derive(Debug)]
pub(crate) struct Signals(AtomicU32);

impl Signals {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(crate) fn load(&self) -> u32 {
        // Acquire, pairs with `raise`: a waiter that takes its key after a signal, which will not
        // wake it, sees the condition that the signaller made true.
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn raise(&self, sleepers: u32) {
        // Release, pairs with `load`: a waiter that takes its key after this sees the condition
        // true.
        self.0.fetch_add(1, Ordering::Release);
        // Waking cannot fail for a valid private word; were it to, the sleepers' bounds would still
        // bring them back.
        let _ = wake(&self.0, Flags::PRIVATE, sleepers);
    }

    /// Sleeps while the counter is `key`, until `deadline`. Uses FUTEX_WAIT_BITSET, because its
    /// time-out is a moment on the monotonic clock and not a length of time.
    pub(crate) fn wait_while(&self, key: u32, deadline: Option<Nanos>) {
        let moment = deadline.map(|at| Timespec {
            tv_sec: (at / 1_000_000_000) as i64,
            tv_nsec: (at % 1_000_000_000) as i64,
        });
        // Every return (woken, changed, timed out, interrupted) sends the caller back to its
        // condition.
        let _ = wait_bitset(
            &self.0,
            Flags::PRIVATE,
            key,
            moment.as_ref(),
            NonZeroU32::MAX,
        );
    }
}
