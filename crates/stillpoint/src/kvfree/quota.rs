//! How much a thread queues before it ends a grace period itself: by what the last ones have cost.

use crate::platform::{clock::Nanos, sync::Ordering};
// std's also in the model, to which what one thread keeps for itself is no step.
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// A quota is never smaller than this, or a thread would end a grace period for every page.
pub(super) const SMALLEST_QUOTA: usize = 64 << 10;

/// A quota grows while its thread spends more than a part of its time on ending grace periods: the
/// quota divided by this number of bytes. It shrinks while the thread spends less than half of that.
/// A smaller number means less memory and more time: `docs/design/016-back-pressure.md` has figures
/// for 768 KiB.
const ALL_TIME: usize = 512 << 10;

/// The bound on a quota that follows from [`ALL_TIME`] and [`QUOTA_STEP`], beside the thread's share.
#[cfg(test)]
const LARGEST_QUOTA: usize = 576 << 10;

/// A quota grows and shrinks by this part of itself, after a grace period. If a quota was too large
/// for a while, the memory stays in the thread's arena of the allocator.
const QUOTA_STEP: usize = 8;

/// How much a thread queues before it ends a grace period itself, by what the last ones have cost
/// it: see [`ALL_TIME`]. The thread's alone.
#[derive(Debug)]
pub(super) struct Quota {
    bytes: AtomicUsize,
    /// When the thread last ended a grace period.
    ended_last: AtomicU64,
    /// For how long it has tried to end one since.
    cost: AtomicU64,
}

impl Quota {
    pub(super) fn new() -> Self {
        Self {
            bytes: AtomicUsize::new(SMALLEST_QUOTA),
            ended_last: AtomicU64::new(0),
            cost: AtomicU64::new(0),
        }
    }

    /// Resets the quota to that of a new thread.
    pub(super) fn reset(&self) {
        self.bytes.store(SMALLEST_QUOTA, Ordering::Relaxed);
        self.ended_last.store(0, Ordering::Relaxed);
        self.cost.store(0, Ordering::Relaxed);
    }

    /// Returns the quota in bytes, at most `share`, which follows the budget and the number of threads.
    pub(super) fn within(&self, share: usize) -> usize {
        self.bytes.load(Ordering::Relaxed).min(share)
    }

    /// Adapts to an attempt to end a grace period, from `begun` until `now`. If it has not `ended` one, its
    /// time is part of the cost of the next attempt that does.
    pub(super) fn note_attempt(&self, begun: Nanos, now: Nanos, ended: bool, share: usize) {
        let cost = self.cost.load(Ordering::Relaxed) + now.saturating_sub(begun);
        if !ended {
            return self.cost.store(cost, Ordering::Relaxed);
        }
        self.cost.store(0, Ordering::Relaxed);
        let time = now.saturating_sub(self.ended_last.swap(now, Ordering::Relaxed));
        let quota = self.within(share);
        // The part of the time that grace periods took, and the part that they may take, both
        // multiplied by `time` and `ALL_TIME`.
        let took = u128::from(cost.max(1)) * ALL_TIME as u128;
        let may_take = u128::from(time) * quota as u128;
        let step = quota / QUOTA_STEP;
        let next = if took > may_take {
            (quota + step).min(share)
        } else if took < may_take / 2 {
            (quota - step).max(SMALLEST_QUOTA)
        } else {
            quota
        };
        self.bytes.store(next, Ordering::Relaxed);
    }
}

