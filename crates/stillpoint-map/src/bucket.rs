//! A bucket, and the chain that begins with it.
//!
//! A bucket is a cache line: a [`Word`] and seven slots. Each hash has a home bucket; when that is
//! full, its last entry moves to another bucket, to which the slot then links. Home and what it
//! links to are the chain, and the lock in the home's word is about all of it.
//!
//! # Reading
//!
//! A reader takes no lock. It loads the word, and the slots whose tags are right. What it can rely
//! on, for a key that is in the map all the time:
//!
//! * The key stays in its slot, and the slot keeps its tag, with one exception: the last slot's
//!   entry is in the next bucket, complete and with its tag, before the slot becomes the link. So a
//!   reader that finds a link where it expected an entry goes on there.
//! * A bucket that has left the chain, and is retired then, had no entry. A reader that has a link from
//!   before finds the bucket; one that finds no link, or an entry in its place, is through: what is
//!   there came after the word.
//! * A key that comes back after it was removed may be in another slot, and a reader may miss it
//!   there; but then there was an instant, while it was reading, without the key.
//!
//! # Writing
//!
//! Under the lock: an insert gives an empty slot the tag, and then the entry; an update replaces
//! the entry; a removal empties the slot, and then takes the tag away. So a slot without a tag is
//! empty, and the store of the slot is where each of the three takes effect: a reader that still
//! has a tag from an earlier entry sees no new entry before others can. A removal that leaves the end
//! of the chain empty cuts it off. Where the bucket is all of
//! its chain, the exchange that takes the lock also sets the tag ([`Bucket::add_at_once`]), and the
//! store that gives it back takes the tag away ([`Bucket::remove_at_once`]). No user code runs and
//! nothing is allocated meanwhile, so a lock is held for nanoseconds, unless the thread is
//! preempted.
//!
//! If a fork removes a thread that holds the lock, the child finds the chain in the middle of one of
//! these, and [`Locked::repair`] ends it: an entry that is not in its slot yet, or no more, was not
//! inserted, or has been removed. A bucket that was cut off just then is the thread's, and lost with it.

use crate::{
    section::{Live, Unshared},
    slot::{Head, Slot},
    table::{AnyBucket, AnyLocked, Old},
    word::{Offset, SLOTS, Word},
};
use std::{
    iter,
    mem::{self, ManuallyDrop},
    ptr::{self, NonNull},
};
use stillpoint_platform::sync::{AtomicPtr, AtomicU64, Ordering};

/// A cache line of a table, or a bucket behind one.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Bucket {
    word: AtomicU64,
    slots: [AtomicPtr<Head>; SLOTS],
}

#[cfg(not(stillpoint_loom))]
const _: () = assert!(size_of::<Bucket>() == 64);
/// Models, too, find a slot by its offset.
#[cfg(not(stillpoint_shuttle))]
const _: () = assert!(size_of::<AtomicPtr<Head>>() == size_of::<u64>());

impl Default for Bucket {
    fn default() -> Self {
        Self {
            word: AtomicU64::new(Word::EMPTY.bits()),
            slots: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }
}

impl Bucket {
    #[inline(always)]
    pub fn word(&self) -> Word {
        // Acquire, pairs with `set_word` and `lock`: slots whose tags are seen hold their entries,
        // a bucket that has moved is complete in the next table, and a thread that locks finds what
        // the last one left.
        Word::from_bits(self.word.load(Ordering::Acquire))
    }

    #[inline]
    fn set_word(&self, word: Word) {
        // Release, pairs with `word` and `lock`: what was done to the chain before.
        self.word.store(word.bits(), Ordering::Release);
    }

    #[inline]
    fn swap_word(&self, word: Word) {
        // Release, pairs with `word` and `lock`: as in `set_word`.
        self.word.swap(word.bits(), Ordering::Release);
    }

