//! Reads that find their key, on one thread and on two, after Caffeine's GetPutBenchmark: 32,768
//! requests over 10,922 keys, some requested more than others (Zipf, 0.99), in a cache of 65,536;
//! and a mix of three reads and an insert, over 131,072 keys in a cache of 32,768, so that entries
//! are replaced and evicted.
//!
//! Each thread goes through its own requests again and again. `ns_per_op` is what an operation
//! takes on its thread, `ops_per_s` what all threads do; the best of [`SLICES`] slices is reported,
//! as in `scale read`. The limit is hashbrown's table with neither synchronization nor eviction, one for each thread.
//!
//! With `--count` follows what a hit writes of the cache lines that threads share, counted instruction by instruction
//! in the same cache. Two threads read the same [`KEYS`] keys in turn, each on its own processor, as [`shared_lines`]
//! has it: a line is shared if both have touched it and any has written it. Each has found each key [`BEFORE`] times
//! before that is counted: what a subject notes of the first hits it has noted by then. `shared_rmw_per_op` are
//! atomic read-modify-writes of such lines, `shared_stores_per_op` plain stores. Both are absent where the processor
//! cannot be stepped through.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Result, ensure};
use hashbrown::HashMap;

use super::{Work, leak};
use crate::cache::{BuildHasher, Cache, CacheHandle, request};
use crate::run::Sample;
use crate::scale::keys::{Zipf, key};
use crate::scale::shared_lines;
use crate::scale::span;
use crate::scale::threads::in_threads;

const SLICES: usize = 5;

/// How keys are requested.
const EXPONENT: f64 = 0.99;

/// A scenario.
#[derive(Clone, Copy)]
pub struct Plan {
    /// `None`: as many as asked for.
    threads: Option<usize>,
    kind: Kind,
}

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    entries: usize,
    keys: u64,
    /// Requests that a thread repeats: a power of two.
    requests: usize,
    /// Operations of a thread in a slice.
    operations: usize,
    /// The rest of the operations whose number is divided by 4 that are inserts; none if that is 4.
    inserts: usize,
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "read",
        entries: 65_536,
        keys: 10_922,
        requests: 1 << 15,
        operations: 1 << 20,
        inserts: 4,
    },
    Kind {
        name: "mixed",
        entries: 32_768,
        keys: 131_072,
        requests: 1 << 18,
        operations: 1 << 18,
        inserts: 3,
    },
];

impl Kind {
    fn is_read_only(&self) -> bool {
        self.inserts == 4
    }
}

impl Plan {
    /// The plan of a scenario of this name, if it is one of these.
    pub fn of(scenario: &str) -> Option<Self> {
        let (name, threads) = scenario.split_once('-')?;
        Some(Self {
            threads: match threads {
                "n" => None,
                number => Some(number.parse().ok()?),
            },
            kind: KINDS.into_iter().find(|kind| kind.name == name)?,
        })
    }

    /// Returns whether nothing is evicted, so that the limit does the same work.
    pub fn is_read_only(&self) -> bool {
        self.kind.is_read_only()
    }
}

/// Measures a cache.
pub fn measure<C: Cache>(work: &Work, plan: Plan) -> Result<Sample> {
    let cache: &C = leak(C::with_entries(plan.kind.entries));
    let mut sample = of_handles(work, plan, || cache, || cache.settle())?;
    if work.count && plan.is_read_only() && shared_lines::available().is_ok() {
        sample.add(written_by_a_hit(cache)?);
    }
    Ok(sample)
}

/// Measures the limit.
pub fn limit(work: &Work, plan: Plan) -> Result<Sample> {
    let hasher = BuildHasher::default;
    let table = || HashMap::with_capacity_and_hasher(plan.kind.entries, hasher());
    of_handles(work, plan, || Unshared(table()), || ())
}

/// A thread's table.
struct Unshared(HashMap<u64, u64, BuildHasher>);

impl CacheHandle for Unshared {
    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        self.0.get(&key).copied()
    }

    #[inline]
    fn insert(&mut self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
}

