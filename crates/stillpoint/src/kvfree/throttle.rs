//! Back-pressure: when a retiring thread frees, ends a grace period, or waits.
//!
//! A thread that fills a page seals it with the cookie of a grace period that starts then, and queues it. At every seal it frees
//! up to [`PAGES_PER_SEAL`] of its oldest pages, if their grace periods have ended: on its own thread, where the allocator's
//! cache is warm, and a few at a time. If none has, and the queue has reached the thread's quota, its share of the budget, it ends a grace
//! period itself, unless another thread has. One heavy barrier so serves a quota's worth of objects of this thread, and all that
//! other threads had sealed by then: the more threads, the smaller each quota, and the more of them one grace period serves.
//!
//! Where that does not help, because readers hold the grace period up, a thread whose queue has reached twice its quota, and every
//! thread past the budget, waits a bounded time a page.
//!
//! Inside a section it does all this at the section's end, and waits there for what the section has added, not for the page that this
//! happened to fill: as long as that is part of a page that it would have waited for. To know that, it attends to each object while it is
//! held back, so that each section pays for its own. What a section had added before the page was full that had it attend is
//! not known, and forgiven.

use super::{
    heap::{DrainPolicy, Heap},
    local::{OPEN_BYTES, ThreadBuffer},
    page::{Page, PageList},
    policy::Policy,
};
use crate::{
    gp::{Engine, Haste, Progress, Record},
    platform::{
        clock::{self, Nanos},
        fork,
        sync::{Ordering, lock},
        thread, user_code,
    },
};

/// How many pages are freed for each that is sealed, while there are any to free.
const PAGES_PER_SEAL: usize = 2;

/// A thread ends a grace period itself once its queue weighs this much, even if its quota were larger: more would
/// not stay in the cache.
const LARGEST_QUOTA: usize = 1 << 20;

/// A quota is never smaller than this, or a thread would end a grace period for every page.
const SMALLEST_QUOTA: usize = 64 << 10;

/// Where grace periods are held up, a thread is throttled when so many quotas of its own are unreclaimed. Without it one
/// thread's turn on the processor fills the budget, and the next thread's again: never too much at a time, but each allocator arena
/// keeps the most that it has ever held.
const THROTTLE_FACTOR: usize = 2;

/// How long a thread waits at most for each [`OPEN_BYTES`], or part of it, that it adds while it is throttled, or past the budget.
const LONGEST_WAIT: Nanos = 10_000_000;

/// So many times that at most for one page, or one section, however large its objects.
const LONGEST_WAIT_PAGES: usize = 100;

/// For a wait that is shorter no holdout is flagged: that and its barrier would cost about as much.
const SHORT_WAIT: Nanos = 1_000_000;

/// What a full page of small objects weighs, about.
const FULL_PAGE: usize = 16 << 10;

/// How long a thread may be held back for a page of `weight`.
pub(super) fn longest_wait_for_page(weight: usize) -> Nanos {
    LONGEST_WAIT * (weight / OPEN_BYTES + 1).min(LONGEST_WAIT_PAGES) as Nanos
}

/// How long it may be at the end of a section that has added so much.
fn longest_wait_for_section(added: usize) -> Nanos {
    let added = added.min(LONGEST_WAIT_PAGES * OPEN_BYTES);
    LONGEST_WAIT * added as Nanos / OPEN_BYTES as Nanos
}

impl Heap {
    /// The pace that a section put off to its end.
    pub(crate) fn pace_section<P: Policy>(&self, engine: &Engine<P>, local: &ThreadBuffer, record: &Record) {
        self.pace(engine, local, Some(record), longest_wait_for_section(local.take_from_section()));
    }

