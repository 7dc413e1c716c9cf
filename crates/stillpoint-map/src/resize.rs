//! Moving a table's buckets to one of twice, half, or the same size, or to a much larger one that was
//! reserved, a few at a time.
//!
//! A *unit* is a bucket of the smaller table and the buckets of the larger one that it corresponds to,
//! two or more; or a bucket of each, if a table moves to another one of its size, because its
//! chains have become long. Writers take units in chunks, one with each insert or removal, unless they
//! are let off ([`crate::pages`]), and so does the domain's service thread ([`crate::growth`]). A
//! thread moves a unit under the locks of the old buckets: it fills the new ones, which no other
//! thread knows, and then marks the old ones. So at each instant every key has one home: until the
//! mark, and in the old bucket for readers that were there before it; and the new one from then on.
//! No thread waits for another thread's unit, but for a lock, and a table that moves is used as
//! before.
//!
//! `taken` and `done` count the units of a pass over the table. Some may be left out, in a
//! [`crate::CopyMap`]: other threads changed the entries too often, or user code panicked. Then there is
//! another pass. In the child of a fork the units that vanished threads had taken are taken again, by
//! counting from 0: units that have moved are done at once.
//!
//! A move goes only to those stretches of a large table that have been used ([`crate::used`]), and passes the
//! others, on both sides, without a write to a bucket. So it takes memory and time for the entries, not for
//! the table. If there are fewer entries than pages in the larger table, the move is *sparse*: pages are
//! small ones, and come with the entries.
//!
//! If one bucket becomes four or more, a thread writes only to the new ones that get an entry, under the
//! lock of the old one, which is held for a page fault then. Nothing fails in between: only the child of a
//! fork can find entries in the new buckets of a unit that has not moved. So a thread first empties those
//! that have been used.

use crate::{
    bucket::{Bucket, Locked, OldBucket},
    memory::prefetch,
    section::Unshared,
    slot::{Slot, fits},
    split::split,
    table::{AnyLocked, Kind, References, Table, Units},
    used::STRETCH,
    word::{SLOTS, Word},
};
use std::{
    alloc::{Layout, handle_alloc_error},
    ops::Range,
    ptr::NonNull,
};
use stillpoint_platform::{
    fork,
    sync::{AtomicU64, Ordering},
};

/// The units that a thread takes at a time.
pub const CHUNK: usize = if cfg!(stillpoint_loom) { 1 } else { 16 };

/// The buckets that it passes at a time, if no entry has been in them.
const RUN: usize = 1 << 16;

/// The buckets of a unit that grows to two, or shrinks from two, are in one stretch.
const _: () = assert!(STRETCH.is_multiple_of(2 * CHUNK));

/// How many units ahead are fetched.
const AHEAD: usize = 4;

/// A counter of units: in the low bits. Above them, whether some were left out, and which
/// process counts.
#[derive(Clone, Copy)]
struct Count(u64);

const UNITS: u64 = (1 << 46) - 1;
const LEFT_OUT: u64 = 1 << 46;
const PROCESS_SHIFT: u32 = 48;

impl Count {
    /// The value of a counter; 0 if another process has counted.
    fn of(counter: &AtomicU64) -> (u64, Self) {
        // Relaxed: the exchange that follows orders.
        let word = counter.load(Ordering::Relaxed);
        let here = Self::zero();
        let count = if word >> PROCESS_SHIFT == here.0 >> PROCESS_SHIFT {
            Self(word)
        } else {
            here
        };
        (word, count)
    }

    fn zero() -> Self {
        Self(fork::process().generation() << PROCESS_SHIFT)
    }

    fn units(self) -> usize {
        (self.0 & UNITS) as usize
    }
}

/// How far a move is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Other threads have all units that are left.
    NothingToTake,
    /// Other threads were in the way of some, or user code has panicked: another pass moves them.
    LeftOut,
    /// There are more.
    Moved,
    /// The calling thread has moved the last one.
    Finished,
}

/// What a thread has done with the units of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Chunk {
    /// All have moved.
    Moved,
    /// Some were left out.
    LeftOut,
}

