//! When a map's table moves to another one, and who moves it.
//!
//! A table grows to twice its size when it has more than [`Kind::LOAD`] entries for each of its buckets of
//! seven. It shrinks to half when it has fewer entries than buckets. An insert that finds its bucket full,
//! and a removal that leaves one empty, look at that. A table to whose chains inserts and removals have
//! added many buckets moves to another one of its size, without them.
//! A table that was reserved comes in one move, whatever its size; if tables move already, after them.
//!
//! Then each insert and removal moves a few buckets ([`crate::resize`]), unless there is no memory yet
//! for the new ones ([`crate::pages`]). The domain's service thread does so, too, in slices, one after
//! each grace period, unless keys are hashed for it ([`Moves::can_drive`]). So a map that is not touched
//! any more also ends its move, and gives its old table back.

use crate::{
    count::Count,
    driving::Driving,
    floor::{Floor, State},
    resize::{Move, Progress, is_sparse},
    section::{Pinned, Writer},
    slab::OwnedArena,
    table::{FEWEST_BITS, Header, Kind, MOST_BITS, NewTable, OldTable, Table},
};
use std::{ops::Deref, ptr};
use stillpoint_platform::{
    race::RaceCell,
    sync::{AtomicPtr, Ordering},
};

/// Number of chunks of units that the service thread moves before it turns to other callbacks: a
/// millisecond or two, and what the system takes for the memory of the new table, of which a slice
/// that grows fills a huge page.
pub const SLICE: usize = 1024;

/// The number of chunks that one of a move to a sparse table counts as: each entry may ask the system for
/// a page there.
const SPARSE_COST: usize = 32;

/// Small tables have this many more links before they move because of them.
pub const FEW_LINKS: i64 = 16;

/// Number of bits from which on changes look only at a sample whether the table is to grow or shrink. Its
/// entries are counted in many places.
const LARGE: u32 = 8;

/// Returns whether a change of an entry with this hash checks if a table of `bits` bits is to grow or
/// shrink.
#[inline]
pub fn is_looked_at(bits: u32, hash: u64) -> bool {
    bits < LARGE || hash & 0xf00 == 0
}

/// From this number of bits on, a map's entries are counted in many places: in Miri's small maps, too.
const SPREAD: u32 = if cfg!(miri) { 4 } else { LARGE };

/// What a map's machine asks of the map's domain.
pub trait World<S: Kind>: Copy {
    /// Frees what has left a chain, after a grace period.
    fn retire(self, old: S::Old);
    /// Frees the memory of a table after a grace period.
    fn retire_table(self, old: OldTable<S>);
    /// Queues a callback that calls [`Writer::drive`] after a grace period.
    fn drive_later(self);
}

/// A map without its domain.
pub trait HasTables: Sized + Deref<Target = Tables<Self::Kind>> {
    type Kind: Kind;

    /// Makes an empty map of these tables.
    fn of(tables: Tables<Self::Kind>) -> Self;

    /// Makes an empty map. As [`Tables::new`].
    fn new(entries: usize, stays: bool) -> Option<Self> {
        Some(Self::of(Tables::new(entries, stays)?))
    }

    /// Returns where entries lie, if that is not the tables.
    fn arena(&self) -> Option<&RaceCell<OwnedArena>> {
        None
    }
}

/// What differs between maps whose tables move.
///
/// # Safety
///
/// [`move_chunk`](Self::move_chunk) returns [`Progress::Finished`] only if all buckets have moved.
pub unsafe trait Moves<W>: HasTables {
    /// Moves a chunk.
    fn move_chunk(
        writer: Writer<'_, Self, W>,
        under_way: Move<'_, Self::Kind>,
        helper: Helper,
    ) -> Progress;

