//! The iterators of the ordered map.

use super::{cursor::Cursor, owned::OwnedEntries};
use crate::iter::Left;
use std::{fmt, iter::FusedIterator};

/// An iterator over the entries of a map or of a range, in order: what
/// [`PinnedBTreeMap::iter`](crate::PinnedBTreeMap::iter) and [`range`](crate::PinnedBTreeMap::range) return.
#[must_use = "iterators are lazy"]
pub struct Iter<'g, K, V>(pub(super) Cursor<'g, K, V>);

impl<'g, K: Ord, V> Iterator for Iter<'g, K, V> {
    type Item = (&'g K, &'g V);

    #[inline]
    fn next(&mut self) -> Option<(&'g K, &'g V)> {
        Some(self.0.next()?.pair())
    }
}

impl<'g, K: Ord, V> DoubleEndedIterator for Iter<'g, K, V> {
    #[inline]
    fn next_back(&mut self) -> Option<(&'g K, &'g V)> {
        Some(self.0.next_back()?.pair())
    }
}

impl<K: Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for Iter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl<K: Ord, V> FusedIterator for Iter<'_, K, V> {}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Ord, V> Left for Iter<'_, K, V> {
    type Key = K;
    type Value = V;

    fn visit_left(&self, mut visit: impl FnMut(&K, &V)) {
        self.clone().for_each(|(key, value)| visit(key, value));
    }
}

/// An iterator over the entries of a map that was given up, in order.
pub struct IntoIter<K, V>(pub(super) OwnedEntries<K, V>);

impl<K, V> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}

impl<K, V> DoubleEndedIterator for IntoIter<K, V> {
    fn next_back(&mut self) -> Option<(K, V)> {
        self.0.next_back()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for IntoIter<K, V> {
    /// Shows the entries that are left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}

impl<K, V> Left for IntoIter<K, V> {
    type Key = K;
    type Value = V;

    fn visit_left(&self, mut visit: impl FnMut(&K, &V)) {
        self.0.iter().for_each(|(key, value)| visit(key, value));
    }
}

impl<K, V> ExactSizeIterator for IntoIter<K, V> {}
impl<K, V> FusedIterator for IntoIter<K, V> {}
