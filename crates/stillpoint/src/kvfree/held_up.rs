//! Times for how long a reader has held grace periods up, in domains that free on demand.

use crate::platform::{
    clock::Nanos,
    sync::{AtomicU64, Ordering},
};

/// No thread waits for a section that has held grace periods up for longer than this. A shorter one
/// mostly belongs to a thread that has lost its processor, and gets it back if others sleep.
pub(super) const LONG: Nanos = 10_000_000;

/// Since when the next grace period has been held up, as far as threads have seen: the number of
/// those that have ended, and a time, in one word. Once the reader has left, a grace period ends,
/// and the time begins anew. All threads share it, or they would wait for the same reader one after
/// the other.
///
/// Two threads may record their times out of order, so a recorded time may be in the future. A thread that
/// loses its processor within [`HeldUp::note`] may begin the time anew; then all wait a little longer.
#[derive(Debug)]
pub(super) struct HeldUp(AtomicU64);

impl HeldUp {
    /// The unit of the times, a millisecond or so: 32 bits of them are 52 days.
    const UNIT: Nanos = 1 << 20;

    /// The times that count as ahead, in units: a minute or so. Times wrap, so that others count as
    /// past.
    const AHEAD: u32 = 1 << 16;

    pub(super) fn new() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    /// Notes that a reader holds up the grace period after the first `ended` ones. Returns whether it has
    /// for longer than [`LONG`]. The caller reads `ended` before `now`; otherwise the time of the last grace
    /// period would count towards this one.
    pub(super) fn note(&self, ended: u64, now: Nanos) -> bool {
        let which = ended as u32;
        let now = (now / Self::UNIT) as u32;
        let word = self.0.load(Ordering::Relaxed);
        if (word >> 32) as u32 != which {
            let word = u64::from(which) << 32 | u64::from(now);
            self.0.store(word, Ordering::Relaxed);
            return false;
        }
        let time = now.wrapping_sub(word as u32);
        let is_ahead = time.wrapping_neg() <= Self::AHEAD;
        !is_ahead && Nanos::from(time) * Self::UNIT > LONG
    }
}

// Detects a recorded time that lies ahead.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    const A_UNIT: Nanos = HeldUp::UNIT;

    #[test]
    fn the_time_begins_anew_with_each_grace_period() {
        let held_up = HeldUp::new();
        let begin = 100 * A_UNIT;
        for ended in [0, 7, 8, u64::from(u32::MAX), 1 << 32] {
            assert!(!held_up.note(ended, begin), "the first to see it");
            assert!(!held_up.note(ended, begin + LONG - A_UNIT));
            assert!(held_up.note(ended, begin + LONG + A_UNIT));
        }
    }

    /// Its look at the clock came before the other thread's, and its note comes after it.
    #[test]
    fn a_time_that_lies_ahead_is_not_long() {
        let held_up = HeldUp::new();
        let begin = 100 * A_UNIT;
        assert!(!held_up.note(1, begin));
        assert!(!held_up.note(1, begin - A_UNIT));
        assert!(!held_up.note(1, begin - 99 * A_UNIT));
        assert!(held_up.note(1, begin + 2 * LONG), "it is as it was");
    }

    #[test]
    fn a_reader_of_weeks_is_long_also_when_the_times_have_wrapped() {
        let held_up = HeldUp::new();
        let begin = 100 * A_UNIT;
        assert!(!held_up.note(1, begin));
        for days in [1, 27, 51, 60] {
            assert!(held_up.note(1, begin + days * 86_400_000_000_000), "{days}");
        }
    }
}
