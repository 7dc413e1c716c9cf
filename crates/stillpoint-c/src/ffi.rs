//! The boundary between C and Rust: panics, errors, misuse.

use crate::log::log;
use std::{
    ffi::{CStr, c_char, c_int},
    io,
    panic::{self, AssertUnwindSafe},
    process,
};
use stillpoint::raw;

/// A positive C error number. Converting a mistake of the program to one, by `?`, reports it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Errno(pub(crate) c_int);

impl From<c_int> for Errno {
    fn from(number: c_int) -> Self {
        Self(number)
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::ENOMEM))
    }
}

impl From<raw::Deadlock> for Errno {
    fn from(_: raw::Deadlock) -> Self {
        misuse(
            libc::EDEADLK,
            "a wait for a grace period, for callbacks or for deferred frees inside a read-side critical section, a callback \
             or an online QSBR reader of the same domain, which would wait for itself: leave that first",
        )
    }
}

impl From<raw::NotReading> for Errno {
    fn from(_: raw::NotReading) -> Self {
        misuse(
            libc::EPERM,
            "a read unlock without a lock: this thread is in no section of the domain",
        )
    }
}

/// Runs the body of a function that C calls, and returns C's result: a number, or a negative errno.
/// A panic, which is a bug of the library, ends here: its message is printed, and C gets
/// `-ENOTRECOVERABLE`.
///
/// Only the library's own state may be left half changed, and it is designed for panicking
/// callbacks.
pub(crate) fn catch_panic(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    catch_panic_or(-libc::ENOTRECOVERABLE, || {
        body().unwrap_or_else(|error| -error.0)
    })
}

/// Like [`catch_panic`], for a body without a number: C gets 0.
pub(crate) fn done(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    catch_panic(|| body().map(|()| 0))
}

/// Like [`catch_panic`], for functions that return something else.
pub(crate) fn catch_panic_or<T>(panicked: T, body: impl FnOnce() -> T) -> T {
    panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        panicked
    })
}

/// Returns whether misuse is reported on stderr: in a debug build of the library, or if
/// STILLPOINT_DEBUG was in the environment when the library was loaded, and neither empty nor 0,
/// off, no or false.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_reports_misuse() -> bool {
    cfg!(debug_assertions) || raw::debug()
}

/// Reports a mistake of the program, and returns the error. The report is printed in a debug build
/// of the library, or with `STILLPOINT_DEBUG` in the environment.
#[cold]
pub(crate) fn misuse(errno: c_int, message: &str) -> Errno {
    if stillpoint_reports_misuse() {
        log(&[b"misuse: ", message.as_bytes()]);
    }
    Errno(errno)
}

/// Returns an error, and reports `mistake`, unless `right`.
pub(crate) fn check(right: bool, errno: c_int, mistake: &str) -> Result<(), Errno> {
    right.then_some(()).ok_or_else(|| misuse(errno, mistake))
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
