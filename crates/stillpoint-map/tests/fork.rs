//! Forking while other threads write a map: the child goes on with it.
#![cfg(all(target_os = "linux", not(miri)))]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{
    Over, eventually,
    forking::{elsewhere, fork, is_apart},
};
use std::{
    collections::HashSet,
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};
use stillpoint_map::HashMap;

const WRITERS: u64 = 3;
const STAYING: u64 = 50;
const MANY: u64 = 1500;

type Map = HashMap<u64, Box<u64>>;

fn put(map: &Map, key: u64) {
    map.pin().insert(key, Box::new(key));
}

/// All of the map, by the child's threads: their locks, their moves, their service thread.
fn use_in_child(map: &Map) {
    let check = || {
        let pinned = map.pin();
        let mut seen = HashSet::new();
        for (key, value) in &pinned {
            assert_eq!(*key, **value);
            assert!(seen.insert(*key), "{key} is visited twice");
        }
        assert!((0..STAYING).all(|key| seen.contains(&key)));
        for key in &seen {
            assert_eq!(pinned.get(key).map(|value| **value), Some(*key));
        }
    };
    check();
    let work = |first: u64| {
        for key in (first..MANY + 500).step_by(2) {
            put(map, key);
        }
        for key in (first..STAYING).step_by(2) {
            assert_eq!(map.pin().get(&key).map(|value| **value), Some(key));
        }
    };
    work(0);
    elsewhere(|| work(1));
    check();
    map.pin().clear();
    assert_eq!(map.pin().iter().count(), 0);
    (0..100).for_each(|key| put(map, key));
    assert_eq!(map.pin().iter().count(), 100);
    // Moves end, also those that threads of the parent had begun.
    eventually(|| {
        map.pin().shrink_to_fit();
        map.pin().capacity() < MANY as usize / 2
    });
    // What the writers of the parent had not counted yet is not counted.
    assert!(map.len().abs_diff(100) <= WRITERS as usize);
}

#[test]
fn child_goes_on_with_a_map_that_was_written() {
    if !is_apart("child_goes_on_with_a_map_that_was_written") {
        return;
    }
    let map = Map::new();
    (0..STAYING).for_each(|key| put(&map, key));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        for writer in 0..WRITERS {
            let (map, over) = (&map, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    for key in (STAYING + writer..MANY).step_by(WRITERS as usize) {
                        put(map, key);
                    }
                    put(map, writer);
                    for key in (STAYING + writer..MANY).step_by(WRITERS as usize) {
                        map.pin().remove(&key);
                    }
                }
            });
        }
        for round in 0..150_u64 {
            // At another place of the writers' rounds each time.
            for _ in 0..round % 16 * 1000 {
                black_box(round);
            }
            fork(|| use_in_child(&map)).well();
        }
    });
}
