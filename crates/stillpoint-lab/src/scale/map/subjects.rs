//! The library's maps, in the global domain, each call a section; and the limit: a map of each thread's own, without
//! any synchronization, hashbrown's with its share of the capacity, or std's `BTreeMap`.

use std::collections;

use stillpoint_map::{BTreeMap, CopyMap, HashMap};

use crate::map::{
    BuildHasher, Lookup, Map, MapHandle, OrderedHandle, OrderedMap, SharedTree, count_and_sum,
    pinned_map,
};

pinned_map! {
    /// The map of entries that never move.
    Hash(HashMap), |map, key| map.get(&key).copied(), map.update(&key, |value| value + 1)
}

pinned_map! {
    /// The map of copies, whose entries lie in its table.
    Inline(CopyMap), |map, key| map.get(&key), map.update(&key, |value| value + 1)
}

/// The map in the order of its keys.
pub struct Tree(BTreeMap<u64, u64>);

impl Lookup for Tree {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key).copied()
    }
}

impl SharedTree for Tree {
    fn new() -> Self {
        Self(BTreeMap::new())
    }

    #[inline]
    fn put(&self, key: u64, value: u64) {
        self.0.pin().insert(key, value);
    }

    #[inline]
    fn scan(&self, from: u64, most: usize) -> (u64, u64) {
        let map = self.0.pin();
        count_and_sum(map.range(from..).take(most).map(|(_, value)| *value))
    }
}

/// Maps of a thread each: the capacity of all together.
pub struct Limit(usize);

/// A thread's hash map.
pub struct Unshared(hashbrown::HashMap<u64, u64, BuildHasher>);

impl Map for Limit {
    const IS_SHARED: bool = false;

    type Handle<'m> = Unshared;

    fn with_capacity(capacity: usize) -> Self {
        Self(capacity)
    }

    fn handle(&self, threads: usize) -> Unshared {
        let hasher = BuildHasher::default();
        Unshared(hashbrown::HashMap::with_capacity_and_hasher(
            self.0 / threads,
            hasher,
        ))
    }
}

impl Lookup for Unshared {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).copied()
    }
}

impl MapHandle for Unshared {
    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> bool {
        self.0.insert(key, value).is_none()
    }

    #[inline]
    fn remove(&mut self, key: u64) -> bool {
        self.0.remove(&key).is_some()
    }

    #[inline]
    fn update(&mut self, key: u64) -> bool {
        self.0.get_mut(&key).map(|value| *value += 1).is_some()
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}

/// Maps in the order of their keys, of a thread each.
pub struct OrderedLimit;

/// A thread's map in the order of its keys.
pub struct UnsharedTree(collections::BTreeMap<u64, u64>);

impl OrderedMap for OrderedLimit {
    const IS_SHARED: bool = false;

    const KEEPS_KEYS: bool = true;

    type Handle<'m> = UnsharedTree;

    fn new() -> Self {
        Self
    }

    fn handle(&self) -> UnsharedTree {
        UnsharedTree(collections::BTreeMap::new())
    }
}

impl Lookup for UnsharedTree {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).copied()
    }
}

impl OrderedHandle for UnsharedTree {
    #[inline]
    fn put(&mut self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    #[inline]
    fn scan(&self, from: u64, most: usize) -> (u64, u64) {
        count_and_sum(self.0.range(from..).take(most).map(|(_, value)| *value))
    }
}
