//! Reads that find their key, on one thread and on two, after Caffeine's GetPutBenchmark: 32,768
//! requests over 10,922 keys, some requested more than others (Zipf, 0.99), in a cache of 65,536;
//! and a mix of three reads and an insert, over 131,072 keys in a cache of 32,768, so that entries
//! are replaced and evicted.
//!
//! Each thread goes through its own requests again and again. `ns_per_op` is what an operation
//! takes on its thread, `ops_per_s` what all threads do; the best of [`SLICES`] slices is reported,
//! as in `scale read`. Where that is asked for, [`lines`] counts behind it, in the same cache.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::{Work, lines};
use crate::cache::{Cache, CacheHandle, request};
use crate::run::Sample;
use crate::scale::map::zipf::Zipf;
use crate::scale::{in_threads, span};

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

/// Measures a scenario.
pub fn measure<C: Cache>(work: &Work, plan: Plan) -> Result<Sample> {
    let Plan { threads, kind } = plan;
    let threads = threads.unwrap_or(work.threads as usize);
    let operations = work.divided(kind.operations).next_multiple_of(4);
    let cache: &C = super::leak(C::with_entries(kind.entries));
    let barrier = Barrier::new(threads);
    let thread = |number: usize| {
        let mut zipf = Zipf::new(kind.keys, EXPONENT, 1 + number as u64);
        let requests: Vec<u64> = (0..kind.requests).map(|_| zipf.key()).collect();
        let mut handle = cache.handle();
        for &key in &requests {
            request(&mut handle, key, key);
        }
        cache.settle();
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
    let mut figures = vec![
        ("ns_per_op", best * 1e9 / operations as f64),
        ("ops_per_s", (threads * operations) as f64 / best),
    ];
    if work.count && kind.is_read_only() {
        figures.extend(lines::written_by_a_hit(cache)?);
    }
    Ok(Sample::of(figures))
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
