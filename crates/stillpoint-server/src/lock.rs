//! A lock that holds whatever happened to the thread that had it before.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, also if a thread has panicked while it held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
