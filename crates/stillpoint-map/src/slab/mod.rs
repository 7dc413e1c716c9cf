//! Where a large map's entries lie: side by side, in regions of a huge page.
//!
//! A map's *arena* has *regions* of 2 MiB, a region has *runs* of 32 KiB, and a run has slots, of
//! one size. An entry never moves, and its slot is free again when the grace period after its
//! retirement has ended. What is freed with others of its page is given back to the system: so
//! entries of a map that was large, and are far apart, keep a run each.
//!
//! # Allocating
//!
//! Threads are spread over *stripes*. A stripe owns a run, and has the slots that were free when it
//! took it up; when it has none left, it takes those that were freed in the run meanwhile, then
//! another run that has enough. It is locked by an exchange that is never waited for: a thread that
//! finds two stripes locked, or no memory, gets nothing, and makes a box, as small maps do for all
//! of their entries.
//!
//! # Freeing
//!
//! Any thread pushes a slot into its run's list, by one exchange of the run's word. A push after
//! which all slots of a run are free is made under the arena's lock: so a region can go only while
//! no thread is about to touch it, and the arena, which its last region outlives by nothing, too.
//! An arena keeps some empty runs, an eighth of those in use, and gives the others' memory back at
//! once; a region without entries goes altogether.
//!
//! # Ends
//!
//! A map that ends closes its arena, which goes when the last of its retired entries is freed. In
//! the child of a fork a stripe that a vanished thread had locked stays so. If it had the arena's
//! lock, all of the arena stays as it is: its entries are read and retired as before, and their
//! memory is lost.

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
mod memory;
mod region;
mod run;
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;

use crate::backoff::Backoff;
use crossbeam_utils::CachePadded;
use region::{ALL, Owned, Pushed, Pushing, RUNS, Region};
use run::{GRAIN, Link};
use std::{alloc::Layout, iter, ptr::NonNull};
use stillpoint_platform::{
    cpu, fork, memory as fallible,
    sync::{AtomicU64, Ordering, UnsafeCell},
    thread,
};

/// Larger entries are boxes: a run would have too few.
const LARGEST: usize = 512;

/// Stripes that a thread tries.
const TRIES: usize = 2;

const MOST_STRIPES: usize = 64;

/// Requests for a run that are turned away after the system had no memory for a region, before it is
/// asked again.
const TURNED_AWAY: usize = 1024;

/// Empty runs that are kept, at least.
const KEPT: usize = 4;

/// A map that is to have so many bytes of entries gets huge pages from the beginning; others from
/// their second region on.
const HUGE_FROM: usize = 1 << 20;

/// The slots of a map.
#[derive(Debug)]
pub struct Arena {
    /// Where it is, as it was allocated: a reference would not do to free it.
    itself: NonNull<Self>,
    /// Which process holds the lock, by its generation and 1; 0 if none does.
    lock: AtomicU64,
    size: usize,
    is_huge: bool,
    list: UnsafeCell<List>,
    stripes: Box<[CachePadded<Stripe>]>,
}

// SAFETY: regions are found by all threads; what is not atomic in them, and the list, are used
// under the lock, or before and after all other threads.
unsafe impl Send for Arena {}
// SAFETY: the same.
unsafe impl Sync for Arena {}

/// All regions, under the lock.
#[derive(Debug)]
struct List {
    first: Option<NonNull<Region>>,
    /// Where to look for a run.
    hint: Option<NonNull<Region>>,
    runs: usize,
    /// Runs without entries, and those of them that have memory.
    empty: usize,
    unused: usize,
    /// Requests that are yet to be turned away.
    turned_away: usize,
    is_closed: bool,
}

/// What a request for a run has led to.
enum Request {
    Run(Owned),
    TurnedAway,
    NoRun { is_first: bool },
}

/// A run for the threads of one stripe.
#[derive(Debug)]
struct Stripe {
    locked: AtomicU64,
    owned: UnsafeCell<Option<Owned>>,
}

impl Default for Stripe {
    fn default() -> Self {
        Self {
            locked: AtomicU64::new(0),
            owned: UnsafeCell::new(None),
        }
    }
}

impl Stripe {
    /// Uses it, unless another thread does.
    #[inline]
    fn try_with<R>(&self, work: impl FnOnce(&mut Option<Owned>) -> R) -> Option<R> {
        // Acquire, pairs with the store below: what the last thread did.
        self.locked
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        // SAFETY: locked.
        let result = self.owned.with_mut(|owned| work(unsafe { &mut *owned }));
        // Release, pairs with the exchange above: what this thread did.
        self.locked.store(0, Ordering::Release);
        Some(result)
    }
}

