//! liburcu's flavours that have a separate domain: mb and bp.
//!
//! The inlined readers, the callbacks and all else are in `compat/runtime`; this file has the parts
//! in Rust: the domains, and a thread's first section there, which registers the thread.

use crate::{
    domain::{Domain, pointer},
    ffi::{catch_panic_or, done},
    static_domain::{self, StaticDomain, URCU_BP, URCU_MB},
    thread::{cache_urcu_record, qsbr_record, watch_exit},
};
use std::{
    ffi::{c_int, c_void},
    ptr,
};
use stillpoint::raw;

/// The numbers of the flavours, as `urcu/stillpoint/runtime.h` has them.
const QSBR: c_int = 1;
const MB: c_int = 2;
const BP: c_int = 3;

fn domain(flavour: c_int) -> &'static stillpoint::Domain {
    match flavour {
        QSBR => static_domain::QSBR.get(),
        MB => URCU_MB.get(),
        BP => URCU_BP.get(),
        _ => stillpoint::global(),
    }
}

/// Returns the domain of a flavour's grace periods.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_urcu_domain(flavour: c_int) -> *mut Domain {
    catch_panic_or(ptr::null_mut(), || pointer(domain(flavour)))
}

/// Returns whether the calling thread is in a section of the flavour; for QSBR, whether it is
/// online. Creates no domain (one that does not exist has no sections), so a signal handler may
/// call it.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_urcu_read_ongoing(flavour: c_int) -> bool {
    catch_panic_or(false, || match flavour {
        QSBR => qsbr_record().is_some_and(raw::Record::is_reading),
        MB => is_reading(&URCU_MB),
        BP => is_reading(&URCU_BP),
        _ => raw::is_reading(stillpoint::global()),
    })
}

fn is_reading(domain: &'static StaticDomain) -> bool {
    domain.get_if_made().is_some_and(raw::is_reading)
}

/// Starts a library thread that calls `run`, for the caller to join or detach. Returns 0 or an
/// error number.
///
/// # Safety
///
/// `thread` can be written to; `run` may be called with `argument` on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_urcu_start_thread_(
    thread: *mut libc::pthread_t,
    run: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    /// Lets another thread have it.
    struct Argument(*mut c_void);
    // SAFETY: the caller's promise.
    unsafe impl Send for Argument {}
    impl Argument {
        fn get(self) -> *mut c_void {
            self.0
        }
    }
    catch_panic_or(libc::EAGAIN, || {
        let argument = Argument(argument);
        let work = move || {
            // SAFETY: the caller's promise.
            unsafe { run(argument.get()) };
        };
        match raw::start_thread("stillpoint/urcu", work) {
            Ok(started) => {
                // SAFETY: the caller's promise.
                unsafe { thread.write(started.into_pthread_t()) };
                0
            }
            Err(error) => error.raw_os_error().unwrap_or(libc::ENOMEM),
        }
    })
}

/// The slow path of a read lock of mb or bp.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_urcu_lock_slow(flavour: c_int) {
    let domain = domain(flavour);
    let watched = watch_exit();
    if let Some(record) = raw::lock_static(domain)
        && watched
    {
        cache_urcu_record(flavour, record, domain);
    }
}

/// The slow path of a read unlock of mb or bp.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_urcu_unlock_slow(flavour: c_int) -> c_int {
    // SAFETY: in C, the caller answers for that.
    done(|| Ok(unsafe { raw::unlock(domain(flavour)) }?))
}
