//! What std's traits ask of the map.

use crate::{
    iter::{IntoIter, Iter, Keys, Values},
    map::{HashMap, PinnedHashMap},
};
use equivalent::Equivalent;
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    ops::Index,
};

impl<K, V, S: Default> Default for HashMap<K, V, S> {
    /// Makes an empty map of the global domain. Does not allocate.
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for HashMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pin().fmt(f)
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for PinnedHashMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<'g, K, V, S> IntoIterator for &'g PinnedHashMap<K, V, S> {
    type Item = (&'g K, &'g V);
    type IntoIter = Iter<'g, K, V>;

    fn into_iter(self) -> Iter<'g, K, V> {
        self.iter()
    }
}

impl<K, V, S, Q> Index<&Q> for PinnedHashMap<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
    Q: Hash + Equivalent<K> + ?Sized,
{
    type Output = V;

    /// Returns the value of a key, as [`get`](Self::get) does. Only a pinned map has this: its section lasts as
    /// long as the result.
    ///
    /// ```
    /// let map = stillpoint_map::HashMap::from([("a".to_owned(), 1)]);
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

impl<K: Clone, V: Clone, S: Clone> Clone for HashMap<K, V, S> {
    /// Clones each entry that an iteration visits, into a map of the same domain, which shrinks like one
    /// that has grown to them. Takes the lock of each bucket in turn, for some nanoseconds; clones keys
    /// and values without a lock. Does not hash or compare keys.
    fn clone(&self) -> Self {
        Self {
            store: self.store.cloned(),
            hasher: self.hasher.clone(),
        }
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
        let (here, there) = (self.pin(), other.pin());
        here.len() == there.len()
            && here
                .iter()
                .all(|(key, value)| there.get(key) == Some(value))
    }
}

impl<K: Hash + Eq, V: Eq, S: BuildHasher> Eq for HashMap<K, V, S> {}

/// Defines how a map is extended: by owned entries and by references to them, by a shared reference and
/// by value.
macro_rules! extend {
    ($map:ident<$($param:ident),+>, $($bounds:tt)+) => {
        impl<$($param),+> Extend<(K, V)> for &$map<$($param),+>
        where
            $($bounds)+
        {
            /// Inserts the entries, with a section for each, because the iterator may take its time.
            fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
                for (key, value) in entries {
                    self.pin().insert(key, value);
                }
            }
        }

        impl<$($param),+> Extend<(K, V)> for $map<$($param),+>
        where
            $($bounds)+
        {
            fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
                (&*self).extend(entries);
            }
        }

        impl<'a, $($param),+> Extend<(&'a K, &'a V)> for &$map<$($param),+>
        where
            K: Copy,
            V: Copy,
            $($bounds)+
        {
            /// Inserts copies of the entries.
            fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
                self.extend(entries.into_iter().map(|(key, value)| (*key, *value)));
            }
        }

        impl<'a, $($param),+> Extend<(&'a K, &'a V)> for $map<$($param),+>
        where
            K: Copy,
            V: Copy,
            $($bounds)+
        {
            fn extend<I: IntoIterator<Item = (&'a K, &'a V)>>(&mut self, entries: I) {
                (&*self).extend(entries);
            }
        }
    };
}
pub(crate) use extend;

extend! {
    HashMap<K, V, S>,
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher,
}

impl<K, V, S> FromIterator<(K, V)> for HashMap<K, V, S>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher + Default,
{
    /// Inserts the entries into a map of the global domain, which begins with room for those that the
    /// iterator says it has, and shrinks when they go.
    ///
    /// # Panics
    ///
    /// If no table can have room for so many: "capacity overflow".
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        let mut map = Self::with_hint(entries.size_hint().0, S::default());
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
    pub fn into_keys(self) -> Keys<IntoIter<K, V>> {
        Keys(self.into_iter())
    }

    /// Takes the map apart, and returns its values.
    pub fn into_values(self) -> Values<IntoIter<K, V>> {
        Values(self.into_iter())
    }
}
