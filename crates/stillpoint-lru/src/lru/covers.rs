//! Shrinkers that are asked only where LRU lists have something for them.

use super::ListLru;
use crate::memcg::Registration;

impl Registration {
    /// Says that all the shrinker can free is on `lru`'s lists (and those of other such calls): it
    /// is then not even asked where they are empty. The kernel's `list_lru_init_memcg()`. As there,
    /// a lru tells one shrinker at a time.
    ///
    /// # Panics
    ///
    /// If `lru` is not one for the tenants of this hierarchy, or is covered by another registration
    /// that has not ended.
    #[track_caller]
    pub fn covers<T: Send + Sync + 'static>(&self, lru: &ListLru<T>) {
        let lists = lru.lists();
        assert!(
            lists.hierarchy() == self.hierarchy(),
            "stillpoint: the lists are not for the tenants of the hierarchy that the shrinker is registered with; make them with \
             ListLru::for_tenants(&hierarchy)"
        );
        assert!(
            lists.tell_shrinker(self.number()),
            "stillpoint: the lists are covered by another registration; drop that first, or let one shrinker serve both purposes"
        );
        self.use_map();
    }
}
