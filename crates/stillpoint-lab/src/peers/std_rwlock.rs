//! The standard library's `RwLock`, taken for reading: what a program without deferred reclamation
//! would use. In `scale map` it is around a `HashMap` or a `BTreeMap` of the standard library.

use std::collections::{BTreeMap, HashMap};
use std::sync::RwLock;

use crate::map::{BuildHasher, Lookup, Map, MapHandle, MapValue, OrderedHandle, OrderedMap, add};
use crate::subject::{Guarded, Peer, Registry};

const PEER: Peer = Peer::new("std-rwlock");

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.reads::<StdRwLock>(PEER);
    to.maps::<Locked<_>>(PEER);
    to.maps_with_drop::<Locked<_>>(PEER);
    to.orders::<LockedTree>(Peer::new("std-rwlock-btreemap"));
}

/// The lock that all threads share.
static LOCK: RwLock<()> = RwLock::new(());

/// A lock needs nothing for each thread.
#[derive(Default)]
pub struct StdRwLock;

impl Guarded for StdRwLock {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        LOCK.read()
    }
}

/// A locked map.
pub struct Locked<V>(RwLock<HashMap<u64, V, BuildHasher>>);

/// Why a lock is not poisoned.
const NO_PANIC: &str = "no thread panics under the lock";

impl<V: MapValue> Map<V> for Locked<V> {
    type Handle<'m> = &'m Self;

    fn with_capacity(capacity: usize) -> Self {
        let hasher = BuildHasher::default();
        Self(HashMap::with_capacity_and_hasher(capacity, hasher).into())
    }

    fn handle(&self, _threads: usize) -> &Self {
        self
    }
}

impl<V: MapValue> Lookup for &Locked<V> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.read().expect(NO_PANIC).get(&key).map(V::number)
    }
}

impl<V: MapValue> MapHandle<V> for &Locked<V> {
    #[inline]
    fn insert(&mut self, key: u64, value: V) -> bool {
        let old = self.0.write().expect(NO_PANIC).insert(key, value);
        old.is_none()
    }

    #[inline]
    fn remove(&mut self, key: u64) -> bool {
        let removed = self.0.write().expect(NO_PANIC).remove(&key);
        removed.is_some()
    }

    #[inline]
    fn update(&mut self, key: u64) -> bool {
        let mut map = self.0.write().expect(NO_PANIC);
        map.get_mut(&key).is_some_and(|value| {
            *value = V::new(value.number() + 1);
            true
        })
    }

    fn count_and_sum(&self) -> (u64, u64) {
        self.0.read().expect(NO_PANIC).values().fold((0, 0), add)
    }
}

/// A locked map in the order of its keys.
pub struct LockedTree(RwLock<BTreeMap<u64, u64>>);

impl OrderedMap for LockedTree {
    type Handle<'m> = &'m Self;

    fn new() -> Self {
        Self(BTreeMap::new().into())
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl Lookup for &LockedTree {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.read().expect(NO_PANIC).get(&key).copied()
    }
}

impl OrderedHandle for &LockedTree {
    #[inline]
    fn put(&mut self, key: u64, value: u64) {
        self.0.write().expect(NO_PANIC).insert(key, value);
    }

    #[inline]
    fn scan(&self, from: u64, most: usize) -> (u64, u64) {
        let map = self.0.read().expect(NO_PANIC);
        let entries = map.range(from..).take(most);
        entries.fold((0, 0), |all, (_, value)| add(all, value))
    }
}
