//! Readers by quiescent states, in a domain of their own whose readers fence: threads that read all
//! the time and say when they do not.

use crate::{
    domain::{Domain, SELF_DEADLOCK, pointer},
    ffi::{catch_panic, catch_panic_or, misuse},
    reserve,
    static_domain::QSBR,
    thread::{self, cache_record, qsbr_record, release_qsbr_record, watch_exit},
};
use std::{ffi::c_int, ptr};
use stillpoint::raw;

fn registered() -> Result<&'static raw::Record, c_int> {
    qsbr_record().ok_or_else(|| {
        misuse(
            libc::EPERM,
            "this thread is no QSBR reader: call stillpoint_qsbr_register() first",
        )
    })
}

/// The domain of QSBR readers, for the functions that take a domain. Never destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_global() -> *mut Domain {
    catch_panic_or(ptr::null_mut(), || pointer(QSBR.get()))
}

/// Makes the calling thread a reader that is inside a section at all times, but where it says
/// otherwise: urcu_qsbr_register_thread(). It is online then. -EEXIST if it is one; -ENOMEM; -ESRCH
/// at the thread's very end.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_register() -> c_int {
    catch_panic(|| {
        if qsbr_record().is_some() {
            return Err(misuse(
                libc::EEXIST,
                "stillpoint_qsbr_register() of a thread that is registered",
            ));
        }
        if raw::is_exiting() {
            return Err(libc::ESRCH);
        }
        reserve::check()?;
        if !watch_exit() {
            return Err(libc::ENOMEM);
        }
        let record = raw::register_qsbr(QSBR.get());
        // SAFETY: the calling thread's.
        unsafe { record.lock() };
        cache_record(thread::QSBR, record, QSBR.get());
        Ok(0)
    })
}

/// Ends that: urcu_qsbr_unregister_thread(). -EPERM if the thread is no QSBR reader. Also in the
/// destructors of pthread_key_create().
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_unregister() -> c_int {
    catch_panic(|| {
        go_offline(registered()?);
        release_qsbr_record();
        Ok(0)
    })
}

fn go_offline(record: &raw::Record) -> bool {
    // SAFETY: from `qsbr_record`, so the calling thread's; what it goes on using is the caller's
    // business, as everywhere in C.
    unsafe { record.unlock() }.is_ok()
}

fn go_online(record: &raw::Record) {
    if !record.is_reading() {
        // SAFETY: as above.
        unsafe { record.lock() };
    }
}

/// Goes offline, around everything that may block: nothing that was found before may be used after.
/// urcu_qsbr_thread_offline(). Does nothing if it is. -EPERM if the thread is no QSBR reader. In
/// the destructors of pthread_key_create() it unregisters the thread.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_offline() -> c_int {
    catch_panic(|| {
        go_offline(registered()?);
        if raw::is_exiting() {
            release_qsbr_record();
        }
        Ok(0)
    })
}

/// Comes back: urcu_qsbr_thread_online(). -EPERM if the thread is no QSBR reader.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_online() -> c_int {
    catch_panic(|| {
        go_online(registered()?);
        Ok(0)
    })
}

/// Whether the calling thread is a QSBR reader and online.
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

/// Waits for a grace period of the QSBR readers, the calling one offline meanwhile:
/// urcu_qsbr_synchronize_rcu(). Nothing that was found before may be used after. -EDEADLK inside a
/// section that the thread has begun by stillpoint_domain_read_lock() there.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_qsbr_synchronize() -> c_int {
    catch_panic(|| {
        let record = qsbr_record();
        let was_online = record.is_some_and(go_offline);
        let waited = raw::synchronize(QSBR.get(), false);
        if let (Some(record), true) = (record, was_online) {
            go_online(record);
        }
        waited
            .map(|()| 0)
            .map_err(|_| misuse(libc::EDEADLK, SELF_DEADLOCK))
    })
}
