//! When a map moves to another table, and who moves it: by the rules of [`crate::growth`].
//!
//! The entries have no hashes with them: so a table that grows asks for those of the keys, before
//! any lock is taken. That is user code, and left to the threads that change the map. Tables that
//! shrink, or only leave their spills behind, need no hashes: the service thread moves them, too.

use super::{
    core::{Core, World},
    moving::Move,
    table::Table,
};
use crate::{
    core::{FEW_LINKS, SLICE},
    floor::State,
    load::copies::{bits_for, capacity},
    resize::{Progress, is_sparse},
    table::{FEWEST_BITS, MOST_BITS},
};
use stillpoint_platform::sync::Ordering;

impl<K: Copy, V: Copy, C: Copy> Core<K, V, C> {
    pub(super) fn consider_growing(
        &self,
        table: Table<'_, K, V>,
        world: &impl World<K, V, Cookie = C>,
    ) {
        let bits = table.bits();
        let extended = table.header().units.extended.load(Ordering::Relaxed);
        if bits < MOST_BITS && self.count.get() > capacity(bits) {
            self.start_move(table, bits + 1);
        } else if extended > table.buckets() as u64 + FEW_LINKS {
            // Not while readers may hold up the memory of the last table: it counts against no
            // budget, and one that no slot comes free in would soon be replaced again. What is put
            // behind buckets instead does count.
            if self.epochs.is_past(self.replaced.load(Ordering::Relaxed)) {
                self.start_move(table, bits);
            } else {
                self.epochs.advance(world, true);
            }
        }
    }

    pub(super) fn consider_shrinking(&self, table: Table<'_, K, V>) {
        let bits = table.bits();
        if bits > self.floor.state().bits() && self.count.get() < table.buckets() {
            self.start_move(table, bits - 1);
        }
    }

    /// Has it shrink to half if its entries leave a quarter free there, so that it does not grow at
    /// once, and the floor lets it. Returns whether they do.
    fn shrink_if_fits(&self, table: Table<'_, K, V>, floor: State) -> bool {
        let (bits, count) = (table.bits(), self.count.get());
        let fits = bits > FEWEST_BITS && count + count / 3 <= capacity(bits - 1);
        if fits && bits > floor.bits() {
            self.start_move(table, bits - 1);
        }
        fits
    }

    /// Makes the table that `table` moves to. Does nothing without memory for it, or while tables
    /// move.
    pub(super) fn start_move(&self, table: Table<'_, K, V>, bits: u32) {
        // Relaxed: only compared. While the table before it moves, it is not the current one.
        let current = self.table.load(Ordering::Relaxed);
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
    fn attach<'t>(&self, table: Table<'t, K, V>, next: Table<'t, K, V>) -> bool {
        if is_sparse(self.count.get(), table.buckets().max(next.buckets())) {
            next.set_sparse();
        }
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
        let Some(bits) = entries.and_then(bits_for) else {
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
        capacity(unsafe { self.table() }.bits())
    }

    /// Lets the table shrink to what its entries need.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    pub unsafe fn shrink_to_fit(&self, world: &impl World<K, V, Cookie = C>) {
        self.floor.remove();
        // SAFETY: the caller's promise.
        unsafe {
            self.shrink_if_fits(self.table(), self.floor.state());
            self.have_driven(world);
        }
    }

    /// Moves a chunk, if the table moves.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    #[inline]
    pub(super) unsafe fn help(
        &self,
        world: &impl World<K, V, Cookie = C>,
        hash_of: &impl Fn(&K) -> u64,
    ) -> Progress
    where
        K: Eq,
    {
        // SAFETY: the caller's promise.
        match Move::of(unsafe { self.table() }) {
            Some(under_way) => self.help_with(under_way, world, hash_of),
            None => Progress::NothingToTake,
        }
    }

    #[cold]
    fn help_with(
        &self,
        under_way: Move<'_, K, V>,
        world: &impl World<K, V, Cookie = C>,
        hash_of: &impl Fn(&K) -> u64,
    ) -> Progress
    where
        K: Eq,
    {
        let stamp = || self.epochs.stamp(world);
        // SAFETY: the caller of `help` is inside a section.
        let progress = unsafe { under_way.help(world, hash_of, stamp) };
        if progress == Progress::Finished {
            self.finish(under_way, world);
        }
        // SAFETY: the same.
        unsafe { self.have_driven(world) };
        progress
    }

