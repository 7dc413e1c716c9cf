//! Back-pressure: when a retiring thread ends a grace period itself, or waits for one.
//!
//! A thread that fills a page seals it and queues it, and frees pages of its queue that are due
//! (`retire.rs`). If none is, and the queue has reached the thread's *quota*, a part of the budget,
//! it ends a grace period itself, unless another thread has, or is at it. One heavy barrier so
//! serves a quota's worth of objects of this thread, and all that other threads had sealed by then:
//! the more threads, the smaller each quota, and the more of them one grace period serves.
//!
//! The grace period of a page that its owner keeps is only named when the page is sealed: a start
//! for each page would write the line that all readers load. A thread starts it, without a barrier,
//! once it has sealed [`NAMED_TOGETHER`] under the same name; that gives the pages of all threads a
//! new name, so many threads start no more of them than one. It also starts with the attempt to end
//! it, and when the service thread takes the page over: from a thread that is idle, slow or at its
//! end. Sections that begin before the start hold it up. Pages that the service thread frees from
//! the outset have theirs started at once: it starts none while an older one is held up.
//!
//! Where that does not help, because readers hold the grace period up, a thread whose queue has
//! reached twice its quota, and every thread past the budget, waits a bounded time a page.
//!
//! Inside a section it does all this at the section's end, and waits there for what the section has
//! added, not for the page that this happened to fill: as long as that is part of a page that it
//! would have waited for. To know that, each section is charged for each of its objects while the
//! thread is *throttled*, that is, held back for longer than one wait. What a section had added
//! before the page was full that had the thread throttled is not known, and forgiven.
//!
//! # Heavy objects
//!
//! Users say what a value owns, so one object may weigh as much as many pages.
//!
//! * A *heavy* one, of which few fit into the budget, may, past the budget, be waited for as long
//!   as one call ever waits ([`LONGEST_WAIT_PAGES`]). By its weight alone it would be a few
//!   milliseconds for a megabyte, and a reader of a second let a hundred of them pile up.
//! * A *very heavy* one, of a quarter of the budget or more, counts for that quarter where others
//!   are held back ([`Heap::pressure`]). So one of them alone, and if it is larger than the whole
//!   budget, holds back those alone that add as much; four of them hold back all.

use super::{
    buffer::{Charge, OPEN_BYTES, ThreadBuffer},
    heap::Heap,
    page::Page,
    policy::Policy,
};
use crate::{
    gp::{Cookie, Engine, Haste, Progress, Record},
    platform::{
        clock::{self, Nanos},
        sync::{Ordering, lock},
        thread, user_code,
    },
};

/// A thread ends a grace period itself once its queue weighs this much, even if its quota were
/// larger: more would not stay in the cache.
const LARGEST_QUOTA: usize = 1 << 20;

/// A quota is never smaller than this, or a thread would end a grace period for every page.
const SMALLEST_QUOTA: usize = 64 << 10;

/// So much a thread seals for a grace period that has not started, before it starts it: half a
/// quota, if that is the smallest.
pub(super) const NAMED_TOGETHER: usize = SMALLEST_QUOTA / 2;

/// Where grace periods are held up, a thread is throttled when so many quotas of its own are
/// unreclaimed. Without it one thread's time slice fills the budget, and the next thread's again:
/// never too much at a time, but each allocator arena keeps the most that it has ever held.
const THROTTLE_FACTOR: usize = 2;

/// How long a thread waits at most for each [`OPEN_BYTES`], or part of it, that it adds while it is
/// throttled, or past the budget.
const LONGEST_WAIT: Nanos = 10_000_000;

/// So many times that at most for one page, or one section, however large its objects.
const LONGEST_WAIT_PAGES: usize = 100;

/// For a wait that is shorter no holdout is flagged: that and its barrier would cost about as much.
const SHORT_WAIT: Nanos = 1_000_000;

/// What a full page of small objects weighs, about.
const FULL_PAGE: usize = 16 << 10;

