//! A bucket: a cache line with seven slots, and behind it, while it has more items, further lines.
//!
//! ```text
//!   head   63     56 55  48 47                         6  1     0
//!          |        | depth | the next line's address /64 |    | lock |
//! ```
//!
//! The bucket of number `b` and depth `d` has the items whose hash is `b` modulo 2^d. A reader that
//! does not find an item looks at the depth behind the slots: if the bucket has been split
//! meanwhile, the depth says where the item is now. So it does if the bucket has been joined to the
//! one that it was split from: the depth is too low for its number then.
//!
//! Readers take no lock. Writers hold the bucket's, change one slot at a time, and never move a
//! word from slot to slot: so a reader finds an item that is there throughout. The last lines are
//! unlinked once they are empty, and freed after a grace period.

use super::super::{
    rcu::{Watch, global},
    word::{Word, tag},
};
#[cfg(not(stillpoint_loom))]
use std::{
    alloc::{Layout, alloc_zeroed},
    mem, thread,
};
use std::{
    hint,
    ptr::{self, NonNull},
};
#[cfg(stillpoint_loom)]
use stillpoint_platform::model::thread;
use stillpoint_platform::sync::{AtomicU64, Ordering};

const SLOTS: usize = if cfg!(stillpoint_loom) { 2 } else { 7 };

const LOCKED: u64 = 1;
const NEXT: u64 = ((1 << 48) - 1) & !63;
const DEPTH_SHIFT: u32 = 48;

/// Number of times that a thread looks at a lock before it yields: longer than a running holder needs.
const SPINS: u32 = if cfg!(stillpoint_loom) { 1 } else { 256 };

/// A line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Bucket {
    head: AtomicU64,
    slots: [AtomicU64; SLOTS],
    watch: Watch,
}

#[cfg(not(stillpoint_loom))]
const _: () = assert!(mem::size_of::<Bucket>() == 64);

/// There is no memory for another line.
#[derive(Debug)]
pub struct NoMemory;

impl Bucket {
    /// Creates an empty bucket of that depth.
    pub fn with_depth(depth: u32) -> Self {
        let bucket = Self::default();
        bucket.init(depth, false);
        bucket
    }

    /// Begins to use a line with empty slots, before other threads know it.
    pub fn init(&self, depth: u32, locked: bool) {
        let head = u64::from(depth) << DEPTH_SHIFT | u64::from(locked);
        self.head.store(head, Ordering::Relaxed);
    }

    /// Allocates a line with empty slots. Returns null without memory.
    fn allocate() -> *mut Self {
        #[cfg(stillpoint_loom)]
        return Box::into_raw(Box::default());
        #[cfg(not(stillpoint_loom))]
        // SAFETY: the layout is not empty. Zeros are such a line.
        unsafe {
            alloc_zeroed(Layout::new::<Self>()).cast()
        }
    }

    /// Models find readers that come here later than this.
    #[cfg(stillpoint_loom)]
    pub fn note_free(&self) {
        self.watch.note_free();
    }

    fn next(head: u64) -> *mut Bucket {
        ptr::with_exposed_provenance_mut((head & NEXT) as usize)
    }

    /// The line behind this one.
    #[inline]
    fn follow(&self) -> Option<&Bucket> {
        // Acquire, pairs with `insert`: the line has been made, and its word written.
        let next = Self::next(self.head.load(Ordering::Acquire));
        // SAFETY: lines are freed a grace period after they are unlinked, and the callers are in a
        // section or hold the lock without which no line is unlinked.
        unsafe { next.as_ref() }
    }

    /// The lines of the bucket. In a section, or with the lock.
    #[inline]
    pub fn lines(&self) -> impl Iterator<Item = &Bucket> {
        std::iter::successors(Some(self), |line| line.follow())
    }

    /// The slots of this line. In a section, or with the lock.
    #[inline]
    pub fn slots(&self) -> &[AtomicU64; SLOTS] {
        self.watch.note_read();
        &self.slots
    }

    /// Returns the depth d: it has the hashes whose low d bits equal those of its number.
    #[inline]
    pub fn depth(&self) -> u32 {
        // Acquire, pairs with `set_depth`: the bucket that the items have gone to has them.
        (self.head.load(Ordering::Acquire) >> DEPTH_SHIFT) as u32
    }

