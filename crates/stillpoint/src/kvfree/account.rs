//! How much has been sealed and freed: by each thread, and added up when it is asked for.
//!
//! A thread that retires counts for itself, in its buffer, so that no page costs a write to a line
//! that all threads write. Its sums only grow: what waits is what has been sealed less what has been
//! freed, by all together. Those who add up read what has been freed before what has been sealed, of
//! each thread at one moment, and of the service thread, which frees what others have sealed, the
//! one first and the other last: an object whose free they have seen was sealed before, so what
//! waits is never too little.
//!
//! The budget needs a number that all see. Each thread tells it by how much what waits has changed
//! in steps of a quarter of its part of the budget, so that it is exact to the number of threads
//! times that: an eighth of the budget.

use super::{
    heap::Heap,
    page::{Page, footprint_of},
};
use crate::platform::sync::{AtomicU64, AtomicUsize, Ordering};
use crossbeam_utils::CachePadded;

/// Pages, the objects in them, and the bytes of both. Differences wrap.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) objects: usize,
    pub(super) pages: usize,
    pub(super) footprint: usize,
}

impl Tally {
    pub(super) fn of(page: &Page) -> Self {
        Self {
            objects: page.objects(),
            pages: 1,
            footprint: footprint_of(page),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            objects: self.objects.wrapping_add(other.objects),
            pages: self.pages.wrapping_add(other.pages),
            footprint: self.footprint.wrapping_add(other.footprint),
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            objects: self.objects.wrapping_sub(other.objects),
            pages: self.pages.wrapping_sub(other.pages),
            footprint: self.footprint.wrapping_sub(other.footprint),
        }
    }
}

#[derive(Debug)]
struct Sums {
    objects: AtomicUsize,
    pages: AtomicUsize,
    footprint: AtomicUsize,
}

impl Sums {
    fn new() -> Self {
        Self {
            objects: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            footprint: AtomicUsize::new(0),
        }
    }

    fn fields(&self) -> [&AtomicUsize; 3] {
        [&self.objects, &self.pages, &self.footprint]
    }

    /// For the only writer: no read-modify-write.
    fn add(&self, tally: Tally) {
        let changes = [tally.objects, tally.pages, tally.footprint];
        for (sum, change) in self.fields().into_iter().zip(changes) {
            let before = sum.load(Ordering::Relaxed);
            // Release, pairs with `load`: one who finds objects freed sees what their destructors
            // did, and that they had been sealed.
            sum.store(before.wrapping_add(change), Ordering::Release);
        }
    }

    /// The same where there are several.
    fn add_beside_others(&self, tally: Tally) {
        let changes = [tally.objects, tally.pages, tally.footprint];
        for (sum, change) in self.fields().into_iter().zip(changes) {
            // Release, pairs with `load`: as in `add`.
            sum.fetch_add(change, Ordering::Release);
        }
    }

    fn load(&self) -> Tally {
        // Acquire, pairs with `add` and `add_beside_others`: what is counted as freed has been
        // freed, destructors and all.
        let [objects, pages, footprint] = self.fields().map(|sum| sum.load(Ordering::Acquire));
        Tally {
            objects,
            pages,
            footprint,
        }
    }

    fn reset(&self, objects: usize) {
        self.objects.store(objects, Ordering::Relaxed);
        self.pages.store(0, Ordering::Relaxed);
        self.footprint.store(0, Ordering::Relaxed);
    }
}

/// What one thread has sealed, and what it has freed. Written by the owner of the buffer under the
/// lock of its queue.
#[derive(Debug)]
pub(super) struct Account {
    sealed: Sums,
    freed: Sums,
    assists: AtomicU64,
    /// By how much [`Told::footprint`] does not know of what it has sealed and freed; wraps. Also
    /// written by the service thread, under the same lock.
    untold: AtomicUsize,
    /// The same of [`Told::freed`].
    untold_freed: AtomicUsize,
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            sealed: Sums::new(),
            freed: Sums::new(),
            assists: AtomicU64::new(0),
            untold: AtomicUsize::new(0),
            untold_freed: AtomicUsize::new(0),
        }
    }

    /// What has been freed, and then what has been sealed.
    pub(super) fn tally(&self) -> (Tally, Tally) {
        let freed = self.freed.load();
        (freed, self.sealed.load())
    }

    pub(super) fn assists(&self) -> u64 {
        self.assists.load(Ordering::Relaxed)
    }

    /// Owner only.
    pub(super) fn note_assist(&self) {
        self.assists.store(self.assists() + 1, Ordering::Relaxed);
    }

    /// As new. For the owner, or what becomes of it in the child of a fork.
    pub(super) fn reset(&self) {
        self.sealed.reset(0);
        self.freed.reset(0);
        self.assists.store(0, Ordering::Relaxed);
        self.untold.store(0, Ordering::Relaxed);
        self.untold_freed.store(0, Ordering::Relaxed);
    }
}

