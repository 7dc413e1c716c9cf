//! The methods of a `HashMap` and a `HashSet` that are borrowed mutably.
//!
//! No reader is left then. What a map hands out borrows the map: references, iterators and pinned maps,
//! those of tasks as well. A guard that was leaked keeps its section open, but has no reference into the
//! map any more. What was removed before is no longer in the map, and is the domain's.
//!
//! The service thread may be moving the table all the same. So buckets and tables, which it retires, are
//! read in a section, as always. Of an entry it reads the hash, under the lock of its bucket
//! ([`crate::resize`]), and nothing else; it neither moves the entry nor frees it. So, without a section:
//!
//! * An entry stays where it is until the borrower takes it out.
//! * `&mut V` of one that is in the map is unique, as long as its borrower makes no reference to the whole
//!   entry.
//! * One that was taken out belongs to the thread that has done it, at once: it has had the bucket's lock
//!   after the service thread, which does not find the entry from then on.

use crate::{
    entry::{Entry, Found},
    iter::{IntoIter, Keys, Values},
    map::HashMap,
    section::Live,
    set::HashSet,
    store::Store,
};
use equivalent::Equivalent;
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    iter::FusedIterator,
    marker::PhantomData,
    ptr::NonNull,
};

/// Number of entries that one section looks up, at least.
const TOGETHER: usize = 64;

/// An entry of a map that is borrowed mutably for `'m`. At most one exists per entry.
struct Exclusive<'m, K, V> {
    store: &'m Store<K, V>,
    entry: NonNull<Entry<K, V>>,
    borrows: PhantomData<&'m mut Entry<K, V>>,
}

impl<'m, K, V> Exclusive<'m, K, V> {
    /// # Safety
    ///
    /// The entry is in the store, which is borrowed mutably for `'m` by the caller alone, who makes one of
    /// these of each entry.
    unsafe fn of(store: &'m Store<K, V>, entry: NonNull<Entry<K, V>>) -> Self {
        Self {
            store,
            entry,
            borrows: PhantomData,
        }
    }

    fn pair(&mut self) -> (&K, &mut V) {
        // SAFETY: this is borrowed for as long as the result.
        let lent = unsafe { Exclusive::of(self.store, self.entry) };
        lent.into_pair()
    }

    fn into_pair(self) -> (&'m K, &'m mut V) {
        // SAFETY: the promise of `of`, and the file's head.
        unsafe {
            (
                &(*self.entry.as_ptr()).key,
                &mut (*self.entry.as_ptr()).value,
            )
        }
    }

    /// Takes it out of the map.
    fn take(self) -> Option<Entry<K, V>> {
        let section = self.store.read_lock();
        // SAFETY: in the map, by the promise of `of`.
        let found = unsafe { Found::of(Live::of(self.entry.cast())) };
        let removed = self.store.with_guard(&section).unlink(found);
        // SAFETY: taken out just now, by the thread that borrows the map mutably: see the file's head.
        removed.then(|| unsafe { Entry::take(self.entry) })
    }
}

/// The entries of a map, with mutable values: what [`HashMap::iter_mut`] returns.
#[must_use = "iterators are lazy"]
pub struct IterMut<'m, K, V> {
    store: &'m Store<K, V>,
    /// The lowest hash not yet looked up; `None` at the end.
    position: Option<u64>,
    /// Entries that have been looked up, and not returned.
    found: Vec<NonNull<Entry<K, V>>>,
    /// How many entries have not been returned.
    left: usize,
    entries: PhantomData<&'m mut Entry<K, V>>,
}

// SAFETY: it borrows the entries mutably, and of the map it reads hashes besides.
unsafe impl<K: Send, V: Send> Send for IterMut<'_, K, V> {}
// SAFETY: a reference to it gives access to no entry.
unsafe impl<K: Sync, V: Sync> Sync for IterMut<'_, K, V> {}

