//! Limits and tenants, as a program sets them.

use crate::cache::Cache;
use std::{
    fs,
    hash::{BuildHasher, Hash},
    sync::{Arc, atomic::Ordering},
};

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the view of the tenant with this name below this one, which is made if there is
    /// none.
    #[must_use]
    pub fn tenant(&self, name: &str) -> Self {
        let handle = self.with_state(|state| state.child(self.handle(), name));
        self.view(handle)
    }

    /// The view of the tenant above; `None` for the whole cache.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        Some(self.view(Arc::clone(self.handle().parent.as_ref()?)))
    }

    /// The tenant's name; empty for the whole cache.
    #[must_use]
    pub fn tenant_name(&self) -> Arc<str> {
        Arc::clone(&self.handle().name)
    }

    /// Deletes the tenant and what it has. Returns false, and changes nothing, for the whole cache,
    /// for a tenant that has others below it, and for one that has been deleted.
    ///
    /// If entries or tenants are added to it meanwhile, it may stay, without the entries that it had:
    /// this returns false then, too.
    ///
    /// Through views of a deleted tenant, inserts and reads go to the one above. Limits that are set
    /// through them, [`invalidate_all`](Self::invalidate_all),
    /// [`invalidate_entries_if`](Self::invalidate_entries_if) and shrinkers do nothing.
    pub fn delete(&self) -> bool {
        let may_be = self.with_own(|state, number| state.is_leaf(number));
        if may_be != Some(true) {
            return false;
        }
        self.claim_all_of(self.handle());
        self.with_own(crate::state::State::delete) == Some(true)
    }

    /// What is never taken from the tenant for others, in bytes. 0 by default.
    pub fn set_min(&self, bytes: u64) {
        self.set_limits(|limits| limits.min = bytes);
    }

    /// What is taken from the tenant only if nothing else is left, in bytes. 0 by default.
    pub fn set_low(&self, bytes: u64) {
        self.set_limits(|limits| limits.low = bytes);
    }

    /// Above that, the tenant gives way before others, in bytes. `u64::MAX` by default.
    pub fn set_high(&self, bytes: u64) {
        self.set_limits(|limits| limits.high = bytes);
    }

    /// What the tenant and all below it may have, in bytes; evicts what is above it at once.
    /// `u64::MAX` by default.
    pub fn set_max(&self, bytes: u64) {
        self.set_limits(|limits| limits.max = bytes);
        // Nothing to do for a tenant that has been deleted.
        self.shrink_to(bytes);
    }

    /// What [`set_min`](Self::set_min) has set.
    #[must_use]
    pub fn min(&self) -> u64 {
        self.with_present(|state, number| state.tenant(number).limits.min)
    }

    /// What [`set_low`](Self::set_low) has set.
    #[must_use]
    pub fn low(&self) -> u64 {
        self.with_present(|state, number| state.tenant(number).limits.low)
    }

    /// What [`set_high`](Self::set_high) has set.
    #[must_use]
    pub fn high(&self) -> u64 {
        self.with_present(|state, number| state.tenant(number).limits.high)
    }

    /// What [`set_max`](Self::set_max) has set.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.with_present(|state, number| state.tenant(number).limits.max)
    }

    /// What the whole cache may have, in bytes.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.root().max()
    }

    /// Sets what the whole cache may have, in bytes; evicts what is above it at once.
    pub fn set_max_bytes(&self, bytes: u64) {
        self.root().set_max(bytes);
    }

    fn set_limits(&self, change: impl FnOnce(&mut crate::state::Limits)) {
        // `None`: it has been deleted, and the limits of the one above are not its own to change.
        let _ = self.with_own(|state, number| {
            state.set_limits(number, change);
            let max = state.tenant(crate::state::ROOT).limits.max;
            self.inner().shared.max.store(max, Ordering::Relaxed);
        });
    }
}

/// Half of what the container may use; a quarter of the machine's memory where it has no limit.
pub fn default_max() -> u64 {
    let container = container_max().map(|bytes| bytes / 2);
    container.unwrap_or_else(|| machine_memory().map_or(256 << 20, |bytes| bytes / 4))
}

/// The least `memory.max` of the process's control group and those above it (version 2).
fn container_max() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut path = std::path::Path::new("/sys/fs/cgroup").join(group);
    let mut least = None;
    while path.starts_with("/sys/fs/cgroup") {
        let max = fs::read_to_string(path.join("memory.max")).ok();
        let max = max.and_then(|max| max.trim().parse::<u64>().ok());
        least = least.into_iter().chain(max).min();
        path.pop();
    }
    least
}

fn machine_memory() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}
