//! The current table of a map, and what changes its entries.

use super::{
    bucket::{Place, Seen, tag},
    epochs::{Epochs, GracePeriods},
    locked::Locked,
    spill::{Found, NewNode, Spill, Tagged},
    table::{InPlace, Table},
};
use crate::{
    core::{fence_change, is_looked_at},
    growth::Tables,
    word::Word,
};
use std::ops::Deref;
use stillpoint_platform::sync::{AtomicU64, Ordering};

/// Returns whether two of these slots or fewer are left: then a bucket asks for those that are
/// pending.
fn are_few(slots: u8) -> bool {
    let without_lowest = |slots: u8| slots & slots.wrapping_sub(1);
    without_lowest(without_lowest(slots)) == 0
}

/// A map's domain: grace periods, and where goes what is no longer used, until readers have left.
pub trait World<K, V>: GracePeriods {
    /// Frees a node after a grace period.
    fn retire_spill(&self, spill: Spill<K, V>);
    /// Frees the memory of a table after a grace period.
    fn retire_table(&self, table: Table<'_, K, V>);
    /// Has [`Core::drive`] called after a grace period.
    fn drive_later(&self);
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    Done,
    /// The bucket is another one than the caller has seen.
    NotSame,
}

/// A look at what a change is about, in a section.
pub struct Look<'t, K, V> {
    table: Table<'t, K, V>,
    index: usize,
    seen: Seen<K, V>,
    found: Option<(Place<K, V>, (K, V))>,
}

impl<'t, K: Copy, V: Copy> Look<'t, K, V> {
    /// Locks the bucket, if it has no spill, and its word is as it was seen: then so are its entries.
    #[inline(always)]
    fn lock_as_seen(&self) -> Option<Locked<'t, K, V>> {
        let (word, index) = (self.seen.word, self.index);
        let bucket = self.table.at(index);
        let is_ours = || word != Word::EMPTY || self.table.used().claim(index);
        (word.is_plain() && is_ours() && bucket.lock(word)).then(|| Locked::of(bucket, word))
    }

    fn place(&self) -> Option<Place<K, V>> {
        Some(self.found?.0)
    }

    /// The entry.
    pub fn pair(&self) -> Option<(K, V)> {
        Some(self.found?.1)
    }

    /// Where the value is.
    ///
    /// # Safety
    ///
    /// Inside the section of the look.
    #[cfg(not(stillpoint_loom))]
    pub unsafe fn value(&self) -> Option<*mut V> {
        let (_, value) = match self.place()? {
            Place::Slot(slot) => self.table.at(self.index).halves(slot),
            // SAFETY: the caller's promise.
            Place::Spilled(found) => unsafe { found.node.halves() },
        };
        Some(value)
    }
}

/// A map without its hasher and its domain.
pub struct Core<K, V, C> {
    pub(super) tables: Tables<InPlace<K, V>>,
    pub(super) epochs: Epochs<C>,
    /// The epoch that was open when the last table was replaced, for [`Epochs::is_past`].
    pub(super) replaced: AtomicU64,
}

impl<K, V, C> Deref for Core<K, V, C> {
    type Target = Tables<InPlace<K, V>>;

    #[inline(always)]
    fn deref(&self) -> &Tables<InPlace<K, V>> {
        &self.tables
    }
}

impl<K: Copy, V: Copy, C: Copy> Core<K, V, C> {
    /// As [`Tables::new`].
    pub fn new(entries: usize, stays: bool) -> Option<Self> {
        Some(Self::of(Tables::new(entries, stays)?))
    }

    pub fn of(tables: Tables<InPlace<K, V>>) -> Self {
        Self {
            tables,
            epochs: Epochs::new(),
            replaced: AtomicU64::new(0),
        }
    }

    /// Looks for an entry that is to be changed.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain that lasts for `'t`.
    #[inline(always)]
    pub unsafe fn look<'t>(&self, hash: u64, mut is_it: impl FnMut(&K) -> bool) -> Look<'t, K, V> {
        // SAFETY: the caller's promise.
        unsafe { self.table() }.fetch(hash);
        loop {
            // SAFETY: the caller's promise.
            let (table, index, word) = unsafe { self.table() }.home(hash);
            let bucket = table.at(index);
            let seen = bucket.seen(word);
            // SAFETY: the caller's promise.
            let found = unsafe { bucket.place(&seen, tag(hash), &mut is_it) };
            let is_spilled = matches!(found, Some((Place::Spilled(_), _)));
            // An update that is under way, and has not taken effect, is waited for.
            if !is_spilled || seen.has_same_slots(bucket.word(), tag(hash)) {
                return Look {
                    table,
                    index,
                    seen,
                    found,
                };
            }
        }
    }

