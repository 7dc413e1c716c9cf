//! A map together with a section.

use super::{
    change::CopyCompute,
    iter::{CopyIter, CopyKeys, CopyValues},
    map::CopyMap,
};
use crate::outcome::{Operation, TryReserveError};
use equivalent::Equivalent;
use std::{
    fmt,
    hash::{BuildHasher, Hash},
};
use stillpoint::{Guard, Section};

/// A map in a section: what [`CopyMap::pin`] and [`CopyMap::with_guard`] return.
///
/// It has the map's methods, without their guard. The section ends when this is dropped, if it has
/// its guard and no reference to one.
///
/// With a [`Guard`] it belongs to its thread. With an
/// [`OwnedGuard`](stillpoint::tasks_trace::OwnedGuard) it is `Send`, and may be held across an
/// `.await`.
#[must_use = "the section ends as soon as this is dropped"]
pub struct CopyMapRef<'m, K, V, S, G = Guard<'m>> {
    map: &'m CopyMap<K, V, S>,
    /// Of the map's domain, which [`CopyMap::with_guard`] has checked. No guard comes to be another
    /// domain's, and a [`QsbrReader`](stillpoint::QsbrReader) that may go offline is not lent to this.
    guard: G,
}

impl<'m, K, V, S, G: Section> CopyMapRef<'m, K, V, S, G> {
    #[inline(always)]
    pub(crate) fn new(map: &'m CopyMap<K, V, S>, guard: G) -> Self {
        Self { map, guard }
    }

    /// Returns the map.
    pub fn map(&self) -> &'m CopyMap<K, V, S> {
        self.map
    }

    /// Returns the guard, for other maps of the domain.
    pub fn guard(&self) -> &G {
        &self.guard
    }

    /// As [`CopyMap::len`].
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// As [`CopyMap::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

impl<K: Copy, V: Copy, S, G: Section> CopyMapRef<'_, K, V, S, G> {
    /// As [`CopyMap::capacity`].
    pub fn capacity(&self) -> usize {
        self.map.capacity(&self.guard)
    }

    /// As [`CopyMap::reserve`].
    pub fn reserve(&self, additional: usize) {
        self.map.reserve(additional, &self.guard);
    }

    /// As [`CopyMap::try_reserve`].
    ///
    /// # Errors
    ///
    /// If there is no memory for the table.
    pub fn try_reserve(&self, additional: usize) -> Result<(), TryReserveError> {
        self.map.try_reserve(additional, &self.guard)
    }
}

impl<K, V, S, G> CopyMapRef<'_, K, V, S, G>
where
    K: Copy + Hash + Eq,
    V: Copy,
    S: BuildHasher,
    G: Section,
{
    /// As [`CopyMap::iter`].
    pub fn iter(&self) -> CopyIter<'_, K, V, S> {
        self.map.iter(&self.guard)
    }

    /// As [`CopyMap::keys`].
    pub fn keys(&self) -> CopyKeys<'_, K, V, S> {
        self.map.keys(&self.guard)
    }

    /// As [`CopyMap::values`].
    pub fn values(&self) -> CopyValues<'_, K, V, S> {
        self.map.values(&self.guard)
    }

    /// As [`CopyMap::get`].
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // SAFETY: inside a section of the map's domain, by the field.
        unsafe { self.map.find_in(key, |(_, value)| value) }
    }

    /// As [`CopyMap::get_key_value`].
    #[inline]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(K, V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // SAFETY: inside a section of the map's domain, by the field.
        unsafe { self.map.find_in(key, |pair| pair) }
    }

    /// As [`CopyMap::contains_key`].
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // SAFETY: inside a section of the map's domain, by the field.
        unsafe { self.map.find_in(key, |_| ()) }.is_some()
    }
}