    /// Whether the service thread can do that, too.
    fn can_drive(under_way: Move<'_, Self::Kind>) -> bool;

    /// Returns whether a table with long chains may move now.
    fn may_shorten_chains(writer: Writer<'_, Self, W>) -> bool;

    /// Notes that a table was retired.
    fn note_retired(&self);
}

/// Which thread moves a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Helper {
    /// One that changes the map.
    Change,
    Service,
}

/// The tables of a map, and how many entries they have.
#[derive(Debug)]
pub struct Tables<S: Kind> {
    /// The current table, or null once it has been freed.
    current: AtomicPtr<Header<S>>,
    pub count: Count,
    pub(crate) floor: Floor,
    pub driving: Driving,
}

impl<S: Kind> Tables<S> {
    /// Makes a table with room for `entries`. If it `stays`, there is never a smaller one. Returns `None` without
    /// memory.
    pub fn new(entries: usize, stays: bool) -> Option<Self> {
        let bits = S::bits_for(entries)?;
        Some(Self::of(NewTable::new(bits)?, Floor::new(bits, stays)))
    }

    /// Takes over this table.
    pub fn of(table: NewTable<S>, floor: Floor) -> Self {
        let bits = table.table().bits();
        let tables = Self {
            current: AtomicPtr::new(table.into_word().as_ptr()),
            count: Count::new(),
            floor,
            driving: Driving::new(),
        };
        tables.spread_out(bits);
        tables
    }

    fn spread_out(&self, bits: u32) {
        if bits >= SPREAD {
            self.count.spread_out();
        }
    }

    /// Starts a move to twice the size if the table has more entries than its size allows. Returns whether
    /// it has.
    fn grow_if_full(&self, table: Table<'_, S>) -> bool {
        let bits = table.bits();
        let is_full = bits < MOST_BITS && self.count.get() > S::capacity(bits);
        if is_full {
            self.start_move(table, bits + 1);
        }
        is_full
    }

    /// Starts a move to half the size if there are fewer entries than buckets, and the floor allows it.
    #[cold]
    pub fn consider_shrinking(&self, table: Table<'_, S>) {
        let bits = table.bits();
        if bits > self.floor.state().bits() && self.count.get() < table.buckets() {
            self.start_move(table, bits - 1);
        }
    }

    /// Starts a move to half the size if the entries leave a part free there ([`Kind::SLACK`]), and the
    /// floor allows it. Returns whether the entries fit.
    fn shrink_if_fits(&self, table: Table<'_, S>, floor: State) -> bool {
        let (bits, count) = (table.bits(), self.count.get());
        let fits = bits > FEWEST_BITS && count + count / S::SLACK <= S::capacity(bits - 1);
        if fits && bits > floor.bits() {
            self.start_move(table, bits - 1);
        }
        fits
    }

    /// Makes the table that `table` moves to. Does nothing if there is no memory, or tables move already.
    pub fn start_move(&self, table: Table<'_, S>, bits: u32) {
        // Relaxed: only compared. While the table before it moves, it is not the current one.
        let current = self.current.load(Ordering::Relaxed);
        if current != table.into_word() || table.next().is_some() {
            return;
        }
        if let Some(next) = NewTable::new(bits) {
            let _ = self.attach(table, next);
        }
    }

    /// Makes `next` the table that `table` moves to.
    ///
    /// # Errors
    ///
    /// If there is one.
    fn attach(&self, table: Table<'_, S>, next: NewTable<S>) -> Result<(), NewTable<S>> {
        let larger = table.buckets().max(next.table().buckets());
        next.table().set_sparse(is_sparse(self.count.get(), larger));
        self.spread_out(next.table().bits());
        table.set_next(next)
    }

    /// Frees the tables.
    ///
    /// # Safety
    ///
    /// No other thread uses the map, which is closed if it has been driven; nor does the caller any more.
    pub unsafe fn free_tables(&self) {
        // Relaxed: no other thread uses the map.
        let table = self.current.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the caller's promise; from `into_word`.
        unsafe {
            let mut rest = Table::from_word(table);
            while let Some(table) = rest {
                rest = table.next();
                table.free();
            }
        }
    }
}

impl<S: Kind> Drop for Tables<S> {
    fn drop(&mut self) {
        // SAFETY: no other thread refers to it any more.
        unsafe { self.free_tables() };
    }
}

impl<C: HasTables> Pinned<C> {
    /// Returns the current table. Some of its buckets may be in the next one.
    #[inline(always)]
    pub fn table(&self) -> Table<'_, C::Kind> {
        // Acquire, pairs with `finish`: the table is complete.
        let word = self.current.load(Ordering::Acquire);
        debug_assert!(!word.is_null());
        // SAFETY: from `into_word`. A table is retired after it was replaced, and this section began before
        // that. It is not null until `free_tables`.
        unsafe { Table::from_word(word).unwrap_unchecked() }
    }

