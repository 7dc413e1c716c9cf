//! Tables of buckets with their entries in them.
//!
//! The heads of the buckets lie before the table's header, and the slots behind it.

use super::{
    bucket::{Bucket, Head, Pairs, tag},
    locked::Locked,
    spill::OldNode,
};
use crate::{
    memory::prefetch,
    table::{self, Kind, Parts},
};
use std::marker::PhantomData;

/// The kind of tables that entries lie in.
pub struct InPlace<K, V>(PhantomData<(K, V)>);

// SAFETY: an empty word, and no spill, are zeroes; of slots without tags nothing is read.
unsafe impl<K, V> Kind for InPlace<K, V> {
    type Before = Head<K, V>;
    type Behind = Pairs<K, V>;
    type Bucket<'t>
        = Bucket<'t, K, V>
    where
        Self: 't;
    type Old = OldNode<K, V>;

    // A bucket is more memory than one of references.
    const LOAD: usize = 5;
    // Of five entries a bucket, nearly as many stay in their slots.
    const SLACK: usize = 3;
    const BUCKETS_A_LINK: usize = 1;

    #[inline(always)]
    fn bucket<'t>(parts: Parts<'t, Head<K, V>, Pairs<K, V>>) -> Bucket<'t, K, V> {
        Bucket::of(parts)
    }
}

pub type Table<'t, K, V> = table::Table<'t, InPlace<K, V>>;

impl<'t, K: Copy, V: Copy> Table<'t, K, V> {
    /// Fetches the first two cache lines of the slots of a hash's bucket.
    #[inline(always)]
    pub fn fetch(self, hash: u64) {
        const LINE: usize = 64;
        let slots = self.behind(self.index(hash));
        prefetch(slots);
        if size_of::<Pairs<K, V>>() > LINE {
            prefetch(slots.wrapping_byte_add(LINE));
        }
    }

    /// What `take` makes of the first entry with this hash's tag that `is_it` accepts.
    #[inline(always)]
    pub fn find<R>(
        self,
        hash: u64,
        is_it: impl FnMut(&K) -> bool,
        take: impl FnOnce((K, V)) -> R,
    ) -> Option<R> {
        self.fetch(hash);
        let bucket = self.home_of(hash);
        let word = bucket.word();
        if word.may_be_in_next() {
            return self.find_in_next(hash, is_it, take);
        }
        // SAFETY: the word was loaded while there is the table.
        unsafe { bucket.find(word, tag(hash), is_it, take) }
    }

    #[cold]
    #[inline(never)]
    fn find_in_next<R>(
        self,
        hash: u64,
        is_it: impl FnMut(&K) -> bool,
        take: impl FnOnce((K, V)) -> R,
    ) -> Option<R> {
        let (table, index, word) = self.home(hash);
        // SAFETY: as in `find`.
        unsafe { table.at(index).find(word, tag(hash), is_it, take) }
    }

    /// Locks the bucket of that number; `None` if it has moved.
    #[inline]
    pub fn lock_at(self, index: usize, stamp: impl Fn() -> u16) -> Option<Locked<'t, K, V>> {
        self.lock_bucket(index, |locked| locked.repair(&stamp))
    }
}
