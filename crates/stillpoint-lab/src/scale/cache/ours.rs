//! The library's cache. Its tenants are views of one cache, each with its own limits; a peer has
//! a cache for each, or one for all.

use anyhow::Result;
use stillpoint_cache::Cache;

use super::{Benchmarks, Work, cgroup, isolation, mix, tenants};
use crate::cache::{self, BuildHasher, ByteCache, CacheHandle, StringCache, weight_of};
use crate::run::Sample;
use crate::subject::{Peer, Registry};

/// What it takes part in.
pub fn register(to: &mut Benchmarks<Work>) {
    let ours = Peer::new("stillpoint");
    to.everywhere::<Ours>(ours, |_| true);
    to.strings::<Strings>(ours);
    to.shrinks::<Bytes>(ours);
    to.add(ours, "isolation", beside_a_neighbour);
    to.add(ours, "isolation-static", apart_from_a_neighbour);
    to.add(ours, "mix", sharing);
    to.add(ours, "mix-static", split);
    to.add(ours, "many-tenants", |work| {
        tenants::measure(work, many_tenants)
    });
    to.add(ours, "cgroup", |work| {
        cgroup::measure(work, Bytes::with_default_size)
    });
}

/// The cache of numbers.
struct Ours(View);

/// All of it, or a tenant.
#[derive(Clone)]
struct View(Cache<u64, u64, BuildHasher>);

impl View {
    fn new(most: u64, weigh: impl Fn(&u64, &u64) -> u64 + Send + Sync + 'static) -> Self {
        let builder = Cache::builder().max_weight(most, weigh);
        Self(builder.hasher(BuildHasher::default()).build())
    }

    /// An entry weighs what its value says.
    fn of_weights(most: u64) -> Self {
        Self::new(most, |_, &value| weight_of(value).into())
    }

    /// An entry weighs one.
    fn of_entries(most: u64) -> Self {
        Self::new(most, |_, _| 1)
    }

    fn tenant(&self, name: &str) -> Self {
        Self(self.0.tenant(name))
    }
}

impl cache::Cache for Ours {
    type Handle<'c> = View;

    fn with_entries(entries: usize) -> Self {
        Self(View::of_entries(entries as u64))
    }

    fn with_weight(weight: u64, _entries: usize) -> Self {
        Self(View::of_weights(weight))
    }

    fn handle(&self) -> View {
        self.0.clone()
    }
}

impl CacheHandle for View {
    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&mut self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
}

/// The tenant has its minimum, its neighbour none.
fn beside_a_neighbour(work: &Work) -> Result<Sample> {
    let all = View::of_entries(isolation::CAPACITY as u64);
    let tenant = all.tenant("tenant");
    tenant.0.set_min(isolation::MINIMUM as u64);
    isolation::measure(work, tenant, all.tenant("neighbour"))
}

/// Each of the two has its limit.
fn apart_from_a_neighbour(work: &Work) -> Result<Sample> {
    let all = View::of_entries(isolation::CAPACITY as u64);
    let (tenant, neighbour) = (all.tenant("tenant"), all.tenant("neighbour"));
    tenant.0.set_max(isolation::MINIMUM as u64);
    neighbour
        .0
        .set_max((isolation::CAPACITY - isolation::MINIMUM) as u64);
    isolation::measure(work, tenant, neighbour)
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
    let all = View::of_weights(mix::bytes());
    let tenant = |number: usize| {
        let tenant = all.tenant(&number.to_string());
        limit(&tenant);
        tenant
    };
    mix::measure(work, (0..mix::TENANTS).map(tenant).collect())
}

fn many_tenants(number: usize) -> Vec<View> {
    let all = View::of_entries((number * tenants::ENTRIES) as u64);
    let tenant = |number: usize| {
        let tenant = all.tenant(&number.to_string());
        tenant.0.set_max(tenants::ENTRIES as u64);
        tenant
    };
    (0..number).map(tenant).collect()
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

impl Bytes {
    /// As large as the library makes it by itself.
    fn with_default_size() -> Self {
        Self(Cache::builder().hasher(BuildHasher::default()).build())
    }
}

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
