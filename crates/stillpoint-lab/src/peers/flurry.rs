//! flurry: each call pins.

use crate::map::{BuildHasher, Lookup, Map, MapHandle, MapValue, add};
use crate::subject::{Peer, Registry};

const PEER: Peer = Peer::new("flurry");

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.maps::<Flurry<_>>(PEER);
    to.maps_with_drop::<Flurry<_>>(PEER);
}

/// The map.
pub struct Flurry<V>(flurry::HashMap<u64, V, BuildHasher>);

impl<V: MapValue> Map<V> for Flurry<V> {
    type Handle<'m> = &'m Self;

    fn with_capacity(capacity: usize) -> Self {
        let hasher = BuildHasher::default();
        if capacity == 0 {
            return Self(flurry::HashMap::with_hasher(hasher));
        }
        Self(flurry::HashMap::with_capacity_and_hasher(capacity, hasher))
    }

    fn handle(&self, _threads: usize) -> &Self {
        self
    }
}

impl<V: MapValue> Lookup for &Flurry<V> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key).map(V::number)
    }
}

impl<V: MapValue> MapHandle<V> for &Flurry<V> {
    #[inline]
    fn insert(&mut self, key: u64, value: V) -> bool {
        self.0.pin().insert(key, value).is_none()
    }

    #[inline]
    fn remove(&mut self, key: u64) -> bool {
        self.0.pin().remove(&key).is_some()
    }

    #[inline]
    fn update(&mut self, key: u64) -> bool {
        let next = |_: &u64, value: &V| Some(V::new(value.number() + 1));
        self.0.pin().compute_if_present(&key, next).is_some()
    }

    fn count_and_sum(&self) -> (u64, u64) {
        self.0.pin().values().fold((0, 0), add)
    }
}
