//! Ten thousand tenants of a hundred entries each. A peer has as many caches.
//!
//! Each tenant's first requests fill it; then [`REQUESTS`] follow, each of any tenant, for one of
//! [`KEYS`] keys by Zipf's law. `ns_per_op` and `hit_ratio` are of those, `bytes_per_entry` is the
//! resident memory beyond keys and values, of tenants and entries together, divided by the entries.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::Work;
use super::replay::Counted;
use super::weight::beyond_entry;
use crate::cache::{Cache, CacheHandle, request};
use crate::run::Sample;
use crate::scale::map::keys::key;
use crate::scale::map::weight::settle;
use crate::scale::map::zipf::Zipf;

const TENANTS: usize = 10_000;

/// Entries of a tenant.
pub const ENTRIES: usize = 100;

/// Keys of a tenant.
const KEYS: u64 = 150;

const REQUESTS: usize = 1_000_000;

/// Measures as many caches as there are tenants.
pub fn of_a_cache_each<C: Cache>(work: &Work) -> Result<Sample> {
    let cache = |_| {
        let cache: &C = super::leak(C::with_entries(ENTRIES));
        cache.handle()
    };
    measure(work, |tenants| (0..tenants).map(cache).collect())
}

/// Measures the tenants that `make` has made.
pub fn measure<H: CacheHandle>(work: &Work, make: impl FnOnce(usize) -> Vec<H>) -> Result<Sample> {
    let before = settle()?;
    let mut tenants = make(work.divided(TENANTS).max(1));
    let all = tenants.len();
    let key_of = |tenant: usize, rank: u64| key((tenant as u64) << 32 | rank);
    // More than fit, so that what is remembered of evicted ones is there, too.
    for rank in 0..KEYS {
        for (number, tenant) in tenants.iter_mut().enumerate() {
            let key = key_of(number, rank);
            request(tenant, key, key);
        }
    }
    let mut random = fastrand::Rng::with_seed(1);
    let mut zipf = Zipf::new(KEYS, 0.99, 2);
    let mut draw = || {
        let tenant = random.usize(..all);
        (tenant, key_of(tenant, zipf.rank()))
    };
    let requests: Vec<_> = (0..work.divided(REQUESTS)).map(|_| draw()).collect();
    let mut counted = Counted::default();
    let begun = Instant::now();
    for &(tenant, key) in &requests {
        counted.note(request(&mut tenants[tenant], key, key));
    }
    let took = begun.elapsed();
    let operations = requests.len();
    drop(requests);
    let bytes = settle()?.saturating_sub(before);
    let found = (0..KEYS).flat_map(|rank| (0..all).map(move |tenant| (tenant, rank)));
    let found = found
        .filter(|&(tenant, rank)| tenants[tenant].get(key_of(tenant, rank)).is_some())
        .count();
    ensure!(found > 0, "the caches are empty");
    Ok(Sample::of([
        ("ns_per_op", took.as_nanos() as f64 / operations as f64),
        ("hit_ratio", counted.ratio()),
        ("bytes_per_entry", beyond_entry(bytes, found)),
    ]))
}
