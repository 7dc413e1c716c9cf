//! Moving a table's buckets to one of twice, half, or the same size: in units, as [`crate::resize`]
//! does.
//!
//! A thread first looks at a unit, as a reader, and asks for the hashes of the keys if the table
//! grows: user code, which may use the map again. Then it allocates. Then it locks the old buckets,
//! and goes on if they still have the same entries. If not, it tries again, and asks only for hashes
//! of keys that are new: a slow hash would lose to other threads' updates each time.

use super::{
    core::World,
    locked::Locked,
    spill::{NewSpill, Tagged},
    table::Table,
};
use crate::{
    resize::{Chunk, Progress},
    table::Units,
    word::SLOTS,
};
use std::{mem, ops::Range};
use stillpoint_platform::fork;

/// A unit whose entries change each time between the look and the lock is left for another pass.
const TRIES: usize = 16;

/// The move of one table to another.
pub struct Move<'t, K, V> {
    pub from: Table<'t, K, V>,
    pub to: Table<'t, K, V>,
}

impl<K, V> Clone for Move<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Move<'_, K, V> {}

/// What a unit has become.
enum Unit {
    /// This thread has moved it.
    Moved,
    /// Another thread had.
    Done,
    /// It has other entries now.
    NotSame,
    NoMemory,
}

/// The entries for each new bucket of a unit.
type Halves<K, V> = [Vec<Tagged<K, V>>; 2];

/// Counts a chunk, of which a part is left out if user code panics.
struct Taken<'t> {
    /// Whose thread has taken it.
    process: u64,
    units: &'t Units,
    count: usize,
    all: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // The child of a fork counts anew, and has not taken it.
        if fork::process().generation() == self.process {
            self.units.add_done(self.count, Chunk::LeftOut, self.all);
        }
    }
}

impl<'t, K, V> Move<'t, K, V> {
    /// The move of a table, if it moves.
    pub fn of(from: Table<'t, K, V>) -> Option<Self> {
        let to = from.next()?;
        Some(Self { from, to })
    }

    /// Whether keys are hashed for it.
    pub fn grows(self) -> bool {
        self.to.bits() > self.from.bits()
    }

    fn units(self) -> usize {
        self.from.buckets().min(self.to.buckets())
    }

    /// The buckets that a unit is in.
    fn olds(self, unit: usize) -> Range<usize> {
        let each = self.from.buckets() / self.units();
        unit * each..(unit + 1) * each
    }

    /// The buckets that it moves to.
    fn news(self, unit: usize) -> Range<usize> {
        let each = self.to.buckets() / self.units();
        unit * each..(unit + 1) * each
    }
}

