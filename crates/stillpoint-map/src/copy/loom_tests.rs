//! Model-checked tests of a map of copies, with grace periods under it. Loom watches the slots and
//! the nodes: an access to one while it is written, or not made known, or freed, fails.
//!
//! Detects a tag before its entry, a slot reused without a grace period or with an old stamp, a
//! node freed at once, and each ordering of buckets, tables and epochs weakened (but the restart
//! of a pass in `resize.rs`).

mod changes;
mod driver;
mod moves;
mod passes;
mod slots;
mod spilled_moves;

use super::{
    core::{Changed, Core, Look, World},
    epochs,
    fast::Cut,
    moving::Move,
    spill::OldNode,
    table::{InPlace, Table},
    walk::Walk,
};
use crate::{
    growth::{self, HasTables, Tables},
    resize::Progress,
    section::{Pinned, Writer},
    table::{NewTable, Old, OldTable},
    word::SLOTS,
};
use std::{
    mem,
    sync::{
        Mutex as StdMutex,
        atomic::{AtomicBool, Ordering},
    },
};
use stillpoint::internal::{Cookie, GracePeriods, Policy, Sound};
use stillpoint_platform::{
    model::{self as loom, thread},
    sync::Arc,
};

/// What a model leaves out, beside what `P` does.
trait Leaves: Policy {
    const FENCES_EMPTYING: bool = true;
    const FENCES_OPENING: bool = true;
}

impl Leaves for Sound {}

enum NoWait {}
impl Leaves for NoWait {}
// SAFETY: broken on purpose; loom sees what comes of it.
unsafe impl Policy for NoWait {
    const WAITS_FOR_READERS: bool = false;
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// How a walk goes: `fold` has a way of its own.
#[derive(Clone, Copy)]
enum By {
    Fold,
    Next,
}

const BOTH_WAYS: [By; 2] = [By::Fold, By::Next];

/// The low byte of a key is its tag, and the high ones choose its bucket.
fn hash_of(key: &u64) -> u64 {
    key & !0xff | (key & 0xff) << 1
}

/// A key of the first bucket of two, and of the half `half` of it in one of four.
fn key(half: u64, tag: u64) -> u64 {
    half << 62 | tag
}

const KEY: u64 = 9;
/// Other keys of the first bucket.
const OTHERS: u64 = 20;

/// A map, its domain, and what was retired, which the model frees at its end.
struct Map<P: Policy> {
    core: Core<u64, u64, Cookie>,
    periods: GracePeriods<P>,
    retired: StdMutex<Vec<Retired>>,
    /// Whether the callback was asked for. Not an atomic of the model, which it tells nothing.
    is_asked_for: AtomicBool,
}

enum Retired {
    Spill(OldNode<u64, u64>),
    Table(OldTable<InPlace<u64, u64>>),
}

impl Retired {
    /// Stands for a free: writes to the block, which no reader may use. The memory stays.
    fn overwrite(&self) {
        match self {
            Self::Spill(node) => node.overwrite(),
            Self::Table(old) => {
                let table = old.table();
                for bucket in (0..table.buckets()).map(|index| table.at(index)) {
                    // SAFETY: a grace period has ended since it was retired, or the model is to fail.
                    (0..SLOTS).for_each(|slot| unsafe { bucket.write(slot, (0, 0)) });
                }
            }
        }
    }

    fn free(self) {
        // SAFETY: the model's threads have ended.
        unsafe {
            match self {
                Self::Spill(node) => node.free(),
                Self::Table(old) => old.free(),
            }
        }
    }
}

/// The number of the threads that change maps, to grace periods; that of readers is 1.
const WRITER: u64 = 2;

// SAFETY: those of the model, some of which are broken on purpose, and fail.
unsafe impl<P: Leaves> epochs::GracePeriods for &Map<P> {
    type Cookie = Cookie;

    fn get_state(&self) -> Cookie {
        self.periods.get_state()
    }

    fn has_ended(&self, cookie: Cookie) -> bool {
        // A broken one has no fences, either.
        !P::WAITS_FOR_READERS || self.periods.try_complete(cookie, WRITER)
    }

    fn poll(&self, cookie: Cookie) -> bool {
        self.has_ended(cookie)
    }

    const FENCES_EMPTYING: bool = P::FENCES_EMPTYING;
    const FENCES_OPENING: bool = P::FENCES_OPENING;
}

impl<P: Leaves> growth::World<InPlace<u64, u64>> for &Map<P> {
    fn retire(self, old: OldNode<u64, u64>) {
        self.retired.lock().unwrap().push(Retired::Spill(old));
    }

    fn retire_table(self, old: OldTable<InPlace<u64, u64>>) {
        self.retired.lock().unwrap().push(Retired::Table(old));
    }

    fn drive_later(self) {
        self.is_asked_for.store(true, Ordering::Relaxed);
    }
}

impl<P: Leaves> World<u64, u64> for &Map<P> {
    fn hash_of(self, key: &u64) -> u64 {
        hash_of(key)
    }
}

impl<P: Leaves> Map<P> {
    /// With entries of these keys, whose values are 0.
    fn new(entries: impl IntoIterator<Item = u64>) -> Arc<Self> {
        Self::of_capacity(0, entries)
    }

    fn of_capacity(capacity: usize, entries: impl IntoIterator<Item = u64>) -> Arc<Self> {
        Self::of_capacity_that(capacity, false, entries)
    }

