//! Moving a table's buckets to one of twice, half, or the same size, or to a much larger one: in units, as
//! [`crate::resize`] does.
//!
//! A thread first looks at a unit, as a reader, and asks for the hashes of the keys if the table
//! grows: user code, which may use the map again. Most units of a table that grows are one bucket whose
//! entries find slots in the two that it becomes: those are filled at once, and then the old one is
//! marked, if it is the same (`split`). Otherwise the thread allocates, locks the old buckets, and goes
//! on if they still have the same entries. If not, it tries again, and asks only for hashes of keys that
//! are new: a slow hash would lose to other threads' updates each time.

use super::{
    bucket::Filler,
    core::World,
    locked::Locked,
    spill::{NewSpill, Spill, Tagged},
    table::InPlace,
};
use crate::{
    resize::{self, Chunk, Progress},
    table::Units,
    word::SLOTS,
};
use std::{mem, ops::Range};
use stillpoint_platform::fork;

/// A unit whose entries change each time between the look and the lock is left for another pass.
const TRIES: usize = 16;

/// A bucket with more entries behind it is not split at once.
const MOST_SPILLED: usize = 8;

pub type Move<'t, K, V> = resize::Move<'t, InPlace<K, V>>;

/// What a unit has become.
enum Unit {
    /// This thread has moved it.
    Moved,
    /// Another thread had.
    Done,
    /// It has other entries now.
    NotSame,
}

/// The entries of a unit, each with the number of its new bucket among those of the unit.
type Entries<K, V> = Vec<(usize, Tagged<K, V>)>;

/// Retires what was behind a bucket that has moved.
///
/// # Safety
///
/// Inside the section in which it was found.
unsafe fn retire_all<K, V>(spill: Option<Spill<K, V>>, world: &impl World<K, V>) {
    // SAFETY: the caller's promise.
    let nodes = spill.into_iter().flat_map(|first| unsafe { first.nodes() });
    nodes.for_each(|node| world.retire_spill(node));
}

/// Counts a chunk, of which a part is left out if user code panics.
struct Taken<'t> {
    /// Whose thread has taken it.
    process: u64,
    units: &'t Units,
    count: usize,
    all: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // The child of a fork counts anew, and has not taken it.
        if fork::process().generation() == self.process {
            self.units.add_done(self.count, Chunk::LeftOut, self.all);
        }
    }
}

impl<K, V> Move<'_, K, V> {
    /// Whether keys are hashed for it.
    pub fn grows(self) -> bool {
        self.to.bits() > self.from.bits()
    }
}

