//! The methods of a `BTreeMap` in a section that insert and remove. [`super::compute`] has those that
//! change what they find.

use super::{
    alter::{Inserted, Occupied},
    map::PinnedBTreeMap,
};
use crate::outcome::OccupiedError;
use std::borrow::Borrow;

impl<K: Ord + Send + 'static, V: Send + 'static> PinnedBTreeMap<K, V> {
    fn put(&self, key: K, value: V, replace: bool) -> Result<Inserted<'_, K, V>, (&V, V)> {
        let new = self.store().new_entry(key, value);
        self.store()
            .insert(new, replace)
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
    pub fn insert(&self, key: K, value: V) -> Option<&V> {
        let inserted = self.put(key, value, true);
        Some(inserted.ok().expect("it replaces").old?.value())
    }

    /// Inserts an entry, unless there is one with that key. Returns the new value. Otherwise as
    /// [`insert`](Self::insert). If it is not inserted, `key` is dropped before this returns, by the calling thread,
    /// in its section, with nothing locked.
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
    #[doc(alias("insert_unique", "put_if_absent"))]
    pub fn try_insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
        match self.put(key, value, false) {
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
    pub fn try_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Result<&V, &V> {
        if let Some(found) = self.store().find(&key) {
            return Err(found.value());
        }
        let inserted = self.put(key, make(), false);
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
    #[doc(alias = "or_insert")]
    pub fn get_or_insert(&self, key: K, value: V) -> &V {
        self.get_or_insert_with(key, || value)
    }

    /// Returns the value of a key, made by `make` if there was none. Otherwise as
    /// [`try_insert_with`](Self::try_insert_with).
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::new();
    /// assert_eq!(map.pin().get_or_insert_with("a", || 1), &1);
    /// assert_eq!(map.pin().get_or_insert_with("a", || 2), &1);
    /// ```
    #[doc(alias("entry", "or_insert_with", "or_default"))]
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> &V {
        self.try_insert_with(key, make)
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
    pub fn remove<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        Some(self.remove_entry(key)?.1)
    }

    /// Removes an entry, and returns its key and value. Otherwise as [`remove`](Self::remove).
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([(1, "a")]);
    /// assert_eq!(map.pin().remove_entry(&1), Some((&1, &"a")));
    /// ```
    pub fn remove_entry<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.remove_if(key, |_, _| true)
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
    #[doc(alias = "compare_and_delete")]
    pub fn remove_if<Q>(
        &self,
        key: &Q,
        mut condition: impl FnMut(&K, &V) -> bool,
    ) -> Result<Option<(&K, &V)>, (&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        loop {
            let Some(at) = self.store().locate(key) else {
                return Ok(None);
            };
            let Some(found) = at.found() else {
                return Ok(None);
            };
            let (key, value) = found.pair();
            if !condition(key, value) {
                return Err((key, value));
            }
            if at.remove() {
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
    #[doc(alias("pop_front", "pop_min"))]
    pub fn pop_first(&self) -> Option<(&K, &V)> {
        self.pop(false)
    }

    /// Removes the last entry, and returns it. Otherwise as [`pop_first`](Self::pop_first).
    ///
    /// ```
    /// let map = stillpoint_map::BTreeMap::from([(2, "b"), (1, "a")]);
    /// assert_eq!(map.pin().pop_last(), Some((&2, &"b")));
    /// ```
    #[doc(alias("pop_back", "pop_max"))]
    pub fn pop_last(&self) -> Option<(&K, &V)> {
        self.pop(true)
    }

    fn pop(&self, is_last: bool) -> Option<(&K, &V)> {
        loop {
            let at = self.store().outermost(is_last)?;
            let found = at.found()?;
            // Not if an entry has come before it, or others have gone.
            if at.try_remove() {
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
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let mut entries = self.store().cursor();
        while let Some(found) = entries.next_of_all() {
            let (key, value) = found.pair();
            if keep(key, value) {
                continue;
            }
            if let Some(at) = self.store().locate_again(found) {
                at.remove();
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
    #[doc(alias = "drain")]
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }
}
