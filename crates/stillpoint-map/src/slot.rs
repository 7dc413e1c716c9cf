//! What is in a slot: an entry with some bits of its hash, or the next bucket of the chain.
//!
//! ```text
//!   63 .. 16           15 .. 0
//! +------------------+------------------+
//! | address          | bits of the hash |
//! +------------------+------------------+
//! ```
//!
//! Of an entry the bits are never 0; of a link they are.
//!
//! The bits are those that a resize needs, so that it touches no entry: the up to 15 that come
//! after those that choose the bucket, highest first, and a 1 behind them. A table of twice the size
//! takes the highest away; one of half the size puts one in front. When only the 1 is left, the
//! entry's own hash has more.

use crate::{bucket::Bucket, section::Live};
use std::{
    marker::PhantomData,
    ptr::{self, NonNull},
};
#[cfg(stillpoint_loom)]
use stillpoint_platform::sync::UnsafeCell;

/// The beginning of each entry: all that buckets know of it.
#[derive(Debug)]
#[repr(C)]
pub struct Head {
    /// The hash of the key, spread ([`spread`]), and in the bit [`IN_SLAB`] whether the entry is in a
    /// slab ([`crate::slab`]), and not in a box.
    hash: u64,
    /// Where models look which thread reads the hash.
    #[cfg(stillpoint_loom)]
    reads: UnsafeCell<()>,
}

impl Head {
    #[inline(always)]
    pub fn new(hash: u64) -> Self {
        Self {
            hash,
            #[cfg(stillpoint_loom)]
            reads: UnsafeCell::new(()),
        }
    }

    #[inline(always)]
    pub fn hash(&self) -> u64 {
        #[cfg(stillpoint_loom)]
        self.reads.with(|_| ());
        self.hash
    }

    /// Counts as a write of the hash. Loom fails if another thread reads it meanwhile.
    #[cfg(all(test, stillpoint_loom))]
    pub fn end(&self) {
        self.reads.with_mut(|_| ());
    }
}

/// The bit of [`Head::hash`] that is no hash's: below those that choose buckets, above the tag.
pub const IN_SLAB: u64 = 1 << 16;

/// Spreads a hash over all bits but `IN_SLAB`, which is 0, for hashers that do not: the high bits
/// choose a bucket, the low ones are the tag.
#[inline(always)]
pub fn spread(hash: u64) -> u64 {
    mix(hash) & !IN_SLAB
}

