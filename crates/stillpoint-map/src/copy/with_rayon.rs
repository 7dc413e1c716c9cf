//! The feature `rayon`, for maps of copies.

use super::{
    iter::CopyIter,
    map::{CopyMap, PinnedCopyMap},
};
use crate::with_rayon::{Span, par_extend};
use rayon::iter::{
    FromParallelIterator, IntoParallelIterator, ParallelExtend, ParallelIterator,
    plumbing::{Folder, UnindexedConsumer, UnindexedProducer, bridge_unindexed},
};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
};

/// Copies of the entries of a map, made by many threads: what `par_iter` of a [`PinnedCopyMap`]
/// returns. For which entries it visits, see [the guarantees](CopyMap#guarantees).
///
/// The calling thread's section is open meanwhile, and keeps what the other threads find.
#[must_use = "iterators are lazy"]
pub struct CopyParIter<'g, K, V, S>(Range<'g, K, V, S>);

impl<K, V, S> fmt::Debug for CopyParIter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyParIter").finish_non_exhaustive()
    }
}

impl<K, V, S> Clone for CopyParIter<'_, K, V, S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V, S> ParallelIterator for CopyParIter<'_, K, V, S>
where
    K: Copy + Hash + Eq + Send + Sync,
    V: Copy + Send + Sync,
    S: BuildHasher + Sync,
{
    type Item = (K, V);

    fn drive_unindexed<C: UnindexedConsumer<Self::Item>>(self, consumer: C) -> C::Result {
        bridge_unindexed(self.0, consumer)
    }
}

impl<'g, K, V, S> IntoParallelIterator for &'g PinnedCopyMap<K, V, S>
where
    K: Copy + Hash + Eq + Send + Sync,
    V: Copy + Send + Sync,
    S: BuildHasher + Sync,
{
    type Item = (K, V);
    type Iter = CopyParIter<'g, K, V, S>;

    fn into_par_iter(self) -> CopyParIter<'g, K, V, S> {
        CopyParIter(Range {
            entries: self.iter(),
            span: Span::of(self.len()),
        })
    }
}

/// The entries whose hashes are in a range.
struct Range<'g, K, V, S> {
    /// A walk that has not begun, over all entries.
    entries: CopyIter<'g, K, V, S>,
    span: Span,
}

impl<K, V, S> Clone for Range<'_, K, V, S> {
    fn clone(&self) -> Self {
        self.with(self.span)
    }
}

impl<K, V, S> Range<'_, K, V, S> {
    fn with(&self, span: Span) -> Self {
        Self {
            entries: self.entries.clone(),
            span,
        }
    }
}

impl<K, V, S> UnindexedProducer for Range<'_, K, V, S>
where
    K: Copy + Hash + Eq + Send + Sync,
    V: Copy + Send + Sync,
    S: BuildHasher + Sync,
{
    type Item = (K, V);

    fn split(self) -> (Self, Option<Self>) {
        let (lower, upper) = self.span.split();
        (self.with(lower), upper.map(|upper| self.with(upper)))
    }

    fn fold_with<F: Folder<Self::Item>>(self, mut folder: F) -> F {
        let Span { first, last, .. } = self.span;
        let mut entries = self.entries.at(first);
        while entries.position().is_some_and(|hash| hash <= last) && !folder.full() {
            entries.step();
            // The last bucket may have entries of the next range, too.
            let bucket_ends = entries.position().map_or(u64::MAX, |next| next - 1);
            while let Some((key, value)) = entries.next_here() {
                if bucket_ends <= last || entries.hash_of(&key) <= last {
                    folder = folder.consume((key, value));
                }
            }
        }
        folder
    }
}

par_extend! {
    CopyMap<K, V, S>,
    K: Copy + Hash + Eq + Send + Sync + 'static,
    V: Copy + Send + Sync + 'static,
    S: BuildHasher + Sync,
}

/// Makes a map of the global domain. Of entries with equal keys, any one stays.
impl<K, V, S> FromParallelIterator<(K, V)> for CopyMap<K, V, S>
where
    K: Copy + Hash + Eq + Send + Sync + 'static,
    V: Copy + Send + Sync + 'static,
    S: BuildHasher + Default + Sync,
{
    fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        map.par_extend(entries);
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::ThreadPoolBuilder;

    /// So it is when the table shrinks during an iteration.
    #[test]
    fn ranges_smaller_than_a_bucket_have_each_entry_once() {
        let map: CopyMap<u32, u32> = (0..12).map(|key| (key, key)).collect();
        let pinned = map.pin();
        let mut span = Span::of(map.len());
        span.least = u64::MAX >> 8;
        let entries = CopyParIter(Range {
            entries: pinned.iter(),
            span,
        });
        let threads = ThreadPoolBuilder::new().num_threads(8).build().unwrap();
        let mut keys: Vec<u32> = threads.install(|| entries.map(|(key, _)| key).collect());
        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..12));
    }
}
