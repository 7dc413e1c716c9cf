//! A store: its tenants, its limit, its background thread.

use super::{
    background::{
        self,
        limits::{self, Falling},
        search::{Crawler, Search, SearchStatistics, search_all},
        signal::Signal,
    },
    common::{Common, Owner},
    config::{Config, ITEM_MAX},
    error::TenantError,
    inner::Inner,
    lists::Evictor,
    requests::{StoreStatistics, TenantStatistics},
    state::TenantState,
    tenant::Tenant,
};
use crate::lock::lock;
use std::{
    fmt, io,
    sync::{Arc, Mutex, Weak, atomic::Ordering},
};
use stillpoint_lru::{CreateError, Hierarchy};

/// Items of tenants, in memory. Clones are handles of the same store, which ends with the last one:
/// after that its tenants evict nothing.
///
/// A process with a store may fork only to run another program: the child has no background thread, and
/// its other threads may have held locks, which stay locked.
///
/// ```
/// use stillpoint_server::store::{Condition, Config, Mode, Store};
/// let store = Store::new(Config::default())?;
/// let tenant = store.tenant("")?;
/// tenant.set(b"key", 0, 0, b"value", Mode::Set, Condition::default())?;
/// assert_eq!(tenant.get(b"key", |item| item.value().to_vec()).as_deref(), Some(&b"value"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Store(Arc<Inner>);

impl Store {
    /// Creates a store with the default tenant, whose name is empty. With the system's clock it has a
    /// background thread, which handles expiry, flushes and sparse segments each second.
    ///
    /// # Errors
    ///
    /// If the system has no address space, memory or thread for it; for a [`Config::item_max`] of
    /// more than [`ITEM_MAX`].
    pub fn new(config: Config) -> io::Result<Self> {
        if config.item_max > ITEM_MAX {
            // Lengths inside a segment have 32 bits.
            let error = format!(
                "item_max is {} bytes; set it to {ITEM_MAX} at most",
                config.item_max
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let common = Arc::new(Common::new(config)?);
        let evictor = Arc::new(Evictor(Arc::clone(&common.lists)));
        let registered = common.hierarchy.register(evictor);
        let registered = registered.map_err(io::Error::other)?;
        let has_thread = common.config.has_thread();
        let signal = Arc::new(Signal::new(has_thread));
        let mut failed = None;
        let inner = Arc::new_cyclic(|inner: &Weak<Inner>| Inner {
            thread: has_thread
                .then(|| background::start(&signal, inner.clone()))
                .and_then(|started| started.map_err(|error| failed = Some(error)).ok()),
            common,
            tenants: Mutex::default(),
            signal,
            crawler: Crawler::default(),
            waiting: Arc::default(),
            registered: Some(registered),
            #[cfg(test)]
            most_tenants: usize::MAX.into(),
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let store = Self(inner);
        store.create_tenant("").map_err(io::Error::other)?;
        Ok(store)
    }

    /// Returns the tenant of that name; the default one's is empty.
    ///
    /// # Errors
    ///
    /// [`TenantError::NotFound`].
    pub fn tenant(&self, name: &str) -> Result<Tenant, TenantError> {
        let tenants = lock(&self.0.tenants);
        tenants.get(name).cloned().ok_or(TenantError::NotFound)
    }

    /// Creates a tenant, without limits of its own. An empty one takes some two KiB.
    ///
    /// # Errors
    ///
    /// [`TenantError::Exists`], [`TenantError::OutOfMemory`].
    pub fn create_tenant(&self, name: &str) -> Result<Tenant, TenantError> {
        let mut tenants = lock(&self.0.tenants);
        if tenants.contains_key(name) {
            return Err(TenantError::Exists);
        }
        #[cfg(test)]
        if tenants.len() >= self.0.most_tenants.load(Ordering::Relaxed) {
            return Err(TenantError::OutOfMemory);
        }
        let memcg = self.0.common.hierarchy.root().create();
        let memcg = memcg.map_err(|error| match error {
            CreateError::OutOfMemory => TenantError::OutOfMemory,
            _ => TenantError::NotFound,
        })?;
        let name: Arc<str> = name.into();
        let owner = Owner::new(Arc::clone(&name), Arc::clone(&self.0.common), memcg);
        let state = TenantState::new(owner, Arc::clone(&self.0.waiting));
        let signal = Arc::clone(&self.0.signal);
        let tenant = Tenant { state, signal };
        tenants.insert(name, tenant.clone());
        Ok(tenant)
    }

    /// Deletes a tenant and its items. Handles stay valid: they find nothing, and store nothing. The
    /// memory is freed in the background, if there is such a thread.
    ///
    /// # Errors
    ///
    /// [`TenantError::NotFound`], [`TenantError::Default`].
    pub fn delete_tenant(&self, name: &str) -> Result<(), TenantError> {
        if name.is_empty() {
            return Err(TenantError::Default);
        }
        let state = {
            let mut tenants = lock(&self.0.tenants);
            let state = tenants.remove(name).ok_or(TenantError::NotFound)?.state;
            // Before another one of that name is made, which begins behind its CAS values.
            state.owner.delete();
            state
        };
        state.flush_deleted();
        if !self.0.signal.sweep(&state) {
            background::remove(&state);
        }
        Ok(())
    }

    /// Returns the names of all tenants, in order. The first is the default one's.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        lock(&self.0.tenants).keys().cloned().collect()
    }

    /// Returns the second by the store's clock, by which items expire.
    #[must_use]
    pub fn now(&self) -> u32 {
        self.0.common.now()
    }

    /// Returns its settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.0.common.config
    }

    /// Returns the tree of tenants that segments and indexes are charged to, for a
    /// [`PressureWatch`](stillpoint_lru::PressureWatch), which shrinks the store when the system is
    /// short of memory. What that frees is given back to the system within a second.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.0.common.hierarchy
    }

    /// Returns the limit of all segments and indexes, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.common.limit.max()
    }

