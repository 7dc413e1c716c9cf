//! The library's maps, in the global domain; each call is a section.

use stillpoint_map::{BTreeMap, CopyMap, HashMap};

use crate::map::{BuildHasher, Lookup, Map, MapHandle, MapValue, OrderedHandle, OrderedMap, add};
use crate::subject::{Peer, Registry};

/// What they take part in.
pub fn register(to: &mut impl Registry) {
    let hash = Peer::new("stillpoint").variant("hash");
    to.maps::<Hash<_>>(hash);
    to.maps_with_drop::<Hash<_>>(hash);
    to.maps::<Inline>(Peer::new("stillpoint").variant("hash-inline"));
    to.orders::<Tree>(Peer::new("stillpoint").variant("btree"));
}

/// The map of entries that never move.
pub struct Hash<V: MapValue>(HashMap<u64, V, BuildHasher>);

impl<V: MapValue> Map<V> for Hash<V> {
    type Handle<'m> = &'m Self;

    fn with_capacity(capacity: usize) -> Self {
        let hasher = BuildHasher::default();
        Self(HashMap::with_capacity_and_hasher(capacity, hasher))
    }

    fn handle(&self, _threads: usize) -> &Self {
        self
    }
}

impl<V: MapValue> Lookup for &Hash<V> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key).map(V::number)
    }
}

impl<V: MapValue> MapHandle<V> for &Hash<V> {
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
        self.0.pin().update(&key, next).is_some()
    }

    fn count_and_sum(&self) -> (u64, u64) {
        self.0.pin().values().fold((0, 0), add)
    }
}

/// The map of copies, whose entries lie in its table.
pub struct Inline(CopyMap<u64, u64, BuildHasher>);

impl Map<u64> for Inline {
    type Handle<'m> = &'m Self;

    fn with_capacity(capacity: usize) -> Self {
        let hasher = BuildHasher::default();
        Self(CopyMap::with_capacity_and_hasher(capacity, hasher))
    }

    fn handle(&self, _threads: usize) -> &Self {
        self
    }
}

impl Lookup for &Inline {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key)
    }
}

impl MapHandle<u64> for &Inline {
    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> bool {
        self.0.pin().insert(key, value).is_none()
    }

    #[inline]
    fn remove(&mut self, key: u64) -> bool {
        self.0.pin().remove(&key).is_some()
    }

    #[inline]
    fn update(&mut self, key: u64) -> bool {
        self.0.pin().update(&key, |value| value + 1).is_some()
    }

    fn count_and_sum(&self) -> (u64, u64) {
        let pinned = self.0.pin();
        let values = pinned.values();
        values.fold((0, 0), |sum, value| add(sum, &value))
    }
}

/// The map in the order of its keys.
pub struct Tree(BTreeMap<u64, u64>);

impl OrderedMap for Tree {
    type Handle<'m> = &'m Self;

    fn new() -> Self {
        Self(BTreeMap::new())
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl Lookup for &Tree {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key).copied()
    }
}

impl OrderedHandle for &Tree {
    #[inline]
    fn put(&mut self, key: u64, value: u64) {
        self.0.pin().insert(key, value);
    }

    #[inline]
    fn scan(&self, from: u64, most: usize) -> (u64, u64) {
        let map = self.0.pin();
        let entries = map.range(from..).take(most);
        entries.fold((0, 0), |all, (_, value)| add(all, value))
    }
}
