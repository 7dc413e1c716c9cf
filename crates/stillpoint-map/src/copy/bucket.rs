//! A bucket with its entries in it.
//!
//! A [`Word`] with seven tags, seven slots, and behind them, where these do not do, a [`Spill`]. For
//! `u64` to `u64` that is two cache lines. A slot holds an entry while it has a tag. One without a
//! tag is *clean*, or *pending*: readers may still be at the entry that it had. The bits of the
//! spill's pointer that are spare say which are pending, and since when ([`super::epochs`]).
//!
//! # Reading
//!
//! A reader takes no lock. It loads the word, copies the entries whose tags are right, and goes to
//! the spill if the word says that there is one. What it can rely on, in its section:
//!
//! * A slot that had a tag when it loaded the word keeps that entry: it is written again only after
//!   a grace period. So a reader copies what no thread writes.
//! * The word is where inserts, updates and removals of entries in slots take effect, all of them by
//!   one store; the pointer to the spill is where those in the spill do.
//! * An entry goes from a slot to the spill, if an update finds no clean slot, and never back. So a
//!   reader that loads the word first does not miss it. While that update is under way, the key is
//!   in both, and what is in the slot counts: a reader that finds a key in the spill looks at the
//!   word once more.
//!
//! # Writing
//!
//! Under the lock. No user code runs and nothing is allocated meanwhile. A writer looks first, as a
//! reader; then it allocates; then it locks, and goes on if the slots with its tag and the spill are
//! the same. In its section the same slot has the same entry, and the same pointer is the same
//! spill.

use super::{
    epochs::{Moment, STAMP_BITS},
    spill::{NewSpill, Node, Spill, Tagged},
};
use crate::word::{SLOTS, Word};
use std::{
    mem::{ManuallyDrop, MaybeUninit},
    ptr::null_mut,
};
use stillpoint_platform::sync::{AtomicPtr, AtomicU64, Ordering, UnsafeCell};

/// The tag of an entry with this hash.
#[inline(always)]
pub fn tag(hash: u64) -> u8 {
    // Not the lowest bit, which no map looks at. Not 1: looking for it, `Word::with_tag` could return
    // a slot without a tag.
    ((hash >> 1) as u8).max(2)
}

/// A bucket of a table.
#[repr(C)]
pub struct Bucket<K, V> {
    word: AtomicU64,
    behind: AtomicPtr<Node<K, V>>,
    slots: [UnsafeCell<MaybeUninit<(K, V)>>; SLOTS],
}

#[cfg(not(stillpoint_loom))]
const _: () = assert!(size_of::<Bucket<u64, u64>>() == 128);

impl<K, V> Default for Bucket<K, V> {
    fn default() -> Self {
        Self {
            word: AtomicU64::new(Word::EMPTY.bits()),
            behind: AtomicPtr::new(null_mut()),
            slots: std::array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit())),
        }
    }
}

/// What is behind the slots: the pointer to the spill, which slots are pending, and since when.
///
/// ```text
///   63 .. 55   54 .. 48    47 .. 0
/// +----------+-----------+---------+
/// | stamp    | pending   | address |
/// +----------+-----------+---------+
/// ```
pub struct Behind<K, V>(*mut Node<K, V>);

impl<K, V> Clone for Behind<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Behind<K, V> {}

const PENDING_SHIFT: u32 = 48;
const ALL: u8 = (1 << SLOTS) - 1;
const STAMP_SHIFT: u32 = PENDING_SHIFT + SLOTS as u32;
const ADDRESS: usize = (1 << PENDING_SHIFT) - 1;
const _: () = assert!(STAMP_SHIFT + STAMP_BITS == usize::BITS);

impl<K, V> Behind<K, V> {
    #[inline]
    pub fn spill(self) -> Option<Spill<K, V>> {
        Spill::from_pointer(self.0.map_addr(|address| address & ADDRESS))
    }

    fn pending(self) -> u8 {
        (self.0.addr() >> PENDING_SHIFT) as u8 & ALL
    }

    fn stamp(self) -> u16 {
        (self.0.addr() >> STAMP_SHIFT) as u16
    }