    /// Changes the limit. Evicts what is above it, and gives the memory back to the system before it
    /// returns. Waits for readers, at most some milliseconds for each step. Returns the bytes that are
    /// still above the limit: those that are pinned, protected or being read, or without eviction all.
    /// The background thread frees them later, if that becomes possible.
    ///
    /// Meanwhile no store of another thread is refused for it: the limit in force follows the usage down.
    pub fn set_limit(&self, bytes: u64) -> u64 {
        let common = &self.0.common;
        let lowered = bytes < self.limit();
        if common.ask_limit(bytes, false) {
            let falling = Falling {
                limit: &common.limit,
                tenants: &self.0.states(),
            };
            limits::lower(common, &[falling], None);
        }
        if lowered {
            common.pool.empty();
        }
        common.hierarchy.root().usage().saturating_sub(bytes)
    }

    /// Changes the limit as [`Store::set_limit`] does, but leaves the eviction to the background thread,
    /// which takes some tenths of a second and rests in between. Use it on a thread that serves others.
    /// Without a background thread, this call evicts.
    pub fn request_limit(&self, bytes: u64) {
        if !self.config().has_thread() {
            self.set_limit(bytes);
        } else if self.0.common.ask_limit(bytes, true) {
            self.0.signal.lower();
        }
    }

    /// Evicts until `bytes` fewer are used, but not below the minima of tenants. Gives the memory back to
    /// the system, and spare memory as well. Returns by how many bytes the usage has fallen.
    pub fn shrink(&self, bytes: u64) -> u64 {
        let hierarchy = &self.0.common.hierarchy;
        let usage = hierarchy.root().usage();
        let given = hierarchy.reclaim_to(usage.saturating_sub(bytes)).bytes;
        self.0.common.pool.empty();
        given
    }

    /// Does the work of the background thread of one second on the calling thread: removes expired items,
    /// frees flushed memory, compacts sparse segments. For a store with a
    /// [`ManualClock`](super::ManualClock), which has no background thread.
    pub fn maintain(&self) {
        background::pass(&self.0, None);
    }

