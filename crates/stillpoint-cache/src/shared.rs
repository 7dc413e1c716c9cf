//! The queues and their lock, which all views of a cache share.

use crate::{node::NEVER, state::State, tenant::Handle};
use crossbeam_utils::CachePadded;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use stillpoint_platform::{fork::ForkReset, fork_mutex::ForkMutex, sync::MutexGuard};

/// The time of a visit that the service thread does not know of: the next change asks for it again.
pub const FORGOTTEN: u64 = NEVER - 1;

/// The queues and their lock.
#[derive(Debug)]
pub struct Shared {
    /// Apart from what readers of the cache read.
    state: CachePadded<ForkMutex<State>>,
    pub root: Arc<Handle>,
    /// Time of the next visit by the service thread; [`NEVER`] if none is scheduled or one is under way, or
    /// [`FORGOTTEN`].
    pub visit: AtomicU64,
    /// Number of times that threads have begun to wait for the lock, or have taken it.
    #[cfg(test)]
    asked: AtomicU64,
}

impl Shared {
    pub fn new(max: u64) -> Self {
        let root = Handle::root();
        Self {
            state: CachePadded::new(ForkMutex::new(State::new(Arc::clone(&root), max))),
            root,
            visit: AtomicU64::new(NEVER),
            #[cfg(test)]
            asked: AtomicU64::new(0),
        }
    }

    /// Ends the process if a fork has removed the thread that held the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, State> {
        #[cfg(test)]
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.state.lock()
    }

    /// Returns how often threads have asked for the lock.
    #[cfg(test)]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Calls `start`, which starts a thread, and returns once a thread has asked for the lock.
    #[cfg(test)]
    pub fn until_asked<R>(&self, start: impl FnOnce() -> R) -> R {
        let before = self.asked();
        let started = start();
        while self.asked() == before {
            std::thread::yield_now();
        }
        started
    }

    /// As [`lock`](Self::lock), but `None` if a fork has removed the thread that held the lock.
    pub fn lock_unless_lost(&self) -> Option<MutexGuard<'_, State>> {
        self.state.lock_unless_lost()
    }

    /// Returns whether a fork has removed the thread that held the lock.
    pub fn is_lost(&self) -> bool {
        self.state.is_lost()
    }
}

impl ForkReset for Shared {
    unsafe fn reset_in_child(&self) {
        // The thread is gone: the next change asks for another.
        self.visit.store(FORGOTTEN, Ordering::Relaxed);
        // SAFETY: the caller's promise; no user code runs under this lock.
        unsafe { self.state.reset_in_child() };
    }
}

/// Waits until `condition` holds, as other threads make it do in the end.
#[cfg(test)]
#[track_caller]
pub fn eventually(condition: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(begun.elapsed().as_secs() < 120, "it has not come");
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use crate::Cache;
    use stillpoint_platform::fork::ForkReset;

    #[test]
    #[cfg_attr(miri, ignore = "memory is lost, as it is in a child")]
    fn a_child_that_has_lost_the_lock_reads_and_drops_the_cache() {
        let cache: Cache<u64, u64> = Cache::builder().max_entries(100).build();
        let tenant = cache.tenant("tenant");
        (0..50).for_each(|key| cache.insert(key, key));
        std::mem::forget(cache.inner.shared.lock());
        // SAFETY: no other thread uses the cache.
        unsafe { cache.inner.shared.reset_in_child() };
        assert_eq!((tenant.get(&7), tenant.get(&77)), (Some(7), None));
        assert_eq!(cache.iter().count(), 50);
        drop((cache, tenant));
    }
}
