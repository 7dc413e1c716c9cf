//! Sections of threads.
//!
//! The fast path is in the header and uses the record that `thread.rs` has cached. The slow path is
//! here: a thread's first section, nested sections, fencing readers, and sections after the thread
//! has begun to exit.

use crate::{
    domain::{Domain, resolve, with},
    ffi::{Errno, check, done, misuse},
    handle::check_output,
    thread::{cache_record, unregistered, watch_exit},
};
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
    sync::atomic::AtomicU64,
};
use stillpoint::{raw, tasks_trace};

/// A thread's record: `struct stillpoint_record`.
#[derive(Debug)]
#[repr(transparent)]
pub struct Record(raw::Record);

/// Upper bound in bytes on what the registration of a thread allocates, also if it is the domain's
/// first.
pub(crate) const FIRST_USE: usize = 64 << 10;

/// Returns whether the calling thread is registered in `domain`, or there is memory for that.
/// kfree_rcu() with a head needs none.
#[inline]
pub(crate) fn may_register(domain: &stillpoint::Domain) -> bool {
    raw::is_registered(domain) || raw::is_there_for(FIRST_USE)
}

fn global(which: c_int) -> (usize, &'static stillpoint::Domain) {
    if which == raw::TRACE as c_int {
        (raw::TRACE, tasks_trace::global())
    } else {
        (raw::RCU, stillpoint::global())
    }
}

/// The slow path of stillpoint_read_lock(); not for programs. `started` is the address from which
/// the caller's inlined code would load.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_read_lock_slow(which: c_int, started: *const u64) {
    let (which, domain) = global(which);
    // Watch the exit even if nothing gets cached: it reports sections that are left open.
    let watched = watch_exit();
    if let Some(record) = raw::lock_global(which)
        && watched
        && ptr::eq(started.cast(), raw::started(domain))
    {
        cache_record(which, record, domain);
    }
}

/// The slow path of stillpoint_read_unlock(); not for programs.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_read_unlock_slow(which: c_int) -> c_int {
    // SAFETY: in C, the caller answers for that.
    done(|| Ok(unsafe { raw::unlock(global(which).1) }?))
}

/// Ends a section that a waiter waits for, or in which work was postponed; not for programs.
///
/// # Safety
///
/// The record is the calling thread's, and its outermost section has just ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_read_unlock_special(record: *const Record) {
    // SAFETY: the caller's promise.
    unsafe { (*record).0.unlock_special() };
}

/// Registers the calling thread as a reader of the domain, so that even its first section there is
/// async-signal-safe. Optional: the first section registers the thread. Returns 0; -EEXIST if it is
/// registered already, which does no harm; -ENOMEM; -ESRCH at the thread's very end.
///
/// There is nothing to undo: every thread is unregistered at its end.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_register_thread(domain: *mut Domain) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let domain = unsafe { resolve(domain) };
        if raw::is_registered(domain) {
            return Err(libc::EEXIST.into());
        }
        register(domain)
    })
}

fn register(domain: &stillpoint::Domain) -> Result<(), Errno> {
    match may_register(domain) && raw::register(domain) {
        true => Ok(()),
        false if raw::is_exiting() => Err(libc::ESRCH.into()),
        false => Err(libc::ENOMEM.into()),
    }
}

/// A thread's handle for the inlined read side of a domain: `struct stillpoint_domain_reader`.
#[derive(Debug)]
#[repr(C)]
pub struct DomainReader {
    record: *const c_void,
    started: *const AtomicU64,
    domain: *const Domain,
}

/// Registers the calling thread as a reader of the domain, if necessary, and fills in the handle
/// for stillpoint_domain_reader_lock(). The handle is valid only in this thread, until the thread's
/// destructors run or the domain is destroyed; a thread may have several. -EINVAL for null;
/// -ENOMEM; -ESRCH at the thread's very end.
///
/// # Safety
///
/// The domain is NULL or alive; the reader is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_reader_init(
    domain: *mut Domain,
    reader: *mut DomainReader,
) -> c_int {
    done(|| {
        check_output(reader)?;
        // SAFETY: the caller's promise.
        let used = unsafe { resolve(domain) };
        register(used)?;
        let (record, started) = match raw::cacheable_record(used) {
            Some(record) => (record.as_ptr().cast_const().cast(), raw::started(used)),
            // The slow path is taken before `started` is read.
            None => (unregistered(), ptr::null()),
        };
        let made = DomainReader {
            record,
            started,
            domain,
        };
        // SAFETY: the caller's promise.
        unsafe { reader.write(made) };
        Ok(())
    })
}

