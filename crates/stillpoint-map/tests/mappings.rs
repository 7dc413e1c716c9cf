//! Maps and large maps take few of the process's mappings.
#![cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]

use std::fs;
use stillpoint_map::HashMap;

/// The process's mappings, of which it may have 65,530.
fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

/// Whatever goes in between.
#[test]
fn regions_are_neighbours() {
    let insert = |map: HashMap<u64, [u64; 8]>, keys| {
        for key in 0..keys {
            map.pin().insert(key, [key; 8]);
        }
        map
    };
    let before = mappings();
    let mut maps: Vec<_> = (0..600).map(|_| insert(HashMap::new(), 900)).collect();
    // A hole for every second one, which is filled.
    let mut number = 0;
    maps.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    maps.extend((0..300).map(|_| insert(HashMap::new(), 900)));
    maps.push(insert(HashMap::new(), 1_000_000));
    let taken = mappings() - before;
    assert!(taken < 150, "{taken} mappings");
}
