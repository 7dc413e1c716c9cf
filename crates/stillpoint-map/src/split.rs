//! The move of a bucket to two of a larger table, if it is all of its chain: as most are.
//!
//! Each entry keeps the number of its slot. No branch depends on how many entries there are, or
//! where they go, which cannot be foretold.

use crate::{
    bucket::{Bucket, Locked},
    section::Unshared,
    slot::Slot,
    word::{SLOTS, Slots},
};

/// Fills the two buckets of a larger table. Returns false, and leaves anything in their slots, even false links, if
/// the bucket has a link, or an entry whose slot has no bits of its hash left.
#[inline]
pub fn split(locked: &Locked<'_>, [lower, upper]: [Unshared<&Bucket>; 2]) -> bool {
    let Some((home, word)) = locked.home_alone() else {
        return false;
    };
    let (mut above, mut exhausted) = (Slots::NONE, false);
    for number in 0..SLOTS {
        let slot = home.slot(number);
        exhausted |= slot.is_exhausted();
        // SAFETY: an exhausted one becomes a false link, in one of two buckets that only this thread reaches. This
        // returns false then, and `Filler::finish` clears what is not overwritten before they are published.
        let (is_above, slot) = unsafe { slot.grown_by_its_bits() };
        // Both: a thread that a fork has removed may have left something.
        lower.set_slot(number, if is_above { Slot::NONE } else { slot });
        upper.set_slot(number, if is_above { slot } else { Slot::NONE });
        above = above.with(number, is_above);
    }
    if exhausted {
        return false;
    }
    let [below, above] = word.split(above);
    lower.set_word(below);
    upper.set_word(above);
    true
}

// Detects slots or tags left in both halves, and a chain that is split.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{resize::spare, section::Live, slot::Head, table::Old};
    use std::ptr::NonNull;

    /// Entries of a bucket of a table of two, with that many bits of the hash in each slot's.
    fn filled(heads: &mut [Head], used: u32) -> Box<Bucket> {
        let home = spare();
        for (tag, head) in (1..).zip(heads) {
            let mut locked = home.lock(home.word()).expect("no other thread");
            let hash = head.hash();
            // SAFETY: the entries stay until the end of the test.
            let slot = unsafe { Slot::entry(NonNull::from(head), hash, used) };
            locked.add(slot, tag).expect("they fit");
        }
        home
    }

    fn unshared(halves: &[Box<Bucket>; 2]) -> [Unshared<&Bucket>; 2] {
        // SAFETY: no other thread knows them.
        [0, 1].map(|half| unsafe { Unshared::of(&*halves[half]) })
    }

    /// Where entries are, and with which tags.
    fn contents(bucket: &Bucket) -> Vec<(NonNull<Head>, u8)> {
        let word = bucket.word();
        let entry = |slot| {
            bucket
                .slot(slot)
                .as_entry()
                .expect("it has a tag")
                .pointer()
        };
        let found = word.taken().map(|slot| (entry(slot), word.tag(slot)));
        let found: Vec<_> = found.collect();
        let is_empty = |slot: &usize| bucket.slot(*slot) == Slot::NONE;
        assert_eq!((0..SLOTS).filter(is_empty).count(), SLOTS - found.len());
        found
    }

    /// Of each set of slots, each way to go: nothing is lost, and nothing stays of what was there.
    #[test]
    fn each_entry_goes_to_its_half() {
        let ways = if cfg!(miri) { 5 } else { 1 << SLOTS };
        for (way, taken) in (0..ways).flat_map(|way| (0..ways).map(move |taken| (way, taken))) {
            let head = |slot: usize| Head::new(((way >> slot & 1) as u64) << 62);
            let mut heads: [Head; SLOTS] = std::array::from_fn(head);
            let home = filled(&mut heads, 1);
            let mut locked = home.lock(home.word()).expect("no other thread");
            for slot in (0..SLOTS).filter(|slot| taken >> slot & 1 == 0) {
                // SAFETY: the entries stay until the end of the test.
                let entry = unsafe { Live::of(NonNull::from(&heads[slot])) };
                let left = locked.remove(entry, slot as u8 + 1);
                assert_eq!(left.expect("it is there").count(), 0);
            }
            let mut others = [Head::new(0), Head::new(0)];
            let halves = [(); 2].map(|()| filled(&mut others, 2));
            assert!(split(&locked, unshared(&halves)));
            for (half, bucket) in halves.iter().enumerate() {
                let goes = |slot: &usize| taken >> slot & 1 == 1 && way >> slot & 1 == half;
                let expected: Vec<_> = (0..SLOTS)
                    .filter(goes)
                    .map(|slot| (NonNull::from(&heads[slot]), slot as u8 + 1))
                    .collect();
                assert_eq!(contents(bucket), expected, "{way:b} {taken:b}");
            }
        }
    }

    #[test]
    fn chains_and_slots_without_bits_are_left_to_others() {
        let mut heads = [(); SLOTS].map(|()| Head::new(0));
        let halves = [(); 2].map(|()| spare());
        let tries = |home: &Bucket| {
            let locked = home.lock(home.word()).expect("no other thread");
            split(&locked, unshared(&halves))
        };
        // Fifteen bits, and then none.
        let mut home = filled(&mut heads[..1], 1);
        for _ in 0..15 {
            assert!(tries(&home));
            let place = [&halves[0], &halves[1]].map(|half| half.word().is_empty());
            assert_eq!(place.map(usize::from).iter().sum::<usize>(), 1);
            let half = &halves[usize::from(place[0])];
            home = spare();
            // SAFETY: no other thread knows it.
            let unshared = unsafe { Unshared::of(&*home) };
            unshared.set_slot(0, half.slot(0));
            unshared.set_word(half.word());
        }
        assert!(!tries(&home));
        let home = filled(&mut heads, 1);
        let mut locked = home.lock(home.word()).expect("no other thread");
        locked.extend(spare());
        drop(locked);
        assert!(!tries(&home));
        // SAFETY: a box, which no other thread knows.
        for link in unsafe { home.unlinked() } {
            // SAFETY: the same.
            drop(unsafe { Box::from_raw(link.pointer().as_ptr()) });
        }
    }
}
