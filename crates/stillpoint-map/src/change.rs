//! The methods of `HashMap` that change it.

use crate::{
    map::HashMap,
    outcome::{Compute, OccupiedError, Operation, TryReserveError},
    store::{Inserted, Occupied, no_room},
};
use equivalent::Equivalent;
use std::{
    convert::Infallible,
    hash::{BuildHasher, Hash},
};
use stillpoint::Section;

impl<K, V, S> HashMap<K, V, S> {
    /// Makes the table large enough for `additional` more entries, and keeps it so, as
    /// [`with_capacity_and_hasher`](Self::with_capacity_and_hasher) does.
    ///
    /// Does not wait for that: a map that has a table already moves to the larger one as it does when
    /// it grows, by inserts, removals and the domain's service thread. That takes memory and time for the
    /// entries that there are, not for the capacity.
    ///
    /// # Panics
    ///
    /// If the guard is of another domain, or no table can be so large: "capacity overflow". Without memory
    /// for the table the process ends.
    #[track_caller]
    pub fn reserve(&self, additional: usize, guard: &impl Section) {
        if self.try_reserve(additional, guard).is_err() {
            no_room(self.store.layout_for(additional));
        }
    }

    /// Makes the table large enough for `additional` more entries, as [`reserve`](Self::reserve)
    /// does.
    ///
    /// # Errors
    ///
    /// If no table can be so large, or the system refuses the memory. It refuses a table that is larger than
    /// all of its memory and swap, unless it is set to overcommit always (`vm.overcommit_memory=1`); of
    /// what it grants it gives each page when that is used. The map stays as it is.
    ///
    /// ```
    /// let map: stillpoint_map::HashMap<u64, u64> = stillpoint_map::HashMap::new();
    /// assert!(map.pin().try_reserve(usize::MAX).is_err());
    /// map.pin().try_reserve(1000).unwrap();
    /// assert!(map.pin().capacity() >= 1000);
    /// ```
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
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

    /// Lets the table shrink to what its entries need, below what the map was made with or has
    /// reserved. Does not wait for that.
    ///
    /// A map that holds fewer entries than it did shrinks without this.
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
    #[track_caller]
    pub fn shrink_to_fit(&self, guard: &impl Section) {
        self.store.shrink_to_fit(guard);
    }
}

impl<K: Send + 'static, V: Send + 'static, S> HashMap<K, V, S> {
    /// Removes the entries for which `keep` returns false, as it visits them
    /// ([`iter`](Self::iter)).
    ///
    /// It is the entry that `keep` has seen that is removed: one that another thread replaces in
    /// between stays. Removed entries are freed after the section, so clear a large map in steps
    /// ([`scan`](Self::scan)), or use several sections.
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
    #[track_caller]
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool, guard: &impl Section) {
        for entry in self.store.iter(guard) {
            let (key, value) = entry.get().pair();
            if !keep(key, value) {
                self.store.remove(entry, guard);
            }
        }
    }

    /// Removes the entries one by one, as [`retain`](Self::retain) does. What other threads insert
    /// or replace meanwhile may stay.
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
    #[track_caller]
    pub fn clear(&self, guard: &impl Section) {
        self.retain(|_, _| false, guard);
    }
}

