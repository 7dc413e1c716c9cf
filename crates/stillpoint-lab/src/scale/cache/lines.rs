//! What a hit writes of the cache lines that threads share, counted instruction by instruction.
//!
//! Two threads read the same [`KEYS`] keys in turn, each on its own processor, as
//! [`shared_lines`] has it: a line is shared if both have touched it and any has written it. Each has
//! found each key [`BEFORE`] times before that is counted: what a subject notes of the first hits it
//! has noted by then. `shared_rmw_per_op` are atomic read-modify-writes of such lines,
//! `shared_stores_per_op` plain stores. Both are absent where the processor cannot be stepped through.

use std::hint::black_box;

use anyhow::{Result, ensure};

use crate::cache::{Cache, CacheHandle};
use crate::scale::map::keys::key;
use crate::scale::shared_lines::{self, Plan};

/// Keys that no scenario has asked for.
const KEYS: usize = 16;
const FIRST: u64 = 1 << 40;

/// More than any subject notes.
const BEFORE: usize = 8;

const PLAN: Plan = Plan {
    warm_up: BEFORE * KEYS,
    calls: KEYS,
    beside: 0,
};

/// Counts in a cache that has room for the keys. Nothing where that cannot be done.
pub fn written_by_a_hit<C: Cache>(cache: &C) -> Result<Vec<(&'static str, f64)>> {
    if shared_lines::available().is_err() {
        return Ok(Vec::new());
    }
    let keys: Vec<u64> = (FIRST..).take(KEYS).map(key).collect();
    let mut handle = cache.handle();
    keys.iter().for_each(|&key| handle.insert(key, key));
    cache.settle();
    let is_there = keys.iter().all(|&key| handle.get(key).is_some());
    ensure!(is_there, "a key that was inserted just now is not found");
    let totals = shared_lines::count(PLAN, || {
        let (mut handle, mut keys) = (cache.handle(), keys.iter().cycle());
        move || {
            if let Some(&key) = keys.next() {
                black_box(handle.get(key));
            }
        }
    })?;
    let per_op = |count: u64| count as f64 / totals.runs as f64;
    Ok(vec![
        ("shared_rmw_per_op", per_op(totals.read_modify_writes)),
        ("shared_stores_per_op", per_op(totals.stores)),
    ])
}
