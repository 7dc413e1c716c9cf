//! The current table of a map, when it moves to another one, and who moves it.
//!
//! A table grows to twice its size when there are more than five entries for each of its buckets of
//! seven: with six and a half, one look-up in seven was of an entry behind a link. It shrinks to half
//! when there is less than one. That is looked at where it shows: when an insert finds its bucket full,
//! and when a removal leaves one empty. A table to whose chains inserts and removals have added many
//! buckets moves to another one of its size, without them.
//!
//! Then each insert and removal moves a few buckets ([`crate::resize`]). The domain's service thread
//! does so, too, in slices, one after each grace period: so a map that is not touched any more also
//! ends its move, and gives its old table back.

use crate::{
    bucket::{Bucket, Locked, Place},
    count::Count,
    driving::Driving,
    floor::{Floor, Raise, State},
    resize::{self, Move, Progress},
    shown::Figure,
    slab::Arena,
    slot::{Head, Slot},
    table::{FEWEST_BITS, Header, MOST_BITS, Seen, Table},
    word::tag,
};
use std::{
    alloc::Layout,
    ptr::{self, NonNull},
};
use stillpoint_platform::{
    barrier::fence_after_rmw,
    sync::{AtomicPtr, Ordering},
};

/// Tables of fewer bits are looked at each time; of larger ones, whose entries are counted in many
/// places, a sample.
pub const LARGE: u32 = 8;

/// From so many bits on a map's count is in many places, and its entries are in slabs: in Miri's small
/// maps, too.
const SPREAD: u32 = if cfg!(miri) { 4 } else { LARGE };

/// How many chunks of units the service thread moves before it turns to other callbacks: a
/// millisecond or two.
pub const SLICE: usize = 1024;

/// Small tables have so many more links before they move because of them.
pub const FEW_LINKS: u64 = 16;

/// How many entries a table of so many bits has before it grows.
pub fn capacity(bits: u32) -> usize {
    (1 << bits) * 5
}

/// The fewest bits for so many entries.
pub fn bits_for(entries: usize) -> Option<u32> {
    (FEWEST_BITS..=MOST_BITS).find(|bits| capacity(*bits) >= entries)
}

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
    NoMemory,
}

/// A map without the types of its entries, and without their drops.
#[derive(Debug)]
pub struct Core {
    table: AtomicPtr<Header>,
    /// Where entries lie, once there are many; null before.
    pub(crate) arena: AtomicPtr<Arena>,
    pub count: Count,
    floor: Floor,
    pub driving: Driving,
}

impl Core {
    /// Makes one with a table for so many entries, which is the smallest that it will have if it
    /// `stays`. `None` without memory.
    pub fn new(entries: usize, stays: bool) -> Option<Self> {
        let bits = bits_for(entries)?;
        let core = Self::of(Table::new(bits)?, Floor::new(bits, stays));
        core.spread_out(bits);
        Some(core)
    }

    /// Makes one with this table, which is its own from now on.
    pub fn of(table: Table<'static>, floor: Floor) -> Self {
        Self {
            table: AtomicPtr::new(table.into_word()),
            arena: AtomicPtr::new(ptr::null_mut()),
            count: Count::new(),
            floor,
            driving: Driving::new(),
        }
    }

