//! Ghosts: the fingerprints of entries that were evicted lately.
//!
//! A table of sets of four. A ghost is remembered for twice as many evictions from its queue as the cache
//! has entries, and forgotten earlier where its set is full of younger ones. A ghost from the main queue
//! takes only room that those from the small queue leave. It takes eight bytes.
//!
//! A table becomes smaller in parts: until all of the old one has been moved, ghosts are in both.

use super::{Freed, PART, Place, ROOM, Trimmed};
use std::alloc::{Layout, handle_alloc_error};
use stillpoint_map::internal::prefetch;
use stillpoint_platform::memory;

/// Number of ghosts in a set.
const WAYS: usize = 4;

#[derive(Debug, Clone, Copy)]
#[repr(align(8))]
struct Slot {
    fingerprint: u32,
    /// Twice the number of the eviction, as its queue counts them. The low bit is set for a ghost of the main
    /// queue. 0 is an empty slot: the small queue's numbers begin at 1, and skip 0 where they wrap.
    stamp: u32,
}

const EMPTY: Slot = Slot {
    fingerprint: 0,
    stamp: 0,
};

type Set = [Slot; WAYS];

/// A table of sets, each within one cache line; empty at first.
#[derive(Debug, Default)]
pub struct Table {
    /// Some more than the sets have: the allocator is asked for the alignment of a slot only. For a larger one
    /// than its own it would write zeros to the whole table at once.
    slots: Box<[Slot]>,
    /// Index of the first set.
    first: usize,
}

impl Table {
    fn new(sets: usize) -> Self {
        let len = sets * WAYS + WAYS - 1;
        // SAFETY: numbers, of empty slots zeros.
        let slots = unsafe { memory::try_zeroed::<Slot>(len) };
        let slots = slots.unwrap_or_else(|| {
            handle_alloc_error(Layout::array::<Slot>(len).expect("it is small"))
        });
        let first = match slots.as_ptr().align_offset(size_of::<Set>()) {
            first @ ..WAYS => first,
            // Miri may not say.
            _ => 0,
        };
        Self { slots, first }
    }

    #[inline(always)]
    fn sets(&self) -> &[Set] {
        self.slots[self.first..].as_chunks().0
    }

    #[inline(always)]
    fn sets_mut(&mut self) -> &mut [Set] {
        self.slots[self.first..].as_chunks_mut().0
    }

    /// Returns the number of slots of its sets.
    pub fn len(&self) -> usize {
        self.sets().len() * WAYS
    }

    fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

impl Slot {
    fn is_empty(&self) -> bool {
        self.stamp == 0
    }

    /// Returns whether it is a ghost of this fingerprint.
    #[inline]
    fn is_of(&self, fingerprint: u32) -> bool {
        self.fingerprint == fingerprint && !self.is_empty()
    }

    fn place(&self) -> Place {
        match self.stamp & 1 {
            0 => Place::Small,
            _ => Place::Main,
        }
    }
}

/// A ghost that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ghost {
    /// The queue that its entry was evicted from.
    pub from: Place,
    /// Number of evictions from that queue since.
    pub age: usize,
}

/// Twice the evictions from each queue so far, as they wrap: of the small queue, and of the main queue with the
/// low bit set. That of the small queue is never 0 once there was one.
#[derive(Debug, Clone, Copy)]
struct Clocks([u32; 2]);

impl Default for Clocks {
    fn default() -> Self {
        Self([0, 1])
    }
}

impl Clocks {
    /// Counts an eviction, and returns the stamp of its ghost.
    #[inline]
    fn tick(&mut self, from: Place) -> u32 {
        let [small, main] = &mut self.0;
        if from == Place::Small {
            *small = small.wrapping_add(2).max(2);
            return *small;
        }
        *main = main.wrapping_add(2);
        *main
    }

    /// Returns the age of a ghost in evictions from its queue.
    #[inline]
    fn age(self, slot: &Slot) -> u32 {
        self.0[(slot.stamp & 1) as usize].wrapping_sub(slot.stamp) / 2
    }

