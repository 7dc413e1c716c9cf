//! hashbrown with neither synchronization nor eviction: each handle is its own table.

use hashbrown::HashMap;

use crate::cache::{BuildHasher, Cache, CacheHandle};

/// As many entries are expected.
pub struct Limit(usize);

/// A thread's table.
pub struct Unshared(HashMap<u64, u64, BuildHasher>);

impl Cache for Limit {
    type Handle<'c> = Unshared;

    fn with_entries(entries: usize) -> Self {
        Self(entries)
    }

    fn with_weight(_weight: u64, entries: usize) -> Self {
        Self(entries)
    }

    fn handle(&self) -> Unshared {
        let hasher = BuildHasher::default();
        Unshared(HashMap::with_capacity_and_hasher(self.0, hasher))
    }
}

impl CacheHandle for Unshared {
    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        self.0.get(&key).copied()
    }

    #[inline]
    fn insert(&mut self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
}
