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
    /// let cache: Cache<u64, u64> = Cache::builder().max_entries(1000).build();
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
        if self.0.inner.shared.is_lost() {
            // In the child of a fork: a pass that is not for this cache goes on without it.
            return 0;
        }
        usize::try_from(self.0.entry_count()).unwrap_or(usize::MAX)
    }

    fn scan(&self, _: &Scope<'_>, objects: usize) -> Option<usize> {
        if self.0.inner.shared.is_lost() {
            return None;
        }
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

#[cfg(test)]
mod tests {
    use crate::Cache;
    use std::{mem, sync::Arc};
    use stillpoint_lru::Hierarchy;
    use stillpoint_platform::fork::ForkReset;

    #[test]
    #[cfg_attr(miri, ignore = "memory is lost, as it is in a child")]
    fn a_pass_in_a_child_goes_on_without_a_cache_whose_lock_is_lost() {
        let [lost, other] = [1000, 1000].map(|max| {
            let cache: Cache<u64, u64> = Cache::builder().max_entries(max).build();
            (0..max).for_each(|key| cache.insert(key, key));
            cache
        });
        let hierarchy = Hierarchy::new();
        let _registrations =
            [&lost, &other].map(|cache| hierarchy.register(Arc::new(cache.shrinker())).unwrap());
        mem::forget(lost.inner.shared.lock());
        // SAFETY: no other thread uses the cache.
        unsafe { lost.inner.shared.reset_in_child() };
        hierarchy.reclaim();
        assert_eq!(lost.iter().count(), 1000);
        assert!(other.entry_count() < 1000);
    }
}
