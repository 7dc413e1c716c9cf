//! What an engine shares with its readers' records, and with callbacks that wake its waiters.

use super::{owners::Owners, seq::Sequence, stack::Stack};
use crate::platform::{
    event::EventCount,
    sync::{AtomicBool, Ordering},
};
use std::sync::OnceLock;

/// The state that readers touch, at an address that does not change.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) seq: Sequence,
    /// Threads that wait for a grace period to end, or for a holdout to leave.
    pub(super) waiters: EventCount,
    /// The event of the service thread, unless the pool makes the rounds.
    service: EventCount,
    /// The pool's event, if it does (`pool.rs`).
    pool: OnceLock<&'static EventCount>,
    /// Whether the service thread sleeps until a grace period ends or a holdout leaves, as
    /// `waiters` do.
    pub(super) service_waits: AtomicBool,
    pub(super) owners: Owners,
    /// Records that no thread and no guard owns any more: see `registry.rs`. They have no type
    /// here, so this file need not import it.
    pub(super) given_back: Stack<()>,
}

impl Shared {
    pub(super) fn new(seq: Sequence) -> Self {
        Self {
            seq,
            waiters: EventCount::new(),
            service: EventCount::new(),
            pool: OnceLock::new(),
            service_waits: AtomicBool::new(false),
            owners: Owners::new(),
            given_back: Stack::new(),
        }
    }

    /// Returns the event of the thread that makes the engine's rounds. Async-signal-safe.
    pub(super) fn service(&self) -> &EventCount {
        self.pool.get().copied().unwrap_or(&self.service)
    }

    /// Sets the pool's event. Called before the engine is used.
    pub(super) fn share_service(&self, event: &'static EventCount) {
        let set = self.pool.set(event);
        debug_assert!(set.is_ok(), "a domain is made once");
    }

    /// Resets the event of the service thread, in the child of a fork.
    pub(super) fn reset_service_in_child(&self) {
        // The pool resets its event by itself.
        self.service.reset_in_child();
    }

    /// Wakes the waiters after a grace period has ended or a flagged holdout has left, which is a
    /// read-modify-write in either case (W5, or the swap that takes the flags). Async-signal-safe
    /// on Linux.
    pub(super) fn wake_all(&self) {
        self.waiters.signal_after_rmw();
        if self.service_waits.load(Ordering::Relaxed) {
            self.service().signal();
        }
    }
}
