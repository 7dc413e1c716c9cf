//! The methods of a `BTreeMap` that is borrowed mutably.
//!
//! No reader is left then, as [`crate::exclusive`] says, and the service thread does not touch the tree: what
//! it frees was retired before, and is not found from the root. Only the borrower changes or frees parts of
//! the tree. It needs no lock, and no section but for what it retires itself. `&mut V` of an entry is
//! unique, as long as the borrower makes no reference to the whole entry: searches and walks read keys alone.
//!
//! An entry that is taken out belongs to the borrower, with its key: if that is a fence, another one takes
//! its place.

use super::{
    core::Tree,
    entry::Entry,
    iter::IntoIter,
    map::{BTreeMap, bounds},
    node::Node,
    search::{Path, Place, Step},
    store::{Ordered, PinnedOrdered},
    walk::Walk,
};
use crate::iter::Values;
use std::{
    borrow::Borrow, fmt, iter::FusedIterator, marker::PhantomData, mem, ops::RangeBounds,
    ptr::NonNull,
};

/// The entries of a map or of a range, in order, with mutable values: what [`BTreeMap::iter_mut`] and
/// [`BTreeMap::range_mut`] return.
#[must_use = "iterators are lazy"]
pub struct IterMut<'m, K, V> {
    walk: Walk<'m>,
    entries: PhantomData<&'m mut Entry<K, V>>,
}

impl<'m, K, V> IterMut<'m, K, V> {
    /// The halves of an entry.
    ///
    /// # Safety
    ///
    /// It is in a map that is borrowed mutably for `'m`, in which it stays. There is no other reference to
    /// its value, nor to all of it.
    unsafe fn pair(entry: NonNull<Entry<K, V>>) -> (&'m K, &'m mut V) {
        let entry = entry.as_ptr();
        // SAFETY: the caller's promise.
        unsafe { (&(*entry).key, &mut (*entry).value) }
    }

    #[inline(always)]
    fn next_from(&mut self, is_back: bool) -> Option<(&'m K, &'m mut V)> {
        let entry = self.walk.next_alone(is_back)?;
        // SAFETY: this borrows the map mutably. The walk returns each entry once, whatever `Ord` says.
        Some(unsafe { Self::pair(entry.cast()) })
    }
}

impl<'m, K, V> Iterator for IterMut<'m, K, V> {
    type Item = (&'m K, &'m mut V);

    #[inline]
    fn next(&mut self) -> Option<(&'m K, &'m mut V)> {
        self.next_from(false)
    }
}

impl<'m, K, V> DoubleEndedIterator for IterMut<'m, K, V> {
    #[inline]
    fn next_back(&mut self) -> Option<(&'m K, &'m mut V)> {
        self.next_from(true)
    }
}

impl<K, V> FusedIterator for IterMut<'_, K, V> {}

impl<K, V> fmt::Debug for IterMut<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterMut").finish_non_exhaustive()
    }
}

impl<'m, K, V> IntoIterator for &'m mut BTreeMap<K, V> {
    type Item = (&'m K, &'m mut V);
    type IntoIter = IterMut<'m, K, V>;

    fn into_iter(self) -> IterMut<'m, K, V> {
        self.iter_mut()
    }
}

/// An entry of a map that is borrowed mutably: what [`BTreeMap::first_entry`] and [`BTreeMap::last_entry`]
/// return.
pub struct OccupiedEntry<'m, K, V> {
    store: &'m Ordered<K, V>,
    path: Path<'m>,
    place: Place<'m>,
    entry: NonNull<Entry<K, V>>,
    borrows: PhantomData<&'m mut Entry<K, V>>,
}

// SAFETY: it stands for a mutable borrow of the map, whose keys and values it uses as that does; nodes are
// changed by atomics, or by this alone.
unsafe impl<K: Send, V: Send> Send for OccupiedEntry<'_, K, V> {}
// SAFETY: a reference to it gives references to a key and a value.
unsafe impl<K: Sync, V: Sync> Sync for OccupiedEntry<'_, K, V> {}

