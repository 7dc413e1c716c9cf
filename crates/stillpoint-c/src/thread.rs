//! The calling thread's cached records, and the thread's end.
//!
//! The inlined functions read through records that `thread.c` and `compat/runtime/flavour.c` keep
//! in thread-local state; C defines that state, because stable Rust cannot export a thread-local
//! symbol. A record is the thread's until its end: [`watch_exit`] registers [`on_exit`], which
//! clears the state before the library takes the records back.

use crate::ffi::misuse;
use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::atomic::AtomicU64,
};
use stillpoint::{raw, tasks_trace};

unsafe extern "C" {
    fn stillpoint_thread_cache_record_(
        which: c_int,
        record: *const c_void,
        started: *const AtomicU64,
    );
    fn stillpoint_thread_clear_record_(which: c_int);
    fn stillpoint_thread_record_(which: c_int) -> *const c_void;
    fn stillpoint_thread_cache_buffer_(buffer: *const c_void);
    fn stillpoint_urcu_cache_record_(
        flavour: c_int,
        record: *const c_void,
        started: *const AtomicU64,
    );
    fn stillpoint_urcu_clear_records_();
    /// The record of unregistered threads: the fast paths refuse it.
    static stillpoint_unregistered_: c_void;
}

/// The third number that the header knows, after `raw::RCU` and `raw::TRACE`.
pub(crate) const QSBR: usize = 2;

const _: () = assert!(raw::RCU == 0 && raw::TRACE == 1);

/// Registers [`on_exit`] to run when the calling thread exits. Returns false if that failed.
pub(crate) fn watch_exit() -> bool {
    // SAFETY: the one function of this crate's.
    unsafe { raw::at_thread_exit(on_exit) }
}

/// Makes the calling thread's inlined read side use `record` until its end. `which` is one of
/// `raw::RCU`, `raw::TRACE`, [`QSBR`].
pub(crate) fn cache_record(which: usize, record: &raw::Record, domain: &stillpoint::Domain) {
    // SAFETY: the record is the calling thread's until `on_exit`, which comes before the record is
    // taken back.
    unsafe {
        stillpoint_thread_cache_record_(
            which as c_int,
            ptr::from_ref(record).cast(),
            raw::started(domain),
        )
    };
}

/// Makes the inlined read side of liburcu's flavour use `record` until the thread's end.
pub(crate) fn cache_urcu_record(flavour: c_int, record: &raw::Record, domain: &stillpoint::Domain) {
    // SAFETY: as in `cache_record`; the flavour is one that has records, by its caller's match.
    unsafe {
        stillpoint_urcu_cache_record_(flavour, ptr::from_ref(record).cast(), raw::started(domain))
    };
}

/// Makes the calling thread's inlined kvfree use its buffer until its end.
pub(crate) fn cache_buffer() {
    if let Some(buffer) = raw::thread_buffer()
        && watch_exit()
    {
        // SAFETY: the buffer is the calling thread's until `on_exit`, which comes before it is
        // taken back.
        unsafe { stillpoint_thread_cache_buffer_(buffer.as_ptr().cast()) };
    }
}

fn clear_record(which: usize) {
    // SAFETY: `which` is one of three.
    unsafe { stillpoint_thread_clear_record_(which as c_int) };
}

/// Returns the record of unregistered threads.
pub(crate) fn unregistered() -> *const c_void {
    &raw const stillpoint_unregistered_
}

/// Returns the calling thread's record as a QSBR reader, also in the destructors of
/// `pthread_key_create()`.
#[inline]
pub(crate) fn qsbr_record() -> Option<&'static raw::Record> {
    // SAFETY: it only returns the cached pointer.
    let record = unsafe { stillpoint_thread_record_(QSBR as c_int) };
    // SAFETY: `cache_record` was given it, and the domain of QSBR readers is for ever.
    (record != unregistered()).then(|| unsafe { &*record.cast() })
}

/// Releases the calling thread's record as a QSBR reader, now or, if it is online, when it goes
/// offline.
pub(crate) fn release_qsbr_record() {
    if let Some(record) = qsbr_record() {
        clear_record(QSBR);
        // SAFETY: the calling thread's, whose cache was cleared just now.
        unsafe { record.release() };
    }
}

/// Clears the cached records at the thread's end, because another thread may get them.
fn on_exit() {
    // SAFETY: null is for no buffer; both change the calling thread's own state.
    unsafe {
        stillpoint_thread_cache_buffer_(ptr::null());
        stillpoint_urcu_clear_records_();
    }
    clear_record(raw::RCU);
    clear_record(raw::TRACE);
    if qsbr_record().is_some_and(raw::Record::is_reading) {
        misuse(
            libc::EBUSY,
            "a thread ends while it is an online QSBR reader: unless one of its destructors calls stillpoint_qsbr_unregister(), no grace \
             period of theirs ends any more",
        );
    } else {
        release_qsbr_record();
    }
    if raw::has_open_section(stillpoint::global()) || raw::has_open_section(tasks_trace::global()) {
        misuse(
            libc::EBUSY,
            "a thread ends inside a read-side critical section: unless one of its destructors leaves it, it stays open, and no grace period \
             ends any more",
        );
    }
}
