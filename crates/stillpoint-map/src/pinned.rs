//! A map together with a section.

use crate::{
    entry::Found,
    iter::{Iter, Keys, Values},
    map::HashMap,
    outcome::{Compute, OccupiedError, Operation, TryReserveError},
};
use equivalent::Equivalent;
use std::{
    fmt,
    hash::{BuildHasher, Hash},
};
use stillpoint::{Guard, Section};

/// A map in a section: what [`HashMap::pin`] and [`HashMap::with_guard`] return.
///
/// It has the map's methods, without their guard. What they return lives as long as this does. The
/// section ends when this is dropped, if it has its guard and no reference to one.
///
/// With a [`Guard`] it belongs to its thread. With an
/// [`OwnedGuard`](stillpoint::tasks_trace::OwnedGuard) it is `Send`, and may be held across an
/// `.await`.
#[must_use = "the section ends as soon as this is dropped"]
pub struct HashMapRef<'m, K, V, S, G = Guard<'m>> {
    map: &'m HashMap<K, V, S>,
    guard: G,
}

impl<'m, K, V, S, G: Section> HashMapRef<'m, K, V, S, G> {
    /// # Safety
    ///
    /// The guard is of the map's domain, and inside a section of it.
    #[inline(always)]
    pub(crate) unsafe fn new(map: &'m HashMap<K, V, S>, guard: G) -> Self {
        Self { map, guard }
    }

    /// Returns the map.
    pub fn map(&self) -> &'m HashMap<K, V, S> {
        self.map
    }

    /// Returns the guard, for other maps of the domain.
    pub fn guard(&self) -> &G {
        &self.guard
    }

    /// As [`HashMap::len`].
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// As [`HashMap::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// As [`HashMap::capacity`].
    pub fn capacity(&self) -> usize {
        self.map.capacity(&self.guard)
    }

    /// As [`HashMap::iter`].
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.map.iter(&self.guard)
    }

    /// As [`HashMap::keys`].
    pub fn keys(&self) -> Keys<'_, K, V> {
        self.map.keys(&self.guard)
    }

    /// As [`HashMap::values`].
    pub fn values(&self) -> Values<'_, K, V> {
        self.map.values(&self.guard)
    }

    /// As [`HashMap::reserve`].
    pub fn reserve(&self, additional: usize) {
        self.map.reserve(additional, &self.guard);
    }

    /// As [`HashMap::try_reserve`].
    ///
    /// # Errors
    ///
    /// If there is no memory for the table.
    pub fn try_reserve(&self, additional: usize) -> Result<(), TryReserveError> {
        self.map.try_reserve(additional, &self.guard)
    }

    /// As [`HashMap::shrink_to_fit`].
    pub fn shrink_to_fit(&self) {
        self.map.shrink_to_fit(&self.guard);
    }
}

impl<K: Hash + Eq, V, S: BuildHasher, G: Section> HashMapRef<'_, K, V, S, G> {
    #[inline(always)]
    fn find<Q>(&self, key: &Q) -> Option<Found<'_, K, V>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // SAFETY: the guard is of the map's domain, and is there as long as this is: see `new`. What
        // ends a section before its guard takes the guard by a mutable reference, which this does not
        // give away.
        unsafe { self.map.look_up(key) }
    }

    /// As [`HashMap::get`].
    #[inline(always)]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        Some(&self.find(key)?.get().value)
    }

    /// As [`HashMap::get_key_value`].
    #[inline]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        Some(self.find(key)?.get().pair())
    }

    /// As [`HashMap::contains_key`].
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key).is_some()
    }
}

impl<K, V, S, G> HashMapRef<'_, K, V, S, G>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher,
    G: Section,
{
    /// As [`HashMap::insert`].
    pub fn insert(&self, key: K, value: V) -> Option<&V> {
        self.map.insert(key, value, &self.guard)
    }

    /// As [`HashMap::try_insert`].
    ///
    /// # Errors
    ///
    /// The value that is in the map, and the one that was not inserted.
    pub fn try_insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
        self.map.try_insert(key, value, &self.guard)
    }

    /// As [`HashMap::try_insert_with`].
    ///
    /// # Errors
    ///
    /// The value that is in the map.
    pub fn try_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Result<&V, &V> {
        self.map.try_insert_with(key, make, &self.guard)
    }

    /// As [`HashMap::get_or_insert`].
    pub fn get_or_insert(&self, key: K, value: V) -> &V {
        self.map.get_or_insert(key, value, &self.guard)
    }

    /// As [`HashMap::get_or_insert_with`].
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> &V {
        self.map.get_or_insert_with(key, make, &self.guard)
    }

    /// As [`HashMap::update`].
    pub fn update(&self, key: K, update: impl FnMut(&V) -> V) -> Option<&V> {
        self.map.update(key, update, &self.guard)
    }

    /// As [`HashMap::update_or_insert`].
    pub fn update_or_insert(&self, key: K, update: impl FnMut(&V) -> V, value: V) -> &V {
        self.map.update_or_insert(key, update, value, &self.guard)
    }

    /// As [`HashMap::update_or_insert_with`].
    pub fn update_or_insert_with(
        &self,
        key: K,
        update: impl FnMut(&V) -> V,
        make: impl FnOnce() -> V,
    ) -> &V {
        self.map
            .update_or_insert_with(key, update, make, &self.guard)
    }

    /// As [`HashMap::compute`].
    #[track_caller]
    pub fn compute<'g, T>(
        &'g self,
        key: K,
        compute: impl FnMut(Option<(&'g K, &'g V)>) -> Operation<V, T>,
    ) -> Compute<'g, K, V, T> {
        self.map.compute(key, compute, &self.guard)
    }

    /// As [`HashMap::remove`].
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.map.remove(key, &self.guard)
    }

    /// As [`HashMap::remove_entry`].
    pub fn remove_entry<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.map.remove_entry(key, &self.guard)
    }

    /// As [`HashMap::remove_if`].
    ///
    /// # Errors
    ///
    /// The entry, if the condition was false.
    pub fn remove_if<Q>(
        &self,
        key: &Q,
        condition: impl FnMut(&K, &V) -> bool,
    ) -> Result<Option<(&K, &V)>, (&K, &V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.map.remove_if(key, condition, &self.guard)
    }
}

impl<K, V, S, G> HashMapRef<'_, K, V, S, G>
where
    K: Send + 'static,
    V: Send + 'static,
    G: Section,
{
    /// As [`HashMap::retain`].
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) {
        self.map.retain(keep, &self.guard);
    }

    /// As [`HashMap::clear`].
    pub fn clear(&self) {
        self.map.clear(&self.guard);
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S, G: Section> fmt::Debug for HashMapRef<'_, K, V, S, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'g, K, V, S, G: Section> IntoIterator for &'g HashMapRef<'_, K, V, S, G> {
    type Item = (&'g K, &'g V);
    type IntoIter = Iter<'g, K, V>;

    fn into_iter(self) -> Iter<'g, K, V> {
        self.iter()
    }
}
