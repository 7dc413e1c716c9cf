//! A map without the types of its entries: its table, its changes, and where entries lie. When the table
//! moves to another one, and who moves it, is in [`crate::growth`].

use crate::{
    bucket::{Bucket, Locked, Place},
    growth::Tables,
    resize,
    slab::Arena,
    slot::{Head, Slot},
    table::{References, Seen, Table},
    word::{Word, tag},
};
use std::{
    alloc::Layout,
    ops::Deref,
    ptr::{self, NonNull},
};
use stillpoint_platform::{
    barrier::fence_after_rmw,
    sync::{AtomicPtr, Ordering},
};

/// Tables of fewer bits are looked at each time; of larger ones, whose entries are counted in many
/// places, a sample.
pub const LARGE: u32 = 8;

/// Where what is no longer used goes until readers have left.
pub trait Reclaim {
    /// Frees a bucket of a chain after a grace period.
    fn bucket(&self, bucket: NonNull<Bucket>);
    /// Frees the memory of a table after a grace period.
    fn table(&self, table: Table<'_>);
}

/// What became of an insert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    Done,
    /// There is an entry with the tag that the caller has not compared.
    Changed,
}

/// A map without the types of its entries, and without their drops.
#[derive(Debug)]
pub struct Core {
    tables: Tables<References>,
    /// Where entries lie, once there are many; null before.
    pub(crate) arena: AtomicPtr<Arena>,
}

impl Deref for Core {
    type Target = Tables<References>;

    #[inline(always)]
    fn deref(&self) -> &Tables<References> {
        &self.tables
    }
}

impl Core {
    /// As [`Tables::new`].
    pub fn new(entries: usize, stays: bool) -> Option<Self> {
        Some(Self::of(Tables::new(entries, stays)?))
    }

