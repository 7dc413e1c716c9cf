//! An event count (folly's `EventCount`, Vyukov's): sleep until a signal says that a condition may
//! have changed.
//!
//! A waiter announces itself, looks at its condition, and sleeps only if no signal has come since:
//!
//! ```text
//!   waiter                                   signaller
//!   sleepers += 1          [E1]              make the condition true
//!   fence(SeqCst)          [E2]              fence(SeqCst)             [E4]
//!   key = signals                            if sleepers != 0          [E5]
//!   if the condition holds: leave                signals += 1, wake all
//!   sleep while signals == key [E3]
//! ```
//!
//! E2 and E4 are ordered: if E2 comes first, E5 sees the waiter of E1 and wakes it; if E4 comes
//! first, the waiter sees the condition and leaves. A signal between the key and the sleep changes
//! `signals`, and the sleep (which compares under the kernel's lock) returns at once. A signal
//! without waiters costs a fence and a load. Proved by `loom_event` in this file's tests.

use crate::{
    barrier::{fence_after_rmw, full_fence},
    clock::Nanos,
    seam::Signals,
    sync::{AtomicU32, Ordering},
};

/// Number of sleepers to wake: all.
const ALL: u32 = i32::MAX as u32;

/// What waiters sleep on.
#[derive(Debug)]
pub struct EventCount {
    sleepers: AtomicU32,
    signals: Signals,
}

impl EventCount {
    /// Makes an event count without waiters.
    #[expect(clippy::new_without_default, reason = "there is no usual one")]
    pub fn new() -> Self {
        Self {
            sleepers: AtomicU32::new(0),
            signals: Signals::new(),
        }
    }

    /// Announces a waiter. It must look at its condition after this and before [`Waiter::sleep`].
    #[inline]
    pub fn prepare(&self) -> Waiter<'_> {
        // Relaxed [E1]: by E2 the signaller sees it.
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // Fence [E2]: the signaller sees us (E1), or we see the condition that it has made true.
        full_fence();
        Waiter {
            event: self,
            key: self.signals.load(),
        }
    }

    /// Wakes all waiters. Call it after the condition has been made true. Async-signal-safe on
    /// Linux.
    #[inline]
    pub fn signal(&self) {
        // Fence [E4]: the waiter sees the condition true, or we see the waiter (E5).
        full_fence();
        self.wake_sleepers();
    }

    /// Wakes all waiters like [`signal`](Self::signal), for a caller that made the condition true by a
    /// read-modify-write: on x86-64 that is already the full fence.
    #[inline]
    pub fn signal_after_rmw(&self) {
        // Fence [E4]: the caller's, or as in `signal`; the compiler must leave it before E5.
        fence_after_rmw();
        self.wake_sleepers();
    }

    /// Wakes one waiter, if there is one. The system chooses which.
    #[inline]
    pub fn signal_one(&self) {
        // Fence [E4]: as in `signal`.
        full_fence();
        if self.has_sleepers() {
            self.signals.raise(1);
        }
    }

    /// Returns whether there are waiters. The caller has fenced.
    #[inline]
    pub fn has_sleepers(&self) -> bool {
        // Relaxed [E5]: after the caller's fence we see every waiter that announced itself (E1)
        // before its own.
        self.sleepers.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn wake_sleepers(&self) {
        if self.has_sleepers() {
            self.signals.raise(ALL);
        }
    }

    /// Forgets the waiters, in the child of a fork. The calling thread, the only one left, is not among
    /// them: only user code forks, and a thread runs none between announcing itself and sleeping or
    /// leaving.
    pub fn reset_in_child(&self) {
        self.sleepers.store(0, Ordering::Relaxed);
    }
}

/// An announced waiter, which must sleep or leave.
#[derive(Debug)]
#[must_use = "a waiter that neither sleeps nor leaves stays announced, and every signal wakes it in vain"]
pub struct Waiter<'a> {
    event: &'a EventCount,
    key: u32,
}

impl Waiter<'_> {
    /// Sleeps until `deadline`, or until a signal. Returns at once if a signal has come since
    /// [`EventCount::prepare`]. May return early for no reason.
    pub fn sleep(self, deadline: Option<Nanos>) {
        self.event.signals.wait_while(self.key, deadline); // [E3]
        self.leave();
    }

    /// Takes the announcement back, without sleeping.
    #[inline]
    pub fn leave(self) {
        self.event.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_signal_after_prepare_is_not_lost() {
        let event = EventCount::new();
        let waiter = event.prepare();
        event.signal();
        waiter.sleep(None);
        assert_eq!(event.sleepers.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_deadline_in_the_past_returns() {
        let event = EventCount::new();
        event.prepare().sleep(Some(clock::now()));
    }

    #[test]
    fn every_sleeper_is_woken() {
        let event = EventCount::new();
        let open = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while !open.load(Ordering::Acquire) {
                        let waiter = event.prepare();
                        if open.load(Ordering::Acquire) {
                            waiter.leave()
                        } else {
                            waiter.sleep(None)
                        }
                    }
                });
            }
            open.store(true, Ordering::Release);
            event.signal();
        });
    }
}

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests {
    use super::*;
    use crate::sync::{Arc, AtomicBool};

    /// [E1..E5]: a signal after the condition is true leaves no waiter asleep. Time stands still in
    /// the model, so a lost wake-up is a deadlock that loom reports.
    #[test]
    fn loom_event() {
        loom::model(|| {
            let shared = Arc::new((EventCount::new(), AtomicBool::new(false)));
            let theirs = Arc::clone(&shared);
            let waiter = loom::thread::spawn(move || {
                let (event, open) = &*theirs;
                while !open.load(Ordering::Relaxed) {
                    let waiter = event.prepare();
                    if open.load(Ordering::Relaxed) {
                        waiter.leave()
                    } else {
                        waiter.sleep(None)
                    }
                }
            });
            let (event, open) = &*shared;
            open.store(true, Ordering::Relaxed);
            event.signal();
            waiter.join().unwrap();
        });
    }
}