    /// Has the system give memory to the page that this is on. The word stays as it is.
    pub fn touch(&self) {
        // Not an addition of 0, which the compiler leaves out, or makes a load. Nor after a load, for
        // which the system would map a page of zeroes, to replace that on all processors.
        let empty = Word::EMPTY.bits();
        let _ = self
            .word
            .compare_exchange(empty, empty, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Replaces the word by its locked form, unless it has changed, or is locked: a thread would have the lock twice.
    #[inline]
    pub fn lock(&self, word: Word) -> Option<Locked<'_>> {
        let lock = word.locked();
        if lock == word {
            return None;
        }
        let locked = Locked {
            home: self,
            word: lock,
        };
        // Acquire, pairs with `set_word`: the thread finds what the last one left.
        let won = self.word.compare_exchange(
            word.bits(),
            locked.word.bits(),
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        match won {
            Ok(_) => Some(locked),
            Err(_) => {
                mem::forget(locked);
                None
            }
        }
    }

    /// Puts an entry in, if it is plain that none with its tag is in the chain, and this has an empty
    /// slot. If the bucket is empty, it asks `claim` first, which refuses one of another table. Returns
    /// false if nothing was done.
    #[inline(always)]
    pub fn add_at_once(&self, entry: Slot<'_>, tag: u8, claim: impl FnOnce() -> bool) -> bool {
        let word = self.word();
        // An empty word needs no search, which pays for the call.
        let slot = if word == Word::EMPTY {
            if !claim() {
                return false;
            }
            0
        } else {
            if !word.is_plain() || !word.with_tag(tag).is_empty() {
                return false;
            }
            let Some(slot) = word.free() else {
                return false;
            };
            slot
        };
        // With the tag: a word that has not changed says that there is still none.
        let locked = word.locked().with(slot, tag);
        // Acquire, pairs with `set_word`: the slot is empty. A reader that sees the tag finds it so, or
        // with the entry: what the last thread has released goes on with a read-modify-write.
        let won = self.word.compare_exchange(
            word.bits(),
            locked.bits(),
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if won.is_ok() {
            self.set_slot(slot, entry);
            self.set_word(locked.unlocked());
        }
        won.is_ok()
    }

    /// Takes an entry out, if it is in this bucket, which is all of its chain. Returns whether there is
    /// none left; `None` if nothing was done.
    #[inline]
    pub fn remove_at_once(&self, entry: NonNull<Head>, tag: u8) -> Option<bool> {
        let word = self.word();
        let is_in = |slot: &usize| self.slot(*slot).as_entry().map(Live::pointer) == Some(entry);
        let slot = word.with_tag(tag).find(is_in)?;
        self.take_at_once(word, slot, entry)
    }

    /// Takes an entry out of the slot in which it was seen, with that word. Returns whether there is none left;
    /// `None` if nothing was done: the bucket has changed, or is not all of its chain.
    #[inline]
    pub fn take_at_once(&self, word: Word, slot: usize, entry: NonNull<Head>) -> Option<bool> {
        if !word.is_plain() {
            return None;
        }
        let locked = self.lock(word)?;
        // Another thread may have replaced it, which does not show in the word.
        if self.slot(slot).as_entry().map(Live::pointer) != Some(entry) {
            return None;
        }
        mem::forget(locked);
        self.set_slot(slot, Slot::NONE);
        let word = word.without(slot);
        self.set_word(word);
        Some(word.is_empty())
    }

    #[inline(always)]
    pub fn slot(&self, slot: usize) -> Slot<'_> {
        // Acquire, pairs with `set_slot`: the entry, or the bucket of the link, is complete.
        let word = self.slots[slot].load(Ordering::Acquire);
        // SAFETY: loaded from a slot, inside a section, or under the lock.
        unsafe { Slot::of(word) }
    }

    #[inline(always)]
    pub fn slot_at(&self, offset: Offset) -> Slot<'_> {
        let first = self.slots.as_ptr();
        // SAFETY: an offset is that of one of the slots.
        let slot = unsafe {
            &*first
                .wrapping_byte_sub(Offset::MORE)
                .wrapping_byte_add(offset.bytes())
        };
        // Acquire, pairs with `set_slot`: as in `slot`.
        let word = slot.load(Ordering::Acquire);
        // SAFETY: as in `slot`.
        unsafe { Slot::of(word) }
    }

    #[inline]
    fn set_slot(&self, slot: usize, value: Slot<'_>) {
        // Release, pairs with `slot`: what it refers to is complete.
        self.slots[slot].store(value.word(), Ordering::Release);
    }

    /// The next bucket of the chain, if the last slot is a link.
    #[inline(always)]
    pub fn next(&self) -> Option<&Bucket> {
        let link = self.link()?;
        // SAFETY: a bucket of a chain is retired after it has left that, or the chain has moved. The
        // caller is inside a section, or has the lock.
        Some(unsafe { link.as_ref() })
    }

    /// Returns the link in the last slot.
    #[inline(always)]
    fn link(&self) -> Option<NonNull<Self>> {
        self.slot(SLOTS - 1).as_link()
    }

    /// Returns the buckets of a chain from `first` on, as they were allocated.
    fn links_from(first: Option<NonNull<Self>>) -> impl Iterator<Item = NonNull<Self>> {
        iter::successors(first, |bucket| {
            // SAFETY: a bucket of a chain, or one that has just left it. `successors` reads the next link
            // before it returns a bucket, so the caller may free that.
            unsafe { bucket.as_ref() }.link()
        })
    }

    /// Returns the buckets behind this one, to be retired.
    ///
    /// # Safety
    ///
    /// The chain has moved, or has left that of another bucket. This is called once.
    pub unsafe fn unlinked(&self) -> impl Iterator<Item = OldBucket> {
        Self::links_from(self.link()).map(OldBucket)
    }

    /// This bucket and those behind it.
    pub fn chain(&self) -> impl Iterator<Item = &Bucket> {
        iter::successors(Some(self), |bucket| bucket.next())
    }
}

impl Unshared<&Bucket> {
    #[inline(always)]
    pub fn set_word(self, word: Word) {
        self.get().set_word(word);
    }

