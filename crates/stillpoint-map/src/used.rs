//! Which stretches of a large table have been used, and which a move has passed.
//!
//! A table may be much larger than its entries need: it was made with a capacity. A stretch that no entry
//! has been in takes no memory, and nothing writes to it: neither the end of the map, nor a move to another
//! table.
//!
//! A thread that changes an empty bucket claims its stretch first. A move passes the stretches that are not
//! claimed: they belong to the next table from then on, though their buckets do not say that they have
//! moved. Both are an exchange of the same word, so only one of them succeeds.

use std::{iter, ops::Range};
use stillpoint_platform::sync::{AtomicU64, Ordering};

/// Buckets of a stretch: those of a [`HashMap`](crate::HashMap) fill a page of 4 KiB.
pub const STRETCH: usize = if cfg!(stillpoint_loom) { 2 } else { 64 };

/// Two bits for each stretch; `None` for a small table, all of which counts as claimed.
#[derive(Debug)]
pub struct Used(Option<Box<[AtomicU64]>>);

/// The bits of a word that say that a stretch is claimed. The bit above each says that it is passed.
const CLAIMED: u64 = 0x5555_5555_5555_5555;
const PASSED: u64 = CLAIMED << 1;

/// Stretches of a word.
const EACH: usize = CLAIMED.count_ones() as usize;

impl Used {
    /// Nothing is claimed of a table of `buckets` buckets, if it `is_large`. Returns `None` without memory.
    pub fn new(is_large: bool, buckets: usize) -> Option<Self> {
        if !is_large {
            return Some(Self(None));
        }
        let words = buckets.div_ceil(STRETCH * EACH);
        #[cfg(not(stillpoint_loom))]
        // SAFETY: zeros are an atomic 0.
        let bits = unsafe { stillpoint_platform::memory::try_zeroed(words)? };
        #[cfg(stillpoint_loom)]
        let bits = (0..words).map(|_| AtomicU64::new(0)).collect();
        Some(Self(Some(bits)))
    }

    /// Claims the stretch of the bucket with this number. Returns false if a move has passed it.
    #[inline]
    pub fn claim(&self, bucket: usize) -> bool {
        let Some(bits) = &self.0 else { return true };
        let (word, bit) = Self::place(bucket / STRETCH);
        // Most are claimed already, and threads that use neighbours would take the cache line from each
        // other. Relaxed: what is in a claimed stretch is ordered by the buckets' words.
        let word = &bits[word];
        word.load(Ordering::Relaxed) & bit != 0 || try_claim(word, bit)
    }

    /// Returns the number of a stretch's word, and its bit of [`CLAIMED`] there.
    fn place(stretch: usize) -> (usize, u64) {
        (stretch / EACH, 1 << (2 * (stretch % EACH)))
    }

    /// Returns whether a move has passed the stretch of this bucket.
    pub fn is_passed(&self, bucket: usize) -> bool {
        self.0.as_ref().is_some_and(|bits| {
            let (word, bit) = Self::place(bucket / STRETCH);
            // Relaxed: the caller has found the next table, and what is there is ordered by its buckets.
            bits[word].load(Ordering::Relaxed) & bit << 1 != 0
        })
    }

    /// Passes stretches from the first bucket of a range on, until one is claimed. Returns the first bucket
    /// that is in a claimed one; the end of the range if there is none. Some behind the range may be passed
    /// as well.
    pub fn pass(&self, buckets: Range<usize>) -> usize {
        let Some(bits) = &self.0 else {
            return buckets.start;
        };
        let mut first = buckets.start;
        while first < buckets.end {
            let (number, bit) = Self::place(first / STRETCH);
            let claimed = pass_in(&bits[number], !(bit - 1));
            if claimed < EACH {
                let claimed = (number * EACH + claimed) * STRETCH;
                return claimed.clamp(first, buckets.end);
            }
            first = (number + 1) * EACH * STRETCH;
        }
        buckets.end
    }

