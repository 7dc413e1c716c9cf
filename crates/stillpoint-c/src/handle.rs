//! Handles: the objects that C has pointers to.

use crate::{
    ffi::{catch_panic_or, misuse},
    reserve,
};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    ffi::c_int,
    ptr,
};

/// Boxes a value for C; `ENOMEM` if there is no memory.
pub(crate) fn try_box<T>(value: T) -> Result<*mut T, c_int> {
    const { assert!(size_of::<T>() > 0, "a handle has something in it") };
    // SAFETY: the size is not 0. The system's allocator and not the reserve: a block is given back
    // by its address, whichever has it.
    let block = unsafe { System.alloc(Layout::new::<T>()) }.cast::<T>();
    if block.is_null() {
        return Err(libc::ENOMEM);
    }
    // SAFETY: allocated for a T just now.
    unsafe { block.write(value) };
    Ok(block)
}

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
    reserve::check_system()?;
    let handle = try_box(make()?)?;
    // SAFETY: the caller's promise.
    unsafe { out.write(handle) };
    Ok(0)
}

/// Drops the value of a handle; null is ignored.
///
/// # Safety
///
/// Null, or made by [`try_box`] and not used again.
pub(crate) unsafe fn free_handle<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's promise; `try_box` allocated as a box does.
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