/// What all threads are told.
#[derive(Debug)]
struct Told {
    /// What waits in sealed pages, these included; wraps below 0 while threads have not told of
    /// what others have freed.
    footprint: AtomicUsize,
    /// Objects freed: for the child of a fork, which cannot look at other threads' accounts.
    freed: AtomicUsize,
}

/// Of a heap: what its threads have told, and what those have done that have no account of their
/// own here, or no more: the service thread, threads that have ended.
#[derive(Debug)]
pub(super) struct Shared {
    told: CachePadded<Told>,
    sealed: Sums,
    freed: Sums,
}

/// A page that has been freed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Freed {
    pub(super) tally: Tally,
    pub(super) is_very_heavy: bool,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            told: CachePadded::new(Told {
                footprint: AtomicUsize::new(0),
                freed: AtomicUsize::new(0),
            }),
            sealed: Sums::new(),
            freed: Sums::new(),
        }
    }

    pub(super) fn sealed(&self) -> Tally {
        self.sealed.load()
    }

    pub(super) fn freed(&self) -> Tally {
        self.freed.load()
    }

    /// What waits in sealed pages, as far as it has been told.
    pub(super) fn footprint(&self) -> usize {
        let told = self.told.footprint.load(Ordering::Relaxed);
        told.cast_signed().max(0).cast_unsigned()
    }

    /// Objects that have been freed, as far as it has been told.
    pub(super) fn told_freed(&self) -> usize {
        self.told.freed.load(Ordering::Relaxed)
    }

    /// Returns what was told before.
    fn tell(&self, change: usize, freed: usize) -> usize {
        if freed > 0 {
            self.told.freed.fetch_add(freed, Ordering::Relaxed);
        }
        self.told.footprint.fetch_add(change, Ordering::Relaxed)
    }

    /// In the child of a fork: nothing waits, and what has been freed stays so, as far as it was
    /// told.
    pub(super) fn reset_in_child(&self) {
        let freed = self.told.freed.load(Ordering::Relaxed);
        self.told.footprint.store(0, Ordering::Relaxed);
        self.sealed.reset(freed);
        self.freed.reset(freed);
    }
}

impl Heap {
    /// A page of the owner's has been sealed. Under the lock of its queue. Returns whether waiters
    /// are to be signalled: what is told may be of more that was freed before.
    pub(super) fn note_sealed_by(&self, account: &Account, page: &Page) -> bool {
        let tally = Tally::of(page);
        account.sealed.add(tally);
        let told = self.note_change(account, tally.footprint, 0);
        self.note_weight(page, tally);
        told.is_some_and(|told| self.ends_excess(told, false))
    }

    /// The same by one without an account: the service thread, or a thread at its end.
    pub(super) fn note_sealed(&self, page: &Page) {
        let tally = Tally::of(page);
        self.shared.sealed.add_beside_others(tally);
        self.shared.tell(tally.footprint, 0);
        self.note_weight(page, tally);
    }

    /// The page remembers it, as the budget may be another when it is freed.
    fn note_weight(&self, page: &Page, tally: Tally) {
        page.set_very_heavy(self.is_very_heavy(page.bytes()));
        if page.is_very_heavy() {
            self.very_heavy.add(tally.footprint);
        }
    }

    /// The owner has freed a page. Under the lock of its queue. Returns whether that may have
    /// brought the domain back under its budget, also as those see it for whom the very heavy pages
    /// count for less.
    pub(super) fn note_freed_by(&self, account: &Account, freed: Freed) -> bool {
        let Freed {
            tally,
            is_very_heavy,
        } = freed;
        account.freed.add(tally);
        let told = self.note_change(account, tally.footprint.wrapping_neg(), tally.objects);
        self.note_no_weight(told, tally, is_very_heavy)
    }

    /// The same by one without an account.
    pub(super) fn note_freed(&self, freed: Freed) -> bool {
        let Freed {
            tally,
            is_very_heavy,
        } = freed;
        self.shared.freed.add_beside_others(tally);
        let change = tally.footprint.wrapping_neg();
        let before = self.shared.tell(change, tally.objects);
        self.note_no_weight(Some((before, change)), tally, is_very_heavy)
    }

    /// The opposite of `note_weight`, with what was told. Returns whether that is a relief.
    fn note_no_weight(
        &self,
        told: Option<(usize, usize)>,
        tally: Tally,
        is_very_heavy: bool,
    ) -> bool {
        let is_any_very_heavy = is_very_heavy || self.very_heavy.load().0 > 0;
        if is_very_heavy {
            self.very_heavy.remove(tally.footprint);
        }
        told.is_some_and(|told| self.ends_excess(told, is_any_very_heavy))
    }

    /// Returns whether the domain was over its budget before this was told, and may not be now.
    fn ends_excess(&self, (before, change): (usize, usize), is_any_very_heavy: bool) -> bool {
        let limit = isize::try_from(self.limit()).unwrap_or(isize::MAX);
        let after = before.wrapping_add(change).cast_signed();
        before.cast_signed() >= limit && (is_any_very_heavy || after < limit)
    }

