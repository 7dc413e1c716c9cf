//! All regions of an arena: which have runs to take up, and which have memory to give back. Under
//! the arena's lock; each step takes a time that does not depend on their number, but that of a map's
//! end, which looks at all that have runs to take up.

#[cfg(test)]
use super::DELETED;
use super::{
    Arena, Empty, Released,
    region::{ALL, Owned, RUNS, Region, Runs},
};
use std::ptr::{self, NonNull};
use stillpoint_platform::sync::Ordering;

/// Empty runs that are kept, at least.
pub const KEPT: usize = 4;

/// The chain of regions that have runs to take up.
const READY: usize = 0;
/// That of regions that have empty runs with memory.
const UNUSED: usize = 1;

/// All regions.
#[derive(Debug)]
pub struct List {
    /// Whose list this is.
    arena: NonNull<Arena>,
    /// Where its chains begin.
    first: [Option<NonNull<Region>>; 2],
    runs: usize,
    /// Runs without entries, but for those whose memory is being given back; and those of them that
    /// have memory.
    empty: usize,
    unused: usize,
    /// Requests that are yet to be turned away.
    turned_away: usize,
    /// Which process makes a region, by its generation and 1; 0 if none does.
    growing: u64,
    is_closed: bool,
}

/// What a request for a run has led to.
pub enum Request {
    /// A run; and whether the caller is to make a region all the same, as few runs are left.
    Run(Owned, bool),
    /// There is none for now.
    TurnedAway,
    /// There is none: the caller makes a region.
    NoRun { is_first: bool },
}

/// What is to be done without the lock.
#[derive(Default)]
pub struct Gone {
    /// A chain of regions to delete, all of whose slots are free.
    regions: Option<NonNull<Region>>,
    /// The arena, if it goes, too: it is closed, and no slot leads to it any more.
    arena: Option<NonNull<Arena>>,
    /// A run whose memory is to be given back.
    run: Option<Empty>,
}

impl List {
    /// # Safety
    ///
    /// It is the one list of its arena, and is lent under the arena's lock alone.
    pub const unsafe fn of(arena: NonNull<Arena>) -> Self {
        Self {
            arena,
            first: [None; 2],
            runs: 0,
            empty: 0,
            unused: 0,
            turned_away: 0,
            growing: 0,
            is_closed: false,
        }
    }

    pub fn is_of(&self, arena: NonNull<Arena>) -> bool {
        self.arena == arena
    }

    /// All runs, those without entries, and those of these that have memory.
    #[cfg(test)]
    pub fn runs(&self) -> (usize, usize, usize) {
        (self.runs, self.empty, self.unused)
    }

    /// Adds a region to a chain.
    fn link(&mut self, chain: usize, region: NonNull<Region>) {
        let first = self.first[chain].replace(region);
        // SAFETY: regions stay while they are in the list.
        unsafe {
            let links = &region.as_ref().locked(self).links[chain];
            links.before.set(None);
            links.after.set(first);
            if let Some(first) = first {
                first.as_ref().locked(self).links[chain]
                    .before
                    .set(Some(region));
            }
        }
    }

    /// Takes a region out of a chain.
    fn unlink(&mut self, chain: usize, region: NonNull<Region>) {
        // SAFETY: as above.
        unsafe {
            let links = &region.as_ref().locked(self).links[chain];
            let (before, after) = (links.before.get(), links.after.get());
            if let Some(after) = after {
                after.as_ref().locked(self).links[chain].before.set(before);
            }
            match before {
                Some(before) => before.as_ref().locked(self).links[chain].after.set(after),
                None => self.first[chain] = after,
            }
        }
    }

    /// Adds a region that the caller was to make, or remembers that there was no memory.
    pub fn add(&mut self, region: Option<NonNull<Region>>, turned_away: usize) {
        self.growing = 0;
        let Some(region) = region else {
            self.turned_away = turned_away;
            return;
        };
        self.link(READY, region);
        self.runs += RUNS;
        self.empty += RUNS;
    }

    /// Takes a run up. If fewer than `low` are left after that, the caller is to make a region, one
    /// thread of the process `me` at a time.
    pub fn request(&mut self, stripe: usize, me: u64, low: usize) -> Request {
        let claimed = self.claim(stripe);
        let grows = self.turned_away == 0 && self.growing != me;
        match claimed {
            Some(owned) => {
                let grows = grows && self.is_low(low);
                self.growing = if grows { me } else { self.growing };
                Request::Run(owned, grows)
            }
            None if grows => {
                self.growing = me;
                Request::NoRun {
                    is_first: self.runs == 0,
                }
            }
            None => {
                self.turned_away = self.turned_away.saturating_sub(1);
                Request::TurnedAway
            }
        }
    }

