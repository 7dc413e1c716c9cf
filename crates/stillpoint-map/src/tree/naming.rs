//! Names of ordered maps, for the statistics page ([`crate::shown`]).

use super::{core::Tree, map::BTreeMap, store::Ordered};
use crate::{
    naming::arena_in,
    store::{Policy, no_memory},
};

impl Tree {
    /// As [`Core::show`].
    ///
    /// # Safety
    ///
    /// No other thread uses the tree.
    unsafe fn show(&self, name: Box<str>) -> bool {
        // SAFETY: the caller's promise, here and below.
        if self.count.shown().is_some() || !unsafe { self.count.show(name, true) } {
            return self.count.shown().is_some();
        }
        // SAFETY: as above.
        if let (Some(arena), Some(shown)) = (unsafe { arena_in(&self.arena) }, self.count.shown()) {
            arena.show(shown);
        }
        true
    }
}

impl<K, V> BTreeMap<K, V> {
    /// Returns this map with a name, by which it is in the statistics page, as
    /// [`HashMap::named`](crate::HashMap::named) does: how many entries it has, and the bytes of
    /// the runs that they lie in.
    ///
    /// ```
    /// let readings = stillpoint_map::BTreeMap::<u64, String>::new().named("readings");
    /// readings.pin().insert(1, "none".to_owned());
    /// ```
    #[must_use]
    pub fn named(self, name: impl Into<Box<str>>) -> Self {
        self.store.show(name.into());
        self
    }
}

impl<K, V, P: Policy> Ordered<K, V, P> {
    /// Has it shown by this name, before another thread has the map. Ends the process without
    /// memory.
    fn show(&self, name: Box<str>) {
        let tree = self.tree().or_else(|| self.make_tree());
        // SAFETY: no other thread uses the map, which is the caller's.
        if !tree.is_some_and(|tree| unsafe { tree.show(name) }) {
            no_memory();
        }
    }
}
