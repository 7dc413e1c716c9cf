//! `HashSet`: a map whose values are empty.

use crate::{
    iter::{IntoKeys, Keys},
    map::{Cursor, DefaultHashBuilder, HashMap},
    outcome::TryReserveError,
    pinned_set::HashSetRef,
};
use equivalent::Equivalent;
use std::{
    fmt,
    hash::{BuildHasher, Hash},
};
use stillpoint::{Domain, Guard, Section};

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

impl<T> HashSet<T> {
    /// Makes an empty set of the global domain. Does not allocate.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(DefaultHashBuilder::default())
    }

    /// Makes an empty set of `domain`, which it keeps alive. Does not allocate.
    #[must_use]
    pub fn new_in(domain: &Domain) -> Self {
        Self::with_hasher_in(DefaultHashBuilder::default(), domain)
    }

    /// Makes a set of `domain` with capacity for `capacity` values, as
    /// [`HashMap::with_capacity_in`] does.
    #[must_use]
    #[track_caller]
    pub fn with_capacity_in(capacity: usize, domain: &Domain) -> Self {
        Self::with_capacity_and_hasher_in(capacity, DefaultHashBuilder::default(), domain)
    }

    /// Makes a set with capacity for `capacity` values, as [`HashMap::with_capacity`] does.
    #[must_use]
    #[track_caller]
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, DefaultHashBuilder::default())
    }
}

impl<T, S> HashSet<T, S> {
    /// Makes an empty set of the global domain, with a hasher. Does not allocate.
    #[must_use]
    pub const fn with_hasher(hasher: S) -> Self {
        Self {
            map: HashMap::with_hasher(hasher),
        }
    }

    /// Makes an empty set of `domain`, which it keeps alive, with a hasher. Does not allocate.
    #[must_use]
    pub fn with_hasher_in(hasher: S, domain: &Domain) -> Self {
        Self {
            map: HashMap::with_hasher_in(hasher, domain),
        }
    }

    /// Makes a set with a hasher, and with capacity for `capacity` values, as
    /// [`HashMap::with_capacity_and_hasher`] does.
    #[must_use]
    #[track_caller]
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        Self {
            map: HashMap::with_capacity_and_hasher(capacity, hasher),
        }
    }

    /// Makes a set of `domain` with a hasher and capacity for `capacity` values, as
    /// [`HashMap::with_capacity_and_hasher_in`] does.
    #[must_use]
    #[track_caller]
    pub fn with_capacity_and_hasher_in(capacity: usize, hasher: S, domain: &Domain) -> Self {
        Self {
            map: HashMap::with_capacity_and_hasher_in(capacity, hasher, domain),
        }
    }

    /// Returns the set's hasher.
    pub fn hasher(&self) -> &S {
        self.map.hasher()
    }

    /// Returns the domain that the set was made in.
    pub fn domain(&self) -> &Domain {
        self.map.domain()
    }

    /// Begins a section of the set's domain, and returns the set in it.
    #[inline]
    pub fn pin(&self) -> HashSetRef<'_, T, S> {
        HashSetRef::new(self, self.guard())
    }

    /// Returns the set in a section that has begun already, as [`HashMap::with_guard`] does.
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
    #[inline]
    #[track_caller]
    pub fn with_guard<G: Section>(&self, guard: G) -> HashSetRef<'_, T, S, G> {
        self.map.store.check(&guard);
        HashSetRef::new(self, guard)
    }

    /// Begins a section of the set's domain.
    #[inline]
    pub fn guard(&self) -> Guard<'_> {
        self.map.guard()
    }

    /// Returns how many values the set has. Exact while no thread changes the set.
    #[inline]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns whether the set has no values, as [`len`](Self::len) counts them.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Visits the next values, at least `count` or those of 16 times as many buckets, in a section
    /// that ends before this returns. Returns whether there may be more. As [`HashMap::scan`].
    pub fn scan(&self, cursor: &mut Cursor, count: usize, mut visit: impl FnMut(&T)) -> bool {
        self.map.scan(cursor, count, |value, ()| visit(value))
    }

    /// Returns how many values the set may have before its table grows.
    ///
    /// # Panics
    ///
    /// This and all methods below that take a guard: if it is of another domain.
    #[track_caller]
    pub fn capacity(&self, guard: &impl Section) -> usize {
        self.map.capacity(guard)
    }

    /// Visits the values, in no particular order, as [`HashMap::iter`] does.
    #[track_caller]
    pub fn iter<'g>(&'g self, guard: &'g impl Section) -> Keys<'g, T, ()> {
        self.map.keys(guard)
    }

    /// Makes the table large enough for `additional` more values. As [`HashMap::reserve`].
    #[track_caller]
    pub fn reserve(&self, additional: usize, guard: &impl Section) {
        self.map.reserve(additional, guard);
    }

    /// As [`HashMap::try_reserve`].
    ///
    /// # Errors
    ///
    /// If there is no memory for the table.
    #[track_caller]
    pub fn try_reserve(
        &self,
        additional: usize,
        guard: &impl Section,
    ) -> Result<(), TryReserveError> {
        self.map.try_reserve(additional, guard)
    }

    /// Lets the table shrink to what its values need. As [`HashMap::shrink_to_fit`].
    #[track_caller]
    pub fn shrink_to_fit(&self, guard: &impl Section) {
        self.map.shrink_to_fit(guard);
    }
}

