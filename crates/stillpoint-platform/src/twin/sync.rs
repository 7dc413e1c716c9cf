//! The checker's atomics and locks, with the interface of the system's.

#[cfg(not(stillpoint_shuttle))]
pub use super::checker::cell::UnsafeCell;
pub(crate) use super::checker::sync::Condvar;
pub use super::checker::sync::{
    Arc, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(stillpoint_shuttle)]
pub use crate::simple::cell::UnsafeCell;
use std::{
    fmt,
    sync::{LockResult, TryLockResult},
};

/// The checker's lock.
pub struct Mutex<T>(super::checker::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Makes a lock that is free.
    pub fn new(value: T) -> Self {
        Self(super::checker::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.0.lock()
    }

    /// Returns `None`: the checkers do not switch threads at a `try_lock`, so one would hide
    /// schedules.
    pub(crate) fn lock_at_once(&self) -> Option<MutexGuard<'_, T>> {
        None
    }

    /// Locks without blocking.
    ///
    /// # Errors
    ///
    /// If another thread holds it, or panicked while it held it.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// The model does not fork.
    ///
    /// # Safety
    ///
    /// None.
    pub unsafe fn reinit(&self, _value: T) {
        unreachable!("there is no fork in the model");
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}
