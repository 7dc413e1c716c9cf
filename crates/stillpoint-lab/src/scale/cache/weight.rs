//! What an entry weighs in resident memory beyond its key and its value, 16 bytes together, in a
//! cache that has been full for as long as it took to fill it: twice as many entries were inserted
//! as it holds, so that what it remembers of evicted ones is there, too.
//!
//! What is divided by is how many of the inserted entries are found, as caches may hold fewer than
//! they were told.

use anyhow::{Result, ensure};

use super::Work;
use crate::cache::{Cache, CacheHandle};
use crate::run::Sample;
use crate::scale::map::keys::key;
use crate::scale::map::weight::settle;

/// The cache's capacity.
const ENTRIES: usize = 1_000_000;

/// Bytes of a key and a value.
const ENTRY: f64 = 16.0;

/// Measures an entry's weight.
pub fn measure<C: Cache>(work: &Work) -> Result<Sample> {
    let entries = work.divided(ENTRIES);
    // What the subject allocates once is there.
    let other: &C = super::leak(C::with_entries(1));
    other.handle().insert(0, 0);
    let before = settle()?;
    let cache: &C = super::leak(C::with_entries(entries));
    let inserted = 2 * entries as u64;
    let mut handle = cache.handle();
    for number in 0..inserted {
        handle.insert(key(number), number);
    }
    cache.settle();
    let bytes = settle()?.saturating_sub(before);
    let found = (0..inserted)
        .filter(|&number| handle.get(key(number)).is_some())
        .count();
    ensure!(found > 0, "the cache is empty");
    Ok(Sample::of([(
        "bytes_per_entry",
        beyond_entry(bytes, found),
    )]))
}

/// Measures bytes of an entry beyond its key and value, in a cache of `entries` entries.
pub fn beyond_entry(bytes: u64, entries: usize) -> f64 {
    (bytes as f64 / entries as f64 - ENTRY).max(0.0)
}
