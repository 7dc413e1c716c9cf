//! Settings of a store, the callback for evicted items, and limits of a tenant.

use super::clock::Clock;
use std::{fmt, sync::Arc};
use stillpoint_platform::user_code;

/// The longest key, in bytes: memcached's.
pub const KEY_MAX: usize = 250;

/// The most that [`Config::item_max`] can be.
pub const ITEM_MAX: usize = 1 << 30;

/// Settings of a [`Store`](super::Store).
///
/// ```
/// use stillpoint_server::store::Config;
/// let config = Config { limit: 1 << 30, evict: false, ..Config::default() };
/// assert_eq!(config.item_max, 1 << 20);
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    /// Limit in bytes of all segments and indexes together: memcached's `-m`. 64 MiB by default.
    pub limit: u64,
    /// The longest value, in bytes: memcached's `-I`. 1 MiB by default, at most [`ITEM_MAX`].
    pub item_max: usize,
    /// Whether items are evicted to make room. If not (memcached's `-M`), what does not fit is
    /// refused. True by default.
    pub evict: bool,
    /// What a tenant's pinned values may come to, in bytes: see
    /// [`Item::pin`](super::Item::pin). `None`, the default: 64 MiB, or an eighth of the tenant's
    /// max or of the store's limit if that is less. One value may always be pinned.
    pub pinned_max: Option<u64>,
    /// The clock that items expire by. With a manual one, the store has no background threads.
    pub clock: Clock,
    /// Called for each evicted item. None by default.
    pub on_evict: Option<OnEvict>,
}

impl Config {
    /// Whether there is a background thread.
    pub(super) fn has_thread(&self) -> bool {
        matches!(self.clock, Clock::System)
    }

    /// Returns whether items are evicted in the background to keep room. With a manual clock nothing
    /// happens in the background.
    pub(super) fn evicts_ahead(&self) -> bool {
        self.evict && self.has_thread()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limit: 64 << 20,
            item_max: 1 << 20,
            evict: true,
            pinned_max: None,
            clock: Clock::System,
            on_evict: None,
        }
    }
}

/// Limits of a tenant, in bytes of segments and index, as of [`stillpoint_lru::Tenant`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Usage up to which the tenant is never evicted for others. 0 by default.
    pub min: u64,
    /// Usage up to which the tenant is evicted for others only if nothing else is left. 0 by default.
    pub low: u64,
    /// Usage past which the tenant's items are evicted in the background. `u64::MAX` by default.
    pub high: u64,
    /// Largest usage that the tenant may have. `u64::MAX` by default.
    pub max: u64,
}

impl Limits {
    /// Creates limits of which only the max is set, to `bytes`.
    ///
    /// ```
    /// use stillpoint_server::store::Limits;
    /// let limits = Limits::max(1 << 20);
    /// assert_eq!((limits.min, limits.max), (0, 1 << 20));
    /// ```
    #[must_use]
    pub fn max(bytes: u64) -> Self {
        Self {
            max: bytes,
            ..Self::default()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            min: 0,
            low: 0,
            high: u64::MAX,
            max: u64::MAX,
        }
    }
}

/// An item that has been evicted to make room.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Evicted<'a> {
    /// Name of its tenant; empty for the default one.
    pub tenant: &'a str,
    /// The tenant's node of the hierarchy, by which it differs from another one of its name.
    #[cfg(not(stillpoint_loom))]
    pub memory: &'a stillpoint_lru::Tenant,
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
    /// The present second.
    pub now: u32,
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
