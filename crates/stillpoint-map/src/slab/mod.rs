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
//! finds two stripes locked, or no run while another thread makes a region, takes a slot of any
//! stripe's run. If there is none it makes a box, as small maps do for all of their entries.
//!
//! # Freeing
//!
//! Any thread pushes a slot into its run's list, by one exchange of the run's word. A push after
//! which all slots of a run are free is made under the arena's lock: so a region can go only while
//! no thread is about to touch it, and the arena, which its last region outlives by nothing, too.
//! If a stripe has that run, it gives it up first. An arena keeps some empty runs, an eighth of those
//! in use, and gives the others' memory back at once; a region without entries goes altogether. No
//! system call is made under the lock: a run whose memory is being given back is neither empty nor
//! taken up, and so holds its region.
//!
//! # Ends
//!
//! A map that ends closes its arena, which goes when the last of its retired entries is freed. In
//! the child of a fork a stripe that a vanished thread had locked stays so, and a run whose memory it
//! was giving back, or was to tell the arena of, is lost with its region. If it had the arena's lock,
//! all of the arena stays as it is: its entries are read and retired as before, and their memory is
//! lost.

mod list;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
pub mod memory;
mod region;
mod run;
mod stripe;
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;

use crate::backoff::Backoff;
use crossbeam_utils::CachePadded;
use list::{Gone, List, Request};
use region::{Owned, Pushed, Pushing, RUN, RUNS, Region};
use run::{GRAIN, Link};
use std::{
    alloc::Layout,
    mem::ManuallyDrop,
    ptr::{self, NonNull},
};
use stillpoint_platform::{
    cpu, fork, memory as fallible,
    race::Owner,
    sync::{AtomicPtr, AtomicU64, Ordering, UnsafeCell},
    thread,
};
use stripe::Stripe;

/// Larger entries are boxes: a run would have too few.
const LARGEST: usize = 512;

/// A tree's nodes may be larger: what is lost of a run costs less than to look their pages up.
const LARGEST_NODE: usize = 1024;

/// Stripes that a thread tries.
const TRIES: usize = 2;

const MOST_STRIPES: usize = 64;

/// Requests for a run that are turned away after the system had no memory for a region, before it is
/// asked again.
const TURNED_AWAY: usize = 1024;

/// Runs whose memory is given back by one free, at most: more than it can make empty, so that what
/// is kept for many entries goes with them.
const RELEASED_AT_ONCE: usize = 2;

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
    /// Regions that threads have found to have runs to take up, and that the list has yet to link.
    queue: AtomicPtr<Region>,
    stripes: Box<[CachePadded<Stripe>]>,
}

// SAFETY: regions are found by all threads; what is not atomic in them, and the list, are used
// under the lock, or before and after all other threads.
unsafe impl Send for Arena {}
// SAFETY: the same.
unsafe impl Sync for Arena {}

