//! Memory pressure: a cache as a shrinker of `stillpoint-lru`.

use crate::cache::Cache;
use std::{
    fmt,
    hash::{BuildHasher, Hash},
};
use stillpoint_lru::{Scope, Shrink};

/// A cache that gives way when memory is short: see [`Cache::shrinker`].
pub struct Shrinker<K, V, S>(Cache<K, V, S>);

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Returns this tenant, with all below it, as a shrinker, to be registered with a hierarchy
    /// whose [`PressureWatch`](stillpoint_lru::PressureWatch) hears from the system that memory is
    /// short.
    ///
    /// Each pass evicts a part of the entries, as limits would, minima spared. The limits stay as
    /// they are.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use stillpoint_cache::Cache;
    /// use stillpoint_lru::Hierarchy;
    ///
    /// let cache: Cache<u64, u64> = Cache::builder().max_bytes(1000).weigher(|_, _| 1).build();
    /// (0..1000).for_each(|key| cache.insert(key, key));
    /// let hierarchy = Hierarchy::new();
    /// let _registered = hierarchy.register(Arc::new(cache.shrinker()))?;
    /// hierarchy.root().charge(1)?; // a watch's pass asks the same
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn shrinker(&self) -> Shrinker<K, V, S> {
        Shrinker(self.clone())
    }
}

impl<K, V, S> Shrink for Shrinker<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn count(&self, _: &Scope<'_>) -> usize {
        usize::try_from(self.0.entry_count()).unwrap_or(usize::MAX)
    }

    fn scan(&self, _: &Scope<'_>, objects: usize) -> Option<usize> {
        let evict = || self.0.evict_some(objects);
        match self.0.shrinking(None, evict) {
            0 => None,
            evicted => Some(evicted),
        }
    }

    fn per_tenant(&self) -> bool {
        false
    }
}

impl<K, V, S> fmt::Debug for Shrinker<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shrinker").field(&self.0).finish()
    }
}