    #[inline(always)]
    pub fn set_slot(self, slot: usize, value: Slot<'_>) {
        self.get().set_slot(slot, value);
    }

    /// Links `next` behind this bucket, whose word was to be `word`. Returns `next`.
    pub fn link(self, word: Word, next: Box<Bucket>) -> Self {
        let next = NonNull::from(Box::leak(next));
        // SAFETY: a bucket of a chain is retired after it has left that, or the chain has moved.
        self.set_slot(SLOTS - 1, unsafe { Slot::link(next) });
        self.set_word(word.linked());
        // SAFETY: from a box just now, and in a chain, which stays. Not the box's own reference, whose writes would
        // end what the link may be used for.
        unsafe { Self::of(next.as_ref()) }
    }
}

/// A bucket that no reader from now on finds.
#[derive(Debug)]
pub struct OldBucket(NonNull<Bucket>);

// SAFETY: from a box; it is used by its owner alone, but for readers that came before.
unsafe impl Send for OldBucket {}

// SAFETY: from a box.
unsafe impl Old for OldBucket {
    type Target = Bucket;

    fn pointer(&self) -> NonNull<Bucket> {
        self.0
    }
}

impl<'t> AnyBucket for &'t Bucket {
    type Old = OldBucket;
    type Locked = Locked<'t>;

    #[inline(always)]
    fn word(self) -> Word {
        Bucket::word(self)
    }

    #[inline(always)]
    fn lock(self, word: Word) -> Option<Locked<'t>> {
        Bucket::lock(self, word)
    }

    fn clear(this: Unshared<Self>) {
        if this.get().word() != Word::EMPTY {
            (0..SLOTS).for_each(|slot| this.set_slot(slot, Slot::NONE));
            this.set_word(Word::EMPTY);
        }
    }

    #[inline]
    fn take_behind(this: Unshared<Self>) -> impl Iterator<Item = OldBucket> {
        let word = this.get().word();
        let link = if word.has_link() && !word.is_moved() {
            this.get().link()
        } else {
            None
        };
        if link.is_some() {
            this.set_slot(SLOTS - 1, Slot::NONE);
        }
        Bucket::links_from(link).map(OldBucket)
    }
}

impl AnyLocked for Locked<'_> {
    fn set_moved(&mut self) {
        // Without tags, so that no look-up that comes from now on takes an entry for one that is still
        // in the map. What has an earlier word finds the slots as they were.
        self.word = Word::EMPTY.moved();
    }
}

