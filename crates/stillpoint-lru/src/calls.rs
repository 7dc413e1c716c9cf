//! A registration's calls: how many are under way, and the end that waits for them.
//!
//! ```text
//!   a call                                        the end, once
//!   CALL += 1; GONE? then leave at once  [N1]     GONE is set                     [N3]
//!   user code                                     wait until no call but,
//!   CALL -= 1; GONE? then signal         [N2]     perhaps, the waiter's own is left  [N4]
//! ```
//!
//! [N1] and [N3] are read-modify-writes of one word, so one comes first: either the call is refused, or [N4] counts it. [N2] (release) pairs
//! with [N4] (acquire): what calls have done is done before the end returns. A call that leaves after [N3] signals, also a call that was refused: the
//! waiter may have counted it. So the end sleeps without a bound, and no leaving passes it by; `loom_calls` fails without either.

use stillpoint_platform::{
    event::EventCount,
    sync::{AtomicUsize, Ordering},
};

/// In `state`: no new calls. Calls under way are counted twice over.
const GONE: usize = 1;
const CALL: usize = 2;

#[derive(Debug)]
pub(super) struct Calls {
    state: AtomicUsize,
    left: EventCount,
}

impl Calls {
    pub(super) fn new() -> Self {
        Self { state: AtomicUsize::new(0), left: EventCount::new() }
    }

    /// Begins a call, unless the end has begun. Who has begun one [leaves](Calls::leave).
    #[must_use]
    pub(super) fn enter(&self) -> bool {
        let goes_on = self.state.fetch_add(CALL, Ordering::Relaxed) & GONE == 0; // [N1]
        if !goes_on {
            self.leave();
        }
        goes_on
    }

    /// Ends a call.
    pub(super) fn leave(&self) {
        let before = self.state.fetch_sub(CALL, Ordering::Release); // [N2]
        if before & GONE != 0 {
            self.left.signal_after_rmw();
        }
    }

    /// Whether the end has begun: a call that sees this asks for nothing more. Always seen after an end on the calling thread.
    pub(super) fn is_ending(&self) -> bool {
        self.state.load(Ordering::Relaxed) & GONE != 0
    }

    /// No call begins after this, and none is under way but the caller's own, if it is inside one.
    pub(super) fn end(&self, inside: bool) {
        self.state.fetch_or(GONE, Ordering::Relaxed); // [N3]
        loop {
            let waiter = self.left.prepare();
            let state = self.state.load(Ordering::Acquire); // [N4]
            if state <= GONE | Self::own(inside) {
                waiter.leave();
                return;
            }
            waiter.sleep(None);
        }
    }

    fn own(inside: bool) -> usize {
        if inside { CALL } else { 0 }
    }

    /// In the child of a fork: calls of threads that are no more are over.
    #[cfg(not(stillpoint_loom))]
    pub(super) fn reset_in_child(&self, inside: bool) {
        self.state.store(self.state.load(Ordering::Relaxed) & GONE | Self::own(inside), Ordering::Relaxed);
        self.left.reset_in_child();
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_call_begins_after_the_end() {
        let calls = Calls::new();
        assert!(calls.enter() && !calls.is_ending());
        calls.end(true);
        assert!(calls.is_ending() && !calls.enter());
        calls.leave();
        calls.end(false);
    }
}
