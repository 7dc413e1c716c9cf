//! The iterators of the hash maps, and the halves of the entries of all.

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

/// An iterator whose entries that are left can be looked at.
pub trait Left {
    type Key;
    type Value;
    /// Visits them, and leaves the iterator where it is.
    fn visit_left(&self, visit: impl FnMut(&Self::Key, &Self::Value));
}

/// Defines an iterator over one half of each entry.
macro_rules! half {
    ($(#[$attribute:meta])* $name:ident: $half:tt, $item:ident of $left:ident) => {
        $(#[$attribute])*
        #[derive(Clone)]
        #[must_use = "iterators are lazy"]
        pub struct $name<I>(pub(crate) I);

        impl<K, V, I: Iterator<Item = (K, V)>> Iterator for $name<I> {
            type Item = $item;

            #[inline]
            fn next(&mut self) -> Option<$item> {
                Some(self.0.next()?.$half)
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                self.0.size_hint()
            }

            #[inline]
            fn fold<B, F: FnMut(B, $item) -> B>(self, init: B, mut visit: F) -> B {
                self.0.fold(init, |folded, pair| visit(folded, pair.$half))
            }
        }

        impl<K, V, I: DoubleEndedIterator<Item = (K, V)>> DoubleEndedIterator for $name<I> {
            #[inline]
            fn next_back(&mut self) -> Option<$item> {
                Some(self.0.next_back()?.$half)
            }
        }

        impl<K, V, I: ExactSizeIterator<Item = (K, V)>> ExactSizeIterator for $name<I> {}
        impl<K, V, I: FusedIterator<Item = (K, V)>> FusedIterator for $name<I> {}

        impl<I: Left<$left: fmt::Debug>> fmt::Debug for $name<I> {
            /// Shows those that are left.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut list = f.debug_list();
                self.0.visit_left(|key, value| _ = list.entry((key, value).$half));
                list.finish()
            }
        }
    };
}

half! {
    /// The keys of the entries that an iterator visits: what `keys` and `into_keys` of the maps and
    /// `iter` of the sets return. Can be printed if the keys can.
    Keys: 0, K of Key
}

half! {
    /// The values of the entries that an iterator visits: what `values` and `into_values` of the maps
    /// return. Can be printed if the values can.
    Values: 1, V of Value
}

impl<K, V> FusedIterator for Iter<'_, K, V> {}

impl<K, V> Clone for Iter<'_, K, V> {
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

impl<K, V> Left for Iter<'_, K, V> {
    type Key = K;
    type Value = V;

    fn visit_left(&self, mut visit: impl FnMut(&K, &V)) {
        self.clone().for_each(|(key, value)| visit(key, value));
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

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for IntoIter<K, V> {
    /// Shows the entries that are left.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.0.iter().map(|entry| entry.get().pair());
        f.debug_list().entries(entries).finish()
    }
}

impl<K, V> Left for IntoIter<K, V> {
    type Key = K;
    type Value = V;

    fn visit_left(&self, mut visit: impl FnMut(&K, &V)) {
        self.0
            .iter()
            .for_each(|entry| visit(&entry.key, &entry.value));
    }
}

impl<K, V> ExactSizeIterator for IntoIter<K, V> {}
impl<K, V> FusedIterator for IntoIter<K, V> {}
