//! The state of a domain's deferred frees, and their counts. `retire`, `throttle`, `oom`, `drain` and
//! `fork` work on it.
//!
//! # Locks
//!
//! `threads_end`, then `buffers`, then a buffer's `queue`, then `pending` or `reserve`, under which
//! no other is taken. A buffer's `freeing` is held while user code runs, so a thread that waits for
//! it holds nothing. The exception is the end of the domain, when only a thread that exits can have
//! it, and releases it before it takes `buffers`.

use super::{
    account::{Account, Change, FREED_STEP, Shared},
    around::Around,
    buffer::ThreadBuffer,
    held_up::HeldUp,
    page::{PAGE_BYTES, Page, Reserve, Tally},
    pending::{Flushes, Pending},
    policy::{Policy, name_for_page},
};
use crate::{
    gp::{Engine, IN_MODEL},
    histogram::{Histogram, Recorder},
    platform::{
        clock::{self, Nanos},
        stats::{
            Words,
            fields::{
                BUDGET_BYTES, INLINE_WAITS, OBJECTS_LEAKED, PANICS, RECLAIM_TIMES, WAIT_TIMES,
                WAITS,
            },
        },
        sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, lock, try_lock},
    },
    trace,
};
use std::{ptr::NonNull, sync::OnceLock};

/// Budget of a new domain, in bytes.
pub(crate) const DEFAULT_BUDGET: usize = 8 << 20;

/// The most empty pages in a domain's reserve, the last one included.
const RESERVED: usize = 8;

/// Number of times that statistics add all accounts up. The lowest sum is the most exact, because
/// each is too high by what the service thread frees meanwhile. Once in the model, where each step
/// costs minutes.
const LOOKS: usize = if IN_MODEL { 1 } else { 2 };

#[derive(Debug)]
pub(crate) struct Heap {
    pub(super) domain: u64,
    budget: AtomicUsize,
    whole_batches: AtomicBool,
    /// Objects are freed when their retirers ask for it: see `on_demand.rs`.
    pub(super) on_demand: OnceLock<Around>,
    pub(super) held_up: HeldUp,

    /// The sealed pages that are not freed yet, except what threads count for themselves.
    pub(super) shared: Shared,
    /// The callbacks that free objects without a page.
    pub(super) callbacks: Arc<OomCallbacks>,

    /// The buffers of all threads that retire here, by their numbers.
    pub(super) buffers: Mutex<Vec<Arc<ThreadBuffer>>>,
    /// The buffer of threads at their very end, whose own buffer is gone.
    pub(super) threads_end: Mutex<Option<Arc<ThreadBuffer>>>,
    pub(super) line: ServiceLine,
    pub(super) flushes: Flushes,

    /// Threads that are not parked: those that retire.
    pub(super) active: AtomicUsize,
    pub(super) waits: AtomicU64,
    /// How long these waits were.
    pub(super) wait_times: Recorder,
    /// How long passes have taken that have freed something.
    pub(super) reclaim_times: Recorder,
    /// The sum of the bounds of those waits: for tests, which cannot rely on how long they were.
    #[cfg(test)]
    pub(crate) waits_granted: AtomicU64,
    pub(super) inline_waits: AtomicU64,
    pub(super) leaked: AtomicU64,
    /// Objects that their retirers have freed without a page.
    pub(super) freed_inline: AtomicU64,
    pub(super) panicked: AtomicU64,
    /// Goes up when destructors that have been called together have retired something.
    nested: AtomicU64,
}

/// The fields that the service thread writes for each page that it frees, apart from those that all retiring
/// threads read.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct ServiceLine {
    /// Pages for the service thread: those with destructors, large ones, those of threads that have exited
    /// or fallen idle.
    pub(super) pending: Mutex<Pending>,
    /// Empty pages of the domain.
    pub(super) reserve: Reserve,
}

