//! Sequence numbers, cookies, and the three counters of a grace-period engine. `README.md` in this
//! folder has a picture.
//!
//! * `started`: grace period n has started once `started` is at least n. A reader that enters
//!   afterwards carries n or more; grace period n does not wait for it.
//! * `fenced`: some thread has seen n started and has then issued a heavy barrier. From then on a
//!   scan can tell the readers that n waits for.
//! * `completed`: a scan after that barrier found no reader older than n. What was retired before n
//!   started may be freed.
//!
//! Each only grows, and `completed <= fenced <= started` at any moment in each thread's view.
//!
//! A number is a multiple of [`STEP`] in 64 bits, so that a reader's record can hold one and the
//! nesting depth in one word (`record.rs`). Comparisons wrap: they hold as long as the two numbers
//! are less than 2^47 grace periods apart.

use super::timing::{ONE_IN, Timing};
use crate::platform::{
    clock,
    sync::{AtomicU64, Ordering},
};
use crossbeam_utils::CachePadded;
use std::{
    fmt,
    // std's also in the model, to which counting is no step.
    sync::atomic::AtomicU64 as Counter,
};

// The model has no statics.
#[cfg(not(stillpoint_loom))]
pub(super) mod global;

/// The distance from one grace period to the next: the low 16 bits of a record's word count
/// nesting.
pub(crate) const STEP: u64 = 1 << 16;

/// The low bits of `started`: one level of nesting, so that a reader stores what it loads.
const NESTED_ONCE: u64 = 1;

/// How far `started` may run ahead of `completed`, in grace periods. Far enough never to be reached
/// (12 days of one start a microsecond under a reader that never leaves), and far enough below 2^47
/// that comparisons stay right.
const MAX_LEAD: u64 = 1 << 40;

/// The number of a grace period; its low 16 bits are zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Seq(u64);

impl Seq {
    /// Returns the sequence part of a record's word or of a raw cookie.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits & !(STEP - 1))
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the number of grace periods before this one.
    pub(crate) const fn number(self) -> u64 {
        self.0 / STEP
    }

    /// Returns whether the grace period of this number is timed (`timing.rs`).
    #[inline]
    pub(super) const fn is_timed(self) -> bool {
        self.0 & ((ONE_IN - 1) * STEP) == 0
    }

    pub(crate) const fn next(self) -> Self {
        Self(self.0.wrapping_add(STEP))
    }

    pub(crate) const fn previous(self) -> Self {
        Self(self.0.wrapping_sub(STEP))
    }

    /// Returns how many grace periods `self` is past `other`; negative if it is behind.
    pub(crate) const fn since(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0).cast_signed() >> STEP.trailing_zeros()
    }

    pub(crate) const fn at_least(self, other: Self) -> bool {
        self.since(other) >= 0
    }

    pub(crate) fn older(self, other: Self) -> Self {
        if self.at_least(other) { other } else { self }
    }

    /// Returns whether a reader that carries `self` began after grace period `goal` had started, as
    /// far as a scan for `goal` can tell. A number that is implausibly far ahead can only be a very
    /// old one (a reader that was held up for years between reading `started` and storing it); it
    /// counts as older, which is the safe side.
    pub(crate) const fn entered_after(self, goal: Self) -> bool {
        let ahead = self.since(goal);
        0 <= ahead && ahead <= 2 * MAX_LEAD.cast_signed()
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

/// Names a grace period: once it has ended, everything that was unlinked before the cookie was
/// taken is unreachable.
///
/// Taken by [`Domain::get_state`](crate::Domain::get_state) or
/// [`Domain::start_poll`](crate::Domain::start_poll), asked about by
/// [`Domain::poll`](crate::Domain::poll), waited for by
/// [`Domain::cond_synchronize`](crate::Domain::cond_synchronize). The kernel's
/// `get_state_synchronize_rcu()` value. It belongs to the domain that gave it; to any other it
/// means nothing (an answer about it is then arbitrary, but only `unsafe` code could rely on it).
/// It stays meaningful for 2^47 grace periods (four years of one a microsecond).
///
/// ```
/// let cookie = stillpoint::global().start_poll();
/// stillpoint::global().cond_synchronize(cookie);
/// assert!(stillpoint::global().poll(cookie));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie(Seq);

impl Cookie {
    pub(crate) const fn new(seq: Seq) -> Self {
        Self(seq)
    }

    pub(crate) const fn seq(self) -> Seq {
        self.0
    }

    pub(crate) fn older(self, other: Self) -> Self {
        Self(self.0.older(other.0))
    }

    /// Returns the cookie of the grace period before this one, which broken variants use.
    pub(crate) const fn previous(self) -> Self {
        Self(self.0.previous())
    }

    pub(crate) const fn at_least(self, other: Self) -> bool {
        self.0.at_least(other.0)
    }

    /// Returns the older of two, or the only one.
    pub(crate) fn oldest(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).reduce(Self::older)
    }

    /// Returns the cookie as a plain number, for storing it in a word. Async-signal-safe.
    pub const fn into_raw(self) -> u64 {
        self.0.bits()
    }

    /// Returns the cookie for which [`Cookie::into_raw`] returned `raw`. Any other number gives a
    /// cookie whose answers are arbitrary. Async-signal-safe.
    ///
    /// ```
    /// # use stillpoint::Cookie;
    /// let cookie = stillpoint::global().get_state();
    /// assert_eq!(Cookie::from_raw(cookie.into_raw()), cookie);
    /// ```
    pub const fn from_raw(raw: u64) -> Self {
        Self(Seq::from_bits(raw))
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cookie").field(&self.0).finish()
    }
}