/// The bytes of a slot for entries of this layout; `None` if they are boxes.
const fn slot_size(entry: Layout, largest: usize) -> Option<usize> {
    let grain = most(entry.align(), GRAIN);
    let size = most(entry.size(), size_of::<Link>()).next_multiple_of(grain);
    // The first run of a region has at least one.
    let fits = size <= largest && size <= RUN - size_of::<Region>();
    if !fits || entry.align() > align_of::<Region>() {
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
    slot_size(entry, LARGEST).is_some()
}

impl Arena {
    /// Makes one for entries of this layout, of which there will be so many. `None` without memory,
    /// or if such entries are boxes.
    pub fn for_entries(entry: Layout, entries: usize) -> Option<OwnedArena> {
        Self::of_slots(slot_size(entry, LARGEST)?, entries)
    }

    /// Makes one for the nodes of a tree, which may be larger than entries.
    pub fn for_nodes(node: Layout, nodes: usize) -> Option<OwnedArena> {
        Self::of_slots(slot_size(node, LARGEST_NODE)?, nodes)
    }

    fn of_slots(size: usize, entries: usize) -> Option<OwnedArena> {
        let count = cpu::count().next_power_of_two().min(MOST_STRIPES);
        let stripes = fallible::try_several(count, CachePadded::<Stripe>::default)?;
        // SAFETY: not of size 0.
        let place = unsafe { std::alloc::alloc(Layout::new::<Self>()) };
        let itself = NonNull::new(place)?.cast::<Self>();
        let arena = Self {
            itself,
            lock: AtomicU64::new(0),
            size,
            is_huge: entries.saturating_mul(size) >= HUGE_FROM,
            // SAFETY: its only one, which `with_list` lends.
            list: UnsafeCell::new(unsafe { List::of(itself) }),
            queue: AtomicPtr::new(ptr::null_mut()),
            stripes,
        };
        // SAFETY: allocated just now, as a box of one is.
        unsafe { itself.write(arena) };
        Some(OwnedArena(itself))
    }

    /// As [`allocate`](Self::allocate), for a `T`; also `None` if the slots are for another layout.
    #[inline(always)]
    pub fn allocate_for<T>(&self) -> Option<NonNull<T>> {
        // Slots whose size is this one are aligned for it, too.
        let is_it = const { slot_size(Layout::new::<T>(), LARGEST_NODE) } == Some(self.size);
        Some(is_it.then(|| self.allocate())??.cast())
    }

    /// A slot, which is the caller's; `None` without memory, and where other threads are in the way.
    #[inline(always)]
    pub fn allocate(&self) -> Option<NonNull<u8>> {
        let first = thread::token().get() as usize;
        let stripe = &self.stripes[first & (self.stripes.len() - 1)];
        let slot = stripe.try_with(|owned| owned.as_mut().and_then(Owned::pop));
        slot.flatten()
            .or_else(|| self.allocate_after_looking(first))
    }

    /// A slot of one of the stripes from this number on.
    #[cold]
    fn allocate_after_looking(&self, first: usize) -> Option<NonNull<u8>> {
        let allocated = (0..TRIES).find_map(|tried| {
            let index = first.wrapping_add(tried) & (self.stripes.len() - 1);
            self.stripes[index].try_with(|owned| self.allocate_from(owned, index))
        });
        allocated.flatten().or_else(|| self.take_from_any())
    }

    fn allocate_from(&self, owned: &mut Option<Owned>, stripe: usize) -> Option<NonNull<u8>> {
        loop {
            // One that was taken up may have had too few slots.
            if let Some(slot) = Owned::pop_or_give_up(owned) {
                return Some(slot);
            }
            *owned = Some(self.claim(stripe)?);
        }
    }

    /// A slot of any stripe's run.
    #[cold]
    fn take_from_any(&self) -> Option<NonNull<u8>> {
        let take = |stripe: &CachePadded<Stripe>| stripe.try_with(Owned::pop_or_give_up)?;
        self.stripes.iter().find_map(take)
    }

    /// Takes a run up for a stripe.
    fn claim(&self, stripe: usize) -> Option<Owned> {
        let make = |is_first: bool| Region::new(self.itself, self.size, self.is_huge || !is_first);
        self.claim_or(stripe, make)
    }

    /// Takes a run up, of a new region if there is none; `make` gets whether that is the first.
    fn claim_or(
        &self,
        stripe: usize,
        make: impl FnOnce(bool) -> Option<NonNull<Region>>,
    ) -> Option<Owned> {
        let me = fork::process().generation() + 1;
        // In models it is 0.
        #[cfg_attr(stillpoint_loom, allow(clippy::unnecessary_min_or_max))]
        let low = self.stripes.len().min(RUNS / 8);
        // SAFETY: the caller allocates from it, so it is not closed meanwhile.
        let request = unsafe { Self::with_list(self.itself, |list| list.request(stripe, me, low)) };
        let (owned, is_first) = match request? {
            Request::Run(owned, false) => return Some(owned),
            Request::TurnedAway => return None,
            Request::Run(owned, true) => (Some(owned), false),
            Request::NoRun { is_first } => (None, is_first),
        };
        // The kernel makes it, and clears a page, without the lock.
        let region = make(is_first);
        let take_up = |list: &mut List| {
            list.add(region, TURNED_AWAY);
            owned.or_else(|| list.claim(stripe))
        };
        // SAFETY: the same.
        unsafe { Self::with_list(self.itself, take_up) }?
    }

    /// Closes the arena: it goes when its slots are free.
    ///
    /// # Safety
    ///
    /// No thread allocates from it, or closes it again.
    unsafe fn close(arena: NonNull<Self>) {
        let end = |list: &mut List| {
            // SAFETY: it goes after the lock is free, at the earliest.
            for stripe in unsafe { &*(*arena.as_ptr()).stripes } {
                // Free, but for one of a thread that a fork has removed.
                let owned = stripe.try_with(Option::take).flatten();
                // SAFETY: locked.
                if let Some(empty) = owned.and_then(|owned| unsafe { owned.close() }) {
                    list.add_empty(empty, false);
                }
            }
            list.close()
        };
        // SAFETY: the arena stays until the lock is free.
        unsafe { Self::with_list(arena, end) }.and_then(Gone::delete);
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
            // Acquire, pairs with `with_list`: what the last thread did.
            match lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(holder) if holder == me => backoff.wait(),
                Err(_) => return None,
            }
        }
        #[cfg(all(test, not(stillpoint_loom)))]
        IS_LOCKED.set(true);
        // SAFETY: locked.
        let result = unsafe { (*arena.as_ptr()).list.with_mut(|list| work(&mut *list)) };
        #[cfg(all(test, not(stillpoint_loom)))]
        IS_LOCKED.set(false);
        // Release, pairs with `with_list`: what this thread did.
        lock.store(0, Ordering::Release);
        Some(result)
    }
}

