//! The index's word for an item, in 64 bits: its address, the class of its segment, and a part of its
//! hash.
//!
//! ```text
//!   63     48 47    45 44                        0
//!   | tag    | class  | address of the item / 4  |
//! ```
//!
//! Items are aligned to 4 bytes, and addresses of user space have 47 bits unless more are asked
//! for. With the class an item's segment is found without a look-up: segments are aligned to their
//! size. 0 is no item.

use super::class::Class;

const ADDRESS_BITS: u32 = 45;
const TAG_SHIFT: u32 = 48;

/// End of the addresses that a word has room for. `memory.rs` hands out none beyond.
pub const ADDRESS_END: usize = 4 << ADDRESS_BITS;

/// One item, as the index knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    /// Marks an empty slot.
    pub const NONE: u64 = 0;

    /// Creates the word of an item at `address` whose key has that hash.
    #[inline]
    pub fn new(address: usize, class: Class, hash: u64) -> Self {
        debug_assert!(address.is_multiple_of(4) && address >> 2 < 1 << ADDRESS_BITS);
        let place = (address as u64) >> 2;
        Self(place | u64::from(class.number()) << ADDRESS_BITS | tag(hash) << TAG_SHIFT)
    }

    /// Returns the word of a slot of the index, `None` if the slot is empty.
    #[inline]
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits != Self::NONE).then_some(Self(bits))
    }

    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The tag of a slot's bits, to compare with that of a hash before anything is loaded.
    #[inline]
    pub fn tag_of(bits: u64) -> u64 {
        bits >> TAG_SHIFT
    }

    #[inline]
    pub fn address(self) -> usize {
        ((self.0 & ((1 << ADDRESS_BITS) - 1)) << 2) as usize
    }

    #[inline]
    pub fn class(self) -> Class {
        Class::from_number((self.0 >> ADDRESS_BITS) as u8 & 7)
    }

    /// Returns the first address of its segment.
    #[inline]
    pub fn segment_base(self) -> usize {
        self.address() & !(self.class().alignment() - 1)
    }
}

/// The part of a hash that does not choose the bucket.
#[inline]
pub fn tag(hash: u64) -> u64 {
    hash >> TAG_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back() {
        let address = 0x7fff_ffff_fffc;
        for class in Class::all() {
            let word = Word::new(address, class, u64::MAX);
            assert_eq!((word.address(), word.class()), (address, class));
            assert_eq!(Word::tag_of(word.bits()), 0xffff);
            assert_eq!(word.segment_base() % class.alignment(), 0);
            assert!(word.address() - word.segment_base() < class.alignment());
        }
        assert_eq!(Word::from_bits(Word::NONE), None);
    }
}
