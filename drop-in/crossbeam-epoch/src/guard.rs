//! A guard.

use crate::{
    Collector, Pointable, Shared,
    local::{self, Local},
};
use std::{fmt, ptr};

/// Keeps the calling thread pinned: what it finds is not freed while this lives.
///
/// Made by [`pin`](crate::pin) or [`LocalHandle::pin`](crate::LocalHandle::pin). Guards nest, and
/// may end in any order; only the first of a handle does anything. The first is a sequentially
/// consistent fence. Each keeps its handle's participant and collector.
///
/// A guard that is forgotten keeps its thread pinned for good: nothing that is deferred to its
/// collector runs any more until the thread has ended, and not even then.
pub struct Guard {
    /// Null for [`unprotected`].
    local: *const Local,
}

impl Guard {
    /// For one that has been counted.
    #[inline(always)]
    pub(crate) fn of(local: *const Local) -> Self {
        Self { local }
    }

    #[inline(always)]
    fn local(&self) -> Option<&Local> {
        // SAFETY: null, or a participant of this thread that this guard keeps.
        unsafe { self.local.as_ref() }
    }

    /// Has `f` called once no thread is pinned any more that is now, by this thread in an outermost
    /// pin or a [flush](Guard::flush), or by one of the library's; not if the process exits before.
    /// What it returns is dropped.
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

    /// As [`Guard::defer`], of whatever function. A function that captures no more than a word
    /// takes no allocation.
    ///
    /// # Safety
    ///
    /// `f` may be called on any thread, and at any time from the end of the present guards on. If
    /// the guard is [`unprotected`], at once.
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

    /// Frees the object of `ptr` when no thread is pinned any more that is now. Where that runs no
    /// destructor, this is the cheapest way to defer.
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

    /// Calls what this thread has deferred, except what a guard holds up: this one holds up what was
    /// deferred while it existed. To call all that the thread has deferred, flush through a new guard,
    /// drop it, and flush through another new one, while no other thread is pinned.
    ///
    /// Never blocks but for the functions that it calls.
    pub fn flush(&self) {
        if let Some(local) = self.local() {
            local.flush();
        }
    }

    /// Ends the guard's section and begins another, if it is the only guard of its handle: what was
    /// found before may be freed.
    pub fn repin(&mut self) {
        if let Some(local) = self.local() {
            local.repin();
        }
    }

    /// Calls `f` while this guard does not count, and pins again after it, or after a panic of it.
    /// If it is the only guard of its handle, the thread is not pinned meanwhile.
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

    /// The collector, or `None` if the guard is [`unprotected`].
    pub fn collector(&self) -> Option<&Collector> {
        self.local().map(Local::collector)
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if !self.local.is_null() {
            // SAFETY: our own count; we use it no more.
            unsafe { Local::unpin(self.local) };
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Guard { .. }")
    }
}

/// A guard that protects nothing: what is deferred through it runs at once. For data that no other
/// thread can reach, in a constructor or a destructor.
///
/// # Safety
///
/// Nothing that is loaded through it is freed or changed by another thread while it is used, and
/// what is deferred through it may run at once.
#[inline]
pub unsafe fn unprotected() -> &'static Guard {
    struct Unprotected(Guard);
    // SAFETY: a guard without a participant has nothing of a thread's.
    unsafe impl Sync for Unprotected {}
    static UNPROTECTED: Unprotected = Unprotected(Guard { local: ptr::null() });
    &UNPROTECTED.0
}
