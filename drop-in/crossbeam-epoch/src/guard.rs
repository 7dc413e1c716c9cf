//! A guard.

use crate::{
    Collector, Pointable, Shared,
    local::{self, Local},
};
use std::{fmt, ptr};

/// Keeps the calling thread pinned: objects that it finds are not freed while this lives.
///
/// Created by [`pin`](crate::pin) or [`LocalHandle::pin`](crate::LocalHandle::pin). Guards nest,
/// and may end in any order; only a handle's first has an effect, which includes a sequentially
/// consistent fence. Each keeps its handle's participant and collector.
///
/// A forgotten guard keeps its thread pinned for good, even after the thread has ended: its
/// collector's deferred functions never run again.
pub struct Guard {
    /// Null for [`unprotected`].
    local: *const Local,
}

impl Guard {
    /// Creates a guard that has been counted already.
    #[inline(always)]
    pub(crate) fn of(local: *const Local) -> Self {
        Self { local }
    }

    #[inline(always)]
    fn local(&self) -> Option<&Local> {
        // SAFETY: null, or a participant of this thread that this guard keeps.
        unsafe { self.local.as_ref() }
    }

    /// Calls `f` once all present pins have ended: on this thread, in an outermost pin or a
    /// [flush](Guard::flush), or on a thread of the library; not if the process exits first. Drops
    /// the result.
    ///
    /// Never blocks, and calls nothing. A panic of `f` is caught and counted.
    ///
    /// ```
    /// let guard = crossbeam_epoch::pin();
    /// let message = String::from("hello");
    /// guard.defer(move || println!("{message}"));
    /// ```
    pub fn defer<F, R>(&self, f: F)
    where
        F: FnOnce() -> R,
        F: Send + 'static,
    {
        // SAFETY: it may go to any thread, and lives as long as it takes.
        unsafe { self.defer_unchecked(f) };
    }

    /// Like [`Guard::defer`], for any function. Does not allocate if it captures no more than a
    /// word.
    ///
    /// # Safety
    ///
    /// `f` may be called on any thread, at any time after the present guards have ended; at once if
    /// the guard is [`unprotected`].
    #[inline]
    pub unsafe fn defer_unchecked<F, R>(&self, f: F)
    where
        F: FnOnce() -> R,
    {
        match self.local() {
            // SAFETY: the caller's promise.
            Some(local) => unsafe { local.defer(f) },
            None => drop(f()),
        }
    }

    /// Frees the object of `ptr` once all present pins have ended. For types without a destructor,
    /// this is the cheapest way to defer.
    ///
    /// # Safety
    ///
    /// `ptr` is not null, no thread will find the object, nothing else frees it, and it may be
    /// freed on any thread. If the guard is [`unprotected`], no thread uses it either.
    #[inline]
    pub unsafe fn defer_destroy<T: ?Sized + Pointable>(&self, ptr: Shared<'_, T>) {
        match self.local() {
            // SAFETY: the caller's promise.
            Some(local) => unsafe { local.destroy(ptr) },
            // SAFETY: the caller's promise.
            None => drop(unsafe { ptr.into_owned() }),
        }
    }

    /// Calls this thread's deferred functions, except those that a guard holds up: this guard holds
    /// up those deferred since it began. To call all, flush through a new guard, drop it, and flush
    /// through another new one, while no other thread is pinned.
    ///
    /// Blocks only in the functions that it calls.
    pub fn flush(&self) {
        if let Some(local) = self.local() {
            local.flush();
        }
    }

    /// Ends the guard's section and begins another, if it is the only guard of its handle: objects
    /// found before may be freed.
    pub fn repin(&mut self) {
        if let Some(local) = self.local() {
            local.repin();
        }
    }

    /// Calls `f` without this guard, and pins again afterwards, even if `f` panics. If it is the
    /// only guard of its handle, the thread is not pinned meanwhile.
    pub fn repin_after<F, R>(&mut self, f: F) -> R
    where
        F: FnOnce() -> R,
    {
        if self.local.is_null() {
            return f();
        }
        // SAFETY: this one, which is borrowed mutably.
        unsafe { local::unpinned(self.local, f) }
    }

    /// Returns the collector, or `None` if the guard is [`unprotected`].
    pub fn collector(&self) -> Option<&Collector> {
        self.local().map(Local::collector)
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if !self.local.is_null() {
            // SAFETY: our own count; not used afterwards.
            unsafe { Local::unpin(self.local) };
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Guard { .. }")
    }
}

/// Returns a guard that protects nothing: functions deferred through it run at once. For data that
/// no other thread can reach, in a constructor or a destructor.
///
/// # Safety
///
/// No other thread frees or changes an object that was loaded through it while the object is used,
/// and functions deferred through it may run at once.
#[inline]
pub unsafe fn unprotected() -> &'static Guard {
    struct Unprotected(Guard);
    // SAFETY: a guard without a participant has nothing of a thread's.
    unsafe impl Sync for Unprotected {}
    static UNPROTECTED: Unprotected = Unprotected(Guard { local: ptr::null() });
    &UNPROTECTED.0
}
