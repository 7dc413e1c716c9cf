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

use super::{
    class::Class, layout::RawItem, memory::Memory, pool::Pool, space::Space, stage::Stage,
    word::Word,
};
use std::{
    fmt, mem, ptr,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
};
use stillpoint_lru::{Charge, Entry};

/// What lists and pins refer to.
pub type SegmentRef = Arc<Entry<Segment>>;

/// No item expires.
const NEVER: u32 = u32::MAX;

/// Memory for items of one tenant.
pub struct Segment {
    memory: Option<Memory>,
    class: Class,
    /// Copies of items that were found worth it, and not what was written first.
    pub kept: bool,
    space: Weak<Space>,
    pool: Arc<Pool>,
    charge: Mutex<Option<Charge>>,
    stage: Stage,
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
        space: Weak<Space>,
        pool: Arc<Pool>,
        charge: Option<Charge>,
    ) -> SegmentRef {
        let base = memory.base();
        let segment = Arc::new(Entry::new(Self {
            memory: Some(memory),
            class,
            kept,
            space,
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

    pub fn space(&self) -> Option<Arc<Space>> {
        self.space.upgrade()
    }

    pub fn is_of(&self, space: &Arc<Space>) -> bool {
        ptr::eq(self.space.as_ptr(), Arc::as_ptr(space))
    }

    /// Counts an item that has been written. Under the lock of the stripe that the segment is open
    /// in, or by its only owner.
    pub fn add(&self, size: usize, end: usize, exptime: u32) {
        self.stage.add(size, end);
        self.note_expiry(exptime);
    }

    /// Forgets an item that was written and not published. By its only owner.
    pub fn forget_written(&self, space: &Space) {
        self.stage
            .forget_written(|dead| space.stripe().note_dead(dead));
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

    /// Counts a dead item. Returns true if it was the last live one of a sealed segment: then that is
    /// leaving, and the caller frees it.
    #[must_use]
    pub fn remove(&self, size: usize, space: &Space) -> bool {
        self.stage
            .remove(size, |dead| space.stripe().note_dead(dead))
    }

    /// Seals it: nothing more is written into it. Returns true if it has no live items: then it is
    /// leaving, and the caller frees it.
    #[must_use]
    pub fn seal(&self, space: &Space) -> bool {
        self.stage.seal(|dead| space.stripe().note_dead(dead))
    }

    /// Marks it as leaving, if it is sealed and no other thread has done so.
    #[must_use]
    pub fn leave(&self) -> bool {
        self.stage.leave(|dead| self.note_dead(dead))
    }

    /// Ends that without having taken all out. Returns as [`Segment::remove`].
    #[must_use]
    pub fn stay(&self, space: &Space) -> bool {
        self.stage.stay(|dead| space.stripe().note_dead(dead))
    }

    fn note_dead(&self, dead: i64) {
        if dead != 0
            && let Some(space) = self.space()
        {
            space.stripe().note_dead(dead);
        }
    }

    /// Returns whether an item may be published in it. The caller holds the lock of the item's bucket.
    pub fn is_usable(&self) -> bool {
        self.stage.is_usable()
    }

    /// Returns the bytes of live items.
    pub fn live(&self) -> u64 {
        self.stage.live()
    }

    /// Returns its part of its key space's dead bytes.
    #[cfg(test)]
    pub fn counted_dead(&self) -> i64 {
        self.stage.counted_dead()
    }

    /// Returns whether it is on a list, or about to leave it.
    pub fn is_sealed(&self) -> bool {
        self.stage.is_sealed()
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

    fn charge(&self) -> std::sync::MutexGuard<'_, Option<Charge>> {
        self.charge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the charge out, to change it or for the segment that its items go to.
    pub fn take_charge(&self) -> Option<Charge> {
        self.charge().take()
    }

    /// Sets the charge of a segment without one.
    pub fn set_charge(&self, charge: Option<Charge>) {
        *self.charge() = charge;
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
            .field("live", &self.live())
            .field("stage", &format_args!("{}", self.stage))
            .finish_non_exhaustive()
    }
}
