//! A lock that is held while user code runs.
//!
//! A callback or a destructor may fork. In the child, a lock that another thread held is free,
//! since that thread is gone. One that the forking thread holds stays locked, because that thread
//! is still inside the critical section. So the lock knows its owner.

use super::{
    sync::{Mutex, MutexGuard, lock},
    thread,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// The lock.
#[derive(Debug)]
pub struct OwnedMutex {
    lock: Mutex<()>,
    /// The holder's token, or 0; written under the lock. std's atomic also in the model: no other
    /// thread ever acts on it.
    holder: AtomicU64,
}

/// Holds the lock until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct OwnedMutexGuard<'a> {
    holder: &'a AtomicU64,
    _guard: MutexGuard<'a, ()>,
}

impl OwnedMutex {
    /// Makes a lock that is free.
    #[expect(clippy::new_without_default, reason = "there is no usual one")]
    pub fn new() -> Self {
        Self {
            lock: Mutex::new(()),
            holder: AtomicU64::new(0),
        }
    }

    /// Blocks until the lock is free, and takes it.
    pub fn lock(&self) -> OwnedMutexGuard<'_> {
        let guard = lock(&self.lock);
        self.holder.store(thread::token().get(), Ordering::Relaxed);
        OwnedMutexGuard {
            holder: &self.holder,
            _guard: guard,
        }
    }

    /// Releases the lock, in the child of a fork, unless the calling thread holds it.
    ///
    /// # Safety
    ///
    /// The calling thread is the only one of the process.
    pub unsafe fn reset_in_child(&self) {
        if self.holder.load(Ordering::Relaxed) != thread::token().get() {
            self.holder.store(0, Ordering::Relaxed);
            // SAFETY: the caller's promise; and this thread holds no guard of it, or it would be
            // the holder.
            unsafe { self.lock.reinit(()) };
        }
    }
}

impl Drop for OwnedMutexGuard<'_> {
    fn drop(&mut self) {
        // Before the fields are dropped, so still under the lock.
        self.holder.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::try_lock;
    use std::{mem, thread::scope};

    #[test]
    fn in_the_child_a_turn_of_another_thread_is_free() {
        let turn = OwnedMutex::new();
        scope(|scope| scope.spawn(|| mem::forget(turn.lock())).join().unwrap());
        // SAFETY: the other thread has ended.
        unsafe { turn.reset_in_child() };
        drop(turn.lock());
    }

    #[test]
    fn in_the_child_a_turn_of_the_forking_thread_stays_taken() {
        let turn = OwnedMutex::new();
        let taken = turn.lock();
        // SAFETY: no other thread knows the lock.
        unsafe { turn.reset_in_child() };
        assert_eq!(turn.holder.load(Ordering::Relaxed), thread::token().get());
        let is_free = || {
            scope(|scope| {
                scope
                    .spawn(|| try_lock(&turn.lock).is_some())
                    .join()
                    .unwrap()
            })
        };
        assert!(!is_free());
        drop(taken);
        assert!(is_free());
    }
}
