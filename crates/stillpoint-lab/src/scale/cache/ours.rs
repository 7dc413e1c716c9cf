//! The library's cache. Its tenants are views of one cache, each with its own limits; a peer has
//! a cache for each, or one for all.

use anyhow::Result;
use stillpoint_cache::Cache;

use super::{Benchmarks, Work, isolation, mix};
use crate::cache::{self, BuildHasher, ByteCache, StringCache, weight_of};
use crate::run::Sample;
use crate::subject::{Peer, Registry};

/// Adds what it takes part in.
pub fn register(to: &mut Benchmarks<Work>) {
    let ours = Peer::ours("default");
    to.without_tenants::<View>(ours);
    to.strings::<Strings>(ours);
    to.shrinks::<Bytes>(ours);
    to.add(ours, "isolation", beside_a_neighbour);
    to.add(ours, "mix", sharing);
    to.add(ours, "mix-static", split);
}

/// A cache of numbers: all of it, or a tenant.
struct View(Cache<u64, u64, BuildHasher>);

impl View {
    fn new(most: u64, weigh: impl Fn(&u64, &u64) -> u64 + Send + Sync + 'static) -> Self {
        let builder = Cache::builder().max_weight(most, weigh);
        Self(builder.hasher(BuildHasher::default()).build())
    }

    fn tenant(&self, name: &str) -> Self {
        Self(self.0.tenant(name))
    }
}

impl cache::Cache for View {
    fn with_entries(entries: usize) -> Self {
        Self::new(entries as u64, |_, _| 1)
    }

    fn with_weight(weight: u64, _entries: usize) -> Self {
        Self::new(weight, |_, &value| weight_of(value).into())
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
}

/// The tenant has its minimum, its neighbour none.
fn beside_a_neighbour(work: &Work) -> Result<Sample> {
    let all: View = cache::Cache::with_entries(isolation::CAPACITY);
    let (tenant, neighbour) = (all.tenant("tenant"), all.tenant("neighbour"));
    tenant.0.set_min(isolation::MINIMUM as u64);
    isolation::measure(work, &tenant, &neighbour)
}

/// Each tenant has half of its share for itself.
fn sharing(work: &Work) -> Result<Sample> {
    of_tenants(work, |tenant| tenant.0.set_min(mix::share() / 2))
}

/// Each tenant has its share, and no more.
fn split(work: &Work) -> Result<Sample> {
    of_tenants(work, |tenant| tenant.0.set_max(mix::share()))
}

fn of_tenants(work: &Work, limit: impl Fn(&View)) -> Result<Sample> {
    let all: View = cache::Cache::with_weight(mix::bytes(), 0);
    let tenant = |number: usize| {
        let tenant = all.tenant(&number.to_string());
        limit(&tenant);
        tenant
    };
    let tenants: Vec<View> = (0..mix::TENANTS).map(tenant).collect();
    mix::measure(work, tenants.iter().collect())
}

/// The cache of strings.
struct Strings(Cache<String, String, BuildHasher>);

impl StringCache for Strings {
    fn with_entries(entries: usize) -> Self {
        let builder = Cache::builder().max_entries(entries as u64);
        Self(builder.hasher(BuildHasher::default()).build())
    }

    fn insert(&self, key: String, value: String) {
        self.0.insert(key, value);
    }

    fn finds(&self, key: &str) -> bool {
        self.0.get_ref(key).is_some()
    }
}

/// The cache of bytes. An entry weighs what the library says.
struct Bytes(Cache<u64, stillpoint_cache::Bytes, BuildHasher>);

impl ByteCache for Bytes {
    fn with_bytes(bytes: u64) -> Self {
        let builder = Cache::builder().max_bytes(bytes);
        Self(builder.hasher(BuildHasher::default()).build())
    }

    fn insert(&self, key: u64, value: &[u8]) {
        // What is refused is no entry.
        let _ = self.0.insert_bytes(key, value);
    }

    fn shrink(&self, bytes: u64) {
        self.0.set_max_bytes(bytes);
    }

    fn charged(&self) -> u64 {
        self.0.weighted_bytes()
    }
}
