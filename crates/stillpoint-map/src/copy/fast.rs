//! Inserts and removals that ask for no more than a bucket with nothing behind it. Most do, and the
//! fewer instructions they are, the more of the next one's the processor begins while it waits for the
//! bucket. What is not done here is left to [`Core::look`] and what follows it.

use super::{
    bucket::{Bucket, tag},
    core::{Core, World},
    locked::Locked,
    table::Table,
};
use crate::word::Word;

/// What became of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut<K, V> {
    /// This entry has been taken out.
    Done(K, V),
    /// There is no such entry.
    NotThere,
    /// It asks for more.
    NotSoFast,
}

impl<K: Copy + Eq, V: Copy, C: Copy> Core<K, V, C> {
    /// The bucket of a hash in the current table, its number, and its word.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain that lasts for `'t`.
    #[inline(always)]
    unsafe fn bucket_of<'t>(&self, hash: u64) -> (Table<'t, K, V>, usize, Bucket<'t, K, V>, Word) {
        // SAFETY: the caller's promise.
        let table = unsafe { self.table() };
        table.fetch(hash);
        let index = table.index(hash);
        let bucket = table.at(index);
        (table, index, bucket, bucket.word())
    }

    /// Puts an entry in, unless its bucket has one with its tag or asks for more. Returns whether it
    /// has.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain; the hash is the entry's.
    #[inline(always)]
    pub unsafe fn add(
        &self,
        hash: u64,
        pair: (K, V),
        world: &impl World<K, V, Cookie = C>,
        hash_of: &impl Fn(&K) -> u64,
    ) -> bool {
        // SAFETY: the caller's promise.
        let (table, index, bucket, word) = unsafe { self.bucket_of(hash) };
        let tag = tag(hash);
        let is_ours = || word != Word::EMPTY || table.used().claim(index);
        // Without the tag there is no entry with this key: and so it stays under the lock, which is
        // taken with this word.
        let may_be_new = word.is_plain() && word.with_tag(tag).is_empty();
        if !(may_be_new && is_ours() && bucket.lock(word)) {
            return false;
        }
        let mut locked = Locked::of(bucket, word);
        locked.clean(self.epochs.now());
        let Some(left) = locked.insert(tag, pair) else {
            return false;
        };
        let has_pending = locked.has_pending();
        drop(locked);
        // SAFETY: the caller's promise.
        unsafe {
            self.note_put(
                hash,
                (table, None),
                (left, has_pending, false),
                world,
                hash_of,
            )
        };
        true
    }

    /// Takes the entry out that `is_it` accepts.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain; the hash is that of the entry's key.
    #[inline(always)]
    pub unsafe fn cut(
        &self,
        hash: u64,
        is_it: impl FnMut(&K) -> bool,
        world: &impl World<K, V, Cookie = C>,
        hash_of: &impl Fn(&K) -> u64,
    ) -> Cut<K, V> {
        // SAFETY: the caller's promise.
        let (table, _, bucket, word) = unsafe { self.bucket_of(hash) };
        if !word.is_plain() || word == Word::EMPTY && table.next().is_some() {
            return Cut::NotSoFast;
        }
        // SAFETY: the word was loaded in the caller's section.
        let Some((slot, pair)) = (unsafe { bucket.find_in_slots(word, tag(hash), is_it) }) else {
            return Cut::NotThere;
        };
        if !bucket.lock(word) {
            return Cut::NotSoFast;
        }
        let mut locked = Locked::of(bucket, word);
        locked.clean(self.epochs.now());
        locked.empty(slot, || self.epochs.stamp(world));
        let is_empty = locked.is_empty();
        drop(locked);
        // SAFETY: the caller's promise.
        unsafe { self.note_taken(hash, table, is_empty, world, hash_of) };
        Cut::Done(pair.0, pair.1)
    }
}
