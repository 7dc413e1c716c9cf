//! When a map's table moves to another one, and who moves it.
//!
//! A table grows to twice its size when there are more than four entries for each of its buckets of
//! seven ([`crate::load`]). It shrinks to half when there is less than one. That is looked at where it
//! shows: when an insert finds its bucket full, and when a removal leaves one empty. A table to whose
//! chains inserts and removals have added many buckets moves to another one of its size, without them.
//! A table that was reserved comes in one move, whatever its size.
//!
//! Then each insert and removal moves a few buckets ([`crate::resize`]), unless there is no memory yet
//! for the new ones ([`crate::pages`]). The domain's service thread does so, too, in slices, one after
//! each grace period: so a map that is not touched any more also ends its move, and gives its old table
//! back.

use crate::{
    core::{Core, FEW_LINKS, Reclaim, SLICE, SPARSE_COST},
    floor::{Raise, State},
    load::references::{bits_for, capacity},
    resize::{Move, Progress, is_sparse},
    table::{FEWEST_BITS, MOST_BITS, Table},
};
use stillpoint_platform::sync::Ordering;

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
    pub(crate) fn consider_shrinking(&self, table: Table<'_>) {
        let bits = table.bits();
        if bits > self.floor.state().bits() && self.count.get() < table.buckets() {
            self.start_move(table, bits - 1);
        }
    }

    /// Has it shrink to half if its entries leave an eighth free there, so that it does not grow at
    /// once, and the floor lets it. Returns whether they do. (Tables of copies leave a quarter, of five
    /// entries a bucket: nearly as many stay.)
    fn shrink_if_fits(&self, table: Table<'_>, floor: State) -> bool {
        let (bits, count) = (table.bits(), self.count.get());
        let fits = bits > FEWEST_BITS && count + count / 7 <= capacity(bits - 1);
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
        if is_sparse(table.bits(), bits) {
            next.prefer_huge_pages(false);
        }
        self.spread_out(bits);
        if !table.set_next(next) {
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
            // Another move may be under way, whose end begins this one. Whether there is memory is tried
            // first.
            let Some(tried) = Table::new(bits) else {
                return false;
            };
            // SAFETY: no other thread knows it, and its buckets are empty.
            unsafe { tried.free_memory() };
        }
        let raise = self.floor.raise(bits);
        // SAFETY: the caller's promise.
        let table = unsafe { self.table() };
        if table.bits() < bits {
            self.start_move(table, bits);
        }
        let reserved = table.bits() >= bits || table.next().is_some();
        if !reserved {
            // SAFETY: the caller's promise.
            unsafe { self.take_back(raise) };
        }
        reserved
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
            if is_sparse(from.bits(), to.bits()) {
                // What comes now fills it.
                to.prefer_huge_pages(true);
            }
            reclaim.table(from);
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

// Detects a reserve that grows in steps, new buckets that are written though they are empty, and a walk to
// the end of a map that goes through all of its capacity.
#[cfg(all(test, target_os = "linux", not(miri), not(stillpoint_loom)))]
pub(crate) mod tests {
    use super::*;
    use crate::{
        bucket::Bucket,
        slot::{Head, spread},
        walk::Walk,
    };
    use std::{collections::HashSet, ptr::NonNull};
    use stillpoint_platform::mmap::page_size;

    /// Frees at once: there are no readers.
    struct Free;

    impl Reclaim for Free {
        fn bucket(&self, bucket: NonNull<Bucket>) {
            // SAFETY: a box, which no other thread knows.
            drop(unsafe { Box::from_raw(bucket.as_ptr()) });
        }

        fn table(&self, table: Table<'_>) {
            // SAFETY: no other thread knows it, and its chains have been freed.
            unsafe { table.free_memory() };
        }
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

    #[test]
    fn a_reserve_costs_what_the_entries_need_and_so_does_the_end() {
        const BITS: u32 = 20;
        // With chains, as all the last ones have the same hash.
        const ENTRIES: u64 = 100;
        let core = Core::new(1000, false).expect("memory");
        let hash = |key: u64| spread(key.min(80));
        let heads: Vec<_> = (0..ENTRIES).map(|key| Head { hash: hash(key) }).collect();
        // SAFETY: there are no readers, and the entries stay.
        unsafe {
            for head in &heads {
                core.insert(NonNull::from(head), None, &Free);
            }
            let before = core.table().buckets();
            assert!(core.reserve(capacity(BITS) - ENTRIES as usize));
            let to = core.table().next().expect("it moves");
            assert_eq!(to.bits(), BITS);
            let chunks = (0..).take_while(|_| core.help(&Free) != Progress::NothingToTake);
            assert_eq!(chunks.count(), before / 16, "in one move");
            assert_eq!(core.capacity(), capacity(BITS));

            let [from, end] = [0, to.buckets() - 1].map(|at| std::ptr::from_ref(to.at(at)).addr());
            let pages = resident(from, end);
            assert!(pages <= ENTRIES as usize + 1, "{pages} pages");

            let mut walk = Walk::from(Some(NonNull::from(&core)), Some(0));
            let (mut found, mut homes) = (HashSet::new(), 0);
            loop {
                while let Some(entry) = walk.next_here() {
                    assert!(found.insert(entry));
                }
                walk.skip_unused();
                if walk.step().is_none() {
                    break;
                }
                homes += 1;
            }
            assert_eq!(found.len(), heads.len());
            assert!(homes <= 64 * ENTRIES, "{homes} homes");
        }
    }
}
