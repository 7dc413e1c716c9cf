//! A table of buckets with their entries: as [`crate::table`], whose references are one word, too.
//!
//! The heads of the buckets lie before the table's header, the last one first, and the slots behind it:
//! so the address of the header finds both.
//!
//! ```text
//! | head of bucket n - 1 | ... | head of bucket 0 | header | slots of bucket 0 | ... | of n - 1 |
//! ```

use super::{
    bucket::{Bucket, Head, Pairs, tag},
    locked::Locked,
};
use crate::{
    backoff::Backoff,
    memory::{Memory, prefetch},
    table::Units,
    used::Used,
    word::Word,
};
use std::{
    alloc::Layout,
    marker::PhantomData,
    ops::Range,
    ptr::{self, NonNull},
};
use stillpoint_platform::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// What stands between the buckets' heads and their slots.
#[repr(C, align(64))]
pub struct Header<K, V> {
    /// The table that this one moves to; null while it does not.
    next: AtomicPtr<Header<K, V>>,
    memory: Memory<Header<K, V>, Pairs<K, V>, Head<K, V>>,
    /// Where there are spills, and what a move to a sparse table has filled.
    used: Used,
    /// Whether few entries move to it ([`crate::resize`]).
    sparse: AtomicBool,
    pub units: Units,
    /// As aligned as slots and heads are.
    slots: [Pairs<K, V>; 0],
    heads: [Head<K, V>; 0],
}

/// A table that exists for as long as `'t`: a section, or the map.
pub struct Table<'t, K, V> {
    word: NonNull<Header<K, V>>,
    table: PhantomData<&'t Header<K, V>>,
}

impl<K, V> Clone for Table<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Table<'_, K, V> {}

impl<'t, K, V> Table<'t, K, V> {
    /// Makes an empty table that uses `bits` bits of each hash. `None` without memory.
    pub fn new(bits: u32) -> Option<Self> {
        let memory = Memory::of_buckets(bits)?;
        let start = memory.start();
        let header = Header {
            next: AtomicPtr::new(ptr::null_mut()),
            used: Used::new(memory.is_mapped(), 1 << bits)?,
            sparse: AtomicBool::new(false),
            memory,
            units: Units {
                taken: AtomicU64::new(0),
                done: AtomicU64::new(0),
                extended: AtomicU64::new(0),
            },
            slots: [],
            heads: [],
        };
        // SAFETY: the memory begins with room for it, and is no other's.
        unsafe { start.write(header) };
        let shift = 64 - bits as usize;
        Some(Self::of(start.map_addr(|address| address | shift)))
    }

    /// The memory of a table that uses `bits` bits of each hash. `None` if no memory can be so large.
    pub fn layout(bits: u32) -> Option<Layout> {
        Memory::<Header<K, V>, Pairs<K, V>, Head<K, V>>::layout(bits)
    }

    fn of(word: NonNull<Header<K, V>>) -> Self {
        Self {
            word,
            table: PhantomData,
        }
    }

    /// The table that a word refers to, if it is not null.
    ///
    /// # Safety
    ///
    /// It came from [`Table::into_word`], and the table exists for as long as `'t`.
    #[inline(always)]
    pub unsafe fn from_word(word: *mut Header<K, V>) -> Option<Self> {
        NonNull::new(word).map(Self::of)
    }

    pub fn into_word(self) -> *mut Header<K, V> {
        self.word.as_ptr()
    }

    /// By how many places to shift, in the low bits.
    #[inline(always)]
    fn shift(self) -> u32 {
        self.word.addr().get() as u32
    }

    /// How many bits of a hash choose a bucket.
    pub fn bits(self) -> u32 {
        64 - (self.shift() & 63)
    }

    pub fn buckets(self) -> usize {
        1 << self.bits()
    }

    #[inline(always)]
    fn start(self) -> *mut Header<K, V> {
        self.word.as_ptr().map_addr(|address| address & !63)
    }

    /// The block that the table is, if it is a small one of the allocator's.
    pub fn as_block(self) -> Option<(NonNull<u8>, Layout)> {
        self.header().memory.as_block()
    }

    /// The addresses of the first byte of its buckets, and behind the last one.
    #[cfg(all(test, not(stillpoint_loom)))]
    pub fn limits(self) -> (usize, usize) {
        let start = self.start();
        let first = start.cast::<Head<K, V>>().wrapping_sub(self.buckets());
        (first.addr(), self.slots_at(self.buckets()).addr())
    }

