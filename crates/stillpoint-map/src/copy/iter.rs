//! Iterators over a map's entries, which are copies of them.

use super::{
    map::{CopyMap, PinnedCopyMap},
    walk::Walk,
};
use crate::{iter::Left, section::Pinned};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    iter::FusedIterator,
    vec,
};
use stillpoint::Cookie;

/// The entries of a map: what [`PinnedCopyMap::iter`] returns.
#[must_use = "iterators are lazy"]
pub struct CopyIter<'g, K, V, S> {
    map: &'g CopyMap<K, V, S>,
    walk: Walk<'g, K, V, Cookie>,
}

impl<'g, K: Copy + Hash + Eq, V: Copy, S: BuildHasher> CopyIter<'g, K, V, S> {
    /// From a position.
    pub(super) fn from(map: &'g PinnedCopyMap<K, V, S>, position: Option<u64>) -> Self {
        Self {
            map,
            walk: Walk::from(map.core().map(Pinned::live), position),
        }
    }

    pub(super) fn position(&self) -> Option<u64> {
        self.walk.position()
    }

    /// Visits the next bucket, if there is one.
    pub(super) fn step(&mut self) {
        self.walk.step();
    }

    /// The next entry of the bucket that is being visited.
    pub(super) fn next_here(&mut self) -> Option<(K, V)> {
        self.walk.next_here(&|key| self.map.hash(key))
    }

    #[cfg(feature = "rayon")]
    pub(super) fn hash_of(&self, key: &K) -> u64 {
        self.map.hash(key)
    }

    /// Those from a hash on.
    #[cfg(feature = "rayon")]
    pub(super) fn at(self, position: u64) -> Self {
        Self {
            map: self.map,
            walk: self.walk.at(position),
        }
    }
}

impl<K: Copy + Hash + Eq, V: Copy, S: BuildHasher> Iterator for CopyIter<'_, K, V, S> {
    type Item = (K, V);

    #[inline]
    fn next(&mut self) -> Option<(K, V)> {
        self.walk.next(&|key| self.map.hash(key))
    }

    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, visit: F) -> B {
        self.walk.fold(init, &|key| self.map.hash(key), visit)
    }
}

impl<K: Copy + Hash + Eq, V: Copy, S: BuildHasher> FusedIterator for CopyIter<'_, K, V, S> {}

impl<K, V, S> Clone for CopyIter<'_, K, V, S> {
    fn clone(&self) -> Self {
        Self {
            map: self.map,
            walk: self.walk.clone(),
        }
    }
}

impl<K, V, S> fmt::Debug for CopyIter<'_, K, V, S>
where
    K: Copy + Hash + Eq + fmt::Debug,
    V: Copy + fmt::Debug,
    S: BuildHasher,
{
    /// Shows the entries that are left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl<K: Copy + Hash + Eq, V: Copy, S: BuildHasher> Left for CopyIter<'_, K, V, S> {
    type Key = K;
    type Value = V;

    fn visit_left(&self, mut visit: impl FnMut(&K, &V)) {
        self.clone().for_each(|(key, value)| visit(&key, &value));
    }
}

/// The entries of a map that was taken apart.
#[derive(Clone)]
pub struct CopyIntoIter<K, V>(pub(super) vec::IntoIter<(K, V)>);

impl<K, V> Iterator for CopyIntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for CopyIntoIter<K, V> {
    /// Shows the entries that are left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.as_slice()).finish()
    }
}

impl<K, V> Left for CopyIntoIter<K, V> {
    type Key = K;
    type Value = V;

    fn visit_left(&self, mut visit: impl FnMut(&K, &V)) {
        self.0
            .as_slice()
            .iter()
            .for_each(|(key, value)| visit(key, value));
    }
}

impl<K, V> ExactSizeIterator for CopyIntoIter<K, V> {}
impl<K, V> FusedIterator for CopyIntoIter<K, V> {}
