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
    core::{Core, World},
    locked::Locked,
    spill::{NewSpill, Spill, Tagged},
    table::InPlace,
};
use crate::{
    resize::{self, Chunk, Progress},
    section::Writer,
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

/// A chunk that a thread has taken, of which a part is left out if user code panics. Other threads do not
/// reach the new buckets of its units that have not moved.
struct Taken<'g, K: Copy + Eq, V: Copy, C: Copy, W: World<K, V, Cookie = C>> {
    under_way: Move<'g, K, V>,
    units: Range<usize>,
    /// The generation of the process whose thread has taken it.
    process: u64,
    writer: Writer<'g, Core<K, V, C>, W>,
}

impl<K: Copy + Eq, V: Copy, C: Copy, W: World<K, V, Cookie = C>> Drop for Taken<'_, K, V, C, W> {
    fn drop(&mut self) {
        if self.is_taken() {
            self.add_done(Chunk::LeftOut);
        }
    }
}

impl<K, V> Move<'_, K, V> {
    /// Whether keys are hashed for it.
    pub fn grows(self) -> bool {
        self.to.bits() > self.from.bits()
    }
}

impl<'g, K: Copy + Eq, V: Copy> Move<'g, K, V> {
    /// Moves a chunk.
    pub fn help<C: Copy, W: World<K, V, Cookie = C>>(
        self,
        writer: Writer<'g, Core<K, V, C>, W>,
    ) -> Progress {
        let Some(units) = self.take() else {
            return Progress::NothingToTake;
        };
        let taken = Taken {
            under_way: self,
            units,
            process: fork::process().generation(),
            writer,
        };
        taken.move_all()
    }
}

