//! An ordered map together with a section.

use super::{
    iter::{Iter, Keys, Range, Values},
    map::BTreeMap,
};
use crate::outcome::{Compute, OccupiedError, Operation};
use std::{
    borrow::Borrow,
    fmt,
    ops::{Bound, RangeBounds},
};
use stillpoint::{Guard, Section};

/// An ordered map in a section: what [`BTreeMap::pin`] and [`BTreeMap::with_guard`] return.
///
/// It has the map's methods, without their guard. What they return lives as long as this does. The
/// section ends when this is dropped, if it has its guard and no reference to one.
///
/// With a [`Guard`] it belongs to its thread. With an
/// [`OwnedGuard`](stillpoint::tasks_trace::OwnedGuard) it is `Send`, and may be held across an
/// `.await`.
#[must_use = "the section ends as soon as this is dropped"]
pub struct BTreeMapRef<'m, K, V, G = Guard<'m>> {
    map: &'m BTreeMap<K, V>,
    guard: G,
}

impl<'m, K, V, G: Section> BTreeMapRef<'m, K, V, G> {
    #[inline(always)]
    pub(super) fn new(map: &'m BTreeMap<K, V>, guard: G) -> Self {
        Self { map, guard }
    }

    /// Returns the map.
    pub fn map(&self) -> &'m BTreeMap<K, V> {
        self.map
    }

    /// Returns the guard, for other maps of the domain.
    pub fn guard(&self) -> &G {
        &self.guard
    }

    /// As [`BTreeMap::len`].
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// As [`BTreeMap::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// As [`BTreeMap::iter`].
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.map.iter(&self.guard)
    }

    /// As [`BTreeMap::keys`].
    pub fn keys(&self) -> Keys<'_, K, V> {
        self.map.keys(&self.guard)
    }

    /// As [`BTreeMap::values`].
    pub fn values(&self) -> Values<'_, K, V> {
        self.map.values(&self.guard)
    }

    /// As [`BTreeMap::first_key_value`].
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.map.first_key_value(&self.guard)
    }

    /// As [`BTreeMap::last_key_value`].
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.map.last_key_value(&self.guard)
    }
}

impl<K: Ord, V, G: Section> BTreeMapRef<'_, K, V, G> {
    /// As [`BTreeMap::get`].
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.map.get(key, &self.guard)
    }

    /// As [`BTreeMap::get_key_value`].
    #[inline]
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.map.get_key_value(key, &self.guard)
    }

    /// As [`BTreeMap::contains_key`].
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.map.contains_key(key, &self.guard)
    }

    /// As [`BTreeMap::range`].
    ///
    /// # Panics
    ///
    /// As there.
    #[track_caller]
    pub fn range<Q, R>(&self, range: R) -> Range<'_, K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
        R: RangeBounds<Q>,
    {
        self.map.range(range, &self.guard)
    }

    /// As [`BTreeMap::lower_bound`].
    pub fn lower_bound<Q>(&self, bound: Bound<&Q>) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.map.lower_bound(bound, &self.guard)
    }

    /// As [`BTreeMap::upper_bound`].
    pub fn upper_bound<Q>(&self, bound: Bound<&Q>) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.map.upper_bound(bound, &self.guard)
    }
}

impl<K: Ord + Send + 'static, V: Send + 'static, G: Section> BTreeMapRef<'_, K, V, G> {
    /// As [`BTreeMap::insert`].
    pub fn insert(&self, key: K, value: V) -> Option<&V> {
        self.map.insert(key, value, &self.guard)
    }

    /// As [`BTreeMap::try_insert`].
    ///
    /// # Errors
    ///
    /// The value that is in the map, and the one that was not inserted.
    pub fn try_insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
        self.map.try_insert(key, value, &self.guard)
    }

    /// As [`BTreeMap::try_insert_with`].
    ///
    /// # Errors
    ///
    /// The value that is in the map.
    pub fn try_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Result<&V, &V> {
        self.map.try_insert_with(key, make, &self.guard)
    }

    /// As [`BTreeMap::get_or_insert`].
    pub fn get_or_insert(&self, key: K, value: V) -> &V {
        self.map.get_or_insert(key, value, &self.guard)
    }

    /// As [`BTreeMap::get_or_insert_with`].
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> &V {
        self.map.get_or_insert_with(key, make, &self.guard)
    }

    /// As [`BTreeMap::update`].
    pub fn update(&self, key: K, update: impl FnMut(&V) -> V) -> Option<&V> {
        self.map.update(key, update, &self.guard)
    }

    /// As [`BTreeMap::update_or_insert`].
    pub fn update_or_insert(&self, key: K, update: impl FnMut(&V) -> V, value: V) -> &V {
        self.map.update_or_insert(key, update, value, &self.guard)
    }

    /// As [`BTreeMap::update_or_insert_with`].
    pub fn update_or_insert_with(
        &self,
        key: K,
        update: impl FnMut(&V) -> V,
        make: impl FnOnce() -> V,
    ) -> &V {
        self.map
            .update_or_insert_with(key, update, make, &self.guard)
    }

    /// As [`BTreeMap::compute`].
    #[track_caller]
    pub fn compute<'g, T>(
        &'g self,
        key: K,
        compute: impl FnMut(Option<(&'g K, &'g V)>) -> Operation<V, T>,
    ) -> Compute<'g, K, V, T> {
        self.map.compute(key, compute, &self.guard)
    }

    /// As [`BTreeMap::remove`].
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.map.remove(key, &self.guard)
    }

    /// As [`BTreeMap::remove_entry`].
    pub fn remove_entry<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.map.remove_entry(key, &self.guard)
    }

    /// As [`BTreeMap::remove_if`].
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
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.map.remove_if(key, condition, &self.guard)
    }

    /// As [`BTreeMap::pop_first`].
    pub fn pop_first(&self) -> Option<(&K, &V)> {
        self.map.pop_first(&self.guard)
    }

    /// As [`BTreeMap::pop_last`].
    pub fn pop_last(&self) -> Option<(&K, &V)> {
        self.map.pop_last(&self.guard)
    }

    /// As [`BTreeMap::retain`].
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) {
        self.map.retain(keep, &self.guard);
    }

    /// As [`BTreeMap::clear`].
    pub fn clear(&self) {
        self.map.clear(&self.guard);
    }
}

impl<K: Ord + fmt::Debug, V: fmt::Debug, G: Section> fmt::Debug for BTreeMapRef<'_, K, V, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'g, K: Ord, V, G: Section> IntoIterator for &'g BTreeMapRef<'_, K, V, G> {
    type Item = (&'g K, &'g V);
    type IntoIter = Iter<'g, K, V>;

    fn into_iter(self) -> Iter<'g, K, V> {
        self.iter()
    }
}
