//! Atomics, locks and cells: std's, or those of the model, loom's or shuttle's.
//!
//! Locks can be replaced in the child of a fork ([`Mutex::reinit`]), where the thread that held
//! them is gone.

use std::sync::{PoisonError, TryLockError};

pub use crate::seam::sync::{
    Arc, AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard,
    Ordering, UnsafeCell, fence,
};

/// Locks `mutex`, also when a thread panicked while it held it.
///
/// The locks that guard data are not held while user code runs (an [owned
/// mutex](super::owned_mutex) guards no data, and its panics are contained), so a poisoned lock
/// means a panic inside the library (an assertion); the data behind it is consistent between
/// statements, and losing every later free would be worse.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `mutex`, unless another thread holds it.
#[inline]
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
