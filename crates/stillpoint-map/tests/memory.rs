//! The memory of a map that was large, and has a few entries, goes back to the system.
#![cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]

use std::{
    fs, thread,
    time::{Duration, Instant},
};
use stillpoint_map::HashMap;

const MANY: u64 = 1_000_000;
const FEW: u64 = 10;

/// Resident memory, in bytes, without what the allocator keeps.
fn resident() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time.
    unsafe {
        libc::malloc_trim(0)
    };
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn is_staying(key: u64) -> bool {
    key.is_multiple_of(MANY / FEW)
}

/// Waits until that much or less is resident. Returns how long it took.
fn until_resident(most: usize) -> Duration {
    let begun = Instant::now();
    while resident() > most {
        let now = resident() >> 10;
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{now} KiB of {}",
            most >> 10
        );
        thread::sleep(Duration::from_millis(10));
    }
    begun.elapsed()
}

/// Nothing uses the map after the last removal. The machine may be busy, so the second that is
/// promised for a quiet one is thirty here.
fn few_of_many_take_little<V: Send + Sync + 'static>(value: fn(u64) -> V) {
    let map = HashMap::new();
    let insert = |key| {
        map.pin().insert(key, value(key));
    };
    (0..2000).for_each(insert);
    let before = resident();
    (0..MANY).for_each(insert);
    let full = resident();
    assert!(full - before > MANY as usize * 32, "{}", full - before);
    for key in (0..MANY).filter(|key| !is_staying(*key)) {
        assert!(map.pin().remove(&key).is_some());
    }
    // Survivors far apart keep a run of 32 KiB each, and there are pages of the library's lists.
    let took = until_resident(before + (6 << 20));
    println!("{} MiB, {took:?}", full >> 20);
    assert!(
        (0..MANY)
            .filter(|key| is_staying(*key))
            .all(|key| map.pin().contains_key(&key))
    );
    // What is dropped full is given back, too.
    (0..MANY).for_each(insert);
    assert!(resident() - before > MANY as usize * 32);
    drop(map);
    until_resident(before + (6 << 20));
}

/// The process's mappings, of which it may have 65,530.
fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

/// Maps and large maps take few of the process's mappings, whatever goes in between.
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

#[test]
fn map_that_was_large_gives_its_memory_back() {
    few_of_many_take_little(|key| key);
    few_of_many_take_little(|key| [key; 8]);
}
