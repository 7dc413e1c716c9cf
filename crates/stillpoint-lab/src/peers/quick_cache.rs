//! quick_cache's `sync::Cache`, with as many shards as it takes by itself.

use quick_cache::{Weighter, sync};

use crate::cache::{BuildHasher, Cache, CacheHandle, weight_of};
use crate::subject::{Peer, Registry};

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.caches::<QuickCache>(Peer::new("quick_cache"));
}

/// What an entry weighs: one, or what its value says.
#[derive(Clone)]
enum Weigh {
    One,
    Value,
}

impl Weighter<u64, u64> for Weigh {
    #[inline]
    fn weight(&self, _key: &u64, &value: &u64) -> u64 {
        match self {
            Self::One => 1,
            Self::Value => weight_of(value).into(),
        }
    }
}

/// The cache.
pub struct QuickCache(sync::Cache<u64, u64, Weigh, BuildHasher>);

impl QuickCache {
    fn new(entries: usize, weight: u64, weigh: Weigh) -> Self {
        let hasher = BuildHasher::default();
        Self(sync::Cache::with(
            entries,
            weight,
            weigh,
            hasher,
            Default::default(),
        ))
    }
}

impl Cache for QuickCache {
    type Handle<'c> = &'c Self;

    fn with_entries(entries: usize) -> Self {
        Self::new(entries, entries as u64, Weigh::One)
    }

    fn with_weight(weight: u64, entries: usize) -> Self {
        Self::new(entries, weight, Weigh::Value)
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl CacheHandle for &QuickCache {
    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&mut self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
}
