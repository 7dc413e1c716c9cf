//! How much is unreclaimed: counted by each thread for itself, and added up where it is needed.
//!
//! A thread counts what it seals and frees in the [`Account`] of its buffer, so that a page costs
//! no write to a cache line that all threads write. The sums of an account only grow; what is
//! unreclaimed is the difference of what all have sealed and freed. The service thread, which frees
//! pages that others have sealed, counts in [`Shared`].
//!
//! # Statistics
//!
//! They add all accounts up, in this order: what [`Shared`] counts as freed; each thread's sums, of
//! one moment; what [`Shared`] counts as sealed. An object is sealed before it is freed, and a
//! thread counts as freed by itself only what it has sealed itself. So what the sum counts as freed
//! it counts as sealed, too: the sum of the objects is never too low. That of the bytes, which is
//! made of two sums, may be, by the pages that are freed at that moment.
//!
//! # The budget
//!
//! The budget needs one number that all threads can read at each page. A thread *publishes* there by
//! how much its unreclaimed bytes have changed, once that is a *step*: a quarter of its quota, or of
//! its equal part of half the budget if that is less (`Heap::step`). So the number is wrong by at
//! most the number of threads times the step, which is at most an eighth of the budget. A thread
//! adds its own unpublished changes to what it reads, and publishes all before it waits, because the
//! threads that wake it compare published numbers. The service thread publishes for threads that are
//! idle or slow.

use super::page::{PAGE_BYTES, Tally};
use crate::platform::{
    stats::{
        Tap,
        fields::{ASSISTS, OBJECTS_FREED, UNRECLAIMED_BYTES},
    },
    sync::{AtomicU64, AtomicUsize, Ordering},
};

/// The step, in objects, in which a thread publishes how many it has freed.
pub(super) const FREED_STEP: usize = 4096;

/// What one thread has sealed and freed. Written by the owner of the buffer, under the lock of its
/// queue; at the end of the owner, under that of the threads' list (`Heap::close_account`).
#[derive(Debug)]
pub(super) struct Account {
    pub(super) sealed: Sums,
    pub(super) freed: Sums,
    /// The change of its unreclaimed bytes that is not in [`Published::footprint`]; wraps below 0.
    /// Also written by the service thread, under the same lock.
    unpublished: AtomicUsize,
    /// The change of its pages that is not in [`Published::pages`]. Written as the field above.
    unpublished_pages: AtomicUsize,
    /// The objects that are not in [`Published::freed`]. Written as the field above.
    unpublished_freed: AtomicUsize,
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            sealed: Sums::new(),
            freed: Sums::new(),
            unpublished: AtomicUsize::new(0),
            unpublished_pages: AtomicUsize::new(0),
            unpublished_freed: AtomicUsize::new(0),
        }
    }

    /// Returns what has been freed, and what has been sealed. Of one moment under the lock of the
    /// queue; without it the second may be of a later one.
    pub(super) fn tallies(&self) -> (Tally, Tally) {
        let freed = self.freed.load();
        (freed, self.sealed.load())
    }

    /// Adds a change of the unreclaimed pages, and `freed` objects. Returns the bytes and the objects
    /// freed that have not been published. Under the lock of the queue.
    pub(super) fn add(&self, by: Tally, freed: usize) -> (usize, usize) {
        let add = |sum: &AtomicUsize, change| {
            let changed = sum.load(Ordering::Relaxed).wrapping_add(change);
            sum.store(changed, Ordering::Relaxed);
            changed
        };
        add(&self.unpublished_pages, by.pages);
        let unpublished = add(&self.unpublished, by.footprint);
        (unpublished, add(&self.unpublished_freed, freed))
    }

    fn reset(&self) {
        self.sealed.reset(0);
        self.freed.reset(0);
        self.unpublished.store(0, Ordering::Relaxed);
        self.unpublished_pages.store(0, Ordering::Relaxed);
        self.unpublished_freed.store(0, Ordering::Relaxed);
    }
}

/// A tally that other threads read: objects, pages, footprint.
#[derive(Debug)]
pub(super) struct Sums([AtomicUsize; 3]);