impl<K: Copy + Eq, V: Copy, C: Copy, W: World<K, V, Cookie = C>> Taken<'_, K, V, C, W> {
    /// False in the child of a fork: it counts anew, and other threads may have taken the units again.
    fn is_taken(&self) -> bool {
        fork::process().generation() == self.process
    }

    fn add_done(&self, chunk: Chunk) -> Progress {
        let under_way = self.under_way;
        let counters = under_way.counters();
        counters.add_done(self.units.len(), chunk, under_way.units())
    }

    /// Moves its units.
    fn move_all(self) -> Progress {
        let (under_way, end) = (self.under_way, self.units.end);
        let mut unit = under_way.pass(self.units.clone());
        if unit < end && !under_way.is_sparse() {
            // Before the locks are taken. The words of a chunk's new buckets are mostly on one page. So are
            // their slots, which a `split` mostly writes first.
            under_way.to.at(under_way.news(unit).start).touch();
        }
        // A split fills both, and so writes to pages that no entry needs.
        let splits = under_way.news(0).len() == 2 && !under_way.is_sparse();
        let mut entries = Entries::default();
        let mut chunk = Chunk::Moved;
        while unit < end {
            let is_split = splits && self.split(unit);
            if !is_split && self.is_taken() {
                chunk = chunk.max(self.move_unit(unit, &mut entries));
            }
            if !self.is_taken() {
                return Progress::NothingToTake;
            }
            unit = under_way.pass(unit + 1..end);
        }
        let progress = self.add_done(chunk);
        mem::forget(self);
        progress
    }

    /// Retires what was behind a bucket that this thread has moved.
    fn retire(&self, spill: Option<Spill<'_, K, V>>) {
        for node in spill.into_iter().flat_map(Spill::nodes) {
            // SAFETY: the bucket has moved, which is done once.
            self.writer.world().retire(unsafe { node.unlinked() });
        }
    }

    /// Moves a bucket to two, if its entries find slots there. Returns whether it has: not if they do
    /// not, or it is locked or has changed meanwhile, or a fork has made another process of this one.
    ///
    /// The two are filled before it is marked: no other thread knows them, as the unit is this one's.
    /// So pages of new slots come while no lock is held. If the word and the spill are the same then, so
    /// are the entries, as their slots are not written again in the section. A plain word alone says so:
    /// then no lock is taken.
    #[inline]
    fn split(&self, unit: usize) -> bool {
        let Move { from, to } = self.under_way;
        let bucket = from.at(unit);
        let word = bucket.word();
        if !word.is_free() {
            return false;
        }
        // SAFETY: the word was loaded from it, in the section.
        let seen = unsafe { bucket.seen(word) };
        // The list may change meanwhile, and its nodes do not.
        let (mut nodes, mut count) = ([None; MOST_SPILLED], 0);
        for node in seen.spill().into_iter().flat_map(Spill::nodes) {
            if count == MOST_SPILLED {
                return false;
            }
            nodes[count] = Some(node);
            count += 1;
        }
        let spilled = || nodes.iter().flatten().map(|node| node.entry());
        // For each entry a bit, of those in slots first: whether it goes to the upper one.
        let mut upper = 0_u32;
        let half_of = |key: &K| (to.index(self.writer.world().hash_of(key)) & 1) as u32;
        for slot in seen.taken() {
            upper |= half_of(&slot.pair().0) << slot.number();
        }
        for (index, entry) in spilled().enumerate() {
            upper |= half_of(&entry.key) << (SLOTS + index);
        }
        if !self.is_taken() {
            return false;
        }
        if count > 0 {
            let in_upper = upper.count_ones() as usize;
            let in_lower = word.taken().count() + count - in_upper;
            if in_upper > SLOTS || in_lower > SLOTS {
                return false;
            }
        }
        // Both are in one stretch.
        self.under_way.claim_new(2 * unit);
        let news = [2 * unit, 2 * unit + 1].map(|index| to.at(index));
        // SAFETY: no other thread reaches them before the bucket is marked, as above.
        let mut halves = news.map(|bucket| unsafe { Filler::of(bucket) });
        for (slot, entry) in seen.tagged() {
            halves[(upper >> slot & 1) as usize].push(entry);
        }
        for (index, entry) in spilled().enumerate() {
            halves[(upper >> (SLOTS + index) & 1) as usize].push(entry);
        }
        halves.into_iter().for_each(|half| half.finish(None));
        if word.is_plain() {
            return bucket.mark_moved(word);
        }
        let Some(mut locked) = bucket.lock(word) else {
            return false;
        };
        if !locked.seen().is_all_same(&seen) {
            return false;
        }
        locked.set_moved();
        drop(locked);
        self.retire(seen.spill());
        true
    }

    /// Returns whether it has moved, or why not; or that it has, if a fork has made another process of
    /// this one.
    fn move_unit(&self, unit: usize, entries: &mut Entries<K, V>) -> Chunk {
        let Move { from, to } = self.under_way;
        // What `split` has left there, or a thread that a fork has removed.
        if from.at(self.under_way.olds(unit).start).word().is_moved() {
            return Chunk::Moved;
        }
        to.clear(self.under_way.news(unit));
        entries.clear();
        let mut before = Entries::default();
        for tries in 0..TRIES {
            // Not the first time: the memory of what is empty serves all units of a chunk.
            if tries > 0 {
                mem::swap(entries, &mut before);
            }
            match self.try_move(unit, entries, &before) {
                Unit::Moved | Unit::Done => return Chunk::Moved,
                Unit::NotSame => {}
            }
        }
        Chunk::LeftOut
    }

    /// `before` is what the last try has found.
    fn try_move(&self, unit: usize, entries: &mut Entries<K, V>, before: &Entries<K, V>) -> Unit {
        let (under_way, Move { from, to }) = (self.under_way, self.under_way);
        let (grows, news) = (under_way.grows(), under_way.news(unit));
        let look = |index: usize| {
            let bucket = from.at(index);
            let word = bucket.word();
            // SAFETY: the word was loaded from it, in the section.
            (!word.is_moved()).then(|| unsafe { bucket.seen(word) })
        };
        let mut olds = under_way.olds(unit);
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
        let last = news.len() - 1;
        for entry in seen.into_iter().flatten().flat_map(|seen| seen.entries()) {
            // A hash that is not what it was puts the entry where it is not found.
            let number = if grows {
                let is_it = |(_, old): &&(usize, Tagged<K, V>)| {
                    old.tag == entry.tag && old.key == entry.key
                };
                let known = before.iter().find(is_it);
                known.map_or_else(
                    || to.index(self.writer.world().hash_of(&entry.key)) & last,
                    |(number, _)| *number,
                )
            } else {
                0
            };
            entries.push((number, entry));
        }
        // Another thread may have taken the unit again, and fill the new buckets without a lock.
        if !self.is_taken() {
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
        for ((lock, seen), index) in locks.iter_mut().zip(&seen).zip(under_way.olds(unit)) {
            let Some(seen) = seen else { continue };
            match from.lock_at(index, || self.writer.stamp()) {
                None => return Unit::Done,
                Some(locked) if !locked.seen().is_all_same(seen) => return Unit::NotSame,
                Some(locked) => *lock = Some(locked),
            }
        }
        for group in groups() {
            let index = news.start + group[0].0;
            under_way.claim_new(index);
            // SAFETY: it is found by an old bucket that has moved, and those of the unit have not; and
            // no other thread of this process has the unit.
            let mut filler = unsafe { Filler::of(to.at(index)) };
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
        moved.for_each(|seen| self.retire(seen.spill()));
        Unit::Moved
    }
}

// Detects a bucket that a fork's child splits, and halves with more entries than slots.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::copy::{table::Table, tests::Alone};
    use stillpoint_platform::sync::Ordering;

    /// The low byte of a key is its tag, and the high ones choose its bucket.
    fn hash_of(key: &u64) -> u64 {
        key & !0xff | (key & 0xff) << 1
    }

    /// Starts a move of `map` to a table of these bits. Returns what a thread of this process takes.
    fn take(map: &Alone, bits: u32, process: u64) -> Taken<'_, u64, u64, (), &Alone> {
        let from = map.table();
        assert!(from.set_next(Table::new(bits).expect("memory")));
        Taken {
            under_way: Move::of(from).expect("it moves"),
            units: 0..16,
            process,
            writer: map.writer(),
        }
    }

    /// User code has forked, and then panics in the child, which has taken no chunk.
    #[test]
    fn a_chunk_of_another_process_is_not_counted() {
        let here = fork::process().generation();
        for (process, is_counted) in [(here + 1, false), (here, true)] {
            let map = Alone::new(1000, true, hash_of);
            drop(take(&map, map.table().bits() + 1, process));
            let done = map.table().header().units.done.load(Ordering::Relaxed);
            assert_eq!(done != 0, is_counted);
        }
    }

    /// Makes a map with these keys in the first of 256 buckets, so that it does not grow, of which every
    /// third goes to the upper half, and moves that one as the process of this number would. Returns
    /// whether it has.
    fn splits(keys: Range<u64>, process: u64) -> bool {
        let map = Alone::new(1000, true, hash_of);
        let keys = keys.map(|key| key | (key % 3 / 2) << 55);
        keys.clone().for_each(|key| map.put(key, key));
        let from = map.table();
        assert_eq!(from.buckets(), 256);
        let has_split = take(&map, from.bits() + 1, process).split(0);
        assert_eq!(from.at(0).word().is_moved(), has_split);
        for key in keys {
            assert_eq!(map.find(key), Some(key));
        }
        has_split
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
        let (map, keys) = (Alone::new(1000, true, hash_of), 2..12_u64);
        keys.clone().for_each(|key| map.put(key, key));
        let from = map.table();
        let to = Table::new(from.bits() + 3).expect("memory");
        for index in 0..to.buckets() {
            to.used().claim(index);
            // SAFETY: no other thread knows it.
            let mut filler = unsafe { Filler::of(to.at(index)) };
            let (key, value) = (100, 100);
            filler.push(Tagged { key, value, tag: 7 });
            filler.finish(None);
        }
        assert!(from.set_next(to));
        while map.writer().help() != Progress::Finished {}
        assert_eq!(map.table().bits(), to.bits());
        let mut left = 0;
        for bucket in (0..to.buckets()).map(|index| to.at(index)) {
            // SAFETY: the word is the bucket's.
            let entries = unsafe { bucket.seen(bucket.word()) }.entries();
            left += entries.filter(|entry| entry.key == 100).count();
        }
        assert_eq!(left, 0);
        for key in keys {
            assert_eq!(map.find(key), Some(key));
        }
    }
}