    /// The current table. Some of its buckets may be in the next one.
    ///
    /// # Safety
    ///
    /// For as long as `'t` the caller is inside a section of the map's domain, or alone with it.
    #[inline(always)]
    pub unsafe fn table<'t>(&self) -> Table<'t> {
        // Acquire, pairs with `finish`: the table is complete.
        let word = self.table.load(Ordering::Acquire);
        debug_assert!(!word.is_null());
        // SAFETY: from `into_word`; it is retired after it was replaced, and the caller's section
        // had begun before. There is one until `free_tables`.
        unsafe { Table::from_word(word).unwrap_unchecked() }
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
        let arena = unsafe { arena.as_ref() };
        // Not before: what a slower thread has made has no memory, and would show that.
        if let Some(shown) = self.count.shown() {
            arena.show(shown);
        }
        Some(arena)
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

    fn spread_out(&self, bits: u32) {
        if bits >= SPREAD {
            self.count.spread_out();
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
            spare = resize::spare();
            if spare.is_none() {
                return Inserted::NoMemory;
            }
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

    #[cold]
    fn consider_growing(&self, table: Table<'_>) {
        let bits = table.bits();
        let extended = &table.header().units.extended;
        // Of buckets that the move here has made, more may have gone than others have come.
        let extended = extended.load(Ordering::Relaxed).cast_signed();
        if bits < MOST_BITS && self.count.get() > capacity(bits) {
            self.start_move(table, bits + 1);
        } else if extended > (table.buckets() as u64 / 2 + FEW_LINKS).cast_signed() {
            self.start_move(table, bits);
        }
    }

    #[cold]
    fn consider_shrinking(&self, table: Table<'_>) {
        let bits = table.bits();
        if bits > self.floor.state().bits() && self.count.get() < table.buckets() {
            self.start_move(table, bits - 1);
        }
    }

    /// Has it shrink to half if its entries leave a quarter free there, so that it does not grow at
    /// once, and the floor lets it. Returns whether they do.
    fn shrink_if_fits(&self, table: Table<'_>, floor: State) -> bool {
        let (bits, count) = (table.bits(), self.count.get());
        let fits = bits > FEWEST_BITS && count + count / 3 <= capacity(bits - 1);
        if fits && bits > floor.bits() {
            self.start_move(table, bits - 1);
        }
        fits
    }

    /// Makes the table that `table` moves to. Does nothing without memory for it, or while tables
    /// move.
    fn start_move(&self, table: Table<'_>, bits: u32) {
        // Relaxed: only compared. While the table before it moves, it is not the current one.
        let current = self.table.load(Ordering::Relaxed);
        if current != table.into_word() || table.next().is_some() {
            return;
        }
        let Some(next) = Table::new(bits) else { return };
        self.spread_out(bits);
        // Before another thread can end the move.
        self.count.add_shown(Figure::Tables, next.bytes());
        self.count.add_shown(Figure::Moving, 1);
        if !table.set_next(next) {
            self.count
                .add_shown(Figure::Tables, next.bytes().wrapping_neg());
            self.count.add_shown(Figure::Moving, 1_u64.wrapping_neg());
            // SAFETY: no other thread knows it, and its buckets are empty.
            unsafe { next.free_memory() };
        }
    }

    /// Makes the table at least large enough for so many more entries, and the smallest for that.
    /// Does nothing while tables move. Returns false without memory.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    pub unsafe fn reserve(&self, more: usize) -> bool {
        let entries = self.count.get().checked_add(more);
        let Some(bits) = entries.and_then(bits_for) else {
            return false;
        };
        // SAFETY: the caller's promise.
        if unsafe { self.table() }.bits() < bits {
            // The table grows there in steps. Whether there is memory for the last is tried first.
            let Some(last) = Table::new(bits) else {
                return false;
            };
            // SAFETY: no other thread knows it, and its buckets are empty.
            unsafe { last.free_memory() };
        }
        let raise = self.floor.raise(bits);
        // SAFETY: the caller's promise.
        let table = unsafe { self.table() };
        if table.bits() < bits {
            self.start_move(table, table.bits() + 1);
        }
        let reserved = table.bits() >= bits || table.next().is_some();
        if !reserved {
            // SAFETY: the caller's promise.
            unsafe { self.take_back(raise) };
        }
        reserved
    }

    #[cfg(all(test, stillpoint_loom))]
    pub(crate) fn floor(&self) -> &Floor {
        &self.floor
    }

    /// Takes a raise of the floor back. A move that has ended meanwhile may have left the table larger
    /// for it than it is to be.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    pub unsafe fn take_back(&self, raise: Raise) {
        if self.floor.take_back(raise) {
            // SAFETY: the caller's promise.
            let (floor, table) = (self.floor.state(), unsafe { self.table() });
            if floor.fits() {
                self.shrink_if_fits(table, floor);
            }
            self.consider_shrinking(table);
        }
    }

    /// How many entries it has before its table grows.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    pub unsafe fn capacity(&self) -> usize {
        // SAFETY: the caller's promise.
        capacity(unsafe { self.table() }.bits())
    }