/// The bytes of a slot for entries of this layout; `None` if they are boxes.
const fn slot_size(entry: Layout) -> Option<usize> {
    let grain = most(entry.align(), GRAIN);
    let size = most(entry.size(), size_of::<Link>()).next_multiple_of(grain);
    if size > LARGEST || entry.align() > align_of::<Region>() {
        return None;
    }
    Some(size)
}

/// `usize::max`, for constants.
const fn most(one: usize, other: usize) -> usize {
    if one > other { one } else { other }
}

/// Whether entries of this layout may lie in slabs.
pub const fn has_slots(entry: Layout) -> bool {
    slot_size(entry).is_some()
}

impl Arena {
    /// Makes one for entries of this layout, of which there will be so many. `None` without memory,
    /// or if such entries are boxes.
    pub fn new(entry: Layout, entries: usize) -> Option<NonNull<Self>> {
        let size = slot_size(entry)?;
        let count = cpu::count().next_power_of_two().min(MOST_STRIPES);
        let arena = Self {
            itself: NonNull::dangling(),
            lock: AtomicU64::new(0),
            size,
            is_huge: entries.saturating_mul(size) >= HUGE_FROM,
            list: UnsafeCell::new(List {
                first: None,
                hint: None,
                runs: 0,
                empty: 0,
                unused: 0,
                turned_away: 0,
                is_closed: false,
            }),
            stripes: fallible::try_several(count, CachePadded::<Stripe>::default)?,
        };
        let arena = NonNull::from(Box::leak(Box::new(arena)));
        // SAFETY: from a box just now; no other thread knows it.
        unsafe { (*arena.as_ptr()).itself = arena };
        Some(arena)
    }

    /// A slot, which is the caller's; `None` without memory, and where other threads are in the way.
    #[inline]
    pub fn allocate(&self) -> Option<NonNull<u8>> {
        let first = thread::token().get() as usize;
        (0..TRIES).find_map(|tried| {
            let index = first.wrapping_add(tried) & (self.stripes.len() - 1);
            self.stripes[index].try_with(|owned| self.allocate_from(owned))
        })?
    }

    #[inline]
    fn allocate_from(&self, stripe: &mut Option<Owned>) -> Option<NonNull<u8>> {
        if let Some(slot) = stripe.as_mut().and_then(Owned::pop) {
            return Some(slot);
        }
        self.allocate_slowly(stripe)
    }

    #[cold]
    fn allocate_slowly(&self, stripe: &mut Option<Owned>) -> Option<NonNull<u8>> {
        loop {
            if !stripe.as_mut().is_some_and(Owned::refill) {
                *stripe = None;
                *stripe = Some(self.claim()?);
            }
            // One that was taken up may have had too few slots.
            if let Some(slot) = stripe.as_mut().and_then(Owned::pop) {
                return Some(slot);
            }
        }
    }

    /// Takes a run up.
    fn claim(&self) -> Option<Owned> {
        let make = |is_first: bool| Region::new(self.itself, self.size, self.is_huge || !is_first);
        self.claim_or(make)
    }

    /// Takes a run up, of a new region if there is none; it gets whether that is the first.
    fn claim_or(&self, make: impl FnOnce(bool) -> Option<NonNull<Region>>) -> Option<Owned> {
        // SAFETY: the caller allocates from it, so it is not closed meanwhile.
        let is_first = match unsafe { Self::with_list(self.itself, List::request) }? {
            Request::Run(owned) => return Some(owned),
            Request::TurnedAway => return None,
            Request::NoRun { is_first } => is_first,
        };
        // The kernel makes it, and clears a page, without the lock.
        let region = make(is_first);
        let take_up = |list: &mut List| {
            if let Some(region) = region {
                list.add(region);
                return list.claim();
            }
            list.turned_away = TURNED_AWAY;
            None
        };
        // SAFETY: the same.
        unsafe { Self::with_list(self.itself, take_up) }?
    }

    /// Frees a slot.
    ///
    /// # Safety
    ///
    /// It came from [`Arena::allocate`], and is not used any more.
    #[inline]
    pub unsafe fn free(slot: NonNull<u8>) {
        let (region, run) = Region::of(slot);
        // SAFETY: it stays while one of its slots is in use.
        let pushed = unsafe { Region::push(region, run, slot, Pushing::Unlocked) };
        if pushed == Pushed::Refused {
            // SAFETY: the caller's promise.
            unsafe { Self::free_last(slot, region, run) };
        }
    }