impl Sums {
    pub(super) fn new() -> Self {
        Self([0; 3].map(AtomicUsize::new))
    }

    /// Adds without a read-modify-write. For the only writer.
    pub(super) fn add(&self, tally: Tally) {
        let changes = [tally.objects, tally.pages, tally.footprint];
        for (sum, change) in self.0.iter().zip(changes) {
            let before = sum.load(Ordering::Relaxed);
            // Release, pairs with `load`: a thread that sees objects counted as freed sees what
            // their destructors did, and the objects counted as sealed.
            sum.store(before.wrapping_add(change), Ordering::Release);
        }
    }

    /// Like [`Sums::add`], where there are several writers.
    pub(super) fn add_beside_others(&self, tally: Tally) {
        let changes = [tally.objects, tally.pages, tally.footprint];
        for (sum, change) in self.0.iter().zip(changes) {
            // Release, pairs with `load`: as in `add`.
            sum.fetch_add(change, Ordering::Release);
        }
    }

    pub(super) fn load(&self) -> Tally {
        // Acquire, pairs with `add` and `add_beside_others`: what is counted as freed has been
        // freed, destructors included.
        let [objects, pages, footprint] = self.0.each_ref().map(|sum| sum.load(Ordering::Acquire));
        Tally {
            objects,
            pages,
            footprint,
        }
    }

    pub(super) fn reset(&self, objects: usize) {
        for (sum, value) in self.0.iter().zip([objects, 0, 0]) {
            sum.store(value, Ordering::Relaxed);
        }
    }
}

/// The numbers that all threads read, and write in steps.
#[derive(Debug)]
struct Published {
    /// The bytes of sealed pages and their objects. Wraps below 0 while a thread has not published
    /// pages that another thread has freed.
    footprint: AtomicUsize,
    /// The sealed pages, to tell their own memory from that of their objects. May be below 0 as
    /// well.
    pages: AtomicUsize,
    /// Objects freed, in steps of [`FREED_STEP`] a thread: for the child of a fork, which cannot
    /// look at other threads' accounts, and for callers that must not wait for a lock.
    freed: AtomicUsize,
    /// Grace periods that retiring threads have ended.
    assists: AtomicU64,
    /// The tap into the statistics page.
    tap: Tap,
}

/// What the threads of a heap have published; and the sums of those that have no account: the
/// service thread, threads that have exited.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Shared {
    published: Published,
    served: Served,
}

/// The sums of those that have no account: the service thread, threads that have exited. A thread that
/// writes them publishes at the same time.
#[derive(Debug)]
struct Served {
    sealed: Sums,
    /// What has been freed, or leaked.
    gone: Sums,
    /// The objects in `gone` that were leaked.
    leaked: AtomicUsize,
}

/// A change of the published footprint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    before: usize,
    by: usize,
}

impl Change {
    pub(super) fn before(self) -> usize {
        at_least_zero(self.before)
    }