impl<'m, K, V> OccupiedEntry<'m, K, V> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        // SAFETY: of a map that is borrowed mutably for `'m`, which this stands for; so below.
        unsafe { &(*self.entry.as_ptr()).key }
    }

    /// Returns the value.
    pub fn get(&self) -> &V {
        // SAFETY: as in `key`.
        unsafe { &(*self.entry.as_ptr()).value }
    }

    /// Returns the value, mutably.
    pub fn get_mut(&mut self) -> &mut V {
        // SAFETY: as in `key`.
        unsafe { &mut (*self.entry.as_ptr()).value }
    }

    /// Returns the value, mutably, for as long as the map is borrowed.
    pub fn into_mut(self) -> &'m mut V {
        // SAFETY: as in `key`.
        unsafe { &mut (*self.entry.as_ptr()).value }
    }

    /// Replaces the value, and returns the old one.
    pub fn insert(&mut self, value: V) -> V {
        mem::replace(self.get_mut(), value)
    }
}

impl<K: Ord + Send + 'static, V: Send + 'static> OccupiedEntry<'_, K, V> {
    /// Removes the entry, and returns its value.
    pub fn remove(self) -> V {
        self.remove_entry().1
    }

    /// Removes the entry, and returns its key and value.
    pub fn remove_entry(self) -> (K, V) {
        let store = self.store;
        let section = store.read_lock();
        let pinned = store.with_guard(&section);
        let is_merge_due = pinned.is_merge_due(&self.place);
        let ((key, value), _) = self.take();
        if is_merge_due {
            pinned.merge_near(&key);
        }
        (key, value)
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for OccupiedEntry<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OccupiedEntry")
            .field("key", self.key())
            .field("value", self.get())
            .finish()
    }
}

impl<'m, K, V> OccupiedEntry<'m, K, V> {
    /// Returns the entry at `place`, or `None` if the place is empty.
    ///
    /// # Safety
    ///
    /// `store`'s map is borrowed mutably for `'m`, and only the returned entry changes it. `path` leads to `place`.
    unsafe fn of(store: &'m Ordered<K, V>, (path, place): (Path<'m>, Place<'m>)) -> Option<Self> {
        Some(Self {
            store,
            entry: place.entry?.cast(),
            path,
            place,
            borrows: PhantomData,
        })
    }

    /// Takes the entry out. If its key was a fence, another one replaces it. Returns the key and the value, and
    /// whether nodes were freed: the leaf, or also nodes of the path.
    fn take(self) -> ((K, V), bool) {
        let (path, place) = (&self.path, &self.place);
        let is_freed = self.store.tree.get().is_some_and(|tree| {
            let leaf = place.leaf;
            let locked = leaf.get().lock().expect("no other thread replaces it");
            locked.take(place.at);
            drop(locked);
            tree.note(1_u64.wrapping_neg());
            if !Tree::is_fence(place) {
                return false;
            }
            // The fence is in the last node that the path does not leave by its first child.
            let turn = (0..path.len()).rev().find(|level| path.step(*level).at > 0);
            let turn = turn.expect("a leaf with a fence has leaves before it");
            let replace_fence = |fence| {
                let Step { node, at } = path.step(turn);
                // SAFETY: this borrows the map mutably. The fence is the key of an entry that is in the tree. So below.
                unsafe { (*node.pointer().as_ptr()).set_fence(at - 1, fence) };
            };
            if let Some(first) = leaf.items().next() {
                let fence = tree.fence_of(first);
                replace_fence(fence);
                // SAFETY: as above.
                unsafe { (*leaf.pointer().as_ptr()).lower = fence.entry };
                return false;
            }
            // The leaf goes, with the nodes above that have no other child.
            let has_others = |level: &usize| path.step(*level).node.len() > 0;
            let cut = (turn..path.len()).rev().find(has_others).unwrap_or(turn);
            let step = path.step(cut);
            // SAFETY: as above: no thread reads what is freed.
            unsafe {
                let fence = (*step.node.pointer().as_ptr()).take_child(step.at);
                if cut > turn {
                    // The former second child takes the place of the first, and its lower bound.
                    replace_fence(fence);
                }
                Node::leaf(leaf).free();
                for level in cut + 1..path.len() {
                    Node::inner(path.step(level).node).free();
                }
                if cut == 0 && step.node.len() == 0 {
                    tree.root.set(step.node.hook(0).link());
                    Node::inner(step.node).free();
                }
            }
            true
        });
        // SAFETY: taken out just now, by the thread that borrows the map mutably; its key is no fence.
        (unsafe { Entry::take(self.entry) }, is_freed)
    }
}

