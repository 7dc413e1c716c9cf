//! liburcu's flavours that have a separate domain: mb and bp.
//!
//! The inlined readers, the callbacks and all else are in `compat/runtime`; this file has the parts
//! in Rust: the domains, and a thread's first section there, which registers the thread.

use crate::{
    domain::{Domain, pointer},
    ffi::{catch_panic, catch_panic_or},
    reader::unlock_result,
    static_domain::{self, StaticDomain, URCU_BP, URCU_MB},
    thread::{cache_urcu_record, qsbr_record, watch_exit},
};
use std::{ffi::c_int, ptr};
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

/// Returns whether the calling thread is in a section of the flavour; of QSBR, whether it is
/// online. Makes no domain, so a signal handler may call it: a domain that does not exist has no
/// sections.
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
    // SAFETY: the caller's business, as everywhere in C.
    catch_panic(|| unlock_result(unsafe { raw::unlock(domain(flavour)) }))
}
