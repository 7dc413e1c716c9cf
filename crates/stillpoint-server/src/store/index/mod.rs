//! The index of a key space: a hash table of buckets that grows and shrinks by one bucket at a time
//! (linear hashing), so that its load stays the same and no operation pays for a doubling.
//!
//! | file | subject |
//! |---|---|
//! | `bucket.rs` | a bucket: readers, the lock, overflow |
//! | `mod.rs` | which bucket a hash is in, walks |
//! | `resize.rs` | growth and shrinking |
//!
//! Buckets 2^k to 2^(k+1) - 1 are in part k, which is made when its first bucket is needed and never
//! moves; large parts are pages that cost nothing until they are written. A split copies half of a
//! bucket's words to a new bucket, stores the old one's greater depth, publishes the number of
//! buckets, and empties the slots of the copied words, all under both locks. A reader that still
//! goes to the old bucket and finds a slot emptied sees the depth, and goes on to the new one.
//!
//! A join is the reverse: the last bucket's words are copied to the bucket that it was split from,
//! that one's lesser depth is stored, the number of buckets is published, and the last bucket gets a
//! depth that its number is too high for, before its slots are emptied. A reader that still goes
//! there sees that depth, and goes back. Its memory stays until such readers have left.
//!
//! Between a split and the next join, and the reverse, a grace period ends. So no section sees
//! both: else a reader could miss a word that a split takes away from where it has not come to, and
//! a join puts back where it has been, and the depth would be as it was.

mod bucket;
mod resize;
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;

#[cfg(stillpoint_loom)]
pub use bucket::Bucket as Line;
pub use bucket::{Locked, NoMemory};
#[cfg(not(stillpoint_loom))]
pub use resize::JOINS;

use super::{
    pool::Pool,
    rcu::Guard,
    word::{Word, tag},
};
use bucket::{Bucket, free_lines};
use resize::Resize;
use std::{array, ptr, sync::Arc};
use stillpoint_platform::sync::{AtomicPtr, AtomicU64, Mutex, Ordering};

/// Buckets of a new index: part of it.
const FIRST: usize = if cfg!(stillpoint_loom) { 1 } else { 4 };
const FIRST_LEVEL: u32 = FIRST.ilog2();

const PARTS: usize = if cfg!(stillpoint_loom) { 4 } else { 40 };

/// A table from hashes to words.
#[derive(Debug)]
pub struct Index {
    first: [Bucket; FIRST],
    parts: [AtomicPtr<Bucket>; PARTS],
    buckets: AtomicU64,
    /// Lines behind buckets.
    lines: AtomicU64,
    /// Buckets that have memory: more than there are, until that of joined ones is given back.
    used: AtomicU64,
    /// Held while a bucket is split or joined.
    resize: Mutex<Resize>,
    pool: Arc<Pool>,
}

fn low_bits(hash: u64, bits: u32) -> u64 {
    hash & ((1 << bits) - 1)
}

/// Where to look for a hash next, behind a bucket of that depth which it was in once; `None`: it is
/// in that one.
///
/// From a bucket that was joined, back to where it came from. Otherwise one split at a time: the
/// bucket that the first split after that one has made is there, as the bucket's depth shows. The one
/// that the depth alone leads to may not be: the halves of a split are split at different times.
#[inline]
fn next_bucket(hash: u64, at: u64, depth: u32) -> Option<u64> {
    if low_bits(hash, depth) == at {
        return None;
    }
    if at >> depth != 0 {
        return Some(low_bits(at, depth));
    }
    Some(low_bits(hash, (hash ^ at).trailing_zeros() + 1))
}

/// The bucket of a hash where there are so many buckets.
#[inline]
fn number(hash: u64, buckets: u64) -> u64 {
    let level = buckets.ilog2();
    let number = low_bits(hash, level + 1);
    if number < buckets {
        number
    } else {
        low_bits(hash, level)
    }
}

impl Index {
    pub fn new(pool: Arc<Pool>) -> Self {
        Self {
            first: array::from_fn(|_| Bucket::with_depth(FIRST_LEVEL)),
            parts: array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            buckets: AtomicU64::new(FIRST as u64),
            lines: AtomicU64::new(0),
            used: AtomicU64::new(FIRST as u64),
            resize: Mutex::new(Resize::default()),
            pool,
        }
    }

