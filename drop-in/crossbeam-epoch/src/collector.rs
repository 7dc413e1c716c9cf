//! Collectors and their handles.

use crate::{Guard, exit, local::Local};
use std::{cell::UnsafeCell, fmt, marker::PhantomData, sync::Arc};
use stillpoint::{
    Domain,
    internal::epoch::{self, Around, Fences},
};

/// Pending bytes from which a freeing thread does more work at a time, and yields to threads that
/// hold it up.
const BUDGET: usize = 2 << 20;

/// A collector: its guards delay only its own deferred functions.
///
/// This is a handle; a clone refers to the same collector, as does each of its [`LocalHandle`]s and
/// [`Guard`]s. Dropping the last one runs, or waits for, all functions still deferred, by any
/// thread, and may block as long as they do. (Inside a deferred function it returns at once, and a
/// thread of the library runs them soon.)
#[derive(Clone)]
pub struct Collector {
    domain: Domain,
    /// Not unwind-safe, like the original, so that programs still compile after a change back.
    _marker: PhantomData<Arc<NotUnwindSafe>>,
}

struct NotUnwindSafe(UnsafeCell<()>);

// SAFETY: it has nothing that could be accessed.
unsafe impl Sync for NotUnwindSafe {}

impl PartialEq for Collector {
    /// Returns whether both are handles of the same collector.
    fn eq(&self, other: &Collector) -> bool {
        self.domain == other.domain
    }
}

impl Eq for Collector {}

impl Default for Collector {
    fn default() -> Self {
        Self::with(exit::around)
    }
}

impl Collector {
    /// Creates a collector. Starts no thread.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with(around: Around) -> Self {
        exit::arrange();
        let fences = if cfg!(feature = "nofence") {
            Fences::None
        } else {
            Fences::AtEntry
        };
        Self {
            domain: epoch::domain("crossbeam-epoch", fences, BUDGET, around),
            _marker: PhantomData,
        }
    }

    /// Registers a participant of the calling thread, through which it can pin itself.
    pub fn register(&self) -> LocalHandle {
        Local::register(self)
    }

    #[inline(always)]
    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }
}

/// Extensions to the original.
#[cfg(feature = "reports")]
impl Collector {
    /// Returns the collector's statistics. Takes one lock per thread that has deferred functions.
    pub fn statistics(&self) -> stillpoint::Statistics {
        self.domain.statistics()
    }

    /// Calls `handler` for each guard that holds up deferred functions for longer than the stall
    /// timeout: see [`Domain::on_stall`].
    pub fn on_stall(&self, handler: impl Fn(&stillpoint::StallReport) + Send + Sync + 'static) {
        self.domain.on_stall(handler);
    }

    /// Sets the stall timeout; 10 seconds by default.
    pub fn set_stall_timeout(&self, timeout: std::time::Duration) {
        self.domain.set_stall_timeout(timeout);
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Collector { .. }")
    }
}

/// A thread's participant in a collector.
pub struct LocalHandle {
    local: *const Local,
}

impl LocalHandle {
    /// Creates a handle that has been counted already.
    pub(crate) fn of(local: *const Local) -> Self {
        Self { local }
    }

    #[cfg(feature = "std")]
    pub(crate) fn as_ptr(&self) -> *const Local {
        self.local
    }

    #[inline(always)]
    fn local(&self) -> &Local {
        // SAFETY: a participant of this thread, which the handle keeps.
        unsafe { &*self.local }
    }

    /// Pins the thread. The handle's outermost guard is a sequentially consistent fence, and may
    /// run deferred functions.
    #[inline]
    pub fn pin(&self) -> Guard {
        // SAFETY: a participant of this thread, which the handle keeps.
        unsafe { Local::pin(self.local) }
    }

    /// Returns whether the handle has guards.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.local().is_pinned()
    }

    /// Returns the collector.
    #[inline]
    pub fn collector(&self) -> &Collector {
        self.local().collector()
    }
}

impl Drop for LocalHandle {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: our own count; not used afterwards.
        unsafe { Local::release_handle(self.local) };
    }
}

impl fmt::Debug for LocalHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("LocalHandle { .. }")
    }
}
