//! The iterators of the ordered map.

use super::{cursor::Cursor, owned::OwnedEntries};
use std::{fmt, iter::FusedIterator};

/// An iterator over the entries, in order, which visits as [`PinnedBTreeMap::iter`](crate::PinnedBTreeMap::iter) says.
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

/// An iterator over the entries of a range, in order: what [`PinnedBTreeMap::range`](crate::PinnedBTreeMap::range) returns.
#[must_use = "iterators are lazy"]
pub struct Range<'g, K, V>(pub(super) Cursor<'g, K, V>);

impl<'g, K: Ord, V> Iterator for Range<'g, K, V> {
    type Item = (&'g K, &'g V);

    #[inline]
    fn next(&mut self) -> Option<(&'g K, &'g V)> {
        Some(self.0.next()?.pair())
    }
}

impl<'g, K: Ord, V> DoubleEndedIterator for Range<'g, K, V> {
    #[inline]
    fn next_back(&mut self) -> Option<(&'g K, &'g V)> {
        Some(self.0.next_back()?.pair())
    }
}

impl<K: Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for Range<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

/// An iterator over the keys.
#[must_use = "iterators are lazy"]
pub struct Keys<'g, K, V>(pub(super) Iter<'g, K, V>);

impl<'g, K: Ord, V> Iterator for Keys<'g, K, V> {
    type Item = &'g K;

    #[inline]
    fn next(&mut self) -> Option<&'g K> {
        Some(self.0.next()?.0)
    }
}

impl<'g, K: Ord, V> DoubleEndedIterator for Keys<'g, K, V> {
    #[inline]
    fn next_back(&mut self) -> Option<&'g K> {
        Some(self.0.next_back()?.0)
    }
}

impl<K: Ord + fmt::Debug, V> fmt::Debug for Keys<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

/// An iterator over the values, in the order of their keys.
#[must_use = "iterators are lazy"]
pub struct Values<'g, K, V>(pub(super) Iter<'g, K, V>);

impl<'g, K: Ord, V> Iterator for Values<'g, K, V> {
    type Item = &'g V;

    #[inline]
    fn next(&mut self) -> Option<&'g V> {
        Some(self.0.next()?.1)
    }
}

impl<'g, K: Ord, V> DoubleEndedIterator for Values<'g, K, V> {
    #[inline]
    fn next_back(&mut self) -> Option<&'g V> {
        Some(self.0.next_back()?.1)
    }
}

impl<K: Ord, V: fmt::Debug> fmt::Debug for Values<'_, K, V> {
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

impl<K: Ord, V> FusedIterator for Range<'_, K, V> {}

impl<K, V> Clone for Range<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Ord, V> FusedIterator for Keys<'_, K, V> {}

impl<K, V> Clone for Keys<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Ord, V> FusedIterator for Values<'_, K, V> {}

impl<K, V> Clone for Values<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
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

/// An iterator over the keys of a map that was given up, in order.
pub struct IntoKeys<K, V>(pub(super) IntoIter<K, V>);

impl<K, V> Iterator for IntoKeys<K, V> {
    type Item = K;

    fn next(&mut self) -> Option<K> {
        Some(self.0.next()?.0)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

/// An iterator over the values of a map that was given up, in order.
pub struct IntoValues<K, V>(pub(super) IntoIter<K, V>);

impl<K, V> Iterator for IntoValues<K, V> {
    type Item = V;

    fn next(&mut self) -> Option<V> {
        Some(self.0.next()?.1)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for IntoIter<K, V> {
    /// Shows the entries that are left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}

impl<K: fmt::Debug, V> fmt::Debug for IntoKeys<K, V> {
    /// Shows the keys that are left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.0.iter().map(|(key, _)| key);
        f.debug_list().entries(keys).finish()
    }
}

impl<K, V: fmt::Debug> fmt::Debug for IntoValues<K, V> {
    /// Shows the values that are left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.0.0.iter().map(|(_, value)| value);
        f.debug_list().entries(values).finish()
    }
}

impl<K, V> ExactSizeIterator for IntoIter<K, V> {}
impl<K, V> FusedIterator for IntoIter<K, V> {}
impl<K, V> ExactSizeIterator for IntoKeys<K, V> {}
impl<K, V> FusedIterator for IntoKeys<K, V> {}
impl<K, V> ExactSizeIterator for IntoValues<K, V> {}
impl<K, V> FusedIterator for IntoValues<K, V> {}
