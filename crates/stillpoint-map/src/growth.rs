//! When a map's table moves to another one, and who moves it.
//!
//! A table grows to twice its size when there are more than four entries for each of its buckets of
//! seven ([`Kind::LOAD`]). It shrinks to half when there is less than one. That is looked at where it
//! shows: when an insert finds its bucket full, and when a removal leaves one empty. A table to whose
//! chains inserts and removals have added many buckets moves to another one of its size, without them.
//! A table that was reserved comes in one move, whatever its size; if tables move already, after them.
//!
//! Then each insert and removal moves a few buckets ([`crate::resize`]), unless there is no memory yet
//! for the new ones ([`crate::pages`]). The domain's service thread does so, too, in slices, one after
//! each grace period: so a map that is not touched any more also ends its move, and gives its old table
//! back.

use crate::{
    core::{Core, LARGE, Reclaim},
    count::Count,
    driving::Driving,
    floor::{Floor, State},
    resize::{Move, Progress, is_sparse},
    table::{FEWEST_BITS, Header, Kind, MOST_BITS, Table},
};
use std::ptr;
use stillpoint_platform::sync::{AtomicPtr, Ordering};

/// Number of chunks of units that the service thread moves before it turns to other callbacks: a
/// millisecond or two, and what the system takes for the memory of the new table, of which a slice
/// that grows fills a huge page.
pub const SLICE: usize = 1024;

/// The number of chunks that one of a move to a sparse table counts as: each entry may ask the system for
/// a page there.
const SPARSE_COST: usize = 32;

/// Small tables have this many more links before they move because of them.
pub const FEW_LINKS: i64 = 16;

