//! The boundary between C and Rust: panics, errors, misuse.

use crate::log::log;
use std::{
    ffi::{CStr, c_char, c_int},
    panic::{self, AssertUnwindSafe},
    process,
};
use stillpoint::raw;

/// Runs the body of a function that C calls, and returns C's result: a number, or a negative errno.
/// A panic, which is a fault of the library, ends here: its message is printed, and C gets
/// `-ENOTRECOVERABLE`.
///
/// The state that a panic may have left half changed is the library's own, which is made for
/// panicking callbacks.
pub(crate) fn catch_panic(body: impl FnOnce() -> Result<c_int, c_int>) -> c_int {
    catch_panic_or(-libc::ENOTRECOVERABLE, || {
        body().unwrap_or_else(|errno| -errno)
    })
}

/// Like [`catch_panic`], for functions that return something else.
pub(crate) fn catch_panic_or<T>(panicked: T, body: impl FnOnce() -> T) -> T {
    panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        panicked
    })
}

/// Returns whether misuse is reported on stderr: in a debug build of the library, or with
/// STILLPOINT_DEBUG in the environment when the library was loaded, and was neither empty nor 0,
/// off, no or false.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_reports_misuse() -> bool {
    cfg!(debug_assertions) || raw::debug()
}

/// Reports a mistake of the program, and returns `errno`. The report is printed in a debug build of
/// the library, or with `STILLPOINT_DEBUG` in the environment.
#[cold]
pub(crate) fn misuse(errno: c_int, message: &str) -> c_int {
    if stillpoint_reports_misuse() {
        log(&[b"misuse: ", message.as_bytes()]);
    }
    errno
}

/// Aborts the process with a message: for callers that cannot return an error, and would free
/// memory that is still in use; not for programs.
///
/// # Safety
///
/// `what` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_abort(error: c_int, what: *const c_char) -> ! {
    // SAFETY: the caller's promise.
    let what = unsafe { CStr::from_ptr(what) }.to_bytes();
    let reason: &[u8] = match -error {
        libc::EDEADLK => b"it would wait for the calling thread itself",
        libc::EBUSY => b"the head is queued",
        libc::EINVAL => b"null",
        libc::ENOMEM => b"out of memory",
        _ => b"internal error",
    };
    log(&[
        what,
        b" was refused (",
        reason,
        b"); aborting, because its caller could not go on",
    ]);
    process::abort();
}
