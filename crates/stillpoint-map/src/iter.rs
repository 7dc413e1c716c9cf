//! The iterators of the maps.

use crate::store::{Entries, OwnedEntries};
use std::{fmt, iter::FusedIterator};

/// The entries of a map: [`HashMap::iter`](crate::HashMap::iter).
pub struct Iter<'g, K, V>(pub(crate) Entries<'g, K, V>);

impl<'g, K, V> Iterator for Iter<'g, K, V> {
    type Item = (&'g K, &'g V);

    #[inline]
    fn next(&mut self) -> Option<(&'g K, &'g V)> {
        Some(self.0.next()?.get().pair())
    }
}

/// The keys of a map: [`HashMap::keys`](crate::HashMap::keys).
pub struct Keys<'g, K, V>(pub(crate) Iter<'g, K, V>);

impl<'g, K, V> Iterator for Keys<'g, K, V> {
    type Item = &'g K;

    #[inline]
    fn next(&mut self) -> Option<&'g K> {
        Some(self.0.next()?.0)
    }
}

/// The values of a map: [`HashMap::values`](crate::HashMap::values).
pub struct Values<'g, K, V>(pub(crate) Iter<'g, K, V>);

impl<'g, K, V> Iterator for Values<'g, K, V> {
    type Item = &'g V;

    #[inline]
    fn next(&mut self) -> Option<&'g V> {
        Some(self.0.next()?.1)
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

/// The entries of a map that was given up. Those that are not taken are dropped with this.
#[derive(Debug)]
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

impl<K, V> ExactSizeIterator for IntoIter<K, V> {}
impl<K, V> FusedIterator for IntoIter<K, V> {}