/// Any wait is at most this long.
const LONGEST_WAIT_OF_ALL: Nanos = LONGEST_WAIT * LONGEST_WAIT_PAGES as Nanos;

/// Of heavy objects so many fit into the budget, or fewer.
const HEAVY_PART: usize = 32;

/// The same of very heavy ones.
const VERY_HEAVY_PART: usize = 4;

/// However small the budget, what is no more than this is neither: a page that is full of light
/// objects is no more.
const LIGHT: usize = 2 * OPEN_BYTES;

/// How long a thread may be held back for what it adds, once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// By how much that is.
    by_weight: Nanos,
    /// It adds a heavy object.
    is_heavy: bool,
}

impl Patience {
    /// At the end of a section.
    pub(super) fn for_section(added: Charge) -> Self {
        let bytes = added.bytes.min(LONGEST_WAIT_PAGES * OPEN_BYTES);
        Self {
            by_weight: LONGEST_WAIT * bytes as Nanos / OPEN_BYTES as Nanos,
            is_heavy: added.is_heavy,
        }
    }

    fn past_budget(self) -> Nanos {
        if self.is_heavy {
            LONGEST_WAIT_OF_ALL
        } else {
            self.by_weight
        }
    }
}

impl Heap {
    /// A thread's part of the budget.
    fn thread_share(&self) -> usize {
        let threads = self.active.load(Ordering::Relaxed).max(1);
        (self.budget() / 2 / threads).min(LARGEST_QUOTA)
    }

    /// What one thread may queue before it ends a grace period itself.
    fn thread_quota(&self) -> usize {
        self.thread_share().max(SMALLEST_QUOTA)
    }

    /// By how much a thread may seal or free before it tells the others.
    pub(super) fn step(&self) -> usize {
        self.thread_share() / 4
    }

    /// How many empty pages a thread keeps.
    pub(super) fn spare_pages(&self) -> usize {
        self.thread_quota() / FULL_PAGE
    }

    /// For a page of `weight`, which `object` has filled.
    pub(super) fn patience_for_page(&self, weight: usize, object: usize) -> Patience {
        let pages = (weight / OPEN_BYTES + 1).min(LONGEST_WAIT_PAGES);
        Patience {
            by_weight: LONGEST_WAIT * pages as Nanos,
            is_heavy: self.is_heavy(object),
        }
    }

    fn is_heavy(&self, bytes: usize) -> bool {
        bytes > LIGHT.max(self.budget() / HEAVY_PART)
    }

    /// What a very heavy page counts for where others are held back.
    fn very_heavy_counts_for(&self) -> usize {
        LIGHT.max(self.budget() / VERY_HEAVY_PART)
    }

    pub(super) fn is_very_heavy(&self, bytes: usize) -> bool {
        bytes > self.very_heavy_counts_for()
    }

    /// What is unreclaimed, as those who are held back for it see it: those who add a heavy object
    /// all of it, others with the very heavy pages for less.
    fn pressure(&self, on_heavy: bool) -> usize {
        let all = self.shared.footprint();
        let counted = if on_heavy {
            all
        } else {
            let (pages, bytes) = self.very_heavy.load();
            all.saturating_sub(bytes)
                .saturating_add(pages.saturating_mul(self.very_heavy_counts_for()))
        };
        counted.saturating_add(self.callbacks.bytes())
    }

    fn is_over_budget(&self, adds_heavy: bool) -> bool {
        self.pressure(adds_heavy) >= self.limit()
    }

    /// Returns whether the calling thread may wait for a grace period: not in user code that the
    /// library runs, nor in a section of any kind. Looks at all records.
    pub(super) fn may_wait<P: Policy>(&self, engine: &Engine<P>) -> bool {
        !user_code::runs_for(self.domain) && engine.section_of(thread::token()).is_none()
    }

    /// Charges the caller's section, if it is in one, for an object that it has retired by the slow
    /// path: if the thread is throttled, or the object has filled a page.
    pub(super) fn charge_section(
        &self,
        buffer: &ThreadBuffer,
        record: Option<&Record>,
        bytes: usize,
        sealed: bool,
    ) {
        let Some(record) = record.filter(|record| record.is_reading()) else {
            return;
        };
        if buffer.is_throttled() {
            record.defer_to_unlock();
        }
        if buffer.is_throttled() || sealed {
            buffer.charge(bytes, self.is_heavy(bytes));
        }
    }

