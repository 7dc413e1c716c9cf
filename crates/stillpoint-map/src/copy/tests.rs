//! Tests of changes, of who moves tables, and of what a reserve costs, by one thread.
//!
//! Detects a change that locks with the seen word although there is a list, a pass that ends a move too
//! early, a reserve that costs its capacity, and a move that hashes what it has hashes of.

use super::{
    core::{Changed, Core, Look, World},
    epochs::GracePeriods,
    spill::OldNode,
    table::{InPlace, Table},
    walk::Walk,
};
use crate::{
    growth::{self, HasTables},
    resize::{CHUNK, Chunk, Progress},
    section::{Pinned, Writer},
    table::{FEWEST_BITS, Kind, NewTable, Old, OldTable},
    word::SLOTS,
};
use std::{
    cell::Cell,
    hash::{BuildHasherDefault, Hasher},
    iter,
    ops::Deref,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// A map that one thread uses: no readers, and so no grace periods.
pub struct Alone {
    core: Core<u64, u64, ()>,
    hash_of: fn(&u64) -> u64,
    /// Number of pages of the tables that were retired.
    pages: Cell<usize>,
}

impl Deref for Alone {
    type Target = Pinned<Core<u64, u64, ()>>;

    fn deref(&self) -> &Self::Target {
        // SAFETY: no other thread has it.
        unsafe { Pinned::of(&self.core) }
    }
}

impl Alone {
    pub fn new(capacity: usize, stays: bool, hash_of: fn(&u64) -> u64) -> Self {
        Self {
            core: Core::new(capacity, stays).expect("memory"),
            hash_of,
            pages: Cell::default(),
        }
    }

    pub fn writer(&self) -> Writer<'_, Core<u64, u64, ()>, &Self> {
        // SAFETY: there are no readers.
        unsafe { Writer::of(self, self) }
    }

    pub fn look(&self, key: u64) -> Look<'_, u64, u64, (), &Self> {
        self.writer()
            .look((self.hash_of)(&key), move |other| *other == key)
    }

    pub fn put(&self, key: u64, value: u64) {
        assert_eq!(self.look(key).put((key, value)), Changed::Done);
    }

    pub fn find(&self, key: u64) -> Option<u64> {
        let is_it = |other: &u64| *other == key;
        self.table()
            .find((self.hash_of)(&key), is_it, |(_, value)| value)
    }
}

// SAFETY: without sections.
unsafe impl GracePeriods for &Alone {
    type Cookie = ();

    fn get_state(&self) {}

    fn has_ended(&self, (): ()) -> bool {
        true
    }

    fn poll(&self, (): ()) -> bool {
        true
    }
}

impl growth::World<InPlace<u64, u64>> for &Alone {
    fn retire(self, old: OldNode<u64, u64>) {
        // SAFETY: there are no readers.
        unsafe { old.free() };
    }

    fn retire_table(self, old: OldTable<InPlace<u64, u64>>) {
        #[cfg(all(target_os = "linux", not(miri)))]
        self.pages.set(self.pages.get() + pages_of(old.table()));
        // SAFETY: there are no readers.
        unsafe { old.free() };
    }

    fn drive_later(self) {}
}

impl World<u64, u64> for &Alone {
    fn hash_of(self, key: &u64) -> u64 {
        (self.hash_of)(key)
    }
}

/// An insert has seen a bucket without its key, which another one has put behind the bucket since. The
/// word is the same, and a slot has come free.
#[test]
fn an_insert_finds_what_came_behind_the_bucket_since_its_look() {
    const KEY: u64 = 50;
    // The low byte of a key is its tag. All are of one bucket.
    let map = Alone::new(0, false, |key| key << 1);
    let first = 10;
    (first..=first + SLOTS as u64).for_each(|key| map.put(key, 0));
    assert_eq!(map.look(first).take(), Changed::Done);

    let before = map.look(KEY);
    assert!(before.pair().is_none());
    map.put(KEY, 0);
    map.epochs.advance(&&map, true);
    map.epochs.advance(&&map, true);
    let changed = before.put((KEY, 1));
    assert_eq!(changed, Changed::NotSame, "the key is there twice");
    assert_eq!(map.look(KEY).pair(), Some((KEY, 0)));
}