impl<K: Copy + Eq, V: Copy> Move<'_, K, V> {
    /// Moves a chunk.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    pub unsafe fn help(
        self,
        world: &impl World<K, V>,
        hash_of: &impl Fn(&K) -> u64,
        stamp: impl Fn() -> u16 + Copy,
    ) -> Progress {
        let Some(Range { start, end }) = self.take() else {
            return Progress::NothingToTake;
        };
        let process = fork::process().generation();
        let taken = Taken {
            process,
            units: self.counters(),
            count: end - start,
            all: self.units(),
        };
        let mut unit = self.pass(start..end);
        if unit < end && !self.is_sparse() {
            // Before the locks are taken. The words of a chunk's new buckets are mostly on one page. So are
            // their slots, which a `split` mostly writes first.
            self.to.at(self.news(unit).start).touch();
        }
        // A split fills both, and so writes to pages that no entry needs.
        let splits = self.news(0).len() == 2 && !self.is_sparse();
        let mut entries = Entries::default();
        let mut chunk = Chunk::Moved;
        let is_taken = || fork::process().generation() == process;
        while unit < end {
            // SAFETY: the caller's promise; it has taken the unit.
            let is_split = splits && unsafe { self.split(unit, process, world, hash_of) };
            if !is_split && is_taken() {
                // SAFETY: the same.
                chunk =
                    chunk.max(unsafe { self.move_unit(unit, &mut entries, world, hash_of, stamp) });
            }
            if !is_taken() {
                return Progress::NothingToTake;
            }
            unit = self.pass(unit + 1..end);
        }
        mem::forget(taken);
        self.counters().add_done(end - start, chunk, self.units())
    }

    /// Moves a bucket to two, if its entries find slots there. Returns whether it has: not if they do
    /// not, or it is locked or has changed meanwhile, or a fork has made another process of this one.
    ///
    /// The two are filled before it is marked: no other thread knows them, as the unit is this one's.
    /// So pages of new slots come while no lock is held. If the word and the spill are the same then, so
    /// are the entries, as their slots are not written again in the section. A plain word alone says so:
    /// then no lock is taken.
    ///
    /// # Safety
    ///
    /// As for `help`. The other table is twice as large, and the caller has taken the unit as a thread
    /// of this process.
    #[inline]
    unsafe fn split(
        self,
        unit: usize,
        process: u64,
        world: &impl World<K, V>,
        hash_of: &impl Fn(&K) -> u64,
    ) -> bool {
        let bucket = self.from.at(unit);
        let word = bucket.word();
        if !word.is_free() {
            return false;
        }
        let seen = bucket.seen(word);
        // The list may change meanwhile, and its nodes do not.
        let (mut nodes, mut count) = ([None; MOST_SPILLED], 0);
        let first = seen.spill.into_iter();
        // SAFETY: the caller's section, in which it was found.
        for node in first.flat_map(|first| unsafe { first.nodes() }) {
            if count == MOST_SPILLED {
                return false;
            }
            nodes[count] = Some(node);
            count += 1;
        }
        // SAFETY: the same.
        let spilled = || nodes.iter().flatten().map(|node| unsafe { node.entry() });
        let taken = word.taken();
        // For each entry a bit, of those in slots first: whether it goes to the upper one.
        let mut upper = 0_u32;
        let half_of = |key: &K| (self.to.index(hash_of(key)) & 1) as u32;
        for slot in taken {
            // SAFETY: it has a tag in the word, which was loaded in the caller's section.
            let (key, _) = unsafe { bucket.pair(slot) };
            upper |= half_of(&key) << slot;
        }
        for (index, entry) in spilled().enumerate() {
            upper |= half_of(&entry.key) << (SLOTS + index);
        }
        // In the child of a fork other threads may have taken the unit again.
        if fork::process().generation() != process {
            return false;
        }
        if count > 0 {
            let in_upper = upper.count_ones() as usize;
            let in_lower = taken.count() + count - in_upper;
            if in_upper > SLOTS || in_lower > SLOTS {
                return false;
            }
        }
        // Both are in one stretch.
        self.claim_new(2 * unit);
        let news = [2 * unit, 2 * unit + 1].map(|index| self.to.at(index));
        // SAFETY: no other thread reaches them before the bucket is marked, as above.
        let mut halves = news.map(|bucket| unsafe { Filler::of(bucket) });
        for slot in taken {
            // SAFETY: as above.
            let entry = unsafe { bucket.tagged(word, slot) };
            halves[(upper >> slot & 1) as usize].push(entry);
        }
        for (index, entry) in spilled().enumerate() {
            halves[(upper >> (SLOTS + index) & 1) as usize].push(entry);
        }
        halves.into_iter().for_each(|half| half.finish(None));
        if word.is_plain() {
            return bucket.mark_moved(word);
        }
        if !bucket.lock(word) {
            return false;
        }
        let mut locked = Locked::of(bucket, word);
        if !locked.seen().is_all_same(&seen) {
            return false;
        }
        locked.set_moved();
        drop(locked);
        // SAFETY: the caller's section, in which it was found.
        unsafe { retire_all(seen.spill, world) };
        true
    }

    /// Returns whether it has moved, or why not; or that it has, if a fork has made another process of
    /// this one.
    ///
    /// # Safety
    ///
    /// As for `help`. The caller has taken the unit as a thread of this process.
    unsafe fn move_unit(
        self,
        unit: usize,
        entries: &mut Entries<K, V>,
        world: &impl World<K, V>,
        hash_of: &impl Fn(&K) -> u64,
        stamp: impl Fn() -> u16 + Copy,
    ) -> Chunk {
        // What `split` has left there, or a thread that a fork has removed.
        if self.from.at(self.olds(unit).start).word().is_moved() {
            return Chunk::Moved;
        }
        self.to.clear(self.news(unit));
        entries.clear();
        let mut before = Entries::default();
        for tries in 0..TRIES {
            // Not the first time: the memory of what is empty serves all units of a chunk.
            if tries > 0 {
                mem::swap(entries, &mut before);
            }
            // SAFETY: the caller's promise.
            match unsafe { self.try_move(unit, entries, &before, world, hash_of, stamp) } {
                Unit::Moved | Unit::Done => return Chunk::Moved,
                Unit::NotSame => {}
            }
        }
        Chunk::LeftOut
    }

    /// `before` is what the last try has found.
    ///
    /// # Safety
    ///
    /// As for `move_unit`.
    unsafe fn try_move(
        self,
        unit: usize,
        entries: &mut Entries<K, V>,
        before: &Entries<K, V>,
        world: &impl World<K, V>,
        hash_of: &impl Fn(&K) -> u64,
        stamp: impl Fn() -> u16 + Copy,
    ) -> Unit {
        let (grows, process) = (self.grows(), fork::process());
        let look = |index: usize| {
            let bucket = self.from.at(index);
            let word = bucket.word();
            (!word.is_moved()).then(|| (bucket, bucket.seen(word)))
        };
        let mut olds = self.olds(unit);
        let Some(lower) = olds.next().and_then(look) else {
            return Unit::Done;
        };
        let upper = match olds.next().map(look) {
            Some(None) => return Unit::Done,
            Some(upper) => upper,
            None => None,
        };
        let seen = [Some(lower), upper];
        entries.clear();
        let last = self.news(unit).len() - 1;
        for (bucket, seen) in seen.into_iter().flatten() {
            // SAFETY: the caller's section, in which it was seen.
            for entry in unsafe { bucket.entries(seen) } {
                // A hash that is not what it was puts the entry where it is not found.
                let number = if grows {
                    let is_it = |(_, old): &&(usize, Tagged<K, V>)| {
                        old.tag == entry.tag && old.key == entry.key
                    };
                    let known = before.iter().find(is_it);
                    known.map_or_else(
                        || self.to.index(hash_of(&entry.key)) & last,
                        |(number, _)| *number,
                    )
                } else {
                    0
                };
                entries.push((number, entry));
            }
        }
        // In the child of a fork another thread may have taken the unit again, and fill the new buckets
        // without a lock.
        if fork::process() != process {
            return Unit::Done;
        }
        entries.sort_unstable_by_key(|(number, _)| *number);
        let groups = || entries.chunk_by(|(one, _), (other, _)| one == other);
        // Most have none, and the memory of an empty one is none.
        let mut spills = Vec::new();
        for group in groups().filter(|group| group.len() > SLOTS) {
            spills.push(NewSpill::new(
                group[SLOTS..].iter().map(|(_, entry)| *entry),
            ));
        }
        let mut spills = spills.into_iter();
        // Only this thread locks two, so it cannot come to a deadlock.
        let mut locks: [Option<Locked<'_, K, V>>; 2] = [None, None];
        for ((lock, seen), index) in locks.iter_mut().zip(&seen).zip(self.olds(unit)) {
            let Some((_, seen)) = seen else { continue };
            match self.from.lock_at(index, stamp) {
                None => return Unit::Done,
                Some(locked) if !locked.seen().is_all_same(seen) => return Unit::NotSame,
                Some(locked) => *lock = Some(locked),
            }
        }
        for group in groups() {
            let index = self.news(unit).start + group[0].0;
            self.claim_new(index);
            // SAFETY: it is found by an old bucket that has moved, and those of the unit have not; and
            // no other thread of this process has the unit.
            let mut filler = unsafe { Filler::of(self.to.at(index)) };
            let in_slots = group.iter().take(SLOTS);
            in_slots.for_each(|(_, entry)| filler.push(*entry));
            let spill = if group.len() > SLOTS {
                spills.next().flatten()
            } else {
                None
            };
            filler.finish(spill);
        }
        locks.iter_mut().flatten().for_each(Locked::set_moved);
        // In this order: a walk that finds only the first one moved goes on behind both
        // (`super::walk`), also in the child of a fork that removes this thread in between.
        let [lower, upper] = locks;
        drop(lower);
        drop(upper);
        let moved = seen.into_iter().flatten();
        // SAFETY: the caller's section, in which it was seen.
        moved.for_each(|(_, seen)| unsafe { retire_all(seen.spill, world) });
        Unit::Moved
    }
}

