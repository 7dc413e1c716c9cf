//! Changes of a bucket, under its lock.
//!
//! No user code runs and nothing is allocated meanwhile. A writer looks first, as a reader; then it
//! allocates; then it locks, and goes on if the slots with its tag and the spill are the same. In its
//! section the same slot has the same entry, and the same first node is the same spill.

use super::{
    bucket::{ALL, Behind, Bucket, Seen},
    epochs::Moment,
    spill::{NewNode, Spill, Tagged},
};
use crate::word::{SLOTS, Word};
use std::mem::ManuallyDrop;

/// The lock of a bucket, until this is dropped.
pub struct Locked<'t, K, V> {
    bucket: Bucket<'t, K, V>,
    /// What the word will be.
    word: Word,
    behind: Behind<K, V>,
}

impl<'t, K: Copy, V: Copy> Locked<'t, K, V> {
    /// The lock has just been taken, with the word as it was before.
    #[inline]
    pub fn of(bucket: Bucket<'t, K, V>, word: Word) -> Self {
        Self {
            bucket,
            word: word.unlocked(),
            behind: bucket.behind(),
        }
    }

    /// What is in it.
    pub fn seen(&self) -> Seen<K, V> {
        Seen {
            word: self.word,
            spill: self.behind.spill(),
        }
    }

    /// Returns whether what was seen is still so, as far as entries with this tag go.
    #[inline]
    pub fn is_same(&self, seen: &Seen<K, V>, tag: u8) -> bool {
        self.seen().is_same(seen, tag)
    }

    /// Returns whether it has no entries in slots.
    pub fn is_empty(&self) -> bool {
        self.word.is_empty()
    }

    fn set_behind(&mut self, behind: Behind<K, V>) {
        self.behind = behind;
        self.bucket.set_behind(behind);
    }

    /// What is pending and over becomes clean.
    #[inline]
    pub fn clean(&mut self, now: Moment) {
        if self.behind.pending() != 0 && now.is_over(self.behind.stamp()) {
            self.set_behind(self.behind.with_pending(0, 0));
        }
    }

    /// Returns whether slots are pending.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.behind.pending() != 0
    }

    /// A clean slot, and the others, a bit for each.
    #[inline]
    fn clean_slot(&self) -> Option<(usize, u8)> {
        let clean = !(self.word.taken().bits() | self.behind.pending()) & ALL;
        (clean != 0).then(|| (clean.trailing_zeros() as usize, clean & (clean - 1)))
    }

    /// Puts an entry into a clean slot, if there is one. Returns which are left, a bit for each.
    #[inline]
    pub fn insert(&mut self, tag: u8, pair: (K, V)) -> Option<u8> {
        let (slot, left) = self.clean_slot()?;
        // SAFETY: this has the lock, and it is clean.
        unsafe { self.bucket.write(slot, pair) };
        self.word = self.word.filled(slot, tag);
        Some(left)
    }

    /// As [`Locked::insert`], in place of an entry in a slot.
    #[inline]
    pub fn update(
        &mut self,
        old: usize,
        tag: u8,
        pair: (K, V),
        stamp: impl Fn() -> u16,
    ) -> Option<u8> {
        let left = self.insert(tag, pair)?;
        self.empty(old, stamp);
        Some(left)
    }

    /// Empties a slot. `stamp` is called after that ([`Epochs::stamp`](super::epochs::Epochs::stamp)).
    #[inline]
    pub fn empty(&mut self, slot: usize, stamp: impl Fn() -> u16) {
        self.word = self.word.without(slot);
        self.bucket.swap_word(self.word.locked());
        let pending = self.behind.pending() | 1 << slot;
        self.set_behind(self.behind.with_pending(pending, stamp()));
    }

    /// Makes the spill begin with that node.
    fn set_spill(&mut self, first: Option<Spill<K, V>>) {
        self.set_behind(self.behind.with_spill(first));
        if first.is_some() {
            self.word = self.word.spilled();
        }
    }

    /// Puts an entry into the spill.
    pub fn push(&mut self, new: NewNode<K, V>, entry: Tagged<K, V>) {
        let first = new.fill(entry, self.behind.spill());
        self.set_spill(Some(first));
    }

    /// Puts an entry into the spill that replaces the one in a slot.
    pub fn spill_over(
        &mut self,
        old: usize,
        new: NewNode<K, V>,
        entry: Tagged<K, V>,
        stamp: impl Fn() -> u16,
    ) {
        // Pending and with a tag: so the child of a fork knows that the tag is to be taken away.
        let pending = self.behind.pending() | 1 << old;
        self.behind = self.behind.with_pending(pending, self.behind.stamp());
        self.push(new, entry);
        self.empty(old, stamp);
    }

    /// Puts an entry into the place of another one in the spill, or takes that out. `copy` becomes a copy
    /// of the first node that stays: it is needed unless `new` is the first one. Returns the nodes that
    /// have left, which the caller retires; `None` if the spill does not have that node, or there is no
    /// copy, and nothing was done.
    pub fn replace_spilled(
        &mut self,
        old: Spill<K, V>,
        new: Option<(NewNode<K, V>, Tagged<K, V>)>,
        copy: Option<NewNode<K, V>>,
    ) -> Option<[Option<Spill<K, V>>; 2]> {
        // SAFETY: nodes leave the spill under the lock, and are freed after that.
        let (first, before, behind) = unsafe {
            let first = self.behind.spill()?;
            let mut nodes = first.nodes();
            let before = if first == old {
                None
            } else {
                Some(nodes.find(|node| node.next() == Some(old))?)
            };
            (first, before, old.next())
        };
        let (first, left) = match (before, new, behind) {
            (None, Some((new, entry)), behind) => (Some(new.fill(entry, behind)), None),
            (None, None, None) => (None, None),
            (None, None, Some(second)) => {
                // SAFETY: the same.
                let (entry, behind) = unsafe { (second.entry(), second.next()) };
                (Some(copy?.fill(entry, behind)), Some(second))
            }
            (Some(before), new, behind) => {
                let copy = copy?;
                let rest = match new {
                    Some((new, entry)) => Some(new.fill(entry, behind)),
                    None => behind,
                };
                // SAFETY: the same.
                let copied = unsafe {
                    let behind = if before == first {
                        rest
                    } else {
                        before.set_next(rest);
                        first.next()
                    };
                    copy.fill(first.entry(), behind)
                };
                (Some(copied), Some(first))
            }
        };
        self.set_spill(first);
        Some([Some(old), left])
    }

    /// The bucket is in the next table, and stays as it is.
    pub fn set_moved(&mut self) {
        self.word = self.word.moved();
    }

    /// Ends what a thread that a fork has removed was doing.
    pub fn repair(&mut self, stamp: impl Fn() -> u16) {
        let replaced = self.behind.pending() & self.word.taken().bits();
        for slot in (0..SLOTS).filter(|slot| replaced >> slot & 1 == 1) {
            self.word = self.word.without(slot);
        }
        if self.behind.spill().is_some() {
            self.word = self.word.spilled();
        }
        self.bucket.swap_word(self.word.locked());
        self.set_behind(
            self.behind
                .with_pending(ALL & !self.word.taken().bits(), stamp()),
        );
    }
}

impl<K, V> Locked<'_, K, V> {
    /// Unlocks by a read-modify-write, after which a fence costs nothing on x86-64.
    pub fn unlock(self) {
        let this = ManuallyDrop::new(self);
        this.bucket.swap_word(this.word);
    }
}

impl<K, V> Drop for Locked<'_, K, V> {
    fn drop(&mut self) {
        self.bucket.set_word(self.word);
    }
}
