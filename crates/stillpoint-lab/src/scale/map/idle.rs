//! Maps that no other thread uses: how long until a removed value is dropped, and how fast all
//! entries are visited.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Work;
use super::keys::key;
use crate::map::{Counted, Map, MapHandle, MapValue};
use crate::run::Sample;

/// Entries of the map that one is removed from.
const FEW: u64 = 1_000;

/// Values that are removed, one after the other.
const REMOVED: u64 = 5;

/// A value that has not been dropped by then will not be.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two looks.
const LOOK: Duration = Duration::from_micros(20);

/// Measures how long after its removal a value is dropped, at the most, while its thread sleeps and
/// no thread uses the map; no figure where it is not.
pub fn until_dropped<M: Map<Counted>>() -> Result<Sample> {
    let map = M::with_capacity(0);
    let mut handle = map.handle(1);
    for number in 0..FEW {
        handle.insert(key(number), Counted::new(number));
    }
    let mut longest = Duration::ZERO;
    for number in 0..REMOVED {
        let before = Counted::dropped();
        let begun = Instant::now();
        ensure!(handle.remove(key(number)), "a key is not there");
        while Counted::dropped() == before {
            if begun.elapsed() > PATIENCE {
                return Ok(Sample::default());
            }
            thread::sleep(LOOK);
        }
        longest = longest.max(begun.elapsed());
    }
    let drop_ms = longest.as_secs_f64() * 1e3;
    Ok(Sample::of([("drop_ms", drop_ms)]))
}

/// Entries that are visited.
const ENTRIES: usize = 1_000_000;

/// Visits, of which the best counts.
const VISITS: usize = 3;

/// Measures how many entries one thread visits in a second.
pub fn iterate<M: Map<u64>>(work: &Work) -> Result<Sample> {
    let entries = work.divided(ENTRIES) as u64;
    let map: &M = super::leak(entries as usize);
    let mut handle = map.handle(1);
    for number in 0..entries {
        handle.insert(key(number), number);
    }
    let all = (entries, (0..entries).sum());
    let mut best = Duration::MAX;
    for _ in 0..VISITS {
        let begun = Instant::now();
        let found = handle.count_and_sum();
        best = best.min(begun.elapsed());
        ensure!(found == all, "visited {found:?}, expected {all:?}");
    }
    let per_s = entries as f64 / best.as_secs_f64();
    Ok(Sample::of([("keys_per_s", per_s)]))
}
