//! The word of a bucket: a tag for each slot, and what state the bucket is in.
//!
//! ```text
//!   63      62     61 .. 56            55 .. 48          7 .. 0
//! +-------+------+------------------+----------+-----+----------+
//! | moved | link | lock             | tag of 6 | ... | tag of 0 |
//! +-------+------+------------------+----------+-----+----------+
//! ```
//!
//! A tag is eight bits of a hash, never 0; 0 is an empty slot. `link`: slot 6 holds no entry but
//! the next bucket of the chain. `moved`: the bucket is in the next table now, and does not change
//! any more. `lock`: 0 while no thread changes the chain, else by which process it is locked
//! ([`mine`]).

use stillpoint_platform::fork;

/// The slots of a bucket: with the word they fill a cache line.
pub const SLOTS: usize = 7;

const MOVED: u64 = 1 << 63;
const LINK: u64 = 1 << 62;
const LOCK: u64 = 0x3f << LOCK_SHIFT;
const LOCK_SHIFT: u32 = 56;
const TAGS: u64 = (1 << LOCK_SHIFT) - 1;
/// The lowest bit of each tag.
const LOW: u64 = 0x0001_0101_0101_0101;
/// The highest bit of each tag.
const HIGH: u64 = LOW << 7;

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(u64);

/// How a bucket that this process locks says so. The child of a fork says it in another way, and so
/// knows the locks that vanished threads of its parent held. (After 63 forks, one inside the child
/// of the other, the numbers begin again.)
#[inline]
fn mine() -> u64 {
    let generation = fork::process().generation();
    // A division takes as long as all else that a lock does.
    let number = if generation < 63 {
        generation
    } else {
        generation % 63
    };
    (1 + number) << LOCK_SHIFT
}

/// The tag of an entry with this hash.
#[inline(always)]
pub fn tag(hash: u64) -> u8 {
    // Its low bits; the high ones say which bucket it is in. Inverted, as that is what `with_tag` needs
    // to invert.
    !(hash as u8).min(0xfe)
}

impl Word {
    /// A bucket with nothing in it.
    pub const EMPTY: Self = Self(0);

    #[inline(always)]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub fn is_moved(self) -> bool {
        self.0 & MOVED != 0
    }

    /// Returns whether the bucket has moved, or a move may have passed it, which leaves it empty.
    #[inline(always)]
    pub fn may_be_in_next(self) -> bool {
        // One comparison with 0: the highest bit says that it has moved.
        self.0.cast_signed() <= 0
    }

    #[inline(always)]
    pub fn has_link(self) -> bool {
        self.0 & LINK != 0
    }

    /// Returns whether an entry that is not here may be behind the bucket, or in the next table: the bucket
    /// has a link, has moved, or is empty, as one that a move has passed.
    #[inline(always)]
    pub fn goes_on(self) -> bool {
        // One comparison: MOVED and LINK are the highest bits, and EMPTY wraps round to the highest number.
        self.0.wrapping_sub(1) >= LINK - 1
    }

    /// Returns whether the bucket is all of its chain, has not moved, and is not locked.
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        self.0 & !TAGS == 0
    }

    /// Returns whether the bucket can be locked at once.
    #[inline(always)]
    pub fn is_free(self) -> bool {
        self.0 & (MOVED | LOCK) == 0
    }

    /// Returns whether no slot has an entry.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 & TAGS == 0
    }

    /// Returns whether a thread of this process holds the lock.
    pub fn is_locked(self) -> bool {
        self.0 & LOCK == mine()
    }

    /// Returns whether a thread held the lock that a fork has removed.
    pub fn is_abandoned(self) -> bool {
        self.0 & LOCK != 0 && !self.is_locked()
    }

    #[inline]
    #[must_use]
    pub fn locked(self) -> Self {
        Self((self.0 & !LOCK) | mine())
    }

    #[inline]
    #[must_use]
    pub fn unlocked(self) -> Self {
        Self(self.0 & !LOCK)
    }

    #[must_use]
    pub fn moved(self) -> Self {
        Self(self.0 | MOVED)
    }

    /// The last slot has become the link to the next bucket.
    #[must_use]
    pub fn linked(self) -> Self {
        Self(self.without(SLOTS - 1).0 | LINK)
    }

    /// There is no next bucket any more; the last slot is empty, or has an entry.
    #[must_use]
    pub fn unlinked(self) -> Self {
        Self(self.0 & !LINK)
    }

    /// There are entries behind the bucket; the last slot stays one.
    #[must_use]
    pub fn spilled(self) -> Self {
        Self(self.0 | LINK)
    }

    #[inline]
    #[must_use]
    pub fn with(self, slot: usize, tag: u8) -> Self {
        self.without(slot).filled(slot, tag)
    }

    /// As `with`, for a slot that is empty: three instructions less.
    #[inline(always)]
    #[must_use]
    pub fn filled(self, slot: usize, tag: u8) -> Self {
        Self(self.0 | (u64::from(tag) << (8 * slot)))
    }

    #[inline]
    #[must_use]
    pub fn without(self, slot: usize) -> Self {
        Self(self.0 & !(0xff << (8 * slot)))
    }

    pub fn tag(self, slot: usize) -> u8 {
        (self.0 >> (8 * slot)) as u8
    }

    /// The slots whose tag is `tag`, and perhaps others.
    #[inline(always)]
    pub fn with_tag(self, tag: u8) -> Slots {
        // Bytes that are 0xff after this are equal to the tag. Adding 1 to each clears the high bit of
        // those that had it, and of 0xfe above one that was 0xff, which is taken for 0xff as well. The
        // byte above the tags tells nothing, and is not asked.
        let equal = self.0 ^ (u64::from(!tag) * LOW);
        Slots(equal & HIGH & !equal.wrapping_add(LOW))
    }

    /// The slots with an entry.
    #[inline(always)]
    pub fn taken(self) -> Slots {
        // Adding 0x7f to seven bits sets the eighth unless they are 0, and carries nothing.
        let tags = self.0 & TAGS;
        Slots((((tags & !HIGH) + (HIGH - LOW)) | tags) & HIGH)
    }

    /// The slots with exactly this tag, a bit for each.
    pub fn bits_with(self, tag: u8) -> u8 {
        let different = Self(self.0 ^ (u64::from(tag) * LOW));
        Slots(!different.taken().0 & HIGH).bits()
    }

    /// The tags of the other slots, and those of `slots`.
    #[inline]
    pub fn split(self, slots: Slots) -> [Self; 2] {
        let bytes = (slots.0 >> 7) * 0xff;
        [self.0 & TAGS & !bytes, self.0 & bytes].map(Self)
    }

    /// Returns whether all slots have the same tags.
    pub fn has_same_tags(self, other: Self) -> bool {
        (self.0 ^ other.0) & TAGS == 0
    }

    /// The first empty slot.
    #[inline]
    pub fn free(self) -> Option<usize> {
        let usable = if self.has_link() { SLOTS - 1 } else { SLOTS };
        let free = (!self.taken().0 & HIGH).trailing_zeros() as usize / 8;
        (free < usable).then_some(free)
    }
}

