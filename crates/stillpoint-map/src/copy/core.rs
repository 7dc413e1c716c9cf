//! The current table of a map, and what changes its entries.

use super::{
    bucket::{Place, Seen, tag},
    epochs::{Epochs, GracePeriods},
    locked::Locked,
    moving::Move,
    spill::{Hashed, KnownHash, NewNode, OldNode},
    table::{InPlace, Table},
};
use crate::{
    core::fence_change,
    growth::{self, HasTables, Helper, Moves, Tables, is_looked_at},
    resize::Progress,
    section::Writer,
    word::Word,
};
use std::{ops::Deref, thread};
use stillpoint_platform::sync::{AtomicU64, Ordering};

/// Number of nodes for each bucket from which on inserts into lists hold back.
const CROWDED: i64 = 8;

#[cfg(all(test, not(stillpoint_loom)))]
thread_local! {
    /// How often this thread has held back.
    static HELD_BACK: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns whether two of these slots or fewer are left: then a bucket asks for those that are
/// pending.
fn are_few(slots: u8) -> bool {
    let without_lowest = |slots: u8| slots & slots.wrapping_sub(1);
    without_lowest(without_lowest(slots)) == 0
}

/// What a map of copies asks of its domain, and of its hasher.
pub trait World<K, V>: growth::World<InPlace<K, V>> + GracePeriods {
    /// The hash of a key, by user code. The service thread never asks for it.
    fn hash_of(self, key: &K) -> u64;
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    Done,
    /// The bucket is another one than the caller has seen.
    NotSame,
}

/// The place of a key, found in a section, where a change may follow.
pub struct Look<'g, K, V, C, W> {
    writer: Writer<'g, Core<K, V, C>, W>,
    table: Table<'g, K, V>,
    index: usize,
    seen: Seen<'g, K, V>,
    found: Option<(Place<'g, K, V>, (K, V))>,
    hash: u64,
}

/// A map without its hasher and its domain.
pub struct Core<K, V, C> {
    pub(super) tables: Tables<InPlace<K, V>>,
    pub(super) epochs: Epochs<C>,
    /// The epoch that was open when the last table was replaced, for [`Epochs::is_past`].
    replaced: AtomicU64,
}

impl<K, V, C> Deref for Core<K, V, C> {
    type Target = Tables<InPlace<K, V>>;

    #[inline(always)]
    fn deref(&self) -> &Tables<InPlace<K, V>> {
        &self.tables
    }
}

impl<K, V, C: Copy> HasTables for Core<K, V, C> {
    type Kind = InPlace<K, V>;

    fn of(tables: Tables<InPlace<K, V>>) -> Self {
        Self {
            tables,
            epochs: Epochs::new(),
            replaced: AtomicU64::new(0),
        }
    }
}

/// Entries in slots have no hashes with them: so a table that grows asks for those of the keys, before any lock
/// is taken. That is user code, and left to the threads that change the map. Tables that shrink, or only
/// leave their spills behind, need no hashes: the service thread moves them, too.
// SAFETY: `Units::add_done` says so.
unsafe impl<K: Copy + Eq, V: Copy, C: Copy, W: World<K, V, Cookie = C>> Moves<W> for Core<K, V, C> {
    fn move_chunk(writer: Writer<'_, Self, W>, under_way: Move<'_, K, V>, _: Helper) -> Progress {
        under_way.help(writer)
    }

    fn can_drive(under_way: Move<'_, K, V>) -> bool {
        !under_way.grows()
    }

    /// Only once the last replaced table is freed. It waits for readers and counts against no budget. While those
    /// readers keep slots from becoming clean, a new table would soon be replaced as well. Nodes behind buckets do
    /// count against the budget.
    fn may_shorten_chains(writer: Writer<'_, Self, W>) -> bool {
        // Relaxed: a hint.
        let is_past = writer
            .epochs
            .is_past(writer.replaced.load(Ordering::Relaxed));
        if !is_past {
            writer.epochs.advance(&writer.world(), true);
        }
        is_past
    }

    fn note_retired(&self) {
        self.replaced
            .store(self.epochs.now().number(), Ordering::Relaxed);
    }
}

impl<'g, K: Copy + Eq, V: Copy, C: Copy, W: World<K, V, Cookie = C>> Writer<'g, Core<K, V, C>, W> {
    /// The stamp of a slot that was emptied just now.
    #[inline]
    pub(super) fn stamp(self) -> u16 {
        self.epochs.stamp(&self.world())
    }

    /// Looks for an entry that is to be changed.
    #[inline(always)]
    pub fn look(self, hash: u64, mut is_it: impl FnMut(&K) -> bool) -> Look<'g, K, V, C, W> {
        let core = self.core();
        core.table().fetch(hash);
        loop {
            let (table, index, word) = core.table().home(hash);
            let bucket = table.at(index);
            // SAFETY: the word was loaded from it, in the section.
            let seen = unsafe { bucket.seen(word) };
            let found = seen.place(tag(hash), &mut is_it);
            let is_spilled = matches!(found, Some((Place::Spilled(_), _)));
            // An update that is under way, and has not taken effect, is waited for.
            if !is_spilled || seen.has_same_slots(bucket.word(), tag(hash)) {
                return Look {
                    writer: self,
                    table,
                    index,
                    seen,
                    found,
                    hash,
                };
            }
        }
    }

    /// Follows an insert, or an update of the entry that was found at `place`. The last argument says which clean
    /// slots are left (a bit for each), whether others are pending, and whether the entry is behind the bucket.
    #[inline(always)]
    pub(super) fn note_put(
        self,
        hash: u64,
        (table, place): (Table<'_, K, V>, Option<Place<'_, K, V>>),
        (clean, has_pending, has_spilled): (u8, bool, bool),
    ) {
        if place.is_none() {
            self.count.add(1);
        }
        fence_change();
        if has_pending && are_few(clean) {
            self.epochs.advance(&self.world(), has_spilled);
        }
        if has_spilled && !matches!(place, Some(Place::Spilled(_))) {
            table
                .header()
                .units
                .extended
                .fetch_add(1, Ordering::Relaxed);
        }
        // Updates, too: entries that they have put behind buckets come back into slots by a move.
        if (place.is_none() || has_spilled) && clean == 0 && is_looked_at(table.bits(), hash) {
            self.consider_growing(table);
        }
        self.help();
    }

    /// The entry that was found has been taken out; its bucket has no other if it `is_empty`.
    #[inline(always)]
    pub(super) fn note_taken(self, hash: u64, table: Table<'_, K, V>, is_empty: bool) {
        self.count.add(1_u64.wrapping_neg());
        fence_change();
        if is_empty && is_looked_at(table.bits(), hash) {
            self.consider_shrinking(table);
        }
        self.help();
    }
}

