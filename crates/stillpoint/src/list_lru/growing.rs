//! An array of counts that grows as those of LRU lists do (`slots.rs`): for tortures, which look into it while it grows.

use super::slots::{Replaced, Slots};
use crate::{
    platform::sync::{Mutex, lock},
    rcu::{Guard, is_global},
};
use std::{
    fmt,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// What may be left out of arrays, so that a torture can look into one outside of a section and do no harm.
///
/// # Safety
///
/// With the default it is sound. See [`GrowingArray::count_outside`].
#[doc(hidden)]
pub unsafe trait ArrayPolicy: Send + Sync + Sized + 'static {
    /// Whether the arrays of LRU lists are freed when they have been replaced. Off: after the grace period they are emptied and left where
    /// they are, so that who still looks at one finds that out and does no harm.
    const FREES_ARRAYS: bool = true;
}

/// Arrays as LRU lists have them.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum FreedArrays {}

// SAFETY: the default.
unsafe impl ArrayPolicy for FreedArrays {}

/// The array. No part of the stable interface.
#[doc(hidden)]
pub struct GrowingArray<P: ArrayPolicy> {
    slots: Slots<AtomicUsize>,
    change: Mutex<()>,
    policy: PhantomData<fn() -> P>,
}

impl<P: ArrayPolicy> GrowingArray<P> {
    /// An array of `len` counts, each its own index.
    pub fn new(len: usize) -> Self {
        let array = Self { slots: Slots::new(), change: Mutex::new(()), policy: PhantomData };
        array.grow(len);
        array
    }

    /// Grows it to `len` counts; those that come are their own indices.
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
        let grown =
            if P::FREES_ARRAYS { self.slots.reserve(len).map(Some) } else { self.slots.reserve_and_empty(len).map(|()| None) };
        _replaced = grown.expect("there is memory for a few pages");
        (old..len).for_each(|index| self.slots.put(index, Arc::new(AtomicUsize::new(index))));
    }

    /// The count at `index`, as who counts an LRU list finds it, with `meanwhile` after the array has been found. `None` in a slot that is
    /// empty or not there.
    ///
    /// # Panics
    ///
    /// If the section is not one of the global domain.
    pub fn count(&self, index: usize, section: &Guard<'_>, meanwhile: impl FnOnce()) -> Option<usize> {
        assert!(
            is_global(section),
            "stillpoint: the array belongs to the global domain; begin the section with stillpoint::read_lock()"
        );
        // SAFETY: `section` is one of the domain that arrays are retired in.
        unsafe { self.slots.find_after(index, meanwhile) }.map(|count| count.load(Ordering::Relaxed))
    }

    /// The same outside of any section, which a torture must catch.
    ///
    /// # Safety
    ///
    /// The policy does not have [`ArrayPolicy::FREES_ARRAYS`].
    pub unsafe fn count_outside(&self, index: usize, meanwhile: impl FnOnce()) -> Option<usize> {
        // SAFETY: arrays are never freed, by the caller's promise, and nobody takes anything out of one.
        unsafe { self.slots.find_after(index, meanwhile) }.map(|count| count.load(Ordering::Relaxed))
    }
}

impl<P: ArrayPolicy> fmt::Debug for GrowingArray<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrowingArray").finish_non_exhaustive()
    }
}