/// Some slots of a bucket, in order.
#[derive(Clone, Copy, Debug)]
pub struct Slots(u64);

impl Slots {
    pub const NONE: Self = Self(0);

    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// With one more, if that `is_one`.
    #[inline]
    #[must_use]
    pub fn with(self, slot: usize, is_one: bool) -> Self {
        Self(self.0 | (u64::from(is_one) << (8 * slot + 7)))
    }

    /// A bit for each.
    pub fn bits(self) -> u8 {
        // Brings the bit of slot n to bit 56 + n; no two products meet.
        ((self.0 >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
    }
}

/// A slot, by its offset from the first in bytes: it takes two instructions less than by its number.
#[derive(Clone, Copy, Debug)]
pub struct Offset(usize);

impl Offset {
    /// By so much an offset is more.
    pub const MORE: usize = HIGH.trailing_zeros() as usize;

    /// In bytes, with [`Offset::MORE`].
    #[inline(always)]
    pub fn bytes(self) -> usize {
        self.0
    }

    #[inline(always)]
    pub fn slot(self) -> usize {
        self.0 / size_of::<u64>()
    }
}

impl Slots {
    /// As `next`, but for how it says which slot it is.
    #[inline(always)]
    pub fn next_offset(&mut self) -> Option<Offset> {
        if self.0 == 0 {
            return None;
        }
        let offset = Offset(self.0.trailing_zeros() as usize);
        self.0 &= self.0 - 1;
        Some(offset)
    }
}

impl Iterator for Slots {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        Some(self.next_offset()?.slot())
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn finds_tags_and_free_slots() {
        let word = Word::EMPTY.with(0, 7).with(3, 9).with(6, 7);
        assert_eq!(word.with_tag(7).collect::<Vec<_>>(), [0, 6]);
        assert_eq!(word.with_tag(8).count(), 0);
        assert_eq!(word.taken().collect::<Vec<_>>(), [0, 3, 6]);
        assert_eq!(word.free(), Some(1));
        let full = (0..SLOTS).fold(Word::EMPTY, |word, slot| word.with(slot, 255));
        assert_eq!((full.free(), full.taken().count()), (None, SLOTS));
        assert_eq!(full.linked().without(2).free(), Some(2));
        assert_eq!(full.linked().free(), None);
        assert!(full.linked().has_link() && Word::EMPTY.linked().is_empty());
        assert!(Word::EMPTY.with(5, 1).without(5).is_empty());
        assert_eq!(word.taken().bits(), 0b100_1001);
        assert_eq!(full.taken().bits(), 0b111_1111);
        assert_eq!((word.bits_with(7), word.bits_with(6)), (0b100_0001, 0));
        assert!((0..=255).all(|hash| tag(hash) != 0 && Word::EMPTY.with_tag(tag(hash)).is_empty()));
        assert!(word.has_same_tags(word.locked()) && !word.has_same_tags(full));
    }

    #[test]
    fn no_slot_with_the_tag_is_left_out() {
        for tag in (1..=255_u8).step_by(if cfg!(miri) { 127 } else { 1 }) {
            for other in 0..=255_u8 {
                for slot in 0..SLOTS {
                    let word = (0..SLOTS).fold(Word::EMPTY, |word, at| {
                        word.with(at, if at == slot { tag } else { other })
                    });
                    assert!(word.with_tag(tag).any(|found| found == slot));
                    let taken = if other == 0 { 1 } else { SLOTS };
                    assert_eq!(word.taken().count(), taken);
                }
            }
        }
    }

    #[test]
    fn lock_and_states_leave_tags_alone() {
        let word = Word::EMPTY.with(2, 200).with(6, 3);
        let locked = word.locked();
        assert!(locked.is_locked() && !locked.is_abandoned() && !word.is_locked());
        assert_eq!(locked.unlocked(), word);
        assert!(word.moved().is_moved() && word.moved().locked().unlocked() == word.moved());
        assert_eq!(word.moved().taken().collect::<Vec<_>>(), [2, 6]);
        let theirs = Word::from_bits(word.bits() | LOCK);
        assert!(theirs.is_abandoned() && theirs.locked().is_locked());
        assert!(!word.goes_on() && !locked.goes_on() && !theirs.goes_on());
        assert!(word.moved().goes_on() && word.linked().goes_on() && Word::EMPTY.goes_on());
    }
}
