//! What maps in the order of their keys do beside single reads ([`super::get`]): scans, and YCSB's
//! workload A.
//!
//! A scan begins at a key that is there, at random, and visits [`SCANNED`] entries; `ns_per_key` is
//! its time divided by those that it found, in the best of [`SLICES`] slices.
//!
//! Workload A (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010): each thread
//! reads a key or replaces its value, one as often as the other; some keys are asked for more than
//! others (Zipf, 0.99). Every key is there. The requests are made before, so that what is timed is
//! the map. `ops_per_s` is of all threads. Of the limit each thread has a map of all entries.
//!
//! A wrong answer fails the measurement.

use std::hint::black_box;

use anyhow::{Result, ensure};

use super::{Work, leak};
use crate::map::{OrderedHandle, OrderedMap};
use crate::run::Sample;
use crate::scale::keys::{Numbers, Zipf, key};
use crate::scale::threads::together;
use crate::scale::timing::best_ns;

/// Entries that are scanned.
const ENTRIES: usize = 1_000_000;

/// Entries of one scan.
const SCANNED: usize = 100;

const SLICES: usize = 5;

/// Scans of one slice. A debug build shows that they can be measured, and no more.
const SCANS: usize = if cfg!(debug_assertions) {
    1 << 7
} else {
    1 << 12
};

/// Measures scans.
pub fn scan<M: OrderedMap>(work: &Work) -> Result<Sample> {
    let entries = work.divided(ENTRIES);
    let map: &M = leak(M::new());
    let mut handle = map.handle();
    fill(&mut handle, entries);
    check(&handle, entries)?;

    let mut numbers = Numbers::of(1);
    let ns_per_key = best_ns(SLICES, || slice(&handle, entries, &mut numbers));
    Ok(Sample::of([("ns_per_key", ns_per_key)]))
}

/// Inserts `entries` entries, in no order, whose values are their keys.
fn fill(handle: &mut impl OrderedHandle, entries: usize) {
    for number in 0..entries as u64 {
        handle.put(key(number), key(number));
    }
}

/// Scans find the entries that come next, and no others.
fn check(handle: &impl OrderedHandle, entries: usize) -> Result<()> {
    let mut keys: Vec<u64> = (0..entries as u64).map(key).collect();
    keys.sort_unstable();
    for first in (0..entries).step_by(entries / SCANNED + 1) {
        let next = &keys[first..entries.min(first + SCANNED)];
        let sum = next.iter().fold(0, |sum: u64, key| sum.wrapping_add(*key));
        let (expected, found) = ((next.len() as u64, sum), handle.scan(next[0], SCANNED));
        ensure!(
            found == expected,
            "scanned {found:?}, expected {expected:?}"
        );
    }
    Ok(())
}

/// Scans; returns how many entries were visited.
#[inline(never)]
fn slice(handle: &impl OrderedHandle, entries: usize, numbers: &mut Numbers) -> usize {
    let (mut all, mut sum) = (0, 0_u64);
    for _ in 0..SCANS {
        let found = handle.scan(key(numbers.below(entries)), SCANNED);
        all += found.0;
        sum = sum.wrapping_add(found.1);
    }
    black_box(sum);
    all as usize
}

/// Threads of the workload.
const THREADS: usize = 2;

/// YCSB's.
const EXPONENT: f64 = 0.99;

/// A key that is read, or gets another value.
#[derive(Clone, Copy)]
struct Request {
    key: u64,
    is_update: bool,
}

/// Those of a thread.
fn requests(entries: usize, count: usize, thread: usize) -> Vec<Request> {
    let seed = 1 + thread as u64;
    let mut zipf = Zipf::new(entries as u64, EXPONENT, seed);
    let mut random = fastrand::Rng::with_seed(!seed);
    let request = |_| Request {
        key: zipf.key(),
        is_update: random.bool(),
    };
    (0..count).map(request).collect()
}

/// Does what is requested. Returns how many answers were wrong. All values that a key has had have
/// its low half; not to find it is right if the map does not keep keys whose values it replaces.
fn serve(handle: &mut impl OrderedHandle, requests: &[Request], keeps_keys: bool) -> usize {
    let (mut wrong, mut step) = (0, 0_u64);
    for &Request { key, is_update } in requests {
        if is_update {
            step += 1;
            handle.put(key, step << 32 | u64::from(key as u32));
        } else {
            wrong += usize::from(match handle.get(key) {
                Some(value) => value as u32 != key as u32,
                None => keeps_keys,
            });
        }
    }
    wrong
}

/// Measures YCSB's workload A.
pub fn mixed<M: OrderedMap>(work: &Work) -> Result<Sample> {
    let entries = 1 << work.capacity_log2;
    let count = entries / THREADS;
    let map: &M = leak(M::new());
    if M::IS_SHARED {
        fill(&mut map.handle(), entries);
    }
    let make = |thread| {
        let mut handle = map.handle();
        if !M::IS_SHARED {
            fill(&mut handle, entries);
        }
        (handle, requests(entries, count, thread))
    };
    let took = together(THREADS, make, |(handle, requests)| {
        serve(handle, requests, M::KEEPS_KEYS)
    })?;
    let per_s = (THREADS * count) as f64 / took.as_secs_f64();
    Ok(Sample::of([("ops_per_s", per_s)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Lookup;
    use crate::scale::map::subjects::{OrderedLimit, UnsharedTree};

    const FEW: usize = 1_000;

    fn filled() -> UnsharedTree {
        let mut handle = OrderedLimit.handle();
        fill(&mut handle, FEW);
        handle
    }

    /// Leaves each hundredth key out of scans, and forgets what it is told to forget.
    struct Forgetful(UnsharedTree, Option<u64>);

    impl Lookup for Forgetful {
        fn get(&self, key: u64) -> Option<u64> {
            self.0.get(key).filter(|_| self.1 != Some(key))
        }
    }

    impl OrderedHandle for Forgetful {
        fn put(&mut self, key: u64, value: u64) {
            self.0.put(key, value);
        }

        fn scan(&self, from: u64, most: usize) -> (u64, u64) {
            let (found, sum) = self.0.scan(from, most);
            (found - found / 100, sum)
        }
    }

    #[test]
    fn wrong_scans_are_noticed() {
        check(&filled(), FEW).expect("std's map is right");
        assert!(check(&Forgetful(filled(), None), FEW).is_err());
    }

    #[test]
    fn half_of_the_requests_are_updates_and_wrong_answers_count() {
        let requests = requests(FEW, 10_000, 1);
        let updates = requests.iter().filter(|request| request.is_update).count();
        assert!((4_500..5_500).contains(&updates), "{updates}");
        assert_eq!(serve(&mut filled(), &requests, true), 0);

        // The key that is asked for most.
        let mut forgetful = Forgetful(filled(), Some(key(0)));
        let wrong = serve(&mut forgetful, &requests, true);
        assert!((200..2_000).contains(&wrong), "{wrong}");
    }
}