/// Where an entry is, or an empty slot.
#[derive(Clone, Copy, Debug)]
struct Place<'t> {
    bucket: &'t Bucket,
    slot: usize,
}

/// The lock of a chain, until this is dropped.
#[derive(Debug)]
pub struct Locked<'t> {
    home: &'t Bucket,
    /// The home's word, locked.
    word: Word,
}

impl<'t> Locked<'t> {
    /// As if the lock had been taken, with the word as it was before.
    #[cfg(all(test, stillpoint_loom))]
    pub fn unlocked(home: &'t Bucket, word: Word) -> Self {
        Self {
            home,
            word: word.locked(),
        }
    }

    #[inline]
    fn word(&self, bucket: &Bucket) -> Word {
        if ptr::eq(bucket, self.home) {
            self.word
        } else {
            bucket.word()
        }
    }

    /// Changes the word of a bucket; the lock stays.
    #[inline]
    fn set_word(&mut self, bucket: &Bucket, word: Word) {
        if ptr::eq(bucket, self.home) {
            self.word = word;
        }
        bucket.set_word(word);
    }

    /// The home and its word, if it is all of its chain.
    #[inline]
    pub fn home_alone(&self) -> Option<(&'t Bucket, Word)> {
        (!self.word.has_link()).then_some((self.home, self.word))
    }

    /// Returns whether the home has no entries.
    #[inline]
    pub fn is_home_empty(&self) -> bool {
        self.word.is_empty()
    }

    /// Returns the first entry whose tag is `tag`, and perhaps one with another's, that `is_it` accepts.
    #[inline]
    pub fn find(
        &self,
        tag: u8,
        mut is_it: impl FnMut(Live<'t, Head>) -> bool,
    ) -> Option<Live<'t, Head>> {
        let mut found = None;
        self.place(tag, |entry| {
            found = Some(entry).filter(|entry| is_it(*entry));
            found.is_some()
        })?;
        found
    }

