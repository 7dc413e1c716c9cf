//! The memory of a full cache, and what comes back when it is told to shrink.
//!
//! `memory`: what an entry weighs in resident memory beyond its key and its value, 16 bytes together, in a
//! cache that has been full for as long as it took to fill it: twice as many entries were inserted
//! as it holds, so that its records of evicted entries are included. The bytes are divided by the number of
//! inserted entries that are found, as caches may hold fewer than they were told.
//!
//! `pressure`: a cache of [`BYTES`], which has been full for as long as it took to fill it, is told to be half as
//! large. Values are bytes, of 64 to 2,000. `rss_ms` is the time from then until the resident memory is
//! down by half of what the cache says it held; absent where that has not happened after
//! [`PATIENCE`]. `rss_ratio` is what is resident then, above what was before the cache, divided by
//! what the cache says it holds. Subjects that cannot be told are absent.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Work, leak};
use crate::cache::{ByteCache, Cache};
use crate::run::Sample;
use crate::scale::keys::key;
use crate::scale::memory::{resident, settle};

/// The cache's capacity.
const ENTRIES: usize = 1_000_000;

/// Bytes of a key and a value.
const ENTRY: f64 = 16.0;

/// Measures an entry's weight.
pub fn bytes_per_entry<C: Cache>(work: &Work) -> Result<Sample> {
    let entries = work.divided(ENTRIES);
    // Memory that the subject allocates once is not counted.
    leak(C::with_entries(1)).insert(0, 0);
    let before = settle()?;
    let cache: &C = leak(C::with_entries(entries));
    let inserted = 2 * entries as u64;
    for number in 0..inserted {
        cache.insert(key(number), number);
    }
    cache.settle();
    let bytes = settle()?.saturating_sub(before);
    let found = (0..inserted)
        .filter(|&number| cache.get(key(number)).is_some())
        .count();
    ensure!(found > 0, "the cache is empty");
    let per_entry = (bytes as f64 / found as f64 - ENTRY).max(0.0);
    Ok(Sample::of([("bytes_per_entry", per_entry)]))
}

/// The cache's size.
const BYTES: u64 = 128 << 20;

/// The bytes of a value.
const SIZES: std::ops::RangeInclusive<usize> = 64..=2_000;

const PATIENCE: Duration = Duration::from_secs(2);

/// Between two looks.
const LOOK: Duration = Duration::from_micros(200);

/// Measures how fast memory comes back.
pub fn shrink<C: ByteCache>(work: &Work) -> Result<Sample> {
    let base = resident()?;
    let bytes = BYTES / u64::from(work.divide);
    let cache: &C = leak(C::with_bytes(bytes));
    fill(cache, 2 * bytes);
    let held = cache.charged();
    let before = resident()?;
    let wanted = before.saturating_sub(held - held / 2);

    let begun = Instant::now();
    cache.shrink(held / 2);
    let mut figures = Vec::new();
    while begun.elapsed() < PATIENCE {
        if resident()? <= wanted {
            figures.push(("rss_ms", begun.elapsed().as_secs_f64() * 1e3));
            break;
        }
        thread::sleep(LOOK);
    }
    let left = resident()?.saturating_sub(base) as f64;
    figures.push(("rss_ratio", left / cache.charged().max(1) as f64));
    Ok(Sample::of(figures))
}

/// Inserts values of `bytes` bytes together.
fn fill(cache: &impl ByteCache, bytes: u64) {
    let mut random = fastrand::Rng::with_seed(1);
    let value: Vec<u8> = (0..*SIZES.end()).map(|at| at as u8).collect();
    let (mut inserted, mut number) = (0, 0);
    while inserted < bytes {
        let size = random.usize(SIZES);
        cache.insert(key(number), &value[..size]);
        inserted += size as u64;
        number += 1;
    }
}
