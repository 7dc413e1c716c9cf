//! crossbeam-skiplist's `SkipMap`, whose calls pin by themselves.

use crossbeam_skiplist::SkipMap;

use crate::map::{Lookup, SharedTree, count_and_sum};
use crate::subject::{Peer, Registry};

/// Adds what it takes part in.
pub fn register(to: &mut impl Registry) {
    to.orders::<SkipList>(Peer::new("crossbeam-skiplist"));
}

/// The map.
pub struct SkipList(SkipMap<u64, u64>);

impl Lookup for SkipList {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|entry| *entry.value())
    }
}

impl SharedTree for SkipList {
    // It removes the old entry, and then inserts another.
    const KEEPS_KEYS: bool = false;

    fn new() -> Self {
        Self(SkipMap::new())
    }

    #[inline]
    fn put(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    #[inline]
    fn scan(&self, from: u64, most: usize) -> (u64, u64) {
        let entries = self.0.range(from..).take(most);
        count_and_sum(entries.map(|entry| *entry.value()))
    }
}
