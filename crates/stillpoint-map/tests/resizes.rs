//! While tables grow and shrink: what is there throughout is found, and visited once; and a map
//! that no thread touches any more gives its table back.
//!
//! Detects a walk by `fold` that begins in the middle of a bucket or leaves one out, a walk without
//! a bound on its hashes, and a `shrink_to_fit` that halves no table or one without room.
#![allow(clippy::borrowed_box, reason = "the values are boxes")]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{Over, eventually};
use std::{
    collections::HashSet as StdSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};
use stillpoint_map::{CopyMap, Cursor, HashMap, HashSet};

/// The keys that are there throughout.
const STAYING: u64 = 40;
const ROUNDS: u64 = if cfg!(miri) { 2 } else { 30 };
const MANY: u64 = if cfg!(miri) { 60 } else { 700 };

fn capacity<V>(map: &HashMap<u64, V>) -> usize {
    map.pin().capacity()
}

#[test]
fn keys_that_stay_are_found_and_visited_once() {
    let map = HashMap::new();
    for key in 0..STAYING {
        map.pin().insert(key, Box::new(key));
    }
    let smallest = capacity(&map);
    let over = AtomicBool::new(false);
    let (map, over) = (&map, &over);
    thread::scope(|scope| {
        let _over = Over(over);
        for which in 0..3 {
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    match which {
                        0 => {
                            for key in 0..STAYING {
                                assert_eq!(map.pin().get(&key).map(|value| **value), Some(key));
                            }
                        }
                        1 => {
                            let pinned = map.pin();
                            let mut seen = StdSet::new();
                            for (key, value) in pinned.iter().filter(|(key, _)| **key < STAYING) {
                                assert_eq!(*key, **value);
                                assert!(seen.insert(*key), "{key} is visited twice");
                            }
                            assert_eq!(seen.len() as u64, STAYING, "one is left out");
                        }
                        _ => {
                            let mut seen = StdSet::new();
                            let mut cursor = Cursor::start();
                            let mut visit = |key: &u64, _: &Box<u64>| {
                                if *key < STAYING {
                                    assert!(seen.insert(*key), "{key} is scanned twice");
                                }
                            };
                            while map.scan(&mut cursor, 3, &mut visit) {}
                            assert_eq!(seen.len() as u64, STAYING, "a scan leaves one out");
                        }
                    }
                }
            });
        }
        for round in 0..ROUNDS {
            for key in STAYING..MANY {
                map.pin().insert(key, Box::new(key));
                // A value that changes is there all the time as well.
                map.pin().insert(round % STAYING, Box::new(round % STAYING));
            }
            eventually(|| capacity(map) as u64 >= MANY - 1);
            for key in STAYING..MANY {
                assert!(map.pin().remove(&key).is_some());
            }
            map.pin().shrink_to_fit();
            eventually(|| {
                map.pin().shrink_to_fit();
                capacity(map) <= 4 * smallest
            });
        }
    });
    assert_eq!(map.len() as u64, STAYING);
}

/// The service thread alone moves tables, one after the other.
#[test]
fn reserved_table_comes_though_the_map_is_not_touched() {
    let more = if cfg!(miri) { 200 } else { 100_000 };
    let map = HashMap::new();
    (0..50).for_each(|key| {
        map.pin().insert(key, key);
    });
    map.pin().reserve(more);
    eventually(|| capacity(&map) >= more);
    map.pin().shrink_to_fit();
    eventually(|| capacity(&map) < 1000);
    assert!((0..50).all(|key| map.pin().get(&key) == Some(&key)));
}

/// The table moves to no other one, though so many changes would end its move.
fn assert_stays(map: &HashMap<u64, u64>, expected: usize) {
    for _ in 0..expected {
        map.pin().insert(u64::MAX, 0);
        map.pin().remove(&u64::MAX);
        assert_eq!(capacity(map), expected, "the table moves");
    }
}

