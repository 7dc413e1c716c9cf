//! Readers without guards, waits without panics, blocks of `malloc()`: what the C library is built
//! on.
//!
//! A section here belongs to the calling thread and has no guard; so its end has to find the
//! record. That is the record of the thread's binding; at the thread's very end, when the binding
//! is gone, it is the record that is still in a section, found by a walk over all records.
//!
//! The C library caches the records of the global domains in its own thread-local state, and
//! inlines the fast path of a section: [`Record`] says what it may rely on. It clears them when
//! [`at_thread_exit`] says so.

use super::{
    core::{self, global_core},
    domain::{Domain, global_domain},
    thread,
};
pub use crate::gp::WouldDeadlock as Deadlock;
pub use crate::kvfree::{NoPage as NoMemory, OnNoPage};
#[cfg(feature = "c-symbols")]
pub use crate::platform::{
    environment::debug, memory::is_there_for, stderr::Line, thread::spawn as start_thread,
};
use crate::{
    CallbackHead, Cookie, Flavour,
    gp::{self, GLOBALS, Haste},
    kvfree::{self, Pushed, RetireRequest},
    platform::{barrier, clock, thread as platform_thread, user_code},
};
use std::{
    panic::Location,
    ptr::{self, NonNull},
    sync::atomic::AtomicU64,
};

/// The numbers of the global domains: that of the crate's functions, and that of `tasks_trace`.
pub const RCU: usize = core::RCU;
/// See [`RCU`].
pub const TRACE: usize = core::TRACE;
const _: () = assert!(RCU < GLOBALS && TRACE < GLOBALS);

/// A thread's record, 64 bytes. The first eight are its word (`gp/record.rs` has its meaning and
/// all orderings), the next four its flags.
#[repr(transparent)]
#[derive(Debug)]
pub struct Record(gp::Record);

/// There is no section to be left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotReading;

impl Record {
    fn of(record: &gp::Record) -> &Self {
        // SAFETY: it is nothing but a `gp::Record`, by `repr(transparent)`.
        unsafe { &*ptr::from_ref(record).cast() }
    }

    /// Enters a section, or one more level of it.
    ///
    /// # Safety
    ///
    /// The record is the calling thread's, or the caller's guard's, and has not been given back.
    pub unsafe fn lock(&self) {
        self.0.lock();
    }

    /// Leaves a section or a level.
    ///
    /// # Errors
    ///
    /// If there is none.
    ///
    /// # Safety
    ///
    /// As for [`Record::lock`]; and nothing goes on using what was found in that level, not even a
    /// [`Guard`](crate::Guard) of the thread.
    pub unsafe fn unlock(&self) -> Result<(), NotReading> {
        if !self.0.is_reading() {
            return Err(NotReading);
        }
        if self.0.unlock().work_pending {
            thread::run_deferred_work(&self.0);
        }
        Ok(())
    }

    /// Completes an outermost unlock, after its last store, if the flags are not 0: wakes a waiter,
    /// or gives the record of an exited thread back.
    ///
    /// # Safety
    ///
    /// As for [`Record::lock`]; the section has ended.
    pub unsafe fn unlock_special(&self) {
        self.0.ended_with_flags();
    }

    /// Ends one section and begins the next.
    ///
    /// # Safety
    ///
    /// As for [`Record::unlock`].
    pub unsafe fn quiescent_state(&self) {
        self.0.quiescent_state();
    }

    /// Returns whether the owner is inside a section. For other threads it is a racy snapshot.
    pub fn is_reading(&self) -> bool {
        self.0.is_reading()
    }

    /// Gives the record back, now or at the end of its section.
    ///
    /// # Safety
    ///
    /// As for [`Record::lock`]; and it is used afterwards only to end that section.
    pub unsafe fn release(&self) {
        self.0.depart();
    }
}

/// Registers `exit` to run when the calling thread exits, before its records are released. Returns
/// false if that failed: at the thread's very end, or if out of memory.
///
/// # Safety
///
/// The thread has one such function, which replaces an earlier one.
pub unsafe fn at_thread_exit(exit: fn()) -> bool {
    thread::at_threads_end(exit)
}

/// Returns whether the calling thread's end has begun: it is not registered any more, and will not
/// be.
pub fn is_exiting() -> bool {
    thread::is_over()
}

/// Returns the address from which a new section of `domain` loads its word, by acquire. It is valid
/// as long as the domain.
///
/// A pointer and not a reference, with which safe code could store there:
///
/// ```compile_fail,E0599
/// # use std::sync::atomic::Ordering;
/// stillpoint::raw::started(stillpoint::global()).store(0, Ordering::Relaxed);
/// ```
pub fn started(domain: &Domain) -> *const AtomicU64 {
    domain.engine().started()
}