impl<K, V, S, G> CopyMapRef<'_, K, V, S, G>
where
    K: Copy + Hash + Eq + Send + 'static,
    V: Copy + Send + 'static,
    S: BuildHasher,
    G: Section,
{
    /// As [`CopyMap::insert`].
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        // SAFETY: inside a section of the map's domain, by the field.
        unsafe { self.map.insert_in(key, value) }
    }

    /// As [`CopyMap::try_insert`].
    ///
    /// # Errors
    ///
    /// The value that is in the map, and the one that was not inserted.
    pub fn try_insert(&self, key: K, value: V) -> Result<V, V> {
        // SAFETY: inside a section of the map's domain, by the field.
        unsafe { self.map.try_insert_in(key, value) }
    }

    /// As [`CopyMap::try_insert_with`].
    ///
    /// # Errors
    ///
    /// The value that is in the map.
    pub fn try_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Result<V, V> {
        self.map.try_insert_with(key, make, &self.guard)
    }

    /// As [`CopyMap::get_or_insert`].
    pub fn get_or_insert(&self, key: K, value: V) -> V {
        self.map.get_or_insert(key, value, &self.guard)
    }

    /// As [`CopyMap::get_or_insert_with`].
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> V {
        self.map.get_or_insert_with(key, make, &self.guard)
    }

    /// As [`CopyMap::update`].
    pub fn update(&self, key: K, update: impl FnMut(V) -> V) -> Option<V> {
        self.map.update(key, update, &self.guard)
    }

    /// As [`CopyMap::update_or_insert`].
    pub fn update_or_insert(&self, key: K, update: impl FnMut(V) -> V, value: V) -> V {
        self.map.update_or_insert(key, update, value, &self.guard)
    }

    /// As [`CopyMap::update_or_insert_with`].
    pub fn update_or_insert_with(
        &self,
        key: K,
        update: impl FnMut(V) -> V,
        make: impl FnOnce() -> V,
    ) -> V {
        self.map
            .update_or_insert_with(key, update, make, &self.guard)
    }

    /// As [`CopyMap::compute`].
    #[track_caller]
    pub fn compute<T>(
        &self,
        key: K,
        compute: impl FnMut(Option<(K, V)>) -> Operation<V, T>,
    ) -> CopyCompute<K, V, T> {
        self.map.compute(key, compute, &self.guard)
    }

    /// As [`CopyMap::remove`].
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // SAFETY: inside a section of the map's domain, by the field.
        unsafe { Some(self.map.remove_in(key)?.1) }
    }

    /// As [`CopyMap::remove_entry`].
    pub fn remove_entry<Q>(&self, key: &Q) -> Option<(K, V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // SAFETY: inside a section of the map's domain, by the field.
        unsafe { self.map.remove_in(key) }
    }

    /// As [`CopyMap::remove_if`].
    ///
    /// # Errors
    ///
    /// The entry, if the condition was false.
    pub fn remove_if<Q>(
        &self,
        key: &Q,
        condition: impl FnMut(&K, &V) -> bool,
    ) -> Result<Option<(K, V)>, (K, V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.map.remove_if(key, condition, &self.guard)
    }

    /// As [`CopyMap::retain`].
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) {
        self.map.retain(keep, &self.guard);
    }

    /// As [`CopyMap::shrink_to_fit`].
    pub fn shrink_to_fit(&self) {
        self.map.shrink_to_fit(&self.guard);
    }

    /// As [`CopyMap::clear`].
    pub fn clear(&self) {
        self.map.clear(&self.guard);
    }
}

impl<K, V, S, G> fmt::Debug for CopyMapRef<'_, K, V, S, G>
where
    K: Copy + Hash + Eq + fmt::Debug,
    V: Copy + fmt::Debug,
    S: BuildHasher,
    G: Section,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'g, K, V, S, G> IntoIterator for &'g CopyMapRef<'_, K, V, S, G>
where
    K: Copy + Hash + Eq,
    V: Copy,
    S: BuildHasher,
    G: Section,
{
    type Item = (K, V);
    type IntoIter = CopyIter<'g, K, V, S>;

    fn into_iter(self) -> CopyIter<'g, K, V, S> {
        self.iter()
    }
}
