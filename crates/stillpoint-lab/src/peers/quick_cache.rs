//! quick_cache's `sync::Cache`, with as many shards as it takes by itself.

use quick_cache::{UnitWeighter, Weighter, sync};

use crate::cache::{BuildHasher, ByteCache, Cache, CacheHandle, StringCache, weight_of};
use crate::subject::{Peer, Registry};

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    let peer = Peer::new("quick_cache");
    to.caches::<QuickCache>(peer);
    to.strings::<QuickStrings>(peer);
    to.shrinks::<QuickBytes>(peer);
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

/// The cache of strings. A hit clones the value: there are no references.
pub struct QuickStrings(sync::Cache<String, String, UnitWeighter, BuildHasher>);

impl StringCache for QuickStrings {
    fn with_entries(entries: usize) -> Self {
        let hasher = BuildHasher::default();
        Self(sync::Cache::with(
            entries,
            entries as u64,
            UnitWeighter,
            hasher,
            Default::default(),
        ))
    }

    fn insert(&self, key: String, value: String) {
        self.0.insert(key, value);
    }

    fn finds(&self, key: &str) -> bool {
        self.0.get(key).is_some()
    }
}

/// An entry's bytes.
#[derive(Clone)]
struct Bytes;

impl Weighter<u64, Box<[u8]>> for Bytes {
    fn weight(&self, _key: &u64, value: &Box<[u8]>) -> u64 {
        (size_of::<u64>() + size_of::<Box<[u8]>>() + value.len()) as u64
    }
}

/// The cache of bytes.
pub struct QuickBytes(sync::Cache<u64, Box<[u8]>, Bytes, BuildHasher>);

impl ByteCache for QuickBytes {
    fn with_bytes(bytes: u64) -> Self {
        let hasher = BuildHasher::default();
        let entries = bytes as usize / 1024;
        Self(sync::Cache::with(
            entries,
            bytes,
            Bytes,
            hasher,
            Default::default(),
        ))
    }

    fn insert(&self, key: u64, value: &[u8]) {
        self.0.insert(key, value.into());
    }

    fn shrink(&self, bytes: u64) {
        self.0.set_capacity(bytes);
    }

    fn charged(&self) -> u64 {
        self.0.weight()
    }
}
