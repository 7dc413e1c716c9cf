//! A full cache of [`ENTRIES`] entries whose keys and values are `String`s, on one thread: reads of keys that it
//! had at the start, inserts of keys that it has not had, each of which evicts, and three reads for an insert. Each
//! key is read as often as another. `hit_ratio` is the hits of all reads in the best slice, and is reported where
//! inserts evict what is read.
//!
//! `ns_per_op` is the best of [`SLICES`] slices; of inserts it includes two reads of the clock and the copy of a
//! string. `p999_ns` is the 99.9th percentile of the time of an insert.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::{Work, leak};
use crate::cache::StringCache;
use crate::run::Sample;

const ENTRIES: usize = 200_000;

const SLICES: usize = 5;

/// Operations in a slice.
const OPERATIONS: usize = 200_000;

/// The mix of operations of a scenario.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Number of inserts in four operations.
    inserts: usize,
}

impl Plan {
    /// The plan of a scenario of this name, if it is one of these.
    pub fn of(scenario: &str) -> Option<Self> {
        let inserts = match scenario {
            "read-200k" => 0,
            "insert-200k" => 4,
            "mixed-200k" => 1,
            _ => return None,
        };
        Some(Self { inserts })
    }
}

/// The string of a number: no two are alike, and neighbours differ everywhere.
fn string(number: usize) -> String {
    format!(
        "user:{:016x}",
        (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    )
}

/// Measures a scenario.
pub fn measure<C: StringCache>(work: &Work, Plan { inserts }: Plan) -> Result<Sample> {
    let (entries, operations) = (work.divided(ENTRIES), work.divided(OPERATIONS));
    let cache: &C = leak(C::with_entries(entries));
    let mut keys = (0..).map(string);
    let mut insert = |key: String| {
        let value = key.clone();
        let begun = Instant::now();
        cache.insert(key, value);
        begun.elapsed()
    };
    let filled: Vec<String> = keys.by_ref().take(entries + entries / 2).collect();
    for key in &filled {
        insert(key.clone());
    }
    // In an order that is not that of their inserts.
    let mut there: Vec<&String> = filled.iter().filter(|key| cache.finds(key)).collect();
    there.sort_unstable();
    ensure!(
        there.len() > entries / 2,
        "it has only {} entries",
        there.len()
    );
    let mut times = Vec::with_capacity(SLICES * operations);
    let (mut best, mut read) = ((f64::INFINITY, 0.0), 0);
    for _ in 0..SLICES {
        let mut fresh: Vec<String> = keys.by_ref().take(operations * inserts / 4 + 4).collect();
        let (mut reads, mut hits) = (0, 0);
        let begun = Instant::now();
        for number in 0..operations {
            if number % 4 < inserts {
                times.extend(fresh.pop().map(&mut insert));
            } else {
                read = (read + 1) % there.len();
                reads += 1;
                hits += u32::from(cache.finds(there[read]));
            }
        }
        let took = begun.elapsed().as_secs_f64();
        if took < best.0 {
            best = (took, f64::from(hits) / f64::from(reads));
        }
    }
    let (best, hit_ratio) = best;
    let mut figures = vec![
        ("ns_per_op", best * 1e9 / operations as f64),
        ("ops_per_s", operations as f64 / best),
    ];
    if inserts > 0 && inserts < 4 {
        figures.push(("hit_ratio", hit_ratio));
    }
    if !times.is_empty() {
        times.sort_unstable();
        let slow = times[times.len() - 1 - times.len() / 1000];
        figures.push(("p999_ns", slow.as_secs_f64() * 1e9));
    }
    Ok(Sample::of(figures))
}
