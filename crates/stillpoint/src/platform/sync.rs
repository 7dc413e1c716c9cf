//! Atomics, locks and cells: std's, or loom's under `--cfg stillpoint_loom`.

#[cfg(not(stillpoint_loom))]
pub(crate) use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(stillpoint_loom)]
pub(crate) use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use std::sync::PoisonError;

/// Locks `mutex`, also when a thread panicked while it held it.
///
/// The locks that guard data are not held while foreign code runs (those that mark a turn hold nothing, and contain its panics), so
/// a poisoned lock means a panic of the library's own (an assertion); the data behind it is consistent between statements, and
/// losing every later free would be worse.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cell whose accesses loom can watch: closures in place of `get`, as in `loom::cell::UnsafeCell`.
#[cfg(not(stillpoint_loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(stillpoint_loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

#[cfg(stillpoint_loom)]
pub(crate) use loom::cell::UnsafeCell;
