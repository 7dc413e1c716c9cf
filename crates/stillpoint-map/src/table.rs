//! A table: a power of two of buckets, in the order of the hashes whose homes they are.
//!
//! A reference to a table is one word: the address of its header, and in the six low bits by how many
//! places to shift a hash, so that what is left of it is the number of its home. A bucket is found with
//! that word and the hash alone. What a bucket consists of is the table's [`Kind`]: it may lie in parts on
//! both sides of the header.
//!
//! ```text
//! | part of bucket n - 1 | ... | of bucket 0 | header | part of bucket 0 | ... | of bucket n - 1 |
//! ```

use crate::{
    backoff::Backoff,
    bucket::{Bucket, Locked, OldBucket},
    core::New,
    memory::Memory,
    pages::Pages,
    section::{Live, Unshared},
    slot::{Head, Slot},
    used::Used,
    word::{Offset, Word, tag},
};
use std::{
    alloc::Layout,
    fmt,
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Range,
    ptr::{self, NonNull},
};
use stillpoint_platform::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// The fewest bits of a hash that choose a bucket: a shift is less than 64.
pub const FEWEST_BITS: u32 = 1;
/// The most: far more buckets than there are addresses.
pub const MOST_BITS: u32 = 42;

/// The two parts of a bucket of a table that exists for as long as `'t`.
pub struct Parts<'t, A, B> {
    before: &'t A,
    behind: &'t B,
}

impl<'t, A, B> Parts<'t, A, B> {
    #[inline(always)]
    pub fn before(&self) -> &'t A {
        self.before
    }

    #[inline(always)]
    pub fn behind(&self) -> &'t B {
        self.behind
    }
}

/// What tables are made of.
///
/// # Safety
///
/// Zeroes are the two parts of an empty bucket, which [`bucket`](Self::bucket) returns.
pub unsafe trait Kind: Sized {
    /// The part of a bucket before the header.
    type Before: Default;
    /// The part of a bucket behind the header.
    type Behind: Default;
    /// A bucket of a table that exists for as long as `'t`.
    type Bucket<'t>: AnyBucket<Old = Self::Old>
    where
        Self: 't;
    /// What leaves the chain behind a bucket.
    type Old: Old;

    /// Number of entries for each bucket of seven slots at which a table grows.
    ///
    /// An entry more for each bucket is memory saved, and entries behind links: of random hashes 3.4 % are
    /// there at four entries a bucket, 7.8 % at five, 17 % at six and a half. Such an entry is a cache line
    /// more for its look-ups, and an insert into its chain takes the longer way.
    const LOAD: usize;
    /// A table that is to fit its entries keeps room for one more for each `SLACK`, so that it does not grow
    /// at once.
    const SLACK: usize;
    /// A table moves to one of its size when changes have added a link for this number of its buckets.
    const BUCKETS_A_LINK: usize;

    /// Returns the bucket of these parts.
    fn bucket<'t>(parts: Parts<'t, Self::Before, Self::Behind>) -> Self::Bucket<'t>;

    /// Returns how many entries a table of `bits` bits has before it grows.
    fn capacity(bits: u32) -> usize {
        Self::LOAD << bits
    }

    /// Returns the fewest bits for `entries` entries. `None` if no table can be so large.
    fn bits_for(entries: usize) -> Option<u32> {
        (FEWEST_BITS..=MOST_BITS).find(|bits| Self::capacity(*bits) >= entries)
    }
}

/// A block that has been unlinked from a chain, so that no new reader finds it. It was allocated as a box is. Only
/// the atomics of models in it need a drop.
///
/// # Safety
///
/// The value owns what [`pointer`](Self::pointer) returns.
pub unsafe trait Old: Sized {
    type Target;

    /// Returns the pointer that it was allocated with.
    fn pointer(&self) -> NonNull<Self::Target>;

    fn block(&self) -> (NonNull<u8>, Layout) {
        (self.pointer().cast(), Layout::new::<Self::Target>())
    }

    /// Stands for a free in a model: writes to the block, which no reader may use.
    fn overwrite(&self) {}