    /// Frees what has come due, and ends or awaits a grace period where too much has not, for `patience` at most. See the module's head.
    pub(super) fn pace<P: Policy>(&self, engine: &Engine<P>, local: &ThreadBuffer, record: Option<&Record>, patience: Nanos) {
        // A retire from within a free: the one outside goes on freeing.
        let Some(_busy) = local.begin_freeing() else { return };
        let held_back = self.apply_backpressure(engine, local, record, patience);
        local.attend_to_each(held_back);
        if !held_back {
            // Nothing that a section has added so far is waited for.
            local.take_from_section();
        }
        let _freeing = local.freeing.lock();
        let mut due = self.take_due(engine, local);
        let spares = self.thread_quota() / FULL_PAGE;
        let process = fork::process();
        while let Some(page) = due.pop_front() {
            // SAFETY: taken off our own queue after its grace period had ended; a plain page's objects may be freed here.
            unsafe { self.free(engine, page) };
            local.recycle(page, spares);
            if fork::process() != process {
                return due.take().forget();
            }
        }
    }

    /// Where nothing is due: ends a grace period if the queue has reached its quota, and waits a while if that does not help and
    /// [`THROTTLE_FACTOR`] or the budget is reached. A section puts both off to its end. Whether the thread is held back for longer than that.
    fn apply_backpressure<P: Policy>(
        &self, engine: &Engine<P>, local: &ThreadBuffer, record: Option<&Record>, patience: Nanos,
    ) -> bool {
        let (oldest, weight) = {
            let queue = lock(&local.queue);
            (queue.sealed.front().map(Page::cookie), queue.sealed.weight())
        };
        let is_due = |cookie| engine.has_ended(cookie);
        let quota = self.thread_quota();
        let too_much = self.policy() == DrainPolicy::PerPage && (weight >= THROTTLE_FACTOR * quota || self.is_over_budget());
        if oldest.is_some_and(is_due) || (weight < quota && !too_much) {
            return false;
        }
        let waits = too_much && !engine.is_stalled();
        if let Some(record) = record
            && record.is_reading()
        {
            record.defer_to_unlock();
            return waits;
        }
        if let Some(cookie) = oldest
            && engine.recheck(cookie, thread::token()) == Progress::Ended
        {
            self.assists.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        if waits && patience > 0 && self.may_wait(engine) {
            self.waits.fetch_add(1, Ordering::Relaxed);
            #[cfg(test)]
            self.waits_granted.fetch_add(patience, Ordering::Relaxed);
            let now = clock::now();
            let until = now + patience;
            // However this ends, the pages' own cookies decide what is freed.
            match oldest {
                Some(cookie) if patience < SHORT_WAIT => {
                    // As `wait_for` does: a reader that never leaves is reported, and then no more waited for.
                    let _ = engine.note_held_up(cookie, now);
                    engine.sleep_until(until, || is_due(cookie));
                }
                Some(cookie) => drop(engine.wait_for(cookie, thread::token(), Some(until), Haste::Normal)),
                None => engine.sleep_until(until, || !self.is_over_budget()),
            }
        }
        waits && oldest.map_or_else(|| self.is_over_budget(), |cookie| !is_due(cookie))
    }

    /// The oldest pages of the queue, if they are due; a few.
    fn take_due<P: Policy>(&self, engine: &Engine<P>, local: &ThreadBuffer) -> PageList {
        let mut queue = lock(&local.queue);
        let mut due = PageList::new();
        while due.pages() < PAGES_PER_SEAL
            && queue.sealed.front().is_some_and(|page| engine.has_ended(page.cookie()))
            && let Some(page) = queue.sealed.pop_front()
        {
            due.push_back(page);
        }
        due
    }

    /// What one thread may queue before it ends a grace period itself.
    fn thread_quota(&self) -> usize {
        let threads = self.active.load(Ordering::Relaxed).max(1);
        (self.budget() / 2 / threads).clamp(SMALLEST_QUOTA, LARGEST_QUOTA)
    }

    pub(super) fn is_over_budget(&self) -> bool {
        self.weight.load(Ordering::Relaxed) + self.chained.bytes.load(Ordering::Relaxed) >= self.budget()
    }

    /// Whether the calling thread may wait for a grace period: not in user code that the library runs, nor in a section of any kind. Looks at all records.
    pub(super) fn may_wait<P: Policy>(&self, engine: &Engine<P>) -> bool {
        !user_code::runs_for(self.domain) && engine.section_of(thread::token()).is_none()
    }
}
