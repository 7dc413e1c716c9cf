//! moka's `sync::Cache`.

use crate::cache::{BuildHasher, Cache, StringCache, weight_of};
use crate::subject::{Peer, Registry};

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    let peer = Peer::new("moka");
    to.caches::<Moka>(peer);
    to.strings::<MokaStrings>(peer);
}

/// moka's cache. Its maintenance runs on the threads that use it, now and then.
pub struct Moka(moka::sync::Cache<u64, u64, BuildHasher>);

impl Cache for Moka {
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

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn settle(&self) {
        self.0.run_pending_tasks();
    }
}

/// The cache of strings. A hit clones the value.
pub struct MokaStrings(moka::sync::Cache<String, String, BuildHasher>);

impl StringCache for MokaStrings {
    fn with_entries(entries: usize) -> Self {
        let builder = moka::sync::Cache::builder().max_capacity(entries as u64);
        Self(builder.build_with_hasher(BuildHasher::default()))
    }

    fn insert(&self, key: String, value: String) {
        self.0.insert(key, value);
    }

    fn finds(&self, key: &str) -> bool {
        self.0.get(key).is_some()
    }
}