impl Units {
    /// Takes some of `all` units: from a unit on as many as `count` says.
    pub fn take(&self, all: usize, count: impl Fn(usize) -> usize) -> Option<Range<usize>> {
        let taken = &self.taken;
        loop {
            let (word, before) = Count::of(taken);
            let first = before.units();
            if first >= all {
                return None;
            }
            let end = (first + count(first)).min(all);
            let next = before.0 + (end - first) as u64;
            // Acquire, pairs with `add_done`, which begins another pass.
            let won = taken.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed);
            if won.is_ok() {
                return Some(first..end);
            }
        }
    }

    /// Adds a chunk that has moved, or of which a part was left out.
    pub fn add_done(&self, units: usize, chunk: Chunk, all: usize) -> Progress {
        let Self { taken, done, .. } = self;
        loop {
            let (word, count) = Count::of(done);
            let left_out = match chunk {
                Chunk::Moved => 0,
                Chunk::LeftOut => LEFT_OUT,
            };
            let next = Count((count.0 + units as u64) | left_out);
            // AcqRel, pairs with `add_done`: the thread that counts the last unit has seen all units moved.
            let won = done.compare_exchange_weak(word, next.0, Ordering::AcqRel, Ordering::Relaxed);
            if won.is_err() {
                continue;
            }
            if next.units() < all {
                return Progress::Moved;
            }
            if next.0 & LEFT_OUT == 0 {
                return Progress::Finished;
            }
            // No thread has a unit any more, and none takes one before `taken` is 0 again.
            done.store(Count::zero().0, Ordering::Relaxed);
            // Release, pairs with `take`: `done` is 0.
            taken.store(Count::zero().0, Ordering::Release);
            return Progress::LeftOut;
        }
    }
}

/// The move of a table to its successor.
pub struct Move<'t, S: Kind = References> {
    from: Table<'t, S>,
    to: Table<'t, S>,
}

impl<S: Kind> Clone for Move<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Kind> Copy for Move<'_, S> {}

impl<'t, S: Kind> Move<'t, S> {
    /// Returns the move of `from`, or `None` if it does not move.
    #[inline]
    pub fn of(from: Table<'t, S>) -> Option<Self> {
        let to = from.next()?;
        Some(Self { from, to })
    }

    /// Returns the old table and the new one.
    #[inline]
    pub fn tables(self) -> (Table<'t, S>, Table<'t, S>) {
        (self.from, self.to)
    }

    /// Returns whether the new table is larger.
    #[inline]
    pub fn grows(self) -> bool {
        self.to.bits() > self.from.bits()
    }

    #[inline]
    pub fn units(self) -> usize {
        self.from.buckets().min(self.to.buckets())
    }

    pub fn counters(self) -> &'t Units {
        &self.from.header().units
    }

    /// The buckets that a unit is in.
    #[inline]
    pub fn olds(self, unit: usize) -> Range<usize> {
        let more = self.from.bits().saturating_sub(self.to.bits());
        unit << more..(unit + 1) << more
    }

    /// The buckets that it moves to.
    #[inline]
    pub fn news(self, unit: usize) -> Range<usize> {
        let more = self.to.bits().saturating_sub(self.from.bits());
        unit << more..(unit + 1) << more
    }

    /// Returns whether the new table has more pages than there are entries.
    #[inline]
    pub fn is_sparse(self) -> bool {
        self.to.is_sparse()
    }

    /// Takes some of the units: a chunk, or those up to the next bucket that may have been used.
    pub fn take(self) -> Option<Range<usize>> {
        let count = |unit| {
            let first = self.olds(unit).start;
            let end = (first + RUN).min(self.from.buckets());
            let used = self.from.used().first(first..end).unwrap_or(end);
            ((used - first) / self.olds(unit).len()).max(CHUNK)
        };
        self.counters().take(self.units(), count)
    }

    /// Passes units whose buckets have not been used. Returns the first one of the others.
    #[inline]
    pub fn pass(self, units: Range<usize>) -> usize {
        let each = self.olds(0).len();
        let used = self.from.used();
        used.pass(units.start * each..units.end * each) / each
    }

    /// Claims a new bucket that this thread fills.
    #[inline]
    pub fn claim_new(self, index: usize) {
        let claimed = self.to.used().claim(index);
        debug_assert!(claimed, "the next table moves after this one");
    }
}

