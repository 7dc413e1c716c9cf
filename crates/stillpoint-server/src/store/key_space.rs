//! A key space: an index and open segments. A tenant has one at a time; a flush starts another.

use super::{
    access::WIN,
    class::{Class, SEGMENT_HEADER},
    clock::LONG_AGO,
    common::Owner,
    error::Refused,
    flush::Flushed,
    index::Locked,
    layout::{RawItem, Shape},
    memory::Memory,
    pool::Pool,
    segment::{Home, Segment, SegmentRef},
    table::Table,
    word::Word,
    work,
};
use crate::lock::lock;
use crossbeam_utils::CachePadded;
use std::{
    cell::Cell,
    mem,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
};
use stillpoint::Guard;
use stillpoint_lru::Charge;
use stillpoint_platform::cpu;

/// Usage in bytes above which a tenant has a stripe for each processor.
const SPREAD: u64 = 1 << 20;

/// Most stripes.
const STRIPES: usize = 16;

/// The key space.
#[derive(Debug)]
pub struct KeySpace {
    pub owner: Arc<Owner>,
    pub table: Table,
    first: CachePadded<Stripe>,
    rest: OnceLock<Box<[CachePadded<Stripe>]>>,
    /// Where items go that are copied, one segment after the other.
    pub keep: Mutex<Option<Open>>,
    /// Number of segments in a row from which evicting has freed next to nothing.
    pub stubborn: AtomicUsize,
    pub flushed: Flushed,
    /// Whether segments of it are freed though its index, which was flushed, has their items.
    /// Relaxed, needs no partner: what is freed after it is set waits, in limbo, for the sections of
    /// readers that have seen it unset.
    pub is_leaving: AtomicBool,
    /// What is counted for it among the flushed ones.
    flushed_bytes: AtomicU64,
}

/// Where some threads write, and their counts. So writers seldom meet.
#[derive(Debug, Default)]
pub struct Stripe {
    open: Mutex<Option<Open>>,
    items: AtomicI64,
    bytes: AtomicI64,
    dead: AtomicI64,
    stored: AtomicU64,
}

/// An open segment.
#[derive(Debug)]
pub struct Open {
    segment: SegmentRef,
    at: usize,
    len: usize,
    /// `at` when the background looked at it last.
    seen: usize,
}

/// An item that is written and not in the index yet.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    pub word: Word,
    pub size: usize,
}

/// An item that was found in a section.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    pub word: Word,
    pub item: RawItem,
}

impl Found {
    /// # Safety
    ///
    /// The word is in the index, or was in the section that the caller is in.
    pub unsafe fn of(word: Word) -> Self {
        // SAFETY: the caller's promise.
        let item = unsafe { RawItem::at(word.address()) };
        Self { word, item }
    }
}

/// What a change depends on: the item, and what commands change in place, as a plan that copies
/// them has seen them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    word: Word,
    /// Changes with the stale mark.
    cas: u64,
    exptime: u32,
    win: u32,
}

impl Seen {
    pub fn of(found: Found) -> Self {
        Self {
            word: found.word,
            cas: found.item.cas(),
            exptime: found.item.exptime(),
            win: found.item.access().marks() & WIN,
        }
    }
}

/// How [`KeySpace::put`] has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Stored,
    /// It is stored in a line behind its bucket: the index may be too small.
    Crowded,
    /// The item has been replaced meanwhile, or the segment is leaving.
    Again,
}

/// Sums over the stripes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub items: u64,
    pub bytes: u64,
    pub dead: u64,
    pub stored: u64,
}

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Returns the calling thread's number, to choose a stripe by.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

impl Open {
    pub fn new(segment: SegmentRef) -> Self {
        Self {
            len: segment.bytes(),
            at: SEGMENT_HEADER,
            seen: 0,
            segment,
        }
    }

    pub fn has_room(&self, size: usize) -> bool {
        self.len - self.at >= size
    }

    pub fn segment(&self) -> &SegmentRef {
        &self.segment
    }

    /// Writes an item, if it fits.
    pub fn write(
        &mut self,
        hash: u64,
        shape: &Shape<'_>,
        parts: [&[u8]; 2],
        now: u32,
    ) -> Option<Written> {
        let size = shape.size();
        if !self.has_room(size) {
            return None;
        }
        let to = self.segment.base().wrapping_add(self.at);
        debug_assert_eq!(shape.value_len, parts[0].len() + parts[1].len());
        // SAFETY: inside the segment, behind all that was written; it is open, and we have it.
        // The value fits the size.
        unsafe {
            let mut value = shape.write(to, now);
            for part in parts {
                value.copy_from_nonoverlapping(part.as_ptr(), part.len());
                value = value.add(part.len());
            }
        }
        Some(self.wrote(to, hash, size, shape.exptime))
    }

