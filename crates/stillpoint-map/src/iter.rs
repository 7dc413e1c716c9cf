//! The iterators of the maps.

use crate::{entries::Entries, owned::OwnedEntries};
use std::{fmt, iter::FusedIterator};

/// The entries of a map: what [`PinnedHashMap::iter`](crate::PinnedHashMap::iter) returns.
#[must_use = "iterators are lazy"]
pub struct Iter<'g, K, V>(pub(crate) Entries<'g, K, V>);

impl<'g, K, V> Iterator for Iter<'g, K, V> {
    type Item = (&'g K, &'g V);

    #[inline]
    fn next(&mut self) -> Option<(&'g K, &'g V)> {
        Some(self.0.next()?.get().pair())
    }

    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, mut visit: F) -> B {
        self.0
            .fold(init, |folded, entry| visit(folded, entry.get().pair()))
    }
}

/// The keys of a map: what [`PinnedHashMap::keys`](crate::PinnedHashMap::keys) returns.
#[must_use = "iterators are lazy"]
pub struct Keys<'g, K, V>(pub(crate) Iter<'g, K, V>);

impl<'g, K, V> Iterator for Keys<'g, K, V> {
    type Item = &'g K;

    #[inline]
    fn next(&mut self) -> Option<&'g K> {
        Some(self.0.next()?.0)
    }

    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, mut visit: F) -> B {
        self.0.fold(init, |folded, pair| visit(folded, pair.0))
    }
}

/// The values of a map: what [`PinnedHashMap::values`](crate::PinnedHashMap::values) returns.
#[must_use = "iterators are lazy"]
pub struct Values<'g, K, V>(pub(crate) Iter<'g, K, V>);

impl<'g, K, V> Iterator for Values<'g, K, V> {
    type Item = &'g V;

    #[inline]
    fn next(&mut self) -> Option<&'g V> {
        Some(self.0.next()?.1)
    }

    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, mut visit: F) -> B {
        self.0.fold(init, |folded, pair| visit(folded, pair.1))
    }
}

impl<K, V> FusedIterator for Iter<'_, K, V> {}
impl<K, V> FusedIterator for Keys<'_, K, V> {}
impl<K, V> FusedIterator for Values<'_, K, V> {}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V> Clone for Keys<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V> Clone for Values<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Iter<'_, K, V> {
    /// Shows the entries that are left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl<K: fmt::Debug, V> fmt::Debug for Keys<'_, K, V> {
    /// Shows the keys that are left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl<K, V: fmt::Debug> fmt::Debug for Values<'_, K, V> {
    /// Shows the values that are left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

/// The entries of a map that was taken apart. Those that are not taken are dropped with this.
pub struct IntoIter<K, V>(pub(crate) OwnedEntries<K, V>);

impl<K, V> Iterator for IntoIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        let entry = self.0.next()?;
        Some((entry.key, entry.value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}

/// The keys of a map that was taken apart: what
/// [`HashMap::into_keys`](crate::HashMap::into_keys) returns.
pub struct IntoKeys<K, V>(pub(crate) IntoIter<K, V>);

impl<K, V> Iterator for IntoKeys<K, V> {
    type Item = K;

    fn next(&mut self) -> Option<K> {
        Some(self.0.next()?.0)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

/// The values of a map that was taken apart: what
/// [`HashMap::into_values`](crate::HashMap::into_values) returns.
pub struct IntoValues<K, V>(pub(crate) IntoIter<K, V>);

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
        let entries = self.0.iter().map(|entry| entry.get().pair());
        f.debug_list().entries(entries).finish()
    }
}

impl<K: fmt::Debug, V> fmt::Debug for IntoKeys<K, V> {
    /// Shows the keys that are left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.0.iter().map(|entry| &entry.get().key);
        f.debug_list().entries(keys).finish()
    }
}

impl<K, V: fmt::Debug> fmt::Debug for IntoValues<K, V> {
    /// Shows the values that are left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.0.0.iter().map(|entry| &entry.get().value);
        f.debug_list().entries(values).finish()
    }
}

impl<K, V> ExactSizeIterator for IntoIter<K, V> {}
impl<K, V> ExactSizeIterator for IntoKeys<K, V> {}
impl<K, V> ExactSizeIterator for IntoValues<K, V> {}
impl<K, V> FusedIterator for IntoIter<K, V> {}
impl<K, V> FusedIterator for IntoKeys<K, V> {}
impl<K, V> FusedIterator for IntoValues<K, V> {}