impl Heap {
    pub(crate) fn new(domain: u64) -> Self {
        Self {
            domain,
            budget: AtomicUsize::new(DEFAULT_BUDGET),
            whole_batches: AtomicBool::new(false),
            on_demand: OnceLock::new(),
            held_up: HeldUp::new(),
            shared: Shared::new(),
            callbacks: Arc::new(OomCallbacks::new()),
            buffers: Mutex::new(Vec::new()),
            threads_end: Mutex::new(None),
            line: ServiceLine {
                pending: Mutex::new(Pending::new()),
                reserve: Reserve::new(),
            },
            flushes: Flushes::new(),
            active: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            wait_times: Recorder::new(),
            reclaim_times: Recorder::new(),
            #[cfg(test)]
            waits_granted: AtomicU64::new(0),
            inline_waits: AtomicU64::new(0),
            leaked: AtomicU64::new(0),
            freed_inline: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            nested: AtomicU64::new(0),
        }
    }

    pub(crate) fn budget(&self) -> usize {
        self.budget.load(Ordering::Relaxed)
    }

    /// Returns the number of unreclaimed bytes at which the budget is used up: more than 0, even if
    /// the budget is 0.
    pub(super) fn limit(&self) -> usize {
        self.budget().max(1)
    }

    pub(crate) fn set_budget(&self, bytes: usize) {
        self.budget.store(bytes, Ordering::Relaxed);
        self.shared
            .tap()
            .follow(BUDGET_BYTES, || self.budget() as u64);
    }

    /// Returns whether all pages that wait together are freed together, by the service thread,
    /// after one more grace period, without a budget: what `kvfree_rcu()` did before it polled one
    /// grace period per page. The lab compares the two.
    pub(super) fn frees_whole_batches(&self) -> bool {
        self.whole_batches.load(Ordering::Relaxed)
    }

    pub(crate) fn set_whole_batches(&self, whole: bool) {
        self.whole_batches.store(whole, Ordering::Relaxed);
    }

    /// Makes a buffer for the calling thread. `None` if there is no memory for it, or to list it.
    pub(crate) fn join(&self) -> Option<Arc<ThreadBuffer>> {
        let buffer = ThreadBuffer::try_new()?;
        self.list(&buffer).then_some(buffer)
    }

    /// Lists `buffer`. Returns whether there was memory for that. The list may be large, and
    /// threads that free take its lock: no thread waits for memory under it.
    pub(super) fn list(&self, buffer: &Arc<ThreadBuffer>) -> bool {
        let mut buffers = lock(&self.buffers);
        let has_space = buffers.try_reserve(1).is_ok();
        if has_space {
            buffer.set_listed(buffers.last().map_or(1, |last| last.number() + 1));
            buffers.push(Arc::clone(buffer));
        }
        has_space
    }

    /// Gives a buffer up: its unreclaimed pages are handed to the service thread.
    pub(crate) fn leave<P: Policy>(&self, engine: &Engine<P>, buffer: &Arc<ThreadBuffer>) {
        // So that a flush, or the end of the domain, waits until the pages are pending.
        let freeing = buffer.freeing.lock();
        let pages = buffer.take_all(|| name_for_page(engine), |page| self.note_sealed(page));
        let left = !pages.is_empty();
        if let Some(youngest) = pages.back() {
            engine.begin(youngest.cookie());
        }
        lock(&self.line.pending).arrived.append(pages);
        drop(freeing);
        // Only now, so that statistics see each object in one place or the other.
        let mut buffers = lock(&self.buffers);
        buffers.retain(|other| !Arc::ptr_eq(other, buffer));
        let is_relief = self.close_account(&buffer.account);
        drop(buffers);
        if is_relief {
            engine.signal_waiters();
        }
        self.note_parked(buffer.park());
        if left {
            engine.kick();
        }
    }

    /// Counts a page that the owner of `buffer` has sealed. Under the lock of its queue. Returns
    /// whether waiters must be signalled: what is published now may include earlier frees.
    pub(super) fn note_sealed_by(&self, buffer: &ThreadBuffer, page: &Page) -> bool {
        let tally = Tally::of(page);
        buffer.account.sealed.add(tally);
        self.note_change(buffer, tally, 0)
    }

