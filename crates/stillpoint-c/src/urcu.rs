//! liburcu's flavours that have a domain of their own: mb and bp.
//!
//! The inlined readers, the callbacks and all else are in `compat/runtime`; here is what they need of Rust: the domains, and a thread's first
//! section there, which is its other sections' as long as it lives.

use crate::{
    border::{guarded, guarded_or},
    domain::{Domain, pointer},
    qsbr,
    reader::{left, may_register, watch_end},
};
use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::atomic::{AtomicPtr, AtomicU64},
};
use stillpoint::raw;

/// The numbers of the flavours, as `urcu/stillpoint/runtime.h` has them.
const QSBR: c_int = 1;
const MB: c_int = 2;
const BP: c_int = 3;

unsafe extern "C" {
    fn stillpoint_urcu_remember_(flavour: c_int, record: *const c_void, started: *const AtomicU64);
    fn stillpoint_urcu_forget_();
}

/// Made at the first use, for ever.
static MB_DOMAIN: AtomicPtr<stillpoint::Domain> = AtomicPtr::new(ptr::null_mut());
static BP_DOMAIN: AtomicPtr<stillpoint::Domain> = AtomicPtr::new(ptr::null_mut());

fn domain(flavour: c_int) -> &'static stillpoint::Domain {
    match flavour {
        QSBR => qsbr::global(),
        MB => qsbr::once(&MB_DOMAIN, stillpoint::Domain::new),
        BP => qsbr::once(&BP_DOMAIN, stillpoint::Domain::new),
        _ => stillpoint::global(),
    }
}

/// At a thread's end.
pub(crate) fn forget() {
    // SAFETY: it changes the calling thread's own state.
    unsafe { stillpoint_urcu_forget_() };
}

/// The domain that a flavour's grace periods are of.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_urcu_domain(flavour: c_int) -> *mut Domain {
    guarded_or(ptr::null_mut(), || pointer(domain(flavour)))
}

/// Whether the calling thread is in a section of the flavour; of QSBR, whether it is online. Makes no domain, so that a signal handler may ask: one
/// that is not there has no sections.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_urcu_read_ongoing(flavour: c_int) -> bool {
    guarded_or(false, || match flavour {
        QSBR => qsbr::stillpoint_qsbr_is_online(),
        MB => qsbr::made(&MB_DOMAIN).is_some_and(raw::is_reading),
        BP => qsbr::made(&BP_DOMAIN).is_some_and(raw::is_reading),
        _ => raw::is_reading(stillpoint::global()),
    })
}

/// The unusual ways of a read lock of mb or bp.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_urcu_lock_slow(flavour: c_int) {
    let domain = domain(flavour);
    if !may_register(domain) {
        return raw::lock_late(domain);
    }
    let watched = watch_end();
    if let Some(record) = raw::lock_static(domain)
        && watched
    {
        // SAFETY: the record is the calling thread's until `forget_all`, which comes before the record is given back.
        unsafe { stillpoint_urcu_remember_(flavour, ptr::from_ref(record).cast(), raw::started(domain)) };
    }
}

/// The unusual ways of a read unlock of mb or bp.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_urcu_unlock_slow(flavour: c_int) -> c_int {
    // SAFETY: the caller's business, as everywhere in C.
    guarded(|| left(unsafe { raw::unlock(domain(flavour)) }))
}