    #[inline]
    fn bucket(&self, number: u64) -> &Bucket {
        if number < FIRST as u64 {
            return &self.first[number as usize];
        }
        let part = number.ilog2();
        // The number is from `buckets` or from a depth, which were stored behind it.
        let start = self.parts[part as usize].load(Ordering::Relaxed);
        assert!(!cfg!(stillpoint_loom) || !start.is_null(), "no bucket");
        // SAFETY: numbers that are in use have a part, of 2^part lines, which stays until readers
        // that may have come to it have left.
        unsafe { &*start.add((number - (1 << part)) as usize) }
    }

    /// Returns the bucket that a hash is in, or was in a moment ago.
    #[inline]
    fn first_bucket(&self, hash: u64) -> u64 {
        // Acquire, pairs with `split`: the bucket is there.
        number(hash, self.buckets.load(Ordering::Acquire))
    }

    /// Calls `probe` with each word that may have this hash, until it returns an answer.
    #[inline]
    pub fn find<T>(
        &self,
        hash: u64,
        _section: &Guard<'_>,
        mut probe: impl FnMut(Word) -> Option<T>,
    ) -> Option<T> {
        let (mut at, tag) = (self.first_bucket(hash), tag(hash));
        loop {
            let bucket = self.bucket(at);
            for line in bucket.lines() {
                for slot in line.slots() {
                    // Acquire, pairs with `put`: the item has been written. And with `clear`: of a slot
                    // that a split has emptied, the depth has been stored.
                    let bits = slot.load(Ordering::Acquire);
                    if Word::tag_of(bits) == tag
                        && let Some(word) = Word::from_bits(bits)
                        && let Some(found) = probe(word)
                    {
                        return Some(found);
                    }
                }
            }
            // Behind the slots: if a split or a join has emptied one, this sees its depth.
            at = next_bucket(hash, at, bucket.depth())?;
        }
    }

    /// Locks the bucket of a hash. The caller is in a section, so that it may read the items.
    pub fn lock<'a>(&'a self, hash: u64, _section: &'a Guard<'_>) -> Locked<'a> {
        self.lock_from(self.first_bucket(hash), hash)
    }

    /// The same, from a bucket that the hash is in or was in.
    fn lock_from(&self, mut at: u64, hash: u64) -> Locked<'_> {
        loop {
            let locked = self.bucket(at).lock(&self.lines);
            match next_bucket(hash, at, locked.depth()) {
                Some(next) => at = next,
                None => return locked,
            }
        }
    }

    /// Puts the words of the bucket at `cursor` with their hashes into `words`, and moves `cursor` to the
    /// next bucket. Returns false behind the last one.
    ///
    /// The order is that of the reversed bits of hashes: in it a bucket's hashes are an interval,
    /// which a split cuts in two and a join puts together again. So a walk over a table that grows or
    /// shrinks comes to each hash once.
    pub fn walk(
        &self,
        cursor: &mut u64,
        words: &mut Vec<(Word, u64)>,
        _section: &Guard<'_>,
        hash_of: impl Fn(Word) -> u64,
    ) -> bool {
        let hash = *cursor;
        let mut at = self.first_bucket(hash);
        let depth =
            loop {
                let bucket = self.bucket(at);
                let depth = bucket.depth();
                words.clear();
                // Acquire, pairs with `put` of a bucket, as in `find`.
                let load = |slot: &AtomicU64| Word::from_bits(slot.load(Ordering::Acquire));
                let slots = bucket.lines().flat_map(Bucket::slots);
                let found = slots.filter_map(load);
                let found = found.map(|word| (word, hash_of(word)));
                // A split that has stored the depth may not have emptied the slots yet; of a bucket that
                // was joined since the last call, a part may have come then.
                let from = hash.reverse_bits();
                words.extend(found.filter(|&(_, hash)| {
                    low_bits(hash, depth) == at && hash.reverse_bits() >= from
                }));
                // Behind the slots, as in `find`: it may have been split meanwhile.
                let now = bucket.depth();
                match next_bucket(hash, at, now) {
                    Some(next) => at = next,
                    None if now == depth => break depth,
                    None => {}
                }
            };
        // One more, on the reversed bits above those that the bucket's hashes have in common.
        let reversed = (hash | !((1 << depth) - 1)).reverse_bits();
        let next = reversed.wrapping_add(1).reverse_bits();
        *cursor = next;
        next != 0
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.first.iter_mut().for_each(free_lines);
        // By loads: loom has no `get_mut`, and no other thread is left.
        for number in FIRST as u64..self.buckets.load(Ordering::Relaxed) {
            let part = number.ilog2();
            let start = self.parts[part as usize].load(Ordering::Relaxed);
            // SAFETY: as in `bucket`; no other thread has a reference to the index.
            free_lines(unsafe { &mut *start.add((number - (1 << part)) as usize) });
        }
    }
}
