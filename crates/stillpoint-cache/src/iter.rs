//! Iteration: a few buckets at a time, so that no section stays open.

use crate::{
    Weigh,
    cache::{Cache, Pinned},
    node::Node,
};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    iter::{Zip, zip},
    vec,
};
use stillpoint_map::internal::Found;

/// Number of buckets that are visited in one section.
pub const HOMES: usize = 16;

/// Clones of the entries of a cache: see [`Cache::iter`].
pub struct Iter<'c, K, V, S> {
    cache: &'c Cache<K, V, S>,
    position: Option<u64>,
    found: Zip<vec::IntoIter<K>, vec::IntoIter<V>>,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Visits clones of the entries of the tenant and all below it, in no particular order. An
    /// entry that is there throughout is visited exactly once. No section stays open meanwhile, and
    /// nothing counts as a use.
    pub fn iter(&self) -> Iter<'_, K, V, S>
    where
        K: Clone,
        V: Clone,
    {
        Iter {
            cache: self,
            position: Some(0),
            found: zip(Vec::new(), Vec::new()),
        }
    }

    /// Calls `visit` with each entry, as [`iter`](Self::iter) would visit it, inside a section that
    /// ends every few buckets.
    pub fn for_each(&self, mut visit: impl FnMut(&K, &V)) {
        let mut position = Some(0);
        while position.is_some() {
            self.step(&mut position, &mut visit);
        }
    }

    fn step(&self, position: &mut Option<u64>, visit: &mut impl FnMut(&K, &V)) {
        self.visit_some(position, |found, store| {
            if self.inner.is_found(found) && self.has(found, store, |handle| Some(handle.number()))
            {
                let entry = found.get();
                visit(&entry.key, &entry.value.value);
            }
        });
    }

    /// Calls `visit` in a section with what the map has in some buckets. Moves `position` on: to `None` at the end.
    pub(crate) fn visit_some(
        &self,
        position: &mut Option<u64>,
        mut visit: impl FnMut(Found<'_, K, Node<V>>, &Pinned<K, V>),
    ) {
        let store = &self.inner.section();
        let mut entries = store.iter_from(*position);
        for _ in 0..HOMES {
            entries.next_home().for_each(|found| visit(found, store));
            *position = entries.position();
        }
    }
}

impl<K, V, S> Iterator for Iter<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        loop {
            if let Some(entry) = self.found.next() {
                return Some(entry);
            }
            self.position?;
            // If the clone of a value panics, that of its key is dropped outside of the section.
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            self.cache.step(&mut self.position, &mut |key, value| {
                keys.push(key.clone());
                values.push(value.clone());
            });
            self.found = zip(keys, values);
        }
    }
}

impl<K, V, S> fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

/// Inserts each entry as [`Cache::insert`] does: one by one, and for this view's tenant.
///
/// ```
/// use stillpoint_cache::Cache;
///
/// let cache: Cache<u64, u64> = Cache::with_entries(100);
/// (&cache).extend((0..10).map(|key| (key, 2 * key)));
/// assert_eq!((cache.entry_count(), cache.get(&7)), (10, Some(14)));
/// ```
impl<K, V, S> Extend<(K, V)> for &Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

/// Inserts the entries, as [`Extend`] of `&Cache` does.
impl<K, V, S> Extend<(K, V)> for Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        (&*self).extend(entries);
    }
}

/// Makes a cache without a limit of the program ([`Cache::builder`]), and inserts the entries.
///
/// ```
/// use stillpoint_cache::Cache;
///
/// let cache: Cache<u64, u64> = [(1, 2), (3, 4)].into_iter().collect();
/// assert_eq!((cache.get(&3), cache.entry_count()), (Some(4), 2));
/// ```
impl<K, V> FromIterator<(K, V)> for Cache<K, V>
where
    K: Hash + Eq + Weigh + Send + Sync + 'static,
    V: Weigh + Send + Sync + 'static,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let cache = Self::builder().build();
        (&cache).extend(entries);
        cache
    }
}