    fn is_low(&self, low: usize) -> bool {
        self.first[READY].is_none_or(|region| {
            // SAFETY: in the list.
            let region = unsafe { region.as_ref() };
            let is_alone = region.locked(self).links[READY].after.get().is_none();
            is_alone && (region.available().count_ones() as usize) < low
        })
    }

    /// Links the regions that threads have queued.
    fn link_queued(&mut self) {
        // SAFETY: the lock's holder has the arena.
        let queue = unsafe { &(*self.arena.as_ptr()).queue };
        if queue.load(Ordering::Relaxed).is_null() {
            return;
        }
        // Acquire, pairs with `Region::make_available`: its link.
        let mut next = NonNull::new(queue.swap(ptr::null_mut(), Ordering::Acquire));
        while let Some(region) = next {
            // SAFETY: it has a slot in use until it is in the queue, and so is in the list.
            next = NonNull::new(unsafe { region.as_ref() }.queued.load(Ordering::Relaxed));
            self.link(READY, region);
        }
    }

    /// Takes a run up, if there is one.
    pub fn claim(&mut self, stripe: usize) -> Option<Owned> {
        self.link_queued();
        // Each step has a run, or undoes what a push has done for one or for a region.
        while let Some(region) = self.first[READY] {
            #[cfg(test)]
            super::STEPS.set(super::STEPS.get() + 1);
            // SAFETY: in the list.
            let there = unsafe { region.as_ref() };
            let locked = there.locked(self);
            let (empty, released) = (locked.empty.get(), locked.released.get());
            // What is in use in part first, and what takes no memory last.
            let available = there.available();
            let Some(run) = first_of([!empty, !released, ALL].map(|of| available & of)) else {
                self.unlink_ready(region);
                continue;
            };
            // SAFETY: in the list.
            let Some(owned) = (unsafe { Region::claim(self, region, run, stripe) }) else {
                continue;
            };
            self.empty -= usize::from(empty & 1 << run != 0);
            self.note_unused(region, empty & !released);
            return Some(owned);
        }
        None
    }

    /// Takes a region that has no run to take up out of the chain of those that have some.
    fn unlink_ready(&mut self, region: NonNull<Region>) {
        self.unlink(READY, region);
        // SAFETY: in the list.
        let there = unsafe { region.as_ref() };
        // Acquire, pairs with `Region::make_available`: a thread that has found it in the chain has
        // said before which run there is.
        there.is_queued.swap(false, Ordering::AcqRel);
        // AcqRel, pairs with `Region::make_available`: one of both threads links it.
        if there.available() != 0 && !there.is_queued.swap(true, Ordering::AcqRel) {
            self.link(READY, region);
        }
    }

    /// Counts what has changed in a region that had these empty runs with memory.
    fn note_unused(&mut self, region: NonNull<Region>, before: Runs) {
        // SAFETY: in the list.
        let locked = unsafe { region.as_ref().locked(self) };
        let now = locked.empty.get() & !locked.released.get();
        self.unused -= before.count_ones() as usize;
        self.unused += now.count_ones() as usize;
        match (before != 0, now != 0) {
            (false, true) => self.link(UNUSED, region),
            (true, false) => self.unlink(UNUSED, region),
            _ => {}
        }
    }

    /// The slots of a run are free.
    pub fn note_empty(&mut self, empty: Empty) -> Gone {
        let region = empty.region;
        self.add_empty(empty, false);
        self.settle(region, true)
    }

    /// The memory of an empty run was given back. If it `continues`, another one may be chosen.
    pub fn note_released(&mut self, Released(empty): Released, continues: bool) -> Gone {
        let region = empty.region;
        self.add_empty(empty, true);
        self.settle(region, continues)
    }

    /// Adds a run to those whose slots are free.
    pub fn add_empty(&mut self, Empty { region, run }: Empty, is_released: bool) {
        // SAFETY: in the list.
        let locked = unsafe { region.as_ref().locked(self) };
        let (empty, released) = (locked.empty.get(), locked.released.get());
        locked.empty.set(empty | 1 << run);
        locked
            .released
            .set(released | Runs::from(is_released) << run);
        self.empty += 1;
        self.note_unused(region, empty & !released);
        // SAFETY: in the list.
        unsafe { Region::make_available(region, run) };
    }