impl<K, V> BTreeMap<K, V> {
    /// Visits the entries in order, with mutable values, from both ends. Blocks nowhere, and allocates
    /// nothing.
    ///
    /// ```
    /// let mut map = stillpoint_map::BTreeMap::from([(1, "a".to_owned()), (2, "b".to_owned())]);
    /// for (number, letters) in &mut map {
    ///     *letters = letters.repeat(*number);
    /// }
    /// assert_eq!(map.iter_mut().next_back().unwrap().1, "bb");
    /// ```
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        IterMut {
            // SAFETY: alone with the map, from which nothing is removed while it is borrowed.
            walk: unsafe { PinnedOrdered::of(&self.store) }.walk(),
            entries: PhantomData,
        }
    }

    /// Visits the values, mutably, in the order of their keys, as [`iter_mut`](Self::iter_mut) does.
    ///
    /// ```
    /// let mut map = stillpoint_map::BTreeMap::from([(1, 10), (2, 20)]);
    /// map.values_mut().rev().for_each(|value| *value += 1);
    /// assert!(map.into_values().eq([11, 21]));
    /// ```
    pub fn values_mut(&mut self) -> Values<IterMut<'_, K, V>> {
        Values(self.iter_mut())
    }

    /// Empties the map, and returns its entries, in order. Those that are not taken are dropped with the
    /// iterator, or leaked with it; the map has none of them from now on.
    ///
    /// ```
    /// let mut map = stillpoint_map::BTreeMap::from([(2, "b"), (1, "a")]);
    /// assert!(map.drain().eq([(1, "a"), (2, "b")]));
    /// assert!(map.is_empty());
    /// ```
    pub fn drain(&mut self) -> IntoIter<K, V> {
        IntoIter(self.store.take())
    }
}

impl<K: Ord, V> BTreeMap<K, V> {
    /// Returns the value of a key, mutably. Otherwise as [`PinnedBTreeMap::get`](crate::PinnedBTreeMap::get).
    ///
    /// ```
    /// let mut map = stillpoint_map::BTreeMap::from([("a".to_owned(), 1)]);
    /// *map.get_mut("a").unwrap() += 1;
    /// assert_eq!(map.pin().get("a"), Some(&2));
    /// ```
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        // SAFETY: alone with the map, which is borrowed mutably: so there is no other reference to the value.
        unsafe {
            let found = PinnedOrdered::of(&self.store).find(key)?;
            Some(IterMut::pair(found.pointer()).1)
        }
    }

    /// Visits the entries of a range of keys, with mutable values, as [`iter_mut`](Self::iter_mut) does.
    ///
    /// ```
    /// let mut map: stillpoint_map::BTreeMap<u32, u32> = (0..10).map(|key| (key, key)).collect();
    /// map.range_mut(3..6).for_each(|(_, value)| *value = 0);
    /// assert_eq!(map.into_values().sum::<u32>(), 45 - 3 - 4 - 5);
    /// ```
    ///
    /// # Panics
    ///
    /// As std's map, if the range begins behind its end, or begins and ends at the same excluded key.
    #[track_caller]
    pub fn range_mut<Q, R>(&mut self, range: R) -> IterMut<'_, K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
        R: RangeBounds<Q>,
    {
        let (low, high) = bounds(&range);
        // SAFETY: alone with the map, from which nothing is removed while it is borrowed.
        let alone = unsafe { PinnedOrdered::of(&self.store) };
        let mut walk = alone.walk();
        for (is_back, bound) in [(false, low), (true, high)] {
            if let Some((path, place)) = alone.locate_bound(is_back, bound) {
                walk.begin_at(is_back, path, &place);
            }
        }
        IterMut {
            walk,
            entries: PhantomData,
        }
    }

    /// Returns the first entry: that with the least key.
    ///
    /// ```
    /// let mut map = stillpoint_map::BTreeMap::from([(2, "b"), (1, "a")]);
    /// *map.first_entry().unwrap().get_mut() = "A";
    /// assert_eq!(map.first_entry().unwrap().remove_entry(), (1, "A"));
    /// assert_eq!(map.len(), 1);
    /// ```
    pub fn first_entry(&mut self) -> Option<OccupiedEntry<'_, K, V>> {
        self.outermost(false)
    }

    /// Returns the last entry: that with the greatest key.
    ///
    /// ```
    /// let mut map = stillpoint_map::BTreeMap::from([(2, "b"), (1, "a")]);
    /// assert_eq!(map.last_entry().unwrap().insert("B"), "b");
    /// assert_eq!(map.pin().last_key_value(), Some((&2, &"B")));
    /// ```
    pub fn last_entry(&mut self) -> Option<OccupiedEntry<'_, K, V>> {
        self.outermost(true)
    }

    fn outermost(&mut self, is_back: bool) -> Option<OccupiedEntry<'_, K, V>> {
        let mut path = Path::new();
        // SAFETY: `&mut self` excludes other threads, and only the returned entry removes.
        unsafe {
            let alone = PinnedOrdered::of(&self.store);
            let place = alone.tree()?.outermost(is_back, &mut path)?;
            OccupiedEntry::of(alone, (path, place))
        }
    }
}

