//! Counts a registration's calls that are under way, so that its end can wait for them.
//!
//! ```text
//!   enter   CALL += 1; GONE? then leave at once     end (once)   GONE is set
//!           user code                                            wait until no call but,
//!   leave   CALL -= 1; GONE? then signal                         perhaps, the waiter's own is left
//! ```
//!
//! `enter` and the setting of GONE are read-modify-writes of one word, so one comes first: either
//! the call is refused, or the wait counts it. `leave` (release) pairs with the wait (acquire):
//! what calls have done is done before `end` returns. A call that leaves after GONE has been set
//! signals, also a call that was refused: the waiter may have counted it. So `end` sleeps without a
//! bound, and misses no wake-up; `loom_calls_end` fails without either.

use stillpoint_platform::{
    event::EventCount,
    sync::{AtomicUsize, Ordering},
};

/// The flag in `state` that refuses new calls. Calls under way are counted in units of [`CALL`].
const GONE: usize = 1;
const CALL: usize = 2;

#[derive(Debug)]
pub(crate) struct Calls {
    state: AtomicUsize,
    left: EventCount,
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicUsize::new(0),
            left: EventCount::new(),
        }
    }

    /// Begins a call, unless the end has begun. The caller ends it with [`leave`](Calls::leave).
    #[must_use]
    pub(crate) fn enter(&self) -> bool {
        let goes_on = self.state.fetch_add(CALL, Ordering::Relaxed) & GONE == 0;
        if !goes_on {
            self.leave();
        }
        goes_on
    }

    /// Ends a call.
    pub(crate) fn leave(&self) {
        // Release, pairs with `end`: what the call has done is done before the end returns.
        let before = self.state.fetch_sub(CALL, Ordering::Release);
        if before & GONE != 0 {
            self.left.signal_after_rmw();
        }
    }

    /// Returns true once the end has begun: a call that sees this stops scanning. After an end on the
    /// calling thread it is always seen.
    pub(crate) fn is_ending(&self) -> bool {
        self.state.load(Ordering::Relaxed) & GONE != 0
    }

    /// Ends the registration: no call begins after this, and none is under way except the caller's
    /// own, if it is inside one.
    pub(crate) fn end(&self, inside: bool) {
        self.state.fetch_or(GONE, Ordering::Relaxed);
        loop {
            let waiter = self.left.prepare();
            // Acquire, pairs with `leave`: where no call is left, what they have done is seen.
            let state = self.state.load(Ordering::Acquire);
            if state <= GONE | Self::own(inside) {
                waiter.leave();
                return;
            }
            waiter.sleep(None);
        }
    }

    /// In the child of a fork: forgets the calls of lost threads, all but the caller's own.
    pub(crate) fn reset_in_child(&self, inside: bool) {
        let state = self.state.load(Ordering::Relaxed) & GONE | Self::own(inside);
        self.state.store(state, Ordering::Relaxed);
        self.left.reset_in_child();
    }

    fn own(inside: bool) -> usize {
        if inside { CALL } else { 0 }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_call_after_the_end() {
        let calls = Calls::new();
        assert!(calls.enter() && !calls.is_ending());
        calls.end(true);
        assert!(calls.is_ending() && !calls.enter());
        calls.leave();
        calls.end(false);
    }
}
