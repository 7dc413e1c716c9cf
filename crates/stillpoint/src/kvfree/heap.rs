//! A domain's deferred frees: what there is of them, and the counts.
//!
//! What is done with them is in files of its own, which stand on this one: `retire`, `throttle`,
//! `oom`, `drain`, `fork`.
//!
//! # Locks
//!
//! `threads_end`, then `buffers`, then a buffer's `queue`, then `pending` or `reserve`, under which
//! no other is taken. A buffer's `freeing` is held while user code runs, so nothing is held when it
//! is waited for; but at the end of the domain, when only a thread that exits can have it, which
//! lets go of it before it takes `buffers`.

use super::{
    buffer::{CHANNELS, Queue, ThreadBuffer},
    on_demand::Around,
    page::{PAGE_BYTES, Page, ReservePage, footprint_of},
    pending::{Flushes, Pending},
    policy::{Policy, start_for_page},
};
use crate::{
    gp::Engine,
    platform::{
        memory,
        sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, lock},
    },
};

use std::sync::OnceLock;

/// How much a new domain lets wait.
pub(crate) const DEFAULT_BUDGET: usize = 8 << 20;

#[derive(Debug)]
pub(crate) struct Heap {
    pub(super) domain: u64,
    budget: AtomicUsize,
    whole_batches: AtomicBool,
    /// Objects are freed when their retirers ask for it: see `on_demand.rs`.
    pub(super) on_demand: OnceLock<Around>,

    /// The sealed pages that are not freed yet, their objects, and the bytes of both.
    pages: AtomicUsize,
    objects: AtomicUsize,
    pub(super) footprint: AtomicUsize,
    /// The very heavy ones among these pages (`throttle.rs`).
    pub(super) very_heavy: VeryHeavy,
    /// The callbacks that free objects without a page.
    pub(super) callbacks: Arc<OomCallbacks>,

    /// The buffers of all threads that retire here, by their numbers.
    pub(super) buffers: Mutex<Vec<Arc<ThreadBuffer>>>,
    /// The buffer of threads at their very end, whose own buffer is gone.
    pub(super) threads_end: Mutex<Option<Arc<ThreadBuffer>>>,
    /// Pages for the service thread: those with destructors or a very heavy object, those of threads
    /// that have exited or fallen idle.
    pub(super) pending: Mutex<Pending>,
    pub(super) flushes: Flushes,
    /// A page for adopting an open page when there is no memory.
    pub(super) reserve: ReservePage,

    /// Threads that are not parked: those that retire.
    pub(super) active: AtomicUsize,
    pub(super) assists: AtomicU64,
    pub(super) waits: AtomicU64,
    /// How long those waits might have been, together: for tests, which cannot rely on how long
    /// they were.
    #[cfg(test)]
    pub(crate) waits_granted: AtomicU64,
    pub(super) inline_waits: AtomicU64,
    pub(super) leaked: AtomicU64,
    pub(super) freed: AtomicU64,
    pub(super) panicked: AtomicU64,
}

impl Heap {
    pub(crate) fn new(domain: u64) -> Self {
        Self {
            domain,
            budget: AtomicUsize::new(DEFAULT_BUDGET),
            whole_batches: AtomicBool::new(false),
            on_demand: OnceLock::new(),
            pages: AtomicUsize::new(0),
            objects: AtomicUsize::new(0),
            footprint: AtomicUsize::new(0),
            very_heavy: VeryHeavy::new(),
            callbacks: Arc::new(OomCallbacks::new()),
            buffers: Mutex::new(Vec::new()),
            threads_end: Mutex::new(None),
            pending: Mutex::new(Pending::new()),
            flushes: Flushes::new(),
            reserve: ReservePage::new(),
            active: AtomicUsize::new(0),
            assists: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            #[cfg(test)]
            waits_granted: AtomicU64::new(0),
            inline_waits: AtomicU64::new(0),
            leaked: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
        }
    }

    pub(crate) fn budget(&self) -> usize {
        self.budget.load(Ordering::Relaxed)
    }

    /// The number of unreclaimed bytes at which the budget is used up: more than 0, even if the
    /// budget is 0.
    pub(super) fn limit(&self) -> usize {
        self.budget().max(1)
    }

    pub(crate) fn set_budget(&self, bytes: usize) {
        self.budget.store(bytes, Ordering::Relaxed);
    }