/// An arena, which is closed when this is dropped.
#[derive(Debug)]
pub struct OwnedArena(NonNull<Arena>);

// SAFETY: as an arena is.
unsafe impl Send for OwnedArena {}
// SAFETY: the same.
unsafe impl Sync for OwnedArena {}

// SAFETY: an arena stays until it is closed.
unsafe impl Owner for OwnedArena {
    type Target = Arena;

    fn into_raw(self) -> NonNull<Arena> {
        ManuallyDrop::new(self).0
    }

    unsafe fn from_raw(arena: NonNull<Arena>) -> Self {
        Self(arena)
    }
}

impl Drop for OwnedArena {
    fn drop(&mut self) {
        // SAFETY: threads allocate by references to it, of which there are none any more.
        unsafe { Arena::close(self.0) };
    }
}

/// A slot in use, which is the holder's.
#[derive(Debug)]
pub struct UsedSlot(NonNull<u8>);

impl UsedSlot {
    /// # Safety
    ///
    /// It came from [`Arena::allocate`], and nothing else uses it any more.
    #[inline]
    pub unsafe fn of(slot: NonNull<u8>) -> Self {
        Self(slot)
    }

    /// Frees it.
    #[inline]
    pub fn free(self) {
        // The region and the arena stay while one of their slots is in use.
        if let Pushed::Refused(slot) = self.push(Pushing::Unlocked) {
            slot.free_last();
        }
    }

    /// Frees what may be the last slot of a run that is in use.
    #[cold]
    fn free_last(self) {
        let (region, _) = Region::of(self.0);
        // SAFETY: the region stays until the push.
        let arena = unsafe { region.as_ref().arena };
        let push = |list: &mut List| {
            let mut slot = self;
            loop {
                let pushing = slot.disown(list);
                match slot.push(pushing) {
                    Pushed::Last(empty) => break list.note_empty(empty),
                    Pushed::Done => break Gone::default(),
                    Pushed::Refused(again) => slot = again,
                }
            }
        };
        // SAFETY: nothing goes without the lock, so the arena stays until that is free after the push.
        let mut gone = unsafe { Arena::with_list(arena, push) };
        for released in 1..=RELEASED_AT_ONCE {
            let Some(empty) = gone.and_then(Gone::delete) else {
                return;
            };
            let empty = empty.release();
            let continues = released < RELEASED_AT_ONCE;
            let note = |list: &mut List| list.note_released(empty, continues);
            // SAFETY: the run, of which the list does not know, holds its region, and so the arena.
            gone = unsafe { Arena::with_list(arena, note) };
        }
        gone.and_then(Gone::delete);
    }

    /// Takes the run from its stripe if no other slot of it is in use, which the arena's lock lets it know.
    /// Returns how to push this slot.
    fn disown<'l>(&self, list: &'l List) -> Pushing<'l> {
        let (region, run) = Region::of(self.0);
        // SAFETY: both stay while this is in use.
        let (word, stripes) = unsafe {
            let region = region.as_ref();
            (region.word(run), &(*region.arena.as_ptr()).stripes)
        };
        if !word.is_owned() {
            return Pushing::Locked(list);
        }
        let asked = stripes[word.stripe()].try_with(|owned| {
            let given_up = owned.take_if(|owned| owned.has_one_in_use(region, run));
            // SAFETY: locked, as the list says, and this slot is in use.
            given_up.map(|owned| unsafe { owned.close() })
        });
        match asked {
            Some(_) => Pushing::Locked(list),
            // The thread that uses the stripe takes a slot of the run, or gives it up unless there is
            // the one that is pushed now. If it has taken one, and that is free again, the word has
            // changed; but it may have come back to this value, if as many slots were taken and freed
            // since, and the same one last. Then the stripe keeps a run of free slots until it is
            // used again, or the arena is closed. Or a fork has removed that thread.
            None => Pushing::Unchanged(list, word),
        }
    }
}

/// A run all of whose slots are free, but which is not in the list's sets, so the region stays.
#[derive(Debug)]
pub struct Empty {
    region: NonNull<Region>,
    run: usize,
}

/// One whose memory was given back.
#[derive(Debug)]
pub struct Released(Empty);

#[cfg(test)]
std::thread_local! {
    /// The regions and the arenas that this thread, of the model all threads, has deleted.
    static DELETED: std::cell::Cell<(usize, usize)> = const { std::cell::Cell::new((0, 0)) };
    /// Whether it has an arena's lock, and so is to make no system call.
    static IS_LOCKED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// The steps of this thread's requests for runs.
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
