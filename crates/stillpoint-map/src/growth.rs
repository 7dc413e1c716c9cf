//! When a map's table moves to another one, and who moves it.
//!
//! A table grows to twice its size when there are more than four entries for each of its buckets of
//! seven ([`crate::load`]). It shrinks to half when there is less than one. That is looked at where it
//! shows: when an insert finds its bucket full, and when a removal leaves one empty. A table to whose
//! chains inserts and removals have added many buckets moves to another one of its size, without them.
//!
//! Then each insert and removal moves a few buckets ([`crate::resize`]), unless there is no memory yet
//! for the new ones ([`crate::pages`]). The domain's service thread does so, too, in slices, one after
//! each grace period: so a map that is not touched any more also ends its move, and gives its old table
//! back.

use crate::{
    core::{Core, FEW_LINKS, Reclaim, SLICE},
    floor::{Raise, State},
    load::references::{bits_for, capacity},
    resize::{Move, Progress},
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
        for _ in 0..SLICE {
            // SAFETY: the caller's promise.
            let Some(under_way) = Move::of(unsafe { self.table() }) else {
                break;
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
