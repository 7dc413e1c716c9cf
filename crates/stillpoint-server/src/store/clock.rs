//! Seconds, by which items expire.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};
use stillpoint_platform::clock;

/// Seconds that the clock starts with, as 0 stands for "never".
const FIRST: u32 = 2;

/// A second of the past.
pub const LONG_AGO: u32 = 1;

/// The clock of a store.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The system's monotonic clock.
    #[default]
    System,
    /// A clock that a test sets.
    Manual(ManualClock),
}

impl Clock {
    /// Seconds since a moment before the store was made; never 0, never less than before.
    #[inline]
    pub(super) fn now(&self) -> u32 {
        match self {
            Self::System => (clock::coarse() / 1_000_000_000) as u32 + FIRST,
            Self::Manual(clock) => clock.now(),
        }
    }
}

/// A clock that only [`ManualClock::advance`] moves. Clones are handles of the same clock.
///
/// ```
/// use stillpoint_server::store::ManualClock;
/// let clock = ManualClock::new();
/// let then = clock.now();
/// clock.advance(60);
/// assert_eq!(clock.now(), then + 60);
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU32>);

impl ManualClock {
    /// Creates a clock that shows 2 seconds.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(AtomicU32::new(FIRST)))
    }

    /// Returns the time that it shows, in seconds.
    #[must_use]
    pub fn now(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Advances it by `seconds`. It stops at `u32::MAX`.
    pub fn advance(&self, seconds: u32) {
        let on = |now: u32| Some(now.saturating_add(seconds));
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, on);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}