/// A `started` counter, or its address. It has a cache line to itself, because every reader loads
/// it.
#[derive(Debug)]
struct Started {
    here: AtomicU64,
    /// The counter of a global domain, in `global.rs`.
    global: Option<&'static AtomicU64>,
}

/// The three counters of an engine, with counts and times of its grace periods.
#[derive(Debug)]
pub(crate) struct Sequence {
    started: CachePadded<Started>,
    ends: CachePadded<Ends>,
}

/// The fields that a thread writes to end a grace period, apart from those that are only read. The times,
/// which few grace periods have, come last.
#[derive(Debug)]
#[repr(C)]
struct Ends {
    fenced: AtomicU64,
    completed: AtomicU64,
    counts: Counts,
    timing: Timing,
}

/// Counts of what the engine has done.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) grace_periods: Counter,
    pub(super) heavy_barriers: Counter,
    /// The heavy barriers of leaders (`engine/coalesce.rs`), of which there is one at a time.
    pub(super) led_barriers: Counter,
}

impl Sequence {
    /// Makes counters at rest: `first` has completed, nothing has started since.
    pub(crate) fn new(first: Seq) -> Self {
        Self {
            started: CachePadded::new(Started {
                here: AtomicU64::new(first.bits() | NESTED_ONCE),
                global: None,
            }),
            ends: CachePadded::new(Ends {
                fenced: AtomicU64::new(first.bits()),
                completed: AtomicU64::new(first.bits()),
                counts: Counts {
                    grace_periods: Counter::new(0),
                    heavy_barriers: Counter::new(0),
                    led_barriers: Counter::new(0),
                },
                timing: Timing::new(),
            }),
        }
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.ends.counts
    }

    pub(super) fn timing(&self) -> &Timing {
        &self.ends.timing
    }

    #[inline(always)]
    pub(super) fn started(&self) -> &AtomicU64 {
        self.started.global.unwrap_or(&self.started.here)
    }

    /// Returns whether these are the counters of a global domain.
    pub(super) fn is_global(&self) -> bool {
        self.started.global.is_some()
    }

    /// Returns the word of a section that begins now: its sequence, nested once.
    #[inline(always)]
    pub(crate) fn enter(&self) -> u64 {
        // Acquire [R1]: the section's loads cannot find what was unlinked before a cookie for this
        // number or less was taken (W1, W2).
        self.started().load(Ordering::Acquire)
    }

    /// Names the grace period after the ones that have started, without starting it.
    pub(crate) fn snapshot(&self) -> Seq {
        // Release [W1]: what we unlinked is unlinked for the thread that starts the grace period,
        // and through it for sections that begin later. It is a read-modify-write because that
        // thread's W2 must read a value written here; a load writes none.
        Seq::from_bits(self.started().fetch_add(0, Ordering::Release)).next()
    }

    /// Starts a grace period and names it. Past `MAX_LEAD` the counter stays where it is and the
    /// grace period is named only, to be started when an older one has ended.
    pub(crate) fn start(&self) -> Seq {
        let room = Seq::from_bits(self.started().load(Ordering::Relaxed)).since(self.completed())
            < MAX_LEAD.cast_signed();
        let step = if room { STEP } else { 0 };
        // Release [W1]: what we unlinked stays unseen by sections that carry the new number.
        // Acquire [W2]: so does what other threads unlinked before they named it.
        let seq = Seq::from_bits(self.started().fetch_add(step, Ordering::AcqRel)).next();
        if seq.is_timed() {
            self.ends.timing.note_started(seq.number(), clock::now());
        }
        seq
    }

    /// Starts `goal`, unless it has started or would be too far ahead. Returns the newest grace period that
    /// has started. Calls `starts` if this starts one.
    pub(crate) fn ensure_started(&self, goal: Seq, starts: impl FnOnce(Seq)) -> Seq {
        // Acquire [W2]: what was unlinked before the cookies up to this number were taken happens
        // before our barrier.
        let seen = Seq::from_bits(self.started().load(Ordering::Acquire));
        if seen.at_least(goal) {
            return seen;
        }
        starts(self.start());
        // Acquire [W2]: the same for cookies whose grace periods other threads have started
        // meanwhile.
        Seq::from_bits(self.started().load(Ordering::Acquire))
    }