    /// Has the service thread move the table, if it can.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    pub(super) unsafe fn have_driven(&self, world: &impl World<K, V, Cookie = C>) {
        // SAFETY: the caller's promise.
        if unsafe { self.can_drive() } && self.driving.is_to_queue() {
            world.drive_later();
        }
    }

    /// Whether the table moves, and no keys are hashed for that, which is user code.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    pub(super) unsafe fn can_drive(&self) -> bool {
        // SAFETY: the caller's promise.
        let under_way = Move::of(unsafe { self.table() });
        under_way.is_some_and(|under_way| !under_way.grows())
    }

    /// Moves a slice, for the callback. Returns whether it is to be queued again.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain; after [`Driving::begin`].
    pub unsafe fn drive(&self, world: &impl World<K, V, Cookie = C>) -> bool
    where
        K: Eq,
    {
        let stamp = || self.epochs.stamp(world);
        let hash_of = |_: &K| unreachable!("a table that does not grow hashes no keys");
        for _ in 0..SLICE {
            // SAFETY: the caller's promise.
            let under_way = Move::of(unsafe { self.table() });
            let Some(under_way) = under_way.filter(|under_way| !under_way.grows()) else {
                break;
            };
            // SAFETY: the same.
            let progress = unsafe { under_way.help(world, &hash_of, stamp) };
            if progress == Progress::Finished {
                self.finish(under_way, world);
            }
            if !matches!(progress, Progress::Moved | Progress::Finished) {
                break;
            }
        }
        // Where other threads were in the way, another pass costs one grace period.
        // SAFETY: the caller's promise.
        if unsafe { self.can_drive() } {
            return true;
        }
        self.driving.end_queue();
        // SAFETY: the caller's promise.
        let can_drive = unsafe { self.can_drive() };
        can_drive && self.driving.is_to_queue()
    }

    fn finish(&self, Move { from, to }: Move<'_, K, V>, world: &impl World<K, V, Cookie = C>) {
        // Release, pairs with `table`: it is complete.
        let replaced = self.table.compare_exchange(
            from.into_word(),
            to.into_word(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        debug_assert!(replaced.is_ok(), "only this thread has moved the last unit");
        if replaced.is_ok() {
            if to.is_sparse() {
                // What comes now fills it.
                to.prefer_huge_pages(true);
            }
            world.retire_table(from);
            self.replaced
                .store(self.epochs.now().number(), Ordering::Relaxed);
            let floor = self.floor.after_move();
            if to.bits() < floor.bits() {
                self.start_move(to, floor.bits());
            }
            self.consider_growing(to, world);
            if floor.fits() && !self.shrink_if_fits(to, floor) {
                self.floor.has_fitted(floor);
            }
            self.consider_shrinking(to);
        }
    }
}

// Detects a pass that ends a move too early, and a reserve that costs its capacity.
#[cfg(all(test, not(stillpoint_loom)))]
pub(super) mod tests {
    use super::*;
    use crate::{
        copy::{epochs::GracePeriods, spill::Spill},
        resize::{CHUNK, Chunk},
    };
    use std::cell::Cell;

    /// No readers, and so no grace periods; counts how often a driver is asked for.
    #[derive(Default)]
    pub(in super::super) struct Alone(Cell<usize>);

    impl GracePeriods for Alone {
        type Cookie = ();

        fn get_state(&self) {}

        fn has_ended(&self, (): ()) -> bool {
            true
        }

        fn poll(&self, (): ()) -> bool {
            true
        }
    }

    impl World<u64, u64> for Alone {
        fn retire_spill(&self, spill: Spill<u64, u64>) {
            // SAFETY: there are no readers.
            unsafe { spill.free() };
        }

        fn retire_table(&self, table: Table<'_, u64, u64>) {
            // SAFETY: there are no readers, and the thread that replaces it does not look again.
            unsafe { table.forget_lifetime().free_memory() };
        }

        fn drive_later(&self) {
            self.0.set(self.0.get() + 1);
        }
    }

    /// A pass that leaves units out is followed by another one.
    #[test]
    fn driver_goes_on_after_a_pass_that_leaves_units_out() {
        let world = Alone::default();
        let core = Core::<u64, u64, ()>::new(1000, true).expect("memory");
        // SAFETY: there are no readers; the callback's part is played here.
        unsafe {
            let before = core.capacity();
            core.shrink_to_fit(&world);
            let table = core.table();
            let all = table
                .buckets()
                .min(table.next().expect("it moves").buckets());
            let units = &table.header().units;
            // As a thread does that has taken a chunk, and has not moved it.
            let taken = units.take(all, |_| CHUNK).expect("it begins").len();
            units.add_done(taken, Chunk::LeftOut, all);
            assert!(core.drive(&world));
            assert_eq!(core.capacity(), before);
            while core.drive(&world) {}
            assert!(core.capacity() < before);
            core.free_tables();
        }
    }

    /// Those of the entries that find no slot, too.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_reserve_costs_what_the_entries_need() {
        use crate::growth::tests::resident;
        const BITS: u32 = 20;
        const ENTRIES: u64 = 100;
        let world = Alone::default();
        let core = Core::<u64, u64, ()>::new(1000, false).expect("memory");
        // All the last ones have the same hash.
        let hash_of = |key: &u64| crate::slot::spread((*key).min(80));
        // SAFETY: there are no readers.
        unsafe {
            let put = |key: u64| {
                let look = core.look(hash_of(&key), |other| *other == key);
                core.put(hash_of(&key), &look, (key, key), &world, &hash_of);
            };
            (0..ENTRIES).for_each(put);
            let before = core.table().buckets();
            assert!(core.reserve(capacity(BITS) - ENTRIES as usize));
            let to = core.table().next().expect("it moves");
            assert_eq!(to.bits(), BITS);
            let chunks =
                (0..).take_while(|_| core.help(&world, &hash_of) != Progress::NothingToTake);
            assert_eq!(chunks.count(), before / 16, "in one move");
            assert_eq!(core.capacity(), capacity(BITS));

            // Two for an entry, and the header's, which may be a huge one.
            let (from, end) = to.limits();
            let pages = resident(from, end);
            assert!(pages <= 2 * ENTRIES as usize + 512, "{pages} pages");
            for key in 0..ENTRIES {
                let found = to.find(hash_of(&key), |other| *other == key, |(_, value)| value);
                assert_eq!(found, Some(key));
            }
            core.free_tables();
        }
    }
}
