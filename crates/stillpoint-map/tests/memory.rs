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
fn few_of_many_take_little<V: Send + Sync + 'static>(writers: u64, value: fn(u64) -> V) {
    let map = HashMap::new();
    let insert = &|key| {
        map.pin().insert(key, value(key));
    };
    (0..2000).for_each(insert);
    let before = resident();
    thread::scope(|scope| {
        for writer in 0..writers {
            let keys = (writer..MANY).step_by(writers as usize);
            scope.spawn(move || keys.for_each(insert));
        }
    });
    let full = resident();
    assert!(full - before > MANY as usize * 32, "{}", full - before);
    for key in (0..MANY).filter(|key| !is_staying(*key)) {
        assert!(map.pin().remove(&key).is_some());
    }
    // Survivors far apart keep a run of 32 KiB each; there are pages of the library's lists, and what
    // the allocator has for each thread.
    let most = before + ((5 + writers as usize) << 20);
    let took = until_resident(most);
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
    until_resident(most);
}

#[test]
fn map_that_was_large_gives_its_memory_back() {
    few_of_many_take_little(1, |key| key);
    few_of_many_take_little(1, |key| [key; 8]);
    few_of_many_take_little(9, |key| key);
}
