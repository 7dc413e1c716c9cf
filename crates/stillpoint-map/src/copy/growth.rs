//! Who moves the tables of a map: by the rules of [`crate::growth`].
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
    growth::{FEW_LINKS, SLICE},
    resize::Progress,
};
use stillpoint_platform::sync::Ordering;

impl<K: Copy, V: Copy, C: Copy> Core<K, V, C> {
    pub(super) fn consider_growing(
        &self,
        table: Table<'_, K, V>,
        world: &impl World<K, V, Cookie = C>,
    ) {
        // Relaxed: a hint.
        let extended = &table.header().units.extended;
        let extended = extended.load(Ordering::Relaxed).cast_signed();
        if !self.grow_if_full(table) && extended > table.buckets() as i64 + FEW_LINKS {
            // Not while readers may hold up the memory of the last table: it counts against no
            // budget, and one that no slot comes free in would soon be replaced again. What is put
            // behind buckets instead does count. Relaxed: a hint.
            if self.epochs.is_past(self.replaced.load(Ordering::Relaxed)) {
                self.start_move(table, table.bits());
            } else {
                self.epochs.advance(world, true);
            }
        }
    }

    /// Lets the table shrink to what its entries need, and asks for the service thread's help.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    pub unsafe fn shrink_to_fit(&self, world: &impl World<K, V, Cookie = C>) {
        // SAFETY: the caller's promise.
        unsafe {
            self.tables.shrink_to_fit();
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
    /// Inside a section of the map's domain; after [`Driving::begin`](crate::driving::Driving::begin).
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

    fn finish(&self, under_way: Move<'_, K, V>, world: &impl World<K, V, Cookie = C>) {
        let retire = |old: Table<'_, K, V>| {
            world.retire_table(old);
            self.replaced
                .store(self.epochs.now().number(), Ordering::Relaxed);
        };
        self.finish_move(under_way, retire, |table| {
            self.consider_growing(table, world)
        });
    }
}

// Detects a pass that ends a move too early, and a reserve that costs its capacity.
#[cfg(all(test, not(stillpoint_loom)))]
pub(super) mod tests {
    use super::*;
    use crate::{
        copy::{epochs::GracePeriods, spill::Spill, table::InPlace, walk::Walk},
        resize::{CHUNK, Chunk},
        table::{FEWEST_BITS, Kind},
    };
    use std::{cell::Cell, iter, ptr::NonNull};

    /// No readers, and so no grace periods.
    #[derive(Default)]
    pub(in super::super) struct Alone {
        /// Number of pages of the tables that were retired.
        pages: Cell<usize>,
    }

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
            #[cfg(all(target_os = "linux", not(miri)))]
            self.pages.set(self.pages.get() + pages_of(table));
            // SAFETY: there are no readers, and the thread that replaces it does not look again.
            unsafe { table.forget_lifetime().free_memory() };
        }

        fn drive_later(&self) {}
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

    const BITS: u32 = 20;
    const ENTRIES: u64 = 100;

    /// All the last ones have the same hash, and find no slot.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn hash_of(key: &u64) -> u64 {
        crate::slot::spread((*key).min(80))
    }

    /// Returns how many pages a table has, without those of its header, which may be a huge one.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn pages_of(table: Table<'_, u64, u64>) -> usize {
        let (from, end) = table.limits();
        crate::growth::tests::resident(from, end).saturating_sub(512)
    }

    /// Of a table that grows far, of one that grows to twice its size, and of a large one that is to fit.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_move_costs_what_the_entries_need() {
        for (from, to) in [(9, BITS), (BITS, BITS + 1), (BITS, FEWEST_BITS)] {
            let [from, to] = [from, to].map(InPlace::<u64, u64>::capacity);
            let world = Alone::default();
            let core = Core::<u64, u64, ()>::new(from, true).expect("memory");
            // SAFETY: there are no readers.
            unsafe {
                core.table().prefer_huge_pages(false);
                for key in 0..ENTRIES {
                    let look = core.look(hash_of(&key), |other| *other == key);
                    core.put(hash_of(&key), &look, (key, key), &world, &hash_of);
                }
                if to > from {
                    assert!(core.reserve(to - ENTRIES as usize));
                } else {
                    core.shrink_to_fit(&world);
                }
                let takes = (0..)
                    .take_while(|_| core.help(&world, &hash_of) != Progress::NothingToTake)
                    .count();
                if to > from {
                    assert_eq!(core.capacity(), to);
                }
                let tables = if to > from {
                    2
                } else {
                    (BITS - FEWEST_BITS) as usize
                };
                // Four chunks for each stretch that was used, and one for what is between two.
                assert!(takes <= 6 * ENTRIES as usize * tables, "{takes} times");
                // A page of words and one of slots for an entry, in each table.
                let pages = world.pages.get() + pages_of(core.table());
                assert!(
                    pages <= (2 * tables + 1) * ENTRIES as usize,
                    "{pages} pages"
                );
                let mut walk = Walk::from(Some(NonNull::from(&core)), Some(0));
                let steps = iter::from_fn(|| walk.step()).count();
                assert!(steps <= 65 * ENTRIES as usize, "{steps} steps");
                let table = core.table();
                for key in 0..ENTRIES {
                    let found =
                        table.find(hash_of(&key), |other| *other == key, |(_, value)| value);
                    assert_eq!(found, Some(key));
                }
            }
        }
    }
}
