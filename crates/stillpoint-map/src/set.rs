//! `HashSet`: a map whose values are empty.

use crate::{
    iter::{IntoIter, Iter, Keys},
    make::make,
    map::{Cursor, DefaultHashBuilder, HashMap, PinnedHashMap},
    outcome::TryReserveError,
    pinned::pinned,
    traits::{extend, show},
};
use equivalent::Equivalent;
use std::{
    fmt,
    hash::{BuildHasher, Hash},
};
use stillpoint::internal::Kept;

/// A hash set that many threads read and change at a time, through a shared reference.
///
/// It is a [`HashMap`] whose values are empty. What that page says of sections and domains,
/// guarantees, costs, user code, signals and forks is true of sets as well.
///
/// ```
/// use stillpoint_map::HashSet;
///
/// let online = HashSet::new();
/// let online = online.pin(); // a section, until it is dropped
/// assert!(online.insert("ada".to_owned()));
/// assert!(!online.insert("ada".to_owned()));
/// assert!(online.contains("ada"));
/// assert!(online.remove("ada") && online.is_empty());
/// ```
///
/// For values that an attacker chooses take another hasher than the default:
/// see [that page](HashMap#keys-that-an-attacker-chooses).
pub struct HashSet<T, S = DefaultHashBuilder> {
    pub(crate) map: HashMap<T, (), S>,
}

make! { HashSet<T; S> in map.store.root, of "values", for example "u32" }

impl<T, S> HashSet<T, S> {
    const fn of(hasher: S, domain: Option<Kept>) -> Self {
        let map = HashMap::of(hasher, domain);
        Self { map }
    }

    /// Returns the set's hasher.
    pub fn hasher(&self) -> &S {
        self.map.hasher()
    }

    /// Visits the next values, at least `count` or those of 16 times as many buckets, in a section
    /// that ends before this returns. Returns whether there may be more. As [`HashMap::scan`].
    pub fn scan(&self, cursor: &mut Cursor, count: usize, mut visit: impl FnMut(&T)) -> bool {
        self.map.scan(cursor, count, |value, ()| visit(value))
    }
}

pinned! {
    /// A [`HashSet`] in a section of its domain, as a [`PinnedHashMap`] is a map in one.
    PinnedHashSet<T, S = DefaultHashBuilder> of HashSet in map.store.root.home, for example "HashSet::<u32>", "[1]"
}

impl<T, S> PinnedHashSet<T, S> {
    #[inline(always)]
    pub(crate) fn entries(&self) -> &PinnedHashMap<T, (), S> {
        // SAFETY: inside a section of the map's domain while this is borrowed.
        unsafe { PinnedHashMap::of(&self.0.map) }
    }

    /// Returns how many values the set may have before its table grows.
    pub fn capacity(&self) -> usize {
        self.entries().capacity()
    }

    /// Visits the values, in no particular order, as [`PinnedHashMap::iter`] does.
    pub fn iter(&self) -> Keys<Iter<'_, T, ()>> {
        self.entries().keys()
    }

    /// Makes the table large enough for `additional` more values. As [`PinnedHashMap::reserve`].
    ///
    /// # Panics
    ///
    /// As there.
    #[track_caller]
    pub fn reserve(&self, additional: usize) {
        self.entries().reserve(additional);
    }

    /// As [`PinnedHashMap::try_reserve`].
    ///
    /// # Errors
    ///
    /// If there is no memory for the table.
    pub fn try_reserve(&self, additional: usize) -> Result<(), TryReserveError> {
        self.entries().try_reserve(additional)
    }

    /// Lets the table shrink to what its values need. As [`PinnedHashMap::shrink_to_fit`].
    pub fn shrink_to_fit(&self) {
        self.entries().shrink_to_fit();
    }
}

