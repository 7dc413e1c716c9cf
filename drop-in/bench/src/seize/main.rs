//! What papaya costs on seize: one source, built twice, with the original (`seize-stock/Cargo.toml`)
//! and with the drop-in package (`seize-patched/Cargo.toml`).
//!
//! `seize-bench SCENARIO SEED` prints its figures as one line of JSON; `seize-bench SCENARIO SEED
//! COUNT` does `COUNT` operations and prints nothing, for a profiler.

#[path = "../measure.rs"]
mod measure;

use measure::{Figures, cpu_ns_per_op, peak_mib, together};
use papaya::HashMap;
use seize::{Collector, Guard, reclaim};
use std::{
    env,
    hint::black_box,
    process::ExitCode,
    sync::atomic::{AtomicPtr, Ordering},
};

/// The keys of the map.
const KEYS: u64 = 10_000;

/// How many objects the flood retires on each of its threads.
const FLOOD: u64 = 1_000_000;

/// How many maps there are at a time in `maps-memory`.
const MAPS: usize = 10_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (scenario, seed, count) = match &arguments[..] {
        [scenario, seed] => (scenario, seed.parse(), None),
        [scenario, seed, count] => (scenario, seed.parse(), count.parse().ok()),
        _ => return usage(),
    };
    let Ok(seed) = seed else { return usage() };
    let Some(figures) = measured(scenario, seed, count) else {
        return usage();
    };
    if count.is_none() {
        println!("{}", serde_json::Value::from_iter(figures));
    }
    ExitCode::SUCCESS
}

fn measured(scenario: &str, seed: u64, count: Option<u64>) -> Option<Figures> {
    Some(match scenario {
        "enter" => enter(count),
        "retire" => retire(count),
        "read-1" => map(1, 100, seed, count),
        "read-2" => map(2, 100, seed, count),
        "mixed-1" => map(1, 50, seed, count),
        "mixed-2" => map(2, 50, seed, count),
        "write-2" => map(2, 0, seed, count),
        "create" => create(count),
        "flood" => vec![("peak_mib", peak_mib(|| flood(16)))],
        "maps-memory" => maps_memory(),
        _ => return None,
    })
}

/// A guard and its end.
fn enter(count: Option<u64>) -> Figures {
    let collector = Collector::new();
    cpu_ns_per_op(1, count, |_, count| {
        for _ in 0..count {
            drop(black_box(collector.enter()));
        }
    })
}

/// A guard, and a box behind a pointer that is replaced.
fn retire(count: Option<u64>) -> Figures {
    cpu_ns_per_op(1, count, |_, count| {
        let collector = Collector::new();
        let shared = AtomicPtr::new(Box::into_raw(Box::new([0_u64; 8])));
        replace(&collector, &shared, count);
        // SAFETY: the last one, which no other thread knows.
        drop(unsafe { Box::from_raw(shared.into_inner()) });
    })
}

fn replace(collector: &Collector, shared: &AtomicPtr<[u64; 8]>, count: u64) {
    for n in 0..count {
        let guard = collector.enter();
        let new = Box::into_raw(Box::new([n; 8]));
        let old = guard.swap(shared, new, Ordering::AcqRel);
        // SAFETY: out of a box, and no thread that enters from now on finds it.
        unsafe { guard.defer_retire(old, reclaim::boxed) };
    }
}

/// An operation at a map with all keys; so many gets of a hundred, and else insertions, each of
/// which retires the entry before it.
fn map(threads: usize, gets: u64, seed: u64, count: Option<u64>) -> Figures {
    let map = HashMap::<u64, u64>::new();
    for key in 0..KEYS {
        map.pin().insert(key, key);
    }
    cpu_ns_per_op(threads, count, |thread, count| {
        let mut random = fastrand::Rng::with_seed(seed + thread as u64);
        for n in 0..count {
            let key = random.u64(..KEYS);
            if random.u64(..100) < gets {
                black_box(map.pin().get(&key).copied());
            } else {
                map.pin().insert(key, n);
            }
        }
    })
}

/// A map that is made, has an entry put in and replaced, and is dropped.
fn create(count: Option<u64>) -> Figures {
    cpu_ns_per_op(1, count, |_, count| {
        for n in 0..count {
            let map = HashMap::<u64, u64>::new();
            map.pin().insert(n, n);
            map.pin().insert(n, n + 1);
            black_box(map.pin().get(&n).copied());
        }
    })
}

/// So many threads replace values of one collector.
fn flood(threads: usize) {
    let collector = Collector::new();
    let shared = AtomicPtr::new(Box::into_raw(Box::new([0_u64; 8])));
    together(threads, |_| replace(&collector, &shared, FLOOD));
    // SAFETY: the last one.
    drop(unsafe { Box::from_raw(shared.into_inner()) });
}

/// Maps with an entry each, all at a time: KiB a map.
fn maps_memory() -> Figures {
    let mut maps = Vec::with_capacity(MAPS);
    let mib = peak_mib(|| {
        for n in 0..MAPS as u64 {
            let map = HashMap::<u64, u64>::new();
            map.pin().insert(n, n);
            maps.push(map);
        }
    });
    vec![("kib_per_map", mib * 1024.0 / MAPS as f64)]
}

fn usage() -> ExitCode {
    eprintln!("usage: seize-bench SCENARIO SEED [COUNT]");
    ExitCode::from(2)
}