    /// Lets the table shrink to what its entries need.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    pub unsafe fn shrink_to_fit(&self) {
        self.floor.remove();
        // SAFETY: the caller's promise.
        self.shrink_if_fits(unsafe { self.table() }, self.floor.state());
    }

    /// Moves a chunk, if the table moves.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    #[inline]
    pub unsafe fn help(&self, reclaim: &impl Reclaim) -> Progress {
        // SAFETY: the caller's promise.
        match Move::of(unsafe { self.table() }) {
            Some(under_way) => self.help_with(under_way, reclaim),
            None => Progress::NothingToTake,
        }
    }

    #[cold]
    fn help_with(&self, under_way: Move<'_>, reclaim: &impl Reclaim) -> Progress {
        let progress = under_way.help(|bucket| reclaim.bucket(bucket));
        if progress == Progress::Finished {
            self.finish(under_way, reclaim);
        }
        progress
    }

    fn finish(&self, Move { from, to }: Move<'_>, reclaim: &impl Reclaim) {
        // Release, pairs with `table`: it is complete.
        let replaced = self.table.compare_exchange(
            from.into_word(),
            to.into_word(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        debug_assert!(replaced.is_ok(), "only this thread has moved the last unit");
        if replaced.is_ok() {
            self.count
                .show_move(from.bytes(), capacity(from.bits()), capacity(to.bits()));
            reclaim.table(from);
            let floor = self.floor.after_move();
            if to.bits() < floor.bits() {
                self.start_move(to, to.bits() + 1);
            }
            self.consider_growing(to);
            if floor.fits() && !self.shrink_if_fits(to, floor) {
                self.floor.has_fitted(floor);
            }
            self.consider_shrinking(to);
        }
    }

    /// Returns whether the caller is to queue a callback that calls [`Core::drive`].
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    #[inline]
    pub unsafe fn wants_driver(&self) -> bool {
        // SAFETY: the caller's promise.
        let moves = unsafe { self.table() }.next().is_some();
        moves && self.driving.is_to_queue()
    }

    /// Moves a slice, for the callback. Returns whether it is to be queued again.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain; after [`Driving::begin`].
    pub unsafe fn drive(&self, reclaim: &impl Reclaim) -> bool {
        let mut progress = Progress::Moved;
        for _ in 0..SLICE {
            // SAFETY: the caller's promise.
            progress = unsafe { self.help(reclaim) };
            if matches!(progress, Progress::NothingToTake | Progress::NoMemory) {
                break;
            }
        }
        // SAFETY: the caller's promise.
        let moves = || unsafe { self.table() }.next().is_some();
        // Without memory, the next writer asks for the callback, and not this one for ever.
        if moves() && progress != Progress::NoMemory {
            return true;
        }
        self.driving.end_queue();
        progress != Progress::NoMemory && moves() && self.driving.is_to_queue()
    }

    /// Frees the tables.
    ///
    /// # Safety
    ///
    /// No other thread uses the map, which is closed; nor does the caller any more.
    pub unsafe fn free_tables(&self) {
        let table = self.table.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the caller's promise; from `into_word`.
        unsafe {
            let Some(table) = Table::from_word(table) else {
                return;
            };
            let next = table.next();
            table.free();
            if let Some(next) = next {
                next.free();
            }
        }
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
        // SAFETY: no other thread has it any more.
        unsafe {
            self.free_tables();
            self.close_arena();
        }
    }
}