/// Measures threads that each use what `handle` returns. `settle` does what they have put off.
fn of_handles<H: CacheHandle>(
    work: &Work,
    Plan { threads, kind }: Plan,
    handle: impl Fn() -> H + Sync,
    settle: impl Fn() + Sync,
) -> Result<Sample> {
    let threads = threads.unwrap_or(work.threads as usize);
    let operations = work.divided(kind.operations).next_multiple_of(4);
    let barrier = Barrier::new(threads);
    let thread = |number: usize| {
        let mut zipf = Zipf::new(kind.keys, EXPONENT, 1 + number as u64);
        let requests: Vec<u64> = (0..kind.requests).map(|_| zipf.key()).collect();
        let mut handle = handle();
        for &key in &requests {
            request(&mut handle, key, key);
        }
        settle();
        (0..SLICES)
            .map(|_| {
                barrier.wait();
                let begun = Instant::now();
                let found = if kind.is_read_only() {
                    read(&mut handle, &requests, operations)
                } else {
                    mix(&mut handle, &requests, operations, kind.inserts)
                };
                (begun, Instant::now(), found)
            })
            .collect::<Vec<_>>()
    };
    let slices = in_threads(threads, thread)?;
    let took = |slice: usize| {
        let parts = slices.iter().map(|slices| slices[slice]);
        span(parts.map(|(begun, ended, _)| (begun, ended)))
    };
    if kind.is_read_only() {
        let mut found = slices.iter().flatten().map(|(.., found)| *found);
        ensure!(
            found.all(|found| found == operations),
            "a key was not found"
        );
    }
    let took = (0..SLICES).map(took).collect::<Result<Vec<_>>>()?;
    let best = took.into_iter().min().unwrap_or_default().as_secs_f64();
    Ok(Sample::of([
        ("ns_per_op", best * 1e9 / operations as f64),
        ("ops_per_s", (threads * operations) as f64 / best),
    ]))
}

/// Reads, and returns how many keys were found.
#[inline(never)]
fn read(cache: &mut impl CacheHandle, requests: &[u64], operations: usize) -> usize {
    let mut found = 0;
    for number in 0..operations {
        let key = requests[number & (requests.len() - 1)];
        found += usize::from(black_box(cache.get(key)).is_some());
    }
    found
}

/// The same with inserts between.
#[inline(never)]
fn mix(cache: &mut impl CacheHandle, requests: &[u64], operations: usize, inserts: usize) -> usize {
    let mut found = 0;
    for number in 0..operations {
        let key = requests[number & (requests.len() - 1)];
        if number % 4 == inserts {
            cache.insert(key, key);
        } else {
            found += usize::from(black_box(cache.get(key)).is_some());
        }
    }
    found
}

/// Keys that no scenario has asked for.
const KEYS: usize = 16;
const FIRST: u64 = 1 << 40;

/// More than any subject notes.
const BEFORE: usize = 8;

const COUNTED: shared_lines::Plan = shared_lines::Plan {
    warm_up: BEFORE * KEYS,
    calls: KEYS,
    beside: 0,
};

/// Counts what a hit writes of shared lines, in a cache that has room for the keys.
fn written_by_a_hit<C: Cache>(cache: &C) -> Result<[(&'static str, f64); 2]> {
    let keys: Vec<u64> = (FIRST..).take(KEYS).map(key).collect();
    keys.iter().for_each(|&key| cache.insert(key, key));
    cache.settle();
    let is_there = keys.iter().all(|&key| cache.get(key).is_some());
    ensure!(is_there, "a key that was inserted just now is not found");
    let totals = shared_lines::count(COUNTED, || {
        let mut keys = keys.iter().cycle();
        move || {
            if let Some(&key) = keys.next() {
                black_box(cache.get(key));
            }
        }
    })?;
    let per_op = |count: u64| count as f64 / totals.runs as f64;
    Ok([
        ("shared_rmw_per_op", per_op(totals.read_modify_writes)),
        ("shared_stores_per_op", per_op(totals.stores)),
    ])
}
