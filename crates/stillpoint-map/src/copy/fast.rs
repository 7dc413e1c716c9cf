//! Inserts and removals that ask for no more than a bucket with nothing behind it. Most do, and the
//! fewer instructions they are, the more of the next one's the processor begins while it waits for the
//! bucket. What is not done here is left to [`Writer::look`] and what follows it.

use super::{
    bucket::{Bucket, tag},
    core::{Core, World},
    table::Table,
};
use crate::{section::Writer, word::Word};

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

impl<'g, K: Copy + Eq, V: Copy, C: Copy, W: World<K, V, Cookie = C>> Writer<'g, Core<K, V, C>, W> {
    /// The bucket of a hash in the current table, its number, and its word.
    #[inline(always)]
    fn bucket_of(self, hash: u64) -> (Table<'g, K, V>, usize, Bucket<'g, K, V>, Word) {
        let table = self.core().table();
        table.fetch(hash);
        let bucket = table.home_of(hash);
        (table, table.index(hash), bucket, bucket.word())
    }

    /// Puts an entry in, unless its bucket has one with its tag or asks for more. Returns whether it
    /// has. The hash is that of its key.
    #[inline(always)]
    pub fn add(self, hash: u64, pair: (K, V)) -> bool {
        let (table, index, bucket, word) = self.bucket_of(hash);
        let tag = tag(hash);
        let is_ours = || word != Word::EMPTY || table.used().claim(index);
        // Without the tag there is no entry with this key: and so it stays under the lock, which is
        // taken with this word.
        let may_be_new = word.is_plain() && word.with_tag(tag).is_empty();
        if !(may_be_new && is_ours()) {
            return false;
        }
        let Some(mut locked) = bucket.lock(word) else {
            return false;
        };
        // SAFETY: of the map whose table it is in.
        unsafe { locked.clean(&self.epochs) };
        let Some(left) = locked.insert(tag, pair) else {
            return false;
        };
        let has_pending = locked.has_pending();
        drop(locked);
        self.note_put(hash, (table, None), (left, has_pending, false));
        true
    }

    /// Takes the entry out that `is_it` accepts, of those with this hash.
    #[inline(always)]
    pub fn cut(self, hash: u64, is_it: impl FnMut(&K) -> bool) -> Cut<K, V> {
        let (table, _, bucket, word) = self.bucket_of(hash);
        if !word.is_plain() || word == Word::EMPTY && table.next().is_some() {
            return Cut::NotSoFast;
        }
        // SAFETY: the word was loaded from it, in the section.
        let seen = unsafe { bucket.seen_with(word, None) };
        let Some((slot, pair)) = seen.find_in_slots(tag(hash), is_it) else {
            return Cut::NotThere;
        };
        let Some(mut locked) = bucket.lock(word) else {
            return Cut::NotSoFast;
        };
        // SAFETY: of the map whose table it is in.
        unsafe { locked.clean(&self.epochs) };
        locked.empty(slot, || self.stamp());
        let is_empty = locked.is_empty();
        drop(locked);
        self.note_taken(hash, table, is_empty);
        Cut::Done(pair.0, pair.1)
    }
}