    /// Decides what goes, after a run of that region has become empty.
    fn settle(&mut self, region: NonNull<Region>, continues: bool) -> Gone {
        let mut gone = Gone::default();
        // SAFETY: in the list.
        let locked = unsafe { region.as_ref().locked(self) };
        let is_empty = locked.empty.get() == ALL;
        let is_unused = locked.empty.get() & !locked.released.get() != 0;
        if is_empty && (self.is_closed || !is_unused) {
            self.remove(region, &mut gone);
            return gone;
        }
        let kept = KEPT.max((self.runs - self.empty) / 8);
        // Of another region, what was to be kept for more entries than there are now.
        let chosen = if is_unused {
            Some(region)
        } else {
            self.first[UNUSED]
        };
        if let Some(region) = chosen
            && continues
            && self.unused > kept
            && !self.is_closed
        {
            self.release(region, &mut gone);
        }
        gone
    }

    /// Chooses a run whose memory is to be given back, or all of its region.
    fn release(&mut self, region: NonNull<Region>, gone: &mut Gone) {
        // SAFETY: in the list.
        let there = unsafe { region.as_ref() };
        let locked = there.locked(self);
        let (empty, released) = (locked.empty.get(), locked.released.get());
        if empty == ALL {
            self.remove(region, gone);
            return;
        }
        let unused = empty & !released;
        let run = unused.trailing_zeros() as usize;
        // Until that is done the run is neither empty nor taken up, and so holds the region.
        locked.empty.set(empty & !(1 << run));
        there.make_unavailable(run);
        self.empty -= 1;
        self.note_unused(region, unused);
        gone.run = Some(Empty { region, run });
    }

    /// Takes an empty region out.
    fn remove(&mut self, region: NonNull<Region>, gone: &mut Gone) {
        // Threads queue a region while they have a slot of it.
        self.link_queued();
        // SAFETY: in the list.
        let there = unsafe { region.as_ref() };
        let locked = there.locked(self);
        let unused = locked.empty.get() & !locked.released.get();
        locked.released.set(ALL);
        self.note_unused(region, unused);
        if there.is_queued.load(Ordering::Relaxed) {
            self.unlink(READY, region);
        }
        there.locked(self).links[READY].after.set(gone.regions);
        gone.regions = Some(region);
        self.runs -= RUNS;
        self.empty -= RUNS;
        gone.arena = (self.is_closed && self.runs == 0).then_some(self.arena);
    }

    /// Ends the list: from now on regions go as soon as they are empty. Those that are empty go.
    pub fn close(&mut self) -> Gone {
        let mut gone = Gone::default();
        self.is_closed = true;
        self.link_queued();
        // Each that is empty has runs to take up.
        let mut next = self.first[READY];
        while let Some(region) = next {
            // SAFETY: in the list.
            let locked = unsafe { region.as_ref().locked(self) };
            next = locked.links[READY].after.get();
            if locked.empty.get() == ALL {
                self.remove(region, &mut gone);
            }
        }
        gone.arena = (self.runs == 0).then_some(self.arena);
        gone
    }
}

impl Gone {
    /// Deletes the regions and the arena, without the lock. Returns the run whose memory is to be given back.
    pub fn delete(mut self) -> Option<Empty> {
        #[cfg(all(test, not(stillpoint_loom)))]
        assert!(
            !super::IS_LOCKED.get(),
            "the kernel is called with the lock"
        );
        while let Some(region) = self.regions {
            // SAFETY: it came from `Region::new`. It was taken out of the list, and no slot leads to it any more.
            let region = unsafe { region.read() };
            // Moved out of itself.
            let (memory, links) = region.into_parts();
            self.regions = links[READY].after.get();
            drop(memory);
            #[cfg(test)]
            DELETED.set((DELETED.get().0 + 1, DELETED.get().1));
        }
        if let Some(arena) = self.arena {
            // SAFETY: from a box, which is no thread's any more.
            drop(unsafe { Box::from_raw(arena.as_ptr()) });
            #[cfg(test)]
            DELETED.set((DELETED.get().0, DELETED.get().1 + 1));
        }
        self.run
    }
}

/// The first run of the first of these sets that has one.
fn first_of(sets: [Runs; 3]) -> Option<usize> {
    let first = sets.into_iter().find(|set| *set != 0)?;
    Some(first.trailing_zeros() as usize)
}