    /// Counts a page that was sealed by a thread without an account: the service thread, or a
    /// thread that exits.
    pub(super) fn note_sealed(&self, page: &Page) {
        self.shared.note_sealed(Tally::of(page));
    }

    /// Counts what the owner of `buffer` has sealed and freed. Under the lock of its queue. Returns
    /// whether that may have brought the domain back under its budget.
    pub(super) fn note_freed_by(&self, buffer: &ThreadBuffer, freed: Tally) -> bool {
        buffer.account.freed.add(freed);
        self.note_change(buffer, Tally::default().minus(freed), freed.objects)
    }

    /// Counts objects that are gone, by a thread that has not sealed them. Of these, `freed` were freed,
    /// and the others leaked. Returns as [`Heap::note_freed_by`].
    pub(super) fn note_gone(&self, gone: Tally, freed: usize) -> bool {
        self.ends_excess(self.shared.note_gone(gone, freed))
    }

    /// Returns whether the domain was over its budget before the change, and is not now.
    fn ends_excess(&self, change: Change) -> bool {
        let is_over =
            |footprint: usize| footprint.saturating_add(self.callbacks.bytes()) >= self.limit();
        is_over(change.before()) && !is_over(change.after())
    }

    /// Notes a change of a thread's unreclaimed pages, and that `freed` objects have been freed. Publishes
    /// the sum of such changes if it is a step, or if the owner is parked, because the service thread does
    /// not look at it then. Under the lock of the queue. Returns as [`Heap::note_freed_by`].
    fn note_change(&self, buffer: &ThreadBuffer, by: Tally, freed: usize) -> bool {
        let (unpublished, unpublished_freed) = buffer.account.add(by, freed);
        // The two steps are separate: what a thread seals and what it frees may cancel out for
        // ever.
        let is_step = unpublished.cast_signed().unsigned_abs() >= self.step(buffer);
        let is_step_of_freed = buffer.is_parked() || unpublished_freed >= FREED_STEP;
        (is_step || is_step_of_freed)
            && self.ends_excess(self.shared.publish_of(&buffer.account, is_step_of_freed))
    }

    /// Publishes all that `account` has not. Under the lock of the queue. Returns whether that may
    /// have brought the domain back under its budget.
    pub(super) fn publish_rest(&self, account: &Account) -> bool {
        self.ends_excess(self.shared.publish_of(account, true))
    }

    /// Takes over the account of a thread that exits. Under the lock of the threads' list, which no
    /// longer has it: statistics see it in one place, and the service thread does not publish for
    /// it. Returns as [`Heap::publish_rest`].
    pub(super) fn close_account(&self, account: &Account) -> bool {
        let is_relief = self.publish_rest(account);
        self.shared.close(account);
        is_relief
    }

    /// Counts one more thread that retires, if it `changed` to that. Returns `changed`.
    pub(super) fn note_unparked(&self, changed: bool) -> bool {
        self.active
            .fetch_add(usize::from(changed), Ordering::Relaxed);
        changed
    }

