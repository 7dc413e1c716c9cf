//! `HashMap`.

use crate::{
    iter::{IntoIter, Iter, Keys, Values},
    pinned::HashMapRef,
    slot::spread,
    store::{Found, Inserted, NewEntry, Occupied, Store, no_memory},
};
use equivalent::Equivalent;
use std::{
    error::Error,
    fmt,
    hash::{BuildHasher, Hash},
};
use stillpoint::{Domain, Guard, Section};

/// The hasher of maps that are made without one: foldhash, with a seed for each map.
pub type DefaultHashBuilder = foldhash::fast::RandomState;

/// A hash map that many threads read and change at a time.
pub struct HashMap<K, V, S = DefaultHashBuilder> {
    pub(crate) store: Store<K, V>,
    hasher: S,
}

impl<K, V> HashMap<K, V> {
    /// Makes an empty map of the global domain. Does not allocate.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(DefaultHashBuilder::default())
    }

    /// Makes an empty map of `domain`, which it keeps alive. Does not allocate.
    #[must_use]
    pub fn new_in(domain: &Domain) -> Self {
        Self::with_hasher_in(DefaultHashBuilder::default(), domain)
    }

    /// Makes a map with room for so many entries: until it has more, its table does not grow.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self::with_capacity_and_hasher(capacity, DefaultHashBuilder::default())
    }
}

impl<K, V, S> HashMap<K, V, S> {
    /// Makes an empty map of the global domain, with a hasher. Does not allocate.
    #[must_use]
    pub const fn with_hasher(hasher: S) -> Self {
        Self {
            store: Store::new(None),
            hasher,
        }
    }

    /// Makes an empty map of `domain`, which it keeps alive, with a hasher. Does not allocate.
    #[must_use]
    pub fn with_hasher_in(hasher: S, domain: &Domain) -> Self {
        Self {
            store: Store::new(Some(domain.into())),
            hasher,
        }
    }

    /// Makes a map with a hasher, and with room for so many entries: until it has more, its table
    /// does not grow; and it does not shrink to less, except by
    /// [`shrink_to_fit`](Self::shrink_to_fit).
    ///
    /// # Panics
    ///
    /// If there cannot be a table of that size. Without memory, the process ends.
    #[must_use]
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        let map = Self::with_hasher(hasher);
        if capacity > 0 {
            map.store.make_room(capacity, true);
        }
        map
    }

    /// Returns the hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// Returns the domain that the map was made in.
    pub fn domain(&self) -> &Domain {
        self.store.domain()
    }

    /// Begins a section of the map's domain, in which the map is used without naming a guard.
    #[inline]
    pub fn pin(&self) -> HashMapRef<'_, K, V, S> {
        HashMapRef::new(self, self.guard())
    }

    /// Uses the map in a section that has begun already: any guard of its domain, or a reference to
    /// one.
    #[inline]
    #[track_caller]
    pub fn with_guard<G: Section>(&self, guard: G) -> HashMapRef<'_, K, V, S, G> {
        self.store.check(&guard);
        HashMapRef::new(self, guard)
    }

    /// Begins a section of the map's domain.
    #[inline]
    pub fn guard(&self) -> Guard<'_> {
        self.store.read_lock()
    }

    /// Returns how many entries the map has: exact while no thread changes it.
    #[inline]
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many entries the map may have before its table grows.
    #[track_caller]
    pub fn capacity(&self, guard: &impl Section) -> usize {
        self.store.capacity(guard)
    }

    /// Visits all entries, in no particular order.
    #[track_caller]
    pub fn iter<'g>(&'g self, guard: &'g impl Section) -> Iter<'g, K, V> {
        Iter(self.store.iter(guard))
    }

    /// Visits all keys.
    #[track_caller]
    pub fn keys<'g>(&'g self, guard: &'g impl Section) -> Keys<'g, K, V> {
        Keys(self.iter(guard))
    }

    /// Visits all values.
    #[track_caller]
    pub fn values<'g>(&'g self, guard: &'g impl Section) -> Values<'g, K, V> {
        Values(self.iter(guard))
    }

    /// Visits at least `count` further entries, if there are so many, in a section of its own.
    /// Returns whether there may be more.
    pub fn scan(&self, cursor: &mut Cursor, count: usize, mut visit: impl FnMut(&K, &V)) -> bool {
        let guard = self.guard();
        let mut entries = self.store.iter_from(cursor.0, &guard);
        let mut visited = 0;
        while cursor.0.is_some() && visited < count.max(1) {
            for entry in entries.next_home() {
                visit(&entry.get().key, &entry.get().value);
                visited += 1;
            }
            cursor.0 = entries.position();
        }
        cursor.0.is_some()
    }
}

