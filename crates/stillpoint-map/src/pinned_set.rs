//! A set together with a section.

use crate::{iter::Keys, outcome::TryReserveError, set::HashSet};
use equivalent::Equivalent;
use std::{
    fmt,
    hash::{BuildHasher, Hash},
};
use stillpoint::{Guard, Section};

/// A set in a section: what [`HashSet::pin`] and [`HashSet::with_guard`] return.
///
/// It has the set's methods, without their guard; otherwise as
/// [`HashMapRef`](crate::HashMapRef).
#[must_use = "the section ends as soon as this is dropped"]
pub struct HashSetRef<'m, T, S, G = Guard<'m>> {
    set: &'m HashSet<T, S>,
    guard: G,
}

impl<'m, T, S, G: Section> HashSetRef<'m, T, S, G> {
    #[inline(always)]
    pub(crate) fn new(set: &'m HashSet<T, S>, guard: G) -> Self {
        Self { set, guard }
    }

    /// Returns the set.
    pub fn set(&self) -> &'m HashSet<T, S> {
        self.set
    }

    /// Returns the guard, for other sets and maps of the domain.
    pub fn guard(&self) -> &G {
        &self.guard
    }

    /// As [`HashSet::len`].
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// As [`HashSet::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// As [`HashSet::capacity`].
    pub fn capacity(&self) -> usize {
        self.set.capacity(&self.guard)
    }

    /// As [`HashSet::iter`].
    pub fn iter(&self) -> Keys<'_, T, ()> {
        self.set.iter(&self.guard)
    }

    /// As [`HashSet::reserve`].
    pub fn reserve(&self, additional: usize) {
        self.set.reserve(additional, &self.guard);
    }

    /// As [`HashSet::try_reserve`].
    ///
    /// # Errors
    ///
    /// If there is no memory for the table.
    pub fn try_reserve(&self, additional: usize) -> Result<(), TryReserveError> {
        self.set.try_reserve(additional, &self.guard)
    }

    /// As [`HashSet::shrink_to_fit`].
    pub fn shrink_to_fit(&self) {
        self.set.shrink_to_fit(&self.guard);
    }
}

impl<T: Hash + Eq, S: BuildHasher, G: Section> HashSetRef<'_, T, S, G> {
    /// As [`HashSet::contains`].
    #[inline]
    pub fn contains<Q>(&self, value: &Q) -> bool
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        self.set.contains(value, &self.guard)
    }

    /// As [`HashSet::get`].
    #[inline]
    pub fn get<Q>(&self, value: &Q) -> Option<&T>
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        self.set.get(value, &self.guard)
    }
}

impl<T, S, G> HashSetRef<'_, T, S, G>
where
    T: Hash + Eq + Send + 'static,
    S: BuildHasher,
    G: Section,
{
    /// As [`HashSet::insert`].
    pub fn insert(&self, value: T) -> bool {
        self.set.insert(value, &self.guard)
    }

    /// As [`HashSet::replace`].
    pub fn replace(&self, value: T) -> Option<&T> {
        self.set.replace(value, &self.guard)
    }

    /// As [`HashSet::remove`].
    pub fn remove<Q>(&self, value: &Q) -> bool
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        self.set.remove(value, &self.guard)
    }

    /// As [`HashSet::take`].
    pub fn take<Q>(&self, value: &Q) -> Option<&T>
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        self.set.take(value, &self.guard)
    }
}

impl<T: Send + 'static, S, G: Section> HashSetRef<'_, T, S, G> {
    /// As [`HashSet::retain`].
    pub fn retain(&self, keep: impl FnMut(&T) -> bool) {
        self.set.retain(keep, &self.guard);
    }

    /// As [`HashSet::clear`].
    pub fn clear(&self) {
        self.set.clear(&self.guard);
    }
}

impl<T: fmt::Debug, S, G: Section> fmt::Debug for HashSetRef<'_, T, S, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<'g, T, S, G: Section> IntoIterator for &'g HashSetRef<'_, T, S, G> {
    type Item = &'g T;
    type IntoIter = Keys<'g, T, ()>;

    fn into_iter(self) -> Keys<'g, T, ()> {
        self.iter()
    }
}
