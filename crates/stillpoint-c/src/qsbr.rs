//! Readers by quiescent states, in a separate domain whose readers fence: threads that are always
//! inside a section, except when they say otherwise.

use crate::{
    domain::{Domain, pointer},
    ffi::{Errno, catch_panic_or, check, done, misuse},
    reader::FIRST_USE,
    static_domain::QSBR,
    thread::{self, cache_record, qsbr_record, release_qsbr_record, watch_exit},
};
use std::{ffi::c_int, ptr};
use stillpoint::raw;

fn registered() -> Result<&'static raw::Record, Errno> {
    qsbr_record().ok_or_else(|| {
        misuse(
            libc::EPERM,
            "this thread is not a QSBR reader: call stillpoint_qsbr_register() first",
        )
    })
}

/// Returns the domain of QSBR readers, for the functions that take a domain. Never destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_global() -> *mut Domain {
    catch_panic_or(ptr::null_mut(), || pointer(QSBR.get()))
}

/// Registers the calling thread as a reader that is always inside a section, except when it says
/// otherwise: urcu_qsbr_register_thread(). It begins online. -EEXIST if it is registered already;
/// -ENOMEM; -ESRCH at the thread's very end.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_register() -> c_int {
    done(|| {
        check(
            qsbr_record().is_none(),
            libc::EEXIST,
            "stillpoint_qsbr_register() of a thread that is already registered",
        )?;
        if raw::is_exiting() {
            return Err(libc::ESRCH.into());
        }
        if !raw::is_there_for(FIRST_USE) || !watch_exit() {
            return Err(libc::ENOMEM.into());
        }
        let record = raw::register_qsbr(QSBR.get());
        // SAFETY: the calling thread's.
        unsafe { record.lock() };
        cache_record(thread::QSBR, record, QSBR.get());
        Ok(())
    })
}

/// Unregisters the calling thread: urcu_qsbr_unregister_thread(). -EPERM if it is not a QSBR
/// reader. May also be called in the destructors of pthread_key_create().
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_unregister() -> c_int {
    done(|| {
        go_offline(registered()?);
        release_qsbr_record();
        Ok(())
    })
}

fn go_offline(record: &raw::Record) -> bool {
    // SAFETY: from `qsbr_record`, so the calling thread's; in C, the caller answers for the
    // pointers it goes on using.
    unsafe { record.unlock() }.is_ok()
}

fn go_online(record: &raw::Record) {
    if !record.is_reading() {
        // SAFETY: as above.
        unsafe { record.lock() };
    }
}

/// Takes the calling thread offline, before anything that may block: urcu_qsbr_thread_offline().
/// Pointers found before must not be used afterwards. Does nothing if it is offline already. -EPERM
/// if the thread is not a QSBR reader. In the destructors of pthread_key_create() it unregisters
/// the thread.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_offline() -> c_int {
    done(|| {
        go_offline(registered()?);
        if raw::is_exiting() {
            release_qsbr_record();
        }
        Ok(())
    })
}

/// Takes the calling thread offline and keeps it registered, also in the destructors of
/// pthread_key_create(), where stillpoint_qsbr_offline() unregisters it; not for programs.
/// stillpoint_qsbr_online() undoes it. -EPERM if the thread is not a QSBR reader.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_pause_() -> c_int {
    done(|| {
        go_offline(registered()?);
        Ok(())
    })
}

/// Brings the calling thread online again: urcu_qsbr_thread_online(). -EPERM if it is not a QSBR
/// reader.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_online() -> c_int {
    done(|| {
        go_online(registered()?);
        Ok(())
    })
}

/// Returns whether the calling thread is a QSBR reader and online.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_is_online() -> bool {
    catch_panic_or(false, || qsbr_record().is_some_and(raw::Record::is_reading))
}

/// The slow path of stillpoint_qsbr_quiescent_state(); not for programs.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_quiescent_state_slow() {
    catch_panic_or((), || {
        if let Some(record) = qsbr_record() {
            // SAFETY: as in `go_offline`.
            unsafe { record.quiescent_state() };
        }
    });
}

/// Waits for a grace period of the QSBR readers, with the calling thread offline meanwhile:
/// urcu_qsbr_synchronize_rcu(). Pointers found before must not be used afterwards. -EDEADLK inside
/// a section that the thread has begun there with stillpoint_domain_read_lock().
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_synchronize() -> c_int {
    done(|| {
        let record = qsbr_record();
        let was_online = record.is_some_and(go_offline);
        let waited = raw::synchronize(QSBR.get(), false);
        if let (Some(record), true) = (record, was_online) {
            go_online(record);
        }
        Ok(waited?)
    })
}