impl<K: Hash + Eq + Send + 'static, V: Send + 'static, S: BuildHasher> HashMap<K, V, S> {
    /// Puts an entry of a key with that hash in.
    ///
    /// # Safety
    ///
    /// The guard is of the map's domain.
    #[inline(always)]
    #[track_caller]
    unsafe fn put<'g>(
        &'g self,
        hash: u64,
        key: K,
        value: V,
        replace: bool,
        guard: &'g impl Section,
    ) -> Result<Inserted<'g, K, V>, Occupied<'g, K, V>> {
        let is_same = |other: &K, key: &K| other == key;
        // SAFETY: the caller's promise.
        unsafe { self.store.put(hash, key, value, replace, guard, is_same) }
    }

    #[inline(always)]
    #[track_caller]
    fn hash_and_put<'g>(
        &'g self,
        key: K,
        value: V,
        replace: bool,
        guard: &'g impl Section,
    ) -> Result<Inserted<'g, K, V>, Occupied<'g, K, V>> {
        // Before `Hash` runs, and anything is allocated.
        self.store.check(guard);
        let hash = self.hash(&key);
        // SAFETY: checked just now.
        unsafe { self.put(hash, key, value, replace, guard) }
    }

    /// Inserts an entry. Returns the value that it has replaced, if there was one with that key.
    ///
    /// The old value stays valid for the section, and is then dropped. The old key is replaced,
    /// too. Allocates at most once; does not block, but for a lock of the bucket, which other threads
    /// hold for nanoseconds. If the domain has used up its memory budget, the end of the section may
    /// wait, for a bounded time. Not async-signal-safe.
    ///
    /// ```
    /// let map = stillpoint_map::HashMap::new();
    /// let map = map.pin();
    /// assert_eq!(map.insert("a", 1), None);
    /// assert_eq!(map.insert("a", 2), Some(&1));
    /// assert_eq!(map.get("a"), Some(&2));
    /// ```
    ///
    /// # Panics
    ///
    /// If the guard is of another domain, or the allocator returns addresses of more than 48 bits.
    #[track_caller]
    pub fn insert<'g>(&'g self, key: K, value: V, guard: &'g impl Section) -> Option<&'g V> {
        Some(self.insert_entry(key, value, guard)?.1)
    }

    /// Inserts an entry. Returns the entry that it has replaced, if there was one with that key.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn insert_entry<'g>(
        &'g self,
        key: K,
        value: V,
        guard: &'g impl Section,
    ) -> Option<(&'g K, &'g V)> {
        let inserted = self.hash_and_put(key, value, true, guard);
        let old = inserted.ok().expect("it replaces").old?;
        Some(old.get().pair())
    }

    /// Inserts an entry, unless there is one with that key. Returns the new value. Otherwise as
    /// [`insert`](Self::insert).
    ///
    /// # Errors
    ///
    /// The value that is in the map, and the one that was not inserted.
    ///
    /// ```
    /// let map = stillpoint_map::HashMap::new();
    /// let map = map.pin();
    /// assert_eq!(map.try_insert("a", 1), Ok(&1));
    /// let error = map.try_insert("a", 2).unwrap_err();
    /// assert_eq!((error.current, error.not_inserted), (&1, 2));
    /// ```
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    #[track_caller]
    pub fn try_insert<'g>(
        &'g self,
        key: K,
        value: V,
        guard: &'g impl Section,
    ) -> Result<&'g V, OccupiedError<'g, V>> {
        match self.hash_and_put(key, value, false, guard) {
            Ok(inserted) => Ok(&inserted.new.get().value),
            Err(occupied) => Err(OccupiedError {
                current: &occupied.old.get().value,
                not_inserted: occupied.new.into_entry().value,
            }),
        }
    }

    /// Inserts an entry with the value that `make` returns, unless there is one with that key.
    /// Returns the new value. Otherwise as [`insert`](Self::insert).
    ///
    /// `make` is not called if the key is found at once. If another thread inserts it meanwhile,
    /// what `make` has returned is dropped.
    ///
    /// # Errors
    ///
    /// The value that is in the map.
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    #[track_caller]
    pub fn try_insert_with<'g>(
        &'g self,
        key: K,
        make: impl FnOnce() -> V,
        guard: &'g impl Section,
    ) -> Result<&'g V, &'g V> {
        self.store.check(guard);
        let hash = self.hash(&key);
        if let Some(found) = self.find(hash, &key, guard) {
            return Err(&found.get().value);
        }
        // SAFETY: checked above.
        match unsafe { self.put(hash, key, make(), false, guard) } {
            Ok(inserted) => Ok(&inserted.new.get().value),
            Err(occupied) => Err(&occupied.old.get().value),
        }
    }

    /// Returns the value of a key, which is `value` if there was none. Otherwise as
    /// [`insert`](Self::insert).
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    #[track_caller]
    pub fn get_or_insert<'g>(&'g self, key: K, value: V, guard: &'g impl Section) -> &'g V {
        self.get_or_insert_with(key, || value, guard)
    }

    /// Returns the value of a key, made by `make` if there was none. Otherwise as
    /// [`try_insert_with`](Self::try_insert_with).
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    #[track_caller]
    pub fn get_or_insert_with<'g>(
        &'g self,
        key: K,
        make: impl FnOnce() -> V,
        guard: &'g impl Section,
    ) -> &'g V {
        self.try_insert_with(key, make, guard)
            .unwrap_or_else(|current| current)
    }

    /// Replaces the value of a key by what `update` makes of it. Returns the new value, or `None`
    /// if there is no such key. Otherwise as [`insert`](Self::insert).
    ///
    /// `update` is called again if another thread has changed the entry meanwhile.
    ///
    /// ```
    /// let map = stillpoint_map::HashMap::from([("a", 1)]);
    /// let map = map.pin();
    /// assert_eq!(map.update("a", |number| number + 1), Some(&2));
    /// assert_eq!(map.update("b", |number| number + 1), None);
    /// ```
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
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
    /// new value. Otherwise as [`update`](Self::update).
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    #[track_caller]
    pub fn update_or_insert<'g>(
        &'g self,
        key: K,
        update: impl FnMut(&V) -> V,
        value: V,
        guard: &'g impl Section,
    ) -> &'g V {
        self.update_or_insert_with(key, update, || value, guard)
    }

    /// Replaces the value of a key by what `update` makes of it, or inserts what `make` returns.
    /// Returns the new value. Otherwise as [`update`](Self::update).
    ///
    /// ```
    /// let words = stillpoint_map::HashMap::new();
    /// for word in ["to", "be", "or", "not", "to", "be"] {
    ///     words.pin().update_or_insert_with(word, |count| count + 1, || 1);
    /// }
    /// assert_eq!(words.pin().get("be"), Some(&2));
    /// ```
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    #[track_caller]
    pub fn update_or_insert_with<'g>(
        &'g self,
        key: K,
        mut update: impl FnMut(&V) -> V,
        make: impl FnOnce() -> V,
        guard: &'g impl Section,
    ) -> &'g V {
        let (mut make, mut made) = (Some(make), None);
        let operation = |entry: Option<(&K, &V)>, refused: Option<V>| {
            // `make` runs once: what it has made is kept until it is inserted.
            made = refused.or(made.take());
            Operation::<V, Infallible>::Insert(match entry {
                Some((_, value)) => update(value),
                None => made
                    .take()
                    .or_else(|| make.take().map(|make| make()))
                    .expect("what was made and not inserted is refused"),
            })
        };
        match self.compute_again(key, operation, guard) {
            Compute::Updated {
                new: (_, value), ..
            }
            | Compute::Inserted(_, value) => value,
            Compute::Removed(..) => unreachable!("it always inserts"),
            Compute::Aborted(never) => match never {},
        }
    }

    /// Inserts, replaces, removes or leaves the entry of a key, as `compute` says, which gets the
    /// present one. Returns what it has done. Otherwise as [`insert`](Self::insert).
    ///
    /// All of it is one atomic operation: `compute` is called again if another thread has changed
    /// the entry meanwhile.
    ///
    /// ```
    /// use stillpoint_map::{Compute, HashMap, Operation};
    ///
    /// let stock = HashMap::from([("apple", 1)]);
    /// let stock = stock.pin();
    /// let take = |entry: Option<(&&str, &u32)>| match entry {
    ///     None => Operation::Abort("sold out"),
    ///     Some((_, 1)) => Operation::Remove,
    ///     Some((_, number)) => Operation::Insert(number - 1),
    /// };
    /// assert_eq!(stock.compute("apple", take), Compute::Removed(&"apple", &1));
    /// assert_eq!(stock.compute("apple", take), Compute::Aborted("sold out"));
    /// ```
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert), and if `compute` returns [`Operation::Remove`] for `None`.
    #[track_caller]
    pub fn compute<'g, T>(
        &'g self,
        key: K,
        mut compute: impl FnMut(Option<(&'g K, &'g V)>) -> Operation<V, T>,
        guard: &'g impl Section,
    ) -> Compute<'g, K, V, T> {
        self.compute_again(key, |entry, _| compute(entry), guard)
    }

    /// [`compute`](Self::compute), whose closure also gets the value whose insertion was refused
    /// since the last call, because another thread had inserted the key.
    #[track_caller]
    fn compute_again<'g, T>(
        &'g self,
        mut key: K,
        mut compute: impl FnMut(Option<(&'g K, &'g V)>, Option<V>) -> Operation<V, T>,
        guard: &'g impl Section,
    ) -> Compute<'g, K, V, T> {
        self.store.check(guard);
        let hash = self.hash(&key);
        let mut not_inserted = None;
        loop {
            let found = self.find(hash, &key, guard);
            let pair = found.map(|found| found.get().pair());
            match (compute(pair, not_inserted.take()), found) {
                (Operation::Abort(with), _) => return Compute::Aborted(with),
                (Operation::Remove, None) => panic!(
                    "`Operation::Remove` for a key that is not there: return `Abort` for `None`"
                ),
                (Operation::Remove, Some(found)) => {
                    if self.store.remove(found, guard) {
                        let (key, value) = found.get().pair();
                        return Compute::Removed(key, value);
                    }
                }
                (Operation::Insert(value), Some(old)) => {
                    match self.store.replace(
                        old,
                        self.store.new_entry(hash, key, value, guard),
                        guard,
                    ) {
                        Ok(new) => {
                            return Compute::Updated {
                                old: old.get().pair(),
                                new: new.get().pair(),
                            };
                        }
                        Err(refused) => key = refused.into_entry().key,
                    }
                }
                (Operation::Insert(value), None) => {
                    // SAFETY: checked above.
                    match unsafe { self.put(hash, key, value, false, guard) } {
                        Ok(inserted) => {
                            let (key, value) = inserted.new.get().pair();
                            return Compute::Inserted(key, value);
                        }
                        Err(occupied) => {
                            let refused = occupied.new.into_entry();
                            (key, not_inserted) = (refused.key, Some(refused.value));
                        }
                    }
                }
            }
        }
    }

    /// Removes an entry, and returns its value.
    ///
    /// The value stays valid for the section, and is then dropped, on the domain's service thread.
    /// Does not block, but for a lock of the bucket; not async-signal-safe.
    ///
    /// ```
    /// let map = stillpoint_map::HashMap::from([("a".to_owned(), 1)]);
    /// let map = map.pin();
    /// assert_eq!(map.remove("a"), Some(&1));
    /// assert_eq!(map.remove("a"), None);
    /// ```
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
    #[track_caller]
    pub fn remove<'g, Q>(&'g self, key: &Q, guard: &'g impl Section) -> Option<&'g V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        Some(self.remove_entry(key, guard)?.1)
    }

    /// Removes an entry, and returns its key and value. Otherwise as [`remove`](Self::remove).
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
    #[track_caller]
    pub fn remove_entry<'g, Q>(&'g self, key: &Q, guard: &'g impl Section) -> Option<(&'g K, &'g V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.remove_if(key, |_, _| true, guard)
            .unwrap_or_else(|_| unreachable!("the condition is true"))
    }

    /// Removes an entry if `condition` returns true for it, and returns it; `None` if there is no
    /// such key. Otherwise as [`remove`](Self::remove).
    ///
    /// All of it is one atomic operation: `condition` is called again if another thread has
    /// replaced the entry meanwhile.
    ///
    /// # Errors
    ///
    /// The entry, if the condition was false.
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
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
            // SAFETY: in the guard's section, which is of the map's domain.
            let found = unsafe {
                self.store
                    .find_to_remove(hash, |other| key.equivalent(other))
            };
            let Some(found) = found else {
                return Ok(None);
            };
            let (key, value) = found.0.get().pair();
            if !condition(key, value) {
                return Err((key, value));
            }
            // SAFETY: the same.
            if unsafe { self.store.remove_seen(found, hash, guard) } {
                return Ok(Some((key, value)));
            }
        }
    }
}
