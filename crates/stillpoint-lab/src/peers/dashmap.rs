//! dashmap, built with its feature `inline`.

use crate::map::{BuildHasher, Lookup, Map, MapHandle, MapValue, add};
use crate::subject::{Peer, Registry};

const PEER: Peer = Peer::new("dashmap");

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.maps::<DashMap<_>>(PEER);
    to.maps_with_drop::<DashMap<_>>(PEER);
}

/// The map.
pub struct DashMap<V>(dashmap::DashMap<u64, V, BuildHasher>);

impl<V: MapValue> Map<V> for DashMap<V> {
    type Handle<'m> = &'m Self;

    fn with_capacity(capacity: usize) -> Self {
        let hasher = BuildHasher::default();
        Self(dashmap::DashMap::with_capacity_and_hasher(capacity, hasher))
    }

    fn handle(&self, _threads: usize) -> &Self {
        self
    }
}

impl<V: MapValue> Lookup for &DashMap<V> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|value| value.number())
    }
}

impl<V: MapValue> MapHandle<V> for &DashMap<V> {
    #[inline]
    fn insert(&mut self, key: u64, value: V) -> bool {
        self.0.insert(key, value).is_none()
    }

    #[inline]
    fn remove(&mut self, key: u64) -> bool {
        self.0.remove(&key).is_some()
    }

    #[inline]
    fn update(&mut self, key: u64) -> bool {
        let found = self.0.get_mut(&key);
        found.is_some_and(|mut value| {
            *value = V::new(value.number() + 1);
            true
        })
    }

    fn count_and_sum(&self) -> (u64, u64) {
        let entries = self.0.iter();
        entries.fold((0, 0), |all, entry| add(all, entry.value()))
    }
}