impl<'m, K, V> IterMut<'m, K, V> {
    /// Looks up more entries, in a section.
    #[cold]
    fn look_up(&mut self) {
        let section = self.store.read_lock();
        let pinned = self.store.with_guard(&section);
        let mut entries = pinned.iter_from(self.position);
        while self.found.len() < TOGETHER && entries.position().is_some() {
            self.found.extend(entries.next_home().map(Found::pointer));
        }
        self.position = entries.position();
    }

    #[inline]
    fn next_entry(&mut self) -> Option<Exclusive<'m, K, V>> {
        while self.found.is_empty() && self.position.is_some() {
            self.look_up();
        }
        let entry = self.found.pop()?;
        self.left = self.left.saturating_sub(1);
        // SAFETY: this borrows the map mutably, and nothing is inserted meanwhile. A walk visits each entry
        // that stays once, also while the table moves (`crate::walk`).
        Some(unsafe { Exclusive::of(self.store, entry) })
    }
}

impl<'m, K, V> Iterator for IterMut<'m, K, V> {
    type Item = (&'m K, &'m mut V);

    #[inline]
    fn next(&mut self) -> Option<(&'m K, &'m mut V)> {
        self.next_entry().map(Exclusive::into_pair)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V> ExactSizeIterator for IterMut<'_, K, V> {}

impl<K, V> FusedIterator for IterMut<'_, K, V> {}

impl<K, V> fmt::Debug for IterMut<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterMut").finish_non_exhaustive()
    }
}

impl<'m, K, V, S> IntoIterator for &'m mut HashMap<K, V, S> {
    type Item = (&'m K, &'m mut V);
    type IntoIter = IterMut<'m, K, V>;

    fn into_iter(self) -> IterMut<'m, K, V> {
        self.iter_mut()
    }
}

