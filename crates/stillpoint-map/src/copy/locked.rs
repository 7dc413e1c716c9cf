//! Changes of a bucket, under its lock.
//!
//! No user code runs and nothing is allocated meanwhile. A writer looks first, as a reader; then it
//! allocates; then it locks, and goes on if the slots with its tag and the spill are the same. In its
//! section the same slot has the same entry, and the same first node is the same spill.

use super::{
    bucket::{ALL, Behind, Bucket, Seen},
    epochs::Epochs,
    spill::{Found, Hashed, NewNode, OldNode, Spill},
};
use crate::{
    table::AnyLocked,
    word::{SLOTS, Word},
};
use std::mem::ManuallyDrop;

/// The lock of a bucket, until this is dropped.
pub struct Locked<'t, K, V> {
    bucket: Bucket<'t, K, V>,
    /// What the word will be.
    word: Word,
    behind: Behind<'t, K, V>,
}

impl<'t, K, V> Bucket<'t, K, V> {
    /// Locks it, unless its word has changed, or is locked.
    #[inline(always)]
    pub fn lock(self, word: Word) -> Option<Locked<'t, K, V>> {
        self.lock_word(word).then(|| Locked {
            bucket: self,
            word: word.unlocked(),
            behind: self.behind(),
        })
    }
}

impl<'t, K: Copy, V: Copy> Locked<'t, K, V> {
    /// What is in it.
    pub fn seen(&self) -> Seen<'t, K, V> {
        // SAFETY: this has the lock.
        unsafe { self.bucket.seen_with(self.word, self.behind.spill()) }
    }

    /// Returns whether what was seen is still so, as far as entries with this tag go.
    #[inline]
    pub fn is_same(&self, seen: &Seen<'t, K, V>, tag: u8) -> bool {
        self.seen().is_same(seen, tag)
    }

    /// Returns whether it has no entries in slots.
    pub fn is_empty(&self) -> bool {
        self.word.is_empty()
    }

    fn set_behind(&mut self, behind: Behind<'t, K, V>) {
        self.behind = behind;
        self.bucket.set_behind(behind);
    }

    /// What is pending and over becomes clean.
    ///
    /// # Safety
    ///
    /// The epochs are those of the bucket's map.
    #[inline]
    pub unsafe fn clean<C: Copy>(&mut self, epochs: &Epochs<C>) {
        if self.behind.pending() != 0 && epochs.now().is_over(self.behind.stamp()) {
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
        // SAFETY: this has the lock, and the slot is pending next.
        unsafe { self.bucket.swap_word(self.word.locked()) };
        let pending = self.behind.pending() | 1 << slot;
        self.set_behind(self.behind.with_pending(pending, stamp()));
    }

    /// Makes the spill begin with that node.
    fn set_spill(&mut self, first: Option<Spill<'t, K, V>>) {
        self.set_behind(self.behind.with_spill(first));
        if first.is_some() {
            self.word = self.word.spilled();
        }
    }

    /// Puts an entry into the spill.
    pub fn push(&mut self, new: NewNode<K, V>, entry: Hashed<K, V>) {
        // SAFETY: the bucket, which stays for `'t`, gets it here.
        let first = unsafe { new.fill(entry, self.behind.spill()) };
        self.set_spill(Some(first));
    }

    /// Puts an entry into the spill that replaces the one in a slot.
    pub fn spill_over(
        &mut self,
        old: usize,
        new: NewNode<K, V>,
        entry: Hashed<K, V>,
        stamp: impl Fn() -> u16,
    ) {
        // Pending and with a tag: so the child of a fork knows that the tag is to be taken away.
        let pending = self.behind.pending() | 1 << old;
        self.behind = self.behind.with_pending(pending, self.behind.stamp());
        self.push(new, entry);
        self.empty(old, stamp);
    }

    /// Puts an entry into the place of one in the spill, or takes that out. `copy` becomes the new first node,
    /// if that is to be a copy ([`Found::needs_copy`]). Returns the nodes that have left, which the caller
    /// retires; `None` if the spill is not as it was when the entry was found.
    pub fn replace_spilled(
        &mut self,
        found: Found<'t, K, V>,
        new: Option<(NewNode<K, V>, Hashed<K, V>)>,
        copy: Option<NewNode<K, V>>,
    ) -> Option<[Option<OldNode<K, V>>; 2]> {
        if !found.is_in(self.behind.spill()) {
            return None;
        }
        let (node, before) = (found.node(), found.before());
        let copy_of = |node: Spill<'t, K, V>, next| {
            let copy = copy.expect("it is needed");
            // SAFETY: the bucket, which stays for `'t`, gets it below.
            unsafe { copy.fill(node.entry(), next) }
        };
        let behind = node.next();
        let is_replaced = new.is_some();
        let rest = match new {
            // SAFETY: the bucket, which stays for `'t`, gets it below.
            Some((new, entry)) => Some(unsafe { new.fill(entry, behind) }),
            None => behind,
        };
        let (first, left) = match (before, self.behind.spill()) {
            (Some(before), Some(first)) if before == first => {
                (Some(copy_of(first, rest)), Some(first))
            }
            (Some(before), Some(first)) => {
                // The copy first: without a node for it this panics, and must not have published `rest`.
                let copied = copy_of(first, first.next());
                // SAFETY: this has the lock.
                unsafe { before.set_next(rest) };
                (Some(copied), Some(first))
            }
            _ if is_replaced => (rest, None),
            _ => {
                let copied = rest.map(|second| copy_of(second, second.next()));
                (copied, rest)
            }
        };
        self.set_spill(first);
        // SAFETY: the list begins with another node, and they are not in it any more.
        Some([Some(node), left].map(|left| left.map(|node| unsafe { node.unlinked() })))
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
        // SAFETY: this has the lock, and the slot is pending next.
        unsafe { self.bucket.swap_word(self.word.locked()) };
        self.set_behind(
            self.behind
                .with_pending(ALL & !self.word.taken().bits(), stamp()),
        );
    }
}

