//! Handles: the objects that C has pointers to.

use crate::ffi::{catch_panic_or, misuse};
use std::{
    alloc::{self, Layout},
    ffi::c_int,
    mem::MaybeUninit,
    ptr,
};

/// Writes a new handle to the caller's pointer.
///
/// # Safety
///
/// `out` is null or can be written to.
pub(crate) unsafe fn new_handle<T>(
    out: *mut *mut T,
    make: impl FnOnce() -> Result<T, c_int>,
) -> Result<c_int, c_int> {
    if out.is_null() {
        return Err(misuse(
            libc::EINVAL,
            "a null output pointer for the new handle",
        ));
    }
    let Some(mut handle) = try_uninit() else {
        return Err(libc::ENOMEM);
    };
    handle.write(make()?);
    // SAFETY: written just now.
    let handle = unsafe { handle.assume_init() };
    // SAFETY: the caller's promise.
    unsafe { out.write(Box::into_raw(handle)) };
    Ok(0)
}

/// Returns a box for a value; `None` without memory.
fn try_uninit<T>() -> Option<Box<MaybeUninit<T>>> {
    let layout = Layout::new::<T>();
    assert!(layout.size() > 0, "a handle points to something");
    // SAFETY: not of size 0.
    let block = unsafe { alloc::alloc(layout) }.cast::<MaybeUninit<T>>();
    // SAFETY: null, or allocated as a box of that type is.
    (!block.is_null()).then(|| unsafe { Box::from_raw(block) })
}

/// Drops the value of a handle; null is ignored.
///
/// # Safety
///
/// Null, or made by [`new_handle`] and not used again.
pub(crate) unsafe fn free_handle<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's promise.
        catch_panic_or((), || drop(unsafe { Box::from_raw(handle) }));
    }
}

/// Returns the value of a handle; `EINVAL` for null.
///
/// # Safety
///
/// Null, or good for as long as the reference is used.
pub(crate) unsafe fn deref<'a, T>(handle: *const T) -> Result<&'a T, c_int> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| misuse(libc::EINVAL, "a null handle"))
}

/// Writes a struct that only grows to a caller that knows the first `size` bytes of it; bytes past
/// ours are 0. `EINVAL` for null.
///
/// # Safety
///
/// `to` is null, or `size` bytes can be written there.
pub(crate) unsafe fn write_sized<T: Copy>(
    from: &T,
    to: *mut T,
    size: usize,
) -> Result<c_int, c_int> {
    if to.is_null() {
        return Err(misuse(
            libc::EINVAL,
            "statistics with a null output pointer",
        ));
    }
    // SAFETY: the caller's promise.
    unsafe {
        ptr::write_bytes(to.cast::<u8>(), 0, size);
        ptr::copy_nonoverlapping(
            ptr::from_ref(from).cast::<u8>(),
            to.cast::<u8>(),
            size.min(size_of::<T>()),
        );
    }
    Ok(0)
}
