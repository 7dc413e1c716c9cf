//! scc's `HashMap`, which reads under a bucket's lock, its `HashIndex`, which peeks without one, and
//! its `TreeIndex`, which does so in order. All in their blocking form.

use scc::{Guard, HashIndex, HashMap, TreeIndex};

use crate::map::{BuildHasher, Lookup, Map, MapHandle, MapValue, OrderedHandle, OrderedMap, add};
use crate::subject::{Peer, Registry};

const MAP: Peer = Peer::new("scc-hashmap");
const INDEX: Peer = Peer::new("scc-hashindex");

/// What they take part in.
pub fn register(to: &mut impl Registry) {
    to.maps::<SccHashMap<_>>(MAP);
    to.maps_with_drop::<SccHashMap<_>>(MAP);
    to.maps::<SccHashIndex<_>>(INDEX);
    to.maps_with_drop::<SccHashIndex<_>>(INDEX);
    to.orders::<SccTreeIndex>(Peer::new("scc-treeindex"));
}

/// The map.
pub struct SccHashMap<V>(HashMap<u64, V, BuildHasher>);

impl<V: MapValue> Map<V> for SccHashMap<V> {
    type Handle<'m> = &'m Self;

    fn with_capacity(capacity: usize) -> Self {
        let hasher = BuildHasher::default();
        Self(HashMap::with_capacity_and_hasher(capacity, hasher))
    }

    fn handle(&self, _threads: usize) -> &Self {
        self
    }
}

impl<V: MapValue> Lookup for &SccHashMap<V> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.read_sync(&key, |_, value| value.number())
    }
}

impl<V: MapValue> MapHandle<V> for &SccHashMap<V> {
    #[inline]
    fn insert(&mut self, key: u64, value: V) -> bool {
        self.0.insert_sync(key, value).is_ok()
    }

    #[inline]
    fn remove(&mut self, key: u64) -> bool {
        self.0.remove_sync(&key).is_some()
    }

    #[inline]
    fn update(&mut self, key: u64) -> bool {
        let next = |_: &u64, value: &mut V| *value = V::new(value.number() + 1);
        self.0.update_sync(&key, next).is_some()
    }

    fn count_and_sum(&self) -> (u64, u64) {
        let mut all = (0, 0);
        self.0.iter_sync(|_, value| {
            all = add(all, value);
            true
        });
        all
    }
}

/// The index.
pub struct SccHashIndex<V: 'static>(HashIndex<u64, V, BuildHasher>);

impl<V: MapValue> Map<V> for SccHashIndex<V> {
    type Handle<'m> = &'m Self;

    fn with_capacity(capacity: usize) -> Self {
        let hasher = BuildHasher::default();
        Self(HashIndex::with_capacity_and_hasher(capacity, hasher))
    }

    fn handle(&self, _threads: usize) -> &Self {
        self
    }
}

impl<V: MapValue> Lookup for &SccHashIndex<V> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.peek_with(&key, |_, value| value.number())
    }
}

impl<V: MapValue> MapHandle<V> for &SccHashIndex<V> {
    #[inline]
    fn insert(&mut self, key: u64, value: V) -> bool {
        self.0.insert_sync(key, value).is_ok()
    }

    #[inline]
    fn remove(&mut self, key: u64) -> bool {
        self.0.remove_sync(&key)
    }

    #[inline]
    fn update(&mut self, key: u64) -> bool {
        let found = self.0.get_sync(&key);
        found.is_some_and(|mut entry| {
            let next = V::new(entry.get().number() + 1);
            entry.update(next);
            true
        })
    }

    fn count_and_sum(&self) -> (u64, u64) {
        let guard = Guard::new();
        let entries = self.0.iter(&guard);
        entries.fold((0, 0), |all, (_, value)| add(all, value))
    }
}

/// The index in order.
pub struct SccTreeIndex(TreeIndex<u64, u64>);

impl OrderedMap for SccTreeIndex {
    type Handle<'m> = &'m Self;

    fn new() -> Self {
        Self(TreeIndex::new())
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl Lookup for &SccTreeIndex {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.peek_with(&key, |_, value| *value)
    }
}

impl OrderedHandle for &SccTreeIndex {
    #[inline]
    fn put(&mut self, key: u64, value: u64) {
        self.0.upsert_sync(key, value);
    }

    #[inline]
    fn scan(&self, from: u64, most: usize) -> (u64, u64) {
        let guard = Guard::new();
        let entries = self.0.range(from.., &guard).take(most);
        entries.fold((0, 0), |all, (_, value)| add(all, value))
    }
}
