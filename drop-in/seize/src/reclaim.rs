//! Reclaimers for the common cases, to be given to
//! [`Guard::defer_retire`](crate::Guard::defer_retire) and
//! [`Collector::retire`].

use crate::Collector;
use std::ptr;

/// Frees what came out of a [`Box`], and drops it.
///
/// # Safety
///
/// That of [`Box::from_raw`].
pub unsafe fn boxed<T>(ptr: *mut T, _collector: &Collector) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(ptr) });
}

/// Drops a value where it is, and leaves its memory alone.
///
/// # Safety
///
/// That of [`ptr::drop_in_place`].
pub unsafe fn in_place<T>(ptr: *mut T, _collector: &Collector) {
    // SAFETY: the caller's promise.
    unsafe { ptr::drop_in_place(ptr) };
}