    /// Counts one less, if it `changed` to that. After the last, one page in reserve is enough.
    pub(super) fn note_parked(&self, changed: bool) {
        if changed && self.active.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.line.reserve.trim();
        }
    }

    /// Puts an empty page of the caller's into the reserve, or gives its memory back if the reserve is
    /// full: at one page while no thread retires.
    pub(super) fn reserve_page(&self, page: NonNull<Page>) {
        // Relaxed: if the last thread is parked meanwhile, the page stays beside the last one, which
        // does no harm.
        let is_idle = self.active.load(Ordering::Relaxed) == 0;
        self.line
            .reserve
            .put(page, if is_idle { 1 } else { RESERVED });
    }

    /// Runs destructors by `free`, and notes whether they have retired anything on this thread:
    /// `retired` returns a number that changes with each retire. It is noted before a flush that
    /// waits for them learns that they have run.
    pub(super) fn note_nested<N: PartialEq, R>(
        &self,
        retired: impl Fn() -> N,
        free: impl FnOnce() -> R,
    ) -> R {
        let before = retired();
        let result = free();
        if retired() != before {
            self.nested.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Returns a number that goes up when destructors have retired something, before a flush that
    /// waits for them ends.
    pub(crate) fn nested_retires(&self) -> u64 {
        self.nested.load(Ordering::Relaxed)
    }

    /// Counts and times a wait of the calling thread, `wait`, to which the present time is passed. `longest`
    /// is its bound in nanoseconds, 0 if the caller does not know it.
    pub(crate) fn note_wait(&self, longest: Nanos, wait: impl FnOnce(Nanos)) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        let (unreclaimed, budget) = (self.shared.footprint() as u64, self.budget() as u64);
        trace::rcu_kvfree_throttle_start(self.domain, unreclaimed, budget, longest);
        let now = clock::now();
        wait(now);
        let waited = clock::now().saturating_sub(now);
        self.wait_times.record(waited, 1);
        trace::rcu_kvfree_throttle_end(self.domain, waited);
        let waits = self.waits.load(Ordering::Relaxed);
        self.shared.tap().raise(WAITS, waits);
    }

    /// Counts a panic of a user's function for the weight of a value.
    pub(crate) fn note_weigher_panicked(&self) {
        self.panicked.fetch_add(1, Ordering::Relaxed);
    }

    /// Resets the counts of objects that callbacks free, and of threads that retire.
    pub(super) fn reset_counts(&self) {
        for count in [&self.callbacks.objects, &self.callbacks.bytes, &self.active] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Returns what `look` returns while the lock of the threads' list and that of each thread are held.
    #[cfg(test)]
    pub(crate) fn with_locks_held<R>(&self, look: impl FnOnce() -> R) -> R {
        let buffers = lock(&self.buffers);
        let queues: Vec<_> = buffers.iter().map(|buffer| lock(&buffer.queue)).collect();
        let seen = look();
        drop(queues);
        seen
    }

    /// Returns the unreclaimed objects, their bytes, and the pages in use, open ones included.
    /// Takes the lock of the threads' list and that of each thread.
    pub(crate) fn waiting(&self) -> Waiting {
        self.waiting_in(&lock(&self.buffers), ThreadBuffer::tallies)
    }

    /// Like [`Heap::waiting`], without open pages, and without a wait for a lock. While another
    /// thread holds the lock of the threads' list, it has only the published bytes and freed
    /// objects.
    pub(crate) fn waiting_sealed(&self) -> Waiting {
        let Some(buffers) = try_lock(&self.buffers) else {
            let bytes = self.shared.published_bytes();
            return Waiting {
                bytes: bytes.saturating_add(self.callbacks.bytes()) as u64,
                freed: self.shared.published_freed() as u64,
                ..Waiting::default()
            };
        };
        self.waiting_in(&buffers, |buffer| {
            (Tally::default(), buffer.account.tallies())
        })
    }

    /// Adds up what waits. `of` returns what is in a thread's open pages, and what is in its
    /// account.
    fn waiting_in(
        &self,
        buffers: &[Arc<ThreadBuffer>],
        of: impl Fn(&ThreadBuffer) -> (Tally, (Tally, Tally)),
    ) -> Waiting {
        // In this order: see `account.rs`.
        let look = || {
            let gone = self.shared.gone();
            let (mut open, mut sealed, mut freed) = (Tally::default(), Tally::default(), gone);
            for buffer in buffers {
                let (own_open, (own_freed, own_sealed)) = of(buffer);
                open = open.plus(own_open);
                freed = freed.plus(own_freed);
                sealed = sealed.plus(own_sealed);
            }
            (open, sealed.plus(self.shared.sealed()).minus(freed), freed)
        };
        let (open, sealed, gone) = (0..LOOKS)
            .map(|_| look())
            .min_by_key(|(open, sealed, _)| open.footprint.saturating_add(sealed.footprint))
            .unwrap_or_default();
        let bytes = sealed
            .footprint
            .saturating_sub(sealed.pages.saturating_mul(PAGE_BYTES));
        let callbacks = self.callbacks.objects.load(Ordering::Acquire); // Acquire, pairs with `note_gone`.
        Waiting {
            objects: (sealed.objects + open.objects + callbacks) as u64,
            bytes: bytes
                .saturating_add(open.footprint)
                .saturating_add(self.callbacks.bytes()) as u64,
            pages: (sealed.pages + open.pages) as u64,
            freed: gone.objects.saturating_sub(self.shared.leaked()) as u64,
        }
    }

    /// Copies the counters that only a pass of the service thread copies. `panics` is the engine's
    /// count, to which the heap's is added.
    pub(crate) fn publish_work(&self, panics: u64) {
        let tap = self.shared.tap();
        if !tap.is_open() {
            return;
        }
        let counts = self.counts();
        tap.raise(WAITS, counts.waits);
        tap.raise(INLINE_WAITS, counts.inline_waits);
        tap.raise(OBJECTS_LEAKED, counts.leaked);
        tap.raise(PANICS, counts.panicked + panics);
    }

    /// Copies the heap's counters into `words` of the statistics page from now on.
    pub(crate) fn open_tap(&self, words: Words) {
        self.shared.tap().open(words);
        self.wait_times.publish(words, WAIT_TIMES);
        self.reclaim_times.publish(words, RECLAIM_TIMES);
    }

    /// Copies what has been counted so far into the statistics page, which has zeros there.
    pub(crate) fn publish_all(&self) {
        let tap = self.shared.tap();
        if !tap.is_open() {
            return;
        }
        tap.follow(BUDGET_BYTES, || self.budget() as u64);
        self.shared.copy();
        self.wait_times.copy_all();
        self.reclaim_times.copy_all();
    }

    /// Returns how long threads have waited because of what is unreclaimed.
    pub(crate) fn wait_times(&self) -> Histogram {
        self.wait_times.load()
    }

    /// Returns how long passes of the service thread have taken that have freed something.
    pub(crate) fn reclaim_times(&self) -> Histogram {
        self.reclaim_times.load()
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            freed: self.freed_inline.load(Ordering::Relaxed)
                + self.callbacks.freed.load(Ordering::Relaxed),
            leaked: self.leaked.load(Ordering::Relaxed)
                + self.callbacks.left.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
            inline_waits: self.inline_waits.load(Ordering::Relaxed),
            panicked: self.panicked.load(Ordering::Relaxed),
            assists: self.shared.assists(),
        }
    }
}

