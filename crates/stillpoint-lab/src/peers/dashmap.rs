//! dashmap, built with its feature `inline`.

use crate::map::{BuildHasher, Lookup, SharedMap};
use crate::subject::{Peer, Registry};

/// Adds what it takes part in.
pub fn register(to: &mut impl Registry) {
    to.maps::<DashMap>(Peer::new("dashmap"));
}

/// The map.
pub struct DashMap(dashmap::DashMap<u64, u64, BuildHasher>);

impl Lookup for DashMap {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|value| *value)
    }
}

impl SharedMap for DashMap {
    fn with_capacity(capacity: usize) -> Self {
        let hasher = BuildHasher::default();
        Self(dashmap::DashMap::with_capacity_and_hasher(capacity, hasher))
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) -> bool {
        self.0.insert(key, value).is_none()
    }

    #[inline]
    fn remove(&self, key: u64) -> bool {
        self.0.remove(&key).is_some()
    }

    #[inline]
    fn update(&self, key: u64) -> bool {
        self.0.get_mut(&key).map(|mut value| *value += 1).is_some()
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}
