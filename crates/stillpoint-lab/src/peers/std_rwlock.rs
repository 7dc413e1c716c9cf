//! The standard library's `RwLock`, taken for reading: what a program without deferred reclamation would use. In
//! `scale map` it is around a `HashMap` or a `BTreeMap` of the standard library.

use std::collections::{BTreeMap, HashMap};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::map::{BuildHasher, Lookup, SharedMap, SharedTree, count_and_sum};
use crate::subject::{Guarded, Peer, Registry};

const PEER: Peer = Peer::new("std-rwlock");

/// Adds what it takes part in.
pub fn register(to: &mut impl Registry) {
    to.reads::<StdRwLock>(PEER);
    to.maps::<Locked<HashMap<u64, u64, BuildHasher>>>(PEER);
    to.orders::<Locked<BTreeMap<u64, u64>>>(Peer::new("std-rwlock-btreemap"));
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
pub struct Locked<M>(RwLock<M>);

impl<M> Locked<M> {
    #[inline]
    fn read(&self) -> RwLockReadGuard<'_, M> {
        self.0.read().expect("no thread panics under the lock")
    }

    #[inline]
    fn write(&self) -> RwLockWriteGuard<'_, M> {
        self.0.write().expect("no thread panics under the lock")
    }
}

impl Lookup for Locked<HashMap<u64, u64, BuildHasher>> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.read().get(&key).copied()
    }
}

impl SharedMap for Locked<HashMap<u64, u64, BuildHasher>> {
    fn with_capacity(capacity: usize) -> Self {
        let hasher = BuildHasher::default();
        Self(HashMap::with_capacity_and_hasher(capacity, hasher).into())
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) -> bool {
        self.write().insert(key, value).is_none()
    }

    #[inline]
    fn remove(&self, key: u64) -> bool {
        self.write().remove(&key).is_some()
    }

    #[inline]
    fn update(&self, key: u64) -> bool {
        self.write()
            .get_mut(&key)
            .map(|value| *value += 1)
            .is_some()
    }

    fn count(&self) -> usize {
        self.read().len()
    }
}

impl Lookup for Locked<BTreeMap<u64, u64>> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.read().get(&key).copied()
    }
}

impl SharedTree for Locked<BTreeMap<u64, u64>> {
    fn new() -> Self {
        Self(BTreeMap::new().into())
    }

    #[inline]
    fn put(&self, key: u64, value: u64) {
        self.write().insert(key, value);
    }

    #[inline]
    fn scan(&self, from: u64, most: usize) -> (u64, u64) {
        let map = self.read();
        count_and_sum(map.range(from..).take(most).map(|(_, value)| *value))
    }
}