    /// Frees it.
    ///
    /// # Safety
    ///
    /// No thread uses it any more.
    unsafe fn free(self) {
        self.overwrite();
        // SAFETY: allocated as a box is; the caller's promise.
        drop(unsafe { Box::from_raw(self.pointer().as_ptr()) });
    }
}

/// A bucket, as tables use it.
pub trait AnyBucket: Copy {
    /// A block of the chain behind it.
    type Old: Old;
    /// Its lock, until that is dropped.
    type Locked: AnyLocked;

    fn word(self) -> Word;

    /// Locks it, unless its word has changed, or is locked.
    fn lock(self, word: Word) -> Option<Self::Locked>;

    /// Empties a bucket that was filled in vain by this thread, or by a thread that a fork has removed. Only reads an
    /// empty one, which takes no memory.
    fn clear(this: Unshared<Self>);

    /// Detaches the chain behind the bucket: nothing if it has moved, as its chain has been retired then.
    fn take_behind(this: Unshared<Self>) -> impl Iterator<Item = Self::Old>;
}

/// A locked bucket, as tables use it.
pub trait AnyLocked {
    /// Says that the bucket is in the next table. It stays as it is.
    fn set_moved(&mut self);
}

/// The lock of a bucket of a table.
type LockedIn<'t, S> = <<S as Kind>::Bucket<'t> as AnyBucket>::Locked;

/// The kind of tables that refer to entries: a bucket is a cache line.
#[derive(Debug)]
pub enum References {}

// SAFETY: an empty word, and empty slots, are zeroes.
unsafe impl Kind for References {
    type Before = ();
    type Behind = Bucket;
    type Bucket<'t> = &'t Bucket;
    type Old = OldBucket;

    const LOAD: usize = 4;
    const SLACK: usize = 7;
    const BUCKETS_A_LINK: usize = 2;

    #[inline(always)]
    fn bucket<'t>(parts: Parts<'t, (), Bucket>) -> &'t Bucket {
        parts.behind()
    }
}

/// What stands between the two parts of the buckets.
#[repr(C, align(64))]
pub struct Header<S: Kind = References> {
    /// The table that this one moves to; null while it does not.
    next: AtomicPtr<Header<S>>,
    used: Used,
    memory: Memory<Header<S>, S::Behind, S::Before>,
    /// Whether few entries move to it ([`crate::resize`]).
    sparse: AtomicBool,
    /// Of this table's memory, while another one moves to it.
    pub pages: Pages,
    pub units: Units,
    /// As aligned as the parts of buckets are.
    aligned: ([S::Before; 0], [S::Behind; 0]),
}

/// Which units of the move threads have taken, and which they are done with ([`crate::resize`]); and
/// by how many buckets chains have grown in the table, less those that have left them. On a cache line
/// that is touched for these alone.
#[derive(Debug)]
#[repr(align(64))]
pub struct Units {
    pub taken: AtomicU64,
    pub done: AtomicU64,
    pub extended: AtomicU64,
}

/// A table that exists for as long as `'t`: a section, or the map.
pub struct Table<'t, S: Kind = References> {
    word: NonNull<Header<S>>,
    table: PhantomData<&'t Header<S>>,
}

impl<S: Kind> Clone for Table<'_, S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Kind> Copy for Table<'_, S> {}

impl<S: Kind> fmt::Debug for Table<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Table").field(&self.word).finish()
    }
}

impl<'t, S: Kind> Table<'t, S> {
    /// The memory of a table that uses `bits` bits of each hash. `None` if no memory can be so large.
    pub fn layout(bits: u32) -> Option<Layout> {
        Memory::<Header<S>, S::Behind, S::Before>::layout(bits)
    }

    fn of(word: NonNull<Header<S>>) -> Self {
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
    pub unsafe fn from_word(word: *mut Header<S>) -> Option<Self> {
        NonNull::new(word).map(Self::of)
    }

    #[inline]
    pub fn into_word(self) -> *mut Header<S> {
        self.word.as_ptr()
    }

    /// By how many places to shift, in the low bits.
    #[inline(always)]
    fn shift(self) -> u32 {
        self.word.addr().get() as u32
    }

    /// How many bits of a hash choose a bucket.
    #[inline]
    pub fn bits(self) -> u32 {
        64 - (self.shift() & 63)
    }

    #[inline]
    pub fn buckets(self) -> usize {
        1 << self.bits()
    }

    #[inline(always)]
    fn start(self) -> *mut Header<S> {
        self.word.as_ptr().map_addr(|address| address & !63)
    }

    #[inline]
    pub fn header(self) -> &'t Header<S> {
        // SAFETY: that of `from_word`.
        unsafe { &*self.start() }
    }