    /// Counts its further lines in `lines`.
    pub fn lock<'a>(&'a self, lines: &'a AtomicU64) -> Locked<'a> {
        let mut spins = 0;
        loop {
            self.watch.note_read();
            let head = self.head.load(Ordering::Relaxed);
            if head & LOCKED == 0 {
                // Acquire, pairs with `drop`: what the last holder has stored is seen.
                let taken = self.head.compare_exchange_weak(
                    head,
                    head | LOCKED,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if taken.is_ok() {
                    return self.made_locked(lines);
                }
            }
            spins += 1;
            if spins >= SPINS {
                spins = 0;
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
    }

    /// Returns the guard of a bucket that was created locked.
    pub fn made_locked<'a>(&'a self, lines: &'a AtomicU64) -> Locked<'a> {
        Locked {
            bucket: self,
            unlinked: None,
            lines,
        }
    }
}

/// A bucket whose lock is held.
#[derive(Debug)]
pub struct Locked<'a> {
    bucket: &'a Bucket,
    /// Lines that are to be freed once the lock is not held, one behind the other.
    unlinked: Option<NonNull<Bucket>>,
    /// How many lines the index has beside its buckets.
    lines: &'a AtomicU64,
}

impl<'a> Locked<'a> {
    pub fn depth(&self) -> u32 {
        (self.bucket.head.load(Ordering::Relaxed) >> DEPTH_SHIFT) as u32
    }

    /// For a split or a join: the items whose hashes it has no longer are in another bucket as well
    /// by now, or those that it has now are in it.
    pub fn set_depth(&mut self, depth: u32) {
        let head = self.bucket.head.load(Ordering::Relaxed);
        let head = head & !(0xff << DEPTH_SHIFT) | u64::from(depth) << DEPTH_SHIFT;
        // Release, pairs with `depth`.
        self.bucket.head.store(head, Ordering::Release);
    }

    /// All slots.
    pub fn slots(&self) -> impl Iterator<Item = &'a AtomicU64> + use<'a> {
        self.bucket.lines().flat_map(Bucket::slots)
    }

    /// The slot whose word has the hash's tag and suits `is_it`.
    #[inline]
    pub fn find(
        &self,
        hash: u64,
        mut is_it: impl FnMut(Word) -> bool,
    ) -> Option<(&'a AtomicU64, Word)> {
        let tag = tag(hash);
        self.slots().find_map(|slot| {
            let bits = slot.load(Ordering::Relaxed);
            let word = Word::from_bits(bits).filter(|_| Word::tag_of(bits) == tag)?;
            is_it(word).then_some((slot, word))
        })
    }

    /// Stores a word into a slot of this bucket.
    #[inline]
    pub fn put(&mut self, slot: &AtomicU64, word: Word) {
        // Release, pairs with `find`: the item has been written.
        slot.store(word.bits(), Ordering::Release);
    }

    /// Empties a slot of this bucket.
    pub fn clear(&mut self, slot: &AtomicU64) {
        // Release, pairs with `find`: a split has stored the depth before.
        slot.store(Word::NONE, Ordering::Release);
    }

    /// Adds a word. Returns whether the bucket's own line had room for it.
    pub fn insert(&mut self, word: Word) -> Result<bool, NoMemory> {
        let mut last = self.bucket;
        let mut own = true;
        for line in self.bucket.lines() {
            let is_free = |slot: &&AtomicU64| slot.load(Ordering::Relaxed) == Word::NONE;
            if let Some(free) = line.slots.iter().find(is_free) {
                self.put(free, word);
                return Ok(own);
            }
            (own, last) = (false, line);
        }
        let line = Bucket::allocate();
        // SAFETY: just made, and this thread's.
        let made = unsafe { line.as_ref() }.ok_or(NoMemory)?;
        made.slots[0].store(word.bits(), Ordering::Relaxed);
        let head = last.head.load(Ordering::Relaxed);
        let address = line.expose_provenance() as u64;
        // Release, pairs with `follow`.
        last.head.store(head | address, Ordering::Release);
        self.lines.fetch_add(1, Ordering::Relaxed);
        Ok(false)
    }

    /// Unlinks the last lines that are empty.
    pub fn trim(&mut self) {
        let is_used = |line: &&Bucket| {
            let mut slots = line.slots.iter();
            slots.any(|slot| slot.load(Ordering::Relaxed) != Word::NONE)
        };
        let bucket = self.bucket;
        let others = bucket.lines().skip(1);
        self.cut_behind(others.filter(is_used).last().unwrap_or(bucket));
    }

    /// Unlinks all lines but the first, which are empty.
    pub fn take_lines(&mut self) {
        self.cut_behind(self.bucket);
    }

    fn cut_behind(&mut self, last: &Bucket) {
        let head = last.head.load(Ordering::Relaxed);
        if head & NEXT == 0 || self.unlinked.is_some() {
            return;
        }
        self.unlinked = NonNull::new(Bucket::next(head));
        // Release, pairs with `depth`: a reader that passes over a line, because this is what it
        // loads, has seen none of the slots there that a split has emptied; but it goes on to what
        // was copied.
        last.head.store(head & !NEXT, Ordering::Release);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let head = self.bucket.head.load(Ordering::Relaxed);
        // Release, pairs with `lock`.
        self.bucket.head.store(head & !LOCKED, Ordering::Release);
        let mut unlinked = self.unlinked;
        while let Some(line) = unlinked {
            // SAFETY: unlinked by this guard alone, and retired below.
            let head = unsafe { line.as_ref() }.head.load(Ordering::Relaxed);
            unlinked = NonNull::new(Bucket::next(head));
            self.lines.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: allocated with the layout of its type, unlinked by this guard alone, and
            // without a destructor.
            unsafe { global().retire(line) };
        }
    }
}

/// Frees the lines behind a bucket that no thread uses any more.
pub fn free_lines(bucket: &mut Bucket) {
    let mut next = Bucket::next(bucket.head.load(Ordering::Relaxed));
    while !next.is_null() {
        // SAFETY: made by `insert` with that layout, and reached from here alone.
        let line = unsafe { Box::from_raw(next) };
        next = Bucket::next(line.head.load(Ordering::Relaxed));
    }
}