/// As [`spread`], but for `IN_SLAB`, which may be anything: a look-up does not ask for it.
#[inline(always)]
pub fn mix(hash: u64) -> u64 {
    // Fibonacci hashing: in the product's lower half each bit reaches the high ones. In its upper half,
    // which costs nothing more, those reach the low ones.
    let product = u128::from(hash) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

const ADDRESS_BITS: u32 = 48;
const BITS: u32 = 64 - ADDRESS_BITS;
const ADDRESS: usize = (1 << ADDRESS_BITS) - 1;

/// Returns whether an address fits into a slot: on all systems that we know those of memory do,
/// unless a program asks for others.
#[inline]
pub fn fits<T>(pointer: NonNull<T>) -> bool {
    pointer.addr().get() & !(ADDRESS & !7) == 0
}

/// The bits of `hash` that come after the first `used`.
#[inline(always)]
fn bits_after(hash: u64, used: u32) -> u16 {
    ((hash << used) >> (64 - BITS)) as u16 | 1
}

/// A value of a slot. What it refers to stays for at least `'t`; and, once it is in a table, until a grace period
/// after it has left that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot<'t>(*mut Head, PhantomData<&'t Head>);

impl<'t> Slot<'t> {
    pub const NONE: Self = Self::of_word(ptr::null_mut());

    #[inline(always)]
    const fn of_word(word: *mut Head) -> Self {
        Self(word, PhantomData)
    }

    /// # Safety
    ///
    /// The word was loaded from a slot, in a section that lasts for `'t`, or under a lock that is held for `'t`.
    #[inline(always)]
    pub unsafe fn of(word: *mut Head) -> Self {
        Self::of_word(word)
    }

    /// Returns the word that a slot holds.
    #[inline(always)]
    pub fn word(self) -> *mut Head {
        self.0
    }

    /// An entry in a table that chooses buckets by the first `used` bits of a hash.
    ///
    /// # Safety
    ///
    /// The entry stays for at least `'t`; and, once it is in a table, until a grace period after it has left
    /// that.
    #[inline]
    pub unsafe fn entry(entry: NonNull<Head>, hash: u64, used: u32) -> Self {
        Self::with_bits(entry, bits_after(hash, used))
    }

    #[inline(always)]
    fn with_bits(entry: NonNull<Head>, bits: u16) -> Self {
        Self::of_word(
            entry
                .as_ptr()
                .map_addr(|address| address << BITS | usize::from(bits)),
        )
    }

    /// The next bucket of the chain.
    ///
    /// # Safety
    ///
    /// As for [`entry`](Self::entry), of the bucket.
    #[inline]
    pub unsafe fn link(bucket: NonNull<Bucket>) -> Self {
        Self::of_word(bucket.as_ptr().map_addr(|address| address << BITS).cast())
    }

    /// Whether it is the next bucket of the chain.
    #[inline(always)]
    pub fn is_link(self) -> bool {
        self.bits() == 0 && !self.0.is_null()
    }

    #[inline(always)]
    pub fn as_link(self) -> Option<NonNull<Bucket>> {
        if self.bits() == 0 {
            self.pointer().map(NonNull::cast)
        } else {
            None
        }
    }

    /// Returns the entry, if one is in here, and no link.
    #[inline(always)]
    pub fn as_entry(self) -> Option<Live<'t, Head>> {
        if self.bits() == 0 {
            return None;
        }
        let entry = self.0.map_addr(|address| address >> BITS);
        // SAFETY: what has bits is an entry, which stays for `'t`.
        Some(unsafe { Live::of(NonNull::new_unchecked(entry)) })
    }

    /// Returns what the slot refers to, be it an entry or a link.
    #[inline(always)]
    pub fn pointer(self) -> Option<NonNull<Head>> {
        NonNull::new(self.0.map_addr(|address| address >> BITS))
    }

    #[inline(always)]
    fn bits(self) -> u16 {
        self.0.addr() as u16
    }

    /// Returns the slot in a table of twice the size, and whether it is in the upper of the two buckets, if the
    /// table here uses `used` bits.
    #[inline]
    pub fn grown(self, used: u32) -> (bool, Self) {
        let exhausted = self.as_entry().filter(|_| self.is_exhausted());
        let Some(entry) = exhausted else {
            // SAFETY: it is not exhausted.
            return unsafe { self.grown_by_its_bits() };
        };
        let bits = bits_after(entry.hash(), used);
        let grown = Self::with_bits(entry.pointer(), bits << 1);
        (bits >> 15 != 0, grown)
    }

    /// Whether the next larger table needs more of the entry's hash than the slot has.
    #[inline]
    pub fn is_exhausted(self) -> bool {
        self.bits() == 1 << 15
    }

    /// As [`grown`](Self::grown), by the bits alone. An empty slot stays empty.
    ///
    /// # Safety
    ///
    /// The slot is not [exhausted](Self::is_exhausted); or the result, which is then a link to an entry, is
    /// neither read nor published before it is overwritten.
    #[inline]
    pub unsafe fn grown_by_its_bits(self) -> (bool, Self) {
        let bits = self.bits();
        let grown = |address: usize| (address & !0xffff) | usize::from(bits << 1);
        (bits >> 15 != 0, Self::of_word(self.0.map_addr(grown)))
    }

    /// The slot in a table of half the size, if it was in the `upper` one of the two buckets. Returns `None`
    /// if the slot holds no entry.
    pub fn shrunk(self, upper: bool) -> Option<Self> {
        let bits = self.bits();
        if bits == 0 {
            return None;
        }
        let bits = (bits >> 1) | (u16::from(upper) << 15) | (bits & 1);
        Some(Self::with_bits(self.pointer()?, bits))
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::map::{DefaultHashBuilder, hash_of};

    /// Keys at equal distances, which the default hasher leaves at equal distances in the high bits: how
    /// many share a bucket is a matter of its seed, and with some most do.
    #[test]
    #[cfg_attr(miri, ignore = "a hundred thousand hashes")]
    fn keys_at_equal_distances_are_spread_like_others() {
        const BITS: u32 = 12;
        const ENTRIES: u64 = 5 << BITS;
        let hasher = DefaultHashBuilder::default();
        for distance in [0, 3, 12, 32, 40] {
            let mut buckets = vec![0_u64; 1 << BITS];
            for key in 0..ENTRIES {
                let hash = hash_of(&hasher, &(key << distance));
                buckets[(hash >> (64 - BITS)) as usize] += 1;
            }
            let behind: u64 = buckets.iter().map(|count| count.saturating_sub(7)).sum();
            // Of random hashes it is 51, and seldom a tenth more or less.
            let permille = behind * 1000 / ENTRIES;
            assert!(
                (40..65).contains(&permille),
                "1 << {distance}: {permille} of 1000"
            );
        }
    }

    /// Forth and back, through more sizes than there are bits in a slot.
    #[test]
    fn bits_choose_the_bucket_in_every_size() {
        for seed in 0..50_u64 {
            let hash = spread(seed);
            let head = Box::new(Head::new(hash));
            let entry = NonNull::from(&*head);
            // SAFETY: it stays until the end of the test.
            let live = unsafe { Live::of(entry) };
            // SAFETY: the entry stays until the end of the test.
            let mut slot = unsafe { Slot::entry(entry, hash, 1) };
            let bucket = |used: u32| hash >> (64 - used);
            for used in (1..48)
                .chain((5..48).rev().map(|used| used | 1 << 8))
                .chain(5..40)
            {
                let (used, shrinks) = (used & 0xff, used > 0xff);
                if shrinks {
                    slot = slot.shrunk(bucket(used + 1) & 1 == 1).unwrap();
                } else {
                    let (upper, grown) = slot.grown(used);
                    assert_eq!(bucket(used) << 1 | upper as u64, bucket(used + 1), "{used}");
                    slot = grown;
                }
                assert_eq!(slot.as_entry(), Some(live));
                assert_eq!(slot.as_link(), None);
            }
        }
    }

    #[test]
    fn links_and_nothing_are_no_entries() {
        let bucket = Box::new(Bucket::default());
        // SAFETY: the bucket stays until the end of the test.
        let link = unsafe { Slot::link(NonNull::from(&*bucket)) };
        assert_eq!(link.as_link(), Some(NonNull::from(&*bucket)));
        assert_eq!(Slot::NONE.as_entry(), None);
        assert_eq!(Slot::NONE.as_link(), None);
        let at = |address| NonNull::new(ptr::without_provenance_mut::<u64>(address)).unwrap();
        assert!(fits(NonNull::from(&*bucket)));
        assert!(!fits(at(1)));
        assert!(!fits(at(1 << 48)));
    }
}