    /// Copies an item, if it fits. Its bucket is locked.
    pub fn copy(&mut self, item: RawItem, hash: u64, cooler: u32) -> Option<Written> {
        let size = item.size();
        if !self.has_room(size) {
            return None;
        }
        let to = self.segment.base().wrapping_add(self.at);
        // SAFETY: as in `write`; a segment of its own is never copied.
        unsafe { item.copy_to(to, cooler) };
        Some(self.wrote(to, hash, size, item.exptime()))
    }

    fn wrote(&mut self, to: *mut u8, hash: u64, size: usize, exptime: u32) -> Written {
        work::add(size);
        self.at += size;
        self.segment.add(size, self.at, exptime);
        Written {
            word: Word::new(to.addr(), self.segment.class(), hash),
            size,
        }
    }
}

impl Stripe {
    fn add(count: &AtomicI64, amount: i64) {
        count.fetch_add(amount, Ordering::Relaxed);
    }

    /// Counts an item that was put into the index, in place of one of `old` bytes if there was one.
    pub fn note_stored(&self, size: usize, old: Option<usize>) {
        self.stored.fetch_add(1, Ordering::Relaxed);
        match old {
            None => {
                Self::add(&self.items, 1);
                Self::add(&self.bytes, size as i64);
            }
            Some(old) => {
                if old != size {
                    Self::add(&self.bytes, size as i64 - old as i64);
                }
            }
        }
    }

    /// Counts items that were removed from the index.
    pub fn note_removed(&self, items: u64, bytes: u64) {
        Self::add(&self.items, -(items as i64));
        Self::add(&self.bytes, -(bytes as i64));
    }

    /// Adds dead bytes, or subtracts those of a segment that is leaving.
    pub fn note_dead(&self, bytes: i64) {
        Self::add(&self.dead, bytes);
    }
}

impl KeySpace {
    pub fn new(owner: Arc<Owner>) -> Arc<Self> {
        Arc::new(Self {
            table: Table::new(&owner),
            owner,
            first: CachePadded::default(),
            rest: OnceLock::new(),
            keep: Mutex::default(),
            stubborn: AtomicUsize::new(0),
            flushed: Flushed::new(),
            is_leaving: AtomicBool::new(false),
            flushed_bytes: AtomicU64::new(0),
        })
    }

    /// Returns the calling thread's stripe.
    #[inline]
    pub fn stripe(&self) -> &Stripe {
        if let Some(rest) = self.rest.get() {
            match thread_number() % (rest.len() + 1) {
                0 => {}
                number => return &rest[number - 1],
            }
        }
        &self.first
    }

    fn stripes(&self) -> impl Iterator<Item = &Stripe> {
        let rest = self.rest.get().map_or(&[][..], |rest| rest);
        std::iter::once(&self.first)
            .chain(rest)
            .map(|stripe| &**stripe)
    }

    /// Records that the key space was flushed: its memory that is not charged counts as flushed until it
    /// is freed. (Most of the index is charged, and stays charged until then.)
    pub fn note_flushed(&self) {
        let stripes = self.stripes().count() * mem::size_of::<CachePadded<Stripe>>();
        let bytes = (mem::size_of::<Self>() + stripes) as u64 + self.table.uncharged();
        self.flushed_bytes.store(bytes, Ordering::Relaxed);
        self.owner.add(|sums| &sums.flushed, bytes);
    }

