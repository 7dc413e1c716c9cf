//! Which thread entered a section, where and when, for stall reports. Grace periods do not need it,
//! so it lies beside the records and not in them, and scans do not load it.
//!
//! A reader writes it with plain stores, and a report may read it meanwhile. Each part is whole, but a
//! report on a section that ends at that moment may mix its parts with those of the next. Names and
//! backtraces, which the reader frees, are behind a lock, so that it cannot free them while a report
//! copies them; the reader waits for that copy.

use crate::platform::{
    clock::Nanos,
    sync::{Arc, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Mutex, Ordering, lock},
};
use std::{mem, panic::Location, ptr};

#[cfg(feature = "stall-backtrace")]
use std::backtrace::Backtrace;

/// A value that its owner sets and removes, and that reports copy: a counted pointer behind a lock.
#[derive(Debug)]
pub(super) struct Shelf<T>(pub(super) Mutex<Option<Arc<T>>>);

impl<T> Shelf<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Replaces the value, and drops the old one.
    pub(super) fn put(&self, thing: Option<Arc<T>>) {
        let old = mem::replace(&mut *lock(&self.0), thing);
        // The old one is dropped outside of the lock.
        drop(old);
    }

    pub(super) fn copy(&self) -> Option<Arc<T>> {
        lock(&self.0).clone()
    }
}

#[derive(Debug)]
pub(crate) struct Entry {
    /// The kernel's id of the thread that entered the section.
    tid: AtomicU32,
    /// Whether there is a name. Accessed by the owner alone.
    named: AtomicBool,
    /// The task's name. The inner box makes the pointer thin.
    pub(super) name: Shelf<Box<str>>,
    /// When an owned section was entered, approximately; 0 for others.
    since: AtomicU64,
    /// Where it was entered; null for sections that are not owned.
    location: AtomicPtr<Location<'static>>,
    #[cfg(feature = "stall-backtrace")]
    pub(super) backtrace: Shelf<Backtrace>,
}

impl Entry {
    pub(super) fn new() -> Self {
        Self {
            tid: AtomicU32::new(0),
            named: AtomicBool::new(false),
            name: Shelf::new(),
            since: AtomicU64::new(0),
            location: AtomicPtr::new(ptr::null_mut()),
            #[cfg(feature = "stall-backtrace")]
            backtrace: Shelf::new(),
        }
    }

    /// Notes the record's new owner: a thread, or the thread that makes a guard.
    pub(super) fn note_owner(&self, tid: u32) {
        self.tid.store(tid, Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
        self.location.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Notes that an owned section begins.
    #[inline]
    pub(super) fn note_section(&self, location: &'static Location<'static>, now: Nanos) {
        self.since.store(now, Ordering::Relaxed);
        self.location
            .store(ptr::from_ref(location).cast_mut(), Ordering::Relaxed);
    }

    /// Notes where the section was entered. Not async-signal-safe: a handler that interrupts this
    /// function on the same record notes nothing.
    #[cfg(feature = "stall-backtrace")]
    #[inline(never)]
    pub(super) fn note_backtrace(&self) {
        if let Ok(mut backtrace) = self.backtrace.0.try_lock() {
            *backtrace = Some(Arc::new(Backtrace::force_capture()));
        }
    }

    pub(super) fn set_name(&self, name: Box<str>) {
        self.named.store(true, Ordering::Relaxed);
        self.name.put(Some(Arc::new(name)));
    }

    /// Notes that the section has ended, so that the record's next owner does not inherit its name.
    #[inline]
    pub(super) fn clear_name(&self) {
        if self.named.load(Ordering::Relaxed) {
            self.named.store(false, Ordering::Relaxed);
            self.name.put(None);
        }
    }

    pub(super) fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    pub(super) fn set_tid(&self, tid: u32) {
        self.tid.store(tid, Ordering::Relaxed);
    }

    pub(super) fn name(&self) -> Option<Arc<Box<str>>> {
        self.name.copy()
    }

    pub(super) fn since(&self) -> Option<Nanos> {
        Some(self.since.load(Ordering::Relaxed)).filter(|&since| since != 0)
    }

    pub(super) fn location(&self) -> Option<&'static Location<'static>> {
        // SAFETY: null, or made from a `'static` reference.
        unsafe { self.location.load(Ordering::Relaxed).as_ref() }
    }

    /// Returns where the owner entered its present section, or the last one.
    #[cfg(feature = "stall-backtrace")]
    pub(super) fn backtrace(&self) -> Option<Arc<Backtrace>> {
        self.backtrace.copy()
    }
}
