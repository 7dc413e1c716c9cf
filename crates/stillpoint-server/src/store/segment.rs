//! A segment: memory that items are written into one behind the other, and that is charged, evicted
//! and freed as a whole.
//!
//! # Its life
//!
//! ```text
//!   open      a stripe writes items into it
//!   sealed    on a list of `stillpoint_lru`, in the order of sealing
//!   leaving   one thread takes its items out of the index; nothing is published in it any more
//!   limbo     no item of it is in the index; readers may still be inside (`pool.rs`)
//! ```
//!
//! An item is published under the lock of its bucket, if the segment is not leaving by then. The
//! thread that takes the items out takes the lock of each one's bucket, after it has marked the
//! segment. If the publisher has the lock first, its item is found and taken out; if the other has
//! it first, the publisher sees the mark, and writes the item elsewhere.

use super::{class::Class, layout::RawItem, memory::Memory, pool::Pool, stage::Stage, word::Word};
use crate::lock::lock;
use std::{
    fmt, mem, ptr,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU32, Ordering},
    },
};
use stillpoint_lru::{Charge, Entry};

/// What lists and pins refer to.
pub type SegmentRef = Arc<Entry<Segment>>;

/// What happens to the items of a segment that is leaving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Those that were used enough are copied.
    Evict,
    /// All are copied.
    Compact,
    /// None is copied: nothing else is left to evict.
    Clear,
}

/// The key space of a segment, as far as segments and their lists know it.
pub trait Home: Send + Sync {
    /// Adds to its count of dead bytes.
    fn note_dead(&self, bytes: i64);

    /// Returns whether it was flushed, so that its items need not be taken out.
    fn is_flushed(&self) -> bool;

    /// Notes that segments of it are freed though its index, which was flushed, has their items.
    fn note_leaving(&self);

    /// Seals a segment if it is open here.
    fn seal_one(&self, segment: &SegmentRef) -> bool;

    /// If a segment has a single item that was used enough to stay where it is, cools the item and
    /// returns its heat.
    fn cool_whole(&self, segment: &Segment) -> Option<u32>;

    /// Takes all items out of a segment that this thread has marked as leaving. Returns false without
    /// memory for copies.
    fn take_out(self: Arc<Self>, segment: &SegmentRef, why: Why) -> bool;
}

/// No item expires.
const NEVER: u32 = u32::MAX;

/// Memory for items of one tenant.
pub struct Segment {
    memory: Option<Memory>,
    class: Class,
    /// Copies of items that were found worth it, and not what was written first.
    pub kept: bool,
    home: Weak<dyn Home>,
    pool: Arc<Pool>,
    charge: Mutex<Option<Charge>>,
    pub stage: Stage,
    /// No item expires before that second.
    expires: AtomicU32,
    pub pins: AtomicU32,
}

impl Segment {
    /// Creates an open, empty segment.
    pub fn new(
        memory: Memory,
        class: Class,
        kept: bool,
        home: Weak<dyn Home>,
        pool: Arc<Pool>,
        charge: Option<Charge>,
    ) -> SegmentRef {
        let base = memory.base();
        let segment = Arc::new(Entry::new(Self {
            memory: Some(memory),
            class,
            kept,
            home,
            pool,
            charge: Mutex::new(charge),
            stage: Stage::new(),
            expires: AtomicU32::new(NEVER),
            pins: AtomicU32::new(0),
        }));
        // SAFETY: the header of memory that is this segment's alone.
        unsafe { base.cast().write(Arc::as_ptr(&segment)) };
        segment
    }

    /// Returns the segment of an item.
    ///
    /// # Safety
    ///
    /// The item was in the index at a moment of a section that the caller is in for as long as the
    /// result is used; or the caller keeps the segment.
    pub unsafe fn of<'a>(word: Word) -> &'a Entry<Segment> {
        // SAFETY: the caller's promise. What was in the index is freed after a grace period.
        unsafe { &*Self::pointer(word) }
    }

    /// The pointer of the segment's Arc, as it was made: a reference to the segment would not reach
    /// the counts beside it.
    ///
    /// # Safety
    ///
    /// As [`Segment::of`].
    unsafe fn pointer(word: Word) -> *const Entry<Segment> {
        let header = ptr::with_exposed_provenance::<*const Entry<Segment>>(word.segment_base());
        // SAFETY: an item lies behind the header of its segment, which has the pointer since before
        // the item was published.
        unsafe { *header }
    }

