//! The methods that change a `HashMap`, in a section.

use crate::{
    key_source::KeySource,
    map::PinnedHashMap,
    outcome::{Compute, OccupiedError, Operation, TryReserveError},
    store::{Inserted, Occupied},
    upsert::upserts,
};
use equivalent::Equivalent;
use std::{
    convert::Infallible,
    hash::{BuildHasher, Hash},
};

impl<K, V, S> PinnedHashMap<K, V, S> {
    /// Makes the table large enough for `additional` more entries, and keeps it so, as
    /// [`HashMap::with_capacity_and_hasher`](crate::HashMap::with_capacity_and_hasher) does.
    ///
    /// Does not wait for that: a map that has a table already moves to the larger one as it does when
    /// it grows, by inserts, removals and the domain's service thread; if it moves at the time, after that. It
    /// takes memory and time for the entries that there are, not for the capacity.
    ///
    /// # Panics
    ///
    /// If no table can be so large: "capacity overflow". Without memory for the table the process ends.
    #[track_caller]
    pub fn reserve(&self, additional: usize) {
        if self.try_reserve(additional).is_err() {
            self.store().root.no_room(additional);
        }
    }

    /// Makes the table large enough for `additional` more entries, as [`reserve`](Self::reserve)
    /// does.
    ///
    /// # Errors
    ///
    /// If no table can be so large, or the system refuses the memory. It refuses a table that is larger than
    /// all of its memory and swap, unless it is set to overcommit always (`vm.overcommit_memory=1`); of
    /// what it grants it gives each page when that is used. The map stays as it is; but if another thread
    /// shrinks it at the same time, it may keep this capacity as its smallest.
    ///
    /// ```
    /// let map: stillpoint_map::HashMap<u64, u64> = stillpoint_map::HashMap::new();
    /// assert!(map.pin().try_reserve(usize::MAX).is_err());
    /// map.pin().try_reserve(1000).unwrap();
    /// assert!(map.pin().capacity() >= 1000);
    /// ```
    pub fn try_reserve(&self, additional: usize) -> Result<(), TryReserveError> {
        if self.store().reserve(additional) {
            Ok(())
        } else {
            Err(TryReserveError { additional })
        }
    }

    /// Lets the table shrink to what its entries need, below what the map was made with or has
    /// reserved. Does not wait for that.
    ///
    /// A map that holds fewer entries than it did shrinks without this.
    pub fn shrink_to_fit(&self) {
        self.store().shrink_to_fit();
    }
}

impl<K: Send + 'static, V: Send + 'static, S> PinnedHashMap<K, V, S> {
    /// Removes the entries for which `keep` returns false, as it visits them
    /// ([`iter`](Self::iter)).
    ///
    /// It is the entry that `keep` has seen that is removed: one that another thread replaces in
    /// between stays. Removed entries are freed after the section, so clear a large map in steps
    /// ([`HashMap::scan`](crate::HashMap::scan)), or use several sections.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        for entry in self.store().iter() {
            let (key, value) = entry.get().pair();
            if !keep(key, value) {
                self.store().remove(entry);
            }
        }
    }

    /// Removes the entries one by one, as [`retain`](Self::retain) does. What other threads insert
    /// or replace meanwhile may stay.
    #[doc(alias = "drain")]
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }
}