impl<K, V> AnyLocked for Locked<'_, K, V> {
    fn set_moved(&mut self) {
        self.word = self.word.moved();
    }
}

impl<K, V> Locked<'_, K, V> {
    /// Unlocks by a read-modify-write, after which a fence costs nothing on x86-64.
    pub fn unlock(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: this has the lock.
        unsafe { this.bucket.swap_word(this.word) };
    }
}

impl<K, V> Drop for Locked<'_, K, V> {
    fn drop(&mut self) {
        // SAFETY: this has the lock.
        unsafe { self.bucket.set_word(self.word) };
    }
}

// Detects a search under the lock.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{
        copy::{
            spill::{KnownHash, STEPS},
            table::InPlace,
        },
        table::{NewTable, Old},
    };

    const NODES: u64 = 100;

    fn tagged(key: u64) -> Hashed<u64, u64> {
        let (value, hash) = (key, KnownHash::of_tag(7));
        Hashed { key, value, hash }
    }

    fn keys(first: Option<Spill<'_, u64, u64>>) -> Vec<u64> {
        let nodes = first.into_iter().flat_map(Spill::nodes);
        let mut keys: Vec<_> = nodes.map(|node| node.entry().key).collect();
        keys.sort_unstable();
        keys
    }

    /// However long the list is. At its beginning, its end and in between; and of a list of one node.
    #[test]
    fn a_change_of_a_list_goes_through_no_list_under_the_lock() {
        let cases = [0, 1, 50, NODES - 1].map(|key| (NODES, key));
        for (nodes, key, is_replaced) in cases
            .into_iter()
            .chain([(1, 0)])
            .flat_map(|(nodes, key)| [(nodes, key, true), (nodes, key, false)])
        {
            let table = NewTable::<InPlace<u64, u64>>::new(1).expect("memory");
            let bucket = table.table().at(0);
            let mut locked = bucket.lock(bucket.word()).expect("it is not locked");
            (0..nodes).for_each(|key| locked.push(NewNode::new(), tagged(key)));
            let first = locked.seen().spill().expect("it has nodes");
            // SAFETY: no other thread has the list, and what has left it is freed once.
            unsafe {
                let found = first.find_to_change(7, |other| *other == key);
                let found = found.expect("it is there");
                let copy = found.needs_copy(is_replaced).then(NewNode::new);
                let new = is_replaced.then(|| (NewNode::new(), tagged(key)));
                let before = STEPS.get();
                let left = locked.replace_spilled(found, new, copy);
                let left = left.expect("the list is as it was");
                let steps = STEPS.get() - before;
                assert!(steps <= 2, "{steps} steps for {key} of {nodes}");
                let is_left = |other: &u64| is_replaced || *other != key;
                let expected: Vec<_> = (0..nodes).filter(is_left).collect();
                let first = locked.seen().spill();
                assert_eq!(keys(first), expected, "{key} of {nodes}");
                assert!(first != Some(found.node()));
                // It is of a list that is no more.
                let again = locked.replace_spilled(found, None, Some(NewNode::new()));
                assert!(again.is_none());
                for node in left.into_iter().flatten() {
                    node.free();
                }
            }
        }
    }
}
