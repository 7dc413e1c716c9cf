//! A tenant beside a neighbour that scans. The tenant asks for each of its [`ENTRIES`] entries in
//! turn, again and again; its minimum has room for them. The neighbour, on its own thread, asks
//! for [`SCANNED`] times as many entries, each of them [`TIMES`] times in succession and then never
//! again. `hits_lost` is how many of the tenant's requests missed after it had its entries in the
//! cache; `hit_ratio` is that of the same requests. Peers have no tenants: both use one cache.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;

use anyhow::Result;

use super::replay::Counted;
use super::{Work, leak};
use crate::cache::{Cache, CacheHandle, request};
use crate::run::Sample;
use crate::scale::keys::key;
use crate::scale::{join, spawn};
use crate::subject::poll_until;

/// The whole cache's entries.
pub const CAPACITY: usize = 20_000;

/// The tenant's minimum, in entries.
pub const MINIMUM: usize = 10_000;

/// The tenant's entries.
const ENTRIES: u64 = 8_000;

/// How often it goes through them before the neighbour begins.
const BEFORE: u64 = 3;

/// How often beside the neighbour.
const BESIDE: u64 = 25;

/// Requests of the neighbour for each of the tenant's.
const SCANNED: u64 = 10;

/// Number of times that the neighbour requests each entry.
const TIMES: u64 = 2;

/// Requests by which one of the two may be ahead, times [`SCANNED`] for the neighbour.
const AHEAD: u64 = 64;

/// Measures a cache that both use.
pub fn of_one_cache<C: Cache>(work: &Work) -> Result<Sample> {
    let cache: &C = leak(C::with_entries(CAPACITY));
    measure(work, cache, cache)
}

/// Measures what a tenant loses.
pub fn measure(
    work: &Work,
    mut tenant: impl CacheHandle + Send,
    mut neighbour: impl CacheHandle + Send,
) -> Result<Sample> {
    let mut own = (0..).map(|number: u64| key(number % ENTRIES));
    for key in own.by_ref().take((ENTRIES * BEFORE) as usize) {
        request(&mut tenant, key, key);
    }
    let requests = work.divided((ENTRIES * BESIDE) as usize) as u64;
    let (done, scanned) = (AtomicU64::new(0), AtomicU64::new(0));
    // Relaxed: numbers that keep the two together, and order nothing.
    let beside = || {
        for number in 0..requests * SCANNED {
            if number % (AHEAD * SCANNED) == 0 {
                scanned.store(number, Ordering::Relaxed);
                poll_until(|| done.load(Ordering::Relaxed) * SCANNED >= number);
            }
            let key = key((1 << 32) + number / TIMES);
            request(&mut neighbour, key, key);
        }
        scanned.store(u64::MAX, Ordering::Relaxed);
    };
    let counted = std::thread::scope(|scope| {
        let neighbour = spawn(Builder::new(), scope, beside);
        let mut counted = Counted::default();
        for (number, key) in (0..requests).zip(own) {
            if number % AHEAD == 0 {
                done.store(number, Ordering::Relaxed);
                let needed = number.saturating_sub(AHEAD) * SCANNED;
                poll_until(|| scanned.load(Ordering::Relaxed) >= needed);
            }
            counted.note(request(&mut tenant, key, key));
        }
        done.store(u64::MAX / SCANNED, Ordering::Relaxed);
        join(neighbour).map(|()| counted)
    })?;
    Ok(Sample::of([
        ("hits_lost", counted.missed() as f64),
        ("hit_ratio", counted.ratio()),
    ]))
}
