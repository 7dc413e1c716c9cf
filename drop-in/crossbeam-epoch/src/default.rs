//! The collector that the whole program shares, and each thread's handle of it.

use crate::{Collector, Guard, LocalHandle, exit, local::Local};
use std::{
    cell::{Cell, OnceCell},
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

static DEFAULT: AtomicPtr<Collector> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    /// The participant of this thread's handle; null before the first use and after the handle.
    static LOCAL: Cell<*const Local> = const { Cell::new(ptr::null()) };
    static HANDLE: ThreadHandle = const { ThreadHandle(OnceCell::new()) };
}

struct ThreadHandle(OnceCell<LocalHandle>);

impl Drop for ThreadHandle {
    fn drop(&mut self) {
        // Nothing finds the participant any more; its last guard frees it.
        LOCAL.set(ptr::null());
    }
}

/// Returns the collector of [`pin`]. It is never dropped.
#[inline]
pub fn default_collector() -> &'static Collector {
    // Acquire, pairs with `make`: what is found is complete.
    // SAFETY: null, or what `make` has put there for ever.
    unsafe { DEFAULT.load(Ordering::Acquire).as_ref() }.unwrap_or_else(|| make())
}

/// Creates the collector. Two threads may both create one; the slower drops its own. Neither waits
/// for the other, which may have vanished in a fork.
#[cold]
fn make() -> &'static Collector {
    let made = Box::into_raw(Box::new(Collector::with(around)));
    // Release, pairs with `default_collector`: it is complete before it is found. Acquire: so is the
    // faster thread's.
    match DEFAULT.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: leaked.
        Ok(_) => unsafe { &*made },
        Err(faster) => {
            // SAFETY: out of a box just now, and nothing else knows it.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: the faster thread leaked it.
            unsafe { &*faster }
        }
    }
}

/// Pins the service thread while it runs deferred functions, as a pin does.
fn around(free: &mut dyn FnMut()) {
    exit::around(&mut || {
        let _guard = pin();
        free();
    });
}

/// Pins the calling thread in the default collector. The outermost pin of a thread is a
/// sequentially consistent fence, and may run deferred functions.
///
/// Works in thread-local destructors, too.
///
/// ```
/// let guard = crossbeam_epoch::pin();
/// assert!(crossbeam_epoch::is_pinned());
/// drop(guard);
/// assert!(!crossbeam_epoch::is_pinned());
/// ```
#[inline]
pub fn pin() -> Guard {
    let local = LOCAL.get();
    if local.is_null() {
        return pin_first();
    }
    // SAFETY: of this thread's handle, whose end sets it to null.
    unsafe { Local::pin(local) }
}

#[cold]
fn pin_first() -> Guard {
    let known = HANDLE.try_with(|handle| {
        let handle = handle.0.get_or_init(|| default_collector().register());
        LOCAL.set(handle.as_ptr());
        handle.pin()
    });
    // At the thread's end each outermost guard has its own participant.
    known.unwrap_or_else(|_| default_collector().register().pin())
}

/// Returns whether the calling thread is pinned in the default collector, so that a [`pin`] would
/// not fence.
#[inline]
pub fn is_pinned() -> bool {
    // SAFETY: null, or as in `pin`.
    unsafe { LOCAL.get().as_ref() }.is_some_and(Local::is_pinned)
}
