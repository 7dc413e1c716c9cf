//! Sections of threads.
//!
//! The usual section is in the header: it uses what `remember` has put into the thread-local state of `thread.c`, of which
//! nothing is there before a thread's first section, where readers have to fence, and after the thread's end has begun. All else comes here.

use crate::{
    border::{guarded, guarded_or, guarded_with_memory, misuse},
    domain::{Domain, named},
    reserve,
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
pub struct Record(raw::Reader);

unsafe extern "C" {
    fn stillpoint_thread_remember_(which: c_int, record: *const c_void, started: *const AtomicU64);
    fn stillpoint_thread_forget_(which: c_int);
    fn stillpoint_thread_share_(share: *const c_void);
    fn stillpoint_nobody_() -> *const c_void;
}

/// The third of the numbers that the header knows, after `raw::RCU` and `raw::TRACE`.
pub(crate) const QSBR: usize = 2;

const _: () = assert!(raw::RCU == 0 && raw::TRACE == 1);

/// Has [`forget_all`] called at the calling thread's end. Whether that could be arranged.
pub(crate) fn watch_end() -> bool {
    // SAFETY: nobody in this crate asks for another.
    unsafe { raw::at_threads_end(forget_all) }
}

/// Whether the calling thread may be registered in `domain`, or is. If not its sections get by without.
#[inline]
pub(crate) fn may_register(domain: &stillpoint::Domain) -> bool {
    reserve::is_whole() || raw::is_registered(domain) || reserve::ready().is_ok()
}

/// Has the calling thread's inlined read side use `record` until its end.
pub(crate) fn remember(which: usize, record: &raw::Reader, domain: &stillpoint::Domain) {
    // SAFETY: the record is the calling thread's until `forget_all`, which comes before the record is given back.
    unsafe { stillpoint_thread_remember_(which as c_int, ptr::from_ref(record).cast(), raw::started(domain)) };
}

pub(crate) fn forget(which: usize) {
    // SAFETY: `which` is one of three.
    unsafe { stillpoint_thread_forget_(which as c_int) };
}

/// Has the calling thread's inlined kvfree use its share until its end.
pub(crate) fn remember_share() {
    if let Some(share) = raw::share()
        && watch_end()
    {
        // SAFETY: the share is the calling thread's until `forget_all`, which comes before it is given back.
        unsafe { stillpoint_thread_share_(share.as_ptr().cast()) };
    }
}

/// At a thread's end.
pub(crate) fn forget_all() {
    // SAFETY: null is for no share.
    unsafe { stillpoint_thread_share_(ptr::null()) };
    forget(raw::RCU);
    forget(raw::TRACE);
    crate::urcu::forget();
    crate::qsbr::end();
    if raw::has_open_section(stillpoint::global()) || raw::has_open_section(tasks_trace::global()) {
        misuse(
            libc::EBUSY,
            "a thread ends inside a read-side critical section: unless one of its destructors leaves it, it stays open, and no grace period \
             ends any more",
        );
    }
}

fn global(which: c_int) -> (usize, &'static stillpoint::Domain) {
    if which == raw::TRACE as c_int { (raw::TRACE, tasks_trace::global()) } else { (raw::RCU, stillpoint::global()) }
}

/// The unusual ways of stillpoint_read_lock(); not for programs. `started` is where the caller would load from by itself.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_lock_slow(which: c_int, started: *const u64) {
    let (which, domain) = global(which);
    if !may_register(domain) {
        return raw::lock_late(domain);
    }
    // Also where nothing will be remembered: for what it says of sections that are left open.
    let watched = watch_end();
    if let Some(record) = raw::lock_global(which)
        && watched
        && ptr::eq(started.cast(), raw::started(domain))
    {
        remember(which, record, domain);
    }
}

/// The unusual ways of stillpoint_read_unlock(); not for programs.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_unlock_slow(which: c_int) -> c_int {
    // SAFETY: the caller's business, as everywhere in C.
    guarded(|| left(unsafe { raw::unlock(global(which).1) }))
}

pub(crate) fn left(outcome: Result<(), raw::NotReading>) -> Result<c_int, c_int> {
    outcome
        .map(|()| 0)
        .map_err(|_| misuse(libc::EPERM, "a read unlock without a lock: this thread is in no section of the domain"))
}

/// The end of a section that somebody waits for; not for programs.
///
/// # Safety
///
/// The record is the calling thread's, and its outermost section has just ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_ended_with_flags(record: *const Record) {
    // SAFETY: the caller's promise.
    unsafe { (*record).0.ended_with_flags() };
}

/// Registers the calling thread as a reader of the domain, so that its sections there are async-signal-safe from the first on. A thread
/// need not do so: its first section does. 0; -EEXIST if it is registered, which does no harm; -ENOMEM; -ESRCH at the thread's very end.
///
/// There is nothing to be undone: at its end every thread is forgotten.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_register_thread(domain: *mut Domain) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let domain = unsafe { named(domain) };
        if raw::is_registered(domain) {
            return Err(libc::EEXIST);
        }
        register(domain).map(|()| 0)
    })
}

fn register(domain: &stillpoint::Domain) -> Result<(), c_int> {
    let registered = may_register(domain) && raw::register(domain);
    let why = if raw::is_ending() { libc::ESRCH } else { libc::ENOMEM };
    registered.then_some(()).ok_or(why)
}