/// With a few entries for each bucket, which is no reason to shrink by itself.
#[test]
fn table_that_is_to_fit_is_halved_while_it_has_room() {
    let many: u64 = if cfg!(miri) { 150 } else { 30_000 };
    let map = HashMap::new();
    (0..many).for_each(|key| {
        map.pin().insert(key, key);
    });
    map.pin().reserve(2 * many as usize);
    // With those that are there: the table before the last one of the steps may have room for less.
    eventually(|| capacity(&map) >= 3 * many as usize);
    // So much that it has room in half of the table, but not a quarter of that free.
    let large = capacity(&map);
    let tight = large as u64 * 15 / 32;
    for key in many..tight {
        map.pin().insert(key, key);
    }
    map.pin().shrink_to_fit();
    assert_stays(&map, large);
    // So much that it has room in half of the table, and not in a quarter; and one for each bucket,
    // or it shrinks by itself.
    let stay = large as u64 * 5 / 16;
    for key in stay..tight {
        assert!(map.pin().remove(&key).is_some());
    }
    assert_eq!(capacity(&map), large);
    map.pin().shrink_to_fit();
    eventually(|| capacity(&map) == large / 2);
    map.pin().shrink_to_fit();
    assert_stays(&map, large / 2);
    assert!((0..stay).all(|key| map.pin().get(&key) == Some(&key)));
    assert_eq!((map.len() as u64, capacity(&map)), (stay, large / 2));
}

/// One call is enough for a table that is to be halved more than once.
#[test]
fn table_that_is_to_fit_is_halved_until_it_does() {
    let map = HashMap::with_capacity(if cfg!(miri) { 300 } else { 50_000 });
    let large = capacity(&map);
    // So many that they have room in an eighth, and by themselves leave the table as large as a
    // quarter.
    let stay = large as u64 * 3 / 32;
    (0..stay).for_each(|key| {
        map.pin().insert(key, key);
    });
    map.pin().shrink_to_fit();
    eventually(|| capacity(&map) == large / 8);
    assert!((0..stay).all(|key| map.pin().get(&key) == Some(&key)));
}

/// The service thread alone ends the moves: nothing is called but what tells the size.
#[test]
fn table_of_a_map_that_was_large_is_given_back() {
    let many: u64 = if cfg!(miri) { 300 } else { 1_000_000 };
    let map = HashMap::new();
    (0..many).for_each(|key| {
        map.pin().insert(key, ());
    });
    assert!(capacity(&map) as u64 >= many / 2);
    (10..many).for_each(|key| {
        map.pin().remove(&key);
    });
    eventually(|| capacity(&map) <= 100);
    assert_eq!(map.len(), 10);
    assert!((0..10).all(|key| map.pin().contains_key(&key)));
}

/// Moves that are under way when the map is dropped, or taken apart.
#[test]
fn maps_that_move_can_be_dropped() {
    for round in 0..ROUNDS {
        let map: HashMap<_, _> = (0..MANY + round).map(|key| (key, Box::new(key))).collect();
        let more = &map;
        (MANY..MANY * 2).for_each(|key| {
            more.pin().insert(key + round, Box::new(key));
        });
        if round % 2 == 0 {
            assert_eq!(map.into_iter().count() as u64, 2 * MANY + round);
        }
    }
}

/// As one that was filled does.
#[test]
fn table_of_a_collected_map_is_given_back() {
    let many: u64 = if cfg!(miri) { 300 } else { 50_000 };
    let pairs = || (0..many).map(|key| (key, key));
    let (hashed, copies): (HashMap<_, _>, CopyMap<_, _>) = (pairs().collect(), pairs().collect());
    let (set, array): (HashSet<_>, _) = ((0..many).collect(), HashMap::from([(0_u64, 0_u64); 300]));
    assert!(capacity(&hashed) as u64 >= many);
    for key in 0..many {
        hashed.pin().remove(&key);
        copies.pin().remove(&key);
        set.pin().remove(&key);
    }
    array.pin().remove(&0);
    eventually(|| capacity(&hashed) <= 100);
    eventually(|| set.pin().capacity() <= 100);
    eventually(|| copies.pin().capacity() <= 100);
    eventually(|| capacity(&array) <= 100);
}