/// From this number of bits on, a map's entries are counted in many places: in Miri's small maps, too.
const SPREAD: u32 = if cfg!(miri) { 4 } else { LARGE };

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
    /// Makes a table for `entries` entries, which is the smallest that there will be if it `stays`. Returns
    /// `None` without memory.
    pub fn new(entries: usize, stays: bool) -> Option<Self> {
        let bits = S::bits_for(entries)?;
        Some(Self::of(Table::new(bits)?, Floor::new(bits, stays)))
    }

    /// Takes over this table.
    pub fn of(table: Table<'_, S>, floor: Floor) -> Self {
        let tables = Self {
            current: AtomicPtr::new(table.into_word()),
            count: Count::new(),
            floor,
            driving: Driving::new(),
        };
        tables.spread_out(table.bits());
        tables
    }

    /// The current table. Some of its buckets may be in the next one.
    ///
    /// # Safety
    ///
    /// For as long as `'t` the caller is inside a section of the map's domain, or alone with it.
    #[inline(always)]
    pub unsafe fn table<'t>(&self) -> Table<'t, S> {
        // Acquire, pairs with `finish_move`: the table is complete.
        let word = self.current.load(Ordering::Acquire);
        debug_assert!(!word.is_null());
        // SAFETY: from `into_word`; it is retired after it was replaced, and the caller's section
        // had begun before. There is one until `free_tables`.
        unsafe { Table::from_word(word).unwrap_unchecked() }
    }

    fn spread_out(&self, bits: u32) {
        if bits >= SPREAD {
            self.count.spread_out();
        }
    }

    /// Starts a move to twice the size if the table has more entries than its size allows. Returns whether
    /// it has.
    pub fn grow_if_full(&self, table: Table<'_, S>) -> bool {
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
    /// floor allows it. Returns whether they do.
    fn shrink_if_fits(&self, table: Table<'_, S>, floor: State) -> bool {
        let (bits, count) = (table.bits(), self.count.get());
        let fits = bits > FEWEST_BITS && count + count / S::SLACK <= S::capacity(bits - 1);
        if fits && bits > floor.bits() {
            self.start_move(table, bits - 1);
        }
        fits
    }

    /// Makes the table that `table` moves to. Does nothing without memory for it, or while tables
    /// move.
    pub fn start_move(&self, table: Table<'_, S>, bits: u32) {
        // Relaxed: only compared. While the table before it moves, it is not the current one.
        let current = self.current.load(Ordering::Relaxed);
        if current != table.into_word() || table.next().is_some() {
            return;
        }
        let Some(next) = Table::new(bits) else { return };
        if !self.attach(table, next) {
            // SAFETY: no other thread knows it, and its buckets are empty.
            unsafe { next.free_memory() };
        }
    }

    /// Makes `next`, which no other thread knows, the table that `table` moves to, unless there is one.
    fn attach<'t>(&self, table: Table<'t, S>, next: Table<'t, S>) -> bool {
        next.set_sparse(is_sparse(
            self.count.get(),
            table.buckets().max(next.buckets()),
        ));
        self.spread_out(next.bits());
        table.set_next(next)
    }

    /// Makes the table at least large enough for `more` more entries, and the smallest for that. If tables
    /// move, the last of them moves to it in turn. Returns false without memory.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    pub unsafe fn reserve(&self, more: usize) -> bool {
        let entries = self.count.get().checked_add(more);
        let Some(bits) = entries.and_then(S::bits_for) else {
            return false;
        };
        // SAFETY: the caller's promise.
        let last = || unsafe { self.table() }.last();
        let mut made = None;
        if last().bits() < bits {
            // Before the floor is raised, which stays as it is without memory.
            made = Table::new(bits);
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
            let Some(next) = made.take().or_else(|| Table::new(bits)) else {
                return false;
            };
            if self.attach(last, next) {
                return true;
            }
            made = Some(next);
        }
        if let Some(made) = made {
            // SAFETY: no other thread knows it, and its buckets are empty.
            unsafe { made.free_memory() };
        }
        true
    }

    /// How many entries it has before its table grows.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    pub unsafe fn capacity(&self) -> usize {
        // SAFETY: the caller's promise.
        S::capacity(unsafe { self.table() }.bits())
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

    /// Makes the table to which all buckets have moved the current one, hands the old one to `retire`, and
    /// starts the next move if one is due, which `consider_growing` also decides.
    pub fn finish_move(
        &self,
        Move { from, to }: Move<'_, S>,
        retire: impl FnOnce(Table<'_, S>),
        consider_growing: impl FnOnce(Table<'_, S>),
    ) {
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
            retire(from);
            let floor = self.floor.after_move();
            if to.bits() < floor.bits() {
                self.start_move(to, floor.bits());
            }
            consider_growing(to);
            if floor.fits() && !self.shrink_if_fits(to, floor) {
                self.floor.has_fitted(floor);
            }
            self.consider_shrinking(to);
        }
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

/// Which thread moves a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Helper {
    /// One that changes the map.
    Change,
    Service,
}

impl Core {
    #[cold]
    pub(crate) fn consider_growing(&self, table: Table<'_>) {
        let extended = &table.header().units.extended;
        // Of buckets that the move here has made, more may have gone than others have come. Relaxed: a hint.
        let extended = extended.load(Ordering::Relaxed).cast_signed();
        if !self.grow_if_full(table) && extended > table.buckets() as i64 / 2 + FEW_LINKS {
            self.start_move(table, table.bits());
        }
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
            Some(under_way) => self.help_with(under_way, reclaim, Helper::Change),
            None => Progress::NothingToTake,
        }
    }

    #[cold]
    fn help_with(&self, under_way: Move<'_>, reclaim: &impl Reclaim, helper: Helper) -> Progress {
        match helper {
            Helper::Change if under_way.lets_off() => return Progress::NothingToTake,
            Helper::Change => {}
            Helper::Service => under_way.touch_ahead(),
        }
        let progress = under_way.help(|bucket| reclaim.bucket(bucket));
        if progress == Progress::Finished {
            self.finish(under_way, reclaim);
        }
        progress
    }

    fn finish(&self, under_way: Move<'_>, reclaim: &impl Reclaim) {
        self.finish_move(
            under_way,
            |old| reclaim.table(old),
            |table| self.consider_growing(table),
        );
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
        let mut moved = 0;
        while moved < SLICE {
            // SAFETY: the caller's promise.
            let Some(under_way) = Move::of(unsafe { self.table() }) else {
                break;
            };
            moved += if under_way.is_sparse() {
                SPARSE_COST
            } else {
                1
            };
            if self.help_with(under_way, reclaim, Helper::Service) == Progress::NothingToTake {
                break;
            }
        }
        // SAFETY: the caller's promise.
        let moves = || unsafe { self.table() }.next().is_some();
        if moves() {
            return true;
        }
        self.driving.end_queue();
        moves() && self.driving.is_to_queue()
    }
}

// Detects a reserve that grows in steps or without a table, buckets that are written though they are empty,
// and walks that go through all of a map's capacity.
#[cfg(all(test, target_os = "linux", not(miri), not(stillpoint_loom)))]
pub(crate) mod tests {
    use super::*;
    use crate::{
        bucket::Bucket,
        core::is_looked_at,
        slot::{Head, spread},
        table::References,
        used,
        walk::Walk,
    };
    use std::{cell::Cell, collections::HashSet, iter, ptr::NonNull};
    use stillpoint_platform::mmap::page_size;

