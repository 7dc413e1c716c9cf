//! Limits and tenants, as a program sets them.

use crate::{cache::Cache, node::NEVER, removal::Cause, state::State};
use std::{
    hash::{BuildHasher, Hash},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the view of the tenant with this name below this one, which is made if there is
    /// none. Evicts nothing: the memory of a tenant beside its entries counts against no limit
    /// (see [Costs](Self#costs)).
    #[must_use]
    pub fn tenant(&self, name: &str) -> Self {
        let handle = self.with_state(|state| state.child(&self.handle, name));
        self.view(handle)
    }

    /// Returns the view of the tenant above; `None` for the whole cache.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        Some(self.view(Arc::clone(self.handle.parent.as_ref()?)))
    }

    /// Returns the tenant's name; empty for the whole cache.
    #[must_use]
    pub fn tenant_name(&self) -> Arc<str> {
        Arc::clone(&self.handle.name)
    }

    /// Deletes the tenant and what it has. Returns false, and changes nothing, for the whole cache,
    /// for a tenant that has others below it, and for one that has been deleted.
    ///
    /// Its views are views of the one above from the beginning: what other threads and the listener
    /// insert through them meanwhile belongs to that, also in place of an entry that it still has. Its
    /// entries go in batches, between which other threads have the lock.
    ///
    /// Through views of a deleted tenant, inserts and reads go to the one above. Limits that are set
    /// through them, [`invalidate_all`](Self::invalidate_all),
    /// [`invalidate_entries_if`](Self::invalidate_entries_if) and shrinkers do nothing. What the tenant
    /// has counted, and what is looked up, loaded and refused through its views from then on, is in the
    /// [statistics](Self::statistics) of the one above.
    pub fn delete(&self) -> bool {
        let doomed = self.with_own(State::begin_delete).flatten();
        doomed.is_some_and(|doomed| {
            self.in_batches(usize::MAX, Cause::Removed, |state, locked, claimed| {
                state.drain(locked, doomed, claimed)
            });
            true
        })
    }

    /// Returns whether the tenant has been [deleted](Self::delete): never for a whole cache.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        // Relaxed: no other data depends on it.
        self.handle.deleted.load(Ordering::Relaxed)
    }

    /// Sets the bytes that are never taken from the tenant for others. 0 by default.
    pub fn set_min(&self, bytes: u64) {
        self.set_limits(|limits| limits.min = bytes);
    }

    /// Sets the bytes that are taken from the tenant only if nothing else is left. 0 by default.
    pub fn set_low(&self, bytes: u64) {
        self.set_limits(|limits| limits.low = bytes);
    }

    /// Sets the bytes above which the tenant gives way before others, and above which a service thread evicts
    /// in the background. No insert waits for that. `u64::MAX` by default.
    pub fn set_high(&self, bytes: u64) {
        self.set_limits(|limits| limits.high = bytes);
    }

    /// Sets the most bytes that the tenant and all below it may have, and evicts what is above that.
    /// `u64::MAX` by default.
    pub fn set_max(&self, bytes: u64) {
        self.set_limits(|limits| {
            if self.handle.parent.is_none()
                && let Some(follows) = self.follows()
            {
                follows.store(false, Ordering::Relaxed);
            }
            limits.max = bytes;
        });
        let above = self.weighted_bytes().saturating_sub(bytes);
        // Nothing to do for a tenant that has been deleted.
        if above > 0 {
            self.shrinking(Some(above), || self.shrink_to(bytes));
        }
    }

    /// Returns the min of the tenant: see [`set_min`](Self::set_min).
    #[must_use]
    pub fn min(&self) -> u64 {
        self.with_present(|state, number| state.tenant(number).limits.min)
    }

    /// Returns the low of the tenant: see [`set_low`](Self::set_low).
    #[must_use]
    pub fn low(&self) -> u64 {
        self.with_present(|state, number| state.tenant(number).limits.low)
    }

    /// Returns the high limit of the tenant: see [`set_high`](Self::set_high).
    #[must_use]
    pub fn high(&self) -> u64 {
        self.with_present(|state, number| state.tenant(number).limits.high)
    }

    /// Returns the max of the tenant: see [`set_max`](Self::set_max).
    #[must_use]
    pub fn max(&self) -> u64 {
        self.with_present(|state, number| state.tenant(number).limits.max)
    }

    /// Returns the limit of the whole cache, in its unit.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.root().max()
    }

    /// Sets the limit of the whole cache, in its unit, and evicts what is above it. A cache that has followed
    /// its container's limit until then no longer does.
    pub fn set_max_bytes(&self, bytes: u64) {
        self.root().set_max(bytes);
    }

    /// As [`set_max_bytes`](Self::set_max_bytes), for a limit of the container, unless the program
    /// has set one. Evicts nothing.
    pub(crate) fn set_max_of_container(&self, bytes: u64) {
        let root = self.root();
        root.set_limits(|limits| {
            // Under the lock, where the program's own changes it.
            if root
                .follows()
                .is_some_and(|follows| follows.load(Ordering::Relaxed))
            {
                limits.max = bytes;
            }
        });
    }

    /// Returns the flag that says whether the cache follows the limit of its container.
    fn follows(&self) -> Option<&AtomicBool> {
        Some(&self.inner.settings.container.as_ref()?.follows)
    }

    fn set_limits(&self, change: impl FnOnce(&mut crate::state::Limits)) {
        // `None`: it has been deleted, and the limits of the one above are not its own to change.
        let visit = self.with_own(|state, number| {
            state.set_limits(number, change);
            self.inner.next_visit(state, NEVER)
        });
        self.inner.ask_for_visit(visit.flatten());
    }
}
