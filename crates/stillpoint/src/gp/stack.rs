//! A stack onto which any thread pushes, and from which any thread takes all items at once. It
//! holds records without an owner, and callbacks that have been queued.
//!
//! No thread ever takes a single item off it, so there is no ABA: an item cannot come back while
//! another thread is about to take it.

use crate::platform::sync::{AtomicPtr, Ordering};
use std::ptr;

/// The newest item; null for none. Items are linked by their users.
#[derive(Debug)]
pub(super) struct Stack<T>(AtomicPtr<T>);

impl<T> Stack<T> {
    pub(super) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Pushes `item`. Calls `link`, perhaps several times, to set the item that follows it. Returns
    /// whether the stack was empty. Lock-free and async-signal-safe.
    pub(super) fn push(&self, item: *mut T, link: impl Fn(*mut T)) -> bool {
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            link(first);
            // Release, pairs with `take_all`: the item is complete, and its former owner is done
            // with it, before it is found.
            match self
                .0
                .compare_exchange_weak(first, item, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return first.is_null(),
                Err(now) => first = now,
            }
        }
    }

    /// Takes all items, newest first. They are the caller's.
    pub(super) fn take_all(&self) -> *mut T {
        // Acquire, pairs with `push`: each item is as the thread that pushed it left it. (Pushes
        // are read-modify-writes, so the newest is in the release sequences of those before it.)
        self.0.swap(ptr::null_mut(), Ordering::Acquire)
    }

    /// Forgets all items. For the only thread of a process.
    pub(super) fn reset(&self) {
        self.0.store(ptr::null_mut(), Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn first(&self) -> *mut T {
        self.0.load(Ordering::Relaxed)
    }
}