    /// Makes pages that are written from now on small, or huge again ([`Memory::prefer_huge_pages`]).
    pub fn prefer_huge_pages(self, huge: bool) {
        self.header().memory.prefer_huge_pages(huge);
    }

    /// Marks a table that no other thread knows yet as one that few entries move to.
    pub fn set_sparse(self) {
        // Relaxed: `set_next` makes it known.
        self.header().sparse.store(true, Ordering::Relaxed);
        self.prefer_huge_pages(false);
    }

    /// Returns whether [`set_sparse`](Self::set_sparse) was called.
    pub fn is_sparse(self) -> bool {
        self.header().sparse.load(Ordering::Relaxed)
    }

    /// Notes that the bucket of that number has a spill from now on, or is filled in a sparse table.
    pub fn note_used(self, index: usize) {
        let claimed = self.header().used.claim(index);
        debug_assert!(claimed, "moves of copies pass nothing");
    }

    /// Empties the buckets of a range of a sparse table, which no other thread of this process can reach
    /// ([`Bucket::clear`]).
    pub fn clear(self, buckets: Range<usize>) {
        let used = self.header().used.of(buckets);
        used.for_each(|index| self.at(index).clear());
    }

    pub fn header(self) -> &'t Header<K, V> {
        // SAFETY: that of `from_word`.
        unsafe { &*self.start() }
    }

    /// The number of a hash's bucket.
    #[inline(always)]
    pub fn index(self, hash: u64) -> usize {
        // The shift is taken modulo 64.
        hash.wrapping_shr(self.shift()) as usize
    }

    /// The bucket of that number, which is below [`Table::buckets`].
    #[inline(always)]
    pub fn at(self, index: usize) -> Bucket<'t, K, V> {
        // SAFETY: as many heads stand before the header, and as many slots behind it.
        unsafe {
            Bucket::of(
                &*self.start().cast::<Head<K, V>>().sub(1 + index),
                &*self.slots_at(index),
            )
        }
    }

    #[inline(always)]
    fn slots_at(self, index: usize) -> *const Pairs<K, V> {
        let first = self.start().wrapping_add(1).cast::<Pairs<K, V>>();
        first.wrapping_add(index)
    }

    /// Fetches the first two cache lines of the slots of a hash's bucket.
    #[inline(always)]
    pub fn fetch(self, hash: u64) {
        const LINE: usize = 64;
        let slots = self.slots_at(self.index(hash));
        prefetch(slots);
        if size_of::<Pairs<K, V>>() > LINE {
            prefetch(slots.wrapping_byte_add(LINE));
        }
    }

    /// The last hash whose bucket is that of that number.
    pub fn last_hash(self, index: usize) -> u64 {
        ((index as u64) << (64 - self.bits())) | (u64::MAX >> self.bits())
    }

    /// The table that this one moves to.
    #[inline]
    pub fn next(self) -> Option<Self> {
        // Acquire, pairs with `set_next`: the table is complete. So it exists for as long as this
        // one, and is retired after it.
        // SAFETY: it came from `into_word`; the sections that may find this table find the next
        // one before it is retired.
        unsafe { Self::from_word(self.header().next.load(Ordering::Acquire)) }
    }

    /// The last of the tables that this one moves to, one after the other; or this one.
    pub fn last(self) -> Self {
        let mut last = self;
        while let Some(next) = last.next() {
            last = next;
        }
        last
    }

    /// Makes `next` the table that this one moves to, unless there is one.
    pub fn set_next(self, next: Table<'t, K, V>) -> bool {
        // Release, pairs with `next`: the table is complete.
        let set = self.header().next.compare_exchange(
            ptr::null_mut(),
            next.into_word(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        set.is_ok()
    }

    /// The table, this one or a later, and the number of the bucket in it, where `hash` belongs;
    /// with the bucket's word, which says that it has not moved.
    #[inline(always)]
    pub fn home(self, hash: u64) -> (Self, usize, Word) {
        let mut table = self;
        loop {
            let index = table.index(hash);
            let word = table.at(index).word();
            if !word.is_moved() {
                return (table, index, word);
            }
            table = table.next().expect("what has moved is in the next table");
        }
    }

    /// The same table, for as long as the caller knows it to exist.
    ///
    /// # Safety
    ///
    /// It is not used after that.
    pub unsafe fn forget_lifetime<'a>(self) -> Table<'a, K, V> {
        Table::of(self.word)
    }

    /// Frees the table's memory, and what is behind buckets that have not moved; that of the others
    /// has been retired.
    ///
    /// # Safety
    ///
    /// No other thread uses the table any more.
    pub unsafe fn free(self) {
        for index in self.header().used.of(0..self.buckets()) {
            let bucket = self.at(index);
            if !bucket.word().is_moved()
                && let Some(spill) = bucket.behind().spill()
            {
                // SAFETY: the caller's promise.
                unsafe { spill.nodes().for_each(|node| node.free()) };
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.free_memory() };
    }

    /// Frees the table's memory.
    ///
    /// # Safety
    ///
    /// No other thread uses the table any more.
    pub unsafe fn free_memory(self) {
        // SAFETY: written by `new`; the rest of the header needs no drop.
        let (memory, used) = unsafe {
            let start = self.start();
            (
                ptr::read(&raw const (*start).memory),
                ptr::read(&raw const (*start).used),
            )
        };
        drop(used);
        memory.free();
    }
}

impl<'t, K: Copy, V: Copy> Table<'t, K, V> {
    /// A copy of the entry in a slot, whose number counts from the first one of the bucket with that
    /// index.
    ///
    /// # Safety
    ///
    /// As for [`Bucket::pair`].
    #[inline(always)]
    pub unsafe fn pair_from(self, index: usize, slot: usize) -> (K, V) {
        // SAFETY: the caller's promise: so there is one. The slots of buckets follow each other.
        unsafe { Pairs::pair(self.slots_at(index), slot) }
    }

    /// What `take` makes of the first entry with this hash's tag that `is_it` accepts.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain, in which the table was found.
    #[inline(always)]
    pub unsafe fn find<R>(
        self,
        hash: u64,
        is_it: impl FnMut(&K) -> bool,
        take: impl FnOnce((K, V)) -> R,
    ) -> Option<R> {
        self.fetch(hash);
        let bucket = self.at(self.index(hash));
        let word = bucket.word();
        if word.is_moved() {
            // SAFETY: the caller's promise.
            return unsafe { self.find_in_next(hash, is_it, take) };
        }
        // SAFETY: the caller's section.
        unsafe { bucket.find(word, tag(hash), is_it, take) }
    }

    /// # Safety
    ///
    /// As for `find`.
    #[cold]
    #[inline(never)]
    unsafe fn find_in_next<R>(
        self,
        hash: u64,
        is_it: impl FnMut(&K) -> bool,
        take: impl FnOnce((K, V)) -> R,
    ) -> Option<R> {
        let (table, index, word) = self.home(hash);
        // SAFETY: the caller's section.
        unsafe { table.at(index).find(word, tag(hash), is_it, take) }
    }

    /// Locks the bucket of that number; `None` if it has moved.
    #[inline]
    pub fn lock_at(self, index: usize, stamp: impl Fn() -> u16) -> Option<Locked<'t, K, V>> {
        let bucket = self.at(index);
        let word = bucket.word();
        if word.is_free() && bucket.lock(word) {
            return Some(Locked::of(bucket, word));
        }
        self.wait_and_lock(index, stamp)
    }

    #[cold]
    fn wait_and_lock(self, index: usize, stamp: impl Fn() -> u16) -> Option<Locked<'t, K, V>> {
        let bucket = self.at(index);
        let mut backoff = Backoff::new();
        loop {
            let word = bucket.word();
            if word.is_moved() {
                return None;
            }
            if word.is_locked() {
                backoff.wait();
                continue;
            }
            if bucket.lock(word) {
                let mut locked = Locked::of(bucket, word);
                if word.is_abandoned() {
                    locked.repair(stamp);
                    if self.other_half_has_moved(index) {
                        locked.set_moved();
                        return None;
                    }
                }
                return Some(locked);
            }
        }
    }

    /// Returns whether the bucket that goes to the same one of a smaller table has moved. Both are
    /// locked for that: so if this one is found abandoned, it has been copied, too, and nothing has
    /// changed in it since.
    fn other_half_has_moved(self, index: usize) -> bool {
        let shrinks = self.next().is_some_and(|next| next.bits() < self.bits());
        shrinks && self.at(index ^ 1).word().is_moved()
    }
}