    pub fn counts(&self) -> Counts {
        let mut sums = [0i64; 3];
        let mut stored = 0;
        for stripe in self.stripes() {
            let counts = [&stripe.items, &stripe.bytes, &stripe.dead];
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count.load(Ordering::Relaxed);
            }
            stored += stripe.stored.load(Ordering::Relaxed);
        }
        let [items, bytes, dead] = sums.map(|sum| sum.max(0) as u64);
        Counts {
            items,
            bytes,
            dead,
            stored,
        }
    }

    /// Writes an item to the stripe's open segment. Returns `None` if that has no room: then call
    /// [`refill`](Self::refill), outside of the section.
    #[inline]
    pub fn write(
        &self,
        hash: u64,
        shape: &Shape<'_>,
        parts: [&[u8]; 2],
        now: u32,
        _section: &Guard<'_>,
    ) -> Option<Written> {
        lock(&self.stripe().open)
            .as_mut()?
            .write(hash, shape, parts, now)
    }

    /// Writes an item whose value lies behind its key already, in a segment for this item that is the
    /// caller's and has room for it.
    pub fn write_in_place(
        &self,
        segment: &Segment,
        hash: u64,
        shape: &Shape<'_>,
        now: u32,
    ) -> Written {
        let (to, size) = (segment.base().wrapping_add(SEGMENT_HEADER), shape.size());
        // SAFETY: inside the segment, which is not on a list and has no other item. The value is not
        // touched.
        unsafe { shape.write(to, now) };
        segment.stage.forget_written(|dead| self.note_dead(dead));
        segment.add(size, SEGMENT_HEADER + size, shape.exptime);
        Written {
            word: Word::new(to.addr(), Class::OWN, hash),
            size,
        }
    }

    /// Opens another segment in the calling thread's stripe, with room for an item of that size.
    #[cold]
    pub fn refill(self: &Arc<Self>, size: usize) -> Result<(), Refused> {
        let usage = self.owner.limit.memcg.usage();
        if usage > SPREAD && self.rest.get().is_none() {
            let rest = cpu::count().clamp(1, STRIPES) - 1;
            let stripes = || (0..rest).map(|_| CachePadded::default()).collect();
            self.rest.get_or_init(stripes);
        }
        let class = Class::choose(size, usage);
        let class = self.owner.common.pool.suit(class, size);
        let segment = self.new_segment(class, size)?;
        let lists = &self.owner.common.lists;
        lists.add_open(&self.owner.limit.memcg, &segment);
        let full = {
            let mut open = lock(&self.stripe().open);
            if open.as_ref().is_some_and(|open| open.has_room(size)) {
                drop(open);
                // Another thread has been faster; ours was never used.
                lists.remove_open(&segment);
                return Ok(());
            }
            open.replace(Open::new(segment))
        };
        if let Some(full) = full {
            self.seal(full);
        }
        Ok(())
    }

    /// Returns an empty open segment, which is charged: of `size` bytes if it is for one item.
    pub fn new_segment(self: &Arc<Self>, class: Class, size: usize) -> Result<SegmentRef, Refused> {
        self.check_deleted()?;
        let charge = self.owner.charge(class.bytes(size))?;
        let pool = self.pool()?;
        let memory = pool.take(class.bytes(size), class.alignment(), Some(class));
        let memory = memory.ok_or(Refused::OutOfMemory)?;
        Ok(self.segment_in(memory, class, false, Some(charge)))
    }

    /// Returns a segment for one item, which the caller charges, and how many of its bytes stay
    /// counted as spare until the caller calls [`Pool::settle`] for them.
    pub fn lend_segment(self: &Arc<Self>, size: usize) -> Result<(SegmentRef, u64), Refused> {
        let class = Class::OWN;
        let (memory, lent) = self
            .pool()?
            .lend(class.bytes(size), class)
            .ok_or(Refused::OutOfMemory)?;
        Ok((self.segment_in(memory, class, false, None), lent))
    }

    /// Returns where a segment's memory comes from, once not too much of it waits for readers.
    fn pool(&self) -> Result<&Arc<Pool>, Refused> {
        self.check_deleted()?;
        let pool = &self.owner.common.pool;
        pool.wait_if_full();
        Ok(pool)
    }

    fn segment_in(
        self: &Arc<Self>,
        memory: Memory,
        class: Class,
        kept: bool,
        charge: Option<Charge>,
    ) -> SegmentRef {
        let pool = Arc::clone(&self.owner.common.pool);
        let home: Weak<Self> = Arc::downgrade(self);
        Segment::new(memory, class, kept, home, pool, charge)
    }

    fn check_deleted(&self) -> Result<(), Refused> {
        // In the last key space it is seen: it was set before that was published.
        match self.owner.is_deleted() {
            true => Err(Refused::Deleted),
            false => Ok(()),
        }
    }

    /// Returns the class of a segment that has room for copies of all live items of `from`.
    fn class_for_copies(&self, from: &Segment) -> Class {
        let room = SEGMENT_HEADER + from.stage.live() as usize;
        from.class().limit(room, self.owner.limit.memcg.usage())
    }

    /// Creates the next segment for copies, with the charge of the one that is emptied. It has room for all
    /// live items of that, and is no larger than suits the tenant's usage.
    pub fn keep_segment(self: &Arc<Self>, from: &SegmentRef) -> Option<Open> {
        let pool = &self.owner.common.pool;
        let class = self.class_for_copies(from);
        let memory = pool.take(class.bytes(0), class.alignment(), Some(class))?;
        let mut charge = from.take_charge()?;
        // What is less is given back; that does not fail.
        let _ = charge.resize(class.bytes(0));
        let segment = self.segment_in(memory, class, true, Some(charge));
        let lists = &self.owner.common.lists;
        lists.add_open(&self.owner.limit.memcg, &segment);
        Some(Open::new(segment))
    }

    /// Seals a segment, and puts it on its list.
    pub fn seal(&self, full: Open) {
        let segment = full.segment;
        let lists = &self.owner.common.lists;
        lists.add(&self.owner.limit.memcg, &segment);
        if segment.stage.seal(|dead| self.note_dead(dead)) {
            lists.take_away(&segment);
        }
    }

    /// Returns the number of open segments.
    pub fn open_segments(&self) -> u64 {
        let open = |open: &Mutex<Option<Open>>| u64::from(lock(open).is_some());
        self.all_open().map(open).sum()
    }

    /// Seals open segments that have expired items, so that the search finds these.
    pub fn seal_expired(&self, now: u32) {
        drop(self.seal_open(|open| open.segment.has_expired(now)));
    }

    /// Records that items of open segments have expired.
    pub fn note_expired(&self) {
        for open in self.all_open() {
            if let Some(open) = &*lock(open) {
                open.segment.note_expiry(LONG_AGO);
            }
        }
    }

    /// Seals open segments that were not written into since the last call and are too large: they have no
    /// items, or these fit into a segment of the size that suits the tenant's usage. Returns the latter, to
    /// be compacted.
    pub fn seal_idle(&self) -> Vec<SegmentRef> {
        let mut sealed = self.seal_open(|open| {
            let is_idle = open.seen == open.at;
            open.seen = open.at;
            let segment = &open.segment;
            let is_large = || self.class_for_copies(segment) != segment.class();
            is_idle && (segment.stage.live() == 0 || !segment.is_pinned() && is_large())
        });
        sealed.retain(|segment| segment.stage.live() > 0);
        sealed
    }

    /// Seals and returns the open segments for which `is_meant` returns true.
    pub fn seal_open(&self, is_meant: impl Fn(&mut Open) -> bool) -> Vec<SegmentRef> {
        let mut full: Vec<Open> = Vec::new();
        for open in self.all_open() {
            full.extend(lock(open).take_if(&is_meant));
        }
        let seal = |full: Open| {
            let segment = Arc::clone(&full.segment);
            self.seal(full);
            segment
        };
        full.into_iter().map(seal).collect()
    }

    /// Returns the part of open segments in the count of dead bytes.
    #[cfg(test)]
    pub fn counted_dead(&self) -> i64 {
        let dead = |open: &Open| open.segment.stage.counted_dead();
        let open = self
            .all_open()
            .map(|open| lock(open).as_ref().map_or(0, dead));
        open.sum()
    }

    fn all_open(&self) -> impl Iterator<Item = &Mutex<Option<Open>>> {
        let stripes = self.stripes().map(|stripe| &stripe.open);
        stripes.chain([&self.keep])
    }

    /// Counts the item of a word as dead: the index does not refer to it any more, or never did.
    ///
    /// # Safety
    ///
    /// As [`Segment::of`](super::segment::Segment::of).
    pub unsafe fn bury(&self, word: Word, size: usize) {
        // SAFETY: the caller's promise.
        let segment = unsafe { Segment::of(word) };
        if segment.stage.remove(size, |dead| self.note_dead(dead)) {
            // SAFETY: the same.
            let segment = unsafe { Segment::keep(word) };
            self.owner.common.lists.take_away(&segment);
        }
    }

    /// Returns the item of a key, expired or not.
    #[inline]
    pub fn find(&self, hash: u64, key: &[u8], section: &Guard<'_>) -> Option<Found> {
        self.table.index.find(hash, section, |word| {
            // SAFETY: in the index in this section.
            let found = unsafe { Found::of(word) };
            (found.item.key() == key).then_some(found)
        })
    }

    /// Returns whether an item that the index has is gone all the same: it has expired, or its prefix
    /// was forgotten after it was stored.
    #[inline]
    pub fn is_gone(&self, item: RawItem, now: u32) -> bool {
        item.is_expired(now) || self.owner.forgotten.has(item)
    }

    /// Returns the slot and the item of a key in its bucket.
    pub fn find_locked<'a>(
        bucket: &Locked<'a>,
        hash: u64,
        key: &[u8],
    ) -> Option<(&'a AtomicU64, Found)> {
        // SAFETY: in the index; the caller is in a section and has the bucket's lock.
        let found = |word: Word| unsafe { Found::of(word) };
        let (slot, word) = bucket.find(hash, |word| found(word).item.key() == key)?;
        Some((slot, found(word)))
    }

    /// Puts a written item into the index. With `depends`, only if the item that is there and is not
    /// gone is that one, as it was then, or none.
    pub fn put(
        &self,
        hash: u64,
        key: &[u8],
        new: Written,
        depends: Option<Option<Seen>>,
        now: u32,
        section: &Guard<'_>,
    ) -> Result<Put, Refused> {
        let mut bucket = self.table.index.lock(hash, section);
        let old = Self::find_locked(&bucket, hash, key);
        if let Some(expected) = depends {
            let live = old.filter(|(_, old)| !self.is_gone(old.item, now));
            if live.map(|(_, old)| Seen::of(old)) != expected {
                drop(bucket);
                self.discard(new, section);
                return Ok(Put::Again);
            }
        }
        // SAFETY: written in this section, to a segment that was open then.
        if !unsafe { Segment::of(new.word) }.stage.is_usable() {
            drop(bucket);
            self.discard(new, section);
            return Ok(Put::Again);
        }
        let stripe = self.stripe();
        if let Some((slot, old)) = old {
            bucket.put(slot, new.word);
            drop(bucket);
            let size = old.item.size();
            stripe.note_stored(new.size, Some(size));
            // SAFETY: found in this section, and replaced by this thread.
            unsafe { self.bury(old.word, size) };
            return Ok(Put::Stored);
        }
        let inserted = bucket.insert(new.word);
        drop(bucket);
        match inserted {
            Ok(own_line) => {
                stripe.note_stored(new.size, None);
                Ok(if own_line { Put::Stored } else { Put::Crowded })
            }
            Err(_) => {
                self.discard(new, section);
                Err(Refused::OutOfMemory)
            }
        }
    }

    /// Counts a written item that is not put into the index as dead.
    pub fn discard(&self, new: Written, _section: &Guard<'_>) {
        // SAFETY: written in this section, to a segment that was open then.
        unsafe { self.bury(new.word, new.size) };
    }

    /// Empties the slot of an item that was found.
    pub fn remove(&self, mut bucket: Locked<'_>, slot: &AtomicU64, found: Found) {
        bucket.clear(slot);
        bucket.trim();
        drop(bucket);
        let size = found.item.size();
        self.stripe().note_removed(1, size as u64);
        // SAFETY: the caller's section, in which it was found, and removed by this thread.
        unsafe { self.bury(found.word, size) };
    }

    /// Removes all items that are there when it begins, one by one, and some that are stored meanwhile.
    /// Returns their number.
    pub fn clear(&self, section: &Guard<'_>) -> u64 {
        let (mut cursor, mut removed, mut words) = (0, 0, Vec::new());
        // SAFETY: in the index in this section.
        let found = |word: Word| unsafe { Found::of(word) };
        let hash_of = |word| self.owner.common.hash(found(word).item.key());
        loop {
            let more = self
                .table
                .index
                .walk(&mut cursor, &mut words, section, hash_of);
            for &(word, hash) in &words {
                let bucket = self.table.index.lock(hash, section);
                let key = found(word).item.key();
                // It may be another one by now, or none.
                if let Some((slot, found)) = Self::find_locked(&bucket, hash, key) {
                    self.remove(bucket, slot, found);
                    removed += 1;
                }
            }
            if !more {
                return removed;
            }
        }
    }

    /// Makes the index shrink if it is large for the items: see [`Table::shrink`].
    pub fn shrink_table(&self, tightly: bool, rest: impl Fn()) {
        self.table.shrink(self.counts().items, tightly, rest);
    }
}

impl Drop for KeySpace {
    fn drop(&mut self) {
        let bytes = *self.flushed_bytes.get_mut();
        self.owner.subtract(|sums| &sums.flushed, bytes);
        // What is open goes with it: no list keeps that.
        for open in self.all_open() {
            if let Some(open) = &*lock(open) {
                self.owner.common.lists.remove_open(&open.segment);
            }
        }
    }
}
