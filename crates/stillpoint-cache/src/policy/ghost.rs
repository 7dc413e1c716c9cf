//! Ghosts: the fingerprints of entries that were evicted lately.
//!
//! A table of sets of four. A ghost is remembered for twice as many evictions from its queue as the cache
//! has entries, and forgotten earlier where its set is full of younger ones. A ghost from the main queue
//! takes only room that those from the small queue leave. It takes eight bytes.
//!
//! A table becomes smaller in parts: until all of the old one has been moved, ghosts are in both.

use super::{Freed, PART, Place, ROOM, Trimmed};
use std::alloc::{Layout, handle_alloc_error};
use stillpoint_platform::memory;

const WAYS: usize = 4;

#[derive(Debug, Clone, Copy)]
pub struct Slot {
    fingerprint: u32,
    /// Twice the number of the eviction, as its queue counts them. The low bit is set for a ghost of the main
    /// queue. 0 is an empty slot: the small queue's numbers begin at 1, and skip 0 where they wrap.
    stamp: u32,
}

const EMPTY: Slot = Slot {
    fingerprint: 0,
    stamp: 0,
};

impl Slot {
    fn is_empty(&self) -> bool {
        self.stamp == 0
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

/// Twice the evictions from each queue so far, as they wrap. That of the small queue is never 0 once there
/// was one.
#[derive(Debug, Default, Clone, Copy)]
struct Clocks {
    small: u32,
    main: u32,
}

impl Clocks {
    /// Counts an eviction, and returns the stamp of its ghost.
    fn tick(&mut self, from: Place) -> u32 {
        if from == Place::Small {
            self.small = self.small.wrapping_add(2).max(2);
            return self.small;
        }
        self.main = self.main.wrapping_add(2);
        self.main | 1
    }

    /// Returns the age of a ghost in evictions from its queue.
    fn age(self, slot: &Slot) -> usize {
        let now = match slot.place() {
            Place::Small => self.small,
            _ => self.main,
        };
        (now.wrapping_sub(slot.stamp & !1) / 2) as usize
    }
}

/// The ghosts of one policy.
#[derive(Debug, Default)]
pub struct Ghosts {
    /// A power of two of sets; none at first.
    slots: Box<[Slot]>,
    clocks: Clocks,
    /// The larger table that is being moved to `slots`; none at other times.
    old: Box<[Slot]>,
    /// Number of slots of that table that have been moved: whole sets.
    moved: usize,
    /// Age in evictions from which on ghosts are not moved.
    oldest: usize,
}

/// Returns the index of the first slot of a fingerprint's set in a table of `slots` slots.
fn set_at(fingerprint: u32, slots: usize) -> usize {
    // The high bits: the whole fingerprint is compared.
    let set = (u64::from(fingerprint) * (slots / WAYS) as u64) >> 32;
    set as usize * WAYS
}

/// Forgets the ghost of a set that has this fingerprint, and returns it.
fn take_from(set: &mut [Slot], fingerprint: u32) -> Option<Slot> {
    let mut slots = set.iter_mut();
    let slot = slots.find(|slot| !slot.is_empty() && slot.fingerprint == fingerprint)?;
    Some(std::mem::replace(slot, EMPTY))
}

impl Ghosts {
    fn set(&mut self, fingerprint: u32) -> &mut [Slot] {
        let at = set_at(fingerprint, self.slots.len());
        &mut self.slots[at..][..WAYS]
    }

    /// Forgets a ghost that has not been moved out of the old table, and returns it.
    #[cold]
    fn take_unmoved(&mut self, fingerprint: u32) -> Option<Slot> {
        let at = set_at(fingerprint, self.old.len());
        if at < self.moved {
            return None;
        }
        take_from(&mut self.old[at..][..WAYS], fingerprint)
    }

    /// Remembers an entry that was evicted from a queue. `wanted` is how many ghosts there should
    /// be room for.
    pub fn add(&mut self, fingerprint: u32, from: Place, wanted: usize) {
        if self.slots.len() < wanted {
            self.grow(wanted);
        }
        if self.slots.is_empty() {
            return;
        }
        if !self.old.is_empty() {
            // It would be found twice.
            self.take_unmoved(fingerprint);
        }
        let stamp = self.clocks.tick(from);
        let clocks = self.clocks;
        let set = self.set(fingerprint);
        // What goes first has the largest: an older ghost with the fingerprint, also where there is room.
        let rank = |slot: &Slot| {
            let is_own = !slot.is_empty() && slot.fingerprint == fingerprint;
            let is_of_main = slot.place() == Place::Main;
            (is_own, slot.is_empty(), is_of_main, clocks.age(slot))
        };
        let Some(slot) = set.iter_mut().max_by_key(|slot| rank(slot)) else {
            return;
        };
        let (is_own, is_empty, is_of_main, age) = rank(slot);
        if from == Place::Small || is_own || is_empty || is_of_main || age >= wanted {
            *slot = Slot { fingerprint, stamp };
        }
    }

    /// Forgets a ghost, and returns it if it was there, and younger than `lifetime` evictions.
    pub fn take(&mut self, fingerprint: u32, lifetime: usize) -> Option<Ghost> {
        if self.slots.is_empty() {
            return None;
        }
        let mut found = take_from(self.set(fingerprint), fingerprint);
        if found.is_none() && !self.old.is_empty() {
            found = self.take_unmoved(fingerprint);
        }
        let found = found?;
        let (from, age) = (found.place(), self.clocks.age(&found));
        (age < lifetime).then_some(Ghost { from, age })
    }

    /// Makes a larger table, with the ghosts of the one that there was.
    fn grow(&mut self, wanted: usize) {
        let before = std::mem::replace(&mut self.slots, empty(slots_for(wanted)));
        before.iter().for_each(|slot| self.keep(*slot));
    }

    /// Makes the table as small as so many ghosts need it, and some more, if it is larger: a part of
    /// that. Of each set the youngest stay. Of those that are older than it has room for hardly any
    /// would: they are not tried, as most of a table that is far too large are such.
    pub fn shrink(&mut self, wanted: usize) -> Trimmed {
        if self.old.is_empty() {
            let slots = slots_for(wanted + wanted / ROOM);
            if slots >= self.slots.len() {
                return Trimmed::Done;
            }
            self.old = std::mem::replace(&mut self.slots, empty(slots));
            (self.moved, self.oldest) = (0, slots);
        }
        let end = self.old.len().min(self.moved + PART);
        for index in self.moved..end {
            let slot = self.old[index];
            if self.clocks.age(&slot) < self.oldest {
                self.keep(slot);
            }
        }
        self.moved = end;
        let is_moved = end == self.old.len();
        Trimmed::Part(is_moved.then(|| Freed::Ghosts(std::mem::take(&mut self.old))))
    }

    /// Returns whether a part of the table is still to be moved to a smaller one.
    pub fn is_shrinking(&self) -> bool {
        !self.old.is_empty()
    }

    /// Puts a ghost of another table into its set, if there is room, or an older one. A larger table
    /// has room for all of a smaller one.
    fn keep(&mut self, slot: Slot) {
        if slot.is_empty() {
            return;
        }
        let clocks = self.clocks;
        let set = self.set(slot.fingerprint).iter_mut();
        let rank = |slot: &Slot| {
            let is_of_main = slot.place() == Place::Main;
            (slot.is_empty(), is_of_main, clocks.age(slot))
        };
        if let Some(other) = set.max_by_key(|other| rank(other))
            && rank(other) > rank(&slot)
        {
            *other = slot;
        }
    }
}

/// Returns a table of `slots` slots.
fn empty(slots: usize) -> Box<[Slot]> {
    // SAFETY: two numbers, of an empty one zeros.
    let all = unsafe { memory::try_zeroed(slots) };
    all.unwrap_or_else(|| handle_alloc_error(Layout::array::<Slot>(slots).expect("it is small")))
}

/// Returns the number of slots in a table for `ghosts` ghosts.
fn slots_for(ghosts: usize) -> usize {
    ghosts.div_ceil(WAYS).next_power_of_two() * WAYS
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
        assert_eq!(ghosts.slots.len(), 4096);
        shrink(&mut ghosts, 3000);
        assert_eq!(ghosts.slots.len(), 4096, "that is what it needs");
        shrink(&mut ghosts, 2000);
        assert_eq!(ghosts.slots.len(), 4096, "with room for some more");
        shrink(&mut ghosts, 960);
        assert_eq!(ghosts.slots.len(), 1024);
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

    /// Shrinks the table until half of it has been moved.
    fn half_moved(fingerprint: impl Fn(u32) -> u32) -> Ghosts {
        let (slots, young) = (4 * PART as u32, PART as u32 / 8);
        let mut ghosts = Ghosts::default();
        // Most are too old to be moved.
        (0..slots).for_each(|number| ghosts.add(fingerprint(number), Place::Small, slots as usize));
        for _ in 0..2 {
            assert!(matches!(ghosts.shrink(young as usize), Trimmed::Part(None)));
        }
        assert_eq!((ghosts.old.len(), ghosts.moved), (4 * PART, 2 * PART));
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
        assert!(ghosts.is_shrinking() && ghosts.slots.len() == slots);
        shrink(&mut ghosts, slots);
        assert!(found(&mut ghosts) > young.len() * 9 / 10);
    }
}
