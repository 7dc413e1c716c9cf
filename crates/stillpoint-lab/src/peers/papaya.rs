//! papaya: each call pins, as its documentation advises for single operations and conc-map-bench
//! does. Each map has its own collector; in `many`, the variant `shared-collector` has one for
//! all maps.

use std::sync::{Arc, LazyLock};

use seize::Collector;

use crate::map::{BuildHasher, Lookup, Map, MapHandle, MapValue, add};
use crate::subject::{Peer, Registry};

const PEER: Peer = Peer::new("papaya");

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.maps::<Papaya<_>>(PEER);
    to.maps_with_drop::<Papaya<_>>(PEER);
    to.empty_maps(PEER.variant("shared-collector"), || {
        Papaya::<u64>::in_shared_collector()
    });
}

/// The map.
pub struct Papaya<V>(papaya::HashMap<u64, V, BuildHasher>);

impl<V: MapValue> Papaya<V> {
    fn in_shared_collector() -> Self {
        static COLLECTOR: LazyLock<Arc<Collector>> = LazyLock::new(Arc::default);
        let builder = papaya::HashMap::builder().hasher(BuildHasher::default());
        Self(builder.shared_collector(Arc::clone(&COLLECTOR)).build())
    }
}

impl<V: MapValue> Map<V> for Papaya<V> {
    type Handle<'m> = &'m Self;

    fn with_capacity(capacity: usize) -> Self {
        let hasher = BuildHasher::default();
        Self(papaya::HashMap::with_capacity_and_hasher(capacity, hasher))
    }

    fn handle(&self, _threads: usize) -> &Self {
        self
    }
}

impl<V: MapValue> Lookup for &Papaya<V> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key).map(V::number)
    }
}

impl<V: MapValue> MapHandle<V> for &Papaya<V> {
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
        let next = |value: &V| V::new(value.number() + 1);
        self.0.pin().update(key, next).is_some()
    }

    fn count_and_sum(&self) -> (u64, u64) {
        self.0.pin().values().fold((0, 0), add)
    }
}