impl<T: Hash + Eq, S: BuildHasher> HashSet<T, S> {
    /// Returns whether the set has a value that is equal to `value`. As [`HashMap::contains_key`].
    #[inline]
    #[track_caller]
    pub fn contains<Q>(&self, value: &Q, guard: &impl Section) -> bool
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        self.map.contains_key(value, guard)
    }

    /// Returns the set's value that is equal to `value`. As [`HashMap::get`].
    #[inline]
    #[track_caller]
    pub fn get<'g, Q>(&'g self, value: &Q, guard: &'g impl Section) -> Option<&'g T>
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        Some(self.map.get_key_value(value, guard)?.0)
    }
}

impl<T: Hash + Eq + Send + 'static, S: BuildHasher> HashSet<T, S> {
    /// Adds a value, unless the set has an equal one. Returns whether it was added. Costs and
    /// blocks as [`HashMap::insert`] does.
    #[track_caller]
    pub fn insert(&self, value: T, guard: &impl Section) -> bool {
        self.map.try_insert_with(value, || (), guard).is_ok()
    }

    /// Adds a value. Returns the equal one that it has replaced, if there was one.
    #[track_caller]
    pub fn replace<'g>(&'g self, value: T, guard: &'g impl Section) -> Option<&'g T> {
        self.map.insert_entry(value, (), guard).map(|(old, ())| old)
    }

    /// Removes the value that is equal to `value`. Returns whether there was one. As
    /// [`HashMap::remove`].
    #[track_caller]
    pub fn remove<Q>(&self, value: &Q, guard: &impl Section) -> bool
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        self.take(value, guard).is_some()
    }

    /// Removes the value that is equal to `value`, and returns it. As [`HashMap::remove_entry`].
    #[track_caller]
    pub fn take<'g, Q>(&'g self, value: &Q, guard: &'g impl Section) -> Option<&'g T>
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        Some(self.map.remove_entry(value, guard)?.0)
    }
}

impl<T: Send + 'static, S> HashSet<T, S> {
    /// Removes the values for which `keep` returns false. As [`HashMap::retain`].
    #[track_caller]
    pub fn retain(&self, mut keep: impl FnMut(&T) -> bool, guard: &impl Section) {
        self.map.retain(|value, ()| keep(value), guard);
    }

    /// Removes the values one by one. As [`HashMap::clear`].
    #[track_caller]
    pub fn clear(&self, guard: &impl Section) {
        self.map.clear(guard);
    }
}

impl<T, S: Default> Default for HashSet<T, S> {
    /// Makes an empty set of the global domain. Does not allocate.
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

impl<T: fmt::Debug, S> fmt::Debug for HashSet<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter(&self.guard())).finish()
    }
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

impl<T, S> Extend<T> for HashSet<T, S>
where
    T: Hash + Eq + Send + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        (&*self).extend(values);
    }
}

impl<T, S> Extend<T> for &HashSet<T, S>
where
    T: Hash + Eq + Send + 'static,
    S: BuildHasher,
{
    /// Adds the values, each in a section of its own, because the iterator may take its time.
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        for value in values {
            self.insert(value, &self.guard());
        }
    }
}

impl<'a, T, S> Extend<&'a T> for HashSet<T, S>
where
    T: Hash + Eq + Copy + Send + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, values: I) {
        (&*self).extend(values);
    }
}

impl<'a, T, S> Extend<&'a T> for &HashSet<T, S>
where
    T: Hash + Eq + Copy + Send + 'static,
    S: BuildHasher,
{
    /// Adds copies of the values.
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, values: I) {
        self.extend(values.into_iter().copied());
    }
}

impl<T, S> FromIterator<T> for HashSet<T, S>
where
    T: Hash + Eq + Send + 'static,
    S: BuildHasher + Default,
{
    /// Adds the values to a set of the global domain. As [`HashMap`]'s `from_iter`.
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let values = values.into_iter();
        let map = HashMap::with_hint(values.size_hint().0, S::default());
        let mut set = Self { map };
        set.extend(values);
        set
    }
}

impl<T: Hash + Eq + Send + 'static, const N: usize> From<[T; N]> for HashSet<T> {
    fn from(values: [T; N]) -> Self {
        Self::from_iter(values)
    }
}

impl<T, S> IntoIterator for HashSet<T, S> {
    type Item = T;
    type IntoIter = IntoKeys<T, ()>;

    fn into_iter(self) -> IntoKeys<T, ()> {
        self.map.into_keys()
    }
}