    pub fn of(tables: Tables<References>) -> Self {
        Self {
            tables,
            arena: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Where new entries, which are of this layout, are to lie; `None` for boxes: while there are
    /// few.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    #[inline]
    pub unsafe fn arena(&self, entry: Layout) -> Option<&Arena> {
        match self.made_arena() {
            // SAFETY: the caller's promise.
            None if self.count.is_spread_out() => unsafe { self.make_arena(entry) },
            arena => arena,
        }
    }

    /// Where new entries are to lie, if there is such a place already.
    #[inline]
    pub fn made_arena(&self) -> Option<&Arena> {
        // Acquire, pairs with `make_arena`: it is complete.
        let arena = NonNull::new(self.arena.load(Ordering::Acquire));
        // SAFETY: it is there until `close_arena`.
        arena.map(|arena| unsafe { arena.as_ref() })
    }

    /// # Safety
    ///
    /// As for [`Core::arena`].
    #[cold]
    unsafe fn make_arena(&self, entry: Layout) -> Option<&Arena> {
        // SAFETY: the caller's promise.
        let made = Arena::new(entry, unsafe { self.capacity() })?;
        // Release, pairs with `arena`: it is complete. Acquire: so is the faster thread's.
        let set = self.arena.compare_exchange(
            ptr::null_mut(),
            made.as_ptr(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        let arena = match set {
            Ok(_) => made,
            Err(faster) => {
                // SAFETY: no other thread knows it.
                unsafe { Arena::close(made) };
                NonNull::new(faster)?
            }
        };
        // SAFETY: it is there until `close_arena`.
        Some(unsafe { arena.as_ref() })
    }

    /// Ends the arena, when its last slot is free.
    ///
    /// # Safety
    ///
    /// No other thread uses the map; nor does the caller any more.
    pub unsafe fn close_arena(&self) {
        let arena = self.arena.swap(ptr::null_mut(), Ordering::Relaxed);
        if let Some(arena) = NonNull::new(arena) {
            // SAFETY: the caller's promise.
            unsafe { Arena::close(arena) };
        }
    }

    /// Puts an entry in, unless one with its tag is there that is not in `unequal`; whatever is there
    /// for `None`.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain, since before the entries in `unequal` were found. The
    /// entry is complete, and in no map.
    #[inline]
    pub unsafe fn insert(
        &self,
        entry: NonNull<Head>,
        unequal: Option<&[NonNull<Head>]>,
        reclaim: &impl Reclaim,
    ) -> Inserted {
        // SAFETY: the caller's promises.
        let (table, hash) = unsafe { (self.table(), entry.as_ref().hash) };
        let mut spare = None;
        let (table, place) = loop {
            let (table, mut locked) = table.lock(hash);
            if let Some(unequal) = unequal {
                // Both are in the chain's order, unless it has just grown. None of those in `unequal`
                // has been freed, and another one made at its address: the section has found them.
                let mut compared = unequal.iter();
                let is_new = |other| !compared.any(|entry| *entry == other);
                if locked.find(tag(hash), is_new).is_some() {
                    return Inserted::Changed;
                }
            }
            let mut free = locked.free();
            if free.is_none()
                && let Some(spare) = spare.take()
            {
                locked.extend(spare);
                let extended = &table.header().units.extended;
                extended.fetch_add(1, Ordering::Relaxed);
                free = locked.free();
            }
            if let Some(place) = free {
                locked.fill(place, Slot::entry(entry, hash, table.bits()), tag(hash));
                break (table, place);
            }
            drop(locked);
            spare = Some(resize::spare());
        };
        self.note_added();
        if !place.is_in(table.at(table.index(hash))) && is_looked_at(table.bits(), hash) {
            self.consider_growing(table);
        }
        // SAFETY: the caller's promise.
        unsafe { self.help(reclaim) };
        Inserted::Done
    }

    /// Replaces an entry by another with the same key. Returns whether it was there.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain, since before `old` was found. `new` is complete, has
    /// the same hash, and is in no map.
    #[inline]
    pub unsafe fn replace(&self, old: NonNull<Head>, new: NonNull<Head>) -> bool {
        // SAFETY: the caller's promises.
        let (table, hash) = unsafe { (self.table(), old.as_ref().hash) };
        let (table, mut locked) = table.lock(hash);
        let place = place_of(&locked, old, hash);
        if let Some(place) = place {
            locked.replace(place, Slot::entry(new, hash, table.bits()));
            locked.unlock();
            fence_change();
        }
        place.is_some()
    }

    /// Takes an entry out. Returns whether it was there.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain, since before `entry` was found.
    #[inline]
    pub unsafe fn remove(&self, entry: NonNull<Head>, reclaim: &impl Reclaim) -> bool {
        // SAFETY: the caller's promises.
        let (table, hash) = unsafe { (self.table(), entry.as_ref().hash) };
        if let Some(empty) = table.remove_at_once(entry, hash) {
            self.note_removed(table, hash, empty);
            return true;
        }
        // SAFETY: the same.
        unsafe { self.remove_after_waiting(entry, reclaim) }
    }

    /// As [`Core::remove`], of an entry with that hash that was seen there, if that takes no more than
    /// its bucket. Returns whether the table may move since; `None` if nothing was done.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub unsafe fn remove_seen(
        &self,
        entry: NonNull<Head>,
        hash: u64,
        seen: Seen<'_>,
    ) -> Option<bool> {
        let empty = seen.remove_at_once(entry)?;
        Some(self.note_removed(seen.table(), hash, empty))
    }

    /// # Safety
    ///
    /// As for `remove`.
    #[inline(never)]
    unsafe fn remove_after_waiting(&self, entry: NonNull<Head>, reclaim: &impl Reclaim) -> bool {
        // SAFETY: the caller's promises.
        let (table, hash) = unsafe { (self.table(), entry.as_ref().hash) };
        let (table, mut locked) = table.lock(hash);
        let Some(place) = place_of(&locked, entry, hash) else {
            return false;
        };
        let left = locked.clear(place);
        let empty = locked.is_home_empty();
        drop(locked);
        self.note_removed(table, hash, empty);
        for bucket in Bucket::from_link(left) {
            let extended = &table.header().units.extended;
            extended.fetch_sub(1, Ordering::Relaxed);
            reclaim.bucket(bucket);
        }
        // SAFETY: the caller's promise.
        unsafe { self.help(reclaim) };
        true
    }

    /// An entry has been put in.
    #[inline]
    pub fn note_added(&self) {
        self.count.add(1);
        fence_change();
    }

    /// An entry with that hash has been taken out; its home has no other if it is `empty`. Returns
    /// whether the table may move since.
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

    /// Appends the entries of the home of a hash to `found`, without those with lower hashes: all as they are
    /// at one instant, so that no key is there twice. Returns where the next home begins.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain for as long as `found` is used.
    pub unsafe fn home_at_once(&self, from: u64, found: &mut Vec<NonNull<Head>>) -> Option<u64> {
        // SAFETY: the caller's promise.
        let current = unsafe { self.table() };
        let mut home = current.home(from);
        // Most homes of a sparse table are empty, and take no memory while they are only read.
        if home.2 != Word::EMPTY {
            loop {
                // SAFETY: the caller's promise.
                let (now, locked) = unsafe { self.table() }.lock(from);
                (home.0, home.1) = (now, now.index(from));
                let free = found.capacity() - found.len();
                let count = locked.entries().count();
                if count <= free {
                    let entries = locked.entries().filter_map(|(slot, _)| slot.as_entry());
                    // SAFETY: found in the caller's section.
                    let is_ahead = |entry: &NonNull<Head>| unsafe { entry.as_ref() }.hash >= from;
                    found.extend(entries.filter(is_ahead));
                    break;
                }
                drop(locked);
                found.reserve(count);
            }
        }
        current.hash_behind(home)
    }
}

/// Between a change and what the thread does next: so each operation takes effect before it
/// returns, as other threads see it. After a read-modify-write it costs nothing on x86-64.
#[inline]
pub fn fence_change() {
    // Fence, pairs with itself: of two threads that each change a key, and then look the other's up,
    // one sees the other's change.
    fence_after_rmw();
}

/// Whether a change of an entry with this hash looks whether a table of so many bits is to grow or
/// shrink.
#[inline]
pub fn is_looked_at(bits: u32, hash: u64) -> bool {
    bits < LARGE || hash & 0xf00 == 0
}

#[inline]
fn place_of<'t>(locked: &Locked<'t>, entry: NonNull<Head>, hash: u64) -> Option<Place<'t>> {
    locked.find(tag(hash), |other| other == entry)
}

impl Drop for Core {
    fn drop(&mut self) {
        // SAFETY: no other thread refers to it any more.
        unsafe { self.close_arena() };
    }
}
