//! A store: its tenants, its limit, its background thread.

use super::{
    config::{Config, ITEM_MAX},
    crawler::{self, Search, SearchStatistics},
    error::TenantError,
    fall::{self, Limit},
    lists::Evictor,
    maintenance::{self, Maintenance},
    requests::{StoreStatistics, TenantStatistics},
    shared::{Owner, Shared, TenantState, lock},
    tenant::Tenant,
};
use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex, Weak},
};
use stillpoint_lru::{CreateError, Hierarchy, Registration};

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

pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    tenants: Mutex<BTreeMap<Arc<str>, Tenant>>,
    maintenance: Option<Maintenance>,
    registered: Option<Registration>,
    /// Number of tenants beyond which the system seems to have no memory.
    #[cfg(test)]
    most_tenants: std::sync::atomic::AtomicUsize,
}

impl Inner {
    pub(super) fn all_tenants(&self) -> Vec<Tenant> {
        lock(&self.tenants).values().cloned().collect()
    }

    /// Whether only the background thread has it.
    pub(super) fn is_ending(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(maintenance) = self.maintenance.take() {
            maintenance.stop();
        }
        // Before the pool is emptied, as nothing is evicted afterwards.
        drop(self.registered.take());
        // Unreclaimed segments are freed now, and not with the last handle of a tenant.
        self.shared.pool.close();
    }
}

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
        let shared = Arc::new(Shared::new(config)?);
        let evictor = Arc::new(Evictor(Arc::clone(&shared.lists)));
        let registered = shared.hierarchy.register(evictor);
        let registered = registered.map_err(io::Error::other)?;
        let mut failed = None;
        let inner = Arc::new_cyclic(|inner: &Weak<Inner>| Inner {
            maintenance: Maintenance::start(&shared, inner.clone())
                .map_err(|error| failed = Some(error))
                .ok()
                .flatten(),
            shared,
            tenants: Mutex::default(),
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
        if tenants.len()
            >= self
                .0
                .most_tenants
                .load(std::sync::atomic::Ordering::Relaxed)
        {
            return Err(TenantError::OutOfMemory);
        }
        let memcg = self.0.shared.hierarchy.root().create();
        let memcg = memcg.map_err(|error| match error {
            CreateError::OutOfMemory => TenantError::OutOfMemory,
            _ => TenantError::NotFound,
        })?;
        let name: Arc<str> = name.into();
        let owner = Owner::new(Arc::clone(&name), Arc::clone(&self.0.shared), memcg);
        let state = TenantState::new(owner);
        let tenant = Tenant { state };
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
        if !state.sweep_soon() {
            maintenance::remove(&state);
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
        self.0.shared.now()
    }

    /// Returns its settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.0.shared.config
    }

    /// Returns the tree of tenants that segments and indexes are charged to, for a
    /// [`PressureWatch`](stillpoint_lru::PressureWatch), which shrinks the store when the system is
    /// short of memory. What that frees is given back to the system within a second.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.0.shared.hierarchy
    }

    /// Returns the limit of all segments and indexes, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.shared.limit()
    }

    /// Changes the limit. Evicts what is above it, and gives the memory back to the system before it
    /// returns. Waits for readers, at most some milliseconds for each step. Returns the bytes that are
    /// still above the limit: those that are pinned, protected or being read, or without eviction all.
    /// The background thread frees them later, if that becomes possible.
    ///
    /// Meanwhile no store of another thread is refused for it: the limit in force follows the usage down.
    pub fn set_limit(&self, bytes: u64) -> u64 {
        let shared = &self.0.shared;
        let lowered = bytes < self.limit();
        shared.ask_limit(bytes);
        if shared.ceiling.is_falling() {
            let tenants = self.0.all_tenants();
            fall::lower(shared, &[Limit::Store(shared, &tenants)], false, || false);
        }
        if lowered {
            shared.pool.empty();
        }
        shared.hierarchy.root().usage().saturating_sub(bytes)
    }

    /// Changes the limit as [`Store::set_limit`] does, but leaves the eviction to the background thread,
    /// which takes some tenths of a second and rests in between. Use it on a thread that serves others.
    /// Without a background thread, this call evicts.
    pub fn request_limit(&self, bytes: u64) {
        let lowered = bytes < self.limit();
        if !self.config().has_thread() {
            self.set_limit(bytes);
            return;
        }
        match lowered && !self.config().evict {
            // What holds is set there: that compacts.
            true => self.0.shared.note_limit(bytes),
            false => self.0.shared.ask_limit(bytes),
        }
        if lowered {
            self.0.shared.signal.lower();
        }
    }

    /// Evicts until `bytes` fewer are used, but not below the minima of tenants. Gives the memory back to
    /// the system, and spare memory as well. Returns by how many bytes the usage has fallen.
    pub fn shrink(&self, bytes: u64) -> u64 {
        let hierarchy = &self.0.shared.hierarchy;
        let usage = hierarchy.root().usage();
        let given = hierarchy.reclaim_to(usage.saturating_sub(bytes)).bytes;
        self.0.shared.pool.empty();
        given
    }

    /// Does the work of the background thread of one second on the calling thread: removes expired items,
    /// frees flushed memory, compacts sparse segments. For a store with a
    /// [`ManualClock`](super::ManualClock), which has no background thread.
    pub fn maintain(&self) {
        maintenance::run_once(&self.0, None);
    }

    /// Returns the settings of the search for expired items.
    #[must_use]
    pub fn search(&self) -> Search {
        self.0.shared.crawler.search()
    }

    /// Replaces the settings of the search for expired items, from the next pass on.
    pub fn set_search(&self, search: Search) {
        self.change_search(|now| *now = search);
    }

    /// Changes the settings of the search for expired items. `change` is called under a lock, so that no
    /// change of another thread is lost. It must not use the store.
    pub fn change_search<R>(&self, change: impl FnOnce(&mut Search) -> R) -> R {
        self.0.shared.crawler.change(change)
    }

    /// Asks the background thread to search all items for expired ones, even if it does not do so each
    /// second. Returns false if an earlier request is not finished yet. Without a background thread, this
    /// call searches.
    pub fn request_search(&self) -> bool {
        let shared = &self.0.shared;
        if !shared.crawler.ask() {
            return false;
        }
        if self.config().has_thread() {
            shared.signal.search();
        } else {
            crawler::search_all(&self.0, self.now(), |_| true);
        }
        true
    }

    /// Returns the counts of the search for expired items.
    #[must_use]
    pub fn search_statistics(&self) -> SearchStatistics {
        self.0.shared.crawler.statistics()
    }

    /// As [`Store::maintain`], by a thread that something else is asked of all the time.
    #[cfg(test)]
    pub(super) fn maintain_in_haste(&self) {
        let signal = maintenance::Signal::default();
        signal.lower();
        maintenance::run_once(&self.0, Some(&signal));
    }

    /// A part of a search that was asked for then, by such a thread. Returns whether it was the last.
    #[cfg(test)]
    pub(super) fn search_in_haste(&self, then: u32) -> bool {
        crawler::search_all(&self.0, then, |_| false)
    }

    /// Makes the system seem without memory for items, or not.
    #[cfg(test)]
    pub(super) fn refuse_memory(&self, refuse: bool) {
        self.0
            .shared
            .pool
            .refuse
            .store(refuse, std::sync::atomic::Ordering::Relaxed);
    }

    /// Makes the system seem without memory for more than `most` tenants.
    #[cfg(test)]
    pub(crate) fn refuse_tenants_beyond(&self, most: usize) {
        self.0
            .most_tenants
            .store(most, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns the figures. Visits all tenants.
    #[must_use]
    pub fn statistics(&self) -> StoreStatistics {
        let mut all = TenantStatistics::default();
        for tenant in &self.0.all_tenants() {
            all.add(&tenant.statistics());
        }
        self.statistics_with(all)
    }

    /// The same, for one that has looked at all tenants already and added their figures up.
    #[must_use]
    pub fn statistics_with(&self, all: TenantStatistics) -> StoreStatistics {
        StoreStatistics {
            limit: self.limit(),
            segment_bytes: self.0.shared.hierarchy.root().usage(),
            limbo_bytes: self.0.shared.unreclaimed(),
            spare_bytes: self.0.shared.pool.spare_bytes(),
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