    pub(super) fn after(self) -> usize {
        at_least_zero(self.before.wrapping_add(self.by))
    }
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            published: Published {
                footprint: AtomicUsize::new(0),
                pages: AtomicUsize::new(0),
                freed: AtomicUsize::new(0),
                assists: AtomicU64::new(0),
                tap: Tap::new(),
            },
            served: Served {
                sealed: Sums::new(),
                gone: Sums::new(),
                leaked: AtomicUsize::new(0),
            },
        }
    }

    /// Returns the tap into the statistics page.
    #[inline]
    pub(super) fn tap(&self) -> &Tap {
        &self.published.tap
    }

    pub(super) fn sealed(&self) -> Tally {
        self.served.sealed.load()
    }

    pub(super) fn gone(&self) -> Tally {
        self.served.gone.load()
    }

    /// Returns the objects of sealed pages that were leaked.
    pub(super) fn leaked(&self) -> usize {
        self.served.leaked.load(Ordering::Relaxed)
    }

    /// Returns the bytes of sealed pages and their objects, as far as they have been published.
    pub(super) fn footprint(&self) -> usize {
        at_least_zero(self.published.footprint.load(Ordering::Relaxed))
    }

    /// Returns the unreclaimed bytes of sealed pages, as the owner of `account` sees them: what other
    /// threads have published, and all that the owner counts.
    pub(super) fn footprint_with(&self, account: &Account) -> usize {
        let published = self.published.footprint.load(Ordering::Relaxed);
        at_least_zero(published.wrapping_add(account.unpublished.load(Ordering::Relaxed)))
    }

    /// Returns the bytes of the objects in sealed pages, as far as they have been published.
    pub(super) fn published_bytes(&self) -> usize {
        let pages = at_least_zero(self.published.pages.load(Ordering::Relaxed));
        self.footprint()
            .saturating_sub(pages.saturating_mul(PAGE_BYTES))
    }

    /// Returns the objects that have been freed, as far as they have been published.
    pub(super) fn published_freed(&self) -> usize {
        self.published.freed.load(Ordering::Relaxed)
    }

    fn publish(&self, change: usize, pages: usize, freed: usize) -> Change {
        let published = &self.published;
        if pages != 0 {
            published.pages.fetch_add(pages, Ordering::Relaxed);
        }
        if freed > 0 {
            published.freed.fetch_add(freed, Ordering::Relaxed);
        }
        let before = published.footprint.fetch_add(change, Ordering::Relaxed);
        if published.tap.is_open() {
            self.copy();
        }
        Change { before, by: change }
    }

    /// Publishes what `account` has not published yet, including objects freed if `with_freed`. Under
    /// the lock of the queue.
    pub(super) fn publish_of(&self, account: &Account, with_freed: bool) -> Change {
        let take = |sum: &AtomicUsize| {
            let taken = sum.load(Ordering::Relaxed);
            sum.store(0, Ordering::Relaxed);
            taken
        };
        let (by, pages) = (take(&account.unpublished), take(&account.unpublished_pages));
        let freed = if with_freed {
            take(&account.unpublished_freed)
        } else {
            0
        };
        if (by, pages, freed) == (0, 0, 0) {
            return Change { before: 0, by: 0 };
        }
        self.publish(by, pages, freed)
    }

    /// Counts what was sealed by a thread without an account.
    pub(super) fn note_sealed(&self, sealed: Tally) {
        self.served.sealed.add_beside_others(sealed);
        self.publish(sealed.footprint, sealed.pages, 0);
    }

    /// Counts objects that are gone, by a thread that has not sealed them. Of these, `freed` were freed,
    /// and the others leaked.
    pub(super) fn note_gone(&self, gone: Tally, freed: usize) -> Change {
        let leaked = gone.objects - freed;
        if leaked > 0 {
            self.served.leaked.fetch_add(leaked, Ordering::Relaxed);
        }
        self.served.gone.add_beside_others(gone);
        let change = Tally::default().minus(gone);
        self.publish(change.footprint, change.pages, freed)
    }

    /// Counts a grace period that a retiring thread has ended.
    pub(super) fn note_assist(&self) {
        let published = &self.published;
        let before = published.assists.fetch_add(1, Ordering::Relaxed);
        published.tap.raise(ASSISTS, before + 1);
    }

    /// Returns how many grace periods retiring threads have ended.
    pub(super) fn assists(&self) -> u64 {
        self.published.assists.load(Ordering::Relaxed)
    }

    /// Takes over the sums of an account whose changes have been published.
    pub(super) fn close(&self, account: &Account) {
        let (freed, sealed) = account.tallies();
        self.served.sealed.add_beside_others(sealed);
        self.served.gone.add_beside_others(freed);
        account.reset();
    }

    /// Copies into the statistics page what has been published by threads.
    #[cold]
    pub(super) fn copy(&self) {
        let tap = self.tap();
        tap.follow(UNRECLAIMED_BYTES, || self.footprint() as u64);
        tap.raise(OBJECTS_FREED, self.published_freed() as u64);
        tap.raise(ASSISTS, self.assists());
    }

    /// Resets the counts in the child of a fork, but keeps those that its only thread, the owner of
    /// `account`, has not published yet.
    pub(super) fn keep(&self, account: &Account) {
        let freed = account.unpublished_freed.load(Ordering::Relaxed);
        self.published.freed.fetch_add(freed, Ordering::Relaxed);
        self.reset_in_child();
        account.reset();
    }

    /// Resets the counts in the child of a fork. Nothing is unreclaimed there; what was published as freed
    /// stays counted.
    pub(super) fn reset_in_child(&self) {
        let freed = self.published_freed();
        self.published.footprint.store(0, Ordering::Relaxed);
        self.published.pages.store(0, Ordering::Relaxed);
        self.served.sealed.reset(freed);
        self.served.gone.reset(freed);
        self.served.leaked.store(0, Ordering::Relaxed);
    }
}