impl<'t> Move<'t> {
    /// The first bucket that is moved to next, or another one if there is none.
    #[inline]
    fn next_bucket(self) -> usize {
        let (_, taken) = Count::of(&self.counters().taken);
        self.news(taken.units()).start
    }

    /// Whether a thread that changes the map moves nothing this time.
    #[inline]
    pub fn lets_off(self) -> bool {
        !self.is_sparse() && self.to.header().pages.lets_off(self.next_bucket())
    }

    /// Has the system give memory to the page that is moved to next, and the one behind it.
    #[inline]
    pub fn touch_ahead(self) {
        if self.is_sparse() {
            return;
        }
        let pages = &self.to.header().pages;
        while let Some(first) = pages.to_touch(self.next_bucket(), self.to.buckets()) {
            self.to.at(first).touch();
            pages.has_touched(first);
        }
    }

    /// Moves a chunk. Old buckets of chains are handed to `retire`, which may run user code.
    pub fn help(self, mut retire: impl FnMut(OldBucket)) -> Progress {
        let Some(Range { start, end }) = self.take() else {
            return Progress::NothingToTake;
        };
        let process = fork::process();
        let mut unit = self.pass(start..end);
        if unit < end && !self.is_sparse() {
            // Before the locks are taken. A chunk's new buckets are on one page.
            let first = self.news(unit).start;
            self.to.at(first).touch();
            self.to.header().pages.has_touched(first);
        }
        let each = self.news(0).len();
        while unit < end {
            if each <= 2 {
                self.claim_new(self.news(unit).start);
            }
            // Most do no more.
            if !(each == 2 && self.split(unit)) && self.move_unit(unit) {
                let old = self.olds(unit);
                // SAFETY: this thread has moved it, which is done once.
                let links = |index| unsafe { self.from.at(index).unlinked() };
                old.flat_map(links).for_each(&mut retire);
            }
            if fork::process() != process {
                // The child counts anew.
                return Progress::NothingToTake;
            }
            unit = self.pass(unit + 1..end);
        }
        let taken = end - start;
        self.counters().add_done(taken, Chunk::Moved, self.units())
    }

    /// Moves one whose bucket becomes two, if that takes no more than the three. Returns false if it
    /// has not moved.
    #[inline]
    fn split(self, unit: usize) -> bool {
        let Some(mut locked) = self.from.lock_at(unit) else {
            return false;
        };
        if unit + AHEAD < self.from.buckets() {
            let ahead = unit + AHEAD;
            prefetch(self.from.behind(ahead));
            prefetch(self.to.behind(2 * ahead));
            prefetch(self.to.behind(2 * ahead + 1));
        }
        assert!(2 * unit + 1 < self.to.buckets());
        // SAFETY: there are such. The unit has not moved, and is locked: so only this thread reaches them.
        let halves =
            [0, 1].map(|half| unsafe { Unshared::of(self.to.at_unchecked(2 * unit + half)) });
        let is_split = split(&locked, halves);
        if is_split {
            locked.set_moved();
        }
        is_split
    }

    /// Returns whether this thread has moved it, and not another before.
    fn move_unit(self, unit: usize) -> bool {
        let mut spares = Vec::new();
        let each = self.news(unit).len();
        if each > 2 && !self.from.at(unit).word().is_moved() {
            // A thread that a fork has removed may have filled some.
            // SAFETY: this thread has taken the unit, which has not moved.
            unsafe { self.to.clear(self.news(unit)) };
        }
        loop {
            let tried = match each {
                1 => self.try_merge(unit, &mut spares),
                2 => self.try_grow(unit, &mut spares),
                _ => self.try_spread(unit, &mut spares),
            };
            match tried {
                Ok(moved) => return moved,
                Err(NeedsSpares(count)) => spares.resize_with(count, spare),
            }
        }
    }