/// Methods that take `&mut self`. No other thread uses the map, so values are changed in place, and removed
/// ones are returned.
impl<K, V, S> HashMap<K, V, S> {
    /// Visits the entries, with mutable values, in no particular order. Begins sections of its own, which are
    /// over when `next` returns. Allocates a list of some entries; blocks as little as
    /// [`iter`](crate::PinnedHashMap::iter).
    ///
    /// ```
    /// let mut map = stillpoint_map::HashMap::from([("a", 1), ("b", 2)]);
    /// for (_, number) in map.iter_mut() {
    ///     *number *= 10;
    /// }
    /// assert_eq!(map.pin().get("b"), Some(&20));
    /// ```
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        IterMut {
            store: &self.store,
            position: Some(0),
            found: Vec::new(),
            left: self.store.len(),
            entries: PhantomData,
        }
    }

    /// Visits the values, mutably, as [`iter_mut`](Self::iter_mut) does.
    ///
    /// ```
    /// let mut map = stillpoint_map::HashMap::from([("a", 1), ("b", 2)]);
    /// map.values_mut().for_each(|number| *number += 1);
    /// assert_eq!(map.into_values().sum::<i32>(), 5);
    /// ```
    pub fn values_mut(&mut self) -> Values<IterMut<'_, K, V>> {
        Values(self.iter_mut())
    }

    /// Removes the entries for which `keep` returns false, and drops them at once.
    /// [`PinnedHashMap::retain`](crate::PinnedHashMap::retain) does so while other threads use the map.
    ///
    /// If `keep` or a drop panics, the entries that have not been visited stay.
    ///
    /// ```
    /// let mut map: stillpoint_map::HashMap<u32, u32> = (0..10).map(|key| (key, key)).collect();
    /// map.retain(|key, value| {
    ///     *value += 1;
    ///     key % 5 == 0
    /// });
    /// assert_eq!(map, [(0, 1), (5, 6)].into());
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let mut entries = self.iter_mut();
        while let Some(mut entry) = entries.next_entry() {
            let (key, value) = entry.pair();
            if !keep(key, value) {
                drop(entry.take());
            }
        }
    }

    /// Empties the map, and returns its entries. Those that are not taken are dropped with the iterator,
    /// or leaked with it; the map has none of them from now on. Waits for the service thread, if that is
    /// moving the table, for a millisecond or two.
    ///
    /// The capacity that the map was made with or has reserved stays.
    ///
    /// ```
    /// let mut map = stillpoint_map::HashMap::from([("a".to_owned(), 1)]);
    /// let entry: (String, i32) = map.drain().next().unwrap();
    /// assert_eq!(entry, ("a".to_owned(), 1));
    /// assert!(map.is_empty());
    /// ```
    pub fn drain(&mut self) -> IntoIter<K, V> {
        IntoIter(self.store.drain())
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> HashMap<K, V, S> {
    fn find_mut<Q>(&mut self, key: &Q) -> Option<Exclusive<'_, K, V>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let entry = self.pin().find(key)?.pointer();
        // SAFETY: in this map, which is borrowed mutably for as long as the result.
        Some(unsafe { Exclusive::of(&self.store, entry) })
    }

    /// Returns the value of a key, mutably. Otherwise as [`PinnedHashMap::get`](crate::PinnedHashMap::get).
    ///
    /// ```
    /// let mut map = stillpoint_map::HashMap::from([("a".to_owned(), 1)]);
    /// *map.get_mut("a").unwrap() += 1;
    /// assert_eq!(map.pin().get("a"), Some(&2));
    /// ```
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        Some(self.find_mut(key)?.into_pair().1)
    }

    /// Removes an entry, and returns its value: the value itself, as no other thread has the map.
    /// [`PinnedHashMap::remove`](crate::PinnedHashMap::remove) returns a reference. Drops the key. Does not
    /// block, but for a lock of the bucket, and at the end of its section, which may wait for a bounded time if
    /// the domain has used up its memory budget.
    ///
    /// ```
    /// let mut map = stillpoint_map::HashMap::from([(1, "one".to_owned())]);
    /// let value: Option<String> = map.remove(&1);
    /// assert_eq!(value.as_deref(), Some("one"));
    /// assert_eq!(map.remove(&1), None);
    /// ```
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        Some(self.remove_entry(key)?.1)
    }

    /// Removes an entry, and returns its key and value. Otherwise as [`remove`](Self::remove).
    ///
    /// ```
    /// let mut map = stillpoint_map::HashMap::from([("a".to_owned(), 1)]);
    /// assert_eq!(map.remove_entry("a"), Some(("a".to_owned(), 1)));
    /// ```
    pub fn remove_entry<Q>(&mut self, key: &Q) -> Option<(K, V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let Entry { key, value, .. } = self.find_mut(key)?.take()?;
        Some((key, value))
    }
}

impl<T, S> HashSet<T, S> {
    /// Empties the set, and returns its values. As [`HashMap::drain`].
    ///
    /// ```
    /// let mut set = stillpoint_map::HashSet::from([1, 2]);
    /// assert_eq!(set.drain().sum::<i32>(), 3);
    /// assert!(set.is_empty());
    /// ```
    pub fn drain(&mut self) -> Keys<IntoIter<T, ()>> {
        Keys(self.map.drain())
    }

    /// Removes the values for which `keep` returns false. As [`HashMap::retain`].
    ///
    /// ```
    /// let mut set = stillpoint_map::HashSet::from([1, 2, 3]);
    /// set.retain(|value| value % 2 == 1);
    /// assert_eq!(set, [1, 3].into());
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.map.retain(|value, ()| keep(value));
    }
}

impl<T: Hash + Eq, S: BuildHasher> HashSet<T, S> {
    /// Removes the value that is equal to `value`, and returns it. As [`HashMap::remove_entry`].
    ///
    /// ```
    /// let mut set = stillpoint_map::HashSet::from(["a".to_owned()]);
    /// assert_eq!(set.take("a"), Some("a".to_owned()));
    /// ```
    pub fn take<Q>(&mut self, value: &Q) -> Option<T>
    where
        Q: Hash + Equivalent<T> + ?Sized,
    {
        Some(self.map.remove_entry(value)?.0)
    }
}
