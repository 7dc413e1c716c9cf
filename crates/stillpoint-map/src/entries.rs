//! A walk over the entries of a map, with their types.

use crate::{
    entry::{Entry, Found},
    walk::Walk,
};
use std::marker::PhantomData;

/// A walk over a map's entries.
#[derive(Debug)]
pub struct Entries<'g, K, V> {
    walk: Walk<'g>,
    entries: PhantomData<&'g Entry<K, V>>,
}

impl<'g, K, V> Entries<'g, K, V> {
    /// The entries that a walk finds.
    ///
    /// # Safety
    ///
    /// They are of these types.
    pub(crate) unsafe fn of(walk: Walk<'g>) -> Self {
        Self {
            walk,
            entries: PhantomData,
        }
    }

    /// Where another walk would go on, once this one is through with its bucket.
    pub fn position(&self) -> Option<u64> {
        self.walk.position()
    }

    /// Another walk, from a hash on, in the same section.
    #[cfg(feature = "rayon")]
    pub fn at(&self, first: u64) -> Self {
        Self {
            walk: self.walk.at(first),
            entries: PhantomData,
        }
    }

    /// The entries of the next home, if there is one.
    pub fn next_home(&mut self) -> impl Iterator<Item = Found<'g, K, V>> {
        // SAFETY: that of `of`.
        self.walk.next_home().map(|head| unsafe { Found::of(head) })
    }
}

impl<K, V> Clone for Entries<'_, K, V> {
    fn clone(&self) -> Self {
        Self {
            walk: self.walk.clone(),
            entries: PhantomData,
        }
    }
}

impl<'g, K, V> Iterator for Entries<'g, K, V> {
    type Item = Found<'g, K, V>;

    #[inline]
    fn next(&mut self) -> Option<Found<'g, K, V>> {
        // SAFETY: as in `next_home`.
        self.walk.next().map(|head| unsafe { Found::of(head) })
    }

    #[inline]
    fn fold<B, F: FnMut(B, Found<'g, K, V>) -> B>(self, init: B, mut visit: F) -> B {
        self.walk.fold(init, |folded, head| {
            // SAFETY: as in `next_home`.
            visit(folded, unsafe { Found::of(head) })
        })
    }
}