    /// Returns a number by which to choose the slot of a set that a ghost is put into: the one with the largest.
    /// An empty slot comes first, then ghosts of the main queue, then older ones.
    #[inline]
    fn rank(self, slot: &Slot) -> u32 {
        if slot.is_empty() {
            return u32::MAX;
        }
        slot.stamp << 31 | self.age(slot)
    }
}

/// The ghosts of one policy.
#[derive(Debug, Default)]
pub struct Ghosts {
    table: Table,
    clocks: Clocks,
    /// The larger table that is being moved to `table`; empty at other times.
    old: Table,
    /// Number of sets of that table that have been moved.
    moved: usize,
    /// Age in evictions from which on ghosts are not moved.
    oldest: usize,
}

/// Returns the index of a fingerprint's set in a table of `sets` sets.
fn set_at(fingerprint: u32, sets: usize) -> usize {
    // The high bits: the whole fingerprint is compared.
    ((u64::from(fingerprint) * sets as u64) >> 32) as usize
}

/// Forgets the ghost of a set that has this fingerprint, and returns it.
fn take_of(set: &mut Set, fingerprint: u32) -> Option<Slot> {
    let mut slots = set.iter_mut();
    let slot = slots.find(|slot| slot.is_of(fingerprint))?;
    Some(std::mem::replace(slot, EMPTY))
}

impl Ghosts {
    fn set(&mut self, fingerprint: u32) -> &mut Set {
        let sets = self.table.sets_mut();
        let at = set_at(fingerprint, sets.len());
        &mut sets[at]
    }

    /// Fetches what [`add`](Self::add) and [`take`](Self::take) use of the table.
    #[inline]
    pub fn fetch(&self, fingerprint: u32) {
        let sets = self.table.sets();
        let at = set_at(fingerprint, sets.len());
        prefetch(sets.as_ptr().wrapping_add(at));
    }

    /// Forgets a ghost that has not been moved out of the old table, and returns it.
    #[cold]
    fn take_unmoved(&mut self, fingerprint: u32) -> Option<Slot> {
        let sets = self.old.sets_mut();
        let at = set_at(fingerprint, sets.len());
        if at < self.moved {
            return None;
        }
        take_of(&mut sets[at], fingerprint)
    }

    /// Remembers an entry that was evicted from a queue. `wanted` is how many ghosts there should
    /// be room for, at least one.
    #[inline(always)]
    pub fn add(&mut self, fingerprint: u32, from: Place, wanted: usize) {
        if self.table.len() < wanted {
            self.grow(wanted);
        }
        if !self.old.is_empty() {
            // It would be found twice.
            self.take_unmoved(fingerprint);
        }
        let stamp = self.clocks.tick(from);
        let clocks = self.clocks;
        let slots = self.set(fingerprint);
        let (mut at, mut most) = (0, 0);
        for (other, slot) in slots.iter().enumerate() {
            let rank = clocks.rank(slot);
            if rank >= most {
                (at, most) = (other, rank);
            }
        }
        // An older ghost with the fingerprint goes, also where there is room.
        if let Some(own) = slots.iter().position(|slot| slot.is_of(fingerprint)) {
            (at, most) = (own, u32::MAX);
        }
        if from == Place::Small || most as usize >= wanted {
            slots[at] = Slot { fingerprint, stamp };
        }
    }

    /// Forgets a ghost, and returns it if it was there, and younger than `lifetime` evictions.
    #[inline(always)]
    pub fn take(&mut self, fingerprint: u32, lifetime: usize) -> Option<Ghost> {
        if self.table.is_empty() {
            return None;
        }
        let mut found = take_of(self.set(fingerprint), fingerprint);
        if found.is_none() && !self.old.is_empty() {
            found = self.take_unmoved(fingerprint);
        }
        let found = found?;
        let (from, age) = (found.place(), self.clocks.age(&found) as usize);
        (age < lifetime).then_some(Ghost { from, age })
    }

