//! Each value is dropped once: promptly after its removal, or with the map.
//!
//! Detects links retired twice, values not retired, and a panic that ends a drop.
#![allow(
    dropping_copy_types,
    dropping_references,
    clippy::drop_non_drop,
    reason = "the call counts, and not what it returns"
)]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{Tally, Tracked, eventually, expected_panic, quietly};
use std::{
    panic::{self, AssertUnwindSafe},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
use stillpoint_map::{Compute, HashMap, Operation};

const MANY: u64 = if cfg!(miri) { 60 } else { 3000 };

#[test]
fn values_are_dropped_once_under_churn() {
    let (keys, values) = (Tally::new(), Tally::new());
    // A key that counts its drops too.
    struct Key(u64, Tracked, Tally);
    impl Clone for Key {
        fn clone(&self) -> Self {
            let counted = self.2.value(self.1.get());
            Self(self.0, counted, self.2.clone())
        }
    }
    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }
    impl Eq for Key {}
    impl std::hash::Hash for Key {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    let map = HashMap::new();
    thread::scope(|scope| {
        for thread in 0..3 {
            let (map, keys, values) = (&map, &keys, &values);
            scope.spawn(move || {
                for number in 0..MANY {
                    let key = |number| Key(number % (MANY / 4), keys.value(number), keys.clone());
                    let value = || values.value(number);
                    let map = map.pin();
                    match (number + thread) % 6 {
                        0 => drop(map.insert(key(number), value()).map(Tracked::get)),
                        1 => drop(map.try_insert(key(number), value())),
                        2 => drop(map.remove(&key(number / 2)).map(Tracked::get)),
                        3 => drop(map.update(&key(number), |old| {
                            old.get();
                            value()
                        })),
                        4 => {
                            let done = map.compute(&key(number), |entry| match entry {
                                Some(_) => Operation::<_, Tracked>::Remove,
                                None if number % 2 == 0 => Operation::Abort(value()),
                                None => Operation::Insert(value()),
                            });
                            if let Compute::Removed(_, old) = done {
                                old.get();
                            }
                        }
                        _ if number % 500 == 5 => map.clear(),
                        _ => {
                            map.insert(key(number), value());
                        }
                    }
                }
            });
        }
    });
    // Without another call of the map.
    eventually(|| values.made() - values.dropped() == map.len());
    let left = map.len();
    assert_eq!(
        map.pin()
            .iter()
            .inspect(|(_, value)| drop(value.get()))
            .count(),
        left
    );
    eventually(|| keys.made() - keys.dropped() == left);
    drop(map);
    assert!(values.all_dropped() && keys.all_dropped());
}

#[test]
fn removed_values_are_dropped_though_the_map_is_not_touched() {
    let tally = Tally::new();
    let map = HashMap::new();
    map.pin().insert(1, tally.value(1));
    map.pin().insert(2, tally.value(2));
    map.pin().insert(2, tally.value(3));
    map.pin().remove(&1);
    eventually(|| tally.dropped() == 2);
    assert_eq!(map.pin().get(&2).map(Tracked::get), Some(3));
}

#[test]
fn map_taken_apart_drops_what_is_not_taken() {
    let tally = Tally::new();
    let map: HashMap<_, _> = (0..100).map(|key| (key, tally.value(key))).collect();
    let mut entries = map.into_iter();
    let taken: Vec<_> = entries.by_ref().take(30).collect();
    assert_eq!((entries.len(), tally.dropped()), (70, 0));
    drop(entries);
    assert_eq!(tally.dropped(), 70);
    drop(taken);
    assert!(tally.all_dropped());
}

static DROPS: AtomicUsize = AtomicUsize::new(0);

struct Fails(bool);

impl Drop for Fails {
    fn drop(&mut self) {
        DROPS.fetch_add(1, Ordering::SeqCst);
        if self.0 {
            expected_panic();
        }
    }
}

/// One drop that panics, in the map's own drop and on the service thread.
#[test]
fn drops_that_panic() {
    let map: HashMap<_, _> = (0..50).map(|key| (key, Fails(key == 20))).collect();
    let dropped = quietly(|| panic::catch_unwind(AssertUnwindSafe(|| drop(map))));
    assert!(dropped.is_err());
    assert_eq!(
        DROPS.load(Ordering::SeqCst),
        50,
        "one that panics must not leave others out"
    );

    let map = HashMap::new();
    for key in 0..20 {
        map.pin().insert(key, Fails(true));
    }
    map.pin().clear();
    eventually(|| DROPS.load(Ordering::SeqCst) == 70);
    map.pin().insert(1, Fails(false));
    assert_eq!(map.len(), 1);
}

/// Of a table that is much larger than its entries need, where most is left alone: however they came
/// there.
#[test]
#[cfg_attr(miri, ignore = "a large table")]
fn entries_of_a_sparse_table_are_dropped() {
    let values = Tally::new();
    let fill = |map: &HashMap<u64, Tracked>, keys: std::ops::Range<u64>| {
        for key in keys {
            map.pin().insert(key, values.value(key));
        }
    };
    let reserve = |map: &HashMap<u64, Tracked>, entries: usize| {
        map.pin().reserve(entries);
        eventually(|| map.pin().capacity() >= entries);
    };
    // Into it.
    let map = HashMap::with_capacity(200_000);
    fill(&map, 0..300);
    drop(map);
    assert!(values.all_dropped());
    // Before and after a move there.
    let map = HashMap::new();
    fill(&map, 0..300);
    reserve(&map, 200_000);
    fill(&map, 300..400);
    drop(map.into_iter().take(10).count());
    assert!(values.all_dropped());
    // Through moves to smaller ones and larger ones, and while one is under way.
    let map = HashMap::new();
    fill(&map, 0..20_000);
    reserve(&map, 400_000);
    map.pin().shrink_to_fit();
    eventually(|| map.pin().capacity() < 50_000);
    reserve(&map, 100_000);
    fill(&map, 20_000..21_000);
    map.pin().reserve(400_000);
    drop(map);
    assert!(values.all_dropped());
}
