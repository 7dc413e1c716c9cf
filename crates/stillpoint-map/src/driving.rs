//! Whose turn it is to move a map's table on the service thread: that of one callback at a time, and
//! of none once the map is closed.

use crate::backoff::Backoff;
use stillpoint_platform::{
    barrier::full_fence,
    fork,
    sync::{AtomicU64, Ordering},
};

/// No process: the map is closed, in its children as well.
const CLOSED: u64 = u64::MAX;

fn this_process() -> u64 {
    fork::process().generation() + 1
}

#[derive(Debug)]
pub struct Driving {
    /// Which process has queued a callback that moves tables, as [`this_process`]; 0 if none has.
    queued: AtomicU64,
    /// Which process is in that callback, or [`CLOSED`].
    driving: AtomicU64,
}

impl Driving {
    pub fn new() -> Self {
        Self {
            queued: AtomicU64::new(0),
            driving: AtomicU64::new(0),
        }
    }

    /// Returns whether the caller, who knows that the table moves, is to queue a callback.
    #[cold]
    pub fn is_to_queue(&self) -> bool {
        // Fence, pairs with `end_queue`: the callback sees that the table moves, or this sees that
        // there is no callback any more.
        full_fence();
        let (queued, me) = (self.queued.load(Ordering::Relaxed), this_process());
        queued != me
            && self
                .queued
                .compare_exchange(queued, me, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// There is no callback after all: the next change asks for it.
    pub fn give_up(&self) {
        self.queued.store(0, Ordering::Relaxed);
    }

    /// There is no callback any more. What is looked at after this is not older.
    pub fn end_queue(&self) {
        self.queued.store(0, Ordering::Relaxed);
        // Fence, pairs with `is_to_queue`: this sees that the table moves, or the thread that began
        // that sees that there is no callback.
        full_fence();
    }

    /// Begins the turn of the callback that was queued. If this returns false, as [`begin`](Self::begin) does,
    /// there is no callback any more.
    pub fn begin_queued(&self) -> bool {
        if self.begin() {
            return true;
        }
        self.end_queue();
        // The thread that was in the way may have ended its turn since, and have started a move when a callback
        // still seemed to be queued. If it ends after this second look, its next look at `queued` finds none:
        // the fences of `end_queue` and `is_to_queue` order the two.
        let begins = self.begin();
        if begins {
            self.queued.store(this_process(), Ordering::Relaxed);
        }
        begins
    }

    /// Returns false if another callback of this process drives, or the map is closed.
    pub fn begin(&self) -> bool {
        let (driving, me) = (self.driving.load(Ordering::Relaxed), this_process());
        // That of another process is a thread that the fork has removed.
        // Acquire, pairs with `end`: what was moved.
        driving != me
            && driving != CLOSED
            && self
                .driving
                .compare_exchange(driving, me, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    pub fn end(&self) {
        // Release, pairs with `begin`: what was moved.
        self.driving.store(0, Ordering::Release);
    }

    /// Ends the callback's work for good. Waits for a slice, if one is under way.
    pub fn close(&self) {
        self.wait_to_begin();
        self.driving.store(CLOSED, Ordering::Relaxed);
    }

    /// Keeps callbacks from moving tables until the result is dropped. Waits for a slice, if one is under
    /// way.
    pub fn exclude(&self) -> Excluded<'_> {
        self.wait_to_begin();
        Excluded(self)
    }

    fn wait_to_begin(&self) {
        let mut backoff = Backoff::new();
        while !self.begin() {
            backoff.wait();
        }
    }
}

/// Keeps callbacks from moving tables.
pub struct Excluded<'a>(&'a Driving);

impl Drop for Excluded<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