    /// Makes a larger table, with the ghosts of the one that there was.
    #[cold]
    fn grow(&mut self, wanted: usize) {
        let before = std::mem::replace(&mut self.table, Table::new(sets_for(wanted)));
        let sets = before.sets().iter();
        sets.for_each(|set| self.keep(set, usize::MAX));
    }

    /// Makes the table as small as so many ghosts need it, and some more, if it is larger: a part of
    /// that. Of each set the youngest stay. Of those that are older than it has room for hardly any
    /// would: they are not tried, as most of a table that is far too large are such.
    pub fn shrink(&mut self, wanted: usize) -> Trimmed {
        if self.old.is_empty() {
            let sets = sets_for(wanted + wanted / ROOM);
            if sets >= self.table.sets().len() {
                return Trimmed::Done;
            }
            self.old = std::mem::replace(&mut self.table, Table::new(sets));
            (self.moved, self.oldest) = (0, sets * WAYS);
        }
        let all = self.old.sets().len();
        let end = all.min(self.moved + PART / WAYS);
        for index in self.moved..end {
            let set = self.old.sets()[index];
            self.keep(&set, self.oldest);
        }
        self.moved = end;
        let is_moved = end == all;
        Trimmed::Part(is_moved.then(|| Freed::Ghosts(std::mem::take(&mut self.old))))
    }

    /// Returns whether a part of the table is still to be moved to a smaller one.
    pub fn is_shrinking(&self) -> bool {
        !self.old.is_empty()
    }

    /// Puts ghosts of another table that are younger than `oldest` evictions into their sets, if there is room, or
    /// an older one. A larger table has room for all of a smaller one.
    fn keep(&mut self, set: &Set, oldest: usize) {
        let clocks = self.clocks;
        for slot in set.iter().filter(|slot| !slot.is_empty()) {
            let own = self.set(slot.fingerprint).iter_mut();
            if (clocks.age(slot) as usize) < oldest
                && let Some(other) = own.max_by_key(|other| clocks.rank(other))
                && clocks.rank(other) > clocks.rank(slot)
            {
                *other = *slot;
            }
        }
    }
}