/// A position in a map, which stays good while the map changes: see [`HashMap::scan`].
#[derive(Clone, Debug)]
pub struct Cursor(Option<u64>);

impl Cursor {
    /// The position before the first entry.
    #[must_use]
    pub const fn start() -> Self {
        Self(Some(0))
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::start()
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> HashMap<K, V, S> {
    #[inline(always)]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        spread(self.hasher.hash_one(key))
    }

    #[inline(always)]
    #[track_caller]
    fn find<'g, Q>(&'g self, key: &Q, guard: &'g impl Section) -> Option<Found<'g, K, V>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.store
            .find(self.hash(key), guard, |other| key.equivalent(other))
    }

    /// Returns the value of a key.
    #[inline]
    #[track_caller]
    pub fn get<'g, Q>(&'g self, key: &Q, guard: &'g impl Section) -> Option<&'g V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        Some(&self.find(key, guard)?.get().value)
    }

    /// Returns the entry of a key.
    #[inline]
    #[track_caller]
    pub fn get_key_value<'g, Q>(
        &'g self,
        key: &Q,
        guard: &'g impl Section,
    ) -> Option<(&'g K, &'g V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        Some(self.find(key, guard)?.get().pair())
    }

    /// Returns whether there is an entry with a key.
    #[inline]
    #[track_caller]
    pub fn contains_key<Q>(&self, key: &Q, guard: &impl Section) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.find(key, guard).is_some()
    }
}

