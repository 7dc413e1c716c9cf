//! quick_cache's `sync::Cache`, with as many shards as it takes by itself.

use quick_cache::{UnitWeighter, Weighter, sync};

use crate::cache::{BuildHasher, ByteCache, Cache, StringCache, weight_of};
use crate::subject::{Peer, Registry};

/// Adds what it takes part in.
pub fn register(to: &mut impl Registry) {
    let peer = Peer::new("quick_cache");
    to.caches::<QuickCache>(peer);
    to.strings::<QuickStrings>(peer);
    to.shrinks::<QuickBytes>(peer);
}

type Quick<K, V, W> = sync::Cache<K, V, W, BuildHasher>;

fn cache<K, V, W>(entries: usize, weight: u64, weigher: W) -> Quick<K, V, W>
where
    K: Eq + std::hash::Hash,
    V: Clone,
    W: Weighter<K, V> + Clone,
{
    let (hasher, lifecycle) = (BuildHasher::default(), Default::default());
    sync::Cache::with(entries, weight, weigher, hasher, lifecycle)
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
pub struct QuickCache(Quick<u64, u64, Weigh>);

impl Cache for QuickCache {
    fn with_entries(entries: usize) -> Self {
        Self(cache(entries, entries as u64, Weigh::One))
    }

    fn with_weight(weight: u64, entries: usize) -> Self {
        Self(cache(entries, weight, Weigh::Value))
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

/// The cache of strings. A hit clones the value: there are no references.
pub struct QuickStrings(Quick<String, String, UnitWeighter>);

impl StringCache for QuickStrings {
    fn with_entries(entries: usize) -> Self {
        Self(cache(entries, entries as u64, UnitWeighter))
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
pub struct QuickBytes(Quick<u64, Box<[u8]>, Bytes>);

impl ByteCache for QuickBytes {
    fn with_bytes(bytes: u64) -> Self {
        Self(cache(bytes as usize / 1024, bytes, Bytes))
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
