//! The index of a key space: a hash table of buckets that grows by one bucket at a time (linear
//! hashing), so that its load stays the same and no operation pays for a doubling.
//!
//! | file | subject |
//! |---|---|
//! | `bucket.rs` | a bucket: readers, the lock, overflow |
//! | `mod.rs` | which bucket a hash is in, growth, walks |
//!
//! Buckets 2^k to 2^(k+1) - 1 are in part k, which is made when its first bucket is needed and never
//! moves; large parts are pages that cost nothing until they are written. A split copies half of a
//! bucket's words to a new bucket, stores the old one's greater depth, publishes the number of
//! buckets, and empties the slots of the copied words, all under both locks. A reader that still
//! goes to the old bucket and finds a slot emptied sees the depth, and goes on to the new one.
//!
//! It never shrinks but with its key space: what has once been needed is some 13 bytes an item.

mod bucket;

pub use bucket::{Locked, NoMemory};

use super::{class::PAGE, memory::Memory, pool::Pool, word::Word};
use bucket::{Bucket, free_lines};
use std::{
    mem, ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicPtr, AtomicU64, Ordering},
    },
};
use stillpoint::Guard;

/// Buckets of a new index: part of it.
const FIRST: usize = 4;
const FIRST_LEVEL: u32 = FIRST.ilog2();

const PARTS: usize = 40;

/// Items for each bucket, on average, before it grows: with seven slots a quarter of the buckets
/// have a second line.
const LOAD: u64 = 6;

/// How many buckets one insert splits, at most.
const SPLITS: u32 = 4;

/// A table from hashes to words.
#[derive(Debug)]
pub struct Index {
    first: [Bucket; FIRST],
    parts: [AtomicPtr<Bucket>; PARTS],
    buckets: AtomicU64,
    /// The memory of parts; held while a bucket is split.
    memory: Mutex<Vec<Memory>>,
    pool: Arc<Pool>,
}

fn low_bits(hash: u64, bits: u32) -> u64 {
    hash & ((1 << bits) - 1)
}