impl<K: Hash + Eq + Send + 'static, V: Send + 'static, S: BuildHasher> HashMap<K, V, S> {
    #[track_caller]
    fn put<'g>(
        &'g self,
        key: K,
        value: V,
        replace: bool,
        guard: &'g impl Section,
    ) -> Result<Inserted<'g, K, V>, Occupied<'g, K, V>> {
        self.store.check(guard);
        let new = NewEntry::new(self.hash(&key), key, value);
        self.store
            .insert(new, replace, guard, |other, key| other == key)
    }

    /// Inserts an entry. Returns the value that it has replaced, if there was one with that key.
    #[track_caller]
    pub fn insert<'g>(&'g self, key: K, value: V, guard: &'g impl Section) -> Option<&'g V> {
        let inserted = self.put(key, value, true, guard);
        let old = inserted.ok().expect("it replaces").old?;
        Some(&old.get().value)
    }

    /// Inserts an entry, unless there is one with that key. Returns the new value.
    ///
    /// # Errors
    ///
    /// The value that is there, and the one that was not inserted.
    #[track_caller]
    pub fn try_insert<'g>(
        &'g self,
        key: K,
        value: V,
        guard: &'g impl Section,
    ) -> Result<&'g V, OccupiedError<'g, V>> {
        match self.put(key, value, false, guard) {
            Ok(inserted) => Ok(&inserted.new.get().value),
            Err(occupied) => Err(OccupiedError {
                current: &occupied.old.get().value,
                not_inserted: occupied.new.into_entry().value,
            }),
        }
    }

    /// Returns the value of a key, which is `value` if there was none.
    #[track_caller]
    pub fn get_or_insert<'g>(&'g self, key: K, value: V, guard: &'g impl Section) -> &'g V {
        self.try_insert(key, value, guard)
            .unwrap_or_else(|occupied| occupied.current)
    }

    /// Returns the value of a key, made by `make` if there was none.
    #[track_caller]
    pub fn get_or_insert_with<'g>(
        &'g self,
        key: K,
        make: impl FnOnce() -> V,
        guard: &'g impl Section,
    ) -> &'g V {
        match self.find(&key, guard) {
            Some(found) => &found.get().value,
            None => self.get_or_insert(key, make(), guard),
        }
    }

    /// Replaces the value of a key by what `update` makes of it. Returns the new value, or `None`
    /// if there is no such key.
    #[track_caller]
    pub fn update<'g>(
        &'g self,
        key: K,
        mut update: impl FnMut(&V) -> V,
        guard: &'g impl Section,
    ) -> Option<&'g V> {
        let operation = |entry: Option<(&K, &V)>| match entry {
            Some((_, value)) => Operation::Insert(update(value)),
            None => Operation::Abort(()),
        };
        match self.compute(key, operation, guard) {
            Compute::Updated {
                new: (_, value), ..
            } => Some(value),
            _ => None,
        }
    }

    /// Replaces the value of a key by what `update` makes of it, or inserts `value`. Returns the
    /// new value.
    #[track_caller]
    pub fn update_or_insert_with<'g>(
        &'g self,
        key: K,
        mut update: impl FnMut(&V) -> V,
        mut make: impl FnMut() -> V,
        guard: &'g impl Section,
    ) -> &'g V {
        let operation = |entry: Option<(&K, &V)>| match entry {
            Some((_, value)) => Operation::Insert(update(value)),
            None => Operation::<V, std::convert::Infallible>::Insert(make()),
        };
        match self.compute(key, operation, guard) {
            Compute::Updated {
                new: (_, value), ..
            }
            | Compute::Inserted(_, value) => value,
            Compute::Removed(..) => unreachable!("it always inserts"),
            Compute::Aborted(never) => match never {},
        }
    }

    /// Inserts, replaces, removes or leaves an entry, as `compute` says, which gets the present one.
    #[track_caller]
    pub fn compute<'g, T>(
        &'g self,
        key: K,
        mut compute: impl FnMut(Option<(&'g K, &'g V)>) -> Operation<V, T>,
        guard: &'g impl Section,
    ) -> Compute<'g, K, V, T> {
        self.store.check(guard);
        let hash = self.hash(&key);
        let mut key = key;
        loop {
            let found = self.store.find(hash, guard, |other| *other == key);
            let value = match compute(found.map(|found| found.get().pair())) {
                Operation::Insert(value) => value,
                Operation::Remove => match found {
                    Some(found) if !self.store.remove(found, guard) => continue,
                    Some(found) => {
                        let (key, value) = found.get().pair();
                        return Compute::Removed(key, value);
                    }
                    None => panic!(
                        "`Operation::Remove` for a key that is not there: return `Abort` for `None`"
                    ),
                },
                Operation::Abort(with) => return Compute::Aborted(with),
            };
            let new = NewEntry::new(hash, key, value);
            let refused = match found {
                Some(old) => match self.store.replace(old, new, guard) {
                    Ok(new) => {
                        return Compute::Updated {
                            old: old.get().pair(),
                            new: new.get().pair(),
                        };
                    }
                    Err(refused) => refused,
                },
                None => match self
                    .store
                    .insert(new, false, guard, |other, key| other == key)
                {
                    Ok(inserted) => {
                        let (key, value) = inserted.new.get().pair();
                        return Compute::Inserted(key, value);
                    }
                    Err(occupied) => occupied.new,
                },
            };
            key = refused.into_entry().key;
        }
    }

    /// Removes an entry, and returns its value.
    #[track_caller]
    pub fn remove<'g, Q>(&'g self, key: &Q, guard: &'g impl Section) -> Option<&'g V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        Some(self.remove_entry(key, guard)?.1)
    }

    /// Removes an entry, and returns it.
    #[track_caller]
    pub fn remove_entry<'g, Q>(&'g self, key: &Q, guard: &'g impl Section) -> Option<(&'g K, &'g V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.remove_if(key, |_, _| true, guard).ok()?
    }

    /// Removes an entry if `condition` is true of it, and returns it.
    ///
    /// # Errors
    ///
    /// The entry, if the condition was false.
    #[track_caller]
    pub fn remove_if<'g, Q>(
        &'g self,
        key: &Q,
        mut condition: impl FnMut(&K, &V) -> bool,
        guard: &'g impl Section,
    ) -> Result<Option<(&'g K, &'g V)>, (&'g K, &'g V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.store.check(guard);
        let hash = self.hash(key);
        loop {
            let Some(found) = self.store.find(hash, guard, |other| key.equivalent(other)) else {
                return Ok(None);
            };
            let (key, value) = found.get().pair();
            if !condition(key, value) {
                return Err((key, value));
            }
            if self.store.remove(found, guard) {
                return Ok(Some((key, value)));
            }
        }
    }

    /// Removes the entries for which `keep` is false.
    #[track_caller]
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool, guard: &impl Section) {
        for entry in self.store.iter(guard) {
            let (key, value) = entry.get().pair();
            if !keep(key, value) {
                self.store.remove(entry, guard);
            }
        }
    }

    /// Removes all entries.
    #[track_caller]
    pub fn clear(&self, guard: &impl Section) {
        self.retain(|_, _| false, guard);
    }

    /// Makes room for so many more entries.
    #[track_caller]
    pub fn reserve(&self, additional: usize, guard: &impl Section) {
        if self.try_reserve(additional, guard).is_err() {
            no_memory();
        }
    }

    /// Makes room for so many more entries.
    ///
    /// # Errors
    ///
    /// Without memory for the table.
    #[track_caller]
    pub fn try_reserve(
        &self,
        additional: usize,
        guard: &impl Section,
    ) -> Result<(), TryReserveError> {
        if self.store.reserve(additional, guard) {
            Ok(())
        } else {
            Err(TryReserveError { additional })
        }
    }

    /// Lets the table shrink to what its entries need.
    #[track_caller]
    pub fn shrink_to_fit(&self, guard: &impl Section) {
        self.store.shrink_to_fit(guard);
    }
}