    /// Returns whether all pages that wait together are freed together, by the service thread,
    /// after one more grace period, without a budget: what `kvfree_rcu()` did before it polled a
    /// grace period a page. The lab compares the two.
    pub(super) fn frees_whole_batches(&self) -> bool {
        self.whole_batches.load(Ordering::Relaxed)
    }

    pub(crate) fn set_whole_batches(&self, whole: bool) {
        self.whole_batches.store(whole, Ordering::Relaxed);
    }

    /// A buffer for the calling thread; `None` if there is no memory to list it.
    pub(crate) fn join(&self) -> Option<Arc<ThreadBuffer>> {
        let buffer = Arc::new(ThreadBuffer::new());
        self.list(&buffer).then_some(buffer)
    }

    /// Returns whether there was memory for it. The list may be large, and threads that free take
    /// its lock: none waits for memory under it.
    pub(super) fn list(&self, buffer: &Arc<ThreadBuffer>) -> bool {
        let mut buffers = lock(&self.buffers);
        let has_space = memory::refusable(|| buffers.try_reserve(1)).is_ok();
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
        let pages = buffer.take_all(|| start_for_page(engine), |page| self.note_sealed(page));
        let left = !pages.is_empty();
        lock(&self.pending).add(pages);
        drop(freeing);
        // Only now, so that statistics see each object in one place or the other.
        lock(&self.buffers).retain(|other| !Arc::ptr_eq(other, buffer));
        self.note_parked(buffer.park());
        if left {
            engine.kick();
        }
    }

    /// One more thread retires, if that is new. Returns the same.
    pub(super) fn note_unparked(&self, changed: bool) -> bool {
        self.active
            .fetch_add(usize::from(changed), Ordering::Relaxed);
        changed
    }

    pub(super) fn note_parked(&self, changed: bool) {
        self.active
            .fetch_sub(usize::from(changed), Ordering::Relaxed);
    }

    /// A page's objects are now counted here and no longer in an open page.
    pub(super) fn note_sealed(&self, page: &Page) {
        let footprint = footprint_of(page);
        self.objects.fetch_add(page.objects(), Ordering::Relaxed);
        self.pages.fetch_add(1, Ordering::Relaxed);
        self.footprint.fetch_add(footprint, Ordering::Relaxed);
        // The page remembers it, as the budget may be another when it is freed.
        page.set_very_heavy(self.is_very_heavy(page.bytes()));
        if page.is_very_heavy() {
            self.very_heavy.add(footprint);
        }
    }

    /// A page's objects have been freed. Returns whether that may have brought the domain back
    /// under its budget, also as those see it for whom the very heavy pages count for less.
    pub(super) fn note_freed(&self, objects: usize, footprint: usize, very_heavy: bool) -> bool {
        self.freed.fetch_add(objects as u64, Ordering::Relaxed);
        self.note_gone(objects, footprint, very_heavy)
    }

    /// So many objects of an open page are being freed without it, and counted here meanwhile.
    pub(super) fn note_taken(&self, objects: usize) {
        self.objects.fetch_add(objects, Ordering::Relaxed);
    }

    /// They have been freed.
    pub(super) fn note_taken_freed(&self, objects: usize) {
        self.freed.fetch_add(objects as u64, Ordering::Relaxed);
        // Release, pairs with `waiting_sealed`: a thread that sees the lower count sees what their
        // destructors did.
        self.objects.fetch_sub(objects, Ordering::Release);
    }

    /// A page's objects have been freed or leaked. Returns as `note_freed`.
    pub(super) fn note_gone(&self, objects: usize, footprint: usize, very_heavy: bool) -> bool {
        // Release, pairs with `waiting_sealed`: a thread that sees the lower count sees what their
        // destructors did.
        self.objects.fetch_sub(objects, Ordering::Release);
        self.pages.fetch_sub(1, Ordering::Release); // The same: pairs with `waiting_sealed`.
        let before = self.footprint.fetch_sub(footprint, Ordering::Release) // The same: pairs with `waiting_sealed`.
            + self.callbacks.bytes();
        let is_any_very_heavy = very_heavy || self.very_heavy.load().0 > 0;
        if very_heavy {
            self.very_heavy.remove(footprint);
        }
        before >= self.limit() && (is_any_very_heavy || before - footprint < self.limit())
    }