    /// Returns the number of entries at which the table grows.
    pub fn capacity(&self) -> usize {
        C::Kind::capacity(self.table().bits())
    }

    /// Starts a move to a table for `more` more entries, unless the table has room for them, and raises the floor
    /// to that size. If tables move already, the last of them moves to it afterwards. Returns false without
    /// memory.
    pub fn make_room(&self, more: usize) -> bool {
        let entries = self.count.get().checked_add(more);
        let Some(bits) = entries.and_then(C::Kind::bits_for) else {
            return false;
        };
        let last = || self.table().last();
        let mut made = None;
        if last().bits() < bits {
            // Before the floor is raised, which stays as it is without memory.
            made = NewTable::new(bits);
            if made.is_none() {
                return false;
            }
        }
        self.floor.raise(bits);
        loop {
            let last = last();
            if last.bits() >= bits {
                break;
            }
            // None yet if the table has begun to shrink since the first look.
            let Some(next) = made.take().or_else(|| NewTable::new(bits)) else {
                return false;
            };
            match self.attach(last, next) {
                Ok(()) => return true,
                Err(next) => made = Some(next),
            }
        }
        true
    }
}

impl<'g, C, W> Writer<'g, C, W>
where
    C: Moves<W>,
    W: World<C::Kind>,
{
    /// Makes room for `more` more entries, and keeps it: a table for them comes in one move. Returns false
    /// without memory.
    pub fn reserve(self, more: usize) -> bool {
        let is_made = self.make_room(more);
        self.have_driven();
        is_made
    }

    /// Lets the table shrink to what its entries need.
    pub fn shrink_to_fit(self) {
        self.floor.remove();
        self.shrink_if_fits(self.table(), self.floor.state());
        self.have_driven();
    }

    /// Starts a move of a table with too many entries, or with chains that have become long.
    #[cold]
    pub fn consider_growing(self, table: Table<'_, C::Kind>) {
        let extended = &table.header().units.extended;
        // Negative if changes have removed buckets that the move to this table made. Relaxed: a hint.
        let extended = extended.load(Ordering::Relaxed).cast_signed();
        let most = (table.buckets() / C::Kind::BUCKETS_A_LINK) as i64 + FEW_LINKS;
        if !self.grow_if_full(table) && extended > most && C::may_shorten_chains(self) {
            self.start_move(table, table.bits());
        }
    }

    /// Moves a chunk, if the table moves.
    #[inline]
    pub fn help(self) -> Progress {
        match Move::of(self.table()) {
            Some(under_way) => self.help_with(under_way),
            None => Progress::NothingToTake,
        }
    }

    #[cold]
    fn help_with(self, under_way: Move<'_, C::Kind>) -> Progress {
        let progress = self.move_chunk(under_way, Helper::Change);
        self.have_driven();
        progress
    }

    fn move_chunk(self, under_way: Move<'_, C::Kind>, helper: Helper) -> Progress {
        let progress = C::move_chunk(self, under_way, helper);
        if progress == Progress::Finished {
            self.finish(under_way);
        }
        progress
    }

    /// Makes the table to which all buckets have moved the current one, retires the old one, and starts the
    /// next move if one is due.
    fn finish(self, under_way: Move<'_, C::Kind>) {
        let (from, to) = under_way.tables();
        // Release, pairs with `table`: it is complete.
        let replaced = self.current.compare_exchange(
            from.into_word(),
            to.into_word(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        debug_assert!(replaced.is_ok(), "only this thread has moved the last unit");
        if replaced.is_ok() {
            if to.is_sparse() {
                // The entries that come now fill it.
                to.prefer_huge_pages(true);
            }
            // SAFETY: this thread has replaced it, and all of it has moved, by the promise of `Moves`.
            self.world().retire_table(unsafe { from.unlinked() });
            self.note_retired();
            let floor = self.floor.after_move();
            if to.bits() < floor.bits() {
                self.start_move(to, floor.bits());
            }
            self.consider_growing(to);
            if floor.fits() && !self.shrink_if_fits(to, floor) {
                self.floor.has_fitted(floor);
            }
            self.consider_shrinking(to);
        }
    }

    /// Returns the move that the service thread can take part in.
    pub fn to_drive(self) -> Option<Move<'g, C::Kind>> {
        Move::of(self.core().table()).filter(|under_way| C::can_drive(*under_way))
    }

    /// Asks the service thread to move the table, if it can.
    #[inline]
    pub fn have_driven(self) {
        if self.to_drive().is_some() && self.driving.is_to_queue() {
            self.world().drive_later();
        }
    }

    /// Moves a slice, for the callback, after [`Driving::begin`]. Returns whether another one is to follow.
    pub fn drive(self) -> bool {
        let mut moved = 0;
        while moved < SLICE {
            let Some(under_way) = self.to_drive() else {
                break;
            };
            moved += if under_way.is_sparse() {
                SPARSE_COST
            } else {
                1
            };
            let progress = self.move_chunk(under_way, Helper::Service);
            // Where other threads were in the way, another pass costs one grace period.
            if !matches!(progress, Progress::Moved | Progress::Finished) {
                break;
            }
        }
        if self.to_drive().is_some() {
            return true;
        }
        self.driving.end_queue();
        self.to_drive().is_some() && self.driving.is_to_queue()
    }
}

// Detects a reserve that grows in steps or without a table, buckets that are written though they are empty,
// and walks that go through all of a map's capacity.
#[cfg(all(test, target_os = "linux", not(miri), not(stillpoint_loom)))]
pub(crate) mod tests {
    use super::*;
    use crate::{
        bucket::{Bucket, OldBucket},
        core::{Core, New},
        section::Live,
        slot::{Head, spread},
        table::{Old, References},
        used,
        walk::Walk,
    };
    use std::{cell::Cell, collections::HashSet, iter, ptr::NonNull};
    use stillpoint_platform::mmap::page_size;

    /// Frees at once, as there are no readers, and counts the pages of tables.
    #[derive(Default)]
    pub(crate) struct Free {
        pages: Cell<usize>,
    }

    impl World<References> for &Free {
        fn retire(self, old: OldBucket) {
            // SAFETY: a box, which no other thread knows.
            drop(unsafe { Box::from_raw(old.pointer().as_ptr()) });
        }

        fn retire_table(self, old: OldTable) {
            self.pages.set(self.pages.get() + pages_of(old.table()));
            // SAFETY: no other thread knows it.
            unsafe { old.free() };
        }

        fn drive_later(self) {}
    }

    /// A map that one thread uses.
    pub(crate) struct Alone {
        core: Core,
        free: Free,
    }

    impl Deref for Alone {
        type Target = Pinned<Core>;

        fn deref(&self) -> &Pinned<Core> {
            // SAFETY: no other thread has it.
            unsafe { Pinned::of(&self.core) }
        }
    }

    impl Alone {
        pub(crate) fn new(capacity: usize, stays: bool) -> Self {
            Self {
                core: Core::new(capacity, stays).expect("memory"),
                free: Free::default(),
            }
        }

        pub(crate) fn writer(&self) -> Writer<'_, Core, &Free> {
            // SAFETY: there are no readers.
            unsafe { Writer::of(self, &self.free) }
        }
    }

    fn pages_of(table: Table<'_>) -> usize {
        let [from, end] = [0, table.buckets()]
            .map(|at| table.at(0) as *const Bucket as usize + at * size_of::<Bucket>());
        resident(from, end)
    }

    /// Returns how many pages of the memory between two addresses are there.
    pub fn resident(from: usize, to: usize) -> usize {
        let from = from / page_size() * page_size();
        let mut pages = vec![0_u8; (to - from).div_ceil(page_size())];
        // SAFETY: the kernel writes a byte for each page, and looks at no contents.
        let result = unsafe {
            libc::mincore(
                std::ptr::without_provenance_mut(from),
                to - from,
                pages.as_mut_ptr(),
            )
        };
        assert_eq!(result, 0);
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    const BITS: u32 = 20;

    /// With chains, as all the last ones have the same hash.
    const ENTRIES: u64 = 100;

    fn heads() -> Vec<Head> {
        let hash = |key: u64| spread(key.min(80));
        (0..ENTRIES).map(|key| Head::new(hash(key))).collect()
    }

    /// An entry that stays for as long as the map.
    struct Stays<'h>(&'h Head);

    // SAFETY: it stays for as long as the map.
    unsafe impl New for Stays<'_> {
        fn head(&self) -> NonNull<Head> {
            self.0.into()
        }
    }

    /// Turns huge pages off for the process: the kernel makes one of small pages of which a single one is
    /// used, and tables that come later would have them as well.
    pub fn use_small_pages() {
        // SAFETY: it concerns no memory's contents.
        let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
        assert_eq!(result, 0);
    }

    /// Makes a map of these entries, with a table for `capacity`.
    fn with_capacity(capacity: usize, stays: bool, heads: &[Head]) -> Alone {
        use_small_pages();
        let map = Alone::new(capacity, stays);
        for head in heads {
            assert!(map.writer().insert(Stays(head), None).is_ok());
        }
        map
    }

    /// Moves until no table moves. Returns how often it has taken units.
    fn move_all(map: &Alone) -> usize {
        let takes = || map.writer().help() != Progress::NothingToTake;
        (0..).take_while(|_| takes()).count()
    }

    /// Visits all entries as the end of a map does. Returns how many homes it has gone to.
    fn visit_to_the_end(map: &Alone, entries: usize) -> usize {
        let mut walk = Walk::from(Some(map.live()), Some(0));
        let (mut found, mut homes) = (HashSet::new(), 0);
        loop {
            while let Some(entry) = walk.next_here() {
                assert!(found.insert(entry.pointer()));
            }
            if walk.step_to_used().is_none() {
                break;
            }
            homes += 1;
        }
        assert_eq!(found.len(), entries);
        homes
    }

    #[test]
    fn a_reserve_costs_what_the_entries_need_and_so_does_the_end() {
        // The end may come in the middle of the move.
        for part in [1, 2] {
            let heads = heads();
            let map = with_capacity(1000, false, &heads);
            let takes = map.table().buckets() / 16;
            assert!(
                map.writer()
                    .reserve(References::capacity(BITS) - heads.len())
            );
            let to = map.table().next().expect("it moves");
            assert_eq!(to.bits(), BITS);
            for _ in 0..takes / part {
                assert_ne!(map.writer().help(), Progress::NothingToTake);
            }
            let has_ended = map.capacity() == References::capacity(BITS);
            assert_eq!(has_ended, part == 1, "in one move");
            let pages = pages_of(to);
            assert!(pages <= heads.len() + 1, "{pages} pages");
            let homes = visit_to_the_end(&map, heads.len());
            assert!(homes <= 64 * heads.len() + 256, "{homes} homes");
        }
    }

    /// Of both tables: the smaller one is large, too.
    #[test]
    fn a_reserve_of_twice_a_table_costs_what_the_entries_need() {
        let heads = heads();
        let map = with_capacity(References::capacity(BITS), true, &heads);
        assert!(
            map.writer()
                .reserve(References::capacity(BITS + 1) - heads.len())
        );
        let takes = move_all(&map);
        assert_eq!(map.capacity(), References::capacity(BITS + 1));
        let pages = map.free.pages.get() + pages_of(map.table());
        assert!(pages <= 3 * heads.len() + 2, "{pages} pages");
        // Of four chunks for a stretch that was used, and of one for those between two.
        assert!(takes <= 6 * heads.len(), "{takes} times");
        visit_to_the_end(&map, heads.len());
    }

    /// Of both tables: neither is searched again from each home on.
    #[test]
    fn the_end_in_a_move_reads_what_was_used_once() {
        for (more, takes) in [(1, 0), (4, 0), (1, 100), (4, 100)] {
            let heads = heads();
            let map = with_capacity(References::capacity(BITS), true, &heads);
            assert!(
                map.writer()
                    .reserve(References::capacity(BITS + more) - heads.len())
            );
            for _ in 0..takes {
                assert_ne!(map.writer().help(), Progress::NothingToTake);
            }
            assert!(map.table().next().is_some(), "it moves");
            let before = used::READ.get();
            let homes = visit_to_the_end(&map, heads.len());
            let words = (map.table().buckets() + map.table().last().buckets()) / 2048;
            let read = used::READ.get() - before;
            let most = 64 * heads.len();
            assert!(homes <= 2 * most, "{homes} homes");
            assert!(
                read <= words + 8 * (homes + most),
                "{read} words, {homes} homes"
            );
        }
    }

    /// One that was reserved, and one that was made larger than its entries need.
    #[test]
    fn a_shrink_costs_what_the_entries_need() {
        for stays in [true, false] {
            let heads = heads();
            let map = with_capacity(References::capacity(BITS), stays, &heads);
            let mut left = heads.len();
            if stays {
                map.writer().shrink_to_fit();
            } else {
                // One of those whose bucket has no other, and that look at the table.
                let is_looked_at = |head: &&Head| is_looked_at(BITS, head.hash());
                for head in heads[..80].iter().filter(is_looked_at) {
                    // SAFETY: the entries stay until the end of the test.
                    let entry = unsafe { Live::of(head.into()) };
                    assert!(map.writer().remove(entry));
                    left -= 1;
                }
            }
            assert!(map.table().next().is_some(), "it moves");
            move_all(&map);
            assert!(map.table().bits() < 10);
            let steps = (BITS - map.table().bits()) as usize;
            let pages = map.free.pages.get() + pages_of(map.table());
            assert!(pages <= steps * (heads.len() + 1), "{pages} pages");
            visit_to_the_end(&map, left);
        }
    }

    /// By steps, as a clone does, and in one go.
    #[test]
    fn a_walk_costs_what_the_entries_need() {
        let heads = heads();
        let map = with_capacity(References::capacity(BITS), true, &heads);
        let walk = || Walk::from(Some(map.live()), Some(0));
        let mut by_steps = walk();
        let steps = iter::from_fn(|| by_steps.step()).count();
        let (mut found, mut position) = (Vec::new(), Some(0));
        let homes = iter::from_fn(|| {
            position = map.home_at_once(position?, &mut found);
            Some(())
        });
        let homes = homes.count();
        let most = 64 * heads.len() + 1;
        assert!(steps <= most && homes <= most, "{steps} and {homes} homes");
        assert_eq!(found.len(), heads.len());
        assert_eq!(walk().fold(0, |count, _| count + 1), heads.len());
    }

    /// So that it is not refused once the move under way has ended.
    #[test]
    fn a_reserve_while_a_table_moves_makes_its_table_at_once() {
        let map = Alone::new(References::capacity(4), false);
        // To a larger one, to a larger one in turn, and to a smaller one.
        for (bits, last) in [(5, 5), (7, 7), (3, 7)] {
            assert!(map.writer().reserve(References::capacity(bits)));
            assert_eq!(map.table().last().bits(), last);
        }
        assert!(!map.writer().reserve(References::capacity(40)));
        assert_eq!(map.floor.state().bits(), 7);
        move_all(&map);
        assert_eq!(map.capacity(), References::capacity(7));

        // The last of several may be a smaller one.
        map.writer().shrink_to_fit();
        assert_eq!(map.table().last().bits(), 6);
        assert!(map.writer().reserve(References::capacity(7)));
        assert_eq!(map.table().last().bits(), 7);
    }

    #[test]
    fn a_move_is_sparse_if_there_are_fewer_entries_than_pages() {
        let sparse = |entries: usize, from: u32, to: u32| {
            let map = Alone::new(References::capacity(from), true);
            (0..entries).for_each(|_| map.count.add(1));
            assert!(map.writer().reserve(References::capacity(to) - entries));
            Move::of(map.table()).expect("it moves").is_sparse()
        };
        assert!(!sparse(References::capacity(12), 12, 14), "of a full table");
        assert!(!sparse((1 << 14) / 64, 12, 14));
        assert!(sparse((1 << 14) / 64 - 1, 12, 14));
        assert!(sparse(10, 13, 14), "twice an empty one");
    }
}