/// The slow path of stillpoint_domain_reader_unlock(); not for programs.
///
/// # Safety
///
/// The reader is the calling thread's, and its domain alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_reader_unlock_slow(
    reader: *const DomainReader,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { stillpoint_domain_read_unlock((*reader).domain.cast_mut()) }
}

/// The slow path of stillpoint_domain_reader_lock(); not for programs.
///
/// # Safety
///
/// The conditions of stillpoint_domain_reader_unlock_slow() hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_reader_lock_slow(reader: *const DomainReader) {
    // SAFETY: the caller's promise.
    unsafe { stillpoint_domain_read_lock((*reader).domain.cast_mut()) };
}

/// Returns whether the calling thread is registered in the domain.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_is_registered(domain: *mut Domain) -> bool {
    // SAFETY: the caller's promise.
    unsafe { with(domain, false, raw::is_registered) }
}

/// Begins a section of the domain, or one more level of it: srcu_read_lock(). Like
/// stillpoint_read_lock(), but a function call.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_read_lock(domain: *mut Domain) {
    // SAFETY: the caller's promise.
    let domain = unsafe { resolve(domain) };
    raw::lock(domain);
}

/// Leaves a section or a level: srcu_read_unlock(). -EPERM if the calling thread is in none.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_read_unlock(domain: *mut Domain) -> c_int {
    // SAFETY: the caller's promise.
    done(|| Ok(unsafe { raw::unlock(resolve(domain)) }?))
}

/// Returns whether the calling thread is inside a section of the domain: rcu_read_lock_held().
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_read_lock_held(domain: *mut Domain) -> bool {
    // SAFETY: the caller's promise.
    unsafe { with(domain, false, raw::is_reading) }
}

/// A section that belongs to no thread: `struct stillpoint_guard`. It is the record.
#[derive(Debug)]
#[repr(transparent)]
pub struct Guard(raw::Record);

/// Begins a section that belongs to the holder of the guard (a request, a task) until
/// stillpoint_guard_end(), on any thread. For readers that sleep, usually in the trace domain.
/// Costs about 5 nanoseconds.
///
/// If the holder itself waits for the section, that cannot be refused: the wait never ends, and is
/// reported as a stall.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_guard(domain: *mut Domain) -> *mut Guard {
    // SAFETY: the caller's promise.
    let domain = unsafe { resolve(domain) };
    raw::lock_owned(domain).as_ptr().cast()
}

/// Gives the section a name for stall reports; copies it. -EINVAL for null.
///
/// # Safety
///
/// The guard is the caller's and has not been ended; the name is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_guard_name(guard: *mut Guard, name: *const c_char) -> c_int {
    done(|| {
        check(
            !guard.is_null() && !name.is_null(),
            libc::EINVAL,
            "stillpoint_guard_name() with a null guard or name",
        )?;
        // SAFETY: the caller's promise.
        unsafe {
            (*guard)
                .0
                .set_name(CStr::from_ptr(name).to_string_lossy().into())
        };
        Ok(())
    })
}

/// Ends the section of a guard. NULL does nothing. -EPERM if the guard has been ended before, if
/// detected: it may belong to another section by then.
///
/// # Safety
///
/// The guard is the caller's, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_guard_end(guard: *mut Guard) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let Some(guard) = (unsafe { guard.as_ref() }) else {
            return Ok(());
        };
        // SAFETY: the caller's promise.
        unsafe { guard.0.unlock_owned() }.map_err(|_| {
            misuse(
                libc::EPERM,
                "stillpoint_guard_end() of a guard that has been ended",
            )
        })
    })
}
