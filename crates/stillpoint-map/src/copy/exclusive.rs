//! The methods of a `CopyMap` that is borrowed mutably.
//!
//! No reader is left then, as [`crate::exclusive`] says; and of values readers have copies alone. But the
//! service thread may be moving entries to another table, which lie in the table itself. So its move
//! is ended first (`settle`): then it moves none until the next change of the map, which the borrow excludes.

use super::{
    iter::CopyIntoIter,
    map::{CopyMap, PinnedCopyMap},
    walk::Walk,
};
use crate::{iter::Values, section::Pinned};
use equivalent::Equivalent;
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    iter::FusedIterator,
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};
use stillpoint::Cookie;

/// The entries of a map, with mutable values: what [`CopyMap::iter_mut`] returns.
#[must_use = "iterators are lazy"]
pub struct CopyIterMut<'m, K, V, S> {
    map: &'m CopyMap<K, V, S>,
    walk: Walk<'m, K, V, Cookie>,
    /// How many entries have not been returned.
    left: usize,
    entries: PhantomData<&'m mut (K, V)>,
}

impl<'m, K: Copy + Hash + Eq, V: Copy, S: BuildHasher> Iterator for CopyIterMut<'m, K, V, S> {
    type Item = (&'m K, &'m mut V);

    #[inline]
    fn next(&mut self) -> Option<(&'m K, &'m mut V)> {
        let (key, value) = self.walk.next_place(&|key| self.map.hash(key))?;
        self.left = self.left.saturating_sub(1);
        // SAFETY: this borrows the map mutably, whose table is settled: so the walk finds each entry once,
        // and reads no values.
        Some(unsafe { (&*key, &mut *value) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K: Copy + Hash + Eq, V: Copy, S: BuildHasher> ExactSizeIterator for CopyIterMut<'_, K, V, S> {}

impl<K: Copy + Hash + Eq, V: Copy, S: BuildHasher> FusedIterator for CopyIterMut<'_, K, V, S> {}

impl<K, V, S> fmt::Debug for CopyIterMut<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyIterMut").finish_non_exhaustive()
    }
}

impl<'m, K, V, S> IntoIterator for &'m mut CopyMap<K, V, S>
where
    K: Copy + Hash + Eq + Send + 'static,
    V: Copy + Send + 'static,
    S: BuildHasher,
{
    type Item = (&'m K, &'m mut V);
    type IntoIter = CopyIterMut<'m, K, V, S>;

    fn into_iter(self) -> CopyIterMut<'m, K, V, S> {
        self.iter_mut()
    }
}

impl<K, V, S> PinnedCopyMap<K, V, S>
where
    K: Copy + Hash + Eq + Send + 'static,
    V: Copy + Send + 'static,
    S: BuildHasher,
{
    /// Finishes the move under way, so that the service thread moves no entry until the next change.
    fn settle(&self) {
        let Some(shared) = self.root.shared() else {
            return;
        };
        // SAFETY: of the map's `Arc`, which stays.
        let shared = ManuallyDrop::new(unsafe { Arc::from_raw(shared.as_ptr()) });
        if Arc::strong_count(&shared) == 1 {
            // No callback is queued or runs. Acquire, pairs with `drop` of the callback's handle: what it
            // has moved.
            fence(Ordering::Acquire);
            return;
        }
        let _excluded = shared.core.driving.exclude();
        // A callback that comes then finds nothing to move. Tables that grow are moved by changes alone.
        let Some(writer) = self.writer() else { return };
        while writer.to_drive().is_some() {
            writer.help();
        }
    }

    /// Where the value of a key is, until the map is changed.
    fn place<Q>(&self, key: &Q) -> Option<NonNull<V>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.settle();
        let look = self
            .writer()?
            .look(self.hash(key), |other| key.equivalent(other));
        NonNull::new(look.value()?)
    }
}

