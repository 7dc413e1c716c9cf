//! Collectors and their handles.

use crate::{Guard, exit, local::Local};
use std::{cell::UnsafeCell, fmt, marker::PhantomData, sync::Arc};
use stillpoint::{
    Domain,
    internal::epoch::{self, Around, Fences},
};

/// From here on a thread that frees does more, and lets others go on that hold it up.
const BUDGET: usize = 2 << 20;

/// A collector: its guards delay its own deferred functions only.
///
/// This is a handle; a clone names the same collector. Each [`LocalHandle`] and [`Guard`] of it is
/// one as well. Dropping the last one runs, or waits for, all that is still deferred, whichever thread
/// deferred it: it may block as long as these functions do. (Inside a deferred function it returns
/// at once, and a thread of the collector's runs them soon.)
#[derive(Clone)]
pub struct Collector {
    domain: Domain,
    /// So that programs compile which a change back to the original would not break: it is not
    /// unwind-safe there.
    _marker: PhantomData<Arc<NotUnwindSafe>>,
}

struct NotUnwindSafe(UnsafeCell<()>);

// SAFETY: it has nothing that could be accessed.
unsafe impl Sync for NotUnwindSafe {}

impl PartialEq for Collector {
    /// Whether both are handles of the same collector.
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
    /// A collector. Starts no thread.
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

    /// A participant of the calling thread, by which it pins itself.
    pub fn register(&self) -> LocalHandle {
        Local::register(self)
    }

    #[inline(always)]
    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }
}

/// What the original does not have.
#[cfg(feature = "reports")]
impl Collector {
    /// What the collector does and has done. Takes a lock a thread that has deferred something.
    pub fn statistics(&self) -> stillpoint::Statistics {
        self.domain.statistics()
    }

    /// Has `handler` told of each guard that has held up deferred functions for longer than the
    /// stall timeout: see [`Domain::on_stall`].
    pub fn on_stall(&self, handler: impl Fn(&stillpoint::StallReport) + Send + Sync + 'static) {
        self.domain.on_stall(handler);
    }

    /// How long that is; 10 seconds by default.
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
    /// For one that has been counted.
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

    /// Pins the thread. The first of the handle's guards is a sequentially consistent fence, and
    /// may run deferred functions.
    #[inline]
    pub fn pin(&self) -> Guard {
        // SAFETY: a participant of this thread, which the handle keeps.
        unsafe { Local::pin(self.local) }
    }

    /// Whether the handle has guards.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.local().is_pinned()
    }

    /// The collector.
    #[inline]
    pub fn collector(&self) -> &Collector {
        self.local().collector()
    }
}

impl Drop for LocalHandle {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: our own count; we use it no more.
        unsafe { Local::release_handle(self.local) };
    }
}

impl fmt::Debug for LocalHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("LocalHandle { .. }")
    }
}