    /// Returns the newest grace period that a scan may decide about: a heavy barrier (W3) came
    /// after its start.
    pub(crate) fn fenced(&self) -> Seq {
        // Acquire, pairs with `publish_fenced`: that barrier, whichever thread issued it, happens
        // before our scan.
        Seq(self.ends.fenced.load(Ordering::Acquire))
    }

    /// Publishes `seq`, which the caller saw started before it issued a heavy barrier. Release, by `raise`:
    /// see there.
    pub(crate) fn publish_fenced(&self, seq: Seq) {
        raise(&self.ends.fenced, seq);
    }

    /// Returns the newest grace period that is known to have ended.
    #[inline]
    pub(crate) fn completed(&self) -> Seq {
        // Acquire [W6]: the ends of all sections that it waited for happen before what we free by
        // it.
        Seq(self.ends.completed.load(Ordering::Acquire))
    }

    /// Publishes `seq` after a scan of a fenced grace period that found no older section. Returns
    /// whether this moved the counter; another thread may have been faster. W5, by `raise`.
    pub(crate) fn publish_completed(&self, seq: Seq) -> bool {
        raise(&self.ends.completed, seq)
    }
}

/// Raises `counter` to `to`, in wrapping order, by acquire-release CAS. Returns whether it moved.
pub(super) fn raise(counter: &AtomicU64, to: Seq) -> bool {
    let mut seen = counter.load(Ordering::Relaxed);
    while !Seq(seen).at_least(to) {
        // AcqRel [W5]: the ends that our scan saw (for `fenced`: our barrier W3), and those behind
        // the value that we raise, happen before what is done by a thread that sees this.
        match counter.compare_exchange_weak(seen, to.bits(), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seq() -> impl Strategy<Value = Seq> {
        // Half of them around the wrap, where mistakes live.
        prop_oneof![
            any::<u64>(),
            (0u64..64).prop_map(|n| n.wrapping_sub(32).wrapping_mul(STEP))
        ]
        .prop_map(Seq::from_bits)
    }

    proptest! {
        #[test]
        fn later_is_at_least(base in seq(), ahead in 0u64..1 << 46) {
            let later = Seq(base.0.wrapping_add(ahead * STEP));
            prop_assert!(later.at_least(base));
            prop_assert_eq!(base.at_least(later), ahead == 0);
            prop_assert_eq!(later.since(base), ahead as i64);
            prop_assert_eq!(later.older(base), base);
            prop_assert_eq!(base.older(later), base);
        }

        #[test]
        fn a_word_keeps_its_sequence_at_any_depth(base in seq(), depth in 1u64..STEP) {
            prop_assert_eq!(Seq::from_bits(base.0 + depth), base);
        }

        #[test]
        fn counters_never_go_back(first in seq(), moves in prop::collection::vec(0u8..4, 1..200)) {
            let counters = Sequence::new(first);
            let mut completed = first;
            for step in moves {
                match step {
                    0 => { counters.start(); }
                    1 => {
                        let goal = counters.snapshot();
                        prop_assert!(!counters.completed().at_least(goal));
                        prop_assert!(counters.ensure_started(goal, |_| ()).at_least(goal));
                    }
                    2 => counters.publish_fenced(Seq::from_bits(counters.enter())),
                    _ => { counters.publish_completed(counters.fenced()); }
                }
                prop_assert!(counters.completed().at_least(completed));
                completed = counters.completed();
                prop_assert!(counters.fenced().at_least(completed));
                prop_assert!(Seq::from_bits(counters.enter()).at_least(counters.fenced()));
            }
        }
    }

    #[test]
    fn an_old_publication_changes_nothing() {
        let first = Seq(0u64.wrapping_sub(STEP));
        let counters = Sequence::new(first);
        let newer = counters.start();
        assert_eq!(newer.bits(), 0, "the first grace period lies past the wrap");
        counters.publish_fenced(newer);
        assert!(counters.publish_completed(newer));
        assert!(!counters.publish_completed(first));
        assert_eq!(counters.completed(), newer);
    }

    #[test]
    fn the_lead_is_bounded() {
        let counters = Sequence::new(Seq(0));
        counters
            .started()
            .store(MAX_LEAD * STEP + NESTED_ONCE, Ordering::Relaxed);
        let named = counters.start();
        assert_eq!(
            named,
            counters.start(),
            "past the lead a grace period is named, not started"
        );
        assert_eq!(Seq::from_bits(counters.enter()).bits(), MAX_LEAD * STEP);
        counters.publish_completed(Seq(STEP));
        assert_eq!(counters.ensure_started(named, |_| ()), named);
    }

    #[test]
    fn an_implausible_word_counts_as_old() {
        let goal = Seq(5 * STEP);
        assert!(Seq(5 * STEP).entered_after(goal));
        assert!(!Seq(4 * STEP).entered_after(goal));
        assert!(!Seq((1 << 46) * STEP).entered_after(goal));
    }
}