    /// With a table that is the smallest if it `stays`.
    fn of_capacity_that(
        capacity: usize,
        stays: bool,
        entries: impl IntoIterator<Item = u64>,
    ) -> Arc<Self> {
        let map = Self::of_tables(Tables::new(capacity, stays).unwrap());
        entries.into_iter().for_each(|key| map.put(key, 0));
        map
    }

    fn of_tables(tables: Tables<InPlace<u64, u64>>) -> Arc<Self> {
        Arc::new(Self {
            core: Core::of(tables),
            periods: GracePeriods::new(),
            retired: StdMutex::default(),
            is_asked_for: AtomicBool::new(false),
        })
    }

    fn writer(&self) -> Writer<'_, Core<u64, u64, Cookie>, &Self> {
        // SAFETY: the model frees nothing before its end.
        unsafe { Writer::of(Pinned::of(&self.core), self) }
    }

    fn table(&self) -> Table<'_, u64, u64> {
        self.writer().core().table()
    }

    fn look(&self, key: u64) -> Look<'_, u64, u64, Cookie, &Self> {
        self.writer().look(hash_of(&key), |other| *other == key)
    }

    /// Inserts an entry, or updates it.
    fn put(&self, key: u64, value: u64) {
        if !self.writer().add(hash_of(&key), (key, value)) {
            self.put_by_look(key, value);
        }
    }

    fn put_by_look(&self, key: u64, value: u64) {
        while self.look(key).put((key, value)) != Changed::Done {}
    }

    fn remove(&self, key: u64) {
        let cut = self.writer().cut(hash_of(&key), |other| *other == key);
        if cut == Cut::NotSoFast {
            self.remove_by_look(key);
        }
    }

    fn remove_by_look(&self, key: u64) {
        let changed = || {
            let look = self.look(key);
            match look.pair() {
                Some(_) => look.take(),
                None => Changed::Done,
            }
        };
        while changed() != Changed::Done {}
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.get_in(self.table(), key)
    }

    fn get_in(&self, table: Table<'_, u64, u64>, key: u64) -> Option<u64> {
        // Whether a slot is written meanwhile is what loom checks.
        table.find(hash_of(&key), |other| *other == key, |(_, value)| value)
    }

    /// Closes an epoch, if the one before is over.
    fn advance(&self) {
        self.core.epochs.advance(&self, false);
    }

    /// Overwrites what was retired, if no section is open that may have found it.
    fn end_retired(&self) {
        let retired = mem::take(&mut *self.retired.lock().unwrap());
        if self.periods.try_complete(self.periods.get_state(), WRITER) {
            retired.iter().for_each(Retired::overwrite);
        }
        self.retired.lock().unwrap().extend(retired);
    }

    /// The table, for a move to another one of so many bits.
    fn start_move(&self, bits: u32) -> Move<'_, u64, u64> {
        let from = self.table();
        assert!(from.set_next(NewTable::new(bits).unwrap()).is_ok());
        Move::of(from).unwrap()
    }

    fn move_all(&self, to_move: Move<'_, u64, u64>) {
        while to_move.help(self.writer()) == Progress::Moved {}
    }

    /// Moves a unit as changes do.
    fn help(&self) -> Progress {
        self.writer().help()
    }

    /// Moves units as changes do, until there are none to take.
    fn help_all(&self) {
        while self.help() == Progress::Moved {}
    }

    /// The move that is under way.
    fn under_way(&self) -> Move<'_, u64, u64> {
        Move::of(self.table()).unwrap()
    }

    /// Each of these keys is visited once by a walk that goes like that.
    fn assert_visits_once(&self, keys: &[u64], by: By) {
        let mut walk = Walk::from(Some(self.writer().core().live()), Some(0));
        let mut visited = Vec::new();
        match by {
            By::Fold => walk.fold((), &hash_of, |(), (key, _)| visited.push(key)),
            By::Next => {
                while let Some((key, _)) = walk.next(&hash_of) {
                    visited.push(key);
                }
            }
        }
        for key in keys {
            let visits = visited.iter().filter(|visited| *visited == key).count();
            assert_eq!(visits, 1, "visits of {key}");
        }
    }
}

impl<P: Policy> Drop for Map<P> {
    fn drop(&mut self) {
        let retired = self.retired.get_mut().unwrap().drain(..);
        retired.for_each(Retired::free);
    }
}

// SAFETY: loom checks each access to a slot; the rest is atomics.
unsafe impl<P: Policy> Send for Map<P> {}
// SAFETY: the same.
unsafe impl<P: Policy> Sync for Map<P> {}

/// Runs `other` on a thread, and `here` on this one.
fn both<P: Leaves>(
    map: &Arc<Map<P>>,
    other: impl FnOnce(&Map<P>) + Send + 'static,
    here: impl FnOnce(&Map<P>),
) where
    P: Send + Sync + 'static,
{
    let theirs = Arc::clone(map);
    let thread = thread::spawn(move || other(&theirs));
    here(map);
    thread.join().unwrap();
}

/// A full bucket: the key, and others.
fn full<P: Leaves>() -> Arc<Map<P>> {
    full_of_capacity(0)
}

/// The first bucket of a table for so many entries is full.
fn full_of_capacity<P: Leaves>(capacity: usize) -> Arc<Map<P>> {
    let others = OTHERS..OTHERS + SLOTS as u64 - 1;
    Map::of_capacity(capacity, [KEY].into_iter().chain(others))
}
