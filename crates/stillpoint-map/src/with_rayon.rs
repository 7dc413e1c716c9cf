//! The feature `rayon`: maps and sets that are filled by many threads, and visited by many.

use crate::{HashMap, HashSet, PinnedHashMap, PinnedHashSet, entries::Entries};
use rayon::iter::{
    FromParallelIterator, IntoParallelIterator, ParallelExtend, ParallelIterator,
    plumbing::{Folder, UnindexedConsumer, UnindexedProducer, bridge_unindexed},
};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
};

/// The entries of a map, visited by many threads: what `par_iter` of a [`PinnedHashMap`] returns. For
/// which entries it visits, see [the guarantees](HashMap#guarantees).
///
/// The calling thread's section is open meanwhile, and keeps what the other threads find.
#[must_use = "iterators are lazy"]
pub struct ParIter<'g, K, V>(Range<'g, K, V>);

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
        ParIter(Range::of(self))
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
        ParValues(ParIter(Range::of(self.entries())))
    }
}

/// A range of hashes that is split for threads.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub first: u64,
    pub last: u64,
    /// A smaller one is not worth a thread.
    pub least: u64,
}

impl Span {
    /// About how many entries are worth a thread.
    const WORTH: u64 = 64;

    /// That of a map with so many entries.
    pub fn of(entries: usize) -> Self {
        Self {
            first: 0,
            last: u64::MAX,
            least: u64::MAX / (entries as u64 / Self::WORTH + 1),
        }
    }

    /// Two halves, or itself if they are not worth it.
    pub fn split(self) -> (Self, Option<Self>) {
        let width = self.last - self.first;
        if width <= self.least {
            return (self, None);
        }
        let middle = self.first + width / 2;
        let lower = Self {
            last: middle,
            ..self
        };
        let upper = Self {
            first: middle + 1,
            ..self
        };
        (lower, Some(upper))
    }
}

/// The entries whose hashes are in a range.
struct Range<'g, K, V> {
    /// A walk that has not begun, over all entries.
    entries: Entries<'g, K, V>,
    span: Span,
}

impl<K, V> Clone for Range<'_, K, V> {
    fn clone(&self) -> Self {
        self.with(self.span)
    }
}

impl<'g, K, V> Range<'g, K, V> {
    fn of<S>(map: &'g PinnedHashMap<K, V, S>) -> Self {
        Self {
            entries: map.store().iter(),
            span: Span::of(map.len()),
        }
    }
}

impl<K, V> Range<'_, K, V> {
    fn with(&self, span: Span) -> Self {
        Self {
            entries: self.entries.clone(),
            span,
        }
    }
}

impl<'g, K: Sync, V: Sync> UnindexedProducer for Range<'g, K, V> {
    type Item = (&'g K, &'g V);

    fn split(self) -> (Self, Option<Self>) {
        let (lower, upper) = self.span.split();
        (self.with(lower), upper.map(|upper| self.with(upper)))
    }

    fn fold_with<F: Folder<Self::Item>>(self, mut folder: F) -> F {
        let Span { first, last, .. } = self.span;
        let mut entries = self.entries.at(first);
        while entries.position().is_some_and(|hash| hash <= last) && !folder.full() {
            // The last home may have entries of the next range, too.
            for entry in entries.next_home() {
                if entry.hash() <= last {
                    folder = folder.consume(entry.get().pair());
                }
            }
        }
        folder
    }
}

/// Defines how a map is extended by many threads, by a shared reference and by value.
macro_rules! par_extend {
    ($map:ident<$($param:ident),+>, $($bounds:tt)+) => {
        impl<$($param),+> ParallelExtend<(K, V)> for &$map<$($param),+>
        where
            $($bounds)+
        {
            /// Inserts the entries, with a section for each.
            fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, entries: I) {
                let map = *self;
                entries.into_par_iter().for_each(|(key, value)| {
                    map.pin().insert(key, value);
                });
            }
        }

        impl<$($param),+> ParallelExtend<(K, V)> for $map<$($param),+>
        where
            $($bounds)+
        {
            fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, entries: I) {
                (&*self).par_extend(entries);
            }
        }
    };
}
pub(crate) use par_extend;

par_extend! {
    HashMap<K, V, S>,
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Sync,
}

/// Makes a map of the global domain. Of entries with equal keys, any one stays.
impl<K, V, S> FromParallelIterator<(K, V)> for HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Default + Sync,
{
    fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        map.par_extend(entries);
        map
    }
}

impl<T, S> ParallelExtend<T> for &HashSet<T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Sync,
{
    /// Adds the values, each in a section of its own.
    fn par_extend<I: IntoParallelIterator<Item = T>>(&mut self, values: I) {
        let set = *self;
        values.into_par_iter().for_each(|value| {
            set.pin().insert(value);
        });
    }
}

impl<T, S> ParallelExtend<T> for HashSet<T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Sync,
{
    fn par_extend<I: IntoParallelIterator<Item = T>>(&mut self, values: I) {
        (&*self).par_extend(values);
    }
}

/// Makes a set of the global domain. Of equal values, any one stays.
impl<T, S> FromParallelIterator<T> for HashSet<T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Default + Sync,
{
    fn from_par_iter<I: IntoParallelIterator<Item = T>>(values: I) -> Self {
        let mut set = Self::default();
        set.par_extend(values);
        set
    }
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
        let least = u64::MAX >> 8;
        let mut range = Range::of(&pinned);
        range.span.least = least;
        let entries = ParIter(range);
        let threads = ThreadPoolBuilder::new().num_threads(8).build().unwrap();
        let mut keys: Vec<u32> = threads.install(|| entries.map(|(key, _)| *key).collect());
        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..12));
    }
}
