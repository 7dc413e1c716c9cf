//! Model-checked tests of buckets, tables and moves, with grace periods under them.
//!
//! Detects a bucket cut off with its entries or reused at once, tags and slots in the wrong order,
//! a move without its lock or its second look, and an entry retired before its removal.

use crate::{
    bucket::{Locked, OldBucket},
    core::{Core, New},
    floor::Floor,
    growth::{HasTables, Tables},
    resize::{self, Move, Progress},
    section::{Live, Pinned, Unshared, Writer},
    slot::{Head, Slot},
    table::{AnyLocked, NewTable, Old, Table},
    walk::Walk,
    word::{SLOTS, tag},
};
use std::{mem::ManuallyDrop, ptr::NonNull, sync::Mutex as StdMutex};
use stillpoint::internal::{GracePeriods, Policy, Sound};
use stillpoint_platform::{
    model::{self as loom, thread},
    sync::{Arc, UnsafeCell},
};

mod at_once;
mod buckets;
mod floor;
mod links;
mod moves;
mod passes;

enum NoWait {}
// SAFETY: broken on purpose; the model's memory outlives its readers.
unsafe impl Policy for NoWait {
    const WAITS_FOR_READERS: bool = false;
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    // Models of the floor make and move several tables.
    builder.max_branches = 10_000;
    builder.check(test);
}

/// An entry whose contents loom watches.
#[repr(C)]
struct Entry {
    head: Head,
    value: UnsafeCell<u32>,
}

/// An entry of the model, for its map.
struct InModel(NonNull<Head>);

// SAFETY: it stays until the end of the model.
unsafe impl New for InModel {
    fn head(&self) -> NonNull<Head> {
        self.0
    }
}

impl Entry {
    fn new(hash: u64, value: u32) -> Box<Self> {
        Box::new(Self {
            head: Head::new(hash),
            value: UnsafeCell::new(value),
        })
    }

    fn head(&self) -> NonNull<Head> {
        NonNull::from(self).cast()
    }
}

/// The value of an entry that was found. Loom fails if it is being written, or was not made known.
fn read(head: Live<'_, Head>) -> u32 {
    // SAFETY: made from an `Entry`, which the model keeps until its end.
    let entry = unsafe { head.pointer().cast::<Entry>().as_ref() };
    // SAFETY: whether no thread writes it is what loom checks.
    entry.value.with(|value| unsafe { *value })
}

/// A hash of bucket `bucket` of a table of two, and of the half `half` of it in one of four.
fn hash(bucket: u64, half: u64, tag: u64) -> u64 {
    bucket << 63 | half << 62 | tag << 1
}

const KEY: u64 = 9;

/// A map without entries, which the model ends with, and entries.
struct World {
    core: ManuallyDrop<Core>,
    /// Its table in the beginning.
    table: Table<'static>,
    entries: Vec<Box<Entry>>,
    /// Buckets that have left their chains.
    left: StdMutex<Vec<OldBucket>>,
}

// SAFETY: loom checks each access to an entry; the rest is atomics.
unsafe impl Send for World {}
// SAFETY: the same.
unsafe impl Sync for World {}

impl World {
    fn new(entries: Vec<Box<Entry>>) -> Arc<Self> {
        Self::of_bits(1, entries)
    }

    fn of_bits(bits: u32, entries: Vec<Box<Entry>>) -> Arc<Self> {
        Self::of_table(NewTable::new(bits).unwrap(), entries)
    }

    fn of_table(table: NewTable, entries: Vec<Box<Entry>>) -> Arc<Self> {
        let core = ManuallyDrop::new(Core::of(Tables::of(table, Floor::new(1, false))));
        // SAFETY: it stays until the end of the model.
        let table = unsafe { Table::from_word(pinned(&core).table().into_word()) };
        Arc::new(Self {
            core,
            table: table.expect("it was made"),
            entries,
            left: StdMutex::default(),
        })
    }

    fn entry(&self, index: usize) -> NonNull<Head> {
        self.entries[index].head()
    }

    /// The entry of that number, in a table of so many bits.
    fn slot(&self, index: usize, bits: u32) -> Slot<'_> {
        // SAFETY: it stays until the end of the model.
        unsafe { Slot::entry(self.entry(index), self.hash(index), bits) }
    }

    fn live(&self, index: usize) -> Live<'_, Head> {
        // SAFETY: it stays until the end of the model.
        unsafe { Live::of(self.entry(index)) }
    }

    fn hash(&self, index: usize) -> u64 {
        self.entries[index].head.hash()
    }

    /// Puts the entry of that number in.
    fn insert(&self, index: usize) {
        let hash = self.hash(index);
        let (table, mut locked) = self.table.lock(hash);
        locked.add_behind(self.slot(index, table.bits()), tag(hash));
    }

    /// Puts it in, unless one with its tag is there. Returns whether it was put in.
    fn try_insert(&self, index: usize) -> bool {
        let hash = self.hash(index);
        let (table, mut locked) = self.table.lock(hash);
        if locked.find(tag(hash), |_| true).is_some() {
            return false;
        }
        let added = locked.add(self.slot(index, table.bits()), tag(hash));
        added.is_some()
    }

    fn remove(&self, index: usize) {
        let (_, mut locked) = self.table.lock(self.hash(index));
        let left = locked.remove(self.live(index), tag(self.hash(index)));
        drop(locked);
        self.left.lock().unwrap().extend(left.unwrap());
    }

    fn replace(&self, old: usize, new: usize) {
        let (table, mut locked) = self.table.lock(self.hash(old));
        let slot = self.slot(new, table.bits());
        assert!(locked.replace(self.live(old), slot, tag(self.hash(old))));
    }

    /// The value of the entry with that entry's hash.
    fn find(&self, index: usize) -> Option<u32> {
        let hash = self.hash(index);
        self.table.find(hash, |head| head.hash() == hash).map(read)
    }

    /// A move to a table of so many bits, under way.
    fn start_move(&self, bits: u32) -> Move<'static> {
        assert!(self.table.set_next(NewTable::new(bits).unwrap()).is_ok());
        Move::of(self.table).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // SAFETY: the model's threads have ended; buckets are boxes.
        unsafe {
            for bucket in self.left.get_mut().unwrap().drain(..) {
                drop(Box::from_raw(bucket.pointer().as_ptr()));
            }
            if let Some(next) = self.table.next() {
                next.free();
            }
            self.table.free();
        }
    }
}

/// The core in a section.
fn pinned(core: &Core) -> &Pinned<Core> {
    // SAFETY: the model keeps tables and entries.
    unsafe { Pinned::of(core) }
}

/// Runs `other` on a thread, and `here` on this one.
fn both(
    world: &Arc<World>,
    other: impl FnOnce(&World) + Send + 'static,
    here: impl FnOnce(&World),
) {
    let theirs = Arc::clone(world);
    let thread = thread::spawn(move || other(&theirs));
    here(world);
    thread.join().unwrap();
}

/// Takes units until there are none.
fn move_all(to_move: Move<'_>) -> Progress {
    loop {
        let progress = to_move.help(|_| unreachable!("there are no chains"));
        if progress != Progress::Moved {
            return progress;
        }
    }
}

/// A full bucket, whose last key is `SLOTS - 1`, and one entry more.
fn full() -> Arc<World> {
    let entry = |index| Entry::new(hash(0, index & 1, KEY + index), index as u32);
    let world = World::new((0..=SLOTS as u64).map(entry).collect());
    (0..SLOTS).for_each(|index| world.insert(index));
    world
}
