//! Which stretches of a large table have been used.
//!
//! A table may be much larger than its entries need: it was made with a capacity. What ends the map, or
//! frees the table, goes to the stretches that were used, and leaves the others alone, which take no
//! memory. A bit is set before what it is about, and is read only by a thread that is alone with the
//! table, or with that part of it: so all accesses are Relaxed.

use std::{iter, ops::Range};
use stillpoint_platform::{
    memory::try_zeroed,
    sync::{AtomicU64, Ordering},
};

/// Buckets of a stretch: those of a [`HashMap`](crate::HashMap) fill a page of 4 KiB.
const STRETCH: usize = 64;

/// A bit for each stretch; `None` for a small table, all of which counts as used.
#[derive(Debug)]
pub struct Used(Option<Box<[AtomicU64]>>);

impl Used {
    /// Nothing is used of a table of `buckets` buckets, if it `is_large`. Returns `None` without memory.
    pub fn new(is_large: bool, buckets: usize) -> Option<Self> {
        if !is_large {
            return Some(Self(None));
        }
        let words = buckets.div_ceil(STRETCH * u64::BITS as usize);
        // SAFETY: zeros are an atomic 0. Models have no large tables.
        let bits = unsafe { try_zeroed(words)? };
        Some(Self(Some(bits)))
    }

    /// Marks the stretch of the bucket with this number as used.
    #[inline]
    pub fn note(&self, bucket: usize) {
        if let Some(bits) = &self.0 {
            let (word, bit) = Self::place(bucket / STRETCH);
            // Most are set already, and threads that use neighbours would take the cache line from each
            // other.
            let word = &bits[word];
            if word.load(Ordering::Relaxed) & bit == 0 {
                set(word, bit);
            }
        }
    }

    fn place(stretch: usize) -> (usize, u64) {
        let bits = u64::BITS as usize;
        (stretch / bits, 1 << (stretch % bits))
    }

    /// Returns the first bucket of a range that may have been used, for a caller that is alone with those
    /// buckets.
    pub fn first(&self, buckets: Range<usize>) -> Option<usize> {
        let Some(bits) = &self.0 else {
            return (!buckets.is_empty()).then_some(buckets.start);
        };
        let (first, bit) = Self::place(buckets.start / STRETCH);
        let (end, _) = Self::place(buckets.end.div_ceil(STRETCH) + u64::BITS as usize - 1);
        let mut mask = !(bit - 1);
        for (number, word) in bits[..end.min(bits.len())].iter().enumerate().skip(first) {
            let used = word.load(Ordering::Relaxed) & mask;
            mask = !0;
            if used != 0 {
                let stretch = number * u64::BITS as usize + used.trailing_zeros() as usize;
                let bucket = buckets.start.max(stretch * STRETCH);
                return (bucket < buckets.end).then_some(bucket);
            }
        }
        None
    }

    /// The buckets of a range that may have been used, as [`first`](Self::first) finds them.
    pub fn of(&self, buckets: Range<usize>) -> impl Iterator<Item = usize> {
        let mut rest = buckets;
        iter::from_fn(move || {
            let bucket = self.first(rest.clone())?;
            rest.start = bucket + 1;
            Some(bucket)
        })
    }
}

#[cold]
fn set(word: &AtomicU64, bit: u64) {
    word.fetch_or(bit, Ordering::Relaxed);
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_were_used_are_found() {
        let all = STRETCH * 200;
        let used = Used::new(true, all).expect("memory");
        assert_eq!(used.first(0..all), None);
        for bucket in [5 * STRETCH + 1, 6 * STRETCH, 130 * STRETCH - 1] {
            used.note(bucket);
        }
        for (from, first) in [
            (0, 5 * STRETCH),
            (5 * STRETCH + 7, 5 * STRETCH + 7),
            (7 * STRETCH, 129 * STRETCH),
        ] {
            assert_eq!(used.first(from..all), Some(first));
            assert_eq!(used.first(from..first), None);
            assert_eq!(used.first(from..first + 1), Some(first));
        }
        assert_eq!(used.first(130 * STRETCH..all), None);
        assert_eq!(used.of(0..all).count(), 3 * STRETCH);
        let small = Used::new(false, all).expect("it is small");
        assert!(small.of(7..9).eq([7, 8]));
    }
}
