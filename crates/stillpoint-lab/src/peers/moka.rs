//! moka's `sync::Cache`.

use crate::cache::{BuildHasher, Cache, CacheHandle, weight_of};
use crate::subject::{Peer, Registry};

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.caches::<Moka>(Peer::new("moka"));
}

/// moka's cache. Its maintenance runs on the threads that use it, now and then.
pub struct Moka(moka::sync::Cache<u64, u64, BuildHasher>);

impl Cache for Moka {
    type Handle<'c> = &'c Self;

    fn with_entries(entries: usize) -> Self {
        let builder = moka::sync::Cache::builder().max_capacity(entries as u64);
        Self(builder.build_with_hasher(BuildHasher::default()))
    }

    fn with_weight(weight: u64, _entries: usize) -> Self {
        let builder = moka::sync::Cache::builder()
            .max_capacity(weight)
            .weigher(|_, &value| weight_of(value));
        Self(builder.build_with_hasher(BuildHasher::default()))
    }

    fn handle(&self) -> &Self {
        self
    }

    fn settle(&self) {
        self.0.run_pending_tasks();
    }
}

impl CacheHandle for &Moka {
    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&mut self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
}
