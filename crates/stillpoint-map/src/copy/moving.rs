//! Moving a table's buckets to one of twice, half, or the same size, or to a much larger one: in units, as
//! [`crate::resize`] does.
//!
//! A thread first looks at a unit, as a reader. If the table grows, it asks for the hashes of the keys: user
//! code, which may use the map again. Most units of a growing table are one bucket whose entries find slots in
//! the two that it becomes. Those are filled at once, and then the old bucket is marked, if it has not changed
//! (`split`). Otherwise the thread allocates nodes, locks the old buckets, and moves the entries that they have
//! by then. If it lacks a hash or a node, it unlocks them and tries again.
//!
//! However fast other threads change the unit, this ends:
//!
//! * A node that an insert makes has the hash of its key, so for new nodes the thread needs only nodes. A retry
//!   allocates twice as many as the last look needed.
//! * Inserts fill at most seven slots: a slot that is emptied stays unusable until this thread's section ends.
//! * A node that a shrink has made has only a tag. The look before each try adds the hash.

use super::{
    bucket::{Filler, Seen},
    core::{Core, World},
    locked::Locked,
    spill::{Hashed, KnownHash, NewNode, Spill},
    table::InPlace,
};
use crate::{
    resize::{self, Chunk, Progress},
    section::{Unshared, Writer},
    table::AnyLocked,
    word::SLOTS,
};
use std::{mem, ops::Range};
use stillpoint_platform::fork;

/// Number of tries after which a unit that changes between each look and the lock is left for another pass.
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
    /// A hash or a node is missing.
    NotReady,
}