// Detects a quota one step past all of a thread's time.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::kvfree::throttle::LARGEST_SHARE;

    const SHARE: usize = 4 * SMALLEST_QUOTA;

    /// Returns the quota after `times` grace periods, each of which costs `cost` of `time`.
    fn after(quota: &Quota, cost: Nanos, time: Nanos, times: usize) -> usize {
        for _ in 0..times {
            let now = quota.ended_last.load(Ordering::Relaxed) + time;
            quota.note_attempt(now - cost, now, true, SHARE);
        }
        quota.within(SHARE)
    }

    /// Returns the quota after a hundred grace periods of `cost` each, in a thread that fills its quota at
    /// a byte a nanosecond.
    fn settled(cost: Nanos) -> usize {
        let quota = Quota::new();
        quota.ended_last.store(1 << 40, Ordering::Relaxed);
        (0..100).for_each(|_| {
            let time = quota.within(LARGEST_SHARE) as Nanos;
            let now = quota.ended_last.load(Ordering::Relaxed) + time;
            quota.note_attempt(now - cost, now, true, LARGEST_SHARE);
        });
        quota.within(LARGEST_SHARE)
    }

    #[test]
    fn a_quota_follows_what_grace_periods_cost() {
        let quota = Quota::new();
        assert_eq!(quota.within(SHARE), SMALLEST_QUOTA, "small at first");
        let time = ALL_TIME as Nanos;
        let half_allowed = SMALLEST_QUOTA as Nanos / 2;
        let larger = SMALLEST_QUOTA + SMALLEST_QUOTA / QUOTA_STEP;
        assert_eq!(after(&quota, 2 * half_allowed, time, 9), SMALLEST_QUOTA);
        assert_eq!(after(&quota, 2 * half_allowed + 1, time, 1), larger);
        assert_eq!(
            after(&quota, half_allowed + half_allowed / 2, time, 9),
            larger,
            "neither much nor little"
        );
        assert_eq!(after(&quota, time, time, 100), SHARE, "the share bounds it");
        assert_eq!(quota.within(SHARE / 2), SHARE / 2, "also if that shrinks");
        assert_eq!(after(&quota, 0, time, 1), SHARE - SHARE / QUOTA_STEP);
        assert_eq!(after(&quota, 0, time, 100), SMALLEST_QUOTA);
    }

    /// A quota settles where it is worth its memory: four times the cost make it twice as large.
    #[test]
    fn a_quota_settles_by_the_root_of_the_cost() {
        assert_eq!(settled(1000), SMALLEST_QUOTA);
        for cost in [10_000_u32, 20_000, 40_000, 80_000] {
            let root = (f64::from(cost) * ALL_TIME as f64).sqrt();
            let settled = settled(cost.into()) as f64;
            let step = 1.0 + 1.0 / QUOTA_STEP as f64;
            assert!(
                (root..root * step).contains(&settled),
                "{settled} of {root} at {cost}"
            );
        }
    }

    /// The largest share is more than a quota comes to: at [`ALL_TIME`] grace periods would have to
    /// take more than all of a thread's time.
    #[test]
    fn a_quota_grows_by_one_step_past_all_time_at_most() {
        let quota = Quota::new();
        let mut largest = 0;
        for n in 1..1_000 {
            // It does nothing but try to end grace periods.
            let (begun, now) = (n << 20, (n + 1) << 20);
            quota.ended_last.store(begun, Ordering::Relaxed);
            quota.note_attempt(begun, now, true, LARGEST_SHARE);
            largest = largest.max(quota.within(LARGEST_SHARE));
        }
        assert!((ALL_TIME..LARGEST_QUOTA).contains(&largest), "{largest}");
        const { assert!(LARGEST_QUOTA < LARGEST_SHARE) };
    }

    #[test]
    fn failed_attempts_count_towards_the_one_that_ends_the_grace_period() {
        let quota = Quota::new();
        let time = ALL_TIME as Nanos;
        let part = SMALLEST_QUOTA as Nanos / 10;
        for attempt in 1..=10 {
            let begun = attempt * 2 * part;
            quota.note_attempt(begun, begun + part, false, SHARE);
        }
        assert_eq!(quota.within(SHARE), SMALLEST_QUOTA);
        let larger = SMALLEST_QUOTA + SMALLEST_QUOTA / QUOTA_STEP;
        quota.note_attempt(time - part, time, true, SHARE);
        assert_eq!(quota.within(SHARE), larger);
        assert_eq!(
            after(&quota, 1, time, 1),
            SMALLEST_QUOTA,
            "and only to that"
        );
    }
}