    fn with_spill(self, spill: Option<Spill<K, V>>) -> Self {
        let pointer = spill.map_or(null_mut(), Spill::into_pointer);
        Self(pointer.map_addr(|address| address | self.0.addr() & !ADDRESS))
    }

    fn with_pending(self, pending: u8, stamp: u16) -> Self {
        let bits = usize::from(pending) << PENDING_SHIFT | usize::from(stamp) << STAMP_SHIFT;
        Self(self.0.map_addr(|address| address & ADDRESS | bits))
    }
}

/// What a thread has seen of a bucket, in its section.
pub struct Seen<K, V> {
    pub word: Word,
    pub spill: Option<Spill<K, V>>,
}

impl<K, V> Clone for Seen<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Seen<K, V> {}

impl<K, V> Seen<K, V> {
    /// Returns whether another look has found the same entries with this tag in slots, and the same
    /// spill.
    fn is_same(&self, other: &Self, tag: u8) -> bool {
        let is_same_word = self.word == other.word;
        (is_same_word || self.has_same_slots(other.word, tag)) && self.spill == other.spill
    }

    /// Returns whether a word has the same entries with this tag in slots.
    pub fn has_same_slots(&self, word: Word, tag: u8) -> bool {
        self.word.bits_with(tag) == word.bits_with(tag)
    }

    /// Returns whether another look has found the same entries.
    pub fn is_all_same(&self, other: &Self) -> bool {
        self.word.has_same_tags(other.word) && self.spill == other.spill
    }
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Slot(usize),
    Spilled(usize),
}

impl<K, V> Bucket<K, V> {
    #[inline(always)]
    pub fn word(&self) -> Word {
        // Acquire, pairs with `set_word` and `swap_word`: slots whose tags are seen hold their
        // entries, a bucket that has moved is complete in the next table, and a thread that locks
        // finds what the last one left.
        Word::from_bits(self.word.load(Ordering::Acquire))
    }

    pub fn set_word(&self, word: Word) {
        // Release, pairs with `word` and `lock`: the entries in slots, and what is behind.
        self.word.store(word.bits(), Ordering::Release);
    }

    fn swap_word(&self, word: Word) {
        // Release, pairs with `word` and `lock`: as in `set_word`.
        self.word.swap(word.bits(), Ordering::Release);
    }

    #[inline]
    pub fn behind(&self) -> Behind<K, V> {
        // Acquire, pairs with `set_behind`: the spill is complete. And the word that is loaded after
        // this is not older.
        Behind(self.behind.load(Ordering::Acquire))
    }

    fn set_behind(&self, behind: Behind<K, V>) {
        // Release, pairs with `behind`: the spill is complete.
        self.behind.store(behind.0, Ordering::Release);
    }

