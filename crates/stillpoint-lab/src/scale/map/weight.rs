//! What maps weigh, in resident memory: of 2,000,000 entries inserted into a map that was not told
//! how many will come, and of a million empty maps, or of as many as take a GiB.
//!
//! One method for all: before both looks nothing is done until the resident memory stands still,
//! which lets garbage be freed, and the allocator gives back what it keeps (`malloc_trim`).

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Work;
use super::keys::key;
use crate::map::{Map, MapHandle};
use crate::run::Sample;
use crate::scale::memory::resident;

const ENTRIES: usize = 2_000_000;

const MAPS: usize = 1_000_000;

/// The most that empty maps may take, in bytes.
const MOST: u64 = 1 << 30;

/// Memory that does not change for so long stands still.
const STILL: Duration = Duration::from_millis(50);

/// It is not waited for longer than this.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lets garbage be freed and memory be given back; returns what is resident then, in bytes.
pub fn settle() -> Result<u64> {
    let begun = Instant::now();
    let (mut since, mut last) = (begun, resident()?);
    while since.elapsed() < STILL && begun.elapsed() < PATIENCE {
        thread::sleep(STILL / 10);
        let now = resident()?;
        if now != last {
            (since, last) = (Instant::now(), now);
        }
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
    resident()
}

/// Measures an entry's weight.
pub fn of_entries<M: Map<u64>>(work: &Work) -> Result<Sample> {
    let entries = work.divided(ENTRIES) as u64;
    // What the subject allocates once is there.
    let other: &M = super::leak(0);
    other.handle(1).insert(0, 0);
    let before = settle()?;
    let map: &M = super::leak(0);
    let mut handle = map.handle(1);
    for number in 0..entries {
        handle.insert(key(number), number);
    }
    let bytes = settle()?.saturating_sub(before);
    let (count, _) = handle.count_and_sum();
    ensure!(count == entries, "{count} entries of {entries}");
    let per_entry = bytes as f64 / entries as f64;
    Ok(Sample::of([("bytes_per_entry", per_entry)]))
}

/// Measures an empty map's weight. There are fewer where they would take more than [`MOST`].
pub fn of_empty<M>(work: &Work, make: fn() -> M) -> Result<Sample> {
    const LOOK: usize = 10_000;

    let _other = make();
    let before = settle()?;
    let mut maps = Vec::new();
    maps.reserve_exact(work.divided(MAPS));
    while maps.len() < work.divided(MAPS) {
        maps.push(make());
        if maps.len() % LOOK == 0 && resident()? - before > MOST {
            break;
        }
    }
    let bytes = settle()?.saturating_sub(before);
    let per_map = bytes as f64 / maps.len() as f64;
    // The process ends here; to free a million of maps would take as long as to make them.
    std::mem::forget(maps);
    Ok(Sample::of([("bytes_per_empty", per_map)]))
}
