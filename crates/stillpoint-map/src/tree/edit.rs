//! The methods of `BTreeMap` that insert and remove. [`super::compute`] has those that change what they
//! find.

use super::{
    alter::{Inserted, Occupied},
    map::BTreeMap,
};
use crate::outcome::OccupiedError;
use std::borrow::Borrow;
use stillpoint::Section;

impl<K: Ord + Send + 'static, V: Send + 'static> BTreeMap<K, V> {
    #[track_caller]
    fn put<'g>(
        &'g self,
        key: K,
        value: V,
        replace: bool,
        guard: &'g impl Section,
    ) -> Result<Inserted<'g, K, V>, (&'g V, V)> {
        // Before anything is allocated.
        self.store.check(guard);
        let new = self.store.new_entry(key, value);
        self.store
            .insert(new, replace, guard)
            .map_err(|Occupied { old, new }| (old.value(), new.into_pair().1))
    }

    /// Inserts an entry. Returns the value that it has replaced, if there was one with that key.
    ///
    /// The old value stays valid for the section, and is then dropped. The old key is replaced, too.
    /// Does not block, but for the lock of a leaf, which other threads hold for nanoseconds, and where
    /// nodes are replaced, for those of the nodes above; to replace a value takes no lock. If the
    /// domain has used up its memory budget, the end of the section may wait, for a bounded time.
    /// Without memory the process ends, as with std's map. Not async-signal-safe.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::new();
    /// let map = map.pin();
    /// assert_eq!(map.insert("a", 1), None);
    /// assert_eq!(map.insert("a", 2), Some(&1));
    /// assert_eq!(map.get("a"), Some(&2));
    /// ```
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
    #[track_caller]
    pub fn insert<'g>(&'g self, key: K, value: V, guard: &'g impl Section) -> Option<&'g V> {
        let inserted = self.put(key, value, true, guard);
        Some(inserted.ok().expect("it replaces").old?.value())
    }

    /// Inserts an entry, unless there is one with that key. Returns the new value. Otherwise as
    /// [`insert`](Self::insert).
    ///
    /// # Errors
    ///
    /// The value that is in the map, and the one that was not inserted.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::new();
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
        match self.put(key, value, false, guard) {
            Ok(inserted) => Ok(inserted.new.value()),
            Err((current, not_inserted)) => Err(OccupiedError {
                current,
                not_inserted,
            }),
        }
    }

    /// Inserts an entry with the value that `make` returns, unless there is one with that key.
    /// Returns the new value. Otherwise as [`insert`](Self::insert).
    ///
    /// `make` is not called if the key is found at once. If another thread inserts it meanwhile, what
    /// `make` has returned is dropped.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::new();
    /// let map = map.pin();
    /// assert_eq!(map.try_insert_with(1, || "one"), Ok(&"one"));
    /// assert_eq!(map.try_insert_with(1, || "two"), Err(&"one"));
    /// ```
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
        if let Some(found) = self.store.find(&key, guard) {
            return Err(found.value());
        }
        let inserted = self.put(key, make(), false, guard);
        inserted
            .map(|inserted| inserted.new.value())
            .map_err(|(current, _)| current)
    }

    /// Returns the value of a key: `value` if there was none. Otherwise as
    /// [`try_insert_with`](Self::try_insert_with).
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::new();
    /// assert_eq!(map.pin().get_or_insert("a", 1), &1);
    /// assert_eq!(map.pin().get_or_insert("a", 2), &1);
    /// ```
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
    /// ```
    /// let map = stillpoint_map::BTreeMap::new();
    /// assert_eq!(map.pin().get_or_insert_with("a", || 1), &1);
    /// assert_eq!(map.pin().get_or_insert_with("a", || 2), &1);
    /// ```
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

    /// Removes an entry, and returns its value.
    ///
    /// The value stays valid for the section, and is then dropped; if there is anything to drop, on the
    /// domain's service thread. Does not block, but for the locks of a leaf, and where it is merged, of
    /// its neighbour and the nodes above. Not async-signal-safe.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([("a".to_owned(), 1)]);
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
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        Some(self.remove_entry(key, guard)?.1)
    }

    /// Removes an entry, and returns its key and value. Otherwise as [`remove`](Self::remove).
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([(1, "a")]);
    /// assert_eq!(map.pin().remove_entry(&1), Some((&1, &"a")));
    /// ```
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
    #[track_caller]
    pub fn remove_entry<'g, Q>(&'g self, key: &Q, guard: &'g impl Section) -> Option<(&'g K, &'g V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.remove_if(key, |_, _| true, guard)
            .unwrap_or_else(|_| unreachable!("the condition is true"))
    }

    /// Removes an entry if `condition` returns true for it, and returns it; `None` if there is no
    /// such key. Otherwise as [`remove`](Self::remove).
    ///
    /// All of it is one atomic operation: `condition` is called again if another thread has changed
    /// the entry meanwhile.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([("a", 1)]);
    /// let map = map.pin();
    /// assert_eq!(map.remove_if("a", |_, number| *number > 1), Err((&"a", &1)));
    /// assert_eq!(map.remove_if("a", |_, number| *number == 1), Ok(Some((&"a", &1))));
    /// assert_eq!(map.remove_if("a", |_, _| true), Ok(None));
    /// ```
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
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        loop {
            let Some(at) = self.store.locate(key, guard) else {
                return Ok(None);
            };
            let Some(found) = at.found() else {
                return Ok(None);
            };
            let (key, value) = found.pair();
            if !condition(key, value) {
                return Err((key, value));
            }
            if self.store.remove(at, guard) {
                return Ok(Some((key, value)));
            }
        }
    }

    /// Removes the first entry, and returns it; `None` if there is none. Of several threads one gets
    /// it. Otherwise as [`remove`](Self::remove).
    ///
    /// ```
    /// let queue = stillpoint_map::BTreeMap::from([(2, "later"), (1, "now")]);
    /// let queue = queue.pin();
    /// assert_eq!(queue.pop_first(), Some((&1, &"now")));
    /// assert_eq!(queue.pop_last(), Some((&2, &"later")));
    /// assert_eq!(queue.pop_first(), None);
    /// ```
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
    #[track_caller]
    pub fn pop_first<'g>(&'g self, guard: &'g impl Section) -> Option<(&'g K, &'g V)> {
        self.pop(false, guard)
    }

    /// Removes the last entry, and returns it. Otherwise as [`pop_first`](Self::pop_first).
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([(2, "b"), (1, "a")]);
    /// assert_eq!(map.pin().pop_last(), Some((&2, &"b")));
    /// ```
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
    #[track_caller]
    pub fn pop_last<'g>(&'g self, guard: &'g impl Section) -> Option<(&'g K, &'g V)> {
        self.pop(true, guard)
    }

    #[track_caller]
    fn pop<'g>(&'g self, is_last: bool, guard: &'g impl Section) -> Option<(&'g K, &'g V)> {
        loop {
            let at = self.store.outermost(is_last, guard)?;
            let found = at.found()?;
            // Not if an entry has come before it, or others have gone.
            if self.store.try_remove(&at, guard) {
                return Some(found.pair());
            }
        }
    }

    /// Removes the entries for which `keep` returns false, as it visits them
    /// ([`iter`](Self::iter)).
    ///
    /// It is the entry that `keep` has seen that is removed: one that another thread replaces in
    /// between stays. Removed entries are freed after the section, so clear a large map in several
    /// sections, by ranges.
    ///
    /// ```
    /// let map: stillpoint_map::BTreeMap<u32, ()> = (0..10).map(|key| (key, ())).collect();
    /// map.pin().retain(|key, _| key % 3 == 0);
    /// assert!(map.pin().keys().eq(&[0, 3, 6, 9]));
    /// ```
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
    #[track_caller]
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool, guard: &impl Section) {
        let mut entries = self.store.cursor(guard);
        while let Some(found) = entries.next_of_all() {
            let (key, value) = found.pair();
            if keep(key, value) {
                continue;
            }
            if let Some(at) = self.store.locate_again(found, guard) {
                self.store.remove(at, guard);
            }
        }
    }

    /// Removes the entries one by one, as [`retain`](Self::retain) does. What other threads insert
    /// or replace meanwhile may stay.
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([(2, "b"), (1, "a")]);
    /// map.pin().clear();
    /// assert!(map.is_empty());
    /// ```
    ///
    /// # Panics
    ///
    /// If the guard is of another domain.
    #[track_caller]
    pub fn clear(&self, guard: &impl Section) {
        self.retain(|_, _| false, guard);
    }
}
