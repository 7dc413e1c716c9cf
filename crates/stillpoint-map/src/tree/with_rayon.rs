//! The feature `rayon`, for the ordered map.

use super::{
    cursor::Cursor,
    iter::Iter,
    map::{BTreeMap, PinnedBTreeMap},
};
use crate::with_rayon::par_extend;
use rayon::iter::{
    FromParallelIterator, IntoParallelIterator, ParallelExtend, ParallelIterator,
    plumbing::{Folder, UnindexedConsumer, UnindexedProducer, bridge_unindexed},
};
use std::fmt;

/// The entries of a map or of a range, visited by many threads: what `par_iter` of a [`PinnedBTreeMap`]
/// returns, and `into_par_iter` of a [`BTreeIter`](crate::BTreeIter). For which entries it visits,
/// see [the guarantees](BTreeMap#guarantees). What collects them has them in the order of their keys.
///
/// The calling thread's section is open meanwhile, and keeps what the other threads find.
#[must_use = "iterators are lazy"]
pub struct ParRange<'g, K, V>(Cursor<'g, K, V>);

impl<K, V> fmt::Debug for ParRange<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParRange").finish_non_exhaustive()
    }
}

impl<K, V> Clone for ParRange<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<'g, K: Ord + Sync, V: Sync> ParallelIterator for ParRange<'g, K, V> {
    type Item = (&'g K, &'g V);

    fn drive_unindexed<C: UnindexedConsumer<Self::Item>>(self, consumer: C) -> C::Result {
        bridge_unindexed(self.0, consumer)
    }
}

impl<'g, K: Ord + Sync, V: Sync> IntoParallelIterator for &'g PinnedBTreeMap<K, V> {
    type Item = (&'g K, &'g V);
    type Iter = ParRange<'g, K, V>;

    fn into_par_iter(self) -> ParRange<'g, K, V> {
        self.iter().into_par_iter()
    }
}

/// What has not been visited of the range.
impl<'g, K: Ord + Sync, V: Sync> IntoParallelIterator for Iter<'g, K, V> {
    type Item = (&'g K, &'g V);
    type Iter = ParRange<'g, K, V>;

    fn into_par_iter(self) -> ParRange<'g, K, V> {
        ParRange(self.0)
    }
}

/// A part of a range, for a thread.
impl<'g, K: Ord + Sync, V: Sync> UnindexedProducer for Cursor<'g, K, V> {
    type Item = (&'g K, &'g V);

    fn split(self) -> (Self, Option<Self>) {
        self.split()
    }

    fn fold_with<F: Folder<Self::Item>>(mut self, mut folder: F) -> F {
        while !folder.full()
            && let Some(found) = self.next()
        {
            folder = folder.consume(found.pair());
        }
        folder
    }
}

par_extend! {
    BTreeMap<K, V> of (K, V), |map, (key, value)| map.insert(key, value),
    made where K: Ord;
    K: Send + Sync + 'static + Ord,
    V: Send + Sync + 'static,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a map, split as often as they can be.
    fn parts<'g>(part: Cursor<'g, u32, u32>, all: &mut Vec<Cursor<'g, u32, u32>>) {
        match part.split() {
            (part, None) => all.push(part),
            (before, Some(behind)) => {
                parts(before, all);
                parts(behind, all);
            }
        }
    }

    fn keys(part: &Cursor<'_, u32, u32>) -> Vec<u32> {
        let mut cursor = part.clone();
        std::iter::from_fn(|| Some(*cursor.next()?.key())).collect()
    }

    fn keys_from_back(part: &Cursor<'_, u32, u32>) -> Vec<u32> {
        let mut cursor = part.clone();
        let mut keys: Vec<u32> = std::iter::from_fn(|| Some(*cursor.next_back()?.key())).collect();
        keys.reverse();
        keys
    }

    /// Parts are next to each other, whatever changes between their splits and their visits.
    #[test]
    fn parts_have_each_entry_once_and_in_order() {
        let map: BTreeMap<u32, u32> = (0..2000).map(|key| (key * 2, key)).collect();
        let map = map.pin();
        let mut all = Vec::new();
        parts(map.range(200..=3000).0, &mut all);
        assert!(all.len() > 8, "{} parts", all.len());
        let largest = all.iter().map(|part| keys(part).len()).max();
        assert!(largest < Some(300), "{largest:?} entries");
        let visited: Vec<u32> = all.iter().flat_map(keys).collect();
        assert!(visited.into_iter().eq((200..=3000).step_by(2)));
        let visited: Vec<u32> = all.iter().flat_map(keys_from_back).collect();
        assert!(visited.into_iter().eq((200..=3000).step_by(2)));

        // Half goes, and leaves are divided and merged.
        map.retain(|key, _| key % 4 == 0 || *key > 1500);
        (0..2000).for_each(|key| _ = map.insert(key * 2 + 1, 0));
        for walk in [keys, keys_from_back] {
            let mut visited: Vec<u32> = all.iter().flat_map(walk).collect();
            assert!(visited.is_sorted_by(|one, other| one < other));
            visited.retain(|key| key % 4 == 0);
            assert!(visited.into_iter().eq((200..=3000).step_by(4)));
        }

        let mut all = Vec::new();
        let mut rest = map.range(..);
        assert_eq!(
            (rest.next(), rest.next_back()),
            (Some((&0, &0)), Some((&3999, &0)))
        );
        parts(rest.0, &mut all);
        let visited: Vec<u32> = all.iter().flat_map(keys).collect();
        assert!(
            visited
                .into_iter()
                .eq(map.keys().copied().filter(|key| ![0, 3999].contains(key)))
        );
    }

    #[test]
    fn what_is_over_has_no_parts() {
        let map: BTreeMap<u32, u32> = (0..2000).map(|key| (key, key)).collect();
        let map = map.pin();
        let mut range = map.range(100..1900);
        while range.next().is_some() {}
        let (part, behind) = range.0.split();
        assert!(keys(&part).is_empty() && behind.is_none());
        let nothing = BTreeMap::new();
        let nothing = nothing.pin();
        let (part, behind) = nothing.range(..).0.split();
        assert!(keys(&part).is_empty() && behind.is_none());
    }
}
