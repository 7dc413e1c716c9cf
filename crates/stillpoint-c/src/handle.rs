//! Handles: the objects that C has pointers to.

use crate::ffi::{Errno, catch_panic_or, check, done, misuse};
use std::{
    alloc::{self, Layout},
    ffi::c_int,
    mem::MaybeUninit,
    ptr,
};

/// Creates a handle and writes it to the caller's pointer. Returns C's result.
///
/// # Safety
///
/// `out` is null or can be written to.
pub(crate) unsafe fn new_handle<T>(
    out: *mut *mut T,
    make: impl FnOnce() -> Result<T, Errno>,
) -> c_int {
    done(|| {
        check_output(out)?;
        let mut handle = try_uninit().ok_or(libc::ENOMEM)?;
        handle.write(make()?);
        // SAFETY: written just now.
        let handle = unsafe { handle.assume_init() };
        // SAFETY: the caller's promise.
        unsafe { out.write(Box::into_raw(handle)) };
        Ok(())
    })
}

/// Returns `EINVAL` for null.
pub(crate) fn check_output<T>(out: *mut T) -> Result<(), Errno> {
    check(!out.is_null(), libc::EINVAL, "a null output pointer")
}

/// Writes `value` to `out` unless that is null.
///
/// # Safety
///
/// `out` is null or can be written to.
pub(crate) unsafe fn write_if_wanted<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { out.write(value) };
    }
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
/// Null, or valid for as long as the reference is used.
pub(crate) unsafe fn deref<'a, T>(handle: *const T) -> Result<&'a T, Errno> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| misuse(libc::EINVAL, "a null handle"))
}

/// Returns the result of `get` for the value of a handle; `none` for null.
///
/// # Safety
///
/// The handle is null or valid.
pub(crate) unsafe fn get<T, R: Copy>(handle: *const T, none: R, get: impl FnOnce(&T) -> R) -> R {
    // SAFETY: the caller's promise.
    catch_panic_or(none, || unsafe { handle.as_ref() }.map_or(none, get))
}

/// Writes a struct, of which the caller knows the first `size` bytes; bytes past its end are 0.
/// `EINVAL` for null.
///
/// # Safety
///
/// `to` is null, or `size` bytes can be written there.
pub(crate) unsafe fn write_sized<T: Copy>(from: &T, to: *mut T, size: usize) -> Result<(), Errno> {
    check_output(to)?;
    // SAFETY: the caller's promise.
    unsafe {
        ptr::write_bytes(to.cast::<u8>(), 0, size);
        ptr::copy_nonoverlapping(
            ptr::from_ref(from).cast::<u8>(),
            to.cast::<u8>(),
            size.min(size_of::<T>()),
        );
    }
    Ok(())
}