    /// The number of a hash's home.
    #[inline(always)]
    pub fn index(self, hash: u64) -> usize {
        // The shift is taken modulo 64.
        hash.wrapping_shr(self.shift()) as usize
    }

    /// The part of a bucket behind the header.
    #[inline(always)]
    pub fn behind(self, index: usize) -> *const S::Behind {
        let first = self.start().wrapping_add(1).cast::<S::Behind>();
        first.wrapping_add(index)
    }

    /// Returns bucket `index`.
    ///
    /// # Panics
    ///
    /// If `index` is not less than the number of buckets.
    #[inline(always)]
    pub fn at(self, index: usize) -> S::Bucket<'t> {
        assert!(index < self.buckets());
        // SAFETY: checked above.
        unsafe { self.at_unchecked(index) }
    }

    /// Returns the home of a hash in this table, where it may not be any more.
    #[inline(always)]
    pub fn home_of(self, hash: u64) -> S::Bucket<'t> {
        // SAFETY: `index` keeps only as many bits of the hash as bucket numbers have.
        unsafe { self.at_unchecked(self.index(hash)) }
    }

    /// Returns bucket `index`, unchecked.
    ///
    /// # Safety
    ///
    /// `index` is less than [`buckets`](Self::buckets).
    #[inline(always)]
    pub unsafe fn at_unchecked(self, index: usize) -> S::Bucket<'t> {
        let before = self.start().cast::<S::Before>().wrapping_sub(1 + index);
        // SAFETY: the header has that many parts on each side.
        let (before, behind) = unsafe { (&*before, &*self.behind(index)) };
        S::bucket(Parts { before, behind })
    }

    /// The addresses of the first byte of its buckets, and behind the last one.
    #[cfg(all(test, not(stillpoint_loom)))]
    pub fn limits(self) -> (usize, usize) {
        let first = self.start().cast::<S::Before>();
        let first = first.wrapping_sub(self.buckets()).addr();
        (first, self.behind(self.buckets()).addr())
    }

    /// The last hash whose home is the bucket of that number.
    #[inline]
    pub fn last_hash(self, index: usize) -> u64 {
        ((index as u64) << (64 - self.bits())) | (u64::MAX >> self.bits())
    }

    /// Makes pages that are written from now on small, or huge again ([`Memory::prefer_huge_pages`]).
    pub fn prefer_huge_pages(self, huge: bool) {
        self.header().memory.prefer_huge_pages(huge);
    }

    /// Says of a table that no other thread knows yet whether few entries move to it.
    pub fn set_sparse(self, sparse: bool) {
        if sparse != self.is_sparse() {
            // Relaxed: `set_next` makes it known.
            self.header().sparse.store(sparse, Ordering::Relaxed);
            self.prefer_huge_pages(!sparse);
        }
    }

    /// Returns whether few entries move to it, by [`set_sparse`](Self::set_sparse).
    pub fn is_sparse(self) -> bool {
        // Relaxed: written before the table is known.
        self.header().sparse.load(Ordering::Relaxed)
    }

    /// Which of its stretches have been used. A bucket is claimed there before it is locked while it is
    /// empty.
    #[inline]
    pub fn used(self) -> &'t Used {
        &self.header().used
    }

    /// Returns whether bucket `index`, whose word is `word`, is in the next table.
    #[inline(always)]
    fn has_moved(self, index: usize, word: Word) -> bool {
        let is_passed = || self.next().is_some() && self.used().is_passed(index);
        word.is_moved() || word == Word::EMPTY && is_passed()
    }

    /// Empties the buckets of a range.
    ///
    /// # Safety
    ///
    /// Each bucket meets the conditions of [`Unshared::of`].
    pub unsafe fn clear(self, buckets: Range<usize>) {
        for index in self.used().of(buckets) {
            // SAFETY: the caller's promise.
            AnyBucket::clear(unsafe { Unshared::of(self.at(index)) });
        }
    }

    /// Returns the first hash in `hash..=last` whose home, here or in a later table, may have been used, for
    /// a caller that is alone with the tables. While a table moves it looks in steps of a word of each
    /// table's bits, so that a walk reads a word again only for the buckets that were used there.
    pub fn first_used(self, mut hash: u64, last: u64) -> Option<u64> {
        let next = self.next();
        loop {
            let index = self.index(hash);
            let end = next.map_or(self.buckets(), |_| self.used().end_of_word(index));
            let end = end.min(self.index(last) + 1);
            let here = self.used().first(index..end);
            let moved = here.filter(|index| self.at(*index).word().is_moved());
            if let (Some(here), None) = (here, moved) {
                // The next table may have what this one has not had.
                let first = hash.max((here as u64) << (64 - self.bits()));
                let before = next.filter(|_| hash < first);
                let before = before.and_then(|next| next.first_used(hash, first - 1));
                return before.or(Some(first));
            }
            let step = last.min(self.last_hash(moved.unwrap_or(end - 1)));
            if let Some(first) = next.and_then(|next| next.first_used(hash, step)) {
                return Some(first);
            }
            if step == last {
                return None;
            }
            hash = step + 1;
        }
    }

    /// Returns the first hash behind those of a [`home`](Self::home) that was found from this table on, if
    /// any home there may have entries. It passes stretches without entries, unless this table moves.
    #[inline]
    pub fn hash_behind(self, (table, index, word): (Self, usize, Word)) -> Option<u64> {
        let behind = table.last_hash(index).checked_add(1)?;
        if word == Word::EMPTY && self.next().is_none() {
            // The entries that are in the map by now have claimed their stretches here.
            let used = self.used().first(index + 1..self.buckets())?;
            return Some((used as u64) << (64 - self.bits()));
        }
        Some(behind)
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

    /// Makes `next` the table that this one moves to.
    ///
    /// # Errors
    ///
    /// If there is one.
    pub fn set_next(self, next: NewTable<S>) -> Result<(), NewTable<S>> {
        let bits = next.table().bits();
        assert!(bits + 1 >= self.bits(), "a move makes one bucket of two");
        let word = next.into_word();
        // Release, pairs with `next`: the table is complete.
        let set = self.header().next.compare_exchange(
            ptr::null_mut(),
            word.as_ptr(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        set.map(drop).map_err(|_| NewTable(word))
    }

    /// The table, this one or a later, and the number of the bucket in it, that is the home of
    /// `hash`; with the bucket's word, which says that it has not moved.
    #[inline(always)]
    pub fn home(self, hash: u64) -> (Self, usize, Word) {
        let mut table = self;
        loop {
            let index = table.index(hash);
            let word = table.home_of(hash).word();
            if !table.has_moved(index, word) {
                return (table, index, word);
            }
            table = table.next().unwrap_or_else(|| broken());
        }
    }

    /// Locks bucket `index`. Returns `None` if it has moved. `repair` completes what a thread lost in a fork left
    /// half done under the lock.
    ///
    /// # Panics
    ///
    /// If `index` is not less than the number of buckets.
    #[inline(always)]
    pub fn lock_bucket(
        self,
        index: usize,
        repair: impl Fn(&mut LockedIn<'t, S>),
    ) -> Option<LockedIn<'t, S>> {
        assert!(index < self.buckets());
        // SAFETY: checked above.
        unsafe { self.lock_unchecked(index, repair) }
    }

    /// Locks like [`lock_bucket`](Self::lock_bucket), without checking `index`.
    ///
    /// # Safety
    ///
    /// `index` is less than [`buckets`](Self::buckets).
    #[inline(always)]
    unsafe fn lock_unchecked(
        self,
        index: usize,
        repair: impl Fn(&mut LockedIn<'t, S>),
    ) -> Option<LockedIn<'t, S>> {
        // SAFETY: the caller's promise.
        let bucket = unsafe { self.at_unchecked(index) };
        let word = bucket.word();
        if word == Word::EMPTY && !self.used().claim(index) {
            return None;
        }
        if word.is_free()
            && let Some(locked) = bucket.lock(word)
        {
            return Some(locked);
        }
        self.wait_and_lock(index, repair)
    }

    #[inline(never)]
    fn wait_and_lock(
        self,
        index: usize,
        repair: impl Fn(&mut LockedIn<'t, S>),
    ) -> Option<LockedIn<'t, S>> {
        let bucket = self.at(index);
        let mut backoff = Backoff::new();
        loop {
            let word = bucket.word();
            if word.is_moved() || word == Word::EMPTY && !self.used().claim(index) {
                return None;
            }
            if word.is_locked() {
                backoff.wait();
                continue;
            }
            if let Some(mut locked) = bucket.lock(word) {
                if word.is_abandoned() {
                    repair(&mut locked);
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

    /// The table, to be freed when no reader is in it any more.
    ///
    /// # Safety
    ///
    /// No reader from now on finds it, its chains have left it, and this is called once.
    pub unsafe fn unlinked(self) -> OldTable<S> {
        OldTable(self.word)
    }

    /// Frees the table's memory, and the chains behind buckets that have not moved; those of the
    /// others have been retired.
    ///
    /// # Safety
    ///
    /// No other thread uses the table any more.
    pub unsafe fn free(self) {
        for index in self.used().of(0..self.buckets()) {
            // SAFETY: the caller's promise.
            let bucket = unsafe { Unshared::of(self.at(index)) };
            // SAFETY: the same.
            AnyBucket::take_behind(bucket).for_each(|old| unsafe { old.free() });
        }
        // SAFETY: the caller's promise.
        unsafe { self.unlinked().free() };
    }
}

/// A table that no other thread knows yet. It is freed when this is dropped.
pub struct NewTable<S: Kind = References>(NonNull<Header<S>>);

impl<S: Kind> NewTable<S> {
    /// Makes an empty table that uses `bits` bits of each hash: [`FEWEST_BITS`] to [`MOST_BITS`]. Returns `None`
    /// without memory.
    pub fn new(bits: u32) -> Option<Self> {
        assert!(
            (FEWEST_BITS..=MOST_BITS).contains(&bits),
            "no table has 2^{bits} buckets"
        );
        let memory = Memory::of_buckets(bits)?;
        let is_large = memory.is_mapped();
        Self::in_memory(memory, bits, is_large)
    }

    /// Makes one whose stretches are claimed and passed, as models have no other large ones.
    #[cfg(all(test, stillpoint_loom))]
    pub fn large(bits: u32) -> Option<Self> {
        Self::in_memory(Memory::of_buckets(bits)?, bits, true)
    }

    fn in_memory(
        memory: Memory<Header<S>, S::Behind, S::Before>,
        bits: u32,
        is_large: bool,
    ) -> Option<Self> {
        let Some(used) = Used::new(is_large, 1 << bits) else {
            memory.free();
            return None;
        };
        let header = Header {
            next: AtomicPtr::new(ptr::null_mut()),
            used,
            sparse: AtomicBool::new(false),
            pages: Pages::new(memory.is_mapped(), 1 << bits),
            memory,
            units: Units {
                taken: AtomicU64::new(0),
                done: AtomicU64::new(0),
                extended: AtomicU64::new(0),
            },
            aligned: ([], []),
        };
        let start = header.memory.start();
        // SAFETY: the memory has room for it there, and is no other's.
        unsafe { start.write(header) };
        let shift = 64 - bits as usize;
        Some(Self(start.map_addr(|address| address | shift)))
    }

    pub fn table(&self) -> Table<'_, S> {
        Table::of(self.0)
    }

    /// Returns the word that refers to the table, and owns it.
    pub fn into_word(self) -> NonNull<Header<S>> {
        ManuallyDrop::new(self).0
    }
}

impl<S: Kind> Drop for NewTable<S> {
    fn drop(&mut self) {
        // SAFETY: no other thread knows it.
        unsafe { self.table().free() };
    }
}

/// A table that no reader from now on finds, without its chains.
pub struct OldTable<S: Kind = References>(NonNull<Header<S>>);

// SAFETY: it is used by its owner alone, but for readers that came before.
unsafe impl<S: Kind> Send for OldTable<S> {}

impl<S: Kind> OldTable<S> {
    /// The block that it is, if it is a small one of the allocator's.
    pub fn as_block(&self) -> Option<(NonNull<u8>, Layout)> {
        Table::of(self.0).header().memory.as_block()
    }

    /// The table, while there is memory of it. Its entries may have gone.
    #[cfg(test)]
    pub fn table(&self) -> Table<'_, S> {
        Table::of(self.0)
    }

    /// Frees its memory.
    ///
    /// # Safety
    ///
    /// No reader is in it any more.
    pub unsafe fn free(self) {
        // SAFETY: written by `new`; the rest of the header needs no drop.
        let (memory, used) = unsafe {
            let start = Table::of(self.0).start();
            (
                ptr::read(&raw const (*start).memory),
                ptr::read(&raw const (*start).used),
            )
        };
        drop(used);
        memory.free();
    }
}

impl<'t> Table<'t> {
    /// The first entry of this hash's chain that `is_it` accepts, of those with its tag.
    #[inline(always)]
    pub fn find(
        self,
        hash: u64,
        is_it: impl FnMut(Live<'t, Head>) -> bool,
    ) -> Option<Live<'t, Head>> {
        Some(self.look(hash, is_it)?.0)
    }

    /// As [`Table::find`]; also where the entry is, if that is all that a removal asks.
    #[inline(always)]
    pub fn look(
        self,
        hash: u64,
        mut is_it: impl FnMut(Live<'t, Head>) -> bool,
    ) -> Option<(Live<'t, Head>, Option<Seen<'t>>)> {
        // Most keys are in their home bucket, and most tables do not move: a look-up that is one of
        // few instructions leaves the processor space to begin the next. So it asks whether the bucket
        // has moved, or has a link, when it has found nothing: one that has moved or was passed has no tags.
        // A move leaves what it passes empty.
        let bucket = self.home_of(hash);
        let word = bucket.word();
        match find_here(bucket, word, hash, &mut is_it) {
            Found::Entry(entry, at) => {
                let table = self;
                let seen = Seen {
                    table,
                    bucket,
                    word,
                    slot: at.slot(),
                };
                Some((entry, Some(seen)))
            }
            Found::Nothing => None,
            Found::Elsewhere if word == Word::EMPTY && self.next().is_none() => None,
            Found::Elsewhere => Some((self.find_elsewhere(word, hash, is_it)?, None)),
        }
    }

    /// Looks behind the home of a hash, whose word was this, or into the next table.
    #[inline(never)]
    fn find_elsewhere(
        self,
        word: Word,
        hash: u64,
        mut is_it: impl FnMut(Live<'t, Head>) -> bool,
    ) -> Option<Live<'t, Head>> {
        if word.has_link() {
            return find_behind(self.home_of(hash), hash, is_it);
        }
        let (table, index, word) = self.home(hash);
        let bucket = table.at(index);
        match find_here(bucket, word, hash, &mut is_it) {
            Found::Entry(entry, _) => Some(entry),
            Found::Nothing => None,
            Found::Elsewhere => find_behind(bucket, hash, is_it),
        }
    }

    /// Inserts `new` if that takes no more than an empty slot of its home, in this table or the next. If the
    /// table moves, the caller helps then.
    ///
    /// # Errors
    ///
    /// `new`, if nothing was done.
    #[inline(always)]
    pub fn add_at_once<E: New>(self, new: E) -> Result<Live<'t, Head>, E> {
        match self.add_here(new) {
            Err(new) if self.home_of(new.hash()).word().is_moved() => self.add_to_next(new),
            added => added,
        }
    }

    #[inline(never)]
    fn add_to_next<E: New>(self, new: E) -> Result<Live<'t, Head>, E> {
        match self.next() {
            Some(next) => next.add_here(new),
            None => Err(new),
        }
    }

    /// Inserts `new` into this table only.
    #[inline(always)]
    fn add_here<E: New>(self, new: E) -> Result<Live<'t, Head>, E> {
        let (head, hash) = (new.head(), new.hash());
        let index = self.index(hash);
        // SAFETY: it is given up below, or not put in.
        let slot = unsafe { Slot::entry(head, hash, self.bits()) };
        let home = self.home_of(hash);
        if home.add_at_once(slot, tag(hash), || self.used().claim(index)) {
            // SAFETY: put in just now; `'t` lies in a section of the map's domain.
            Ok(unsafe { Live::of(new.into_head()) })
        } else {
            Err(new)
        }
    }

    /// Takes an entry out, if that takes no more than its home, and this table does not move. Returns
    /// whether that is empty then; `None` if nothing was done.
    #[inline]
    pub fn remove_at_once(self, entry: Live<'_, Head>, hash: u64) -> Option<bool> {
        if self.next().is_some() {
            return None;
        }
        self.home_of(hash)
            .remove_at_once(entry.pointer(), tag(hash))
    }

    /// Locks the chain of `hash`, in this table or a later one.
    #[inline(always)]
    pub fn lock(self, hash: u64) -> (Table<'t>, Locked<'t>) {
        let mut table = self;
        loop {
            // SAFETY: `index` keeps only as many bits of the hash as bucket numbers have.
            let locked = unsafe { table.lock_unchecked(table.index(hash), Locked::repair) };
            if let Some(locked) = locked {
                return (table, locked);
            }
            table = table.next().expect("what has moved is in the next table");
        }
    }

    /// Locks the chain of that number; `None` if it has moved.
    #[inline]
    pub fn lock_at(self, index: usize) -> Option<Locked<'t>> {
        self.lock_bucket(index, Locked::repair)
    }
}

/// A table is not as its invariants say: what has moved is in the next table. It ends the process, and
/// does not unwind: so a look-up keeps nothing for that.
#[cold]
extern "C" fn broken() -> ! {
    panic!("a bucket that has moved is in no table");
}

/// Where an entry was seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'t> {
    table: Table<'t>,
    bucket: &'t Bucket,
    word: Word,
    slot: usize,
}