    /// Replaces the word by its locked form, unless it has changed.
    pub fn lock(&self, word: Word) -> bool {
        // Acquire, pairs with `set_word`: the thread finds what the last one left.
        self.word
            .compare_exchange(
                word.bits(),
                word.locked().bits(),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// What is in it now.
    pub fn seen(&self, word: Word) -> Seen<K, V> {
        let spill = word.has_link().then(|| self.behind().spill()).flatten();
        Seen { word, spill }
    }

    /// Has the system give memory to the page that this is on. The word stays as it is.
    pub fn touch(&self) {
        // Not an addition of 0, which the compiler leaves out, or makes a load.
        let word = self.word.load(Ordering::Relaxed);
        let _ = self
            .word
            .compare_exchange(word, word, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl<K: Copy, V: Copy> Bucket<K, V> {
    /// A copy of the entry in a slot.
    ///
    /// # Safety
    ///
    /// The slot had a tag when the caller loaded the word, in a section that is still open; or the
    /// caller has the lock, and it has one.
    #[inline(always)]
    pub unsafe fn pair(&self, slot: usize) -> (K, V) {
        // SAFETY: complete before its tag, and not written before the section has ended.
        self.slots[slot].with(|pair| unsafe { (*pair).assume_init_read() })
    }

    /// # Safety
    ///
    /// The caller has the lock, or the bucket is of a table that no other thread knows; the slot is
    /// clean.
    pub unsafe fn write(&self, slot: usize, pair: (K, V)) {
        // SAFETY: no reader is at it, and no other writer.
        self.slots[slot].with_mut(|place| unsafe { (*place).write(pair) });
    }

    /// The entry with this tag that `is_it` accepts. `word` was loaded in the section.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain, since before the word was loaded.
    #[inline(always)]
    pub unsafe fn find(
        &self,
        word: Word,
        tag: u8,
        mut is_it: impl FnMut(&K) -> bool,
    ) -> Option<(K, V)> {
        for slot in word.with_tag(tag) {
            // SAFETY: it has a tag in the word; the caller's section.
            let pair = unsafe { self.pair(slot) };
            if is_it(&pair.0) {
                return Some(pair);
            }
        }
        if !word.has_link() {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe { self.find_spilled(self.behind().spill()?, tag, is_it) }
    }

    /// # Safety
    ///
    /// Inside a section of the map's domain, in which the spill was found.
    #[inline(never)]
    unsafe fn find_spilled(
        &self,
        spill: Spill<K, V>,
        tag: u8,
        mut is_it: impl FnMut(&K) -> bool,
    ) -> Option<(K, V)> {
        // SAFETY: the caller's section.
        let mut entries = unsafe { spill.entries() }.iter();
        let found = entries.find(|entry| entry.tag == tag && is_it(&entry.key))?;
        for slot in self.word().with_tag(tag) {
            // SAFETY: it has a tag; the caller's section.
            let pair = unsafe { self.pair(slot) };
            if is_it(&pair.0) {
                // An update is under way, and has not taken effect.
                return Some(pair);
            }
        }
        Some((found.key, found.value))
    }

    /// Where the entry is, in what was seen.
    ///
    /// # Safety
    ///
    /// Inside the section in which it was seen.
    pub unsafe fn place(
        &self,
        seen: &Seen<K, V>,
        tag: u8,
        mut is_it: impl FnMut(&K) -> bool,
    ) -> Option<(Place, (K, V))> {
        for slot in seen.word.with_tag(tag) {
            // SAFETY: it has a tag in the word; the caller's section.
            let pair = unsafe { self.pair(slot) };
            if is_it(&pair.0) {
                return Some((Place::Slot(slot), pair));
            }
        }
        // SAFETY: the caller's section.
        let entries = seen
            .spill
            .map_or(&[][..], |spill| unsafe { spill.entries() });
        let place = entries
            .iter()
            .position(|entry| entry.tag == tag && is_it(&entry.key))?;
        let entry = &entries[place];
        Some((Place::Spilled(place), (entry.key, entry.value)))
    }

    /// All entries, in what was seen; the key of an update under way perhaps twice.
    ///
    /// # Safety
    ///
    /// Inside the section in which it was seen.
    pub unsafe fn entries(&self, seen: Seen<K, V>) -> impl Iterator<Item = Tagged<K, V>> {
        let word = seen.word;
        let in_slots = word.taken().map(move |slot| {
            // SAFETY: it has a tag in the word; the caller's section.
            let (key, value) = unsafe { self.pair(slot) };
            Tagged {
                key,
                value,
                tag: word.tag(slot),
            }
        });
        // SAFETY: the caller's section.
        let spilled = seen
            .spill
            .map_or(&[][..], |spill| unsafe { spill.entries() });
        in_slots.chain(spilled.iter().copied())
    }

    /// Fills a bucket that no reader knows, and which holds nothing but what a thread that a fork
    /// has removed may have left.
    ///
    /// # Safety
    ///
    /// No other thread can reach it.
    pub unsafe fn fill(
        &self,
        entries: impl Iterator<Item = Tagged<K, V>>,
        spill: Option<NewSpill<K, V>>,
    ) {
        let mut word = Word::EMPTY;
        for (slot, entry) in entries.take(SLOTS).enumerate() {
            // SAFETY: the caller's promise.
            unsafe { self.write(slot, (entry.key, entry.value)) };
            word = word.with(slot, entry.tag);
        }
        if spill.is_some() {
            word = word.spilled();
        }
        self.set_behind(Behind(null_mut()).with_spill(spill.map(NewSpill::publish)));
        self.set_word(word);
    }
}

/// The lock of a bucket, until this is dropped.
pub struct Locked<'t, K, V> {
    bucket: &'t Bucket<K, V>,
    /// What the word will be.
    word: Word,
    behind: Behind<K, V>,
}

impl<'t, K: Copy, V: Copy> Locked<'t, K, V> {
    /// The lock has just been taken, with the word as it was before.
    #[inline]
    pub fn of(bucket: &'t Bucket<K, V>, word: Word) -> Self {
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
        self.word = self.word.with(slot, tag);
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

    /// Replaces the spill. What was there is to be retired.
    pub fn set_spill(&mut self, spill: Option<NewSpill<K, V>>) {
        let spill = spill.map(NewSpill::publish);
        self.set_behind(self.behind.with_spill(spill));
        if spill.is_some() {
            self.word = self.word.spilled();
        }
    }

    /// Replaces the spill by one that also has the entry that replaces the one in a slot.
    pub fn spill_over(&mut self, old: usize, spill: NewSpill<K, V>, stamp: impl Fn() -> u16) {
        // Pending and with a tag: so the child of a fork knows that the tag is to be taken away.
        let pending = self.behind.pending() | 1 << old;
        self.behind = self.behind.with_pending(pending, self.behind.stamp());
        self.set_spill(Some(spill));
        self.empty(old, stamp);
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

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::copy::epochs::Epochs;

    type Entries = Bucket<u64, u64>;

    /// A word that a thread of another process has locked.
    fn abandoned(word: Word) -> Word {
        let word = Word::from_bits(word.bits() | 0x3f << 56);
        assert!(word.is_abandoned());
        word
    }

    fn with_entries(tags: &[u8]) -> Entries {
        let bucket = Entries::default();
        let mut locked = Locked::of(&bucket, bucket.word());
        for tag in tags {
            assert!(locked.insert(*tag, (u64::from(*tag), 0)).is_some());
        }
        drop(locked);
        bucket
    }

    #[test]
    fn tags_are_of_all_values() {
        let tags: std::collections::HashSet<_> = (0..10_000)
            .map(|key| tag(crate::slot::spread(key)))
            .collect();
        assert!(tags.len() > 250, "{}", tags.len());
    }

    fn repair(bucket: &Entries) {
        let epochs = Epochs::<()>::new();
        let mut locked = Locked::of(bucket, abandoned(bucket.word()));
        locked.repair(|| epochs.now().stamp());
        drop(locked);
        assert_eq!(bucket.behind().stamp(), epochs.now().stamp());
        let untagged = !bucket.word().taken().bits() & ALL;
        assert_eq!(bucket.behind().pending(), untagged, "readers may be there");
    }

    /// A thread that a fork has removed had taken a tag away, and not said that the slot is pending.
    #[test]
    fn a_removal_is_repaired() {
        let bucket = with_entries(&[7, 8]);
        bucket.set_word(bucket.word().without(0));
        repair(&bucket);
        assert_eq!(bucket.word().taken().bits(), 0b10);
    }

    /// It had put an entry behind the bucket, and not taken the tag away of the one that it
    /// replaces.
    #[test]
    fn an_update_that_spills_is_repaired() {
        let bucket = with_entries(&[7, 8]);
        let new = Tagged {
            key: 7,
            value: 1,
            tag: 7,
        };
        let spill = NewSpill::new(1, [new].into_iter()).unwrap().publish();
        bucket.set_behind(bucket.behind().with_spill(Some(spill)).with_pending(1, 0));
        repair(&bucket);
        assert_eq!(bucket.word().taken().bits(), 0b10);
        assert!(bucket.word().has_link());
        // SAFETY: no other thread has the bucket.
        let found = unsafe { bucket.find(bucket.word(), 7, |key| *key == 7) };
        assert_eq!(found, Some((7, 1)));
        // SAFETY: the same.
        unsafe { spill.free() };
    }
}
