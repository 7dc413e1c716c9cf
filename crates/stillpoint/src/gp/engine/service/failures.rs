//! When service threads have failed lately.

use crate::platform::{
    clock::Nanos,
    sync::{AtomicU64, Ordering},
};

/// Number of failures within [`LATELY`] after which the thread stays down.
pub(super) const MOST_FAILURES: usize = 3;

/// A minute.
const LATELY: Nanos = 60_000_000_000;

/// The times of a domain's latest service-thread failures, the oldest first; 0 for none. There is
/// one at a time, and the lock of the state between two.
#[derive(Debug)]
pub(super) struct Failures([AtomicU64; MOST_FAILURES - 1]);

impl Failures {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Returns whether one at the moment `now` is one too many.
    pub(super) fn note(&self, now: Nanos) -> bool {
        let mut newer = now;
        for at in self.0.iter().rev() {
            let at_before = at.load(Ordering::Relaxed);
            at.store(newer, Ordering::Relaxed);
            newer = at_before;
        }
        let oldest = newer;
        oldest > 0 && now.saturating_sub(oldest) < LATELY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_within_a_minute_are_too_many() {
        let second = LATELY / 60;
        let failures = Failures::new();
        assert_eq!(
            [1, 2, 3].map(|now| failures.note(now)),
            [false, false, true]
        );
        let failures = Failures::new();
        // The third is a minute after the first, and more; the fourth is not, of the second.
        assert_eq!(
            [1, 40, 61, 90, 150].map(|now| failures.note(now * second)),
            [false, false, false, true, false]
        );
    }
}
