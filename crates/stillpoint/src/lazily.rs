//! Memory that is allocated when it is first needed.

use std::{
    alloc::{self, Layout},
    ptr,
    // std's also in the model, to which what is made here is no step.
    sync::atomic::{AtomicPtr, Ordering},
};

/// A `T`, zero at first, in a block that the first use allocates: a domain has four histograms of
/// 1.3 KiB, and most domains use none. Takes no lock, unlike a `OnceLock`, which another thread may
/// hold at a fork.
#[derive(Debug)]
pub(crate) struct Lazily<T>(AtomicPtr<T>);

impl<T: Sync> Lazily<T> {
    /// Makes one without a block.
    ///
    /// # Safety
    ///
    /// Zeros are a `T`, which has a size and nothing to drop.
    pub(crate) const unsafe fn zeroed() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value; `None` before the first use.
    pub(crate) fn get(&self) -> Option<&T> {
        // Acquire, pairs with `make`: it is zero before it can be found.
        // SAFETY: null, or made there and freed with `self`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value, and allocates it if this is the first use; `None` if there is no memory.
    pub(crate) fn get_or_make(&self) -> Option<&T> {
        self.get().or_else(|| self.make())
    }

    #[cold]
    fn make(&self) -> Option<&T> {
        // SAFETY: it has a size, by the contract of `zeroed`.
        let new = unsafe { alloc::alloc_zeroed(Layout::new::<T>()) }.cast::<T>();
        if new.is_null() {
            return None;
        }
        // Release, pairs with `get`: it is zero before it can be found.
        let won =
            self.0
                .compare_exchange(ptr::null_mut(), new, Ordering::Release, Ordering::Relaxed);
        if won.is_err() {
            // SAFETY: allocated with that layout above, and no other thread knows it.
            unsafe { alloc::dealloc(new.cast(), Layout::new::<T>()) };
        }
        self.get()
    }
}

impl<T> Drop for Lazily<T> {
    fn drop(&mut self) {
        let made = *self.0.get_mut();
        if !made.is_null() {
            // SAFETY: allocated with that layout in `make`; `self` is unique.
            unsafe { alloc::dealloc(made.cast(), Layout::new::<T>()) };
        }
    }
}
