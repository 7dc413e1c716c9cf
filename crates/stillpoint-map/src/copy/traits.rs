//! What std's traits ask of the map.

use super::{
    iter::{CopyIntoIter, CopyIter},
    map::{CopyMap, PinnedCopyMap},
};
use crate::{
    iter::{Keys, Values},
    traits::{extend, show},
};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
};

show! {
    CopyMap<K, V, S> as PinnedCopyMap, visits (K, V), by CopyIter<'g, K, V, S>,
    with debug_map of K: fmt::Debug, V: fmt::Debug;
    K: Copy + Hash + Eq,
    V: Copy,
    S: BuildHasher,
}

impl<K, V, S> Clone for CopyMap<K, V, S>
where
    K: Copy + Hash + Eq + Send + 'static,
    V: Copy + Send + 'static,
    S: BuildHasher + Clone,
{
    /// Copies each entry that an iteration visits, into a map of the same domain.
    fn clone(&self) -> Self {
        let clone = Self::of(self.hasher.clone(), self.root.home.0.clone());
        let entries = self.len();
        if entries > 0 {
            // Without memory the first insert tries again.
            let _ = clone.root.core_for(entries, false);
        }
        let pinned = self.pin();
        let theirs = clone.with_guard(pinned.guard());
        for (key, value) in &pinned {
            theirs.insert(key, value);
        }
        drop(pinned);
        clone
    }
}

impl<K, V, S> PartialEq for CopyMap<K, V, S>
where
    K: Copy + Hash + Eq,
    V: Copy + PartialEq,
    S: BuildHasher,
{
    /// Compares the entries that an iteration visits; exact while no thread changes either map.
    fn eq(&self, other: &Self) -> bool {
        let (here, there) = (self.pin(), other.pin());
        here.len() == there.len()
            && here
                .iter()
                .all(|(key, value)| there.get(&key) == Some(value))
    }
}

impl<K: Copy + Hash + Eq, V: Copy + Eq, S: BuildHasher> Eq for CopyMap<K, V, S> {}

extend! {
    CopyMap<K, V, S> of (K, V), |map, (key, value)| map.insert(key, value),
    and of (&'a K, &'a V), |(key, value)| (*key, *value), where K: Copy, V: Copy;
    made by |entries| Self::with_hint(entries, S::default()), where S: Default, and of arrays K, V;
    K: Copy + Hash + Eq + Send + 'static,
    V: Copy + Send + 'static,
    S: BuildHasher,
}

impl<K: Copy + Hash + Eq, V: Copy, S: BuildHasher> IntoIterator for CopyMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = CopyIntoIter<K, V>;

    /// Copies the entries, and frees the map.
    fn into_iter(self) -> CopyIntoIter<K, V> {
        // A section: the service thread may be moving its table.
        let entries: Vec<_> = self.pin().iter().collect();
        CopyIntoIter(entries.into_iter())
    }
}

impl<K: Copy + Hash + Eq, V: Copy, S: BuildHasher> CopyMap<K, V, S> {
    /// Takes the map apart, and returns its keys.
    pub fn into_keys(self) -> Keys<CopyIntoIter<K, V>> {
        Keys(self.into_iter())
    }

    /// Takes the map apart, and returns its values.
    pub fn into_values(self) -> Values<CopyIntoIter<K, V>> {
        Values(self.into_iter())
    }
}
