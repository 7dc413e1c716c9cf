//! What time it is: the monotonic clock, or in tests one that is set by hand.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use stillpoint_platform::clock;

/// A coarse clock is never further behind than this, in nanoseconds: a tick of 100 Hz, twice.
const COARSE: u64 = 20_000_000;

#[derive(Debug, Clone)]
pub enum Clock {
    Monotonic,
    Manual(ManualClock),
}

/// A clock that is set by hand, for tests of expiry.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl Default for ManualClock {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(1)))
    }
}

impl ManualClock {
    /// Lets time pass.
    pub fn advance(&self, by: std::time::Duration) {
        self.0.fetch_add(clock::nanos(by), Ordering::Relaxed);
    }
}

impl Clock {
    pub fn now(&self) -> u64 {
        match self {
            Self::Monotonic => clock::now(),
            Self::Manual(clock) => clock.0.load(Ordering::Relaxed),
        }
    }

    /// Returns whether `expires` is over. The precise clock is read where it is near alone.
    pub fn is_over(&self, expires: u64) -> bool {
        match self {
            Self::Monotonic => {
                expires.saturating_sub(clock::coarse()) <= COARSE && expires <= clock::now()
            }
            Self::Manual(_) => expires <= self.now(),
        }
    }
}
