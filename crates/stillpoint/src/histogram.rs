//! Log-linear histograms of durations: what a domain has timed, and how it is counted.

use crate::platform::{
    memory,
    race::RaceCell,
    stats::{Tap, Words, fields::TIMES_WORDS},
};
use std::{
    fmt,
    // std's also in the model, to which counting is no step.
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Number of buckets for each power of two.
const PARTS: u64 = 4;
const PART_BITS: u32 = PARTS.trailing_zeros();

/// Durations of 2^40 ns (18 minutes) and more are in the last bucket.
const LARGEST_BITS: u32 = 40;

/// The number of buckets.
pub(crate) const BUCKETS: usize = (LARGEST_BITS as usize - PART_BITS as usize + 1) * PARTS as usize;

const _: () = assert!(TIMES_WORDS == 1 + BUCKETS);

/// A log-linear histogram of durations in nanoseconds, with four buckets for each power of two.
/// Part of the statistics, which say what is timed. It is a copy that no longer changes; the
/// difference of two copies covers the time in between.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Histogram {
    /// Sum of all durations in nanoseconds.
    sum: u64,
    /// Number of durations in each bucket. 0 to 3 ns have one each; above that, each power of two
    /// has four of equal width; the last has all of 18 minutes and more.
    // A literal, for cbindgen: BUCKETS.
    buckets: [u64; 156],
}

impl Histogram {
    const EMPTY: Self = Self {
        sum: 0,
        buckets: [0; BUCKETS],
    };

    /// Makes a histogram from the words of a statistics page. Returns `None` if they have another
    /// number of buckets.
    pub(crate) fn from_parts(sum: u64, buckets: &[u64]) -> Option<Self> {
        let buckets = buckets.try_into().ok()?;
        Some(Self { sum, buckets })
    }

    /// Returns how many durations there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets
            .iter()
            .fold(0, |sum, &bucket| sum.wrapping_add(bucket))
    }

    /// Returns the sum of all durations.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Returns the duration that a part `q` of all does not exceed: 0.5 for the median, 0.99 for
    /// the 99th percentile, 1.0 for the longest. It is the upper end of a bucket, so it is too high
    /// by a quarter at most, and never too low, except that durations of more than 18 minutes count
    /// for 18. A `q` outside of 0 to 1 is taken for the nearest of these, NaN for 1. Zero if there
    /// are no durations.
    ///
    /// ```
    /// let times = stillpoint::global().statistics().grace_period_times;
    /// println!("half of all grace periods end within {:?}", times.quantile(0.5));
    /// ```
    #[must_use]
    pub fn quantile(&self, q: f64) -> Duration {
        let count = self.count();
        if count == 0 {
            return Duration::ZERO;
        }
        let part = if q.is_nan() { 1.0 } else { q.clamp(0.0, 1.0) };
        // Rounded up: a part of something holds at least one.
        let rank = ((part * count as f64).ceil() as u64).clamp(1, count);
        let mut seen = 0_u64;
        let found = self.buckets().find(|&(_, bucket)| {
            seen = seen.saturating_add(bucket);
            seen >= rank
        });
        found.map_or(Duration::ZERO, |(upper, _)| upper)
    }

    /// Returns the upper end of each bucket, which belongs to the next one, and how many durations
    /// it has. In ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let upper = |at| Duration::from_nanos(lower_end(at + 1));
        self.buckets
            .iter()
            .enumerate()
            .map(move |(at, &count)| (upper(at), count))
    }

    /// Returns what has been added since `earlier`, an older copy of the same histogram. Of another
    /// histogram it is meaningless.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let before = stillpoint::global().statistics().callback_times;
    /// stillpoint::call(|| ());
    /// stillpoint::barrier();
    /// let times = stillpoint::global().statistics().callback_times.since(&before);
    /// println!("{} callbacks; 99 % took {:?} at most", times.count(), times.quantile(0.99));
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut new = *self;
        new.sum = self.sum.wrapping_sub(earlier.sum);
        for (bucket, before) in new.buckets.iter_mut().zip(&earlier.buckets) {
            *bucket = bucket.saturating_sub(*before);
        }
        new
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("sum", &self.sum())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .finish_non_exhaustive()
    }
}

/// Returns the bucket of a duration in nanoseconds.
const fn bucket_of(nanos: u64) -> usize {
    if nanos < PARTS {
        return nanos as usize;
    }
    let power = nanos.ilog2();
    if power >= LARGEST_BITS {
        return BUCKETS - 1;
    }
    let part = (nanos >> (power - PART_BITS)) & (PARTS - 1);
    ((power - PART_BITS + 1) as u64 * PARTS + part) as usize
}

/// Returns the shortest duration of a bucket.
const fn lower_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PARTS {
        return bucket;
    }
    (PARTS + bucket % PARTS) << (bucket / PARTS - 1)
}

/// A histogram that is being counted.
///
/// All threads count in the same one, with relaxed read-modify-writes: what is timed is rare, or one
/// of many is ([`Statistics`](crate::Statistics) says which).
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Made by the first duration, because most domains time nothing.
    counts: RaceCell<Box<Counts>>,
    tap: Tap,
}