    /// One bucket becomes two.
    fn try_grow(self, unit: usize, spares: &mut Vec<Spare>) -> Result<bool, NeedsSpares> {
        let Some(mut locked) = self.from.lock_at(unit) else {
            return Ok(false);
        };
        let bits = self.from.bits();
        let mut counts = [0; 2];
        for (slot, ..) in locked.entries() {
            counts[usize::from(slot.grown(bits).0)] += 1;
        }
        NeedsSpares::check(&counts, spares)?;
        let [lower, upper] = counts;
        // SAFETY: the unit has not moved, and is locked: so only this thread reaches its new buckets.
        let mut halves = [(2 * unit, lower), (2 * unit + 1, upper)]
            .map(|(index, left)| unsafe { Filler::new(Unshared::of(self.to.at(index)), left) });
        for (slot, tag, _) in locked.entries() {
            let (half, slot) = slot.grown(bits);
            halves[usize::from(half)].push(slot, tag, spares);
        }
        halves.into_iter().for_each(Filler::finish);
        locked.set_moved();
        Ok(true)
    }

    /// One bucket becomes many, which are empty: the entries go to theirs.
    fn try_spread(self, unit: usize, spares: &mut Vec<Spare>) -> Result<bool, NeedsSpares> {
        let Some(mut locked) = self.from.lock_at(unit) else {
            return Ok(false);
        };
        // However they are spread, their chains need no more links than one chain of all.
        NeedsSpares::check(&[locked.entries().count()], spares)?;
        for (_, tag, entry) in locked.entries() {
            let hash = entry.hash();
            // No other thread waits for this lock.
            let (table, mut bucket) = self.to.lock(hash);
            // SAFETY: it is in the map, and goes from one table to the other.
            let slot = unsafe { Slot::entry(entry.pointer(), hash, table.bits()) };
            if bucket.add(slot, tag).is_none() {
                bucket.extend(spares.pop().expect("they were counted"));
                bucket.add(slot, tag).expect("it was extended");
            }
        }
        locked.set_moved();
        Ok(true)
    }

    /// Two buckets become one; or one becomes another, with a chain that is no longer than it must
    /// be.
    fn try_merge(self, unit: usize, spares: &mut Vec<Spare>) -> Result<bool, NeedsSpares> {
        let mut olds = self.olds(unit);
        // Only this thread locks two, so it cannot come to a deadlock.
        let Some(mut lower) = olds.next().and_then(|index| self.from.lock_at(index)) else {
            return Ok(false);
        };
        let mut upper = match olds.next().map(|index| self.from.lock_at(index)) {
            Some(None) => return Ok(false),
            Some(upper) => upper,
            None => None,
        };
        let above = || upper.iter().flat_map(Locked::entries);
        let count = lower.entries().count() + above().count();
        NeedsSpares::check(&[count], spares)?;
        let merges = upper.is_some();
        let moved = |slot: Slot<'t>, is_upper| {
            if merges {
                slot.shrunk(is_upper).expect("it is an entry")
            } else {
                slot
            }
        };
        // SAFETY: as in `try_grow`.
        let bucket = unsafe { Unshared::of(self.to.at(unit)) };
        let mut filler = Filler::new(bucket, count);
        for (slot, tag, _) in lower.entries() {
            filler.push(moved(slot, false), tag, spares);
        }
        for (slot, tag, _) in above() {
            filler.push(moved(slot, true), tag, spares);
        }
        filler.finish();
        lower.set_moved();
        upper.iter_mut().for_each(Locked::set_moved);
        // In this order: a walk that finds only the first one moved goes on behind both
        // (`crate::walk`), also in the child of a fork that removes this thread in between.
        drop(lower);
        drop(upper);
        Ok(true)
    }
}

/// Returns whether a table of this number of buckets has more pages than there are entries, or stretches.
pub fn is_sparse(entries: usize, buckets: usize) -> bool {
    entries < buckets / STRETCH
}

/// An empty bucket for a chain. In a box, because it is to stay where it is.
pub type Spare = Box<Bucket>;