/// Where to look for a hash next, behind a bucket of that depth which it was in once; `None`: it is
/// in that one.
///
/// One split at a time. The bucket that the first split after that one has made is there, as the
/// bucket's depth shows. The one that the depth alone leads to may not be: the halves of a split are
/// split at different times.
#[inline]
fn next_bucket(hash: u64, at: u64, depth: u32) -> Option<u64> {
    if low_bits(hash, depth) == at {
        return None;
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
            first: [const { FIRST_LEVEL }; FIRST].map(Bucket::with_depth),
            parts: [const { AtomicPtr::new(ptr::null_mut()) }; PARTS],
            buckets: AtomicU64::new(FIRST as u64),
            memory: Mutex::default(),
            pool,
        }
    }

    #[inline]
    fn bucket(&self, number: u64) -> &Bucket {
        if number < FIRST as u64 {
            return &self.first[number as usize];
        }
        let part = number.ilog2();
        // Acquire, pairs with `make_part`; a caller that has the number from a depth or from
        // `buckets` sees the part anyway.
        let start = self.parts[part as usize].load(Ordering::Acquire);
        // SAFETY: numbers that are in use have a part, of 2^part lines, which stays as long as
        // `self` does.
        unsafe { &*start.add((number - (1 << part)) as usize) }
    }

    /// The bucket that a hash is in, or was in a moment ago.
    #[inline]
    fn first_bucket(&self, hash: u64) -> u64 {
        // Acquire, pairs with `split`: the bucket is there.
        number(hash, self.buckets.load(Ordering::Acquire))
    }

    /// Asks `probe` about each word that may have this hash, until it has an answer.
    #[inline]
    pub fn find<T>(
        &self,
        hash: u64,
        _section: &Guard<'_>,
        mut probe: impl FnMut(Word) -> Option<T>,
    ) -> Option<T> {
        let mut at = self.first_bucket(hash);
        loop {
            let bucket = self.bucket(at);
            if let Some(found) = bucket.find(hash, &mut probe) {
                return Some(found);
            }
            // Behind the slots: if a split has emptied one, this sees its depth.
            at = next_bucket(hash, at, bucket.depth())?;
        }
    }

    /// Locks the bucket of a hash. In a section, so that words that are found there may be looked
    /// at.
    pub fn lock<'a>(&'a self, hash: u64, _section: &'a Guard<'_>) -> Locked<'a> {
        self.lock_from(self.first_bucket(hash), hash)
    }

    /// The same, from a bucket that the hash is in or was in.
    fn lock_from(&self, mut at: u64, hash: u64) -> Locked<'_> {
        loop {
            let locked = self.bucket(at).lock();
            match next_bucket(hash, at, locked.depth()) {
                Some(next) => at = next,
                None => return locked,
            }
        }
    }

    /// Splits some buckets if there are too many items. Without memory, it stays as it is.
    pub fn grow(&self, items: u64, section: &Guard<'_>, hash_of: impl Fn(Word) -> u64) {
        if items <= self.buckets.load(Ordering::Relaxed) * LOAD {
            return;
        }
        // Another thread that splits does it for all.
        let Ok(mut memory) = self.memory.try_lock() else {
            return;
        };
        for _ in 0..SPLITS {
            if items <= self.buckets.load(Ordering::Relaxed) * LOAD
                || self.split(&mut memory, section, &hash_of).is_err()
            {
                break;
            }
        }
    }

    fn split(
        &self,
        memory: &mut Vec<Memory>,
        _section: &Guard<'_>,
        hash_of: &impl Fn(Word) -> u64,
    ) -> Result<(), NoMemory> {
        let new = self.buckets.load(Ordering::Relaxed);
        let level = new.ilog2();
        self.make_part(level, memory)?;
        let mut old = self.bucket(new - (1 << level)).lock();
        let bucket = self.bucket(new);
        bucket.init(level + 1, true);
        let mut to = bucket.made_locked();
        let moves = |slot: &AtomicU64| {
            let word = Word::from_bits(slot.load(Ordering::Relaxed))?;
            (hash_of(word) >> level & 1 == 1).then_some(word)
        };
        for slot in old.slots() {
            if let Some(word) = moves(slot)
                && to.insert(word).is_err()
            {
                // No reader knows it yet.
                to.slots().for_each(to_none);
                return Err(NoMemory);
            }
        }
        old.set_depth(level + 1);
        // Release, pairs with `find` and `lock`.
        self.buckets.store(new + 1, Ordering::Release);
        for slot in old.slots() {
            if moves(slot).is_some() {
                old.clear(slot);
            }
        }
        old.trim();
        Ok(())
    }

    /// Makes the part that has the buckets from 2^part on.
    fn make_part(&self, part: u32, memory: &mut Vec<Memory>) -> Result<(), NoMemory> {
        let slot = self.parts.get(part as usize).ok_or(NoMemory)?;
        if !slot.load(Ordering::Relaxed).is_null() {
            return Ok(());
        }
        let bytes = mem::size_of::<Bucket>() << part;
        memory.try_reserve(1).map_err(|_| NoMemory)?;
        // Parts of less than a page share the first one.
        let start = match memory.first() {
            Some(page) if bytes < PAGE => page.base().as_ptr().wrapping_add(bytes),
            _ => {
                let area = self
                    .pool
                    .take(bytes.max(PAGE), PAGE, None)
                    .ok_or(NoMemory)?;
                let start = area.base().as_ptr();
                memory.push(area);
                if bytes < PAGE {
                    start.wrapping_add(bytes)
                } else {
                    start
                }
            }
        };
        // Release, pairs with `bucket`: it reads zero.
        slot.store(start.cast(), Ordering::Release);
        Ok(())
    }

    /// What its parts take, in bytes, as far as they are used.
    pub fn bytes(&self) -> u64 {
        self.buckets.load(Ordering::Relaxed) * mem::size_of::<Bucket>() as u64
    }

    /// The words of one bucket with their hashes, from where `cursor` has come to, into `words`;
    /// `cursor` is the next bucket's then. Returns false behind the last one.
    ///
    /// The order is that of the reversed bits of hashes: in it a bucket's hashes are an interval,
    /// which a split cuts in two. So a walk over a table that grows comes to each hash once.
    pub fn walk(
        &self,
        cursor: &mut u64,
        words: &mut Vec<(Word, u64)>,
        _section: &Guard<'_>,
        hash_of: impl Fn(Word) -> u64,
    ) -> bool {
        let hash = *cursor;
        let mut at = self.first_bucket(hash);
        let depth = loop {
            let bucket = self.bucket(at);
            let depth = bucket.depth();
            words.clear();
            // Acquire, pairs with `put` of a bucket, as in `find`.
            let load = |slot: &AtomicU64| Word::from_bits(slot.load(Ordering::Acquire));
            let found = bucket.slots().filter_map(load);
            let found = found.map(|word| (word, hash_of(word)));
            // A split that has stored the depth may not have emptied the slots yet.
            words.extend(found.filter(|&(_, hash)| low_bits(hash, depth) == at));
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

fn to_none(slot: &AtomicU64) {
    slot.store(Word::NONE, Ordering::Relaxed);
}

impl Drop for Index {
    fn drop(&mut self) {
        let memory = self.memory.get_mut();
        let memory = memory.unwrap_or_else(PoisonError::into_inner);
        self.first.iter_mut().for_each(free_lines);
        let buckets = *self.buckets.get_mut();
        // One more, of which a split that failed may have left lines.
        for number in FIRST as u64..=buckets {
            let part = number.ilog2();
            let start = *self.parts[part as usize].get_mut();
            if !start.is_null() {
                // SAFETY: as in `bucket`; no other thread has a reference to the index.
                free_lines(unsafe { &mut *start.add((number - (1 << part)) as usize) });
            }
        }
        memory.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stillpoint::read_lock;

    fn empty(buckets: u64) -> Index {
        let index = Index::new(Arc::new(Pool::new(1 << 20).unwrap()));
        while index.buckets.load(Ordering::Relaxed) < buckets {
            let items = (index.buckets.load(Ordering::Relaxed) + 1) * LOAD;
            index.grow(items, &read_lock(), |_| unreachable!("it is empty"));
        }
        index
    }

    /// A thread that has read the number of buckets long ago comes only to buckets that are there,
    /// and ends in the right one.
    #[test]
    fn a_stale_number_of_buckets_leads_to_the_right_one() {
        for buckets in [8, 9, 11, 16, 21, 31] {
            let index = empty(buckets);
            assert_eq!(index.buckets.load(Ordering::Relaxed), buckets);
            for hash in 0..64 {
                let right = number(hash, buckets);
                for stale in FIRST as u64..=buckets {
                    let mut at = number(hash, stale);
                    while let Some(next) = next_bucket(hash, at, index.bucket(at).depth()) {
                        assert!(next < buckets, "{hash} from {at}: {next} of {buckets}");
                        at = next;
                    }
                    assert_eq!(at, right);
                    let locked = index.lock_from(number(hash, stale), hash);
                    assert_eq!(low_bits(hash, locked.depth()), right);
                }
            }
        }
    }

    /// A bucket between the steps of a split has words twice: a walk gives each of them once.
    #[test]
    fn a_walk_leaves_out_what_a_split_has_copied() {
        let index = empty(8);
        let section = read_lock();
        // Their own hashes, so that no item is looked at.
        let hash_of = |word: Word| word.address() as u64 >> 2;
        for hash in [1, 9, 17] {
            let word = Word::new((hash as usize) << 2, super::super::class::Class::OWN, hash);
            index.lock(hash, &section).insert(word).unwrap();
        }
        // As `split` does it, but for the slots that it empties.
        index
            .make_part(3, &mut index.memory.lock().unwrap())
            .unwrap();
        for number in 0..=1u64 {
            let mut old = index.bucket(number).lock();
            let new = index.bucket(number + 8);
            new.init(4, true);
            let mut to = new.made_locked();
            let moved = old
                .slots()
                .filter_map(|slot| Word::from_bits(slot.load(Ordering::Relaxed)));
            for word in moved.filter(|&word| hash_of(word) & 8 != 0) {
                to.insert(word).unwrap();
            }
            old.set_depth(4);
            index.buckets.store(number + 9, Ordering::Release);
        }
        let (mut cursor, mut words, mut all) = (0, Vec::new(), Vec::new());
        while {
            let more = index.walk(&mut cursor, &mut words, &section, hash_of);
            all.extend(words.iter().map(|&(_, hash)| hash));
            more
        } {}
        all.sort_unstable();
        assert_eq!(all, [1, 9, 17]);
    }
}
