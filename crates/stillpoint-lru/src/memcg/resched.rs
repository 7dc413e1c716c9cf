//! When a reclaiming thread yields, and whether the calling thread is reclaiming.

use std::{cell::Cell, thread, time::Duration};
use stillpoint_platform::clock::{self, Nanos};

/// Time that a pass runs between two breaks.
pub(crate) const SLICE: Duration = Duration::from_micros(500);

/// Length of the break of a background thread.
const BREAK: Duration = Duration::from_micros(100);

thread_local! {
    static RECLAIMING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is in a pass: inside a shrinker, or the closure that a pass asks
/// whether to go on.
pub(crate) fn is_reclaiming() -> bool {
    RECLAIMING.get()
}

/// Marks the calling thread as being in a pass, until it is dropped.
pub(crate) struct Reclaiming(());

impl Reclaiming {
    /// Returns `None` if the thread is in a pass already.
    pub(crate) fn begin() -> Option<Self> {
        (!RECLAIMING.replace(true)).then(|| Self(()))
    }
}

impl Drop for Reclaiming {
    fn drop(&mut self) {
        RECLAIMING.set(false);
    }
}

/// When a pass takes its breaks.
#[derive(Debug)]
pub(crate) struct Resched {
    began: Nanos,
    /// Length of the break. 0 for a thread whose charge waits: it only yields.
    rest: Duration,
}

impl Resched {
    pub(crate) fn direct() -> Self {
        Self {
            began: clock::now(),
            rest: Duration::ZERO,
        }
    }

    pub(crate) fn background() -> Self {
        Self {
            began: clock::now(),
            rest: BREAK,
        }
    }

    /// Takes a break if the pass has run for [`SLICE`] since the last one.
    pub(crate) fn cond_resched(&mut self) {
        if clock::now().saturating_sub(self.began) < clock::nanos(SLICE) {
            return;
        }
        if self.rest.is_zero() {
            thread::yield_now()
        } else {
            thread::sleep(self.rest)
        }
        self.began = clock::now();
    }
}