impl<K: Copy + Eq, V: Copy> Move<'_, K, V> {
    /// Moves a chunk.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain.
    pub unsafe fn help(
        self,
        world: &impl World<K, V>,
        hash_of: &impl Fn(&K) -> u64,
        stamp: impl Fn() -> u16 + Copy,
    ) -> Progress {
        let counters = &self.from.header().units;
        let Some(units) = counters.take(self.units()) else {
            return Progress::NothingToTake;
        };
        let process = fork::process().generation();
        let (count, all) = (units.len(), self.units());
        let taken = Taken {
            process,
            units: counters,
            count,
            all,
        };
        // Before the locks are taken. The words of a chunk's new buckets are mostly on one page. Their
        // slots are written without atomics, and so only under the locks.
        self.to.at(self.news(units.start).start).touch();
        let mut halves = Halves::default();
        let mut chunk = Chunk::Moved;
        for unit in units {
            // SAFETY: the caller's promise.
            let moved = unsafe { self.move_unit(unit, &mut halves, world, hash_of, stamp) };
            chunk = chunk.max(moved);
            if fork::process().generation() != process {
                return Progress::NothingToTake;
            }
        }
        mem::forget(taken);
        counters.add_done(count, chunk, all)
    }

    /// Returns whether it has moved, or why not.
    ///
    /// # Safety
    ///
    /// As for `help`.
    unsafe fn move_unit(
        self,
        unit: usize,
        halves: &mut Halves<K, V>,
        world: &impl World<K, V>,
        hash_of: &impl Fn(&K) -> u64,
        stamp: impl Fn() -> u16 + Copy,
    ) -> Chunk {
        halves.iter_mut().for_each(Vec::clear);
        let mut before = Halves::default();
        for tries in 0..TRIES {
            // Not the first time: the memory of what is empty serves all units of a chunk.
            if tries > 0 {
                mem::swap(halves, &mut before);
            }
            // SAFETY: the caller's promise.
            match unsafe { self.try_move(unit, halves, &before, world, hash_of, stamp) } {
                Unit::Moved | Unit::Done => return Chunk::Moved,
                Unit::NotSame => {}
                Unit::NoMemory => return Chunk::NoMemory,
            }
        }
        Chunk::LeftOut
    }

    /// `before` is what the last try has found.
    ///
    /// # Safety
    ///
    /// As for `help`.
    unsafe fn try_move(
        self,
        unit: usize,
        halves: &mut Halves<K, V>,
        before: &Halves<K, V>,
        world: &impl World<K, V>,
        hash_of: &impl Fn(&K) -> u64,
        stamp: impl Fn() -> u16 + Copy,
    ) -> Unit {
        let grows = self.grows();
        let look = |index: usize| {
            let bucket = self.from.at(index);
            let word = bucket.word();
            (!word.is_moved()).then(|| (bucket, bucket.seen(word)))
        };
        let mut olds = self.olds(unit);
        let Some(lower) = olds.next().and_then(look) else {
            return Unit::Done;
        };
        let upper = match olds.next().map(look) {
            Some(None) => return Unit::Done,
            Some(upper) => upper,
            None => None,
        };
        let seen = [Some(lower), upper];
        halves.iter_mut().for_each(Vec::clear);
        for (bucket, seen) in seen.into_iter().flatten() {
            // SAFETY: the caller's section, in which it was seen.
            for entry in unsafe { bucket.entries(seen) } {
                // A hash that is not what it was puts the entry where it is not found.
                let half = if grows {
                    let is_it = |old: &Tagged<K, V>| old.tag == entry.tag && old.key == entry.key;
                    let known = before.iter().position(|half| half.iter().any(is_it));
                    known.unwrap_or_else(|| self.to.index(hash_of(&entry.key)) & 1)
                } else {
                    0
                };
                if halves[half].try_reserve(1).is_err() {
                    return Unit::NoMemory;
                }
                halves[half].push(entry);
            }
        }
        let mut spills = [None, None];
        for (spill, entries) in spills.iter_mut().zip(&*halves) {
            if entries.len() > SLOTS {
                let rest = entries[SLOTS..].iter().copied();
                *spill = NewSpill::new(rest.len(), rest);
                if spill.is_none() {
                    return Unit::NoMemory;
                }
            }
        }
        // Only this thread locks two, so it cannot come to a deadlock.
        let mut locks: [Option<Locked<'_, K, V>>; 2] = [None, None];
        for ((lock, seen), index) in locks.iter_mut().zip(&seen).zip(self.olds(unit)) {
            let Some((_, seen)) = seen else { continue };
            match self.from.lock_at(index, stamp) {
                None => return Unit::Done,
                Some(locked) if !locked.seen().is_all_same(seen) => return Unit::NotSame,
                Some(locked) => *lock = Some(locked),
            }
        }
        let news = self.news(unit).map(|index| self.to.at(index));
        for ((bucket, entries), spill) in news.zip(&*halves).zip(spills) {
            // SAFETY: it is found by an old bucket that has moved, and those of the unit have not.
            unsafe { bucket.fill(entries.iter().copied(), spill) };
        }
        locks.iter_mut().flatten().for_each(Locked::set_moved);
        // In this order: a walk that finds only the first one moved goes on behind both
        // (`super::walk`), also in the child of a fork that removes this thread in between.
        let [lower, upper] = locks;
        drop(lower);
        drop(upper);
        for spill in seen
            .into_iter()
            .flatten()
            .filter_map(|(_, seen)| seen.spill)
        {
            world.retire_spill(spill);
        }
        Unit::Moved
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use stillpoint_platform::sync::{AtomicU64, Ordering};

    /// User code has forked, and then panics in the child, which has taken no chunk.
    #[test]
    fn a_chunk_of_another_process_is_not_counted() {
        let units = Units {
            taken: AtomicU64::new(0),
            done: AtomicU64::new(0),
            extended: AtomicU64::new(0),
        };
        let here = fork::process().generation();
        let taken = |process| Taken {
            process,
            units: &units,
            count: 16,
            all: 64,
        };
        drop(taken(here + 1));
        assert_eq!(units.done.load(Ordering::Relaxed), 0);
        drop(taken(here));
        assert_ne!(units.done.load(Ordering::Relaxed), 0);
    }
}