impl<'g, K: Copy + Eq, V: Copy, C: Copy, W: World<K, V, Cookie = C>> Look<'g, K, V, C, W> {
    /// Locks the bucket and cleans it, if it has no spill, and its word is as it was seen: then so are its
    /// entries.
    #[inline(always)]
    fn lock_as_seen(&self) -> Option<Locked<'g, K, V>> {
        let (word, index) = (self.seen.word(), self.index);
        let is_ours = || word != Word::EMPTY || self.table.used().claim(index);
        if !(word.is_plain() && is_ours()) {
            return None;
        }
        let mut locked = self.table.at(index).lock(word)?;
        self.clean(&mut locked);
        Some(locked)
    }

    #[inline(always)]
    fn clean(&self, locked: &mut Locked<'g, K, V>) {
        // SAFETY: of the map that the look is at.
        unsafe { locked.clean(&self.writer.epochs) };
    }

    fn place(&self) -> Option<Place<'g, K, V>> {
        Some(self.found?.0)
    }

    /// The entry.
    pub fn pair(&self) -> Option<(K, V)> {
        Some(self.found?.1)
    }

    /// Where the value is.
    #[cfg(not(stillpoint_loom))]
    pub fn value(&self) -> Option<*mut V> {
        let (_, value) = match self.place()? {
            Place::Slot(number) => {
                let slot = self.seen.taken().find(|slot| slot.number() == number)?;
                slot.halves()
            }
            Place::Spilled(found) => found.node().halves(),
        };
        Some(value)
    }

    /// Puts an entry in, or in the place of the one that was found. Its key has the hash of the look.
    #[inline(always)]
    pub fn put(&self, pair: (K, V)) -> Changed {
        // Most changes ask for no more than this. The fewer instructions they are, the more of the
        // next one's the processor begins while it waits for the bucket.
        if let Some(mut locked) = self.lock_as_seen() {
            let (tag, stamp) = (tag(self.hash), || self.writer.stamp());
            let done = match self.found {
                Some((Place::Slot(old), _)) => locked.update(old, tag, pair, stamp),
                _ => locked.insert(tag, pair),
            };
            if let Some(left) = done {
                let has_pending = locked.has_pending();
                drop(locked);
                self.note_put((left, has_pending, false));
                return Changed::Done;
            }
        }
        self.put_after_waiting(pair)
    }

    #[inline(always)]
    fn note_put(&self, left: (u8, bool, bool)) {
        self.writer
            .note_put(self.hash, (self.table, self.place()), left);
    }

    #[inline(never)]
    fn put_after_waiting(&self, pair: (K, V)) -> Changed {
        let (tag, stamp) = (tag(self.hash), || self.writer.stamp());
        let place = self.place();
        let mut prepared = None;
        let left = loop {
            let Some(mut locked) = self.table.lock_at(self.index, stamp) else {
                return Changed::NotSame;
            };
            if !locked.is_same(&self.seen, tag) {
                return Changed::NotSame;
            }
            self.clean(&mut locked);
            let done = match place {
                None => locked.insert(tag, pair),
                Some(Place::Slot(old)) => locked.update(old, tag, pair, stamp),
                Some(Place::Spilled(_)) => None,
            };
            if let Some(left) = done {
                break (left, locked.has_pending(), false);
            }
            if let Some((new, copy)) = prepared.take() {
                let entry = Hashed {
                    key: pair.0,
                    value: pair.1,
                    hash: KnownHash::of(self.hash),
                };
                let left = match place {
                    None => {
                        locked.push(new, entry);
                        [None, None]
                    }
                    Some(Place::Slot(old)) => {
                        locked.spill_over(old, new, entry, stamp);
                        [None, None]
                    }
                    Some(Place::Spilled(old)) => {
                        match locked.replace_spilled(old, Some((new, entry)), copy) {
                            Some(left) => left,
                            None => return Changed::NotSame,
                        }
                    }
                };
                let has_pending = locked.has_pending();
                locked.unlock();
                self.retire(left);
                break (0, has_pending, true);
            }
            drop(locked);
            prepared = Some((NewNode::new(), copy_for(place, true)));
        };
        let (_, _, has_spilled) = left;
        let is_crowded = has_spilled && self.is_crowded();
        self.note_put(left);
        if is_crowded {
            self.hold_back();
        }
        Changed::Done
    }

    /// Returns whether the lists of the table are long.
    fn is_crowded(&self) -> bool {
        // Relaxed: a hint.
        let extended = self.table.header().units.extended.load(Ordering::Relaxed);
        extended.cast_signed() >= CROWDED * self.table.buckets() as i64
    }

    /// If the table moves, moves more of it, or lets another thread run: the one that has the units may have
    /// lost its processor, and until it goes on, the lists become longer.
    #[cold]
    fn hold_back(&self) {
        let moves = self.writer.core().table().next().is_some();
        if moves && self.writer.help() == Progress::NothingToTake {
            #[cfg(all(test, not(stillpoint_loom)))]
            HELD_BACK.set(HELD_BACK.get() + 1);
            thread::yield_now();
        }
    }

    fn retire(&self, left: [Option<OldNode<K, V>>; 2]) {
        left.into_iter()
            .flatten()
            .for_each(|node| self.writer.world().retire(node));
    }

    /// Takes the entry out that was found.
    #[inline(always)]
    pub fn take(&self) -> Changed {
        if let Some((Place::Slot(slot), _)) = self.found
            && let Some(mut locked) = self.lock_as_seen()
        {
            locked.empty(slot, || self.writer.stamp());
            let is_empty = locked.is_empty();
            drop(locked);
            self.writer.note_taken(self.hash, self.table, is_empty);
            return Changed::Done;
        }
        self.take_after_waiting()
    }

    #[inline(never)]
    fn take_after_waiting(&self) -> Changed {
        let stamp = || self.writer.stamp();
        let Some((place, _)) = self.found else {
            return Changed::NotSame;
        };
        let copy = copy_for(Some(place), false);
        let Some(mut locked) = self.table.lock_at(self.index, stamp) else {
            return Changed::NotSame;
        };
        if !locked.is_same(&self.seen, tag(self.hash)) {
            return Changed::NotSame;
        }
        let is_empty = match place {
            Place::Slot(slot) => {
                self.clean(&mut locked);
                locked.empty(slot, stamp);
                let is_empty = locked.is_empty();
                drop(locked);
                is_empty
            }
            Place::Spilled(old) => {
                let Some(left) = locked.replace_spilled(old, None, copy) else {
                    return Changed::NotSame;
                };
                let is_empty = locked.is_empty() && locked.seen().spill().is_none();
                locked.unlock();
                self.retire(left);
                is_empty
            }
        };
        self.writer.note_taken(self.hash, self.table, is_empty);
        Changed::Done
    }
}