/// Begins a section of the calling thread in a global domain, or a level of it. Returns the record,
/// if sections may be begun through it from now on without this function: while its nesting is 0,
/// by storing the value of [`started`].
pub fn lock_global(global: usize) -> Option<&'static Record> {
    if global == TRACE {
        lock_through(thread::global_record::<TRACE>(), global_domain::<TRACE>)
    } else {
        lock_through(thread::global_record::<RCU>(), global_domain::<RCU>)
    }
}

/// Like [`lock_global`], in a domain that is never destroyed.
pub fn lock_static(domain: &'static Domain) -> Option<&'static Record> {
    lock_through(thread::record(domain.core()), || domain)
}

fn lock_through(
    record: Option<&'static gp::Record>,
    domain: impl FnOnce() -> &'static Domain,
) -> Option<&'static Record> {
    let Some(record) = record else {
        domain().core().lock_late();
        return None;
    };
    record.lock();
    (!barrier::readers_fence()).then(|| Record::of(record))
}

/// Binds the calling thread to `domain`, so that its sections there are async-signal-safe from now
/// on. Returns false if that failed: at the thread's very end, or if out of memory.
pub fn register(domain: &Domain) -> bool {
    thread::record(domain.core()).is_some()
}

/// Returns the calling thread's record in `domain`, if it is bound to that, and if its sections may
/// be begun without a function of this crate: while the nesting is 0, by storing the value of
/// [`started`]. It is the thread's until its end, or the domain's.
pub fn cacheable_record(domain: &Domain) -> Option<NonNull<Record>> {
    let record = thread::bound_record(domain.core())?;
    (!domain.engine().readers_fence()).then(|| Record::of(record).into())
}

/// Returns whether the calling thread is bound to `domain`.
pub fn is_registered(domain: &Domain) -> bool {
    thread::bound_record(domain.core()).is_some()
}

/// Begins a section of the calling thread in `domain`, or a level of it.
#[inline]
pub fn lock(domain: &Domain) {
    match thread::record(domain.core()) {
        Some(record) => record.lock(),
        None => _ = domain.core().lock_late(),
    }
}

/// Leaves a section of the calling thread in `domain`, or a level of it.
///
/// # Errors
///
/// If it has none open.
///
/// # Safety
///
/// As for [`Record::unlock`].
#[inline]
pub unsafe fn unlock(domain: &Domain) -> Result<(), NotReading> {
    match thread::bound_record(domain.core()) {
        Some(record) if record.is_reading() => {
            // SAFETY: the calling thread's; the rest is the caller's promise.
            unsafe { Record::of(record).unlock() }
        }
        // SAFETY: the caller's promise.
        _ => unsafe { unlock_unregistered(domain) },
    }
}

/// # Safety
///
/// As for [`Record::unlock`].
#[cold]
unsafe fn unlock_unregistered(domain: &Domain) -> Result<(), NotReading> {
    let record = domain
        .engine()
        .open_record_of(platform_thread::token())
        .ok_or(NotReading)?;
    // SAFETY: the calling thread's; the rest is the caller's promise.
    unsafe { Record::of(record).unlock() }
}

/// Returns whether the calling thread is inside a section of `domain`, of any flavour.
pub fn is_reading(domain: &Domain) -> bool {
    domain.is_reading()
}

/// Returns whether the calling thread has left a section open, also at its very end.
pub fn has_open_section(domain: &Domain) -> bool {
    domain
        .engine()
        .open_record_of(platform_thread::token())
        .is_some()
}

/// Returns whether the calling thread runs a callback or a deferred destructor of `domain`.
pub fn in_callback(domain: &Domain) -> bool {
    user_code::runs_for(domain.id())
}

/// Returns true if any thread is inside a section of `domain`.
pub fn has_readers(domain: &Domain) -> bool {
    domain.engine().has_readers()
}

