//! A cell for what the first of several threads makes, such as the global domains, a map's root, its arenas.
//!
//! Unlike with std's `OnceLock`, no thread waits for another one, which a fork may remove. Several threads may make
//! a value at the same time; the slower ones drop theirs.

// std's also in the models of other crates: there the cell is no step of the model, and stands in statics.
#[cfg(all(test, stillpoint_loom))]
use crate::sync::{AtomicPtr, Ordering};
#[cfg(not(all(test, stillpoint_loom)))]
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{marker::PhantomData, ptr, ptr::NonNull, sync::Arc};

/// An owner of a value that is one pointer, such as a box.
///
/// # Safety
///
/// The pointer that [`into_raw`](Self::into_raw) returns leads to the value until the owner made of it is dropped.
pub unsafe trait Owner {
    /// The value.
    type Target;

    /// Returns a pointer to the value, which is not dropped.
    fn into_raw(self) -> NonNull<Self::Target>;

    /// Makes the owner of a value again.
    ///
    /// # Safety
    ///
    /// `value` is from [`into_raw`](Self::into_raw), and this is called once.
    unsafe fn from_raw(value: NonNull<Self::Target>) -> Self;
}

// SAFETY: its value stays where it is.
unsafe impl<T> Owner for Box<T> {
    type Target = T;

    fn into_raw(self) -> NonNull<T> {
        NonNull::from(Self::leak(self))
    }

    unsafe fn from_raw(value: NonNull<T>) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::from_raw(value.as_ptr()) }
    }
}

// SAFETY: the same.
unsafe impl<T> Owner for Arc<T> {
    type Target = T;

    fn into_raw(self) -> NonNull<T> {
        // SAFETY: the value of an `Arc` is not at address 0.
        unsafe { NonNull::new_unchecked(Self::into_raw(self).cast_mut()) }
    }

    unsafe fn from_raw(value: NonNull<T>) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::from_raw(value.as_ptr()) }
    }
}

/// A cell that is filled once.
///
/// Threads share it only if they may also send its owner, which one may put in and another drop:
///
/// ```compile_fail,E0277
/// fn share<T: Sync>() {}
/// share::<stillpoint_platform::race::RaceCell<Box<std::sync::MutexGuard<'static, ()>>>>();
/// ```
#[derive(Debug)]
pub struct RaceCell<O: Owner> {
    /// Null, or from an owner.
    value: AtomicPtr<O::Target>,
    /// The pointer takes `Send` and `Sync` away, which the next lines give.
    owns: PhantomData<(O, *const ())>,
}

// SAFETY: it is an owner, or nothing.
unsafe impl<O: Owner + Send> Send for RaceCell<O> {}
// SAFETY: through a shared reference, a thread gets a reference to the value, or moves an owner in, which
// another thread may drop.
unsafe impl<O: Owner<Target: Sync> + Send + Sync> Sync for RaceCell<O> {}

impl<O: Owner> RaceCell<O> {
    /// Creates an empty cell.
    #[cfg(not(all(test, stillpoint_loom)))]
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for statics and their like")]
    pub const fn new() -> Self {
        Self {
            value: AtomicPtr::new(ptr::null_mut()),
            owns: PhantomData,
        }
    }

    #[cfg(all(test, stillpoint_loom))]
    fn new() -> Self {
        Self {
            value: AtomicPtr::new(ptr::null_mut()),
            owns: PhantomData,
        }
    }

    /// Returns the value, as its owner points to it.
    #[inline(always)]
    pub fn pointer(&self) -> Option<NonNull<O::Target>> {
        // Acquire, pairs with `put`: the value is complete.
        NonNull::new(self.value.load(Ordering::Acquire))
    }

    /// Returns the value. One load.
    #[inline(always)]
    pub fn get(&self) -> Option<&O::Target> {
        // SAFETY: the cell owns it. `take_shared` excludes references.
        self.pointer().map(|value| unsafe { value.as_ref() })
    }

    /// Puts `made` in, and returns it. If another thread was faster, drops `made`, and returns that thread's.
    #[cold]
    pub fn put(&self, made: O) -> &O::Target {
        let made = made.into_raw();
        // Release, pairs with `pointer`: the value is complete. Acquire: so is the faster thread's.
        let set = self.value.compare_exchange(
            ptr::null_mut(),
            made.as_ptr(),
            Ordering::Release,
            Ordering::Acquire,
        );
        let value = match set.map_err(NonNull::new) {
            Err(Some(faster)) => {
                // SAFETY: from an owner just now, and no other thread knows it.
                drop(unsafe { O::from_raw(made) });
                faster
            }
            _ => made,
        };
        // SAFETY: as in `get`.
        unsafe { value.as_ref() }
    }

    /// Takes the value out.
    pub fn take(&mut self) -> Option<O> {
        // SAFETY: borrowed mutably.
        unsafe { self.take_shared() }
    }

    /// Takes the value out of a cell to which there may be other references.
    ///
    /// # Safety
    ///
    /// No other thread uses the cell or the value any more, and the caller uses only the result.
    pub unsafe fn take_shared(&self) -> Option<O> {
        // Relaxed: no other thread uses it.
        let value = NonNull::new(self.value.swap(ptr::null_mut(), Ordering::Relaxed))?;
        // SAFETY: from an owner, and taken out just now.
        Some(unsafe { O::from_raw(value) })
    }
}

impl<O: Owner> Drop for RaceCell<O> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod tests {
    use super::*;
    use crate::{
        model::{model, thread},
        sync::UnsafeCell,
    };

    /// Detects a value that is found before it is complete, two values, and one that is not dropped or dropped twice.
    #[test]
    fn loom_first_value_stays() {
        model(|| {
            let alive = Arc::new(());
            let cell = Arc::new(RaceCell::new());
            let read = |value: &(UnsafeCell<u32>, Arc<()>)| {
                // SAFETY: whether no thread writes it is what loom checks.
                assert_eq!(value.0.with(|number| unsafe { *number }), 7);
                ptr::from_ref(value).addr()
            };
            let threads = [(); 2].map(|()| {
                let (cell, alive) = (Arc::clone(&cell), Arc::clone(&alive));
                thread::spawn(move || {
                    let made = Box::new((UnsafeCell::new(0), alive));
                    // SAFETY: no other thread knows it.
                    made.0.with_mut(|number| unsafe { *number = 7 });
                    read(cell.put(made))
                })
            });
            let found = cell.get().map(read);
            let put = threads.map(|thread| thread.join().unwrap());
            assert!(put[0] == put[1] && found.is_none_or(|found| found == put[0]));
            assert_eq!(Arc::strong_count(&alive), 2, "one value stays");
            drop(cell);
            assert_eq!(Arc::strong_count(&alive), 1, "the cell drops it");
        });
    }
}