    /// Returns the settings of the search for expired items.
    #[must_use]
    pub fn search(&self) -> Search {
        *lock(&self.0.crawler.search)
    }

    /// Replaces the settings of the search for expired items, from the next pass on.
    pub fn set_search(&self, search: Search) {
        self.change_search(|now| *now = search);
    }

    /// Changes the settings of the search for expired items. `change` is called under a lock, so that no
    /// change of another thread is lost. It must not use the store.
    pub fn change_search<R>(&self, change: impl FnOnce(&mut Search) -> R) -> R {
        change(&mut lock(&self.0.crawler.search))
    }

    /// Asks the background thread to search all items for expired ones, even if it does not do so each
    /// second. Returns false if an earlier request is not finished yet. Without a background thread, this
    /// call searches.
    pub fn request_search(&self) -> bool {
        let crawler = &self.0.crawler;
        // Needs no partner: the pass itself is asked for under a lock.
        if crawler.asked.swap(true, Ordering::Relaxed) {
            return false;
        }
        crawler.passes.fetch_add(1, Ordering::Relaxed);
        if self.config().has_thread() {
            self.0.signal.search();
        } else {
            self.search_all(self.now(), true);
        }
        true
    }

    /// Searches all, or if not `whole` a part. Returns whether it was the last.
    fn search_all(&self, then: u32, whole: bool) -> bool {
        search_all(&self.0.crawler, &self.0.states(), then, |_| whole)
    }

    /// Returns the counts of the search for expired items.
    #[must_use]
    pub fn search_statistics(&self) -> SearchStatistics {
        let crawler = &self.0.crawler;
        let is_asked = crawler.asked.load(Ordering::Relaxed);
        SearchStatistics {
            is_running: is_asked || crawler.running.load(Ordering::Relaxed) > 0,
            passes: crawler.passes.load(Ordering::Relaxed),
        }
    }

    /// Like [`Store::maintain`], with a turn that ends after `turn`. If `is_asked`, another request waits all the
    /// time.
    #[cfg(test)]
    pub(super) fn maintain_in(&self, turn: std::time::Duration, is_asked: bool) {
        let signal = Signal::new(true);
        if is_asked {
            signal.lower();
        }
        let turn = background::signal::Turn {
            signal: &signal,
            ends: std::time::Instant::now() + turn,
            is_ending: &|| false,
        };
        background::pass(&self.0, Some(turn));
    }

    /// A part of a search that was asked for then, by such a thread. Returns whether it was the last.
    #[cfg(test)]
    pub(super) fn search_in_haste(&self, then: u32) -> bool {
        self.search_all(then, false)
    }

    /// Makes the system seem without memory for items, or not.
    #[cfg(test)]
    pub(super) fn refuse_memory(&self, refuse: bool) {
        let pool = &self.0.common.pool;
        pool.refuse.store(refuse, Ordering::Relaxed);
    }

    /// Makes the system seem without memory for more than `most` tenants.
    #[cfg(test)]
    pub(crate) fn refuse_tenants_beyond(&self, most: usize) {
        self.0.most_tenants.store(most, Ordering::Relaxed);
    }

    /// Returns the figures. Visits all tenants.
    #[must_use]
    pub fn statistics(&self) -> StoreStatistics {
        let mut all = TenantStatistics::default();
        let tenants: Vec<_> = lock(&self.0.tenants).values().cloned().collect();
        for tenant in &tenants {
            all.add(&tenant.statistics());
        }
        self.statistics_with(all)
    }

    /// The same, for one that has looked at all tenants already and added their figures up.
    #[must_use]
    pub fn statistics_with(&self, all: TenantStatistics) -> StoreStatistics {
        StoreStatistics {
            limit: self.limit(),
            segment_bytes: self.0.common.hierarchy.root().usage(),
            limbo_bytes: self.0.common.unreclaimed(),
            spare_bytes: self.0.common.pool.spare_bytes(),
            tenants: lock(&self.0.tenants).len() as u64,
            all,
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}
