//! Ghosts: the fingerprints of entries that were evicted lately.
//!
//! A table of sets of four. A ghost from the small queue is remembered for twice as many evictions
//! from there as the cache has entries, and forgotten earlier where its set is full of younger ones.
//! A ghost from the main queue takes only room that these leave. It takes eight bytes.

use super::{Place, ROOM};
use stillpoint_platform::memory;

const WAYS: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Slot {
    fingerprint: u32,
    /// Twice the number of the last eviction from the small queue, which is never 0 after the
    /// first; one more for a ghost from the main queue. 0 for an empty slot.
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

/// The ghosts of one policy.
#[derive(Debug, Default)]
pub struct Ghosts {
    /// A power of two of sets; none at first.
    slots: Box<[Slot]>,
    /// Twice the evictions from the small queue so far, as they wrap; never 0 once there was one.
    now: u32,
}

impl Ghosts {
    fn set(&mut self, fingerprint: u32) -> &mut [Slot] {
        let sets = self.slots.len() / WAYS;
        // The high bits: the whole fingerprint is compared.
        let set = ((u64::from(fingerprint) * sets as u64) >> 32) as usize;
        &mut self.slots[set * WAYS..][..WAYS]
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
        if from == Place::Small {
            self.now = self.now.wrapping_add(2).max(2);
        }
        let now = self.now;
        let set = self.set(fingerprint);
        // What goes first has the largest.
        let rank = |slot: &Slot| {
            let goes = slot.is_empty() || slot.fingerprint == fingerprint;
            (goes, slot.place() == Place::Main, age(now, slot.stamp))
        };
        let Some(slot) = set.iter_mut().max_by_key(|slot| rank(slot)) else {
            return;
        };
        let (goes, is_of_main, age) = rank(slot);
        if from == Place::Small || goes || is_of_main || age >= wanted {
            *slot = Slot {
                fingerprint,
                stamp: now | u32::from(from == Place::Main),
            };
        }
    }

    /// Forgets a ghost. Returns from which queue it was evicted, if it was there, and not older than
    /// `lifetime` evictions.
    pub fn take(&mut self, fingerprint: u32, lifetime: usize) -> Option<Place> {
        if self.slots.is_empty() {
            return None;
        }
        let now = self.now;
        let mut set = self.set(fingerprint).iter_mut();
        let slot = set.find(|slot| !slot.is_empty() && slot.fingerprint == fingerprint)?;
        let found = std::mem::replace(slot, EMPTY);
        (age(now, found.stamp) < lifetime).then(|| found.place())
    }

    /// A larger table, with the ghosts of the old one. Without memory the old one stays.
    fn grow(&mut self, wanted: usize) {
        self.resize(slots_for(wanted), usize::MAX);
    }

    /// Makes the table as small as so many ghosts need it, and some more, if it is larger. Of each
    /// set the youngest stay. Of those that are older than it has room for hardly any would: they are
    /// not tried, as the lock is held, and most of a table that is far too large are such.
    pub fn shrink(&mut self, wanted: usize) {
        let slots = slots_for(wanted + wanted / ROOM);
        if slots < self.slots.len() {
            self.resize(slots, slots);
        }
    }

    /// Another table, with the ghosts that are younger than `oldest` evictions.
    fn resize(&mut self, slots: usize, oldest: usize) {
        let Some(slots) = memory::try_several(slots, || EMPTY) else {
            return;
        };
        let (old, now) = (std::mem::replace(&mut self.slots, slots), self.now);
        let stays = |slot: &&Slot| !slot.is_empty() && age(now, slot.stamp) < oldest;
        for slot in old.iter().filter(stays) {
            let set = self.set(slot.fingerprint).iter_mut();
            let rank = |slot: &Slot| {
                let is_of_main = slot.place() == Place::Main;
                (slot.is_empty(), is_of_main, age(now, slot.stamp))
            };
            // A set of a larger table has ghosts of one that the old one had: all have room.
            if let Some(other) = set.max_by_key(|other| rank(other))
                && rank(other) > rank(slot)
            {
                *other = *slot;
            }
        }
    }
}

/// The slots of a table for so many ghosts.
fn slots_for(ghosts: usize) -> usize {
    ghosts.div_ceil(WAYS).next_power_of_two() * WAYS
}

/// How many evictions ago that was.
fn age(now: u32, stamp: u32) -> usize {
    (now.wrapping_sub(stamp & !1) / 2) as usize
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

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
        ghosts.shrink(3000);
        assert_eq!(ghosts.slots.len(), 4096, "that is what it needs");
        ghosts.shrink(2000);
        assert_eq!(ghosts.slots.len(), 4096, "with room for some more");
        ghosts.shrink(960);
        assert_eq!(ghosts.slots.len(), 1024);
        let mut found = |numbers: std::ops::Range<u32>| {
            let is_there = |&number: &u32| ghosts.take(fingerprint(number), 4000).is_some();
            numbers.filter(is_there).count()
        };
        let (young, old) = (found(3500..4000), found(0..500));
        assert!(young > 450 && old < 50, "{young} and {old} of 500");
    }
}
