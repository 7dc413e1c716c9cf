//! When a reclaiming thread yields, and whether the calling thread is reclaiming.

use std::{cell::Cell, thread, time::Duration};
use stillpoint_platform::clock::{self, Nanos};

/// A pass runs for so long without a break.
pub(crate) const SLICE: Duration = Duration::from_micros(500);

/// The break of a thread that no other thread waits for.
const BREAK: Duration = Duration::from_micros(100);

thread_local! {
    static RECLAIMING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is in a pass, that is, inside a shrinker.
pub(crate) fn is_reclaiming() -> bool {
    RECLAIMING.get()
}

/// The calling thread is in a pass until this is dropped.
pub(crate) struct Reclaiming(());

impl Reclaiming {
    /// `None` if it is in one already.
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
    /// In a thread whose charge waits the break is but a chance for others to run.
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

    /// Takes a break if it is time.
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
