//! Times one thing that may be held up.

use crate::platform::{
    clock::Nanos,
    sync::{AtomicU64, Ordering},
};
use std::time::Duration;

/// Times one thing.
#[derive(Debug)]
pub(in crate::gp) struct Watch {
    /// The time from which it is timed, its start or its last progress since, and whether a stall has been
    /// reported ([`REPORTED`]); 0 while it is not timed. One word, so that no thread marks a stall that is over: the mark would stay,
    /// and the next stall would count as reported.
    pub(in crate::gp) since: AtomicU64,
    pub(super) count: AtomicU64,
    /// How many bytes were unreclaimed when it was started. Written after `since`, so a thread that
    /// reads both in between sees the count of the stall before.
    bytes: AtomicU64,
}

/// A flag beside the time, which is smaller.
const REPORTED: u64 = 1 << 63;

/// The verdict of a [`Watch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not yet; look again at this time.
    Early(Nanos),
    /// A stall of this length, which the caller has to report.
    Due(Duration),
    Reported,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            since: AtomicU64::new(0),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Starts timing, unless that has begun, and returns the start, which [`Watch::verdict`] takes.
    /// `bytes` returns the number of unreclaimed bytes.
    pub(super) fn start(&self, now: Nanos, bytes: impl FnOnce() -> u64) -> u64 {
        match self
            .since
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => {
                self.bytes.store(bytes(), Ordering::Relaxed);
                now
            }
            Err(since) => since,
        }
    }

    /// Returns how many bytes have come since the start, if there are `now`.
    pub(super) fn grown_to(&self, now: u64) -> u64 {
        now.saturating_sub(self.bytes.load(Ordering::Relaxed))
    }

    /// Returns when it was started; 0 if it was not.
    pub(super) fn stop(&self) -> Nanos {
        match self.since.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.stop_slow(),
        }
    }

    #[cold]
    fn stop_slow(&self) -> Nanos {
        // Two threads that stop it at once do not both count what it timed.
        self.since.swap(0, Ordering::Relaxed) & !REPORTED
    }

    /// Times it from `now` on, if it is being timed: it makes progress. Returns whether it had been
    /// reported as stalled.
    pub(super) fn advance(&self, now: impl Fn() -> Nanos) -> bool {
        self.since
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |since| {
                (since != 0).then(&now)
            })
            .is_ok_and(|before| before & REPORTED != 0)
    }

    /// Since when it has been stalled, if that has been reported and it still is; else 0.
    pub(super) fn reported_since(&self) -> Nanos {
        match self.since.load(Ordering::Relaxed) {
            since if since & REPORTED != 0 => since & !REPORTED,
            _ => 0,
        }
    }

    pub(super) fn is_reported(&self) -> bool {
        self.since.load(Ordering::Relaxed) & REPORTED != 0
    }

    /// About a wait that was under way `since`, as [`Watch::start`] has it.
    pub(super) fn verdict(&self, since: u64, now: Nanos, timeout: Nanos) -> Verdict {
        if since & REPORTED != 0 {
            return Verdict::Reported;
        }
        let due = since.saturating_add(timeout);
        if now < due {
            return Verdict::Early(due);
        }
        match self.since.compare_exchange(
            since,
            since | REPORTED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => {
                self.count.fetch_add(1, Ordering::Relaxed);
                Verdict::Due(Duration::from_nanos(now.saturating_sub(since)))
            }
            Err(reported) if reported == since | REPORTED => Verdict::Reported,
            // It is over, and what is waited for now has not been waited for that long.
            Err(_) => Verdict::Early(now.saturating_add(timeout)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wait's end comes between a look at the clock and the verdict.
    #[test]
    fn a_wait_that_is_over_is_not_reported_and_the_next_one_is() {
        let watch = Watch::new();
        let since = watch.start(1_000, || 10);
        watch.stop();
        assert_eq!(
            watch.verdict(since, 5_000, 1_000),
            Verdict::Early(6_000),
            "it is over"
        );
        assert!(!watch.is_reported());
        let next = watch.start(6_000, || 20);
        assert_eq!((watch.start(6_100, || 30), watch.grown_to(50)), (next, 30));
        assert_eq!(watch.grown_to(10), 0, "fewer than then");
        assert_eq!(
            watch.verdict(since, 6_500, 1_000),
            Verdict::Early(7_500),
            "and was another one"
        );
        assert_eq!(watch.verdict(next, 6_500, 1_000), Verdict::Early(7_000));
        assert_eq!(
            watch.verdict(next, 7_000, 1_000),
            Verdict::Due(Duration::from_nanos(1_000))
        );
        assert_eq!(watch.verdict(next, 8_000, 1_000), Verdict::Reported, "once");
        assert_eq!(
            watch.verdict(watch.start(8_000, || 0), 9_000, 1_000),
            Verdict::Reported
        );
        watch.stop();
        assert_eq!(
            (watch.is_reported(), watch.count.load(Ordering::Relaxed)),
            (false, 1)
        );
    }

    #[test]
    fn progress_ends_a_stall_and_the_watch_goes_on() {
        let watch = Watch::new();
        assert!(!watch.advance(|| 1_000));
        assert_eq!(watch.start(2_000, || 10), 2_000, "it was not running");
        assert!(!watch.advance(|| 3_000), "it had not been reported");
        let verdict = |now| watch.verdict(watch.start(now, || 20), now, 1_000);
        assert_eq!(verdict(3_500), Verdict::Early(4_000));
        let a_second = Duration::from_nanos(1_000);
        assert_eq!(verdict(4_000), Verdict::Due(a_second));
        assert!(watch.advance(|| 5_000));
        assert!(!watch.is_reported());
        assert_eq!(verdict(6_000), Verdict::Due(a_second));
        assert_eq!(watch.grown_to(50), 40, "since it was started");
    }
}
