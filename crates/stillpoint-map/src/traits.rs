//! What std's traits ask of the map.

use crate::{
    iter::{IntoIter, IntoKeys, IntoValues},
    map::HashMap,
};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
};

impl<K, V, S: Default> Default for HashMap<K, V, S> {
    /// Makes an empty map of the global domain. Does not allocate.
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for HashMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter(&self.guard())).finish()
    }
}

impl<K, V, S> Clone for HashMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + 'static,
    V: Clone + Send + 'static,
    S: BuildHasher + Clone,
{
    /// Clones each entry that an iteration visits, into a map of the same domain.
    fn clone(&self) -> Self {
        let clone = Self {
            store: self.store.new_alike(),
            hasher: self.hasher.clone(),
        };
        let entries = self.len();
        if entries > 0 {
            clone.store.make_room(entries, false);
        }
        let guard = self.guard();
        for (key, value) in self.iter(&guard) {
            clone.insert(key.clone(), value.clone(), &guard);
        }
        drop(guard);
        clone
    }
}

impl<K, V, S> PartialEq for HashMap<K, V, S>
where
    K: Hash + Eq,
    V: PartialEq,
    S: BuildHasher,
{
    /// Compares the entries that an iteration visits; exact while no thread changes either map.
    fn eq(&self, other: &Self) -> bool {
        let (here, there) = (self.guard(), other.guard());
        self.len() == other.len()
            && self
                .iter(&here)
                .all(|(key, value)| other.get(key, &there) == Some(value))
    }
}

impl<K: Hash + Eq, V: Eq, S: BuildHasher> Eq for HashMap<K, V, S> {}

impl<K, V, S> Extend<(K, V)> for &HashMap<K, V, S>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher,
{
    /// Inserts the entries, each in a section of its own, because the iterator may take its time.
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value, &self.guard());
        }
    }
}

impl<'a, K, V, S> Extend<(&'a K, &'a V)> for &HashMap<K, V, S>
where
    K: Hash + Eq + Copy + Send + 'static,
    V: Copy + Send + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
        self.extend(entries.into_iter().map(|(key, value)| (*key, *value)));
    }
}

impl<K, V, S> Extend<(K, V)> for HashMap<K, V, S>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        (&*self).extend(entries);
    }
}

impl<'a, K, V, S> Extend<(&'a K, &'a V)> for HashMap<K, V, S>
where
    K: Hash + Eq + Copy + Send + 'static,
    V: Copy + Send + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
        (&*self).extend(entries);
    }
}

impl<K, V, S> FromIterator<(K, V)> for HashMap<K, V, S>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher + Default,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        let mut map = Self::with_capacity_and_hasher(entries.size_hint().0, S::default());
        map.extend(entries);
        map
    }
}

impl<K, V, const N: usize> From<[(K, V); N]> for HashMap<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn from(entries: [(K, V); N]) -> Self {
        Self::from_iter(entries)
    }
}

impl<K, V, S> IntoIterator for HashMap<K, V, S> {
    type Item = (K, V);
    type IntoIter = IntoIter<K, V>;

    fn into_iter(mut self) -> IntoIter<K, V> {
        IntoIter(self.store.take())
    }
}

impl<K, V, S> HashMap<K, V, S> {
    /// Takes the map apart, and returns its keys.
    pub fn into_keys(self) -> IntoKeys<K, V> {
        IntoKeys(self.into_iter())
    }

    /// Takes the map apart, and returns its values.
    pub fn into_values(self) -> IntoValues<K, V> {
        IntoValues(self.into_iter())
    }
}