    /// Puts an entry in, or in the place of the one that was found.
    ///
    /// # Safety
    ///
    /// Inside the section of the look, which was for the entry's key, with this hash.
    #[inline(always)]
    pub unsafe fn put(
        &self,
        hash: u64,
        look: &Look<'_, K, V>,
        pair: (K, V),
        world: &impl World<K, V, Cookie = C>,
        hash_of: &impl Fn(&K) -> u64,
    ) -> Changed
    where
        K: Eq,
    {
        // Most changes ask for no more than this. The fewer instructions they are, the more of the
        // next one's the processor begins while it waits for the bucket.
        if let Some(mut locked) = look.lock_as_seen() {
            let (tag, stamp) = (tag(hash), || self.epochs.stamp(world));
            locked.clean(self.epochs.now());
            let done = match look.found {
                Some((Place::Slot(old), _)) => locked.update(old, tag, pair, stamp),
                _ => locked.insert(tag, pair),
            };
            if let Some(left) = done {
                let has_pending = locked.has_pending();
                drop(locked);
                // SAFETY: the caller's promise.
                unsafe {
                    self.note_put(
                        hash,
                        (look.table, look.place()),
                        (left, has_pending, false),
                        world,
                        hash_of,
                    )
                };
                return Changed::Done;
            }
        }
        // SAFETY: the caller's promises.
        unsafe { self.put_after_waiting(hash, look, pair, world, hash_of) }
    }

    /// # Safety
    ///
    /// As for `put`.
    #[inline(never)]
    unsafe fn put_after_waiting(
        &self,
        hash: u64,
        look: &Look<'_, K, V>,
        pair: (K, V),
        world: &impl World<K, V, Cookie = C>,
        hash_of: &impl Fn(&K) -> u64,
    ) -> Changed
    where
        K: Eq,
    {
        let (table, tag, stamp) = (look.table, tag(hash), || self.epochs.stamp(world));
        let place = look.place();
        let mut prepared = None;
        let left = loop {
            let Some(mut locked) = table.lock_at(look.index, stamp) else {
                return Changed::NotSame;
            };
            let is_inherited = place.is_some_and(Place::is_inherited);
            if is_inherited || !locked.is_same(&look.seen, tag) {
                return Changed::NotSame;
            }
            locked.clean(self.epochs.now());
            let done = match place {
                None => locked.insert(tag, pair),
                Some(Place::Slot(old)) => locked.update(old, tag, pair, stamp),
                Some(Place::Spilled(_)) => None,
            };
            if let Some(left) = done {
                break (left, locked.has_pending(), false);
            }
            if let Some((new, copy)) = prepared.take() {
                let entry = Tagged {
                    key: pair.0,
                    value: pair.1,
                    tag,
                };
                let left = match place {
                    None => {
                        locked.push(new, entry);
                        [None; 2]
                    }
                    Some(Place::Slot(old)) => {
                        locked.spill_over(old, new, entry, stamp);
                        [None; 2]
                    }
                    Some(Place::Spilled(old)) => {
                        locked.replace_spilled(old, Some((new, entry)), copy)
                    }
                };
                let has_pending = locked.has_pending();
                locked.unlock();
                left.into_iter()
                    .flatten()
                    .for_each(|node| world.retire_spill(node));
                break (0, has_pending, true);
            }
            drop(locked);
            // SAFETY: inside the section of the look.
            prepared = Some((NewNode::new(), unsafe { copy_for(place, true) }));
        };
        // SAFETY: the caller's promise.
        unsafe { self.note_put(hash, (look.table, look.place()), left, world, hash_of) };
        Changed::Done
    }

