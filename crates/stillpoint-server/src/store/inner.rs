//! A store without its interface: its tenants, and what is there once for all of them.

use super::{
    background::{
        search::Crawler,
        signal::{Signal, Thread},
    },
    common::Common,
    state::TenantState,
    tenant::Tenant,
    unfinished::Waiting,
};
use crate::lock::lock;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use stillpoint_lru::Registration;

/// What handles of a store refer to.
pub struct Inner {
    pub common: Arc<Common>,
    pub tenants: Mutex<BTreeMap<Arc<str>, Tenant>>,
    /// Work for the background thread that does not wait for the next second.
    pub signal: Arc<Signal>,
    pub crawler: Crawler,
    /// Values of all tenants that are arriving.
    pub waiting: Arc<Waiting>,
    pub thread: Option<Thread>,
    pub registered: Option<Registration>,
    /// Number of tenants beyond which the system seems to have no memory.
    #[cfg(test)]
    pub most_tenants: std::sync::atomic::AtomicUsize,
}

impl Inner {
    /// Returns all tenants, in the order of their names.
    pub fn states(&self) -> Vec<Arc<TenantState>> {
        let tenants = lock(&self.tenants);
        let states = tenants.values().map(|tenant| Arc::clone(&tenant.state));
        states.collect()
    }

    /// Returns whether only the background thread has it.
    pub fn is_ending(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.stop();
        }
        // Before the pool is emptied, as nothing is evicted afterwards.
        drop(self.registered.take());
        // Unreclaimed segments are freed now, and not with the last handle of a tenant.
        self.common.pool.close();
    }
}
