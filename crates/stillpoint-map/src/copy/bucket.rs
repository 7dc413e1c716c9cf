//! A bucket with its entries in it.
//!
//! A [`Word`] with seven tags, seven slots, and behind them, where these do not do, a [`Spill`]. A slot
//! holds an entry while it has a tag. One without a tag is *clean*, or *pending*: readers may still be
//! at the entry that it had. The bits of the spill's pointer that are spare say which are pending, and
//! since when ([`super::epochs`]).
//!
//! The word and the pointer lie apart from the slots, among those of other buckets ([`super::table`]):
//! 16 bytes a bucket, so that those of a large map are in a cache where its entries are not. An insert
//! waits for them alone, and stores its entry without a wait.
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
//! How it is changed: [`super::locked`].

use super::{
    epochs::STAMP_BITS,
    locked::Locked,
    spill::{Found, Hashed, KnownHash, NewNode, Node, OldNode, Spill},
};
use crate::{
    section::Unshared,
    table::{AnyBucket, Parts},
    word::{SLOTS, Slots, Word},
};
use std::{marker::PhantomData, mem::MaybeUninit, ptr::null_mut};
use stillpoint_platform::sync::{AtomicPtr, AtomicU64, Ordering, UnsafeCell};

/// The tag of an entry with this hash.
#[inline(always)]
pub fn tag(hash: u64) -> u8 {
    // Low bits; the high ones say which bucket it is in. Not 1: looking for it, `Word::with_tag` could
    // return a slot without a tag.
    ((hash >> 1) as u8).max(2)
}

/// What of a bucket is not entries.
#[repr(C)]
pub struct Head<K, V> {
    word: AtomicU64,
    behind: AtomicPtr<Node<K, V>>,
}

#[cfg(all(target_pointer_width = "64", not(stillpoint_loom)))]
const _: () = assert!(size_of::<Head<u64, u64>>() == 16);

impl<K, V> Default for Head<K, V> {
    fn default() -> Self {
        Self {
            word: AtomicU64::new(Word::EMPTY.bits()),
            behind: AtomicPtr::new(null_mut()),
        }
    }
}

/// The slots of a bucket, and nothing else: those of the next one follow.
#[repr(transparent)]
pub struct Pairs<K, V>([UnsafeCell<MaybeUninit<(K, V)>>; SLOTS]);

impl<K, V> Default for Pairs<K, V> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| {
            UnsafeCell::new(MaybeUninit::uninit())
        }))
    }
}

impl<K: Copy, V: Copy> Pairs<K, V> {
    /// A copy of the entry in a slot of these, or of those that follow.
    ///
    /// # Safety
    ///
    /// There is such a slot. It had a tag when the caller loaded the word, in a section that is still open.
    #[inline(always)]
    pub unsafe fn pair(first: *const Self, slot: usize) -> (K, V) {
        let first = first.cast::<UnsafeCell<MaybeUninit<(K, V)>>>();
        // SAFETY: the caller's promise: complete before its tag, and not written before the section has ended,
        // but by an exclusive borrower, beside whom there is no reader.
        unsafe { (*first.add(slot)).with(|pair| (*pair).assume_init_read()) }
    }
}

/// A bucket of a table.
pub struct Bucket<'t, K, V> {
    head: &'t Head<K, V>,
    slots: &'t Pairs<K, V>,
}

impl<K, V> Clone for Bucket<'_, K, V> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Bucket<'_, K, V> {}

/// What is behind the slots of a bucket that stays for `'t`: the pointer to the spill, which slots are
/// pending, and since when.
///
/// ```text
///   63 .. 55   54 .. 48    47 .. 0
/// +----------+-----------+---------+
/// | stamp    | pending   | address |
/// +----------+-----------+---------+
/// ```
pub struct Behind<'t, K, V>(*mut Node<K, V>, PhantomData<&'t Node<K, V>>);

impl<K, V> Clone for Behind<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Behind<'_, K, V> {}

