//! The callback for evicted items.

use std::{fmt, sync::Arc};
use stillpoint_platform::user_code;

/// An item that has been evicted to make room.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Evicted<'a> {
    /// Name of its tenant; empty for the default one.
    pub tenant: &'a str,
    /// Its key.
    pub key: &'a [u8],
    /// The length of its value, in bytes.
    pub len: usize,
    /// Whether a reader had asked for it.
    pub fetched: bool,
    /// The second in which it would have expired; 0 for never.
    pub exptime: u32,
    /// The second of its last use, or in which it was stored.
    pub last_access: u32,
}

/// A callback for each evicted item. It runs on the thread that evicts, inside a read-side critical
/// section of the global domain: it must be short, make no system call, and not use the store. A panic
/// in it is caught.
#[derive(Clone)]
pub struct OnEvict(Arc<dyn Fn(&Evicted<'_>) + Send + Sync>);

impl OnEvict {
    /// Creates the callback from a closure.
    pub fn new(hook: impl Fn(&Evicted<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }

    pub(super) fn call(&self, evicted: &Evicted<'_>) {
        // One that panics must not leave a segment half evicted.
        let _ = user_code::contained(|| (self.0)(evicted));
    }
}

impl fmt::Debug for OnEvict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnEvict").finish_non_exhaustive()
    }
}
