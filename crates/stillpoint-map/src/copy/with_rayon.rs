//! The feature `rayon`, for maps of copies.

use super::{
    iter::CopyIter,
    map::{CopyMap, PinnedCopyMap},
};
use crate::with_rayon::{Range, Walk, par_extend};
use rayon::iter::{
    FromParallelIterator, IntoParallelIterator, ParallelExtend, ParallelIterator,
    plumbing::{Folder, UnindexedConsumer, bridge_unindexed},
};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    ops::RangeInclusive,
};

/// Copies of the entries of a map, made by many threads: what `par_iter` of a [`PinnedCopyMap`]
/// returns. For which entries it visits, see [the guarantees](CopyMap#guarantees).
///
/// The calling thread's section is open meanwhile, and keeps what the other threads find.
#[must_use = "iterators are lazy"]
pub struct CopyParIter<'g, K, V, S>(Range<CopyIter<'g, K, V, S>>);

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
        CopyParIter(Range::of(self.iter(), self.len()))
    }
}

impl<K, V, S> Walk for CopyIter<'_, K, V, S>
where
    K: Copy + Hash + Eq + Send + Sync,
    V: Copy + Send + Sync,
    S: BuildHasher + Sync,
{
    type Item = (K, V);

    fn visit<F: Folder<Self::Item>>(self, hashes: RangeInclusive<u64>, mut folder: F) -> F {
        let last = *hashes.end();
        let mut entries = self.at(*hashes.start());
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
    CopyMap<K, V, S> of (K, V), |map, (key, value)| map.insert(key, value),
    made where S: Default;
    K: Copy + Hash + Eq + Send + Sync + 'static,
    V: Copy + Send + Sync + 'static,
    S: BuildHasher + Sync,
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
        let range = Range::of(pinned.iter(), map.len());
        let entries = CopyParIter(range.with_least(u64::MAX >> 8));
        let threads = ThreadPoolBuilder::new().num_threads(8).build().unwrap();
        let mut keys: Vec<u32> = threads.install(|| entries.map(|(key, _)| key).collect());
        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..12));
    }
}