const PENDING_SHIFT: u32 = 48;
pub(super) const ALL: u8 = (1 << SLOTS) - 1;
const STAMP_SHIFT: u32 = PENDING_SHIFT + SLOTS as u32;
const ADDRESS: usize = (1 << PENDING_SHIFT) - 1;
const _: () = assert!(STAMP_SHIFT + STAMP_BITS == usize::BITS);

impl<'t, K, V> Behind<'t, K, V> {
    fn nothing() -> Self {
        Self(null_mut(), PhantomData)
    }

    #[inline]
    pub fn spill(self) -> Option<Spill<'t, K, V>> {
        // SAFETY: of a bucket that stays for as long.
        unsafe { Spill::from_pointer(self.0.map_addr(|address| address & ADDRESS)) }
    }

    pub(super) fn pending(self) -> u8 {
        (self.0.addr() >> PENDING_SHIFT) as u8 & ALL
    }

    pub(super) fn stamp(self) -> u16 {
        (self.0.addr() >> STAMP_SHIFT) as u16
    }

    pub(super) fn with_spill(self, spill: Option<Spill<'t, K, V>>) -> Self {
        let pointer = spill.map_or(null_mut(), Spill::into_pointer);
        let pointer = pointer.map_addr(|address| address | self.0.addr() & !ADDRESS);
        Self(pointer, PhantomData)
    }

    pub(super) fn with_pending(self, pending: u8, stamp: u16) -> Self {
        let bits = usize::from(pending) << PENDING_SHIFT | usize::from(stamp) << STAMP_SHIFT;
        let pointer = self.0.map_addr(|address| address & ADDRESS | bits);
        Self(pointer, PhantomData)
    }
}

/// What a thread has seen of a bucket, in a section that lasts for `'t`.
pub struct Seen<'t, K, V> {
    bucket: Bucket<'t, K, V>,
    word: Word,
    spill: Option<Spill<'t, K, V>>,
}

impl<K, V> Clone for Seen<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Seen<'_, K, V> {}

/// Slots with the entries that were seen there.
pub struct InSlots<'t, K, V> {
    bucket: Bucket<'t, K, V>,
    slots: Slots,
}

impl<K, V> Clone for InSlots<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for InSlots<'_, K, V> {}

/// A slot with the entry that was seen there.
pub struct InSlot<'t, K, V> {
    bucket: Bucket<'t, K, V>,
    number: usize,
}

impl<K: Copy, V: Copy> InSlot<'_, K, V> {
    /// Returns the number of the slot.
    #[inline(always)]
    pub fn number(&self) -> usize {
        self.number
    }

    /// A copy of the entry.
    #[inline(always)]
    pub fn pair(&self) -> (K, V) {
        // SAFETY: it has a tag in the word that was seen: complete before its tag, and not written before the
        // section has ended, but by an exclusive borrower, beside whom there is no reader.
        self.bucket.slots.0[self.number].with(|pair| unsafe { (*pair).assume_init_read() })
    }

    /// A copy of the key.
    #[inline(always)]
    pub fn key(&self) -> K {
        // SAFETY: as in `pair`, of the key alone.
        self.bucket.slots.0[self.number].with(|pair| unsafe { (*pair.cast::<(K, V)>()).0 })
    }

    /// Where the key and the value are.
    #[cfg(not(stillpoint_loom))]
    pub fn halves(&self) -> (*const K, *mut V) {
        self.bucket.slots.0[self.number].with_mut(|pair| {
            let pair = pair.cast::<(K, V)>();
            // SAFETY: of a slot; no reference is made.
            unsafe { (&raw const (*pair).0, &raw mut (*pair).1) }
        })
    }
}

impl<'t, K: Copy, V: Copy> Iterator for InSlots<'t, K, V> {
    type Item = InSlot<'t, K, V>;

    #[inline(always)]
    fn next(&mut self) -> Option<InSlot<'t, K, V>> {
        let (bucket, number) = (self.bucket, self.slots.next()?);
        Some(InSlot { bucket, number })
    }
}