    /// Frees what may be the last slot of a run that is in use.
    ///
    /// # Safety
    ///
    /// As for [`Arena::free`]; that is where the slot is.
    #[cold]
    unsafe fn free_last(slot: NonNull<u8>, region: NonNull<Region>, run: usize) {
        // SAFETY: the region stays until the push.
        let arena = unsafe { region.as_ref().arena };
        let push = |list: &mut List| {
            let mut gone = Gone::default();
            // SAFETY: the caller's promise; nothing goes without the lock.
            if unsafe { Region::push(region, run, slot, Pushing::Locked) } == Pushed::Last {
                list.note_empty(region, run, &mut gone);
            }
            gone
        };
        // SAFETY: the arena stays until the lock is free after the push. What is deleted is not found
        // any more.
        unsafe {
            let gone = Self::with_list(arena, push);
            Self::delete(arena, gone);
        }
    }

    /// Ends the arena: it goes when its slots are free.
    ///
    /// # Safety
    ///
    /// No thread allocates from it, or ends it again.
    pub unsafe fn close(arena: NonNull<Self>) {
        let end = |list: &mut List| {
            let mut gone = Gone::default();
            list.is_closed = true;
            // SAFETY: it goes after the lock is free, at the earliest.
            for stripe in unsafe { &*(*arena.as_ptr()).stripes } {
                // Free, but for one of a thread that a fork has removed.
                let owned = stripe.try_with(Option::take).flatten();
                if let Some((region, run)) = owned.and_then(Owned::close) {
                    list.note_empty(region, run, &mut gone);
                }
            }
            // Those that were empty before.
            let mut next = list.first;
            while let Some(region) = next {
                // SAFETY: in the list.
                let locked = unsafe { &region.as_ref().locked };
                next = locked.after.get();
                if locked.empty.get() == ALL {
                    list.remove(region, &mut gone);
                }
            }
            gone.is_arena = list.first.is_none();
            gone
        };
        // SAFETY: the arena stays until the lock is free. What is deleted is not found any more.
        unsafe {
            let gone = Self::with_list(arena, end);
            Self::delete(arena, gone);
        }
    }

    /// # Safety
    ///
    /// `gone` is of that arena.
    unsafe fn delete(arena: NonNull<Self>, gone: Option<Gone>) {
        let Some(gone) = gone else { return };
        let mut next = gone.regions;
        while let Some(region) = next {
            // SAFETY: it was taken out of the list, all its slots being free.
            unsafe {
                next = region.as_ref().locked.after.get();
                Region::delete(region);
            }
            #[cfg(test)]
            DELETED.set((DELETED.get().0 + 1, DELETED.get().1));
        }
        if gone.is_arena {
            // SAFETY: from a box. It is closed, and no slot leads to it any more.
            drop(unsafe { Box::from_raw(arena.as_ptr()) });
            #[cfg(test)]
            DELETED.set((DELETED.get().0, DELETED.get().1 + 1));
        }
    }

    /// Does `work` under the lock. `None` if a thread had it that a fork has removed.
    ///
    /// # Safety
    ///
    /// The arena stays until the lock is free again. `work` holds no reference to it when it returns,
    /// and has none among what it was made of.
    unsafe fn with_list<R>(arena: NonNull<Self>, work: impl FnOnce(&mut List) -> R) -> Option<R> {
        let me = fork::process().generation() + 1;
        // No reference to all of the arena lasts until the lock is free: it would say that the arena
        // stays for longer. One to an atomic says no such thing.
        // SAFETY: the caller's promise.
        let lock = unsafe { &(*arena.as_ptr()).lock };
        let mut backoff = Backoff::new();
        loop {
            // Acquire, pairs with the store below: what the last thread did.
            match lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(holder) if holder == me => backoff.wait(),
                Err(_) => return None,
            }
        }
        // SAFETY: locked.
        let result = unsafe { (*arena.as_ptr()).list.with_mut(|list| work(&mut *list)) };
        // Release, pairs with the exchange above: what this thread did.
        lock.store(0, Ordering::Release);
        Some(result)
    }
}

#[cfg(test)]
std::thread_local! {
    /// The regions and the arenas that this thread, of the model all threads, has deleted.
    static DELETED: std::cell::Cell<(usize, usize)> = const { std::cell::Cell::new((0, 0)) };
}

/// What is to be deleted without the lock.
#[derive(Default)]
struct Gone {
    /// A list.
    regions: Option<NonNull<Region>>,
    is_arena: bool,
}