    /// Returns where the first such entry is.
    #[inline]
    fn place(&self, tag: u8, mut is_it: impl FnMut(Live<'t, Head>) -> bool) -> Option<Place<'t>> {
        let (mut bucket, mut word) = (self.home, self.word);
        loop {
            for slot in word.with_tag(tag) {
                if bucket.slot(slot).as_entry().is_some_and(&mut is_it) {
                    return Some(Place { bucket, slot });
                }
            }
            if !word.has_link() {
                return None;
            }
            bucket = bucket.next()?;
            word = bucket.word();
        }
    }

    /// All entries of the chain, with their slots and tags.
    pub fn entries(&self) -> impl Iterator<Item = (Slot<'t>, u8, Live<'t, Head>)> {
        self.home.chain().flat_map(move |bucket| {
            let word = self.word(bucket);
            word.taken().filter_map(move |index| {
                let slot = bucket.slot(index);
                Some((slot, word.tag(index), slot.as_entry()?))
            })
        })
    }

    /// Returns the first empty place.
    #[inline]
    fn free(&self) -> Option<Place<'t>> {
        let (mut bucket, mut word) = (self.home, self.word);
        loop {
            if let Some(slot) = word.free() {
                return Some(Place { bucket, slot });
            }
            if !word.has_link() {
                return None;
            }
            bucket = bucket.next()?;
            word = bucket.word();
        }
    }

    /// Puts an entry into the first empty slot. Returns whether that is one of the home. Returns `None`, and does
    /// nothing, if there is none: [`extend`](Self::extend) the chain then.
    #[inline]
    pub fn add(&mut self, slot: Slot<'_>, tag: u8) -> Option<bool> {
        let place = self.free()?;
        let word = self.word(place.bucket).with(place.slot, tag);
        self.set_word(place.bucket, word);
        place.bucket.set_slot(place.slot, slot);
        Some(ptr::eq(place.bucket, self.home))
    }

    /// Replaces an entry that has this tag. Returns false if it is not in the chain.
    #[inline]
    pub fn replace(&mut self, old: Live<'_, Head>, slot: Slot<'_>, tag: u8) -> bool {
        let place = self.place(tag, |entry| entry == old);
        if let Some(place) = place {
            place.bucket.set_slot(place.slot, slot);
        }
        place.is_some()
    }

    /// Takes an entry out that has this tag. Returns the buckets that have left the chain with it; `None` if it is
    /// not in the chain.
    #[inline]
    pub fn remove(
        &mut self,
        entry: Live<'_, Head>,
        tag: u8,
    ) -> Option<impl Iterator<Item = OldBucket> + use<>> {
        let place = self.place(tag, |other| other == entry)?;
        place.bucket.set_slot(place.slot, Slot::NONE);
        self.set_word(place.bucket, self.word(place.bucket).without(place.slot));
        let left = if ptr::eq(place.bucket, self.home) {
            None
        } else {
            self.cut()
        };
        Some(Bucket::links_from(left).map(OldBucket))
    }

    /// Cuts off the buckets without entries that end the chain. They still have their links, for readers
    /// that have come there.
    fn cut(&mut self) -> Option<NonNull<Bucket>> {
        let has_entries = |bucket: &&Bucket| !self.word(bucket).is_empty();
        let last = self.home.chain().filter(has_entries).last();
        let last = last.unwrap_or(self.home);
        let left = last.link()?;
        last.set_slot(SLOTS - 1, Slot::NONE);
        self.set_word(last, self.word(last).unlinked());
        Some(left)
    }

    /// Adds an empty bucket to a chain that is full: the last entry moves into it.
    pub fn extend(&mut self, spare: Box<Bucket>) {
        let last = self.home.chain().last().expect("the home is one");
        let word = self.word(last);
        spare.set_slot(0, last.slot(SLOTS - 1));
        spare.set_word(Word::EMPTY.with(0, word.tag(SLOTS - 1)));
        // A reader that has the old word follows the link. There is nothing new behind it before
        // all readers do: else a key could be seen, and then not be seen.
        let link = NonNull::from(Box::leak(spare));
        // SAFETY: it is retired after it has left the chain, or the chain has moved.
        last.set_slot(SLOTS - 1, unsafe { Slot::link(link) });
        self.set_word(last, word.linked());
    }

    /// Ends what a thread that a fork has removed was doing.
    pub fn repair(&mut self) {
        for bucket in self.home.chain() {
            let mut word = self.word(bucket);
            word = if bucket.next().is_some() {
                word.linked()
            } else {
                word.unlinked()
            };
            for slot in word.taken() {
                if bucket.slot(slot).as_entry().is_none() {
                    word = word.without(slot);
                }
            }
            self.set_word(bucket, word);
        }
    }

    /// Unlocks by a read-modify-write, after which a fence costs nothing on x86-64.
    #[inline]
    pub fn unlock(self) {
        let this = ManuallyDrop::new(self);
        this.home.swap_word(this.word.unlocked());
    }
}

#[cfg(test)]
impl Locked<'_> {
    /// As [`add`](Self::add), and extends the chain if it is full.
    pub fn add_behind(&mut self, slot: Slot<'_>, tag: u8) {
        if self.add(slot, tag).is_none() {
            self.extend(crate::resize::spare());
            self.add(slot, tag).expect("it was extended");
        }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.home.set_word(self.word.unlocked());
    }
}

