//! A map without the types of its entries: its table, its changes, and where entries lie. When the table
//! moves to another one, and who moves it, is in [`crate::growth`].

use crate::{
    growth::{HasTables, Helper, Moves, Tables, World, is_looked_at},
    resize::{self, Move, Progress},
    section::{Live, Pinned, Writer},
    slab::{Arena, OwnedArena},
    slot::{Head, IN_SLAB, Slot},
    table::{References, Seen, Table},
    word::{Word, tag},
};
use std::{alloc::Layout, mem, ops::Deref, ptr::NonNull};
use stillpoint_platform::{barrier::fence_after_rmw, race::RaceCell, sync::Ordering};

/// An entry that no map has.
///
/// # Safety
///
/// The entry is complete, and the value owns it. Once the value has been forgotten, and the entry put into a
/// map, the entry stays until a grace period after its removal.
pub unsafe trait New: Sized {
    /// Returns the entry's head.
    fn head(&self) -> NonNull<Head>;

    /// Returns the hash of the entry's key.
    fn hash(&self) -> u64 {
        // SAFETY: the entry is complete.
        unsafe { self.head().as_ref() }.hash()
    }

    /// Passes the entry's ownership to the map that has just linked it. Returns its head.
    #[inline(always)]
    fn into_head(self) -> NonNull<Head> {
        let head = self.head();
        mem::forget(self);
        head
    }
}

/// A map without the types of its entries, and without their drops.
#[derive(Debug)]
pub struct Core {
    tables: Tables<References>,
    /// Where entries lie, once there are many.
    arena: RaceCell<OwnedArena>,
}

impl Deref for Core {
    type Target = Tables<References>;

    #[inline(always)]
    fn deref(&self) -> &Tables<References> {
        &self.tables
    }
}

impl HasTables for Core {
    type Kind = References;

    fn of(tables: Tables<References>) -> Self {
        Self {
            tables,
            arena: RaceCell::new(),
        }
    }

    fn arena(&self) -> Option<&RaceCell<OwnedArena>> {
        Some(&self.arena)
    }
}

impl Core {
    /// Returns the arena for new entries, if it has been made.
    #[inline]
    pub fn made_arena(&self) -> Option<&Arena> {
        self.arena.get()
    }

    /// Counts an entry that was put in.
    #[inline]
    fn note_added(&self) {
        self.count.add(1);
        fence_change();
    }

    /// Counts an entry that was taken out. If its home is `empty` now, the table may be too large. Returns
    /// whether that was looked at.
    #[inline]
    fn note_removed(&self, table: Table<'_>, hash: u64, empty: bool) -> bool {
        self.count.add(1_u64.wrapping_neg());
        fence_change();
        let is_considered = empty && is_looked_at(table.bits(), hash);
        if is_considered {
            self.consider_shrinking(table);
        }
        is_considered
    }
}

impl Pinned<Core> {
    /// Returns the arena for new entries of this layout; `None` while there are few entries, which lie in
    /// boxes.
    #[inline]
    pub fn arena(&self, entry: Layout) -> Option<&Arena> {
        match self.made_arena() {
            None if self.count.is_spread_out() => self.make_arena(entry),
            arena => arena,
        }
    }

    #[cold]
    fn make_arena(&self, entry: Layout) -> Option<&Arena> {
        Some(self.arena.put(Arena::for_entries(entry, self.capacity())?))
    }

