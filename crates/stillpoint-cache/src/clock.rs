//! What time it is: the monotonic clock, or in tests one that is set by hand.

use crate::node::COARSE;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use stillpoint_platform::clock;

#[derive(Debug, Clone)]
pub enum Clock {
    Monotonic,
    Manual(ManualClock),
}

/// A clock that a test advances, for a cache whose entries expire: see
/// [`Builder::clock`](crate::Builder::clock). Clones are the same clock.
///
/// The service thread of caches does not follow it: what has expired is not found, and goes with later
/// inserts, or with [`run_pending`](crate::Cache::run_pending).
///
/// ```
/// use std::time::Duration;
/// use stillpoint_cache::{Cache, ManualClock};
///
/// let clock = ManualClock::default();
/// let cache = Cache::builder()
///     .max_entries(100)
///     .time_to_live(Duration::from_secs(60))
///     .clock(clock.clone())
///     .build();
/// cache.insert(1, 1);
/// clock.advance(Duration::from_secs(60));
/// assert_eq!((cache.get(&1), cache.entry_count()), (None, 1));
/// cache.run_pending();
/// assert_eq!(cache.entry_count(), 0);
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl Default for ManualClock {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(1)))
    }
}

impl ManualClock {
    /// Advances the clock by `by`.
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

    /// Returns a time that is at most [`COARSE`] ago if `expires` is not over, otherwise `None`. Reads the precise
    /// clock only where the two are that near.
    pub fn before(&self, expires: u64) -> Option<u64> {
        let mut now = match self {
            Self::Monotonic => clock::coarse(),
            Self::Manual(_) => self.now(),
        };
        if expires.saturating_sub(now) <= COARSE {
            now = self.now();
        }
        (now < expires).then_some(now)
    }
}