#[derive(Debug)]
struct Counts {
    sum: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Recorder {
    pub(crate) const fn new() -> Self {
        Self {
            counts: RaceCell::new(),
            tap: Tap::new(),
        }
    }

    /// Makes the counts, unless there is no memory.
    #[cold]
    fn make(&self) -> Option<&Counts> {
        let zero = || Counts {
            sum: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        };
        let new = memory::try_several(1, zero)?;
        // SAFETY: one value is laid out as a slice of one.
        let new = unsafe { Box::from_raw(Box::into_raw(new).cast()) };
        Some(self.counts.put(new))
    }

    /// Copies the histogram into the statistics page from now on, to the words from `at`.
    pub(crate) fn publish(&self, words: Words, at: usize) {
        self.tap.open(words.part(at, TIMES_WORDS));
    }

    /// Copies all of it into the statistics page, if there is one.
    pub(crate) fn copy_all(&self) {
        let Some(counts) = self.counts.get() else {
            return;
        };
        self.copy(0, &counts.sum);
        for (at, bucket) in counts.buckets.iter().enumerate() {
            self.copy(1 + at, bucket);
        }
    }

    fn copy(&self, at: usize, count: &AtomicU64) {
        self.tap.raise(at, count.load(Ordering::Relaxed));
    }

    /// Counts a duration `times` times. The first one allocates; if out of memory, it is not
    /// counted.
    #[cold]
    pub(crate) fn record(&self, nanos: u64, times: u64) {
        let Some(counts) = self.counts.get().or_else(|| self.make()) else {
            return;
        };
        counts
            .sum
            .fetch_add(nanos.wrapping_mul(times), Ordering::Relaxed);
        let bucket = bucket_of(nanos);
        counts.buckets[bucket].fetch_add(times, Ordering::Relaxed);
        if self.tap.is_open() {
            self.copy(0, &counts.sum);
            self.copy(1 + bucket, &counts.buckets[bucket]);
        }
    }

    /// Returns a racy snapshot.
    pub(crate) fn load(&self) -> Histogram {
        let mut histogram = Histogram::EMPTY;
        if let Some(counts) = self.counts.get() {
            histogram.sum = counts.sum.load(Ordering::Relaxed);
            for (copy, bucket) in histogram.buckets.iter_mut().zip(&counts.buckets) {
                *copy = bucket.load(Ordering::Relaxed);
            }
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::thread;

    /// Detects, under Miri, an address that is stored or loaded without its ordering: the model's
    /// tools do not watch the counts.
    #[test]
    fn threads_that_count_first_at_once_count_in_one_histogram() {
        for _ in 0..20 {
            let recorder = Recorder::new();
            thread::scope(|scope| {
                (0..3).for_each(|_| drop(scope.spawn(|| recorder.record(1, 1))));
            });
            assert_eq!(recorder.load().count(), 3);
        }
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(lower_end(bucket)), bucket);
            assert_eq!(bucket_of(lower_end(bucket + 1) - 1), bucket);
        }
        assert_eq!(lower_end(BUCKETS), 1 << LARGEST_BITS);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn an_empty_histogram_has_no_quantiles() {
        let empty = Histogram::default();
        assert_eq!((empty.count(), empty.sum()), (0, Duration::ZERO));
        assert_eq!(empty.quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn what_is_no_part_of_all_is_the_nearest() {
        let recorder = Recorder::new();
        [1, 1000]
            .into_iter()
            .for_each(|nanos| recorder.record(nanos, 1));
        let histogram = recorder.load();
        for (q, bucket) in [
            (f64::NEG_INFINITY, 1),
            (-1.0, 1),
            (0.0, 1),
            (0.5, 1),
            (0.51, 1000),
            (7.0, 1000),
            (f64::NAN, 1000),
        ] {
            let upper = Duration::from_nanos(lower_end(bucket_of(bucket) + 1));
            assert_eq!(histogram.quantile(q), upper, "{q}");
        }
    }

    proptest! {
        #[test]
        fn a_quantile_is_too_high_by_a_quarter_at_most(
            mut nanos in prop::collection::vec(0_u64..1 << LARGEST_BITS, 1..100),
            q in 0.0..=1.0,
        ) {
            let recorder = Recorder::new();
            nanos.iter().for_each(|&nanos| recorder.record(nanos, 1));
            nanos.sort_unstable();
            let q: f64 = q;
            let rank = ((q * nanos.len() as f64).ceil() as usize).max(1);
            let exact = nanos[rank - 1];
            let found = recorder.load().quantile(q).as_nanos() as u64;
            prop_assert!(exact < found && found <= exact + exact / 4 + 1, "{exact} {found}");
            prop_assert_eq!(recorder.load().count(), nanos.len() as u64);
            prop_assert_eq!(recorder.load().sum().as_nanos() as u64, nanos.iter().sum::<u64>());
        }

        #[test]
        fn the_difference_is_what_has_come_since(
            before in prop::collection::vec(any::<u32>(), 0..50),
            after in prop::collection::vec(any::<u32>(), 0..50),
        ) {
            let (both, later) = (Recorder::new(), Recorder::new());
            before.iter().for_each(|&nanos| both.record(nanos.into(), 2));
            let earlier = both.load();
            for &nanos in &after {
                both.record(nanos.into(), 3);
                later.record(nanos.into(), 3);
            }
            prop_assert_eq!(both.load().since(&earlier), later.load());
        }
    }
}