    /// Inserts an entry, if that takes no more than an empty slot of its home, in this table or the
    /// next. If the table moves, the caller helps then.
    #[inline(always)]
    pub fn add_at_once<E: New>(&self, new: E) -> Result<Live<'_, Head>, E> {
        let added = self.table().add_at_once(new)?;
        self.note_added();
        Ok(added)
    }

    /// Replaces an entry by another with the same key and hash. Fails if it is not in this map, or no
    /// longer.
    ///
    /// # Panics
    ///
    /// If the hashes differ: a walk could visit the new entry twice, and hand it out mutably each time.
    #[inline]
    pub fn replace<'g, E: New>(&'g self, old: Live<'_, Head>, new: E) -> Result<Live<'g, Head>, E> {
        let hash = old.hash();
        assert!(hash | IN_SLAB == new.hash() | IN_SLAB, "the hashes differ");
        let (table, mut locked) = self.table().lock(hash);
        // SAFETY: it is given up below, or not put in.
        let slot = unsafe { Slot::entry(new.head(), hash, table.bits()) };
        if !locked.replace(old, slot, tag(hash)) {
            return Err(new);
        }
        locked.unlock();
        fence_change();
        // SAFETY: it was put in just now, in this section.
        Ok(unsafe { Live::of(new.into_head()) })
    }

    /// Appends the entries of the home of a hash to `found`, without those with lower hashes: all as they are
    /// at one instant, so that no key is there twice. Returns where the next home begins.
    pub fn home_at_once<'g>(&'g self, from: u64, found: &mut Vec<Live<'g, Head>>) -> Option<u64> {
        let current = self.table();
        let mut home = current.home(from);
        // Most homes of a sparse table are empty, and take no memory while they are only read.
        if home.2 != Word::EMPTY {
            loop {
                let (now, locked) = self.table().lock(from);
                (home.0, home.1) = (now, now.index(from));
                let free = found.capacity() - found.len();
                let count = locked.entries().count();
                if count <= free {
                    let entries = locked.entries().map(|(_, _, entry)| entry);
                    found.extend(entries.filter(|entry| entry.hash() >= from));
                    break;
                }
                drop(locked);
                found.reserve(count);
            }
        }
        current.hash_behind(home)
    }
}

impl<'g, W: World<References>> Writer<'g, Core, W> {
    /// Inserts an entry. Returns it if the chain has an entry with its tag that is not in `unequal`; `None`
    /// skips that check.
    #[inline]
    pub fn insert<E: New>(
        self,
        new: E,
        unequal: Option<&[Live<'g, Head>]>,
    ) -> Result<Live<'g, Head>, E> {
        let (table, hash) = (self.core().table(), new.hash());
        let mut spare = None;
        let (table, is_in_home, added) = loop {
            let (table, mut locked) = table.lock(hash);
            if let Some(unequal) = unequal {
                // Both are in the chain's order, unless it has just grown. None of those in `unequal`
                // has been freed, and another one made at its address: the section has found them.
                let mut compared = unequal.iter();
                let is_new = |other| !compared.any(|entry| *entry == other);
                if locked.find(tag(hash), is_new).is_some() {
                    return Err(new);
                }
            }
            // SAFETY: it is given up next, or not put in.
            let slot = unsafe { Slot::entry(new.head(), hash, table.bits()) };
            let mut added = locked.add(slot, tag(hash));
            if added.is_none()
                && let Some(spare) = spare.take()
            {
                locked.extend(spare);
                let extended = &table.header().units.extended;
                extended.fetch_add(1, Ordering::Relaxed);
                added = locked.add(slot, tag(hash));
            }
            if let Some(is_in_home) = added {
                // Before anything that may unwind: readers find the entry, so it must not be dropped.
                // SAFETY: it was put in just now, in this section.
                break (table, is_in_home, unsafe { Live::of(new.into_head()) });
            }
            drop(locked);
            spare = Some(resize::spare());
        };
        self.note_added();
        if !is_in_home && is_looked_at(table.bits(), hash) {
            self.consider_growing(table);
        }
        self.help();
        Ok(added)
    }

    /// Inserts an entry, unless there is one that `is_same` accepts. `is_same` is called without a lock, for
    /// each entry with the tag of `new`; again if another thread changes the bucket meanwhile.
    #[inline]
    pub fn add_unless<E: New>(
        self,
        new: E,
        is_same: impl FnMut(&E, Live<'g, Head>) -> bool,
    ) -> Result<Live<'g, Head>, (Live<'g, Head>, E)> {
        match self.core().add_at_once(new) {
            Ok(new) => {
                self.help();
                Ok(new)
            }
            Err(new) => self.add_after_looking(new, is_same),
        }
    }