/// So many buckets are needed for chains, before the locks are taken again.
struct NeedsSpares(usize);

impl NeedsSpares {
    /// Returns whether there are enough for chains of so many entries.
    fn check(counts: &[usize], spares: &[Spare]) -> Result<(), Self> {
        // Each bucket but a chain's last has one slot less.
        let links = |count: &usize| count.saturating_sub(SLOTS).div_ceil(SLOTS - 1);
        let needed = counts.iter().map(links).sum();
        if needed > spares.len() {
            Err(Self(needed))
        } else {
            Ok(())
        }
    }
}

/// Makes an empty bucket for a chain. Ends the process if it has an address of more than 48 bits.
pub fn spare() -> Spare {
    let bucket = Box::<Bucket>::default();
    if !fits(NonNull::from(&*bucket)) {
        handle_alloc_error(Layout::new::<Bucket>());
    }
    bucket
}

/// Fills a bucket, and chains more behind it.
struct Filler<'t> {
    bucket: Unshared<&'t Bucket>,
    word: Word,
    used: usize,
    /// How many are to come.
    left: usize,
}

impl<'t> Filler<'t> {
    fn new(bucket: Unshared<&'t Bucket>, left: usize) -> Self {
        Self {
            bucket,
            word: Word::EMPTY,
            used: 0,
            left,
        }
    }

    fn push(&mut self, slot: Slot<'_>, tag: u8, spares: &mut Vec<Spare>) {
        if self.used == SLOTS - 1 && self.left > 1 {
            let spare = spares.pop().expect("they were counted");
            let spare = self.bucket.link(self.word, spare);
            *self = Self::new(spare, self.left);
        }
        self.bucket.set_slot(self.used, slot);
        self.word = self.word.with(self.used, tag);
        self.used += 1;
        self.left -= 1;
    }

    fn finish(self) {
        // What a thread that a fork has removed may have left, or a split that came to nothing.
        for slot in self.used..SLOTS {
            self.bucket.set_slot(slot, Slot::NONE);
        }
        self.bucket.set_word(self.word);
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{
        slot::Head,
        table::{NewTable, Old},
    };

    /// It may be what a thread was filling that a fork has removed. Of a bucket that is all of its
    /// chain, and of one with a link; to a table of twice the size, and to a sparse one.
    #[test]
    fn nothing_stays_of_what_was_in_the_new_buckets() {
        for (entries, bits) in [SLOTS, SLOTS + 1]
            .into_iter()
            .flat_map(|n| [(n, 2), (n, 4)])
        {
            let [old, new] =
                [1, bits].map(|bits| NewTable::<References>::new(bits).expect("memory"));
            let (from, to) = (old.table(), new.table());
            let mut heads = [(); SLOTS + 2].map(|()| Head::new(0));
            let mut slots = heads
                .iter_mut()
                // SAFETY: the entries stay until the end of the test.
                .map(|head| unsafe { Slot::entry(NonNull::from(head), 0, 1) });
            let left = slots.next().expect("there is one");
            for index in 0..to.buckets() {
                // In the middle of a fill, and locked.
                // SAFETY: no other thread knows it.
                let bucket = unsafe { Unshared::of(to.at(index)) };
                bucket.set_slot(SLOTS - 2, left);
                bucket.set_word(Word::EMPTY.with(0, 1).locked());
            }
            for slot in slots.take(entries) {
                let mut locked = from.lock_at(0).expect("it has not moved");
                locked.add_behind(slot, 1);
            }
            // SAFETY: a box, which no other thread knows.
            let retire = |old: OldBucket| drop(unsafe { Box::from_raw(old.pointer().as_ptr()) });
            assert_eq!(Move { from, to }.help(retire), Progress::Finished);
            let found = to.lock_at(0).expect("it is new").entries().count();
            assert_eq!(found, entries);
            for index in 1..to.buckets() {
                let bucket = to.at(index);
                assert!((0..SLOTS).all(|slot| bucket.slot(slot) == Slot::NONE));
                assert_eq!(bucket.word(), Word::EMPTY);
            }
        }
    }
}
