//! hashbrown without any synchronization: each handle is its own map, with its share of the
//! capacity. Where maps are ordered, std's `BTreeMap`.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use hashbrown::HashMap;

use crate::map::{BuildHasher, Lookup, Map, MapHandle, MapValue, OrderedHandle, OrderedMap, add};

/// The capacity of all handles together.
pub struct Limit<V> {
    capacity: usize,
    values: PhantomData<fn(V)>,
}

/// A thread's map.
pub struct Unshared<V>(HashMap<u64, V, BuildHasher>);

impl<V> Unshared<V> {
    fn with_capacity(capacity: usize) -> Self {
        let hasher = BuildHasher::default();
        Self(HashMap::with_capacity_and_hasher(capacity, hasher))
    }
}

impl<V: MapValue> Map<V> for Limit<V> {
    const IS_SHARED: bool = false;

    type Handle<'m> = Unshared<V>;

    fn with_capacity(capacity: usize) -> Self {
        Self {
            capacity,
            values: PhantomData,
        }
    }

    fn handle(&self, threads: usize) -> Unshared<V> {
        Unshared::with_capacity(self.capacity / threads)
    }

    fn empty() -> impl Sized + 'static {
        Unshared::<V>::with_capacity(0)
    }
}

impl<V: MapValue> Lookup for Unshared<V> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(V::number)
    }
}

impl<V: MapValue> MapHandle<V> for Unshared<V> {
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
        self.0.get_mut(&key).is_some_and(|value| {
            *value = V::new(value.number() + 1);
            true
        })
    }

    fn count_and_sum(&self) -> (u64, u64) {
        self.0.values().fold((0, 0), add)
    }
}

/// Maps in the order of their keys, of a thread each.
pub struct OrderedLimit;

/// A thread's.
pub struct UnsharedTree(BTreeMap<u64, u64>);

impl OrderedMap for OrderedLimit {
    const IS_SHARED: bool = false;

    type Handle<'m> = UnsharedTree;

    fn new() -> Self {
        Self
    }

    fn handle(&self) -> UnsharedTree {
        UnsharedTree(BTreeMap::new())
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
        let entries = self.0.range(from..).take(most);
        entries.fold((0, 0), |all, (_, value)| add(all, value))
    }
}