impl<'t, K, V> Seen<'t, K, V> {
    pub fn word(&self) -> Word {
        self.word
    }

    pub fn spill(&self) -> Option<Spill<'t, K, V>> {
        self.spill
    }

    /// Returns whether another look has found the same entries with this tag in slots, and the same
    /// spill.
    pub(super) fn is_same(&self, other: &Self, tag: u8) -> bool {
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

    /// The slots with entries.
    #[inline(always)]
    pub fn taken(&self) -> InSlots<'t, K, V> {
        self.in_slots(self.word.taken())
    }

    /// The slots that have entries with this tag, and perhaps with others.
    #[inline(always)]
    pub(super) fn with_tag(&self, tag: u8) -> InSlots<'t, K, V> {
        self.in_slots(self.word.with_tag(tag))
    }

    #[inline(always)]
    fn in_slots(&self, slots: Slots) -> InSlots<'t, K, V> {
        let bucket = self.bucket;
        InSlots { bucket, slots }
    }
}

impl<'t, K: Copy, V: Copy> Seen<'t, K, V> {
    /// The entry with this tag that `is_it` accepts, if it is in a slot, and which that is.
    #[inline(always)]
    pub fn find_in_slots(
        &self,
        tag: u8,
        mut is_it: impl FnMut(&K) -> bool,
    ) -> Option<(usize, (K, V))> {
        for slot in self.with_tag(tag) {
            let pair = slot.pair();
            if is_it(&pair.0) {
                return Some((slot.number, pair));
            }
        }
        None
    }

    /// Where the entry is, in what was seen.
    pub fn place(
        &self,
        tag: u8,
        mut is_it: impl FnMut(&K) -> bool,
    ) -> Option<(Place<'t, K, V>, (K, V))> {
        if let Some((slot, pair)) = self.find_in_slots(tag, &mut is_it) {
            return Some((Place::Slot(slot), pair));
        }
        let found = self.spill?.find_to_change(tag, is_it)?;
        let entry = found.node().entry();
        Some((Place::Spilled(found), (entry.key, entry.value)))
    }

    /// The entries in slots, with their tags.
    #[inline(always)]
    pub fn tagged(self) -> impl Iterator<Item = (usize, Hashed<K, V>)> {
        self.taken().map(move |slot| {
            let ((key, value), tag) = (slot.pair(), self.word.tag(slot.number));
            let hash = KnownHash::of_tag(tag);
            (slot.number, Hashed { key, value, hash })
        })
    }

    /// Returns the number of entries.
    pub fn count(self) -> usize {
        self.word.taken().bits().count_ones() as usize + self.nodes().count()
    }

    /// The nodes of the spill.
    pub fn nodes(self) -> impl Iterator<Item = Spill<'t, K, V>> {
        self.spill.into_iter().flat_map(Spill::nodes)
    }
}

/// Where an entry is.
pub enum Place<'t, K, V> {
    Slot(usize),
    Spilled(Found<'t, K, V>),
}

impl<K, V> Clone for Place<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Place<'_, K, V> {}

impl<'t, K, V> Bucket<'t, K, V> {
    #[inline(always)]
    pub fn of(parts: Parts<'t, Head<K, V>, Pairs<K, V>>) -> Self {
        let (head, slots) = (parts.before(), parts.behind());
        Self { head, slots }
    }

    #[inline(always)]
    pub fn word(&self) -> Word {
        // Acquire, pairs with `set_word`, `swap_word` and `mark_moved`: slots whose tags are seen hold
        // their entries, a bucket that has moved is complete in the next table, and a thread that locks
        // finds what the last one left.
        Word::from_bits(self.head.word.load(Ordering::Acquire))
    }

    /// Stores the word.
    ///
    /// # Safety
    ///
    /// The caller has the lock, or is alone with the bucket. A slot that gets a tag has an entry. One that
    /// loses it is said to be pending before it is clean, if there are readers.
    pub unsafe fn set_word(&self, word: Word) {
        // Release, pairs with `word` and `lock`: the entries in slots, and what is behind.
        self.head.word.store(word.bits(), Ordering::Release);
    }