    /// Inserts as [`add_unless`](Self::add_unless) does. Looks for another entry first.
    #[inline(never)]
    pub fn add_after_looking<E: New>(
        self,
        mut new: E,
        mut is_same: impl FnMut(&E, Live<'g, Head>) -> bool,
    ) -> Result<Live<'g, Head>, (Live<'g, Head>, E)> {
        loop {
            let mut unequal = Vec::new();
            let found = self.core().table().find(new.hash(), |other| {
                let same = is_same(&new, other);
                if !same {
                    unequal.push(other);
                }
                same
            });
            if let Some(found) = found {
                return Err((found, new));
            }
            match self.insert(new, Some(&unequal)) {
                Ok(new) => return Ok(new),
                Err(refused) => new = refused,
            }
        }
    }

    /// Removes an entry. Returns whether it was in this map.
    #[inline]
    pub fn remove(self, entry: Live<'_, Head>) -> bool {
        let (table, hash) = (self.table(), entry.hash());
        match table.remove_at_once(entry, hash) {
            Some(empty) => self.end_removal(table, hash, empty),
            None => return self.remove_after_waiting(entry),
        }
        true
    }

    /// As [`remove`](Self::remove), of an entry with that hash that was seen there, if that takes no more
    /// than its bucket. Returns whether it was done.
    ///
    /// # Safety
    ///
    /// It was seen in this map.
    #[inline]
    pub unsafe fn remove_seen(self, entry: Live<'_, Head>, hash: u64, seen: Seen<'_>) -> bool {
        let Some(empty) = seen.remove_at_once(entry) else {
            return false;
        };
        self.end_removal(seen.table(), hash, empty);
        true
    }

    /// Ends a removal that took no more than a bucket, of a table that did not move.
    #[inline]
    fn end_removal(self, table: Table<'_>, hash: u64, empty: bool) {
        if self.note_removed(table, hash, empty) {
            self.have_driven();
        }
    }

    #[inline(never)]
    fn remove_after_waiting(self, entry: Live<'_, Head>) -> bool {
        let (table, hash) = (self.table(), entry.hash());
        let (table, mut locked) = table.lock(hash);
        let Some(left) = locked.remove(entry, tag(hash)) else {
            return false;
        };
        let empty = locked.is_home_empty();
        drop(locked);
        self.note_removed(table, hash, empty);
        for bucket in left {
            let extended = &table.header().units.extended;
            extended.fetch_sub(1, Ordering::Relaxed);
            self.world().retire(bucket);
        }
        self.help();
        true
    }
}

// SAFETY: `Move::help` says so.
unsafe impl<W: World<References>> Moves<W> for Core {
    fn move_chunk(writer: Writer<'_, Self, W>, under_way: Move<'_>, helper: Helper) -> Progress {
        match helper {
            Helper::Change if under_way.lets_off() => return Progress::NothingToTake,
            Helper::Change => {}
            Helper::Service => under_way.touch_ahead(),
        }
        under_way.help(|bucket| writer.world().retire(bucket))
    }

    #[inline(always)]
    fn can_drive(_: Move<'_>) -> bool {
        true
    }

    fn may_shorten_chains(_: Writer<'_, Self, W>) -> bool {
        true
    }

    fn note_retired(&self) {}
}

/// Orders a change before what the thread does next: so each operation takes effect before it returns, as
/// other threads see it. After a read-modify-write it costs nothing on x86-64.
#[inline]
pub fn fence_change() {
    // Fence, pairs with `fence_change`: of two threads that each change a key, and then look the other's up,
    // one sees the other's change.
    fence_after_rmw();
}
