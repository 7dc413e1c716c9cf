//! Readers by quiescent states, in a domain of their own whose readers fence: threads that read all the time and say when they do not.

use crate::{
    border::{guarded, guarded_or, misuse},
    domain::{Domain, INSIDE, pointer},
    reader::{QSBR, forget, remember, watch_end},
    reserve,
};
use std::{
    cell::Cell,
    ffi::c_int,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};
use stillpoint::raw;

/// Made at the first use.
static GLOBAL: AtomicPtr<stillpoint::Domain> = AtomicPtr::new(ptr::null_mut());

/// The domain, if it has been made.
pub(crate) fn known() -> Option<&'static stillpoint::Domain> {
    made(&GLOBAL)
}

pub(crate) fn global() -> &'static stillpoint::Domain {
    once(&GLOBAL, stillpoint::Domain::with_fences)
}

/// The domain at `place`, if one has been made.
pub(crate) fn made(place: &'static AtomicPtr<stillpoint::Domain>) -> Option<&'static stillpoint::Domain> {
    // Acquire, pairs with `once`: the domain that is found is complete.
    // SAFETY: null, or leaked by `once`.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

/// The domain at `place`, made if there is none, for ever. No lock: another thread that makes it may have vanished in a fork.
pub(crate) fn once(
    place: &'static AtomicPtr<stillpoint::Domain>, make: fn() -> stillpoint::Domain,
) -> &'static stillpoint::Domain {
    if let Some(domain) = made(place) {
        return domain;
    }
    let made = Box::into_raw(Box::new(make()));
    // Release, pairs with `made`: the domain is complete before it is found. Acquire: so is the faster thread's.
    match place.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: leaked.
        Ok(_) => unsafe { &*made },
        Err(faster) => {
            // SAFETY: it came out of a box just now, and nobody has seen it; the faster thread leaked its own.
            unsafe {
                drop(Box::from_raw(made));
                &*faster
            }
        }
    }
}

thread_local! {
    /// The calling thread's record. Without a destructor: those of `pthread_key_create()` may use it.
    static RECORD: Cell<Option<NonNull<raw::Reader>>> = const { Cell::new(None) };
}

/// At a thread's end: gives the record back, unless it is online then: it holds grace periods up, and is reported, until one of the
/// thread's later destructors goes offline.
pub(crate) fn end() {
    if record().is_some_and(raw::Reader::is_reading) {
        misuse(
            libc::EBUSY,
            "a thread ends while it is an online QSBR reader: unless one of its destructors calls stillpoint_qsbr_unregister(), no grace \
             period of theirs ends any more",
        );
    } else {
        take_back();
    }
}

fn record() -> Option<&'static raw::Reader> {
    // SAFETY: as in `take_back`.
    RECORD.get().map(|record| unsafe { record.as_ref() })
}

fn take_back() {
    if let Some(record) = RECORD.take() {
        forget(QSBR);
        // SAFETY: `register_qsbr` gave it to this thread, and the domain is for ever.
        unsafe { record.as_ref().depart() };
    }
}

fn registered() -> Result<&'static raw::Reader, c_int> {
    record().ok_or_else(|| misuse(libc::EPERM, "this thread is no QSBR reader: call stillpoint_qsbr_register() first"))
}

/// The domain of QSBR readers, for the functions that take a domain. Never destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_global() -> *mut Domain {
    guarded_or(ptr::null_mut(), || pointer(global()))
}

/// Makes the calling thread a reader that is inside a section at all times, but where it says otherwise: urcu_qsbr_register_thread(). It
/// is online then. -EEXIST if it is one; -ENOMEM; -ESRCH at the thread's very end.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_register() -> c_int {
    guarded(|| {
        if record().is_some() {
            return Err(misuse(libc::EEXIST, "stillpoint_qsbr_register() of a thread that is registered"));
        }
        if raw::is_ending() {
            return Err(libc::ESRCH);
        }
        reserve::ready()?;
        if !watch_end() {
            return Err(libc::ENOMEM);
        }
        let domain = global();
        let record = raw::register_qsbr(domain);
        RECORD.set(Some(record));
        // SAFETY: as in `take_back`.
        let record = unsafe { record.as_ref() };
        // SAFETY: the calling thread's.
        unsafe { record.lock() };
        remember(QSBR, record, domain);
        Ok(0)
    })
}

/// Ends that: urcu_qsbr_unregister_thread(). -EPERM if the thread is no QSBR reader. Also in the destructors of pthread_key_create().
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_unregister() -> c_int {
    guarded(|| {
        go_offline(registered()?);
        take_back();
        Ok(0)
    })
}

fn go_offline(record: &raw::Reader) -> bool {
    // SAFETY: from `record()`, so the calling thread's; what it goes on using is the caller's business, as everywhere in C.
    unsafe { record.unlock() }.is_ok()
}

fn go_online(record: &raw::Reader) {
    if !record.is_reading() {
        // SAFETY: as above.
        unsafe { record.lock() };
    }
}

/// Goes offline, around everything that may block: nothing that was found before may be used after. urcu_qsbr_thread_offline(). Does
/// nothing if it is. -EPERM if the thread is no QSBR reader. In the destructors of pthread_key_create() it unregisters the thread.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_offline() -> c_int {
    guarded(|| {
        go_offline(registered()?);
        if raw::is_ending() {
            take_back();
        }
        Ok(0)
    })
}

/// Comes back: urcu_qsbr_thread_online(). -EPERM if the thread is no QSBR reader.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_online() -> c_int {
    guarded(|| {
        go_online(registered()?);
        Ok(0)
    })
}

/// Whether the calling thread is a QSBR reader and online.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_is_online() -> bool {
    guarded_or(false, || record().is_some_and(raw::Reader::is_reading))
}

/// The unusual way of stillpoint_qsbr_quiescent_state(); not for programs.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_renew() {
    guarded_or((), || {
        if let Some(record) = record() {
            // SAFETY: as in `go_offline`.
            unsafe { record.quiescent_state() };
        }
    });
}

/// Waits for a grace period of the QSBR readers, the calling one offline meanwhile: urcu_qsbr_synchronize_rcu(). Nothing that was found
/// before may be used after. -EDEADLK inside a section that the thread has begun by stillpoint_domain_read_lock() there.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_synchronize() -> c_int {
    guarded(|| {
        let record = record();
        let was_online = record.is_some_and(go_offline);
        let waited = raw::synchronize(global());
        if let (Some(record), true) = (record, was_online) {
            go_online(record);
        }
        waited.map(|()| 0).map_err(|_| misuse(libc::EDEADLK, INSIDE))
    })
}