    /// The result of a user's function for the weight of a value.
    pub(crate) fn note_weigher_panicked(&self) {
        self.panicked.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets all pages and callbacks; no thread retires.
    pub(super) fn reset_counts(&self) {
        for count in [
            &self.pages,
            &self.objects,
            &self.footprint,
            &self.very_heavy.pages,
            &self.very_heavy.bytes,
            &self.callbacks.objects,
            &self.callbacks.bytes,
            &self.active,
        ] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// How many pages are counted as very heavy, and their bytes.
    #[cfg(test)]
    pub(crate) fn very_heavy(&self) -> (usize, usize) {
        self.very_heavy.load()
    }

    /// The state that `look` sees while the lock of the threads' list and that of each thread are
    /// held.
    #[cfg(test)]
    pub(crate) fn with_locks_held<R>(&self, look: impl FnOnce() -> R) -> R {
        let buffers = lock(&self.buffers);
        let queues: Vec<_> = buffers.iter().map(|buffer| lock(&buffer.queue)).collect();
        let seen = look();
        drop(queues);
        seen
    }

    /// Objects that wait, their bytes, and the pages in use, open ones included.
    pub(crate) fn waiting(&self) -> Waiting {
        let mut waiting = Waiting::default();
        // Open pages first: what is sealed meanwhile is counted twice for a moment, never not at
        // all.
        for buffer in lock(&self.buffers).iter() {
            let _queue: &Queue = &lock(&buffer.queue);
            for page in CHANNELS
                .iter()
                .filter_map(|&channel| buffer.open_page(channel))
            {
                waiting.objects += page.objects() as u64;
                waiting.bytes = waiting.bytes.saturating_add(page.bytes() as u64);
                waiting.pages += 1;
            }
        }
        let sealed = self.waiting_sealed();
        waiting.objects += sealed.objects;
        waiting.bytes = waiting.bytes.saturating_add(sealed.bytes);
        waiting.pages += sealed.pages;
        waiting
    }

    /// Like the function above, without open pages and without a lock.
    pub(crate) fn waiting_sealed(&self) -> Waiting {
        // Acquire, pairs with `note_freed`: what is not counted any more has been freed,
        // destructors and all.
        let pages = self.pages.load(Ordering::Acquire);
        let mut objects = self.objects.load(Ordering::Acquire); // The same: pairs with `note_freed`.
        let footprint = self.footprint.load(Ordering::Acquire); // And: pairs with `note_freed`.
        let mut bytes = footprint.saturating_sub(pages * PAGE_BYTES);
        objects += self.callbacks.objects.load(Ordering::Acquire); // Acquire, pairs with `note_gone`.
        bytes = bytes.saturating_add(self.callbacks.bytes());
        Waiting {
            objects: objects as u64,
            bytes: bytes as u64,
            pages: pages as u64,
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            freed: self.freed.load(Ordering::Relaxed)
                + self.callbacks.freed.load(Ordering::Relaxed),
            leaked: self.leaked.load(Ordering::Relaxed),
            assists: self.assists.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
            inline_waits: self.inline_waits.load(Ordering::Relaxed),
            panicked: self.panicked.load(Ordering::Relaxed),
        }
    }
}

/// The sealed pages that are very heavy, and their bytes.
#[derive(Debug)]
pub(super) struct VeryHeavy {
    pages: AtomicUsize,
    bytes: AtomicUsize,
}

impl VeryHeavy {
    fn new() -> Self {
        Self {
            pages: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    fn add(&self, bytes: usize) {
        self.pages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.pages.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The pages, and their bytes. A racy snapshot.
    pub(super) fn load(&self) -> (usize, usize) {
        (
            self.pages.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        )
    }
}

/// Objects each of which a callback of its own will free, as there was no memory for a page. Their
/// callbacks share it.
#[derive(Debug)]
pub(super) struct OomCallbacks {
    objects: AtomicUsize,
    bytes: AtomicUsize,
    freed: AtomicU64,
}

impl OomCallbacks {
    fn new() -> Self {
        Self {
            objects: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            freed: AtomicU64::new(0),
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

    /// An object does not wait any more.
    pub(super) fn note_gone(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        // Release, pairs with `waiting_sealed`: a thread that sees the lower count sees what the
        // destructor did.
        self.objects.fetch_sub(1, Ordering::Release);
    }
}

/// The unreclaimed objects of a heap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) pages: u64,
}

/// The events of a heap; see the fields of [`Statistics`](crate::Statistics).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) freed: u64,
    pub(crate) leaked: u64,
    pub(crate) assists: u64,
    pub(crate) waits: u64,
    pub(crate) inline_waits: u64,
    pub(crate) panicked: u64,
}
