//! A participant: the state that a handle of a collector shares with its guards.
//!
//! It counts guards itself, so that millions may be nested or forgotten. It is a separate reader in
//! the domain: two handles on one thread are two participants.
//!
//! It belongs to one thread, because handles and guards are neither `Send` nor `Sync`, and lives
//! while one of them exists. Only this file changes the counts.

use crate::{Collector, Guard, LocalHandle};
use std::{cell::Cell, mem, thread, time::Duration};
use stillpoint::internal::epoch::{self, Left, Reader};

/// Whether a pin is a sequentially consistent fence.
const FENCES: bool = !cfg!(feature = "nofence");

/// How often a pin yields the processor if much is held up. It does so once per page of deferred
/// functions.
const YIELDS: u32 = 4;

/// How often it then sleeps, past the budget, while short guards hold it up. A guard that is held
/// for long ends this sooner, for all threads: see [`Left::HeldUpForLong`].
const SLEEPS: u32 = 200;

/// Duration of one sleep. Mostly, a preempted thread holds the garbage up; a yield alone does not
/// guarantee that it runs next.
const PAUSE: Duration = Duration::from_micros(50);

pub(crate) struct Local {
    reader: Reader,
    guards: Cell<usize>,
    handles: Cell<usize>,
    /// Whether the next outermost pin should free something.
    due: Cell<bool>,
    /// Last, because the domain contains the reader's record.
    collector: Collector,
}

impl Local {
    /// Creates a participant of the calling thread, with one handle.
    pub(crate) fn register(collector: &Collector) -> LocalHandle {
        let local = Box::new(Self {
            reader: Reader::new(collector.domain()),
            guards: Cell::new(0),
            handles: Cell::new(1),
            due: Cell::new(false),
            collector: collector.clone(),
        });
        LocalHandle::of(Box::into_raw(local))
    }

    pub(crate) fn collector(&self) -> &Collector {
        &self.collector
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.guards.get() > 0
    }

    /// Adds a guard. It keeps a pointer, not a reference, because it may free the participant.
    ///
    /// # Panics
    ///
    /// If the counter of guards overflows.
    ///
    /// # Safety
    ///
    /// `this` came from `register`, and has a handle or a guard of the calling thread.
    #[inline(always)]
    pub(crate) unsafe fn pin(this: *const Self) -> Guard {
        // SAFETY: the caller's promise.
        let local = unsafe { &*this };
        let guards = local.guards.get();
        local
            .guards
            .set(guards.checked_add(1).expect("fewer guards than addresses"));
        if guards == 0 {
            local.enter();
        }
        Guard::of(this)
    }

    /// Enters with the first guard. Fences, because users' own accesses rely on that: see the
    /// crate's "nofence".
    #[inline(always)]
    fn enter(&self) {
        // SAFETY: our thread and our collector's domain, and there was no guard.
        unsafe { self.reader.enter::<FENCES>() };
        if self.due.get() {
            self.free_some();
        }
    }

    /// Frees the thread's retired objects that are due. Called with one guard, which is not in use
    /// yet.
    #[cold]
    #[inline(never)]
    fn free_some(&self) {
        self.due.set(false);
        let domain = self.collector.domain();
        let mut left = epoch::free_some(domain);
        let mut waits = 0;
        // User code (a stall handler or a subscriber) may have pinned inside the call and kept the
        // guard, which then relies on this section.
        while self.guards.get() == 1 && may_wait(left, waits) {
            // SAFETY: as in `enter`; through the only guard, nothing has been found yet.
            unsafe { self.reader.leave() };
            // Waiting for a guard of another handle of this thread makes no sense.
            let is_its_own = domain.is_reading();
            if waits < YIELDS {
                thread::yield_now();
            } else if !is_its_own {
                epoch::note_wait(domain, || thread::sleep(PAUSE));
            }
            // SAFETY: as in `enter`.
            unsafe { self.reader.enter::<FENCES>() };
            if is_its_own {
                break;
            }
            waits += 1;
            left = epoch::free_some(domain);
        }
        if left == Left::Due {
            self.due.set(true);
        }
    }