    /// Returns the first bucket of a range that is in a claimed stretch. Others may be claimed meanwhile,
    /// unless the caller is alone with those buckets.
    #[inline]
    pub fn first(&self, buckets: Range<usize>) -> Option<usize> {
        let Some(bits) = &self.0 else {
            return (!buckets.is_empty()).then_some(buckets.start);
        };
        let (first, bit) = Self::place(buckets.start / STRETCH);
        let end = buckets.end.div_ceil(STRETCH).div_ceil(EACH);
        let mut mask = CLAIMED & !(bit - 1);
        for (number, word) in bits[..end.min(bits.len())].iter().enumerate().skip(first) {
            #[cfg(all(test, not(stillpoint_loom)))]
            READ.with(|read| read.set(read.get() + 1));
            // Relaxed: a caller that must not miss a claim has found the table after it. The claim comes before
            // the bucket's word, and that before `Writer::finish`, which makes the table the current one.
            let claimed = word.load(Ordering::Relaxed) & mask;
            mask = CLAIMED;
            if claimed != 0 {
                let stretch = number * EACH + claimed.trailing_zeros() as usize / 2;
                let bucket = buckets.start.max(stretch * STRETCH);
                return (bucket < buckets.end).then_some(bucket);
            }
        }
        None
    }

    /// Returns the end of the buckets that share a word with `bucket`'s stretch.
    pub fn end_of_word(&self, bucket: usize) -> usize {
        (bucket / (EACH * STRETCH) + 1) * EACH * STRETCH
    }

    /// The buckets of a range that are in claimed stretches, as [`first`](Self::first) finds them.
    pub fn of(&self, buckets: Range<usize>) -> impl Iterator<Item = usize> {
        let mut rest = buckets;
        iter::from_fn(move || {
            let bucket = self.first(rest.clone())?;
            rest.start = bucket + 1;
            Some(bucket)
        })
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
std::thread_local! {
    /// Words that the thread has read in search of a claimed stretch.
    pub static READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cold]
fn try_claim(word: &AtomicU64, bit: u64) -> bool {
    let claim = |now| (now & bit << 1 == 0).then_some(now | bit);
    // Acquire, pairs with `pass_in`: a thread that comes too late finds the next table. Relaxed if it is not:
    // what is in the stretch is ordered by the buckets' words.
    let claimed = word.fetch_update(Ordering::Relaxed, Ordering::Acquire, claim);
    claimed.is_ok()
}

/// Passes stretches of a word, which begin at the lowest bit of the mask, until one is claimed. Returns the
/// number of that one; [`EACH`] if there is none.
fn pass_in(word: &AtomicU64, mask: u64) -> usize {
    // Relaxed: only compared; what is in a claimed stretch is ordered by the buckets' words.
    let mut now = word.load(Ordering::Relaxed);
    loop {
        let claimed = (now & CLAIMED & mask).trailing_zeros();
        let before = 1_u64.checked_shl(claimed).unwrap_or(0).wrapping_sub(1);
        let passed = now | PASSED & mask & before;
        if passed == now {
            return claimed as usize / 2;
        }
        // Release, pairs with `try_claim`: the next table.
        match word.compare_exchange_weak(now, passed, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return claimed as usize / 2,
            Err(other) => now = other,
        }
    }
}

// Detects stretches that are claimed and passed, or passed beyond a claimed one.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_were_used_are_found() {
        let all = STRETCH * 200;
        let used = Used::new(true, all).expect("memory");
        assert_eq!(used.first(0..all), None);
        for bucket in [5 * STRETCH + 1, 6 * STRETCH, 130 * STRETCH - 1] {
            assert!(used.claim(bucket) && used.claim(bucket));
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

    #[test]
    fn a_stretch_is_claimed_or_passed() {
        let all = STRETCH * 200;
        let used = Used::new(true, all).expect("memory");
        let claimed = [5, 6, 31, 32, 129].map(|stretch| stretch * STRETCH);
        assert!(claimed.iter().all(|bucket| used.claim(*bucket)));
        let (mut from, mut found) = (0, Vec::new());
        loop {
            let bucket = used.pass(from..all);
            if bucket == all {
                break;
            }
            found.push(bucket);
            // A bucket in the middle is found itself.
            assert_eq!(used.pass(bucket + 3..all), bucket + 3);
            from = bucket + STRETCH;
        }
        assert_eq!(found, claimed);
        for bucket in (0..all).step_by(STRETCH) {
            let is_claimed = claimed.contains(&bucket);
            assert_eq!(used.claim(bucket), is_claimed);
            assert_eq!(used.is_passed(bucket + 1), !is_claimed);
        }
        let small = Used::new(false, all).expect("it is small");
        assert!(small.pass(7..9) == 7 && small.claim(7) && !small.is_passed(7));
    }
}