// Detects a link that stays in the slot or after a repair, and tags that stay in a bucket that has
// moved.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::resize::spare;

    const TAG: u8 = 9;

    /// A home, and so many entries in its chain, in their order.
    fn filled(heads: &mut [Head]) -> Box<Bucket> {
        let home = spare();
        for head in heads {
            let mut locked = home.lock(home.word()).expect("no other thread");
            // SAFETY: the entries stay until the end of the test.
            locked.add_behind(unsafe { Slot::entry(NonNull::from(head), 0, 1) }, TAG);
        }
        home
    }

    fn heads() -> [Head; 19] {
        std::array::from_fn(|_| Head::new(0))
    }

    #[test]
    fn a_locked_bucket_is_not_locked_again() {
        let home = spare();
        let locked = home.lock(home.word());
        assert!(locked.is_some() && home.lock(home.word()).is_none());
        drop(locked);
        assert!(home.lock(home.word()).is_some());
    }

    /// Takes entries out, and returns how many buckets have left the chain.
    fn remove(home: &Bucket, heads: &mut [Head]) -> usize {
        let each = heads.iter_mut().map(|head| {
            let mut locked = home.lock(home.word()).expect("no other thread");
            // SAFETY: the entries stay until the end of the test.
            let left = locked.remove(unsafe { Live::of(NonNull::from(head)) }, TAG);
            let left = left.expect("it is in the chain");
            // SAFETY: boxes, which no other thread knows.
            let freed = |old: OldBucket| drop(unsafe { Box::from_raw(old.pointer().as_ptr()) });
            left.map(freed).count()
        });
        each.sum()
    }

    #[test]
    fn empty_buckets_that_end_a_chain_leave_it() {
        let mut heads = heads();
        let home = filled(&mut heads);
        assert_eq!(home.chain().count(), 3);
        // Of the second bucket, of which the first entry was the home's last; then of the third, but
        // one; of the home; and the last.
        assert_eq!(remove(&home, &mut heads[6..12]), 0);
        assert_eq!(remove(&home, &mut heads[13..]), 0);
        assert_eq!(remove(&home, &mut heads[..6]), 0);
        assert_eq!(home.chain().count(), 3);
        assert_eq!(remove(&home, &mut heads[12..13]), 2);
        assert_eq!(home.word(), Word::EMPTY);
        assert_eq!(home.slot(SLOTS - 1), Slot::NONE);
    }

    /// The word does not show that the slot has another entry of the same tag now.
    #[test]
    fn an_entry_that_was_replaced_is_not_taken_at_once() {
        let mut heads = heads();
        let home = filled(&mut heads[..1]);
        let [old, new] = [0, 1].map(|at| NonNull::from(&heads[at]));
        let word = home.word();
        let mut locked = home.lock(word).expect("no other thread");
        // SAFETY: the entries stay until the end of the test.
        let is_replaced = unsafe { locked.replace(Live::of(old), Slot::entry(new, 0, 1), TAG) };
        drop(locked);
        assert!(is_replaced && home.word() == word);
        assert_eq!(home.take_at_once(word, 0, old), None);
        assert!(home.word() == word, "it is unlocked");
        assert_eq!(home.take_at_once(word, 0, new), Some(true));
    }

    #[test]
    fn slots_are_found_by_number_and_by_offset() {
        let mut heads = heads();
        let home = filled(&mut heads[..SLOTS]);
        let (mut offsets, numbers) = (home.word().with_tag(TAG), home.word().with_tag(TAG));
        for number in numbers {
            let offset = offsets.next_offset().expect("as many");
            assert_eq!(offset.slot(), number);
            assert_eq!(home.slot_at(offset), home.slot(number));
        }
        assert!(offsets.is_empty());
    }

    /// A look-up asks whether a bucket has moved when it has found nothing there.
    #[test]
    fn a_bucket_that_has_moved_has_no_tags() {
        let mut heads = heads();
        let home = filled(&mut heads[..SLOTS]);
        let mut locked = home.lock(home.word()).expect("no other thread");
        locked.set_moved();
        drop(locked);
        assert!(home.word().is_moved() && home.word().goes_on());
        assert!(home.word().is_empty() && !home.word().is_locked());
    }

    /// A bucket is cut off when the thread goes, and the word does not say so yet.
    #[test]
    fn a_cut_is_repaired() {
        let mut heads = heads();
        let home = filled(&mut heads[..8]);
        let link = home.link().expect("it has one");
        home.set_slot(SLOTS - 1, Slot::NONE);
        let mut locked = home.lock(home.word()).expect("no other thread");
        assert!(locked.word.has_link());
        locked.repair();
        assert_eq!(locked.free().map(|place| place.slot), Some(SLOTS - 1));
        drop(locked);
        assert!(home.word().is_plain());
        // SAFETY: a box, which no other thread knows.
        drop(unsafe { Box::from_raw(link.as_ptr()) });
    }
}