impl<T: Hash + Eq, S: BuildHasher> PinnedHashSet<T, S> {
    /// Returns whether the set has a value that is equal to `value`. As [`PinnedHashMap::contains_key`].
    #[inline]
    pub fn contains<Q>(&self, value: &Q) -> bool
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        self.entries().contains_key(value)
    }

    /// Returns the set's value that is equal to `value`. As [`PinnedHashMap::get`].
    #[inline]
    pub fn get<Q>(&self, value: &Q) -> Option<&T>
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        Some(self.entries().get_key_value(value)?.0)
    }

    /// Visits the values that are in this set and not in `other`. Each value is looked for in `other` when the
    /// iterator comes to it, so the result is exact while no thread changes either set; that holds for all
    /// methods that compare two sets.
    ///
    /// ```
    /// use stillpoint_map::HashSet;
    ///
    /// let (a, b) = (HashSet::from([1, 2, 3]), HashSet::from([3, 4]));
    /// let (a, b) = (a.pin(), b.pin());
    /// assert_eq!(a.difference(&b).count(), 2);
    /// assert_eq!(a.intersection(&b).collect::<Vec<_>>(), [&3]);
    /// assert_eq!(a.union(&b).sum::<i32>(), 10);
    /// assert_eq!(a.symmetric_difference(&b).sum::<i32>(), 7);
    /// assert!(!a.is_subset(&b) && !a.is_disjoint(&b));
    /// ```
    pub fn difference<'g>(&'g self, other: &'g Self) -> impl Iterator<Item = &'g T> {
        self.iter().filter(|value| !other.contains(*value))
    }

    /// Visits the values that are in exactly one of the sets. As [`difference`](Self::difference).
    pub fn symmetric_difference<'g>(&'g self, other: &'g Self) -> impl Iterator<Item = &'g T> {
        self.difference(other).chain(other.difference(self))
    }

    /// Visits the values that are in both sets: those of the smaller set. As
    /// [`difference`](Self::difference).
    pub fn intersection<'g>(&'g self, other: &'g Self) -> impl Iterator<Item = &'g T> {
        let (small, large) = self.by_size(other);
        small.iter().filter(|value| large.contains(*value))
    }

    /// Visits the values that are in either set: those of the larger set, and then those that only the
    /// smaller has. As [`difference`](Self::difference).
    pub fn union<'g>(&'g self, other: &'g Self) -> impl Iterator<Item = &'g T> {
        let (small, large) = self.by_size(other);
        large.iter().chain(small.difference(large))
    }

    /// Returns whether no value is in both sets. As [`difference`](Self::difference).
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.intersection(other).next().is_none()
    }

    /// Returns whether all values of this set are in `other`. As [`difference`](Self::difference).
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).next().is_none()
    }

    /// Returns whether all values of `other` are in this set. As [`difference`](Self::difference).
    pub fn is_superset(&self, other: &Self) -> bool {
        other.is_subset(self)
    }

    fn by_size<'g>(&'g self, other: &'g Self) -> (&'g Self, &'g Self) {
        if self.len() <= other.len() {
            (self, other)
        } else {
            (other, self)
        }
    }
}

impl<T: Hash + Eq + Send + 'static, S: BuildHasher> PinnedHashSet<T, S> {
    /// Adds a value, unless the set has an equal one. Returns whether it was added. Costs and
    /// blocks as [`PinnedHashMap::insert`] does.
    pub fn insert(&self, value: T) -> bool {
        self.entries().try_insert_with(value, || ()).is_ok()
    }

    /// Adds a value. Returns the equal one that it has replaced, if there was one.
    pub fn replace(&self, value: T) -> Option<&T> {
        self.entries().insert_entry(value, ()).map(|(old, ())| old)
    }

    /// Removes the value that is equal to `value`. Returns whether there was one. As
    /// [`PinnedHashMap::remove`].
    pub fn remove<Q>(&self, value: &Q) -> bool
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        self.take(value).is_some()
    }

    /// Removes the value that is equal to `value`, and returns it. As [`PinnedHashMap::remove_entry`].
    pub fn take<Q>(&self, value: &Q) -> Option<&T>
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        Some(self.entries().remove_entry(value)?.0)
    }
}

impl<T: Send + 'static, S> PinnedHashSet<T, S> {
    /// Removes the values for which `keep` returns false. As [`PinnedHashMap::retain`].
    pub fn retain(&self, mut keep: impl FnMut(&T) -> bool) {
        self.entries().retain(|value, ()| keep(value));
    }

    /// Removes the values one by one. As [`PinnedHashMap::clear`].
    pub fn clear(&self) {
        self.entries().clear();
    }
}

show! {
    HashSet<T, S> as PinnedHashSet, visits &'g T, by Keys<Iter<'g, T, ()>>, with debug_set of T: fmt::Debug;
}

impl<T: Clone, S: Clone> Clone for HashSet<T, S> {
    /// Clones each value that an iteration visits, into a set of the same domain. As
    /// [`HashMap`]'s `clone`.
    fn clone(&self) -> Self {
        Self {
            map: self.map.clone(),
        }
    }
}

impl<T: Hash + Eq, S: BuildHasher> PartialEq for HashSet<T, S> {
    /// Compares the values that an iteration visits; exact while no thread changes either set.
    fn eq(&self, other: &Self) -> bool {
        self.map == other.map
    }
}

impl<T: Hash + Eq, S: BuildHasher> Eq for HashSet<T, S> {}

extend! {
    HashSet<T, S> of T, |set, value| set.insert(value),
    and of &'a T, |value| *value, where T: Copy;
    made by |values| Self::with_hint(values, S::default()), where S: Default, and of arrays T;
    T: Hash + Eq + Send + 'static,
    S: BuildHasher,
}

impl<T, S> IntoIterator for HashSet<T, S> {
    type Item = T;
    type IntoIter = Keys<IntoIter<T, ()>>;

    fn into_iter(self) -> Keys<IntoIter<T, ()>> {
        self.map.into_keys()
    }
}