/// A pass that leaves units out is followed by another one.
#[test]
fn driver_goes_on_after_a_pass_that_leaves_units_out() {
    let map = Alone::new(1000, true, |key| *key);
    let before = map.capacity();
    map.writer().shrink_to_fit();
    let table = map.table();
    let all = table
        .buckets()
        .min(table.next().expect("it moves").buckets());
    let units = &table.header().units;
    // As a thread does that has taken a chunk, and has not moved it.
    let taken = units.take(all, |_| CHUNK).expect("it begins").len();
    units.add_done(taken, Chunk::LeftOut, all);
    assert!(map.writer().drive());
    assert_eq!(map.capacity(), before);
    while map.writer().drive() {}
    assert!(map.capacity() < before);
}

const BITS: u32 = 20;
const ENTRIES: u64 = 100;

/// Returns how many pages a table has, without those of its header.
#[cfg(all(target_os = "linux", not(miri)))]
fn pages_of(table: Table<'_, u64, u64>) -> usize {
    let (from, end) = table.limits();
    growth::tests::resident(from, end)
}

/// Of a table that grows far, of one that grows to twice its size, and of a large one that is to fit.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_move_costs_what_the_entries_need() {
    for (from, to) in [(9, BITS), (BITS, BITS + 1), (BITS, FEWEST_BITS)] {
        let [from, to] = [from, to].map(InPlace::<u64, u64>::capacity);
        growth::tests::use_small_pages();
        // All the last ones have the same hash, and find no slot.
        let map = Alone::new(from, true, |key| crate::slot::spread((*key).min(80)));
        (0..ENTRIES).for_each(|key| map.put(key, key));
        if to > from {
            assert!(map.writer().reserve(to - ENTRIES as usize));
        } else {
            map.writer().shrink_to_fit();
        }
        let takes = (0..)
            .take_while(|_| map.writer().help() != Progress::NothingToTake)
            .count();
        if to > from {
            assert_eq!(map.capacity(), to);
        }
        let tables = if to > from {
            2
        } else {
            (BITS - FEWEST_BITS) as usize
        };
        // Four chunks for each stretch that was used, and one for what is between two.
        assert!(takes <= 6 * ENTRIES as usize * tables, "{takes} times");
        // A page of words and one of slots for an entry, in each table.
        let pages = map.pages.get() + pages_of(map.table());
        assert!(
            pages <= (2 * tables + 1) * ENTRIES as usize,
            "{pages} pages"
        );
        let mut walk = Walk::from(Some(map.live()), Some(0));
        let steps = iter::from_fn(|| walk.step()).count();
        assert!(steps <= 65 * ENTRIES as usize, "{steps} steps");
        for key in 0..ENTRIES {
            assert_eq!(map.find(key), Some(key));
        }
    }
}

/// Number of keys that were hashed.
static HASHED: AtomicUsize = AtomicUsize::new(0);

/// All keys have the same hash.
#[derive(Default)]
struct Same;

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {
        HASHED.fetch_add(1, Ordering::Relaxed);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// So a bucket moves, however many entries other threads put behind it meanwhile.
#[test]
fn a_move_asks_for_no_hash_of_what_was_put_behind_a_bucket() {
    const KEYS: u64 = if cfg!(miri) { 50 } else { 400 };
    let map = crate::CopyMap::<u64, u64, BuildHasherDefault<Same>>::default();
    thread::scope(|scope| {
        for first in [0, KEYS] {
            let map = &map;
            scope.spawn(move || {
                for key in first..first + KEYS {
                    assert_eq!(map.pin().insert(key, key), None);
                }
            });
        }
    });
    assert_eq!(map.len() as u64, 2 * KEYS);
    let inserted = 2 * KEYS as usize;
    let moves = (map.pin().capacity() / InPlace::<u64, u64>::capacity(FEWEST_BITS)).ilog2();
    // A look at the slots, another one if some have changed, and those that were free.
    let most = (moves as usize + 1) * 3 * SLOTS;
    let hashed = HASHED.load(Ordering::Relaxed) - inserted;
    assert!(hashed <= most, "{hashed} keys in {moves} moves");
}

#[test]
#[should_panic(expected = "index < self.buckets()")]
fn a_bucket_behind_the_last_one_is_refused() {
    let map = Alone::new(1000, true, |key| *key);
    let table = map.table();
    table.at(table.buckets());
}

#[test]
#[should_panic(expected = "a move makes one bucket of two")]
fn a_table_of_a_quarter_is_no_next_one() {
    let map = Alone::new(1000, true, |key| *key);
    let quarter = NewTable::new(map.table().bits() - 2).expect("memory");
    let _ = map.table().set_next(quarter);
}