// Detects a bucket that a fork's child splits, and halves with more entries than slots.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::copy::{
        core::{Changed, Core},
        growth::tests::Alone,
        table::Table,
    };
    use stillpoint_platform::sync::{AtomicU64, Ordering};

    /// User code has forked, and then panics in the child, which has taken no chunk.
    #[test]
    fn a_chunk_of_another_process_is_not_counted() {
        let units = Units {
            taken: AtomicU64::new(0),
            done: AtomicU64::new(0),
            extended: AtomicU64::new(0),
        };
        let here = fork::process().generation();
        let taken = |process| Taken {
            process,
            units: &units,
            count: 16,
            all: 64,
        };
        drop(taken(here + 1));
        assert_eq!(units.done.load(Ordering::Relaxed), 0);
        drop(taken(here));
        assert_ne!(units.done.load(Ordering::Relaxed), 0);
    }

    /// The low byte of a key is its tag, and the high ones choose its bucket.
    fn hash_of(key: &u64) -> u64 {
        key & !0xff | (key & 0xff) << 1
    }

    /// Makes a map with these keys in the first of 256 buckets, so that it does not grow, of which every
    /// third goes to the upper half, and moves that one as the process of this number would. Returns
    /// whether it has.
    fn splits(keys: Range<u64>, process: u64) -> bool {
        let world = Alone::default();
        let core = Core::<u64, u64, ()>::new(1000, true).expect("memory");
        let keys = keys.map(|key| key | (key % 3 / 2) << 55);
        // SAFETY: there are no readers, and no other thread has the unit.
        unsafe {
            for key in keys.clone() {
                let look = core.look(hash_of(&key), |other| *other == key);
                let changed = core.put(hash_of(&key), &look, (key, key), &world, &hash_of);
                assert_eq!(changed, Changed::Done);
            }
            let from = core.table();
            assert_eq!(from.buckets(), 256);
            assert!(from.set_next(Table::new(from.bits() + 1).expect("memory")));
            let to_move = Move::of(from).expect("it moves");
            let has_split = to_move.split(0, process, &world, &hash_of);
            assert_eq!(from.at(0).word().is_moved(), has_split);
            for key in keys {
                let found = from.find(hash_of(&key), |other| *other == key, |(_, value)| value);
                assert_eq!(found, Some(key));
            }
            core.free_tables();
            has_split
        }
    }

    /// What is behind a bucket goes into slots. Not if there is too much of it, or if other threads may
    /// have the unit, as user code has forked.
    #[test]
    fn a_bucket_is_split_if_its_entries_find_slots() {
        let here = fork::process().generation();
        assert!(splits(2..9, here) && splits(2..12, here));
        assert!(!splits(2..14, here), "one half has more than slots");
        assert!(!splits(2..40, here), "there is too much behind it");
        assert!(!splits(2..9, here + 1));
    }

    /// It may be what a thread was filling that a fork has removed: in a sparse table, too.
    #[test]
    fn nothing_stays_of_what_was_in_the_new_buckets() {
        let (world, keys) = (Alone::default(), 2..12_u64);
        let core = Core::<u64, u64, ()>::new(1000, true).expect("memory");
        // SAFETY: there are no readers, and no other thread has the unit.
        unsafe {
            for key in keys.clone() {
                let look = core.look(hash_of(&key), |other| *other == key);
                core.put(hash_of(&key), &look, (key, key), &world, &hash_of);
            }
            let from = core.table();
            let to = Table::new(from.bits() + 3).expect("memory");
            for index in 0..to.buckets() {
                to.used().claim(index);
                let mut filler = Filler::of(to.at(index));
                let (key, value) = (100, 100);
                filler.push(Tagged { key, value, tag: 7 });
                filler.finish(None);
            }
            assert!(from.set_next(to));
            while core.help(&world, &hash_of) != Progress::Finished {}
            assert_eq!(core.table().bits(), to.bits());
            let mut left = 0;
            for bucket in (0..to.buckets()).map(|index| to.at(index)) {
                let entries = bucket.entries(bucket.seen(bucket.word()));
                left += entries.filter(|entry| entry.key == 100).count();
            }
            assert_eq!(left, 0);
            for key in keys {
                let found = to.find(hash_of(&key), |other| *other == key, |(_, value)| value);
                assert_eq!(found, Some(key));
            }
            core.free_tables();
        }
    }
}