    /// What waits has changed by so much, with so many objects freed. Tells of it once that makes a
    /// step: returns then what was told before, and by how much that has changed.
    fn note_change(
        &self,
        account: &Account,
        change: usize,
        freed: usize,
    ) -> Option<(usize, usize)> {
        let add = |sum: &AtomicUsize, change| {
            let changed = sum.load(Ordering::Relaxed).wrapping_add(change);
            sum.store(changed, Ordering::Relaxed);
            changed
        };
        add(&account.untold_freed, freed);
        let untold = add(&account.untold, change);
        (untold.cast_signed().unsigned_abs() >= self.step()).then(|| self.tell_all(account))
    }

    /// Tells of all that `account` has not. Under the lock of its queue. Returns whether that may
    /// have brought the domain back under its budget.
    pub(super) fn tell_rest(&self, account: &Account) -> bool {
        let told = self.tell_all(account);
        self.ends_excess(told, self.very_heavy.load().0 > 0)
    }

    /// The same. Returns what was told before, and by how much that has changed.
    fn tell_all(&self, account: &Account) -> (usize, usize) {
        let change = account.untold.load(Ordering::Relaxed);
        let freed = account.untold_freed.load(Ordering::Relaxed);
        if (change, freed) == (0, 0) {
            return (0, 0);
        }
        account.untold.store(0, Ordering::Relaxed);
        account.untold_freed.store(0, Ordering::Relaxed);
        (self.shared.tell(change, freed), change)
    }

    /// Takes over the account of a thread that ends. Under the lock of the threads' list, from
    /// which it has just been taken. Returns the same as `tell_rest`.
    pub(super) fn close_account(&self, account: &Account) -> bool {
        let is_relief = self.tell_rest(account);
        let (freed, sealed) = account.tally();
        self.shared.sealed.add_beside_others(sealed);
        self.shared.freed.add_beside_others(freed);
        self.assists.fetch_add(account.assists(), Ordering::Relaxed);
        account.reset();
        is_relief
    }

    /// In the child of a fork, after the reset: what its only thread had not told before.
    pub(super) fn keep_counts(&self, account: &Account) {
        let freed = account.untold_freed.load(Ordering::Relaxed);
        self.shared.told.freed.fetch_add(freed, Ordering::Relaxed);
        self.shared.reset_in_child();
        self.assists.fetch_add(account.assists(), Ordering::Relaxed);
        account.reset();
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{
        kvfree::buffer::ThreadBuffer,
        platform::sync::{Arc, lock},
    };

    /// A heap of which one thread retires, and pages of nothing.
    fn heap() -> (Heap, Arc<ThreadBuffer>) {
        let heap = Heap::new(1);
        let buffer = heap.join().expect("memory");
        heap.note_unparked(buffer.unpark());
        (heap, buffer)
    }

    fn with_page<R>(work: impl FnOnce(&Page) -> R) -> R {
        let page = Page::try_new().expect("memory");
        // SAFETY: a page of our own.
        let done = work(unsafe { page.as_ref() });
        // SAFETY: it is empty, and in no list.
        unsafe { Page::release(page) };
        done
    }

    #[test]
    fn what_waits_is_exact_and_told_in_steps() {
        let (heap, buffer) = heap();
        let pages = heap.step() / footprint();
        assert!(pages > 4, "a step is several pages");
        with_page(|page| {
            for sealed in 1..pages {
                heap.note_sealed_by(&buffer.account, page);
                assert_eq!(heap.waiting().pages, sealed as u64);
                assert_eq!(heap.shared.footprint(), 0);
            }
            heap.note_sealed_by(&buffer.account, page);
            assert_eq!(heap.shared.footprint(), pages * footprint());
            let freed = Freed {
                tally: Tally::of(page),
                is_very_heavy: false,
            };
            assert!(!heap.note_freed_by(&buffer.account, freed));
            assert_eq!(heap.waiting().pages, pages as u64 - 1);
            assert_eq!(heap.shared.footprint(), pages * footprint());
        });
    }

    #[test]
    fn a_thread_that_ends_leaves_its_account() {
        let (heap, buffer) = heap();
        with_page(|page| heap.note_sealed_by(&buffer.account, page));
        buffer.account.note_assist();
        lock(&heap.buffers).clear();
        heap.close_account(&buffer.account);
        assert_eq!(heap.waiting().pages, 1);
        assert_eq!(heap.shared.footprint(), footprint());
        assert_eq!(heap.counts().assists, 1);
    }

    /// A page that the service thread frees was told by its owner, or will be: the sum may be below
    /// 0 for a while.
    #[test]
    fn what_others_free_may_be_told_first() {
        let (heap, buffer) = heap();
        with_page(|page| {
            heap.note_sealed_by(&buffer.account, page);
            heap.note_freed(Freed {
                tally: Tally::of(page),
                is_very_heavy: false,
            });
        });
        assert_eq!((heap.waiting().pages, heap.shared.footprint()), (0, 0));
        heap.tell_rest(&buffer.account);
        with_page(|page| heap.note_sealed(page));
        assert_eq!(heap.shared.footprint(), footprint());
    }

    fn footprint() -> usize {
        with_page(footprint_of)
    }
}