    /// Returns an owned reference to the segment of an item.
    ///
    /// # Safety
    ///
    /// As [`Segment::of`].
    pub unsafe fn keep(word: Word) -> SegmentRef {
        // SAFETY: the caller's promise. The pointer is that of an Arc, of which limbo or a list has
        // a count for as long as the caller's section lasts.
        unsafe {
            let segment = Self::pointer(word);
            Arc::increment_strong_count(segment);
            Arc::from_raw(segment)
        }
    }

    pub fn class(&self) -> Class {
        self.class
    }

    pub fn base(&self) -> *mut u8 {
        self.memory().base().as_ptr()
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> usize {
        self.memory().len()
    }

    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("taken by its drop alone")
    }

    /// Returns its key space, unless that has been freed.
    pub fn home(&self) -> Option<Arc<dyn Home>> {
        self.home.upgrade()
    }

    pub fn is_of<H>(&self, home: &Arc<H>) -> bool {
        ptr::addr_eq(self.home.as_ptr(), Arc::as_ptr(home))
    }

    pub fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Relaxed) > 0
    }

    /// Returns whether its key space was flushed, so that its items need not be taken out.
    pub fn is_flushed(&self) -> bool {
        self.home().is_none_or(|home| home.is_flushed())
    }

    /// Returns whether more than half of it is dead, or its key space was flushed.
    pub fn is_sparse(&self) -> bool {
        self.is_flushed()
            || (self.class != Class::OWN
                && self.stage.live() * 2 <= self.bytes() as u64
                && !self.is_pinned())
    }

    /// Counts an item that has been written. Under the lock of the stripe that the segment is open
    /// in, or by its only owner.
    pub fn add(&self, size: usize, end: usize, exptime: u32) {
        self.stage.add(size, end);
        self.note_expiry(exptime);
    }

    /// Records the second in which an item expires.
    pub fn note_expiry(&self, exptime: u32) {
        if exptime != 0 && exptime < self.expires.load(Ordering::Relaxed) {
            self.expires.fetch_min(exptime, Ordering::Relaxed);
        }
    }

    /// Returns whether an item may have expired.
    pub fn has_expired(&self, now: u32) -> bool {
        self.expires.load(Ordering::Relaxed) <= now
    }

    /// Forgets what was noted. Before the items are looked at, so that nothing is missed that is
    /// noted meanwhile.
    pub fn forget_expiry(&self) {
        self.expires.store(NEVER, Ordering::Relaxed);
    }

    /// Marks it as leaving, if it is sealed and no other thread has done so.
    #[must_use]
    pub fn leave(&self) -> bool {
        self.stage.leave(|dead| self.note_dead(dead))
    }

    fn note_dead(&self, dead: i64) {
        if dead != 0
            && let Some(home) = self.home()
        {
            home.note_dead(dead);
        }
    }

    /// Returns the item at offset `at`, dead or live, and the offset of the next one; `None` behind the
    /// last one. The first offset is [`SEGMENT_HEADER`]. The caller has seen that the segment is sealed.
    pub fn item_at(&self, at: usize) -> Option<(RawItem, usize)> {
        if at >= self.stage.end() {
            return None;
        }
        // SAFETY: sealed, so the items up to `end` have been written, one behind the other; they
        // stay while this segment does.
        let item = unsafe { RawItem::at(self.base().addr() + at) };
        Some((item, at + item.size()))
    }

    /// Takes the charge out, to change it or for the segment that its items go to.
    pub fn take_charge(&self) -> Option<Charge> {
        lock(&self.charge).take()
    }

    /// Sets the charge of a segment without one.
    pub fn set_charge(&self, charge: Option<Charge>) {
        *lock(&self.charge) = charge;
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // One that no list has had: what was written into it was not published in the end.
        self.note_dead(-self.stage.counted_dead());
        // Its last reference: it was never published in, or limbo has waited for readers, and pins
        // have gone.
        if let Some(memory) = mem::take(&mut self.memory) {
            self.pool.recycle(memory, self.class);
        }
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("bytes", &self.bytes())
            .field("live", &self.stage.live())
            .field("stage", &format_args!("{}", self.stage))
            .finish_non_exhaustive()
    }
}