impl<K: Ord + Send + 'static, V: Send + 'static> BTreeMap<K, V> {
    /// Removes an entry, and returns its value: the value itself, as no other thread has the map.
    /// [`PinnedBTreeMap::remove`](crate::PinnedBTreeMap::remove) returns a reference. Drops the key. Does not
    /// block, but at the end of its section, which may wait for a bounded time if the domain has used up its
    /// memory budget.
    ///
    /// ```
    /// let mut map = stillpoint_map::BTreeMap::from([(1, "one".to_owned())]);
    /// let value: Option<String> = map.remove(&1);
    /// assert_eq!(value.as_deref(), Some("one"));
    /// assert_eq!(map.remove(&1), None);
    /// ```
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        Some(self.remove_entry(key)?.1)
    }

    /// Removes an entry, and returns its key and value. Otherwise as [`remove`](Self::remove).
    ///
    /// ```
    /// let mut map = stillpoint_map::BTreeMap::from([("a".to_owned(), 1)]);
    /// assert_eq!(map.remove_entry("a"), Some(("a".to_owned(), 1)));
    /// ```
    pub fn remove_entry<Q>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        // SAFETY: `&mut self` excludes other threads, and only the returned entry removes.
        let found = unsafe {
            let alone = PinnedOrdered::of(&self.store);
            OccupiedEntry::of(alone, alone.locate_by(key)?)?
        };
        Some(found.remove_entry())
    }

    /// Removes the first entry, and returns its key and value. Otherwise as [`remove`](Self::remove).
    ///
    /// ```
    /// let mut map = stillpoint_map::BTreeMap::from([(2, "b"), (1, "a")]);
    /// assert_eq!(map.pop_first(), Some((1, "a")));
    /// assert_eq!(map.pop_last(), Some((2, "b")));
    /// assert_eq!(map.pop_first(), None);
    /// ```
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        Some(self.first_entry()?.remove_entry())
    }

    /// Removes the last entry, and returns its key and value. Otherwise as [`remove`](Self::remove).
    ///
    /// ```
    /// let mut map = stillpoint_map::BTreeMap::from([(2, "b"), (1, "a")]);
    /// assert_eq!(map.pop_last(), Some((2, "b")));
    /// ```
    pub fn pop_last(&mut self) -> Option<(K, V)> {
        Some(self.last_entry()?.remove_entry())
    }

    /// Removes the entries for which `keep` returns false, and drops them at once.
    /// [`PinnedBTreeMap::retain`](crate::PinnedBTreeMap::retain) does so while other threads use the map.
    ///
    /// If `keep` or a drop panics, the entries that have not been visited stay. A section is open until this
    /// returns.
    ///
    /// ```
    /// let mut map: stillpoint_map::BTreeMap<u32, u32> = (0..10).map(|key| (key, key)).collect();
    /// map.retain(|key, value| {
    ///     *value += 1;
    ///     key % 5 == 0
    /// });
    /// assert_eq!(map, [(0, 1), (5, 6)].into());
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        // A merge retires nodes that the walk is at: the section keeps them.
        let pinned = self.pin();
        let store = pinned.store();
        let mut walk = store.walk();
        while let Some(head) = walk.next(false) {
            let entry = head.cast::<Entry<K, V>>();
            // SAFETY: of the map that is borrowed mutably; `keep` has the only references, until it returns.
            if unsafe {
                let (key, value) = IterMut::pair(entry);
                keep(key, value)
            } {
                continue;
            }
            // SAFETY: the entry stays in the map, which is borrowed mutably, until it is taken out below.
            let found = unsafe {
                let place = store.locate_by::<K>(&(*entry.as_ptr()).key);
                place.and_then(|place| OccupiedEntry::of(store, place))
            };
            let Some(found) = found.filter(|found| found.entry == entry) else {
                continue;
            };
            let is_merge_due = store.is_merge_due(&found.place);
            let ((key, value), is_freed) = found.take();
            drop(value);
            if is_merge_due {
                store.merge_near(&key);
            }
            if is_freed && let Some((path, place)) = store.locate_by(&key) {
                // The walk was in nodes that are no more.
                walk.begin_at(false, path, &place);
            }
        }
    }
}
