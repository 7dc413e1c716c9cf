//! What std's traits ask of the ordered map.

use super::{
    iter::{IntoIter, Iter},
    map::{BTreeMap, PinnedBTreeMap},
};
use crate::{
    iter::{Keys, Values},
    traits::{extend, show},
};
use std::{
    borrow::Borrow,
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    ops::Index,
};

impl<K, V> Default for BTreeMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

show! {
    BTreeMap<K, V> as PinnedBTreeMap, visits (&'g K, &'g V), by Iter<'g, K, V>,
    with debug_map of K: fmt::Debug, V: fmt::Debug;
    K: Ord,
}

impl<K, V, Q> Index<&Q> for PinnedBTreeMap<K, V>
where
    K: Borrow<Q> + Ord,
    Q: Ord + ?Sized,
{
    type Output = V;

    /// Returns the value of a key, as [`get`](Self::get) does.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([("a".to_owned(), 1)]);
    /// assert_eq!(map.pin()["a"], 1);
    /// ```
    ///
    /// # Panics
    ///
    /// If the map has no such key.
    #[track_caller]
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("no entry found for key")
    }
}

impl<K: Ord + Clone + Send + 'static, V: Clone + Send + 'static> Clone for BTreeMap<K, V> {
    fn clone(&self) -> Self {
        let clone = Self {
            store: self.store.new_alike(),
        };
        let pinned = self.pin();
        let theirs = clone.with_guard(pinned.guard());
        for (key, value) in &pinned {
            theirs.insert(key.clone(), value.clone());
        }
        drop(pinned);
        clone
    }
}

impl<K: Ord, V: PartialEq> PartialEq for BTreeMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        let (here, there) = (self.pin(), other.pin());
        here.len() == there.len() && here.iter().eq(there.iter())
    }
}

impl<K: Ord, V: Eq> Eq for BTreeMap<K, V> {}

impl<K: Ord, V: PartialOrd> PartialOrd for BTreeMap<K, V> {
    /// Compares the entries in their order, as std's map does; exact while no thread changes either map.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.pin().iter().partial_cmp(other.pin().iter())
    }
}

impl<K: Ord, V: Ord> Ord for BTreeMap<K, V> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.pin().iter().cmp(other.pin().iter())
    }
}

impl<K: Ord + Hash, V: Hash> Hash for BTreeMap<K, V> {
    /// Hashes the entries that an iteration visits, and their number.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut entries = 0;
        for entry in &self.pin() {
            entry.hash(state);
            entries += 1;
        }
        state.write_usize(entries);
    }
}

extend! {
    BTreeMap<K, V> of (K, V), |map, (key, value)| map.insert(key, value),
    and of (&'a K, &'a V), |(key, value)| (*key, *value), where K: Copy, V: Copy;
    made by |_| Self::new(), where K: Ord, and of arrays K, V;
    K: Ord + Send + 'static,
    V: Send + 'static,
}

impl<K, V> IntoIterator for BTreeMap<K, V> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(mut self) -> IntoIter<K, V> {
        IntoIter(self.store.take())
    }
}

impl<K, V> BTreeMap<K, V> {
    /// Returns the keys of the map, in order, which is given up. The values are dropped as the iterator
    /// goes on, the rest with it.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([(2, "b"), (1, "a")]);
    /// assert!(map.into_keys().eq([1, 2]));
    /// ```
    pub fn into_keys(self) -> Keys<IntoIter<K, V>> {
        Keys(self.into_iter())
    }

    /// Returns the values of the map, in the order of their keys, which is given up. The keys are dropped
    /// as the iterator goes on, the rest with it.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([(2, "b"), (1, "a")]);
    /// assert!(map.into_values().eq(["a", "b"]));
    /// ```
    pub fn into_values(self) -> Values<IntoIter<K, V>> {
        Values(self.into_iter())
    }
}