/// Makes a record for a reader that is always inside a section, except where it says otherwise; it
/// is offline.
///
/// It is the calling thread's alone until that releases it.
pub fn register_qsbr(domain: &'static Domain) -> &'static Record {
    Record::of(
        domain
            .engine()
            .register(platform_thread::token(), Flavour::Qsbr),
    )
}

fn haste(expedited: bool) -> Haste {
    if expedited {
        Haste::Expedited
    } else {
        Haste::Normal
    }
}

/// [`Domain::synchronize`], or [`Domain::synchronize_expedited`].
///
/// # Errors
///
/// Inside a section of the domain.
pub fn synchronize(domain: &Domain, expedited: bool) -> Result<(), Deadlock> {
    domain.core().try_synchronize(haste(expedited))
}

/// [`Domain::cond_synchronize`].
///
/// # Errors
///
/// If the grace period waits for a section of the calling thread.
pub fn cond_synchronize(domain: &Domain, cookie: Cookie, expedited: bool) -> Result<(), Deadlock> {
    let core = domain.core();
    core.try_wait(core.known(cookie), haste(expedited))
}

/// [`Domain::barrier`].
///
/// # Errors
///
/// If it would wait for itself.
pub fn barrier(domain: &Domain) -> Result<(), Deadlock> {
    domain.core().try_barrier()
}

/// [`Domain::kvfree_barrier`].
///
/// # Errors
///
/// If it would wait for itself.
pub fn kvfree_barrier(domain: &Domain) -> Result<(), Deadlock> {
    domain.core().try_kvfree_barrier()
}

/// As [`Domain::kvfree_barrier_nested`].
///
/// # Errors
///
/// As for [`kvfree_barrier`].
pub fn kvfree_barrier_nested(domain: &Domain) -> Result<(), Deadlock> {
    domain.core().try_kvfree_barrier_nested()
}

/// Calls `free()` with `block`, of `bytes` bytes, after a grace period of `domain`; as
/// [`Domain::try_retire`].
///
/// # Errors
///
/// If there is no memory to track it, and a wait for a grace period is impossible here or excluded
/// by `on_no_page`. The block is then the caller's.
///
/// # Safety
///
/// `block` came from `malloc()` or the like; the rest as for [`Domain::retire`].
#[inline]
pub unsafe fn retire_malloced(
    domain: &Domain,
    block: NonNull<u8>,
    bytes: usize,
    on_no_page: OnNoPage,
) -> Result<(), NoMemory> {
    let object = RetireRequest::malloced(block, bytes);
    // SAFETY: the caller's promise.
    unsafe { thread::try_retire(domain.core(), object, on_no_page) }
}

/// Returns whether the callback of `head` waits in `domain`: a look at all that do, by their
/// addresses.
pub fn is_queued(domain: &Domain, head: *const CallbackHead) -> bool {
    domain.engine().is_queued(head)
}

/// A thread's buffer of the global domain's deferred frees.
#[repr(transparent)]
#[derive(Debug)]
pub struct ThreadBuffer(kvfree::ThreadBuffer);

/// Returns the calling thread's buffer, if it has one already, from its first [`retire_malloced`]
/// in the global domain. The buffer stays until the end of the thread, at which [`at_thread_exit`]
/// runs first.
pub fn thread_buffer() -> Option<NonNull<ThreadBuffer>> {
    thread::global_buffer().map(NonNull::cast)
}

/// [`retire_malloced`] in the global domain, through the calling thread's buffer.
///
/// # Errors
///
/// As for [`retire_malloced`].
///
/// # Safety
///
/// As for [`retire_malloced`]; the buffer is the calling thread's.
#[inline]
pub unsafe fn retire_malloced_to(
    buffer: &ThreadBuffer,
    block: NonNull<u8>,
    bytes: usize,
    on_no_page: OnNoPage,
) -> Result<(), NoMemory> {
    let object = RetireRequest::malloced(block, bytes);
    match buffer.0.append(object) {
        Pushed::Ok => Ok(()),
        pushed => {
            let domain = global_core::<RCU>();
            // SAFETY: the caller's promise.
            unsafe { thread::retire_slow(domain, object, Some(pushed), on_no_page) }
        }
    }
}

/// Begins a section that belongs to no thread: [`OwnedGuard`](crate::tasks_trace::OwnedGuard), by
/// its record.
#[track_caller]
pub fn lock_owned(domain: &Domain) -> NonNull<Record> {
    let record = domain.core().quiescent_record();
    record.lock_owned(Location::caller(), clock::coarse());
    Record::of(record).into()
}

impl Record {
    /// Names the section of an owned guard for reports.
    ///
    /// # Safety
    ///
    /// The caller holds the guard, which has not been ended.
    pub unsafe fn set_name(&self, name: Box<str>) {
        self.0.set_name(name);
    }

    /// Ends the section of an owned guard, on any thread.
    ///
    /// # Errors
    ///
    /// If it is seen to be over.
    ///
    /// # Safety
    ///
    /// The caller holds the guard, which is not used afterwards, nor what was found in its section.
    pub unsafe fn unlock_owned(&self) -> Result<(), NotReading> {
        if !self.0.is_open_guard() {
            return Err(NotReading);
        }
        self.0.unlock_owned();
        thread::cache_record(&self.0);
        Ok(())
    }
}

/// Returns the offset of a queued [`CallbackHead`]'s function, in bytes.
pub const FUNCTION_OFFSET: usize = CallbackHead::FUNCTION_OFFSET;

const _: () = assert!(size_of::<CallbackHead>() == 3 * size_of::<u64>());
