//! The stage of a segment in its life, and its live bytes. `segment.rs` describes the stages.
//!
//! `state` has the stage and the bytes of the items that are not dead, in one word: so of the
//! thread that frees the last item and the thread that seals, exactly one sees a sealed segment
//! without items, and takes it away.
//!
//! The other bytes up to the last item's end are dead. While the segment is not leaving, they are in
//! the count of its key space, which `note_dead` adds to: each step of `state` that changes them says
//! by how much, so that the count is exact, whatever threads do at the same time.

use super::class::SEGMENT_HEADER;
use stillpoint_platform::sync::{AtomicU32, AtomicU64, Ordering};

const SEALED: u64 = 1 << 62;
const LEAVING: u64 = 1 << 63;
const LIVE: u64 = SEALED - 1;

/// The stage of a segment, with its live bytes.
#[derive(Debug)]
pub struct Stage {
    state: AtomicU64,
    /// Where the last item ends, in bytes from the base; set before it is sealed.
    end: AtomicU32,
}

impl Stage {
    /// Creates the stage of an open, empty segment.
    pub fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            end: AtomicU32::new(SEGMENT_HEADER as u32),
        }
    }

    /// Counts an item that has been written. Under the lock of the stripe that the segment is open
    /// in, or by its only owner.
    pub fn add(&self, size: usize, end: usize) {
        self.state.fetch_add(size as u64, Ordering::Relaxed);
        self.end.store(end as u32, Ordering::Relaxed);
    }

    /// Forgets an item that was written and not published. By its only owner.
    pub fn forget_written(&self, note_dead: impl FnOnce(i64)) {
        note_dead(-self.dead_of(self.state.load(Ordering::Relaxed)));
        self.end.store(SEGMENT_HEADER as u32, Ordering::Relaxed);
    }

    /// Counts a dead item. Returns true if it was the last live one of a sealed segment: then that is
    /// leaving, and the caller frees it.
    #[must_use]
    pub fn remove(&self, size: usize, note_dead: impl Fn(i64)) -> bool {
        // Release, pairs with `leave_empty`: the item's slot was emptied before, and so before the
        // grace period begins that the segment is freed after.
        let before = self.state.fetch_sub(size as u64, Ordering::Release);
        debug_assert!(before & LIVE >= size as u64, "more dies than was alive");
        if before & LEAVING == 0 {
            note_dead(size as i64);
        }
        before & !LIVE == SEALED && before & LIVE == size as u64 && self.leave_empty(note_dead)
    }

    /// Seals it: nothing more is written into it. Returns true if it has no live items: then it is
    /// leaving, and the caller frees it.
    #[must_use]
    pub fn seal(&self, note_dead: impl Fn(i64)) -> bool {
        // Release, pairs with `leave`: what the header and the items are is seen by the thread that
        // takes them out.
        let before = self.state.fetch_or(SEALED, Ordering::Release);
        debug_assert!(
            before & (SEALED | LEAVING) == 0,
            "sealed once, by its owner"
        );
        before & LIVE == 0 && self.leave_empty(note_dead)
    }

    fn leave_empty(&self, note_dead: impl Fn(i64)) -> bool {
        // Acquire, pairs with `seal` (where the last item ends) and with `remove`.
        let left = self.state.compare_exchange(
            SEALED,
            SEALED | LEAVING,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if left.is_ok() {
            note_dead(-self.dead_of(SEALED));
        }
        left.is_ok()
    }

    /// Marks it as leaving, if it is sealed and no other thread has done so.
    #[must_use]
    pub fn leave(&self, note_dead: impl Fn(i64)) -> bool {
        let claim = |state: u64| (state & !LIVE == SEALED).then_some(state | LEAVING);
        // Acquire, pairs with `seal`. The mark itself is ordered by the locks of buckets, what the
        // last thread that took items out has done to them too.
        let claimed = self
            .state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, claim);
        let Ok(before) = claimed else {
            return false;
        };
        note_dead(-self.dead_of(before));
        true
    }

    /// Ends that without having taken all out. Returns as [`Stage::remove`].
    #[must_use]
    pub fn stay(&self, note_dead: impl Fn(i64)) -> bool {
        let before = self.state.fetch_and(!LEAVING, Ordering::Relaxed);
        note_dead(self.dead_of(before));
        before & LIVE == 0 && self.leave_empty(note_dead)
    }

    /// Whether an item may be published in it. Under the lock of the item's bucket.
    pub fn is_usable(&self) -> bool {
        self.state.load(Ordering::Relaxed) & LEAVING == 0
    }

    /// Returns the bytes of live items.
    pub fn live(&self) -> u64 {
        self.state.load(Ordering::Relaxed) & LIVE
    }

    /// Where the last item ends. Sealed, and the caller has seen that.
    pub fn end(&self) -> usize {
        self.end.load(Ordering::Relaxed) as usize
    }

    /// Bytes of items that were dead in that state.
    fn dead_of(&self, state: u64) -> i64 {
        self.end() as i64 - SEGMENT_HEADER as i64 - (state & LIVE) as i64
    }

    /// What of it is in its key space's count of dead bytes.
    pub fn counted_dead(&self) -> i64 {
        let state = self.state.load(Ordering::Relaxed);
        match state & LEAVING {
            0 => self.dead_of(state),
            _ => 0,
        }
    }

    /// Whether it is on a list, or about to leave it.
    pub fn is_sealed(&self) -> bool {
        // Acquire, pairs with `seal`: the items are seen.
        self.state.load(Ordering::Acquire) & SEALED != 0
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.load(Ordering::Relaxed);
        f.write_str(match (state & SEALED != 0, state & LEAVING != 0) {
            (false, _) => "open",
            (true, false) => "sealed",
            (true, true) => "leaving",
        })
    }
}
