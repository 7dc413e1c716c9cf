//! Atomics, locks and cells: std's, or under `--cfg stillpoint_loom` those of the model, loom's or shuttle's.
//!
//! Locks can be replaced in the child of a fork ([`Mutex::reinit`]), where the thread that held them is gone.

#[cfg(not(stillpoint_loom))]
pub use std::sync::{
    Arc, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(stillpoint_loom)]
pub use super::model::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(not(stillpoint_loom))]
use std::fmt;
use std::sync::PoisonError;
#[cfg(not(stillpoint_loom))]
use std::sync::TryLockError;

/// std's lock, in a cell, so that the child of a fork may put a new one in its place.
#[cfg(not(stillpoint_loom))]
pub struct Mutex<T>(std::cell::UnsafeCell<std::sync::Mutex<T>>);

// SAFETY: shared access is to the lock, which is Sync where T is Send; `reinit` is for the only thread that there is.
#[cfg(not(stillpoint_loom))]
unsafe impl<T: Send> Sync for Mutex<T> {}

#[cfg(not(stillpoint_loom))]
impl<T> Mutex<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(std::sync::Mutex::new(value)))
    }

    #[inline(always)]
    fn lock(&self) -> Result<MutexGuard<'_, T>, PoisonError<MutexGuard<'_, T>>> {
        // SAFETY: the lock is not replaced while a thread uses it: `reinit`'s contract.
        unsafe { &*self.0.get() }.lock()
    }

    /// Not for those who would wait.
    pub fn try_lock(&self) -> std::sync::TryLockResult<MutexGuard<'_, T>> {
        // SAFETY: as in `lock`.
        unsafe { &*self.0.get() }.try_lock()
    }

    /// Replaces the lock, taken or not, and what it guards. The old value is neither looked at nor dropped.
    ///
    /// # Safety
    ///
    /// The calling thread is the only one of the process, and holds no guard of this lock.
    pub unsafe fn reinit(&self, value: T) {
        // SAFETY: nobody else can be using the lock, by the caller's promise; the cell allows the write.
        unsafe { self.0.get().write(std::sync::Mutex::new(value)) };
    }
}

#[cfg(not(stillpoint_loom))]
impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

/// Locks `mutex`, also when a thread panicked while it held it.
///
/// The locks that guard data are not held while user code runs (those that mark a turn hold nothing, and contain its panics), so
/// a poisoned lock means a panic of the library's own (an assertion); the data behind it is consistent between statements, and
/// losing every later free would be worse.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same, unless somebody else has it.
#[cfg(not(stillpoint_loom))]
#[inline]
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// As [`lock`], and tells when the calling thread has to wait for somebody else, and when it has waited.
#[inline]
pub fn lock_telling<T>(mutex: &Mutex<T>, waiting: fn(), waited: fn()) -> MutexGuard<'_, T> {
    // In the model, where a try is no point to switch threads at, there is nothing to tell.
    #[cfg(not(stillpoint_loom))]
    if let Some(guard) = try_lock(mutex) {
        return guard;
    }
    waiting();
    let guard = lock(mutex);
    waited();
    guard
}

/// A cell whose accesses loom can watch: closures in place of `get`, as in `loom::cell::UnsafeCell`.
#[cfg(any(not(stillpoint_loom), stillpoint_shuttle))]
#[derive(Debug)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(any(not(stillpoint_loom), stillpoint_shuttle))]
impl<T> UnsafeCell<T> {
    /// A cell.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Reads what is in it, by a pointer that is good during the call.
    #[inline(always)]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// The same, to write.
    #[inline(always)]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

#[cfg(all(stillpoint_loom, not(stillpoint_shuttle)))]
pub use super::model::cell::UnsafeCell;