    /// An entry has been put in, or in the place of the one that was found: which clean slots are left
    /// (a bit for each), whether others are pending, and whether the entry is behind the bucket.
    ///
    /// # Safety
    ///
    /// As for `put`.
    #[inline(always)]
    pub(super) unsafe fn note_put(
        &self,
        hash: u64,
        (table, place): (Table<'_, K, V>, Option<Place<K, V>>),
        (clean, has_pending, has_spilled): (u8, bool, bool),
        world: &impl World<K, V, Cookie = C>,
        hash_of: &impl Fn(&K) -> u64,
    ) where
        K: Eq,
    {
        if place.is_none() {
            self.count.add(1);
        }
        fence_change();
        if has_pending && are_few(clean) {
            self.epochs.advance(world, has_spilled);
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
            self.consider_growing(table, world);
        }
        // SAFETY: the caller's promise.
        unsafe { self.help(world, hash_of) };
    }

    /// Takes the entry out that was found.
    ///
    /// # Safety
    ///
    /// Inside the section of the look, with this hash.
    #[inline(always)]
    pub unsafe fn take(
        &self,
        hash: u64,
        look: &Look<'_, K, V>,
        world: &impl World<K, V, Cookie = C>,
        hash_of: &impl Fn(&K) -> u64,
    ) -> Changed
    where
        K: Eq,
    {
        if let Some((Place::Slot(slot), _)) = look.found
            && let Some(mut locked) = look.lock_as_seen()
        {
            locked.clean(self.epochs.now());
            locked.empty(slot, || self.epochs.stamp(world));
            let is_empty = locked.is_empty();
            drop(locked);
            // SAFETY: the caller's promise.
            unsafe { self.note_taken(hash, look.table, is_empty, world, hash_of) };
            return Changed::Done;
        }
        // SAFETY: the caller's promises.
        unsafe { self.take_after_waiting(hash, look, world, hash_of) }
    }

    /// # Safety
    ///
    /// As for `take`.
    #[inline(never)]
    unsafe fn take_after_waiting(
        &self,
        hash: u64,
        look: &Look<'_, K, V>,
        world: &impl World<K, V, Cookie = C>,
        hash_of: &impl Fn(&K) -> u64,
    ) -> Changed
    where
        K: Eq,
    {
        let (table, stamp) = (look.table, || self.epochs.stamp(world));
        let Some((place, _)) = look.found else {
            return Changed::NotSame;
        };
        // SAFETY: inside the section of the look.
        let copy = unsafe { copy_for(Some(place), false) };
        let Some(mut locked) = table.lock_at(look.index, stamp) else {
            return Changed::NotSame;
        };
        if place.is_inherited() || !locked.is_same(&look.seen, tag(hash)) {
            return Changed::NotSame;
        }
        let is_empty = match place {
            Place::Slot(slot) => {
                locked.clean(self.epochs.now());
                locked.empty(slot, stamp);
                let is_empty = locked.is_empty();
                drop(locked);
                is_empty
            }
            Place::Spilled(old) => {
                let left = locked.replace_spilled(old, None, copy);
                let is_empty = locked.is_empty() && locked.seen().spill.is_none();
                locked.unlock();
                left.into_iter()
                    .flatten()
                    .for_each(|node| world.retire_spill(node));
                is_empty
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.note_taken(hash, look.table, is_empty, world, hash_of) };
        Changed::Done
    }

    /// The entry that was found has been taken out; its bucket has no other if it `is_empty`.
    ///
    /// # Safety
    ///
    /// As for `take`.
    #[inline(always)]
    pub(super) unsafe fn note_taken(
        &self,
        hash: u64,
        table: Table<'_, K, V>,
        is_empty: bool,
        world: &impl World<K, V, Cookie = C>,
        hash_of: &impl Fn(&K) -> u64,
    ) where
        K: Eq,
    {
        self.count.add(1_u64.wrapping_neg());
        fence_change();
        if is_empty && is_looked_at(table.bits(), hash) {
            self.consider_shrinking(table);
        }
        // SAFETY: the caller's promise.
        unsafe { self.help(world, hash_of) };
    }
}

/// A node for the copy that a change of this place needs, allocated before the lock is taken.
///
/// # Safety
///
/// Inside the section in which the place was found.
unsafe fn copy_for<K: Copy, V: Copy>(
    place: Option<Place<K, V>>,
    is_replaced: bool,
) -> Option<NewNode<K, V>> {
    // SAFETY: the caller's promise.
    let needs_copy = |found: Found<K, V>| unsafe { found.needs_copy(is_replaced) };
    let is_needed = matches!(place, Some(Place::Spilled(found)) if needs_copy(found));
    is_needed.then(NewNode::new)
}

// Detects a change that trusts in what another process has found.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::copy::growth::tests::Alone;

    /// User code runs between a look and a change, and may fork: in the child the list may lack the node
    /// that was found, or the one before it.
    #[test]
    fn a_list_is_looked_at_again_in_the_child_of_a_fork() {
        let (world, hash_of) = (Alone::default(), |_: &u64| 0);
        let core = Core::<u64, u64, ()>::new(0, false).expect("memory");
        // SAFETY: there are no readers.
        unsafe {
            let look = |key: u64| core.look(0, move |other| *other == key);
            for key in 0..9 {
                core.put(0, &look(key), (key, key), &world, &hash_of);
            }
            let found = (0..9).map(look).find(|look| {
                look.found
                    .is_some_and(|(place, _)| matches!(place, Place::Spilled(_)))
            });
            let mut look = found.expect("there are more than slots");
            let Some((Place::Spilled(found), pair)) = &mut look.found else {
                unreachable!("it was found there");
            };
            let (pair, process) = (*pair, found.process);
            found.process += 1;
            assert_eq!(core.take(0, &look, &world, &hash_of), Changed::NotSame);
            assert_eq!(core.put(0, &look, pair, &world, &hash_of), Changed::NotSame);
            let Some((Place::Spilled(found), _)) = &mut look.found else {
                unreachable!("it was found there");
            };
            found.process = process;
            assert_eq!(core.take(0, &look, &world, &hash_of), Changed::Done);
        }
    }
}