/// Returns the number of sets in a table for `ghosts` ghosts.
fn sets_for(ghosts: usize) -> usize {
    ghosts.div_ceil(WAYS).next_power_of_two()
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    fn shrink(ghosts: &mut Ghosts, wanted: usize) {
        while !matches!(ghosts.shrink(wanted), Trimmed::Done) {}
    }

    #[test]
    #[cfg_attr(miri, ignore = "long, and without unsafe code")]
    fn in_a_smaller_table_the_youngest_stay() {
        // Fingerprints are hashes.
        let fingerprint = |number: u32| number.wrapping_mul(0x9e37_79b9);
        let mut ghosts = Ghosts::default();
        for number in 0..4000 {
            ghosts.add(fingerprint(number), Place::Small, 4000);
        }
        assert_eq!(ghosts.table.len(), 4096);
        shrink(&mut ghosts, 3000);
        assert_eq!(ghosts.table.len(), 4096, "that is what it needs");
        shrink(&mut ghosts, 2000);
        assert_eq!(ghosts.table.len(), 4096, "with room for some more");
        shrink(&mut ghosts, 960);
        assert_eq!(ghosts.table.len(), 1024);
        let mut found = |numbers: std::ops::Range<u32>| {
            let is_there = |&number: &u32| ghosts.take(fingerprint(number), 4000).is_some();
            numbers.filter(is_there).count()
        };
        let (young, old) = (found(3500..4000), found(0..500));
        assert!(young > 450 && old < 50, "{young} and {old} of 500");
    }

    #[test]
    fn an_older_ghost_with_the_fingerprint_goes_before_an_empty_slot_is_used() {
        let mut ghosts = Ghosts::default();
        (0..2).for_each(|_| ghosts.add(7, Place::Small, WAYS));
        assert_eq!(
            ghosts.take(7, 10).map(|ghost| ghost.from),
            Some(Place::Small)
        );
        assert_eq!(ghosts.take(7, 10), None, "it is there twice");
    }

    /// The table that the first eviction of a large cache makes, under the lock.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn of_a_new_table_only_what_is_used_becomes_resident() {
        const PAGE: usize = 4096;
        let mut ghosts = Ghosts::default();
        // 64 MiB: more than the allocator keeps of what is freed.
        ghosts.add(7, Place::Small, 1 << 23);
        let sets = ghosts.table.sets();
        assert!(sets.as_ptr().addr().is_multiple_of(size_of::<Set>()));
        let begin = sets.as_ptr().map_addr(|at| at.next_multiple_of(PAGE));
        let mut pages = vec![0_u8; (sets.len() - 1) * size_of::<Set>() / PAGE];
        // SAFETY: it writes a byte for each page.
        let done = unsafe {
            libc::mincore(
                begin.cast_mut().cast(),
                pages.len() * PAGE,
                pages.as_mut_ptr(),
            )
        };
        assert_eq!(done, 0);
        let resident = pages.iter().filter(|&page| page & 1 != 0).count();
        // A huge page is 512.
        assert!(resident <= 512, "{resident} of {}", pages.len());
    }

    /// Shrinks the table until half of it has been moved.
    fn half_moved(fingerprint: impl Fn(u32) -> u32) -> Ghosts {
        let (slots, young) = (4 * PART as u32, PART as u32 / 8);
        let mut ghosts = Ghosts::default();
        // Most are too old to be moved.
        (0..slots).for_each(|number| ghosts.add(fingerprint(number), Place::Small, slots as usize));
        for _ in 0..2 {
            assert!(matches!(ghosts.shrink(young as usize), Trimmed::Part(None)));
        }
        let moved = (ghosts.old.len(), ghosts.moved * WAYS);
        assert_eq!(moved, (4 * PART, 2 * PART));
        ghosts
    }

    #[test]
    #[cfg_attr(miri, ignore = "long, and without unsafe code")]
    fn while_a_table_becomes_smaller_ghosts_are_found_in_both_and_once() {
        let fingerprint = |number: u32| number.wrapping_mul(0x9e37_79b9);
        let slots = 4 * PART;
        let young = slots as u32 - PART as u32 / 16..slots as u32;
        // How many of the youngest are found.
        let found = |ghosts: &mut Ghosts| {
            let is_there = |&number: &u32| ghosts.take(fingerprint(number), slots).is_some();
            young.clone().filter(is_there).count()
        };
        let mut ghosts = half_moved(fingerprint);
        let unmoved = |number: &u32| set_at(fingerprint(*number), slots) >= slots / 2;
        let of_old = young.clone().filter(unmoved).count();
        assert!(of_old > young.len() / 3 && of_old < young.len() * 2 / 3);
        assert!(found(&mut ghosts) > young.len() * 9 / 10);
        assert_eq!(found(&mut ghosts), 0, "they have been taken");
        // Keys that are evicted again, as those are that came back in the place of another entry.
        let mut ghosts = half_moved(fingerprint);
        young
            .clone()
            .for_each(|number| ghosts.add(fingerprint(number), Place::Small, 4));
        assert!(found(&mut ghosts) > young.len() * 9 / 10);
        assert_eq!(found(&mut ghosts), 0, "they are there twice");
        // All come into the new one, and the old one is given back.
        let mut ghosts = half_moved(fingerprint);
        assert!(matches!(ghosts.shrink(1), Trimmed::Part(None)));
        assert!(
            matches!(ghosts.shrink(1), Trimmed::Part(Some(Freed::Ghosts(old))) if old.len() == slots)
        );
        assert!(!ghosts.is_shrinking());
        assert!(found(&mut ghosts) > young.len() * 9 / 10);
        // One that grows meanwhile has them, too.
        let mut ghosts = half_moved(fingerprint);
        ghosts.add(1, Place::Small, slots);
        assert!(ghosts.is_shrinking() && ghosts.table.len() == slots);
        shrink(&mut ghosts, slots);
        assert!(found(&mut ghosts) > young.len() * 9 / 10);
    }
}
