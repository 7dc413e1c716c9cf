//! What a child of a fork resets in a hierarchy.
//!
//! Locks that another thread held are lost: an operation that needs one ends the process, and drops
//! leak ([`Tree::has_lost_lock`]). What threads wait for without a lock is reset here: per-CPU
//! stocks, calls of shrinkers, and the background reclaimer.

use super::{
    background::{Background, State},
    shrinker::Registered,
    stock::{
        Stocks,
        per_cpu::{EMPTY, ENTRIES},
    },
    tree::Tree,
};
use crate::calls::{Calls, GONE};
use std::sync::atomic::Ordering;
use stillpoint_platform::fork::ForkReset;

impl ForkReset for Tree {
    unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise; no user code runs under the locks.
        unsafe {
            self.numbers.reset_in_child();
            self.stocks.reset_in_child();
            self.background.reset_in_child();
            self.each_shrinker(Registered::reset_in_child);
        }
        // SAFETY: the only thread.
        for index in 0..unsafe { self.tenants.peek_len() } {
            // SAFETY: the only thread.
            if let Some(tenant) = unsafe { self.tenants.peek(index) } {
                tenant.queued.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl Stocks {
    /// Empties per-CPU stocks that a lost thread was using. Their bytes stay charged, or keep their
    /// tenant alive.
    ///
    /// # Safety
    ///
    /// The calling thread is the only one, and does not hold these: no user code runs at a per-CPU
    /// stock or under these locks.
    unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.all.reset_in_child();
            self.exact.reset_in_child();
        }
        for stock in &self.per_cpu {
            stock.waiting.store(0, Ordering::Relaxed);
            if stock.taken.load(Ordering::Relaxed) {
                // SAFETY: the caller's promise.
                unsafe { *stock.entries.get() = [EMPTY; ENTRIES] };
                stock.taken.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl Background {
    /// The thread is gone, and starts again on demand.
    ///
    /// # Safety
    ///
    /// See [`ForkReset::reset_in_child`].
    unsafe fn reset_in_child(&self) {
        let state = if self.stop.load(Ordering::Relaxed) {
            State::Stopped
        } else {
            State::NotStarted
        };
        // SAFETY: the caller's promise; no user code runs under these locks. What was queued is
        // leaked.
        unsafe {
            self.state.reinit(state);
            self.queue.reinit(Vec::new());
        }
        self.wake.reset_in_child();
    }
}

impl Registered {
    /// Forgets the calls of lost threads.
    fn reset_in_child(&self) {
        self.calls.reset_in_child(self.is_calling());
    }
}

impl Calls {
    /// Forgets the calls of lost threads.
    fn reset_in_child(&self, inside: bool) {
        self.state.store(
            self.state.load(Ordering::Relaxed) & GONE | Self::own(inside),
            Ordering::Relaxed,
        );
        self.left.reset_in_child();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hierarchy;
    use std::mem;

    #[test]
    fn child_of_fork_has_free_stocks() {
        let hierarchy = Hierarchy::new();
        let stocks = hierarchy.root().memcg().tree.stocks();
        mem::forget(
            stocks.per_cpu[0]
                .try_take()
                .expect("no other thread has it"),
        );
        stocks.per_cpu[0].waiting.fetch_add(1, Ordering::Relaxed);
        // SAFETY: no other thread has the hierarchy, and this one is not in there.
        unsafe { stocks.reset_in_child() };
        assert!(stocks.per_cpu[0].try_take().is_some());
    }
}