impl List {
    fn regions(&self) -> impl Iterator<Item = NonNull<Region>> + use<> {
        // SAFETY: regions stay while they are in the list.
        iter::successors(self.first, |region| unsafe {
            region.as_ref().locked.after.get()
        })
    }

    /// All regions, from the hint on.
    fn around(&self) -> impl Iterator<Item = NonNull<Region>> + use<> {
        // SAFETY: as above.
        let from_hint = iter::successors(self.hint, |region| unsafe {
            region.as_ref().locked.after.get()
        });
        let hint = self.hint;
        from_hint.chain(
            self.regions()
                .take_while(move |region| Some(*region) != hint),
        )
    }

    fn add(&mut self, region: NonNull<Region>) {
        // SAFETY: it is there, and so are those in the list.
        unsafe {
            region.as_ref().locked.after.set(self.first);
            if let Some(first) = self.first {
                first.as_ref().locked.before.set(Some(region));
            }
        }
        self.first = Some(region);
        self.hint = Some(region);
        self.runs += RUNS;
        self.empty += RUNS;
    }

    fn request(&mut self) -> Request {
        if self.turned_away > 0 {
            self.turned_away -= 1;
            return Request::TurnedAway;
        }
        match self.claim() {
            Some(owned) => Request::Run(owned),
            None => Request::NoRun {
                is_first: self.first.is_none(),
            },
        }
    }

    /// Takes a run up, if there is one.
    fn claim(&mut self) -> Option<Owned> {
        for region in self.around() {
            // SAFETY: in the list.
            let there = unsafe { region.as_ref() };
            let available = there.available();
            for run in (0..RUNS).filter(|run| available & 1 << run != 0) {
                let (empty, released) = (there.locked.empty.get(), there.locked.released.get());
                // SAFETY: in the list.
                let Some(owned) = (unsafe { Region::claim(region, run) }) else {
                    continue;
                };
                self.empty -= usize::from(empty & 1 << run != 0);
                self.unused -= usize::from(empty & !released & 1 << run != 0);
                self.hint = Some(region);
                return Some(owned);
            }
        }
        None
    }

    /// The slots of a run are free.
    fn note_empty(&mut self, region: NonNull<Region>, run: usize, gone: &mut Gone) {
        // SAFETY: in the list.
        let there = unsafe { region.as_ref() };
        there.locked.empty.set(there.locked.empty.get() | 1 << run);
        there.make_available(run);
        self.empty += 1;
        self.unused += 1;
        if self.is_closed {
            if there.locked.empty.get() == ALL {
                self.remove(region, gone);
                gone.is_arena = self.first.is_none();
            }
            return;
        }
        let kept = KEPT.max((self.runs - self.empty) / 8);
        if self.unused > kept {
            self.release(region, run, gone);
        }
        // What was to be kept for more entries than there are now.
        if self.unused > kept
            && let Some((region, run)) = self.find_unused()
        {
            self.release(region, run, gone);
        }
    }

    fn find_unused(&mut self) -> Option<(NonNull<Region>, usize)> {
        let found = self.around().find_map(|region| {
            // SAFETY: in the list.
            let locked = unsafe { &region.as_ref().locked };
            let unused = locked.empty.get() & !locked.released.get();
            (unused != 0).then_some((region, unused.trailing_zeros() as usize))
        });
        self.hint = found.map_or(self.hint, |(region, _)| Some(region));
        found
    }

    /// Gives back an empty run, or its region if that is empty.
    fn release(&mut self, region: NonNull<Region>, run: usize, gone: &mut Gone) {
        // SAFETY: in the list.
        let there = unsafe { region.as_ref() };
        if there.locked.empty.get() == ALL {
            self.remove(region, gone);
        } else {
            there.release(run);
            self.unused -= 1;
        }
    }

    /// Takes an empty region out.
    fn remove(&mut self, region: NonNull<Region>, gone: &mut Gone) {
        // SAFETY: in the list, as are its neighbours.
        unsafe {
            let locked = &region.as_ref().locked;
            let (before, after) = (locked.before.get(), locked.after.get());
            match before {
                Some(before) => before.as_ref().locked.after.set(after),
                None => self.first = after,
            }
            if let Some(after) = after {
                after.as_ref().locked.before.set(before);
            }
            if self.hint == Some(region) {
                self.hint = after.or(self.first);
            }
            let unused = locked.empty.get() & !locked.released.get();
            self.unused -= unused.count_ones() as usize;
            locked.after.set(gone.regions);
        }
        self.runs -= RUNS;
        self.empty -= RUNS;
        gone.regions = Some(region);
    }
}