/// What a thread reads a domain with by inlined functions: `struct stillpoint_domain_reader`.
#[derive(Debug)]
#[repr(C)]
pub struct DomainReader {
    record: *const c_void,
    started: *const AtomicU64,
    domain: *const Domain,
}

/// Registers the calling thread as a reader of the domain, if it is not, and fills in what stillpoint_domain_reader_lock() reads it with. That is
/// good in this thread alone, until it ends (but for its destructors) or the domain is destroyed; several are as good as one. -EINVAL for
/// null; -ENOMEM; -ESRCH at the thread's very end.
///
/// # Safety
///
/// The domain is NULL or alive; the reader is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_reader_init(domain: *mut Domain, reader: *mut DomainReader) -> c_int {
    guarded(|| {
        if reader.is_null() {
            return Err(misuse(libc::EINVAL, "stillpoint_domain_reader_init() with nowhere to write to"));
        }
        // SAFETY: the caller's promise.
        let used = unsafe { named(domain) };
        register(used)?;
        let (record, started) = match raw::reader(used) {
            Some(record) => (record.as_ptr().cast_const().cast(), raw::started(used)),
            // SAFETY: it gives the address of something static. The second is not looked at behind the first.
            None => (unsafe { stillpoint_nobody_() }, ptr::null()),
        };
        // SAFETY: the caller's promise.
        unsafe { reader.write(DomainReader { record, started, domain }) };
        Ok(0)
    })
}

/// The unusual ways of stillpoint_domain_reader_unlock(); not for programs.
///
/// # Safety
///
/// The reader is the calling thread's, and its domain alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_reader_unlock_slow(reader: *const DomainReader) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| left(unsafe { raw::unlock(named((*reader).domain)) }))
}

/// The unusual ways of stillpoint_domain_reader_lock(); not for programs.
///
/// # Safety
///
/// As for the other one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_reader_lock_slow(reader: *const DomainReader) {
    // SAFETY: the caller's promise.
    unsafe { stillpoint_domain_read_lock((*reader).domain.cast_mut()) };
}

/// Whether the calling thread is registered in the domain.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_is_registered(domain: *mut Domain) -> bool {
    // SAFETY: the caller's promise.
    guarded_or(false, || raw::is_registered(unsafe { named(domain) }))
}

/// Begins a section of the domain, or a level of it: srcu_read_lock(). As stillpoint_read_lock(), by a call.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_read_lock(domain: *mut Domain) {
    // SAFETY: the caller's promise.
    let domain = unsafe { named(domain) };
    if may_register(domain) {
        raw::lock(domain);
    } else {
        raw::lock_late(domain);
    }
}

/// Leaves a section or a level: srcu_read_unlock(). -EPERM if the calling thread is in none.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_read_unlock(domain: *mut Domain) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| left(unsafe { raw::unlock(named(domain)) }))
}

/// Whether the calling thread is inside a section of the domain: rcu_read_lock_held().
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_read_lock_held(domain: *mut Domain) -> bool {
    // SAFETY: the caller's promise.
    guarded_or(false, || raw::is_reading(unsafe { named(domain) }))
}

/// A section that belongs to no thread: `struct stillpoint_guard`. It is the record itself.
#[derive(Debug)]
#[repr(transparent)]
pub struct Guard(raw::Reader);

/// Begins a section that belongs to whoever has what is returned, until stillpoint_guard_end(), on whatever thread: a request, a task. For
/// readers that sleep; usually in the trace domain. Some 10 nanoseconds. NULL if there is no memory.
///
/// A wait for it by its own holder cannot be refused: it never ends, and is reported as a stall.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_guard(domain: *mut Domain) -> *mut Guard {
    // SAFETY: the caller's promise.
    let domain = unsafe { named(domain) };
    if reserve::is_whole() || raw::has_spare(domain) || reserve::ready().is_ok() {
        raw::lock_owned(domain).as_ptr().cast()
    } else {
        ptr::null_mut()
    }
}

/// Gives the section a name for stall reports, which is copied. -EINVAL for null; -ENOMEM.
///
/// # Safety
///
/// The guard is the caller's and has not been ended; the name is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_guard_name(guard: *mut Guard, name: *const c_char) -> c_int {
    guarded_with_memory(|| {
        // SAFETY: the caller's promise.
        let Some(guard) = (unsafe { guard.as_ref() }).filter(|_| !name.is_null()) else {
            return Err(misuse(libc::EINVAL, "stillpoint_guard_name() with a null guard or name"));
        };
        // SAFETY: the caller's promise.
        unsafe { guard.0.set_name(CStr::from_ptr(name).to_string_lossy().into()) };
        Ok(0)
    })
}

/// Ends the section of a guard. NULL does nothing. -EPERM if it is seen to have been ended: but it may by then be another's.
///
/// # Safety
///
/// The guard is the caller's, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_guard_end(guard: *mut Guard) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let Some(guard) = (unsafe { guard.as_ref() }) else { return Ok(0) };
        // SAFETY: the caller's promise.
        unsafe { guard.0.unlock_owned() }
            .map(|()| 0)
            .map_err(|_| misuse(libc::EPERM, "stillpoint_guard_end() of a guard that has been ended"))
    })
}

/// Whether `domain` is one that the process has from the start.
pub(crate) fn is_global(domain: *const Domain) -> bool {
    let is = |other: &stillpoint::Domain| ptr::eq(domain.cast(), other);
    is(stillpoint::global()) || is(tasks_trace::global()) || crate::qsbr::known().is_some_and(is)
}