/// What [`HashMap::compute`] is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<V, T> {
    /// Insert this value, or replace the present one by it.
    Insert(V),
    /// Remove the entry.
    Remove,
    /// Leave the map as it is, and return this.
    Abort(T),
}

/// What [`HashMap::compute`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compute<'g, K, V, T> {
    /// It has inserted this entry.
    Inserted(&'g K, &'g V),
    /// It has replaced an entry.
    Updated {
        /// The entry that was replaced.
        old: (&'g K, &'g V),
        /// The one that has replaced it.
        new: (&'g K, &'g V),
    },
    /// It has removed this entry.
    Removed(&'g K, &'g V),
    /// It has done nothing.
    Aborted(T),
}

/// There is a value for the key already: the error of [`HashMap::try_insert`].
#[derive(Debug, PartialEq, Eq)]
pub struct OccupiedError<'g, V> {
    /// The value that is there.
    pub current: &'g V,
    /// The value that was not inserted.
    pub not_inserted: V,
}

impl<V> fmt::Display for OccupiedError<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key is in the map already")
    }
}

impl<V: fmt::Debug> Error for OccupiedError<'_, V> {}

/// There is no memory for the table: the error of [`HashMap::try_reserve`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TryReserveError {
    additional: usize,
}

impl fmt::Display for TryReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let additional = self.additional;
        write!(
            f,
            "no memory for a table with room for {additional} more entries"
        )
    }
}

impl Error for TryReserveError {}

impl<K, V, S: Default> Default for HashMap<K, V, S> {
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
    /// Clones each entry that is visited, into a map of the same domain.
    fn clone(&self) -> Self {
        let clone = Self {
            store: self.store.new_alike(),
            hasher: self.hasher.clone(),
        };
        let entries = self.len();
        if entries > 0 {
            clone.store.make_room(entries, false);
        }
        let (from, to) = (self.guard(), clone.guard());
        for (key, value) in self.iter(&from) {
            clone.insert(key.clone(), value.clone(), &to);
        }
        drop(to);
        clone
    }
}

impl<K, V, S> PartialEq for HashMap<K, V, S>
where
    K: Hash + Eq,
    V: PartialEq,
    S: BuildHasher,
{
    /// Compares the entries that are visited; exact while no thread changes either map.
    fn eq(&self, other: &Self) -> bool {
        let (here, there) = (self.guard(), other.guard());
        self.len() == other.len()
            && self
                .iter(&here)
                .all(|(key, value)| other.get(key, &there) == Some(value))
    }
}

impl<K: Hash + Eq, V: Eq, S: BuildHasher> Eq for HashMap<K, V, S> {}

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

impl<K, V, S> Extend<(K, V)> for &HashMap<K, V, S>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            // A section each, because the iterator may take its time.
            self.insert(key, value, &self.guard());
        }
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