/// Counts of objects that callbacks free, because there was no memory for a page. The callbacks share it.
#[derive(Debug)]
pub(super) struct OomCallbacks {
    objects: AtomicUsize,
    bytes: AtomicUsize,
    freed: AtomicU64,
    /// Objects that are never freed, because no user code may run any more.
    left: AtomicU64,
}

impl OomCallbacks {
    fn new() -> Self {
        Self {
            objects: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            freed: AtomicU64::new(0),
            left: AtomicU64::new(0),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn note_queued(&self, bytes: usize) {
        self.objects.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn note_freed(&self, bytes: usize) {
        self.freed.fetch_add(1, Ordering::Relaxed);
        self.note_gone(bytes);
    }

    pub(super) fn note_left(&self, bytes: usize) {
        self.left.fetch_add(1, Ordering::Relaxed);
        self.note_gone(bytes);
    }

    /// Counts an object that has been freed, or is never freed.
    pub(super) fn note_gone(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        // Release, pairs with `waiting_in`: a thread that sees the lower count sees what the
        // destructor did.
        self.objects.fetch_sub(1, Ordering::Release);
    }
}

/// The unreclaimed objects of a heap, and the counts that are read with them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) pages: u64,
    /// Objects that have been freed with their pages.
    pub(crate) freed: u64,
}

/// The events of a heap; see the fields of [`Statistics`](crate::Statistics).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) freed: u64,
    pub(crate) leaked: u64,
    pub(crate) waits: u64,
    pub(crate) inline_waits: u64,
    pub(crate) panicked: u64,
    pub(crate) assists: u64,
}