    /// Removes a guard.
    ///
    /// # Safety
    ///
    /// There was one, and the caller does not use `this` afterwards if there was no handle.
    #[inline(always)]
    pub(crate) unsafe fn unpin(this: *const Self) {
        // SAFETY: the caller's promise.
        let local = unsafe { &*this };
        let guards = local.guards.get() - 1;
        local.guards.set(guards);
        if guards == 0 {
            // SAFETY: our thread; it was the last guard.
            unsafe { local.reader.leave() };
            if local.handles.get() == 0 {
                // SAFETY: there is nothing that knows it.
                unsafe { Self::end(this) };
            }
        }
    }

    pub(crate) fn acquire_handle(&self) {
        self.handles.set(self.handles.get() + 1);
    }

    /// Removes a handle.
    ///
    /// # Safety
    ///
    /// As for [`Local::unpin`], but of handles, if there was no guard.
    pub(crate) unsafe fn release_handle(this: *const Self) {
        // SAFETY: the caller's promise.
        let local = unsafe { &*this };
        let handles = local.handles.get() - 1;
        local.handles.set(handles);
        if handles == 0 && local.guards.get() == 0 {
            // SAFETY: there is nothing that knows it.
            unsafe { Self::end(this) };
        }
    }

    /// # Safety
    ///
    /// `this` came from `register`, has neither handle nor guard, and is not used afterwards.
    #[cold]
    unsafe fn end(this: *const Self) {
        // SAFETY: the caller's promise.
        let local = unsafe { Box::from_raw(this.cast_mut()) };
        // SAFETY: our thread; there is no section, and nothing is done with the reader afterwards.
        unsafe { local.reader.depart() };
        // If it has the collector's last handle, this frees everything that is unreclaimed.
        drop(local);
    }

    /// Ends the section and begins another, if there is only one guard.
    pub(crate) fn repin(&self) {
        if self.guards.get() == 1 {
            // SAFETY: our thread; the guard is what asks for it, mutably borrowed.
            unsafe {
                self.reader.leave();
                self.reader.enter::<FENCES>();
            }
        }
    }

    /// Calls `f` once all present guards have ended.
    ///
    /// # Safety
    ///
    /// It may be called on any thread. There is a guard.
    #[inline]
    pub(crate) unsafe fn defer<F: FnOnce() -> R, R>(&self, f: F) {
        // SAFETY: the caller's promise.
        if unsafe { crate::deferred::call(&self.reader, self.collector.domain(), f) } {
            self.due.set(true);
        }
    }

    /// Frees an object once all present guards have ended.
    ///
    /// # Safety
    ///
    /// As for [`Guard::defer_destroy`]. There is a guard.
    #[inline]
    pub(crate) unsafe fn destroy<T: ?Sized + crate::Pointable>(&self, ptr: crate::Shared<'_, T>) {
        // SAFETY: the caller's promise.
        if unsafe { crate::deferred::destroy(&self.reader, self.collector.domain(), ptr) } {
            self.due.set(true);
        }
    }

    pub(crate) fn flush(&self) {
        self.collector.domain().flush();
    }
}

/// Returns whether a pin that has waited `waits` times waits again.
fn may_wait(left: Left, waits: u32) -> bool {
    match left {
        Left::HeldUp => waits < YIELDS,
        Left::HeldUpPastBudget => waits < YIELDS + SLEEPS,
        Left::Nothing | Left::Due | Left::HeldUpForLong => false,
    }
}

/// Calls `f` with one guard less, and restores the guard afterwards, even if `f` panics.
///
/// # Safety
///
/// There is a guard, through which the caller finds nothing meanwhile.
pub(crate) unsafe fn unpinned<R>(local: *const Local, f: impl FnOnce() -> R) -> R {
    /// Takes the guard back.
    struct Repin(*const Local);
    impl Drop for Repin {
        fn drop(&mut self) {
            // SAFETY: our handle keeps it.
            mem::forget(unsafe { Local::pin(self.0) });
            // SAFETY: ours; there is the guard.
            unsafe { Local::release_handle(self.0) };
        }
    }
    // SAFETY: the caller's guard keeps it.
    unsafe { &*local }.acquire_handle();
    let _repin = Repin(local);
    // SAFETY: the caller's guard, which is counted again before the caller uses it; our handle
    // keeps the participant.
    unsafe { Local::unpin(local) };
    f()
}
