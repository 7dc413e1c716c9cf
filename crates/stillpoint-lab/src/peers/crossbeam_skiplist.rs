//! crossbeam-skiplist's `SkipMap`, whose calls pin by themselves.

use crossbeam_skiplist::SkipMap;

use crate::map::{Lookup, OrderedHandle, OrderedMap, add};
use crate::subject::{Peer, Registry};

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.orders::<SkipList>(Peer::new("crossbeam-skiplist"));
}

/// The map.
pub struct SkipList(SkipMap<u64, u64>);

impl OrderedMap for SkipList {
    // It removes the old entry, and then inserts another.
    const KEEPS_KEYS: bool = false;

    type Handle<'m> = &'m Self;

    fn new() -> Self {
        Self(SkipMap::new())
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl Lookup for &SkipList {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|entry| *entry.value())
    }
}

impl OrderedHandle for &SkipList {
    #[inline]
    fn put(&mut self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    #[inline]
    fn scan(&self, from: u64, most: usize) -> (u64, u64) {
        let entries = self.0.range(from..).take(most);
        entries.fold((0, 0), |all, entry| add(all, entry.value()))
    }
}