    /// Stores the word by a read-modify-write.
    ///
    /// # Safety
    ///
    /// The same conditions as those of [`set_word`](Self::set_word).
    pub(super) unsafe fn swap_word(&self, word: Word) {
        // Release, pairs with `word` and `lock`: as in `set_word`.
        self.head.word.swap(word.bits(), Ordering::Release);
    }

    #[inline]
    pub fn behind(&self) -> Behind<'t, K, V> {
        // Acquire, pairs with `set_behind`: the spill is complete. And the word that is loaded after
        // this is not older.
        Behind(self.head.behind.load(Ordering::Acquire), PhantomData)
    }

    pub(super) fn set_behind(&self, behind: Behind<'_, K, V>) {
        // Release, pairs with `behind`: the spill is complete.
        self.head.behind.store(behind.0, Ordering::Release);
    }

    /// Replaces the word by its locked form, unless it has changed, or is locked: a thread would have the lock twice.
    #[inline]
    pub(super) fn lock_word(self, word: Word) -> bool {
        let (free, locked) = (word.bits(), word.locked().bits());
        // Acquire, pairs with `set_word`: the thread finds what the last one left.
        let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
        let word = &self.head.word;
        free != locked && word.compare_exchange(free, locked, taken, failed).is_ok()
    }

    /// Marks it as moved, unless its word has changed. It is not locked.
    pub fn mark_moved(&self, word: Word) -> bool {
        // Release, pairs with `word`: those that it has moved to have its entries.
        let marked = self.head.word.compare_exchange(
            word.bits(),
            word.moved().bits(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        marked.is_ok()
    }

    /// What is in it now.
    ///
    /// # Safety
    ///
    /// The word was loaded from this bucket in a section that lasts for `'t`; or the caller has the lock,
    /// and it is what the word will be.
    #[inline(always)]
    pub unsafe fn seen(self, word: Word) -> Seen<'t, K, V> {
        let spill = word.has_link().then(|| self.behind().spill()).flatten();
        // SAFETY: the caller's promise.
        unsafe { self.seen_with(word, spill) }
    }

    /// What is in it, of which the spill has been loaded.
    ///
    /// # Safety
    ///
    /// As for [`Bucket::seen`].
    #[inline(always)]
    pub unsafe fn seen_with(self, word: Word, spill: Option<Spill<'t, K, V>>) -> Seen<'t, K, V> {
        let bucket = self;
        Seen {
            bucket,
            word,
            spill,
        }
    }

    /// Has the system give memory to the page that the word is on, which stays as it is.
    pub fn touch(&self) {
        // Not an addition of 0, which the compiler leaves out, or makes a load.
        let word = self.head.word.load(Ordering::Relaxed);
        let _ = self
            .head
            .word
            .compare_exchange(word, word, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl<'t, K, V> AnyBucket for Bucket<'t, K, V> {
    type Old = OldNode<K, V>;
    type Locked = Locked<'t, K, V>;

    #[inline(always)]
    fn word(self) -> Word {
        Bucket::word(&self)
    }

    #[inline(always)]
    fn lock(self, word: Word) -> Option<Locked<'t, K, V>> {
        Bucket::lock(self, word)
    }

    fn clear(this: Unshared<Self>) {
        let bucket = this.get();
        if bucket.word() != Word::EMPTY || !bucket.behind().0.is_null() {
            bucket.set_behind(Behind::nothing());
            // SAFETY: no other thread reaches it.
            unsafe { bucket.set_word(Word::EMPTY) };
        }
    }

    #[inline]
    fn take_behind(this: Unshared<Self>) -> impl Iterator<Item = OldNode<K, V>> {
        let spill = match this.get().word().is_moved() {
            true => None,
            false => this.get().behind().spill(),
        };
        if spill.is_some() {
            this.get().set_behind(Behind::nothing());
        }
        let nodes = spill.into_iter().flat_map(Spill::nodes);
        // SAFETY: no bucket has the list any more, and no move has retired it.
        nodes.map(|node| unsafe { node.unlinked() })
    }
}

impl<'t, K: Copy, V: Copy> Bucket<'t, K, V> {
    /// # Safety
    ///
    /// The caller has the lock, or the bucket is of a table that no other thread knows; the slot is
    /// clean.
    pub unsafe fn write(&self, slot: usize, pair: (K, V)) {
        // SAFETY: no reader is at it, and no other writer.
        self.slots.0[slot].with_mut(|place| unsafe { (*place).write(pair) });
    }

    /// What `take` makes of the entry with this tag that `is_it` accepts: so a value comes back in
    /// registers, and a key that is not asked for is not copied.
    ///
    /// # Safety
    ///
    /// As for [`Bucket::seen`].
    #[inline(always)]
    pub unsafe fn find<R>(
        self,
        word: Word,
        tag: u8,
        mut is_it: impl FnMut(&K) -> bool,
        take: impl FnOnce((K, V)) -> R,
    ) -> Option<R> {
        // SAFETY: the caller's promise.
        let seen = unsafe { self.seen_with(word, None) };
        if let Some((_, pair)) = seen.find_in_slots(tag, &mut is_it) {
            return Some(take(pair));
        }
        if !word.has_link() {
            return None;
        }
        self.find_spilled(self.behind().spill()?, tag, is_it, take)
    }

    #[inline(never)]
    fn find_spilled<R>(
        self,
        spill: Spill<'t, K, V>,
        tag: u8,
        mut is_it: impl FnMut(&K) -> bool,
        take: impl FnOnce((K, V)) -> R,
    ) -> Option<R> {
        let found = spill.find(tag, &mut is_it)?.entry();
        // SAFETY: it is loaded from this bucket.
        let seen = unsafe { self.seen_with(self.word(), None) };
        match seen.find_in_slots(tag, is_it) {
            // An update is under way, and has not taken effect.
            Some((_, pair)) => Some(take(pair)),
            None => Some(take((found.key, found.value))),
        }
    }
}

/// Fills a bucket that no reader knows, and which holds nothing but what a thread that a fork has
/// removed may have left.
pub struct Filler<'t, K, V> {
    bucket: Bucket<'t, K, V>,
    word: Word,
    used: usize,
    spill: Option<Spill<'t, K, V>>,
}

impl<'t, K: Copy, V: Copy> Filler<'t, K, V> {
    /// Fills the bucket from its first slot on.
    #[inline(always)]
    pub fn of(bucket: Unshared<Bucket<'t, K, V>>) -> Self {
        Self {
            bucket: bucket.get(),
            word: Word::EMPTY,
            used: 0,
            spill: None,
        }
    }

    /// Goes on where another one has finished, or with a clear bucket.
    pub fn go_on(bucket: Unshared<Bucket<'t, K, V>>) -> Self {
        let bucket = bucket.get();
        let word = bucket.word();
        Self {
            bucket,
            word,
            used: word.taken().bits().count_ones() as usize,
            spill: bucket.behind().spill(),
        }
    }

    /// Puts an entry into the next slot, or behind the bucket, for which it takes a node.
    pub fn put(&mut self, entry: Hashed<K, V>, node: impl FnOnce() -> NewNode<K, V>) {
        if self.used < SLOTS {
            self.push(entry);
        } else {
            // SAFETY: this bucket, which stays for `'t`, gets it in `finish`.
            self.spill = Some(unsafe { node().fill(entry, self.spill) });
            self.word = self.word.spilled();
        }
    }

    /// Puts an entry into the next slot, which there is.
    #[inline(always)]
    pub fn push(&mut self, entry: Hashed<K, V>) {
        // SAFETY: the promise of `of`.
        unsafe { self.bucket.write(self.used, (entry.key, entry.value)) };
        self.word = self.word.filled(self.used, entry.hash.tag());
        self.used += 1;
    }

    /// Stores the word, and what is behind the slots.
    #[inline(always)]
    pub fn finish(self) {
        let behind = Behind::nothing().with_spill(self.spill);
        self.bucket.set_behind(behind);
        // SAFETY: the promise of `of`; the slots are written.
        unsafe { self.bucket.set_word(self.word) };
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{
        copy::{epochs::Epochs, table::InPlace},
        table::NewTable,
    };

    /// What a bucket lies in.
    struct Entries(NewTable<InPlace<u64, u64>>);

    impl Default for Entries {
        fn default() -> Self {
            Self(NewTable::new(1).expect("memory"))
        }
    }

    impl Entries {
        fn bucket(&self) -> Bucket<'_, u64, u64> {
            self.0.table().at(0)
        }
    }

    /// A word that a thread of another process has locked.
    fn abandoned(word: Word) -> Word {
        let word = Word::from_bits(word.bits() | 0x3f << 56);
        assert!(word.is_abandoned());
        word
    }

    fn with_entries(tags: &[u8]) -> Entries {
        let entries = Entries::default();
        let bucket = entries.bucket();
        let mut locked = bucket.lock(bucket.word()).expect("it is not locked");
        for tag in tags {
            assert!(locked.insert(*tag, (u64::from(*tag), 0)).is_some());
        }
        drop(locked);
        entries
    }

    #[test]
    fn a_locked_bucket_is_not_locked_again() {
        let entries = Entries::default();
        let bucket = entries.bucket();
        let locked = bucket.lock(bucket.word());
        assert!(locked.is_some() && bucket.lock(bucket.word()).is_none());
        drop(locked);
        assert!(bucket.lock(bucket.word()).is_some());
    }

    #[test]
    fn tags_are_of_all_values() {
        let tags: std::collections::HashSet<_> = (0..10_000)
            .map(|key| tag(crate::slot::spread(key)))
            .collect();
        assert!(tags.len() > 250, "{}", tags.len());
    }

    fn repair(bucket: Bucket<'_, u64, u64>) {
        let epochs = Epochs::<()>::new();
        // SAFETY: no other thread has it.
        unsafe { bucket.set_word(abandoned(bucket.word())) };
        let mut locked = bucket.lock(bucket.word()).expect("the thread has gone");
        locked.repair(|| epochs.now().stamp());
        drop(locked);
        assert_eq!(bucket.behind().stamp(), epochs.now().stamp());
        let untagged = !bucket.word().taken().bits() & ALL;
        assert_eq!(bucket.behind().pending(), untagged, "readers may be there");
    }

    /// A thread that a fork has removed had taken a tag away, and not said that the slot is pending.
    #[test]
    fn a_removal_is_repaired() {
        let entries = with_entries(&[7, 8]);
        let bucket = entries.bucket();
        // SAFETY: no other thread has it.
        unsafe { bucket.set_word(bucket.word().without(0)) };
        repair(bucket);
        assert_eq!(bucket.word().taken().bits(), 0b10);
    }

    /// It had put an entry behind the bucket, and not taken the tag away of the one that it
    /// replaces.
    #[test]
    fn an_update_that_spills_is_repaired() {
        let entries = with_entries(&[7, 8]);
        let bucket = entries.bucket();
        let new = Hashed {
            key: 7,
            value: 1,
            hash: KnownHash::of_tag(7),
        };
        // SAFETY: it is freed with the table.
        let spill = unsafe { NewNode::new().fill(new, None) };
        bucket.set_behind(bucket.behind().with_spill(Some(spill)).with_pending(1, 0));
        repair(bucket);
        assert_eq!(bucket.word().taken().bits(), 0b10);
        assert!(bucket.word().has_link());
        // SAFETY: no other thread has the bucket.
        let found = unsafe { bucket.find(bucket.word(), 7, |key| *key == 7, |pair| pair) };
        assert_eq!(found, Some((7, 1)));
    }
}