/// The known hashes of the keys in a bucket's slots. No slot gets another entry during the section.
type Hashes = [Option<u64>; SLOTS];

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
            let (_, to) = under_way.tables();
            to.at(under_way.news(unit).start).touch();
        }
        // A split fills both, and so writes to pages that no entry needs.
        let splits = under_way.news(0).len() == 2 && !under_way.is_sparse();
        let mut nodes = Vec::new();
        let mut chunk = Chunk::Moved;
        while unit < end {
            let is_split = splits && self.split(unit);
            if !is_split && self.is_taken() {
                chunk = chunk.max(self.move_unit(unit, &mut nodes));
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

    /// Returns the hash of a node's key, which the node keeps.
    fn hash_of(&self, node: Spill<'_, K, V>) -> u64 {
        node.hash_or(|| self.writer.world().hash_of(&node.key()))
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
        let (from, to) = self.under_way.tables();
        let bucket = from.at(unit);
        let word = bucket.word();
        if !word.is_free() {
            return false;
        }
        // SAFETY: the word was loaded from it, in the section.
        let seen = unsafe { bucket.seen(word) };
        // The list may change meanwhile, and its nodes do not.
        let (mut nodes, mut count) = ([None; MOST_SPILLED], 0);
        for node in seen.nodes() {
            if count == MOST_SPILLED {
                return false;
            }
            nodes[count] = Some(node);
            count += 1;
        }
        let spilled = || nodes.iter().flatten().copied();
        // For each entry a bit, of those in slots first: whether it goes to the upper one.
        let mut upper = 0_u32;
        let half_of = |hash| (to.index(hash) & 1) as u32;
        for slot in seen.taken() {
            let hash = self.writer.world().hash_of(&slot.pair().0);
            upper |= half_of(hash) << slot.number();
        }
        for (index, node) in spilled().enumerate() {
            upper |= half_of(self.hash_of(node)) << (SLOTS + index);
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
        let mut halves = news.map(|bucket| Filler::of(unsafe { Unshared::of(bucket) }));
        for (slot, entry) in seen.tagged() {
            halves[(upper >> slot & 1) as usize].push(entry);
        }
        for (index, node) in spilled().enumerate() {
            halves[(upper >> (SLOTS + index) & 1) as usize].push(node.entry());
        }
        halves.into_iter().for_each(Filler::finish);
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
    fn move_unit(&self, unit: usize, nodes: &mut Vec<NewNode<K, V>>) -> Chunk {
        let (from, to) = self.under_way.tables();
        // What `split` has left there, or a thread that a fork has removed.
        if from.at(self.under_way.olds(unit).start).word().is_moved() {
            return Chunk::Moved;
        }
        // SAFETY: this thread has taken the unit, which has not moved.
        unsafe { to.clear(self.under_way.news(unit)) };
        let mut hashes = Hashes::default();
        for tries in 0..TRIES {
            match self.try_move(unit, (&mut hashes, &mut *nodes), tries > 0) {
                Unit::Moved | Unit::Done => return Chunk::Moved,
                Unit::NotReady => {}
            }
        }
        Chunk::LeftOut
    }

    /// Looks at a unit, and locks it. Moves it if the hashes are known of all entries that it has then, and the
    /// nodes are enough for them.
    fn try_move(
        &self,
        unit: usize,
        (hashes, nodes): (&mut Hashes, &mut Vec<NewNode<K, V>>),
        is_retry: bool,
    ) -> Unit {
        let (under_way, (from, to)) = (self.under_way, self.under_way.tables());
        let (grows, news) = (under_way.grows(), under_way.news(unit));
        let mut count = 0;
        for bucket in under_way.olds(unit).map(|index| from.at(index)) {
            let word = bucket.word();
            if word.is_moved() {
                return Unit::Done;
            }
            // SAFETY: the word was loaded from it, in the section.
            let seen = unsafe { bucket.seen(word) };
            count += seen.count();
            if grows {
                for slot in seen.taken() {
                    let hash = &mut hashes[slot.number()];
                    if hash.is_none() {
                        *hash = Some(self.writer.world().hash_of(&slot.key()));
                    }
                }
                seen.nodes().for_each(|node| _ = self.hash_of(node));
            }
        }
        // Another thread may have taken the unit again, and fill the new buckets without a lock.
        if !self.is_taken() {
            return Unit::Done;
        }
        // However the entries are spread, they need no more than in one bucket.
        let mut needed = count.saturating_sub(SLOTS);
        if is_retry {
            // What other threads have added since the last look they may add since this one, too.
            needed = 2 * (needed + SLOTS);
        }
        nodes.resize_with(nodes.len().max(needed), NewNode::new);
        // Only this thread locks two, so it cannot come to a deadlock.
        let mut locks: [Option<Locked<'_, K, V>>; 2] = [None, None];
        for (lock, index) in locks.iter_mut().zip(under_way.olds(unit)) {
            match from.lock_at(index, || self.writer.stamp()) {
                None => return Unit::Done,
                locked => *lock = locked,
            }
        }
        let seen = locks.each_ref().map(|lock| Some(lock.as_ref()?.seen()));
        let entries = || {
            let hashes = &*hashes;
            seen.into_iter().flatten().flat_map(move |seen| {
                let in_slots = seen.tagged().map(|(slot, entry)| {
                    let hash = hashes[slot].map_or(entry.hash, KnownHash::of);
                    Hashed { hash, ..entry }
                });
                in_slots.chain(seen.nodes().map(Spill::entry))
            })
        };
        let count = seen.into_iter().flatten().map(Seen::count).sum::<usize>();
        let is_known = |seen: Seen<'_, K, V>| {
            let slots_are = seen.taken().all(|slot| hashes[slot.number()].is_some());
            slots_are && seen.nodes().all(|node| node.hash().hash().is_some())
        };
        if count > SLOTS + nodes.len() || grows && !seen.into_iter().flatten().all(is_known) {
            return Unit::NotReady;
        }
        let (last, mut filled) = (news.len() - 1, None::<(usize, Filler<'_, K, V>)>);
        for entry in entries() {
            let number = entry.hash.hash().map_or(0, |hash| to.index(hash) & last);
            let index = news.start + number;
            if filled.as_ref().is_none_or(|(at, _)| *at != index) {
                under_way.claim_new(index);
                // SAFETY: it is found by an old bucket that has moved, and those of the unit have not; and
                // no other thread of this process has the unit.
                let next = Filler::go_on(unsafe { Unshared::of(to.at(index)) });
                if let Some((_, filler)) = filled.replace((index, next)) {
                    filler.finish();
                }
            }
            if let Some((_, filler)) = &mut filled {
                filler.put(entry, || nodes.pop().expect("they were counted"));
            }
        }
        if let Some((_, filler)) = filled {
            filler.finish();
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

// Detects a bucket that a fork's child splits, halves with more entries than slots, and a move that loses to
// other changes each time.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{copy::tests::Alone, table::NewTable};
    use std::cell::Cell;
    use stillpoint_platform::sync::Ordering;

    /// The low byte of a key is its tag, and the high ones choose its bucket.
    fn hash_of(key: &u64) -> u64 {
        key & !0xff | (key & 0xff) << 1
    }

    thread_local! {
        /// A map, and the number of the next key for it, which is put in when a key is hashed; and the bit of
        /// its hash that chooses a half of the bucket.
        static TO_PUT: Cell<Option<(*const Alone, u64, u32)>> = const { Cell::new(None) };
        /// How often a key was hashed for a move.
        static HASHED: Cell<usize> = const { Cell::new(0) };
    }

    /// The key of this number, of the half `number % 2`.
    fn of_half(number: u64, half: u32) -> u64 {
        number | (number % 2) << half
    }

    fn hash_and_put(key: &u64) -> u64 {
        if let Some((map, next, half)) = TO_PUT.take() {
            HASHED.set(HASHED.get() + 1);
            // SAFETY: the map stays until `TO_PUT` is `None` again.
            unsafe { &*map }.put(of_half(next, half), next);
            TO_PUT.set(Some((map, next + 1, half)));
        }
        hash_of(key)
    }

    /// Starts a move of `map` to a table of these bits. Returns what a thread of this process takes.
    fn take(map: &Alone, bits: u32, process: u64) -> Taken<'_, u64, u64, (), &Alone> {
        let from = map.table();
        assert!(from.set_next(NewTable::new(bits).expect("memory")).is_ok());
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

    /// Each look at the unit finds entries that the last one has not, as if other threads were faster. To twice
    /// and eight times the size; and of a bucket whose list has no hashes, as two have become one.
    #[test]
    fn a_unit_moves_though_each_look_finds_more_entries() {
        let cases = [(1, false), (SLOTS as u64, false), (200, false), (200, true)];
        for (entries, is_merged, more) in cases
            .into_iter()
            .flat_map(|(entries, is_merged)| [1, 3].map(|more| (entries, is_merged, more)))
        {
            let map = Alone::new(1000, false, hash_and_put);
            // Of halves of the first bucket, or of the first two.
            let bits = map.table().bits() - u32::from(is_merged);
            let key = |number| of_half(number, 63 - bits);
            (0..entries).for_each(|number| map.put(key(number), number));
            if is_merged {
                assert!(
                    map.table()
                        .set_next(NewTable::new(bits).expect("memory"))
                        .is_ok()
                );
                while map.writer().help() != Progress::Finished {}
            }
            let from = map.table();
            assert!(
                from.set_next(NewTable::new(bits + more).expect("memory"))
                    .is_ok()
            );
            let first = 1000;
            TO_PUT.set(Some((&raw const map, first, 63 - bits)));
            HASHED.set(0);
            let progress = Move::of(from).expect("it moves").help(map.writer());
            let (_, next, _) = TO_PUT.take().expect("it was set");
            let hashed = HASHED.get() as u64;
            assert!(from.at(0).word().is_moved());
            assert!(progress != Progress::LeftOut);
            assert!(
                hashed <= entries + 2 * SLOTS as u64,
                "{hashed} of {entries}"
            );
            for number in (0..entries).chain(first..next) {
                assert_eq!(map.find(key(number)), Some(number));
            }
        }
    }

    /// It may be what a thread was filling that a fork has removed: in a sparse table, too.
    #[test]
    fn nothing_stays_of_what_was_in_the_new_buckets() {
        let (map, keys) = (Alone::new(1000, true, hash_of), 2..12_u64);
        keys.clone().for_each(|key| map.put(key, key));
        let from = map.table();
        let new = NewTable::new(from.bits() + 3).expect("memory");
        let to = new.table();
        for index in 0..to.buckets() {
            to.used().claim(index);
            // SAFETY: no other thread knows it.
            let mut filler = Filler::of(unsafe { Unshared::of(to.at(index)) });
            let (key, value) = (100, 100);
            let hash = KnownHash::of_tag(7);
            filler.push(Hashed { key, value, hash });
            filler.finish();
        }
        let bits = to.bits();
        assert!(from.set_next(new).is_ok());
        while map.writer().help() != Progress::Finished {}
        let to = map.table();
        assert_eq!(to.bits(), bits);
        let mut left = 0;
        for bucket in (0..to.buckets()).map(|index| to.at(index)) {
            // SAFETY: the word is the bucket's.
            let seen = unsafe { bucket.seen(bucket.word()) };
            left += seen.taken().filter(|slot| slot.key() == 100).count();
        }
        assert_eq!(left, 0);
        for key in keys {
            assert_eq!(map.find(key), Some(key));
        }
    }
}
