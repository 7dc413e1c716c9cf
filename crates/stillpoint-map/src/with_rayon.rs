//! The feature `rayon`: maps and sets that are filled by many threads, and visited by many.

use crate::{HashMap, HashSet, PinnedHashMap, PinnedHashSet, entries::Entries};
use rayon::iter::{
    FromParallelIterator, IntoParallelIterator, ParallelExtend, ParallelIterator,
    plumbing::{Folder, UnindexedConsumer, UnindexedProducer, bridge_unindexed},
};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    ops::RangeInclusive,
};

/// The entries of a map, visited by many threads: what `par_iter` of a [`PinnedHashMap`] returns. For
/// which entries it visits, see [the guarantees](HashMap#guarantees).
///
/// The calling thread's section is open meanwhile, and keeps what the other threads find.
#[must_use = "iterators are lazy"]
pub struct ParIter<'g, K, V>(Range<Entries<'g, K, V>>);

impl<K, V> fmt::Debug for ParIter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParIter").finish_non_exhaustive()
    }
}

impl<K, V> Clone for ParIter<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<'g, K: Sync, V: Sync> ParallelIterator for ParIter<'g, K, V> {
    type Item = (&'g K, &'g V);

    fn drive_unindexed<C: UnindexedConsumer<Self::Item>>(self, consumer: C) -> C::Result {
        bridge_unindexed(self.0, consumer)
    }
}

impl<'g, K: Sync, V: Sync, S: Sync> IntoParallelIterator for &'g PinnedHashMap<K, V, S> {
    type Item = (&'g K, &'g V);
    type Iter = ParIter<'g, K, V>;

    fn into_par_iter(self) -> ParIter<'g, K, V> {
        ParIter(Range::of(self.store().iter(), self.len()))
    }
}

/// The values of a set, visited by many threads: what `par_iter` of a [`PinnedHashSet`] returns.
#[derive(Debug)]
#[must_use = "iterators are lazy"]
pub struct ParValues<'g, T>(ParIter<'g, T, ()>);

impl<T> Clone for ParValues<'_, T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<'g, T: Sync> ParallelIterator for ParValues<'g, T> {
    type Item = &'g T;

    fn drive_unindexed<C: UnindexedConsumer<Self::Item>>(self, consumer: C) -> C::Result {
        self.0.map(|(value, ())| value).drive_unindexed(consumer)
    }
}

impl<'g, T: Sync, S: Sync> IntoParallelIterator for &'g PinnedHashSet<T, S> {
    type Item = &'g T;
    type Iter = ParValues<'g, T>;

    fn into_par_iter(self) -> ParValues<'g, T> {
        ParValues(self.entries().into_par_iter())
    }
}

/// A walk over the entries of a map that has not begun.
pub trait Walk: Clone + Send {
    type Item;

    /// Visits the entries whose hashes are in a range, until the folder is full.
    fn visit<F: Folder<Self::Item>>(self, hashes: RangeInclusive<u64>, folder: F) -> F;
}

/// The entries whose hashes are in a range, which is split for threads.
#[derive(Clone)]
pub struct Range<W> {
    walk: W,
    first: u64,
    last: u64,
    /// A smaller one is not worth a thread.
    least: u64,
}

impl<W> Range<W> {
    /// Number of entries that are worth a thread, about.
    const WORTH: u64 = 64;

    /// Returns the range of all hashes, of a map with that number of entries.
    pub fn of(walk: W, entries: usize) -> Self {
        Self {
            walk,
            first: 0,
            last: u64::MAX,
            least: u64::MAX / (entries as u64 / Self::WORTH + 1),
        }
    }

    /// Returns it with this width as the least that is worth a thread.
    #[cfg(test)]
    pub fn with_least(self, least: u64) -> Self {
        Self { least, ..self }
    }
}

impl<W: Walk> UnindexedProducer for Range<W> {
    type Item = W::Item;

    fn split(mut self) -> (Self, Option<Self>) {
        let width = self.last - self.first;
        if width <= self.least {
            return (self, None);
        }
        let mut upper = self.clone();
        self.last = self.first + width / 2;
        upper.first = self.last + 1;
        (self, Some(upper))
    }

    fn fold_with<F: Folder<W::Item>>(self, folder: F) -> F {
        self.walk.visit(self.first..=self.last, folder)
    }
}

impl<'g, K: Sync, V: Sync> Walk for Entries<'g, K, V> {
    type Item = (&'g K, &'g V);

    fn visit<F: Folder<Self::Item>>(self, hashes: RangeInclusive<u64>, mut folder: F) -> F {
        let mut entries = self.at(*hashes.start());
        while entries.position().is_some_and(|hash| hash <= *hashes.end()) && !folder.full() {
            // The last home may have entries of the next range, too.
            for entry in entries.next_home() {
                if entry.hash() <= *hashes.end() {
                    folder = folder.consume(entry.get().pair());
                }
            }
        }
        folder
    }
}

/// Defines how many threads extend a map or a set, by a shared reference and by value, and make one.
macro_rules! par_extend {
    (
        $map:ident<$($param:ident),+> of $item:ty, |$pinned:ident, $entry:pat_param| $insert:expr,
        made where $made:ident: $default:path;
        $($bounds:tt)+
    ) => {
        impl<$($param),+> ParallelExtend<$item> for &$map<$($param),+>
        where
            $($bounds)+
        {
            /// Inserts the entries, with a section for each.
            fn par_extend<I: IntoParallelIterator<Item = $item>>(&mut self, entries: I) {
                let map = *self;
                entries.into_par_iter().for_each(|$entry| {
                    let $pinned = map.pin();
                    $insert;
                });
            }
        }

        impl<$($param),+> ParallelExtend<$item> for $map<$($param),+>
        where
            $($bounds)+
        {
            fn par_extend<I: IntoParallelIterator<Item = $item>>(&mut self, entries: I) {
                (&*self).par_extend(entries);
            }
        }

        /// Makes one in the global domain. Of entries with equal keys, any one stays.
        impl<$($param),+> FromParallelIterator<$item> for $map<$($param),+>
        where
            $made: $default,
            $($bounds)+
        {
            fn from_par_iter<I: IntoParallelIterator<Item = $item>>(entries: I) -> Self {
                let mut map = Self::default();
                map.par_extend(entries);
                map
            }
        }
    };
}
pub(crate) use par_extend;

par_extend! {
    HashMap<K, V, S> of (K, V), |map, (key, value)| map.insert(key, value),
    made where S: Default;
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Sync,
}

par_extend! {
    HashSet<T, S> of T, |set, value| set.insert(value),
    made where S: Default;
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Sync,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::ThreadPoolBuilder;

    /// So it is when the table shrinks during an iteration.
    #[test]
    fn ranges_smaller_than_a_home_have_each_entry_once() {
        let map: HashMap<u32, u32> = (0..12).map(|key| (key, key)).collect();
        let pinned = map.pin();
        let range = Range::of(pinned.store().iter(), pinned.len());
        let entries = ParIter(range.with_least(u64::MAX >> 8));
        let threads = ThreadPoolBuilder::new().num_threads(8).build().unwrap();
        let mut keys: Vec<u32> = threads.install(|| entries.map(|(key, _)| *key).collect());
        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..12));
    }
}