fn at_least_zero(wrapped: usize) -> usize {
    wrapped.cast_signed().max(0).cast_unsigned()
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{
        kvfree::{
            buffer::ThreadBuffer,
            heap::Heap,
            page::{Page, footprint_of},
            request::RetireRequest,
        },
        platform::sync::{Arc, lock},
    };
    use std::ptr::NonNull;

    /// Returns a heap to which one thread retires.
    fn heap() -> (Heap, Arc<ThreadBuffer>) {
        let heap = Heap::new(1);
        let buffer = heap.join().expect("memory");
        heap.note_unparked(buffer.unpark());
        (heap, buffer)
    }

    fn with_page<R>(work: impl FnOnce(&Page) -> R) -> R {
        let page = Page::try_new().expect("memory");
        // SAFETY: made just now.
        let done = work(unsafe { page.as_ref() });
        // SAFETY: it is empty, and in no list.
        unsafe { Page::release(page) };
        done
    }

    fn footprint() -> usize {
        with_page(footprint_of)
    }

    #[test]
    fn statistics_are_exact_and_steps_are_published() {
        let (heap, buffer) = heap();
        let pages = heap.step(&buffer) / footprint();
        assert!(pages >= 4, "a step is several pages");
        with_page(|page| {
            for sealed in 1..pages {
                heap.note_sealed_by(&buffer, page);
                assert_eq!(heap.waiting().pages, sealed as u64);
                assert_eq!(heap.shared.footprint(), 0);
                assert_eq!(
                    heap.shared.footprint_with(&buffer.account),
                    sealed * footprint(),
                    "its own"
                );
            }
            heap.note_sealed_by(&buffer, page);
            assert_eq!(heap.shared.footprint(), pages * footprint());
            assert!(!heap.note_freed_by(&buffer, Tally::of(page)));
            assert_eq!(heap.waiting().pages, pages as u64 - 1);
            assert_eq!(heap.shared.footprint(), pages * footprint());
            assert_eq!(
                heap.shared.footprint_with(&buffer.account),
                (pages - 1) * footprint()
            );
        });
    }

    #[test]
    fn the_sum_of_all_steps_is_an_eighth_of_the_budget() {
        let (heap, buffer) = heap();
        for threads in [1, 3, 16, 500] {
            heap.active.store(threads, Ordering::Relaxed);
            for budget in [0, 1000, 1 << 20, 8 << 20, 1 << 30] {
                heap.set_budget(budget);
                let step = heap.step(&buffer);
                assert!(threads * step <= budget / 8, "{threads} x {step}, {budget}");
            }
        }
    }

    #[test]
    fn an_account_outlives_its_thread() {
        let (heap, buffer) = heap();
        with_page(|page| heap.note_sealed_by(&buffer, page));
        lock(&heap.buffers).clear();
        heap.close_account(&buffer.account);
        assert_eq!(heap.waiting().pages, 1);
        assert_eq!(heap.shared.footprint(), footprint());
    }

    /// The owner of a page that the service thread frees may publish later: for a while the
    /// footprint may be below 0.
    #[test]
    fn frees_by_others_may_be_published_first() {
        let (heap, buffer) = heap();
        with_page(|page| {
            heap.note_sealed_by(&buffer, page);
            heap.note_gone(Tally::of(page), page.objects());
        });
        assert_eq!((heap.waiting().pages, heap.shared.footprint()), (0, 0));
        heap.publish_rest(&buffer.account);
        with_page(|page| heap.note_sealed(page));
        assert_eq!(heap.shared.footprint(), footprint());
    }

    #[test]
    fn a_parked_thread_publishes_at_once() {
        let (heap, buffer) = heap();
        let object = RetireRequest::boxed(NonNull::<u64>::dangling());
        with_page(|page| {
            page.push(object.slot, object.bytes);
            (0..2).for_each(|_| assert!(!heap.note_sealed_by(&buffer, page)));
            heap.note_freed_by(&buffer, Tally::of(page));
            let seen = (heap.shared.footprint(), heap.shared.published_freed());
            assert_eq!(seen, (0, 0), "not a step");
            heap.note_parked(buffer.park());
            heap.note_freed_by(&buffer, Tally::of(page));
            // The two that were freed, of the two that were sealed: neither had been published.
            assert_eq!(heap.shared.published_freed(), 2);
            heap.note_sealed_by(&buffer, page);
            assert_eq!(heap.shared.footprint(), footprint_of(page));
            heap.note_freed_by(&buffer, Tally::of(page));
            assert_eq!(heap.shared.footprint(), 0);
            page.forget_objects();
        });
        with_page(|page| heap.note_sealed_by(&buffer, page));
        assert_eq!(heap.shared.footprint(), footprint());
    }

    /// A report says by how much the bytes have grown between two looks: both are of the same kind.
    #[test]
    fn a_look_without_the_lock_counts_the_same_bytes() {
        let (heap, buffer) = heap();
        let object = RetireRequest::boxed(NonNull::<u64>::dangling());
        with_page(|page| {
            page.push(object.slot, object.bytes);
            (0..3).for_each(|_| assert!(!heap.note_sealed_by(&buffer, page)));
            heap.note_freed_by(&buffer, Tally::of(page));
            heap.publish_rest(&buffer.account);
            let exact = heap.waiting_sealed();
            assert_eq!(exact.bytes, 2 * object.bytes as u64);
            let _buffers = lock(&heap.buffers);
            let seen = heap.waiting_sealed();
            assert_eq!((seen.bytes, seen.freed), (exact.bytes, exact.freed));
            page.forget_objects();
        });
    }

    #[test]
    fn publishing_frees_signals_once_the_budget_is_no_longer_used_up() {
        let (heap, buffer) = heap();
        heap.set_budget(3 * footprint());
        with_page(|page| {
            (0..3).for_each(|_| heap.note_sealed(page));
            assert!(!heap.note_sealed_by(&buffer, page), "more is no relief");
            assert!(!heap.note_gone(Tally::of(page), 0), "three are left");
            assert!(heap.note_freed_by(&buffer, Tally::of(page)));
            assert!(
                !heap.note_gone(Tally::of(page), 0),
                "it was under its budget"
            );
        });
        assert_eq!(heap.waiting().pages, 1);
    }

    #[test]
    fn leaked_objects_are_gone_and_not_freed() {
        let (heap, _) = heap();
        let object = RetireRequest::boxed(NonNull::<u64>::dangling());
        let gone = || {
            with_page(|page| {
                page.push(object.slot, object.bytes);
                heap.note_sealed(page);
                assert_eq!(heap.waiting().objects, 1);
                let gone = Tally::of(page);
                page.forget_objects();
                gone
            })
        };
        heap.note_gone(gone(), 0);
        let seen = heap.waiting();
        assert_eq!((seen.objects, seen.bytes, seen.freed), (0, 0, 0));
        heap.note_gone(gone(), 1);
        let seen = heap.waiting();
        assert_eq!((seen.objects, seen.bytes, seen.freed), (0, 0, 1));
        assert_eq!(heap.shared.published_freed(), 1);
    }

    /// For threads that wait for this, whichever thread does it.
    #[test]
    fn frees_signal_when_they_are_published() {
        let (heap, buffer) = heap();
        heap.set_budget(16 * footprint());
        with_page(|page| {
            (0..16).for_each(|_| heap.note_sealed(page));
            assert!(!heap.note_freed_by(&buffer, Tally::of(page)), "not a step");
            assert!(heap.publish_rest(&buffer.account));
            assert!(!heap.publish_rest(&buffer.account), "once");
            heap.note_sealed(page);
            assert!(!heap.note_freed_by(&buffer, Tally::of(page)));
            assert!(heap.close_account(&buffer.account));
        });
    }
}