    /// Frees at once, as there are no readers, and counts the pages of tables.
    #[derive(Default)]
    struct Free {
        pages: Cell<usize>,
    }

    impl Reclaim for Free {
        fn bucket(&self, bucket: NonNull<Bucket>) {
            // SAFETY: a box, which no other thread knows.
            drop(unsafe { Box::from_raw(bucket.as_ptr()) });
        }

        fn table(&self, table: Table<'_>) {
            self.pages.set(self.pages.get() + pages_of(table));
            // SAFETY: no other thread knows it, and its chains have been freed.
            unsafe { table.free_memory() };
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
        (0..ENTRIES).map(|key| Head { hash: hash(key) }).collect()
    }

    /// Makes a map of these entries, with a table for `capacity`, which is in small pages.
    ///
    /// # Safety
    ///
    /// The entries stay for as long as the map.
    unsafe fn with_capacity(capacity: usize, stays: bool, heads: &[Head]) -> Core {
        let core = Core::new(capacity, stays).expect("memory");
        // SAFETY: there are no readers, and the caller's promise.
        unsafe {
            core.table().prefer_huge_pages(false);
            for head in heads {
                core.insert(NonNull::from(head), None, &Free::default());
            }
        }
        core
    }

    /// Moves until no table moves. Returns how often it has taken units.
    ///
    /// # Safety
    ///
    /// There are no readers.
    unsafe fn move_all(core: &Core, free: &Free) -> usize {
        // SAFETY: the caller's promise.
        let takes = || unsafe { core.help(free) } != Progress::NothingToTake;
        (0..).take_while(|_| takes()).count()
    }