/// A node for the copy that a change of this place needs, allocated before the lock is taken.
fn copy_for<K: Copy, V: Copy>(
    place: Option<Place<'_, K, V>>,
    is_replaced: bool,
) -> Option<NewNode<K, V>> {
    let is_needed = matches!(place, Some(Place::Spilled(found)) if found.needs_copy(is_replaced));
    is_needed.then(NewNode::new)
}

// Detects a change that trusts in what another process has found.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{
        copy::tests::Alone,
        table::{FEWEST_BITS, NewTable},
        word::SLOTS,
    };

    /// User code runs between a look and a change, and may fork: in the child the list may lack the node
    /// that was found, or the one before it.
    #[test]
    fn a_list_is_looked_at_again_in_the_child_of_a_fork() {
        let map = Alone::new(0, false, |_| 0);
        (0..9).for_each(|key| map.put(key, key));
        let found = (0..9).map(|key| map.look(key)).find(|look| {
            look.found
                .is_some_and(|(place, _)| matches!(place, Place::Spilled(_)))
        });
        let mut look = found.expect("there are more than slots");
        let Some((Place::Spilled(found), pair)) = &mut look.found else {
            unreachable!("it was found there");
        };
        let (pair, here) = (*pair, *found);
        *found = here.of_process(u64::MAX);
        assert_eq!(look.take(), Changed::NotSame);
        assert_eq!(look.put(pair), Changed::NotSame);
        let Some((Place::Spilled(found), _)) = &mut look.found else {
            unreachable!("it was found there");
        };
        *found = here;
        assert_eq!(look.take(), Changed::Done);
    }

    /// Another thread has taken all units, and does not go on.
    #[test]
    fn inserts_into_long_lists_hold_back_while_another_thread_has_the_units() {
        let map = Alone::new(0, false, |_| 0);
        let table = map.table();
        let next = NewTable::new(FEWEST_BITS + 1).expect("memory");
        assert!(table.set_next(next).is_ok());
        let all = table.buckets();
        assert!(table.header().units.take(all, |_| all).is_some());
        let keys = SLOTS as u64 + CROWDED as u64 * all as u64;
        (0..keys).for_each(|key| map.put(key, key));
        assert_eq!(HELD_BACK.get(), 0);
        (keys..keys + 5).for_each(|key| map.put(key, key));
        assert_eq!(HELD_BACK.get(), 5);
    }
}
