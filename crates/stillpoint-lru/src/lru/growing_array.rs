//! An array of counts that grows like the arrays of LRU lists (`slots.rs`): for torture tests, which
//! read it while it grows.

use crate::slots::{Slots, sections::Replaced};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use stillpoint::{Guard, internal::is_global};
use stillpoint_platform::sync::{Mutex, lock};

/// The array.
///
/// If `FREES`, an array that has been replaced is freed, as it is for lists. Otherwise it is emptied
/// after the grace period and kept, so that a late reader detects the fault without harm.
#[derive(Debug)]
pub struct GrowingArray<const FREES: bool> {
    slots: Slots<AtomicUsize>,
    change: Mutex<()>,
}

impl<const FREES: bool> GrowingArray<FREES> {
    /// Creates an array of `len` counts, each its own index.
    pub fn new(len: usize) -> Self {
        let array = Self {
            slots: Slots::new(),
            change: Mutex::new(()),
        };
        array.grow(len);
        array
    }

    /// Grows it to `len` counts; each new one is its index.
    ///
    /// # Panics
    ///
    /// Without memory.
    pub fn grow(&self, len: usize) {
        // Dropped after the lock, as variables are in the reverse order.
        let _replaced: Option<Replaced>;
        let _change = lock(&self.change);
        // SAFETY: the lock is held.
        let old = unsafe { self.slots.peek_len() };
        let grown = if FREES {
            self.slots.reserve(len).map(Some)
        } else {
            self.slots.reserve_and_empty(len).map(|()| None)
        };
        _replaced = grown.expect("there is memory for a few pages");
        (old..len).for_each(|index| self.slots.put(index, Arc::new(AtomicUsize::new(index))));
    }

    /// Returns the count at `index`, found like the count of an LRU list; runs `meanwhile` after it
    /// has found the array. `None` for a slot that is empty or out of range.
    ///
    /// # Panics
    ///
    /// If the section is not one of the global domain.
    pub fn count(
        &self,
        index: usize,
        section: &Guard<'_>,
        meanwhile: impl FnOnce(),
    ) -> Option<usize> {
        assert!(
            is_global(section),
            "stillpoint: the array belongs to the global domain; begin the section with stillpoint::read_lock()"
        );
        // SAFETY: `section` is one of the domain that arrays are retired in.
        unsafe { self.slots.find_after(index, meanwhile) }
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// Like [`GrowingArray::count`], but without a section: a fault that torture must detect.
    ///
    /// # Safety
    ///
    /// `FREES` is off.
    pub unsafe fn count_outside(&self, index: usize, meanwhile: impl FnOnce()) -> Option<usize> {
        // SAFETY: arrays are never freed, by the caller's promise, and nothing is ever taken out of
        // one.
        unsafe { self.slots.find_after(index, meanwhile) }
            .map(|count| count.load(Ordering::Relaxed))
    }
}
