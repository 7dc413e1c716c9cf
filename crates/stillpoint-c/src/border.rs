//! The border between C and Rust: errors, panics, misuse.

use crate::reserve;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    ffi::{CStr, c_char, c_int},
    io::{Cursor, Write},
    panic::{self, AssertUnwindSafe},
    process, ptr,
};

/// Runs the body of a function that C calls. A panic ends here, as `-ENOTRECOVERABLE`, after its message: it is a fault of the library.
///
/// The state that a panic may have left half changed is the library's own, which is made for panicking callbacks.
pub(crate) fn guarded(body: impl FnOnce() -> Result<c_int, c_int>) -> c_int {
    guarded_or(-libc::ENOTRECOVERABLE, || body().unwrap_or_else(|errno| -errno))
}

/// The same for what may need memory: refused before it begins where there is none.
pub(crate) fn guarded_with_memory(body: impl FnOnce() -> Result<c_int, c_int>) -> c_int {
    guarded(|| reserve::ready().and_then(|()| body()))
}

/// The same for functions that return something else.
pub(crate) fn guarded_or<T>(failed: T, body: impl FnOnce() -> T) -> T {
    panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        failed
    })
}

unsafe extern "C" {
    /// Whether `STILLPOINT_DEBUG` was in the environment when the library was loaded.
    safe static stillpoint_loud_: bool;
}

/// Whether misuse is told of.
pub(crate) fn tells() -> bool {
    cfg!(debug_assertions) || stillpoint_loud_
}

/// A mistake of the program: `errno`, and in a debug build of the library, or with `STILLPOINT_DEBUG` in the environment, a message.
#[cold]
pub(crate) fn misuse(errno: c_int, message: &str) -> c_int {
    if tells() {
        say(&[b"misuse: ", message.as_bytes()]);
    }
    errno
}

/// Writes a line to stderr, if that can be written to, by one system call that is no cancellation point. It takes no lock, which a thread
/// that has vanished in a fork might have, and allocates nothing.
pub(crate) fn say(parts: &[&[u8]]) {
    let mut line = Cursor::new([0; 512]);
    // What is too long is cut off.
    let _ = [&b"stillpoint: "[..]].iter().chain(parts).try_for_each(|part| line.write_all(part));
    let length = usize::try_from(line.position()).unwrap_or(0).min(line.get_ref().len() - 1);
    line.get_mut()[length] = b'\n';
    // SAFETY: the bytes are there. Whether anybody reads them is not the caller's business.
    unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, line.get_ref().as_ptr(), length + 1) };
}

/// Ends the process with a message: for callers that cannot be told of an error, and would free what is still used; not for programs.
///
/// # Safety
///
/// `what` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_refused(error: c_int, what: *const c_char) -> ! {
    // SAFETY: the caller's promise.
    let what = unsafe { CStr::from_ptr(what) }.to_bytes();
    let reason: &[u8] = match -error {
        libc::EDEADLK => b"it would wait for the calling thread itself",
        libc::EBUSY => b"the head is queued",
        libc::EINVAL => b"null",
        libc::ENOMEM => b"no memory",
        _ => b"a fault of the library",
    };
    say(&[what, b" was refused (", reason, b"); aborting, because its caller could not go on"]);
    process::abort();
}

/// Puts a value where C can keep it; `ENOMEM` if there is no memory.
pub(crate) fn try_boxed<T>(value: T) -> Result<*mut T, c_int> {
    const { assert!(size_of::<T>() > 0, "a handle has something in it") };
    // SAFETY: the size is not 0. The system's, where it is not the reserve's that is asked: it is given back by its address.
    let place = unsafe { System.alloc(Layout::new::<T>()) }.cast::<T>();
    if place.is_null() {
        return Err(libc::ENOMEM);
    }
    // SAFETY: allocated for a T just now.
    unsafe { place.write(value) };
    Ok(place)
}

/// Writes a new handle to where the caller wants it.
///
/// # Safety
///
/// `out` is null or can be written to.
pub(crate) unsafe fn hand_out<T>(out: *mut *mut T, make: impl FnOnce() -> Result<T, c_int>) -> Result<c_int, c_int> {
    if out.is_null() {
        return Err(misuse(libc::EINVAL, "nowhere to write the new handle to"));
    }
    reserve::probe()?;
    let handle = try_boxed(make()?)?;
    // SAFETY: the caller's promise.
    unsafe { out.write(handle) };
    Ok(0)
}

/// Takes a handle back; null is none.
///
/// # Safety
///
/// Null, or made by [`try_boxed`] and not used again.
pub(crate) unsafe fn take_back<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's promise; `try_boxed` allocated as a box does.
        guarded_or((), || drop(unsafe { Box::from_raw(handle) }));
    }
}

/// What a handle names; `EINVAL` for null.
///
/// # Safety
///
/// Null, or good for as long as the reference is used.
pub(crate) unsafe fn handle<'a, T>(handle: *const T) -> Result<&'a T, c_int> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| misuse(libc::EINVAL, "a null handle"))
}

/// Writes a struct that only grows to a caller who knows the first `size` bytes of it; those that are not ours are 0. `EINVAL` for null.
///
/// # Safety
///
/// `to` is null, or `size` bytes can be written there.
pub(crate) unsafe fn write_sized<T: Copy>(from: &T, to: *mut T, size: usize) -> Result<c_int, c_int> {
    if to.is_null() {
        return Err(misuse(libc::EINVAL, "statistics with nowhere to write to"));
    }
    // SAFETY: the caller's promise.
    unsafe {
        ptr::write_bytes(to.cast::<u8>(), 0, size);
        ptr::copy_nonoverlapping(ptr::from_ref(from).cast::<u8>(), to.cast::<u8>(), size.min(size_of::<T>()));
    }
    Ok(0)
}