    /// As [`Heap::charge_section`] for an object that a callback will free, past the budget.
    pub(super) fn charge_section_for_callback(
        &self,
        buffer: &ThreadBuffer,
        record: &Record,
        bytes: usize,
    ) {
        let is_heavy = self.is_heavy(bytes);
        if record.is_reading() && self.is_over_budget(is_heavy) {
            buffer.charge(bytes, is_heavy);
            record.defer_to_unlock();
        }
    }

    /// Has the calling thread do its part before it frees pages, as the head says, and throttles it
    /// if it is held back for longer than `patience`. A section puts it all off to its end.
    pub(super) fn apply_backpressure<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        record: Option<&Record>,
        patience: Patience,
    ) {
        let throttled = self.is_held_back(engine, buffer, record, patience);
        buffer.set_throttled(throttled);
        if !throttled {
            // Nothing that a section has added so far is waited for.
            buffer.take_charge();
        }
    }

    fn is_held_back<P: Policy>(
        &self,
        engine: &Engine<P>,
        buffer: &ThreadBuffer,
        record: Option<&Record>,
        patience: Patience,
    ) -> bool {
        let (oldest, youngest, queued) = {
            let queue = lock(&buffer.queue);
            (
                queue.sealed.front().map(Page::cookie),
                queue.sealed.back().map(Page::cookie),
                queue.sealed.footprint(),
            )
        };
        let quota = self.thread_quota();
        let over_budget = self.is_over_budget(patience.is_heavy);
        let too_much =
            !self.frees_whole_batches() && (queued >= THROTTLE_FACTOR * quota || over_budget);
        if oldest.is_some_and(|oldest| engine.has_ended(oldest)) || (queued < quota && !too_much) {
            return false;
        }
        let waits = too_much && !engine.is_stalled();
        if let Some(record) = record
            && record.is_reading()
        {
            record.defer_to_unlock();
            return waits;
        }
        if let (Some(oldest), Some(youngest)) = (oldest, youngest)
            && engine.assist(oldest, youngest, thread::token(), too_much) == Progress::Ended
        {
            buffer.account.note_assist();
            return false;
        }
        let longest = if over_budget {
            patience.past_budget()
        } else {
            patience.by_weight
        };
        let is_held_back = || self.is_still_held_back(engine, oldest, patience.is_heavy);
        if waits && longest > 0 && self.may_wait(engine) {
            self.wait(engine, oldest, longest, is_held_back);
        }
        waits && is_held_back()
    }

    /// Waits for the oldest page's grace period, for `longest` at most. However this ends, the
    /// pages' own cookies decide what is freed.
    fn wait<P: Policy>(
        &self,
        engine: &Engine<P>,
        oldest: Option<Cookie>,
        longest: Nanos,
        is_held_back: impl Fn() -> bool,
    ) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        #[cfg(test)]
        self.waits_granted.fetch_add(longest, Ordering::Relaxed);
        let now = clock::now();
        let until = now + longest;
        match oldest {
            Some(oldest) if longest >= SHORT_WAIT => {
                let _ = engine.wait_for(oldest, thread::token(), Some(until), Haste::Normal);
            }
            _ => {
                if let Some(oldest) = oldest {
                    // As `wait_for` does: a reader that never leaves is reported, and then no more
                    // waited for.
                    let _ = engine.note_held_up(oldest, now);
                }
                engine.sleep_until(until, || !is_held_back());
            }
        }
    }

    fn is_still_held_back<P: Policy>(
        &self,
        engine: &Engine<P>,
        oldest: Option<Cookie>,
        adds_heavy: bool,
    ) -> bool {
        oldest.map_or_else(
            || self.is_over_budget(adds_heavy),
            |oldest| !engine.has_ended(oldest),
        )
    }
}