    /// Visits all entries as the end of a map does. Returns how many homes it has gone to.
    ///
    /// # Safety
    ///
    /// No other thread uses the map.
    unsafe fn visit_to_the_end(core: &Core, entries: usize) -> usize {
        // SAFETY: the caller's promise.
        let mut walk = unsafe { Walk::from(Some(NonNull::from(core)), Some(0)) };
        let (mut found, mut homes) = (HashSet::new(), 0);
        loop {
            while let Some(entry) = walk.next_here() {
                assert!(found.insert(entry));
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
            // SAFETY: there are no readers, and the entries stay.
            unsafe {
                let core = with_capacity(1000, false, &heads);
                let takes = core.table().buckets() / 16;
                assert!(core.reserve(References::capacity(BITS) - heads.len()));
                let to = core.table().next().expect("it moves");
                assert_eq!(to.bits(), BITS);
                let free = Free::default();
                for _ in 0..takes / part {
                    assert_ne!(core.help(&free), Progress::NothingToTake);
                }
                let has_ended = core.capacity() == References::capacity(BITS);
                assert_eq!(has_ended, part == 1, "in one move");
                let pages = pages_of(to);
                assert!(pages <= heads.len() + 1, "{pages} pages");
                let homes = visit_to_the_end(&core, heads.len());
                assert!(homes <= 64 * heads.len() + 256, "{homes} homes");
            }
        }
    }

    /// Of both tables: the smaller one is large, too.
    #[test]
    fn a_reserve_of_twice_a_table_costs_what_the_entries_need() {
        let heads = heads();
        // SAFETY: there are no readers, and the entries stay.
        unsafe {
            let core = with_capacity(References::capacity(BITS), true, &heads);
            assert!(core.reserve(References::capacity(BITS + 1) - heads.len()));
            let free = Free::default();
            let takes = move_all(&core, &free);
            assert_eq!(core.capacity(), References::capacity(BITS + 1));
            let pages = free.pages.get() + pages_of(core.table());
            assert!(pages <= 3 * heads.len() + 2, "{pages} pages");
            // Of four chunks for a stretch that was used, and of one for those between two.
            assert!(takes <= 6 * heads.len(), "{takes} times");
            visit_to_the_end(&core, heads.len());
        }
    }

    /// Of both tables: neither is searched again from each home on.
    #[test]
    fn the_end_in_a_move_reads_what_was_used_once() {
        for (more, takes) in [(1, 0), (4, 0), (1, 100), (4, 100)] {
            let heads = heads();
            // SAFETY: there are no readers, and the entries stay.
            unsafe {
                let core = with_capacity(References::capacity(BITS), true, &heads);
                assert!(core.reserve(References::capacity(BITS + more) - heads.len()));
                let free = Free::default();
                for _ in 0..takes {
                    assert_ne!(core.help(&free), Progress::NothingToTake);
                }
                assert!(core.table().next().is_some(), "it moves");
                let before = used::READ.get();
                let homes = visit_to_the_end(&core, heads.len());
                let words = (core.table().buckets() + core.table().last().buckets()) / 2048;
                let read = used::READ.get() - before;
                let most = 64 * heads.len();
                assert!(homes <= 2 * most, "{homes} homes");
                assert!(
                    read <= words + 8 * (homes + most),
                    "{read} words, {homes} homes"
                );
            }
        }
    }

    /// One that was reserved, and one that was made larger than its entries need.
    #[test]
    fn a_shrink_costs_what_the_entries_need() {
        for stays in [true, false] {
            let heads = heads();
            // SAFETY: there are no readers, and the entries stay.
            unsafe {
                let core = with_capacity(References::capacity(BITS), stays, &heads);
                let (free, mut left) = (Free::default(), heads.len());
                if stays {
                    core.shrink_to_fit();
                } else {
                    // One of those whose bucket has no other, and that look at the table.
                    let is_looked_at = |head: &&Head| is_looked_at(BITS, head.hash);
                    for head in heads[..80].iter().filter(is_looked_at) {
                        assert!(core.remove(NonNull::from(head), &free));
                        left -= 1;
                    }
                }
                assert!(core.table().next().is_some(), "it moves");
                move_all(&core, &free);
                assert!(core.table().bits() < 10);
                let steps = (BITS - core.table().bits()) as usize;
                let pages = free.pages.get() + pages_of(core.table());
                assert!(pages <= steps * (heads.len() + 1), "{pages} pages");
                visit_to_the_end(&core, left);
            }
        }
    }

    /// By steps, as a clone does, and in one go.
    #[test]
    fn a_walk_costs_what_the_entries_need() {
        let heads = heads();
        // SAFETY: there are no readers, and the entries stay.
        unsafe {
            let core = with_capacity(References::capacity(BITS), true, &heads);
            let walk = || Walk::from(Some(NonNull::from(&core)), Some(0));
            let mut by_steps = walk();
            let steps = iter::from_fn(|| by_steps.step()).count();
            let (mut found, mut position) = (Vec::new(), Some(0));
            let homes = iter::from_fn(|| {
                position = core.home_at_once(position?, &mut found);
                Some(())
            });
            let homes = homes.count();
            let most = 64 * heads.len() + 1;
            assert!(steps <= most && homes <= most, "{steps} and {homes} homes");
            assert_eq!(found.len(), heads.len());
            assert_eq!(walk().fold(0, |count, _| count + 1), heads.len());
        }
    }

    /// So that it is not refused once the move under way has ended.
    #[test]
    fn a_reserve_while_a_table_moves_makes_its_table_at_once() {
        let core = Core::new(References::capacity(4), false).expect("memory");
        // SAFETY: there are no readers.
        unsafe {
            // To a larger one, to a larger one in turn, and to a smaller one.
            for (bits, last) in [(5, 5), (7, 7), (3, 7)] {
                assert!(core.reserve(References::capacity(bits)));
                assert_eq!(core.table().last().bits(), last);
            }
            assert!(!core.reserve(References::capacity(40)));
            assert_eq!(core.floor.state().bits(), 7);
            move_all(&core, &Free::default());
            assert_eq!(core.capacity(), References::capacity(7));

            // The last of several may be a smaller one.
            core.shrink_to_fit();
            assert_eq!(core.table().last().bits(), 6);
            assert!(core.reserve(References::capacity(7)));
            assert_eq!(core.table().last().bits(), 7);
        }
    }

    #[test]
    fn a_move_is_sparse_if_there_are_fewer_entries_than_pages() {
        let sparse = |entries: usize, from: u32, to: u32| {
            let core = Core::new(References::capacity(from), true).expect("memory");
            (0..entries).for_each(|_| core.count.add(1));
            // SAFETY: there are no readers.
            unsafe {
                assert!(core.reserve(References::capacity(to) - entries));
                Move::of(core.table()).expect("it moves").is_sparse()
            }
        };
        assert!(!sparse(References::capacity(12), 12, 14), "of a full table");
        assert!(!sparse((1 << 14) / 64, 12, 14));
        assert!(sparse((1 << 14) / 64 - 1, 12, 14));
        assert!(sparse(10, 13, 14), "twice an empty one");
    }
}
