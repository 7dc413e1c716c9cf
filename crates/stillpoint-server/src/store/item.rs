//! An item as a reader sees it in a section, and a value that stays pinned after the section.

use super::{
    access::{FETCHED, STALE, WIN},
    common::Owner,
    key_space::{Found, KeySpace},
    segment::{Segment, SegmentRef},
};
use std::{
    fmt,
    ops::Deref,
    sync::{Arc, atomic::Ordering},
};
use stillpoint::Guard;

/// An item, inside the section in which it was found. It lends its bytes without copying them.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    found: Found,
    hash: u64,
    /// As they were when it was found: the CAS value before the marks.
    cas: u64,
    marks: u32,
    last_access: u32,
    space: &'a KeySpace,
    section: &'a Guard<'a>,
}

impl<'a> Item<'a> {
    #[inline]
    pub(super) fn new(
        found: Found,
        hash: u64,
        now: u32,
        space: &'a KeySpace,
        section: &'a Guard<'a>,
    ) -> Self {
        // If it is that of an item which has become stale, the marks say so.
        let cas = found.item.cas();
        Self {
            found,
            hash,
            cas,
            marks: found.item.access().marks(),
            last_access: found.item.access().last_access(now),
            space,
            section,
        }
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        self.found.item.key()
    }

    /// Returns the value.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        self.found.item.value()
    }

    /// Returns the client's flags.
    #[inline]
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.found.item.flags()
    }

    /// Returns the CAS value. If the item is stale, takes the lock of a line of the index.
    #[must_use]
    pub fn cas(&self) -> u64 {
        if !self.is_stale() {
            return self.cas;
        }
        // It may have become stale, and not have the CAS value of that yet.
        let _bucket = self.space.table.index.lock(self.hash, self.section);
        self.found.item.cas()
    }

    /// Returns the number of bytes that it takes in its segment.
    #[must_use]
    pub fn size(&self) -> usize {
        self.found.item.size()
    }

    /// Returns the second in which it expires, 0 for never.
    #[must_use]
    pub fn exptime(&self) -> u32 {
        self.found.item.exptime()
    }

    /// Returns the seconds from `now` until it expires; `None` if it does not.
    #[must_use]
    pub fn ttl(&self, now: u32) -> Option<u32> {
        let exptime = self.exptime();
        (exptime != 0).then(|| exptime.saturating_sub(now))
    }

    /// Returns the second of the use before this one, or in which it was stored.
    #[must_use]
    pub fn last_access(&self) -> u32 {
        self.last_access
    }

    /// Returns whether it was found before this time.
    #[must_use]
    pub fn was_fetched(&self) -> bool {
        self.marks & FETCHED != 0
    }

    /// Returns whether it was marked as stale.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.marks & STALE != 0
    }

    /// Returns whether a client has been told to compute the value again.
    #[must_use]
    pub fn has_win(&self) -> bool {
        self.marks & WIN != 0
    }

    /// Sets the win mark. Returns whether this call has set it: of all that try, one wins. Takes the
    /// lock of a line of the index.
    #[must_use]
    pub fn win(&self) -> bool {
        let bucket = self.space.table.index.lock(self.hash, self.section);
        // Not the one that was found: it may have been copied meanwhile. Nor for one that has become
        // stale since: the value that is made would be out of date.
        KeySpace::find_locked(&bucket, self.hash, self.key())
            .is_some_and(|(_, found)| found.item.cas() == self.cas && found.item.access().win())
    }

    /// Pins the value, so that it stays where it lies after the section. Returns `None` if the tenant's
    /// pins have reached [`Config::pinned_max`](super::Config::pinned_max), or those of all tenants half
    /// of the store's limit: then copy the value.
    ///
    /// A pin keeps the whole segment from eviction, and counts as much. So pin only large values for
    /// long.
    #[must_use]
    pub fn pin(&self) -> Option<Pin> {
        let owner = &self.space.owner;
        // SAFETY: found in the section that this item has.
        let segment = unsafe { Segment::keep(self.found.word) };
        let value = self.value();
        let pin = Pin {
            value,
            owner: Arc::clone(owner),
            segment,
        };
        if pin.segment.pins.fetch_add(1, Ordering::Relaxed) == 0 {
            let bytes = pin.segment.bytes() as u64;
            if !owner.add_pinned(bytes) {
                // Dropping the pin undoes it.
                return None;
            }
        }
        Some(pin)
    }
}

impl fmt::Debug for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("key", &self.key())
            .field("len", &self.value().len())
            .field("flags", &self.flags())
            .field("cas", &self.cas())
            .field("exptime", &self.exptime())
            .finish_non_exhaustive()
    }
}

/// A value that stays where it lies outside of sections, made by [`Item::pin`]. It may outlive the
/// item, its tenant and the store.
pub struct Pin {
    /// In `segment`, however long that is called.
    value: *const [u8],
    segment: SegmentRef,
    owner: Arc<Owner>,
}

// SAFETY: it lends bytes that never change, and has references of its own to what they lie in.
unsafe impl Send for Pin {}
// SAFETY: as above.
unsafe impl Sync for Pin {}

impl Deref for Pin {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a value of an item that was published, so it never changes; the segment keeps it.
        unsafe { &*self.value }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if self.segment.pins.fetch_sub(1, Ordering::Relaxed) == 1 {
            let bytes = self.segment.bytes() as u64;
            self.owner.subtract(|sums| &sums.pinned, bytes);
        }
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pin")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
