//! std's atomics and locks, and plain cells.

pub use crate::simple::cell::UnsafeCell;
pub(crate) use std::sync::Condvar;
pub use std::sync::{
    Arc, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
use std::{
    cell, fmt,
    sync::{self, LockResult, TryLockResult},
};

/// std's lock, in a cell, so that the child of a fork may put a new one in its place.
pub struct Mutex<T>(cell::UnsafeCell<sync::Mutex<T>>);

// SAFETY: shared access is to the lock, which is Sync where T is Send; `reinit` is for the only
// thread that there is.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// Makes a lock that is free.
    pub const fn new(value: T) -> Self {
        Self(cell::UnsafeCell::new(sync::Mutex::new(value)))
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        // SAFETY: the lock is not replaced while a thread uses it: `reinit`'s contract.
        unsafe { &*self.0.get() }.lock()
    }

    /// Takes the lock, unless another thread holds it.
    #[inline]
    pub(crate) fn lock_at_once(&self) -> Option<MutexGuard<'_, T>> {
        crate::sync::try_lock(self)
    }

    /// Locks without blocking.
    ///
    /// # Errors
    ///
    /// If another thread holds it, or panicked while it held it.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        // SAFETY: as in `lock`.
        unsafe { &*self.0.get() }.try_lock()
    }

    /// Replaces the lock, taken or not, and what it guards. The old value is neither looked at nor
    /// dropped.
    ///
    /// # Safety
    ///
    /// The calling thread is the only one of the process, and holds no guard of this lock.
    pub unsafe fn reinit(&self, value: T) {
        // SAFETY: no other thread can be using the lock, by the caller's promise; the cell allows
        // the write.
        unsafe { self.0.get().write(sync::Mutex::new(value)) };
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}