impl<K: Hash + Eq + Send + 'static, V: Send + 'static, S: BuildHasher> PinnedHashMap<K, V, S> {
    /// Puts an entry of a key with that hash in.
    #[inline(always)]
    fn put(
        &self,
        hash: u64,
        key: K,
        value: V,
        replace: bool,
    ) -> Result<Inserted<'_, K, V>, Occupied<'_, K, V>> {
        let is_same = |other: &K, key: &K| other == key;
        self.store().put(hash, key, value, replace, is_same)
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
    /// If the allocator returns addresses of more than 48 bits.
    pub fn insert(&self, key: K, value: V) -> Option<&V> {
        Some(self.insert_entry(key, value)?.1)
    }

    /// Inserts an entry. Returns the entry that it has replaced, if there was one with that key.
    #[inline(always)]
    pub(crate) fn insert_entry(&self, key: K, value: V) -> Option<(&K, &V)> {
        let inserted = self.put(self.hash(&key), key, value, true);
        let old = inserted.ok().expect("it replaces").old?;
        Some(old.get().pair())
    }

    /// Inserts an entry, unless there is one with that key. Returns the new value. Otherwise as
    /// [`insert`](Self::insert).
    ///
    /// If it is not inserted, `key` is dropped before this returns, by the calling thread, in its section, with
    /// nothing locked: as by std's and papaya's methods of that name.
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
    #[doc(alias("insert_unique", "put_if_absent"))]
    pub fn try_insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
        match self.put(self.hash(&key), key, value, false) {
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
    /// what `make` has returned is dropped, as `key` is in either case ([`try_insert`](Self::try_insert)).
    ///
    /// # Errors
    ///
    /// The value that is in the map.
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    pub fn try_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Result<&V, &V> {
        let hash = self.hash(&key);
        if let Some(found) = self.store().find(hash, |other| *other == key) {
            return Err(&found.get().value);
        }
        match self.put(hash, key, make(), false) {
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
    #[doc(alias = "or_insert")]
    pub fn get_or_insert(&self, key: K, value: V) -> &V {
        self.get_or_insert_with(key, || value)
    }

    /// Returns the value of a key, made by `make` if there was none. Otherwise as
    /// [`try_insert_with`](Self::try_insert_with).
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    #[doc(alias("entry", "or_insert_with", "or_default"))]
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> &V {
        self.try_insert_with(key, make)
            .unwrap_or_else(|current| current)
    }

    /// Replaces the value of a key by what `update` makes of it. Returns the new value, or `None`
    /// if there is no such key. Otherwise as [`insert`](Self::insert).
    ///
    /// The new entry has a clone of the key. For keys that are not `Clone` there is
    /// [`update_or_insert`](Self::update_or_insert). `update` is called again if another thread has changed the
    /// entry meanwhile.
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
    #[doc(alias("alter", "and_modify", "get_mut", "modify"))]
    pub fn update<Q>(&self, key: &Q, mut update: impl FnMut(&V) -> V) -> Option<&V>
    where
        K: Clone,
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.hash(key);
        loop {
            let old = self.store().find(hash, |other| key.equivalent(other))?;
            let value = update(&old.value);
            let new = self.store().new_entry(hash, old.key.clone(), value);
            if let Ok(new) = self.store().replace(old, new) {
                return Some(&new.get().value);
            }
        }
    }

    upserts! { "HashMap", panics as "[`insert`](Self::insert)", compute where Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized }

    /// [`compute`](Self::compute), whose closure also gets the value whose insertion was refused
    /// since the last call, because another thread had inserted the key.
    #[track_caller]
    fn compute_again<'g, T>(
        &'g self,
        mut sought: impl KeySource<K, Key: Hash + Equivalent<K>>,
        mut compute: impl FnMut(Option<(&'g K, &'g V)>, Option<V>) -> Operation<V, T>,
    ) -> Compute<'g, K, V, T> {
        let hash = self.hash(sought.key());
        let mut not_inserted = None;
        loop {
            let is_it = |other: &K| sought.key().equivalent(other);
            let found = self.store().find(hash, is_it);
            let pair = found.map(|found| found.get().pair());
            match (compute(pair, not_inserted.take()), found) {
                (Operation::Abort(with), _) => return Compute::Aborted(with),
                (Operation::Remove, None) => panic!(
                    "`Operation::Remove` for a key that is not there: return `Abort` for `None`"
                ),
                (Operation::Remove, Some(found)) => {
                    if self.store().remove(found) {
                        let (key, value) = found.get().pair();
                        return Compute::Removed(key, value);
                    }
                }
                (Operation::Insert(value), Some(old)) => {
                    let new = self.store().new_entry(hash, sought.own(), value);
                    match self.store().replace(old, new) {
                        Ok(new) => {
                            return Compute::Updated {
                                old: old.get().pair(),
                                new: new.get().pair(),
                            };
                        }
                        Err(refused) => sought.take_back(refused.into_entry().key),
                    }
                }
                (Operation::Insert(value), None) => {
                    match self.put(hash, sought.own(), value, false) {
                        Ok(inserted) => {
                            let (key, value) = inserted.new.get().pair();
                            return Compute::Inserted(key, value);
                        }
                        Err(occupied) => {
                            let refused = occupied.new.into_entry();
                            sought.take_back(refused.key);
                            not_inserted = Some(refused.value);
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
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        Some(self.remove_entry(key)?.1)
    }

    /// Removes an entry, and returns its key and value. Otherwise as [`remove`](Self::remove).
    pub fn remove_entry<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.remove_if(key, |_, _| true)
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
    #[doc(alias = "compare_and_delete")]
    pub fn remove_if<Q>(
        &self,
        key: &Q,
        condition: impl FnMut(&K, &V) -> bool,
    ) -> Result<Option<(&K, &V)>, (&K, &V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let is_it = |other: &K| key.equivalent(other);
        match self.store().remove_if(self.hash(key), is_it, condition) {
            Ok(removed) => Ok(removed.map(|found| found.get().pair())),
            Err(kept) => Err(kept.get().pair()),
        }
    }
}
