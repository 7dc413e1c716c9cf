//! A cell that is filled once, by the first of the threads that make a value for it.
//!
//! None waits for another, which a fork may remove, as in std's `OnceLock`: several threads may make
//! a value at once, and the slower ones drop theirs.

// std's also in the models of other crates, to which the cell is no step, and which have it in statics.
#[cfg(all(test, stillpoint_loom))]
use crate::sync::{AtomicPtr, Ordering};
use std::ptr;
#[cfg(not(all(test, stillpoint_loom)))]
use std::sync::atomic::{AtomicPtr, Ordering};

/// The cell: a box, or null.
#[derive(Debug)]
pub struct RaceCell<T>(AtomicPtr<T>);

impl<T: Send + Sync> RaceCell<T> {
    /// Makes an empty cell.
    #[cfg(not(all(test, stillpoint_loom)))]
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for statics and their like")]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[cfg(all(test, stillpoint_loom))]
    fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value, if there is one. One load.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // Acquire, pairs with `put`: the value is complete.
        // SAFETY: null, or from a box that stays until the cell is dropped.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Puts `value` in, and returns it. If another thread has been faster, drops `value`, and returns
    /// that thread's.
    pub fn put(&self, value: Box<T>) -> &T {
        let value = Box::into_raw(value);
        // Release, pairs with `get` and `put`: the value is complete before it is found. Acquire,
        // pairs with `put`: so is the faster thread's.
        match self
            .0
            .compare_exchange(ptr::null_mut(), value, Ordering::Release, Ordering::Acquire)
        {
            // SAFETY: the cell's from now on, until it is dropped.
            Ok(_) => unsafe { &*value },
            Err(faster) => {
                // SAFETY: it came out of a box just now, and no other thread has found it.
                drop(unsafe { Box::from_raw(value) });
                // SAFETY: as in `get`.
                unsafe { &*faster }
            }
        }
    }
}

impl<T> Drop for RaceCell<T> {
    fn drop(&mut self) {
        // Needs no partner: no other thread has the cell.
        let value = self.0.load(Ordering::Relaxed);
        if !value.is_null() {
            // SAFETY: from a box, and no reference into the cell is left.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod tests {
    use super::*;
    use crate::{
        model::{model, thread},
        sync::{Arc, AtomicU64},
    };

    /// Detects a value that is found before it is complete, a second value, one that is not dropped.
    #[test]
    fn loom_of_several_values_one_stays() {
        model(|| {
            let (cell, count) = (Arc::new(RaceCell::new()), Arc::new(()));
            let threads = [1, 2].map(|_| {
                let (cell, count) = (Arc::clone(&cell), Arc::clone(&count));
                thread::spawn(move || {
                    let new = Box::new((AtomicU64::new(0), count));
                    new.0.store(7, Ordering::Relaxed);
                    let put = cell.put(new);
                    assert_eq!(put.0.load(Ordering::Relaxed), 7);
                    ptr::from_ref(put).addr()
                })
            });
            if let Some(found) = cell.get() {
                assert_eq!(found.0.load(Ordering::Relaxed), 7);
            }
            let put = threads.map(|thread| thread.join().unwrap());
            assert_eq!(put[0], put[1]);
            assert_eq!(Arc::strong_count(&count), 2);
            drop(cell);
            assert_eq!(Arc::strong_count(&count), 1);
        });
    }
}
