//! How long grace periods take.
//!
//! Reading the clock twice would take a good part of a grace period that no reader holds up. So
//! only one in [`ONE_IN`] of these, chosen by its number, is timed from its start, and counts for
//! [`ONE_IN`]. The number is unique, so one thread writes each start. Several that end at once
//! count as one grace period, and the newest is timed.
//!
//! Where a reader holds grace periods up for longer than a moment, the waiters look at the clock
//! anyway (`stalls.rs`). All of those are timed, from the first look of a waiter, so a rare
//! long one is never missed.

use crate::{
    histogram::Recorder,
    platform::clock::{self, Nanos},
};
// std's also in the model, to which counting is no step.
use std::sync::atomic::{AtomicU64, Ordering};

/// One grace period in this number is timed. A power of two.
pub(super) const ONE_IN: u64 = 128;

/// Number of starts that are remembered. While readers hold up more than `ONE_IN` times as many grace
/// periods, the oldest are forgotten, and not counted.
const STARTS: usize = 16;

/// Number of low bits of a remembered start that say of which grace period it is.
const TAG_BITS: u32 = 8;
const TAG: u64 = (1 << TAG_BITS) - 1;

#[derive(Debug)]
pub(super) struct Timing {
    /// The low 56 bits of the time, and a tag below them; 0 for none.
    starts: [AtomicU64; STARTS],
    pub(super) times: Recorder,
}

impl Timing {
    pub(super) fn new() -> Self {
        Self {
            starts: [const { AtomicU64::new(0) }; STARTS],
            times: Recorder::new(),
        }
    }

    fn slot(&self, timed: u64) -> (&AtomicU64, u64) {
        let start = &self.starts[timed as usize % STARTS];
        (start, (timed / STARTS as u64) & TAG)
    }

    /// Notes that the grace period of this number, which is timed, starts at `now`.
    #[cold]
    pub(super) fn note_started(&self, number: u64, now: Nanos) {
        let (start, tag) = self.slot(number / ONE_IN);
        start.store(now << TAG_BITS | tag, Ordering::Relaxed);
    }

    /// Counts a grace period that has ended, and was held up since `since`.
    #[cold]
    pub(super) fn note_held_up(&self, since: Nanos) {
        let took = clock::now().saturating_sub(since);
        self.times.record(took, 1);
    }

    /// Counts grace periods that have ended at `now`. The newest of them, `newest`, is timed.
    #[cold]
    pub(super) fn note_ended(&self, newest: u64, now: Nanos) {
        let (start, tag) = self.slot(newest / ONE_IN);
        let start = start.load(Ordering::Relaxed);
        // The difference of the low 56 bits. It is negative if the thread that started the grace
        // period read the clock after us.
        let took = (now << TAG_BITS).wrapping_sub(start & !TAG).cast_signed() >> TAG_BITS;
        if start != 0 && start & TAG == tag && took >= 0 {
            self.times.record(took.cast_unsigned(), ONE_IN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many have been timed, and how long they took together.
    fn timed(timing: &Timing) -> (u64, u64) {
        let times = timing.times.load();
        (
            times.count() / ONE_IN,
            times.sum().as_nanos() as u64 / ONE_IN,
        )
    }

    #[test]
    fn each_is_timed_from_its_own_start() {
        // Around the wrap of the 56 bits, too.
        for base in [1, (1 << 56) - 50, u64::MAX / 2] {
            let timing = Timing::new();
            timing.note_started(ONE_IN, base);
            timing.note_started(2 * ONE_IN, base + 30);
            timing.note_ended(ONE_IN, base + 100);
            assert_eq!(timed(&timing), (1, 100), "{base}");
            timing.note_ended(2 * ONE_IN, base + 200);
            assert_eq!(timed(&timing), (2, 270), "{base}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_counted() {
        let timing = Timing::new();
        timing.note_ended(ONE_IN, 100);
        assert_eq!(timed(&timing), (0, 0), "its start has not been noted yet");
        let later = ONE_IN * (STARTS as u64 + 1);
        timing.note_started(ONE_IN, 100);
        timing.note_started(later, 1000);
        timing.note_ended(ONE_IN, 2000);
        assert_eq!(timed(&timing), (0, 0), "its place is taken");
        timing.note_ended(later, 900);
        assert_eq!(
            timed(&timing),
            (0, 0),
            "it has ended before it was seen to start"
        );
        timing.note_ended(later, 1400);
        assert_eq!(timed(&timing), (1, 400));
    }
}
