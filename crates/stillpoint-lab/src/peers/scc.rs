//! scc's `HashMap`, which reads under a bucket's lock, its `HashIndex`, which peeks without one, and its
//! `TreeIndex`, which does so in order. All in their blocking form.

use scc::{Guard, HashIndex, HashMap, TreeIndex};

use crate::map::{BuildHasher, Lookup, SharedMap, SharedTree, count_and_sum};
use crate::subject::{Peer, Registry};

/// Adds what they take part in.
pub fn register(to: &mut impl Registry) {
    to.maps::<SccHashMap>(Peer::new("scc-hashmap"));
    to.maps::<SccHashIndex>(Peer::new("scc-hashindex"));
    to.orders::<SccTreeIndex>(Peer::new("scc-treeindex"));
}

/// The map.
pub struct SccHashMap(HashMap<u64, u64, BuildHasher>);

impl Lookup for SccHashMap {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.read_sync(&key, |_, value| *value)
    }
}

impl SharedMap for SccHashMap {
    fn with_capacity(capacity: usize) -> Self {
        let hasher = BuildHasher::default();
        Self(HashMap::with_capacity_and_hasher(capacity, hasher))
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.insert_sync(key, value).is_ok()
    }

    #[inline]
    fn remove(&self, key: u64) -> bool {
        self.0.remove_sync(&key).is_some()
    }

    #[inline]
    fn update(&self, key: u64) -> bool {
        self.0.update_sync(&key, |_, value| *value += 1).is_some()
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}

/// The index.
pub struct SccHashIndex(HashIndex<u64, u64, BuildHasher>);

impl Lookup for SccHashIndex {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.peek_with(&key, |_, value| *value)
    }
}

impl SharedMap for SccHashIndex {
    fn with_capacity(capacity: usize) -> Self {
        let hasher = BuildHasher::default();
        Self(HashIndex::with_capacity_and_hasher(capacity, hasher))
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.insert_sync(key, value).is_ok()
    }

    #[inline]
    fn remove(&self, key: u64) -> bool {
        self.0.remove_sync(&key)
    }

    #[inline]
    fn update(&self, key: u64) -> bool {
        let found = self.0.get_sync(&key);
        found
            .map(|mut entry| entry.update(entry.get() + 1))
            .is_some()
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}

/// The index in order.
pub struct SccTreeIndex(TreeIndex<u64, u64>);

impl Lookup for SccTreeIndex {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.peek_with(&key, |_, value| *value)
    }
}

impl SharedTree for SccTreeIndex {
    fn new() -> Self {
        Self(TreeIndex::new())
    }

    #[inline]
    fn put(&self, key: u64, value: u64) {
        self.0.upsert_sync(key, value);
    }

    #[inline]
    fn scan(&self, from: u64, most: usize) -> (u64, u64) {
        let guard = Guard::new();
        let entries = self.0.range(from.., &guard).take(most);
        count_and_sum(entries.map(|(_, value)| *value))
    }
}
