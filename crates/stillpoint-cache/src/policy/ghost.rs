//! Ghosts: the fingerprints of entries that were evicted lately.
//!
//! A table of sets of four. A ghost is remembered for twice as many evictions as the cache has
//! entries, and forgotten earlier where its set is full of younger ones. It takes eight bytes.

use stillpoint_platform::memory;

const WAYS: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Slot {
    fingerprint: u32,
    /// The number of the eviction, from 1; 0 for an empty slot.
    number: u32,
}

const EMPTY: Slot = Slot {
    fingerprint: 0,
    number: 0,
};

/// The ghosts of one policy.
#[derive(Debug, Default)]
pub struct Ghosts {
    /// A power of two of sets; none at first.
    slots: Box<[Slot]>,
    /// Evictions so far, as they wrap; never 0 once there was one.
    number: u32,
}

impl Ghosts {
    fn set(&mut self, fingerprint: u32) -> &mut [Slot] {
        let sets = self.slots.len() / WAYS;
        // The high bits: the whole fingerprint is compared.
        let set = ((u64::from(fingerprint) * sets as u64) >> 32) as usize;
        &mut self.slots[set * WAYS..][..WAYS]
    }

    /// Remembers an evicted entry. `wanted` is how many ghosts there should be room for.
    pub fn add(&mut self, fingerprint: u32, wanted: usize) {
        if self.slots.len() < wanted {
            self.grow(wanted);
        }
        if self.slots.is_empty() {
            return;
        }
        self.number = self.number.wrapping_add(1).max(1);
        let number = self.number;
        let set = self.set(fingerprint);
        let age = |slot: &Slot| match slot.number {
            0 => u32::MAX,
            _ if slot.fingerprint == fingerprint => u32::MAX,
            then => number.wrapping_sub(then),
        };
        if let Some(slot) = set.iter_mut().max_by_key(|slot| age(slot)) {
            *slot = Slot {
                fingerprint,
                number,
            };
        }
    }

    /// Forgets a ghost. Returns whether it was there, and not older than `lifetime` evictions.
    pub fn take(&mut self, fingerprint: u32, lifetime: usize) -> bool {
        if self.slots.is_empty() {
            return false;
        }
        let number = self.number;
        let set = self.set(fingerprint);
        let Some(slot) = set
            .iter_mut()
            .find(|slot| slot.number != 0 && slot.fingerprint == fingerprint)
        else {
            return false;
        };
        let age = number.wrapping_sub(slot.number) as usize;
        *slot = EMPTY;
        age < lifetime
    }

    /// A larger table, with the ghosts of the old one. Without memory the old one stays.
    fn grow(&mut self, wanted: usize) {
        let sets = wanted.div_ceil(WAYS).next_power_of_two();
        let Some(slots) = memory::try_several(sets * WAYS, || EMPTY) else {
            return;
        };
        let old = std::mem::replace(&mut self.slots, slots);
        for slot in old.iter().filter(|slot| slot.number != 0) {
            let set = self.set(slot.fingerprint);
            if let Some(free) = set.iter_mut().find(|other| other.number == 0) {
                *free = *slot;
            }
        }
    }
}
