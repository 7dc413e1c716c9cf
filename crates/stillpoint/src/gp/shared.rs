//! What an engine shares with its readers' records, and with callbacks that wake its waiters.

use super::{owners::Owners, seq::Sequence, stack::Stack};
use crate::platform::{
    event::EventCount,
    sync::{AtomicBool, Ordering},
};

/// What readers touch, at an address that stays.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) seq: Sequence,
    /// Threads that wait for a grace period to end, or for a holdout to leave.
    pub(super) waiters: EventCount,
    /// The service thread.
    pub(super) service: EventCount,
    /// Whether the service thread sleeps for the same reasons as `waiters` do.
    pub(super) service_waits: AtomicBool,
    pub(super) owners: Owners,
    /// Records that no thread and no guard owns any more: see `registry.rs`. Of what type they are
    /// this file need not know.
    pub(super) given_back: Stack<()>,
}

impl Shared {
    pub(super) fn new(seq: Sequence) -> Self {
        Self {
            seq,
            waiters: EventCount::new(),
            service: EventCount::new(),
            service_waits: AtomicBool::new(false),
            owners: Owners::new(),
            given_back: Stack::new(),
        }
    }

    /// To be called after a grace period has ended or a flagged holdout has left, which is a
    /// read-modify-write in either case (W5, or the swap that takes the flags). Async-signal-safe
    /// on Linux.
    pub(super) fn wake_all(&self) {
        self.waiters.signal_after_rmw();
        if self.service_waits.load(Ordering::Relaxed) {
            self.service.signal();
        }
    }
}