impl<'t> Seen<'t> {
    #[inline]
    pub fn table(&self) -> Table<'t> {
        self.table
    }

    /// Takes the entry out that was seen there, if nothing else has changed in the bucket, and the
    /// table does not move. As [`Table::remove_at_once`].
    #[inline]
    pub fn remove_at_once(self, entry: Live<'_, Head>) -> Option<bool> {
        if self.table.next().is_some() {
            return None;
        }
        self.bucket
            .take_at_once(self.word, self.slot, entry.pointer())
    }
}

/// What a look into a bucket has come to.
enum Found<'t> {
    /// In that slot.
    Entry(Live<'t, Head>, Offset),
    /// It is not here; perhaps in the next bucket of the chain, or in the next table.
    Elsewhere,
    Nothing,
}

/// Looks into a bucket, whose word has been loaded.
#[inline(always)]
fn find_here<'t>(
    bucket: &'t Bucket,
    word: Word,
    hash: u64,
    mut is_it: impl FnMut(Live<'t, Head>) -> bool,
) -> Found<'t> {
    let mut slots = word.with_tag(tag(hash));
    while let Some(at) = slots.next_offset() {
        let slot = bucket.slot_at(at);
        if let Some(entry) = slot.as_entry() {
            if is_it(entry) {
                return Found::Entry(entry, at);
            }
        } else if slot.is_link() {
            // The last slot became a link after the word was loaded.
            return Found::Elsewhere;
        }
    }
    if word.goes_on() {
        Found::Elsewhere
    } else {
        Found::Nothing
    }
}

/// Looks into the buckets behind one that has a link.
fn find_behind<'t>(
    mut bucket: &'t Bucket,
    hash: u64,
    mut is_it: impl FnMut(Live<'t, Head>) -> bool,
) -> Option<Live<'t, Head>> {
    loop {
        // The buckets that were behind may have gone, with their last entry.
        bucket = bucket.next()?;
        match find_here(bucket, bucket.word(), hash, &mut is_it) {
            Found::Entry(entry, _) => return Some(entry),
            Found::Nothing => return None,
            Found::Elsewhere => {}
        }
    }
}