impl<K, V, S> CopyMap<K, V, S>
where
    K: Copy + Hash + Eq + Send + 'static,
    V: Copy + Send + 'static,
    S: BuildHasher,
{
    /// Returns the value of a key, mutably, where it lies in the table.
    ///
    /// If the domain's service thread is moving the table, waits for its slice and ends the move first, which
    /// takes time for the entries that are left, and may allocate. The key may be anything that hashes and
    /// compares like one, as in [`PinnedCopyMap::get`](crate::PinnedCopyMap::get).
    ///
    /// ```
    /// let mut map = stillpoint_map::CopyMap::from([(7, 1)]);
    /// *map.get_mut(&7).unwrap() += 1;
    /// assert_eq!(map.pin().get(&7), Some(2));
    /// ```
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let mut place = self.pin().place(key)?;
        // SAFETY: the map is borrowed mutably for as long as the result, and so is not changed.
        Some(unsafe { place.as_mut() })
    }

    /// Visits the entries, with mutable values, in no particular order. May end a move first, as
    /// [`get_mut`](Self::get_mut) does.
    ///
    /// ```
    /// let mut map = stillpoint_map::CopyMap::from([('a', 1), ('b', 2)]);
    /// for (_, number) in &mut map {
    ///     *number *= 10;
    /// }
    /// assert_eq!(map.pin().get(&'b'), Some(20));
    /// ```
    pub fn iter_mut(&mut self) -> CopyIterMut<'_, K, V, S> {
        self.pin().settle();
        // SAFETY: alone with the map, which is borrowed mutably and settled.
        let core = self.root.core().map(|core| unsafe { Pinned::of(core) });
        CopyIterMut {
            map: self,
            walk: Walk::from(core.map(Pinned::live), Some(0)),
            left: self.len(),
            entries: PhantomData,
        }
    }

    /// Visits the values, mutably, as [`iter_mut`](Self::iter_mut) does.
    ///
    /// ```
    /// let mut map = stillpoint_map::CopyMap::from([('a', 1), ('b', 2)]);
    /// map.values_mut().for_each(|number| *number += 1);
    /// assert_eq!(map.into_values().sum::<i32>(), 5);
    /// ```
    pub fn values_mut(&mut self) -> Values<CopyIterMut<'_, K, V, S>> {
        Values(self.iter_mut())
    }

    /// Removes the entries for which `keep` returns false. `keep` may change the value of an entry that stays.
    /// Each entry costs a look-up. A section is open until this returns. Ends moves first, as
    /// [`get_mut`](Self::get_mut) does.
    ///
    /// ```
    /// let mut map: stillpoint_map::CopyMap<u32, u32> = (0..10).map(|key| (key, key)).collect();
    /// map.retain(|key, value| {
    ///     *value += 1;
    ///     key % 5 == 0
    /// });
    /// assert_eq!(map, [(0, 1), (5, 6)].into());
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let pinned = self.pin();
        for (key, _) in pinned.iter() {
            if let Some(mut place) = pinned.place(&key)
                // SAFETY: the map is borrowed mutably, and is not changed before `keep` returns.
                && !keep(&key, unsafe { place.as_mut() })
            {
                pinned.remove(&key);
            }
        }
    }

    /// Empties the map, and returns its entries, which it copies into a list. Waits for the service thread,
    /// if that is moving the table, for a millisecond or two.
    ///
    /// The capacity that the map was made with or has reserved stays.
    ///
    /// ```
    /// let mut map = stillpoint_map::CopyMap::from([('a', 1), ('b', 2)]);
    /// assert_eq!(map.drain().map(|(_, number)| number).sum::<i32>(), 3);
    /// assert!(map.is_empty());
    /// ```
    pub fn drain(&mut self) -> CopyIntoIter<K, V> {
        let entries: Vec<_> = self.pin().iter().collect();
        drop(self.root.replace());
        CopyIntoIter(entries.into_iter())
    }
}
