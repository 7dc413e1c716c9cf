//! What the child of a fork does with a cache whose queues another thread was changing.
//!
//! That thread is lost, and its lock with it. What the lock guarded is in the middle of a change, so
//! the child does not look at it: it leaks it, and begins anew, with the limit of the whole cache
//! and without tenants. Their views are views of the whole from then on, and what they have counted
//! is counted there: their handles are known apart from the queues. The entries are in the map
//! as before. The first thread that changes the cache finds them there, and links them again, as the
//! root's.
//!
//! Where no thread held the lock, the child has all as it was. A tenant that another thread was
//! deleting then, in batches, is deleted in the child by its service thread, for which the first
//! change asks.

use crate::{
    cache::Inner,
    node::{Id, Locked, NEVER},
    state::{Handles, State},
    tenant::Handle,
};
use crossbeam_utils::CachePadded;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use stillpoint::Guard;
use stillpoint_platform::{
    fork::ForkReset,
    sync::{Mutex, MutexGuard, lock, try_lock},
};

/// The service thread will not come: the next change asks for all that is due.
pub const LOST: u64 = NEVER - 1;

/// The queues and their lock.
#[derive(Debug)]
pub struct Shared {
    /// Apart from what readers of the cache read.
    state: CachePadded<Mutex<State>>,
    pub root: Arc<Handle>,
    /// The root's max, which is known also when the state is lost.
    pub max: AtomicU64,
    /// Those of all other views. Taken under the lock of the queues.
    handles: Mutex<Handles>,
    /// How many states were lost.
    generation: AtomicU64,
    /// When the service thread is to come; [`NEVER`] if it is not, or is there, [`LOST`] if what it
    /// was asked for has been lost.
    pub visit: AtomicU64,
}

impl Shared {
    pub fn new(max: u64) -> Self {
        let root = Handle::root();
        Self {
            state: CachePadded::new(Mutex::new(State::new(Arc::clone(&root), max, 0))),
            root,
            handles: Mutex::new(Handles::default()),
            max: AtomicU64::new(max),
            generation: AtomicU64::new(0),
            visit: AtomicU64::new(NEVER),
        }
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        if state.is_lost() {
            self.begin_anew(&mut state);
        }
        state
    }

    /// A tenant has been made. Under the lock of the queues.
    pub fn know(&self, handle: &Arc<Handle>) {
        lock(&self.handles).add(handle);
    }

    #[cold]
    fn begin_anew(&self, state: &mut State) {
        let generation = self.generation.load(Ordering::Relaxed);
        let max = self.max.load(Ordering::Relaxed);
        *state = State::new(Arc::clone(&self.root), max, generation);
        state.succeed_lost(&lock(&self.handles));
    }
}

impl ForkReset for Shared {
    unsafe fn reset_in_child(&self) {
        // The thread is gone: the next change asks for another.
        self.visit.store(LOST, Ordering::Relaxed);
        if let Some(mut state) = try_lock(&self.state) {
            state.lose_deletions();
        } else {
            self.generation.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the caller's promise; no user code runs under this lock.
            unsafe { self.state.reinit(State::lost()) };
            if try_lock(&self.handles).is_none() {
                // SAFETY: as above. A tenant was being made.
                unsafe { self.handles.reinit(Handles::default()) };
            }
        }
    }
}

impl<K, V, S> Inner<K, V, S> {
    /// Links all entries of the map, which no queue has.
    #[cold]
    pub fn adopt(&self, state: &mut State, section: &Guard<'_>) {
        state.orphans = false;
        // SAFETY: the lock is held; the entries are found in the section.
        let mut locked = unsafe { Locked::assume() };
        for found in self.store.iter(section) {
            state.adopt(&mut locked, Id::of(found));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Cache, Cause,
        node::{Id, Meta, NEVER, Node},
        state::State,
    };
    use stillpoint_platform::{fork::ForkReset, sync::lock};

    #[test]
    #[cfg_attr(miri, ignore = "a minute and a half")]
    fn a_child_of_a_thread_that_was_lost_goes_on_with_all_entries() {
        let max = 100;
        let cache: Cache<u64, u64> = Cache::builder().max_bytes(max).weigher(|_, _| 1).build();
        let tenant = cache.tenant("tenant");
        tenant.set_max(10);
        (0..max / 2).for_each(|key| cache.insert(key, key));
        (max / 2..max / 2 + 10).for_each(|key| tenant.insert(key, key));
        // What the handler does in a child, where the thread that held this is gone.
        std::mem::forget(cache.inner().shared.lock());
        // SAFETY: no other thread uses the cache.
        unsafe { cache.inner().shared.reset_in_child() };
        assert_eq!(cache.get(&7), Some(7));
        tenant.insert(max, 1);
        let entries = max / 2 + 11;
        assert_eq!((cache.entry_count(), cache.max_bytes()), (entries, max));
        assert_eq!(tenant.weighted_bytes(), entries, "a view of the whole");
        (2 * max..4 * max).for_each(|key| tenant.insert(key, key));
        assert_eq!(
            (cache.entry_count(), cache.iter().count() as u64),
            (max, max)
        );
        let again = cache.tenant("tenant");
        again.set_max(10);
        (4 * max..5 * max).for_each(|key| again.insert(key, key));
        assert_eq!(again.entry_count(), 10);
        cache.invalidate_all();
        assert_eq!(cache.iter().count(), 0);
    }

    /// As the fork handler does where a thread is lost that had the lock.
    fn lose(cache: &Cache<u64, u64>) {
        std::mem::forget(cache.inner().shared.lock());
        // SAFETY: no other thread uses the cache.
        unsafe { cache.inner().shared.reset_in_child() };
    }

    #[test]
    fn what_views_of_lost_tenants_count_is_counted_in_the_whole() {
        let cache: Cache<u64, u64> = Cache::builder().max_bytes(100).weigher(|_, _| 1).build();
        let counted = || (cache.statistics().hits, cache.statistics().misses);
        let tenant = cache.tenant("tenant");
        let (below, deleted) = (tenant.tenant("below"), tenant.tenant("deleted"));
        let views = [&cache, &tenant, &below, &deleted];
        let read = || {
            for view in views {
                assert_eq!((view.get(&1), view.get(&2)), (Some(1), None));
            }
        };
        cache.insert(1, 1);
        assert!(deleted.delete());
        read();
        assert_eq!(counted(), (4, 4));
        lose(&cache);
        assert_eq!(counted(), (4, 4));
        read();
        // Two states in succession.
        let again = cache.tenant("tenant");
        lose(&cache);
        assert_eq!((again.get(&1), again.get(&2)), (Some(1), None));
        read();
        for _ in 0..2 {
            assert_eq!(counted(), (13, 13));
            assert_eq!(tenant.statistics().hits, 13, "a view of the whole");
        }
        drop((tenant, below, deleted));
        assert_eq!(counted(), (13, 13));
    }

    /// What the handler finds where the thread was making a tenant.
    #[test]
    fn a_child_without_the_handles_goes_on() {
        let cache: Cache<u64, u64> = Cache::builder().max_bytes(100).weigher(|_, _| 1).build();
        let tenant = cache.tenant("tenant");
        std::mem::forget(lock(&cache.inner().shared.handles));
        lose(&cache);
        assert_eq!(tenant.get(&1), None);
        let again = cache.tenant("again");
        assert_eq!((again.get(&1), cache.statistics().misses), (None, 1));
    }

    #[test]
    fn a_deletion_whose_thread_is_lost_is_ended_by_the_service_thread() {
        let cache: Cache<u64, u64> = Cache::builder().max_bytes(500).weigher(|_, _| 1).build();
        let (tenant, other) = (cache.tenant("tenant"), cache.tenant("other"));
        (0..100).for_each(|key| tenant.insert(key, key));
        (100..110).for_each(|key| other.insert(key, key));
        let doomed = tenant.with_own(State::begin_delete).flatten();
        let doomed = doomed.expect("it is there");
        let drain = |batches| {
            let drain = |state: &mut State, locked: &mut _, claimed: &mut _| {
                state.drain(locked, doomed, claimed)
            };
            cache.in_some_batches(batches, drain, Cause::Removed)
        };
        assert!(drain(1));
        let next = || cache.with_state(|state| cache.inner().next_visit(state, NEVER));
        assert_eq!(next(), None);
        // SAFETY: no other thread uses the cache.
        unsafe { cache.inner().shared.reset_in_child() };
        assert!(next().is_some(), "the service thread is to come");
        assert!(!cache.end_abandoned_deletions());
        assert_eq!((cache.entry_count(), cache.statistics().removed), (10, 100));
        assert_eq!(cache.with_state(State::take_abandoned).map(drop), None);
        // Its number is another tenant's, which the thread that began it does not delete.
        let again = cache.tenant("again");
        (0..100).for_each(|key| again.insert(key, key));
        assert!(!drain(1));
        assert_eq!((again.entry_count(), other.entry_count()), (100, 10));
        assert!(again.delete());
    }

    /// The thread that was lost had replaced an entry in the map, and not in the queue. Another one had
    /// found the old entry before, which no queue of the child has.
    #[test]
    fn a_child_takes_nothing_for_linked_that_a_lost_thread_had_taken_out_of_the_map() {
        let cache: Cache<u64, u64> = Cache::builder().max_bytes(100).weigher(|_, _| 1).build();
        let tenant = cache.tenant("tenant");
        (0..3).for_each(|key| tenant.insert(key, key));
        let store = &cache.inner().store;
        let guard = store.read_lock();
        let old = cache.find(&1, &guard).expect("it is there");
        let meta = Meta::new(1, 0, NEVER, NEVER, false);
        let node = Node { value: 10, meta };
        let new = store.new_entry(old.hash(), 1, node, &guard);
        assert!(store.swap(old, new, &guard).is_ok());
        std::mem::forget(cache.inner().shared.lock());
        // SAFETY: no other thread uses the cache.
        unsafe { cache.inner().shared.reset_in_child() };
        let (mut state, mut locked) = cache.inner().lock(&guard);
        assert_eq!(state.tenant(0).entries(), 3);
        assert!(state.pin(&mut locked, Id::of(old), true));
        assert_eq!(
            (state.tenant(0).entries(), state.tenant(0).pinned_bytes),
            (3, 0)
        );
        drop(state);
        assert!(cache.claim(old, Cause::Removed, &guard));
        // SAFETY: taken out above.
        unsafe { store.retire_swapped(old, 0) };
        drop(guard);
        assert_eq!((cache.entry_count(), cache.get(&1)), (3, Some(10)));
        cache.insert(1, 11);
        assert_eq!((cache.entry_count(), cache.get(&1)), (3, Some(11)));
    }

    /// Its clone is where a thread forks, while another one changes the cache.
    struct Forks(Option<Box<dyn Fn() + Send + Sync>>);

    impl Clone for Forks {
        fn clone(&self) -> Self {
            self.0.iter().for_each(|fork| fork());
            Self(None)
        }
    }

    /// What an insert has claimed is out of the map before its listener's clones run: the child would
    /// link it again, and the insert, which goes on there, retires it.
    #[test]
    fn a_child_of_a_clone_links_nothing_that_the_insert_has_claimed() {
        for weight in [2, 4] {
            let cache: Cache<u64, Forks> = Cache::builder()
                .max_bytes(3)
                .weigher(move |&key, forks: &Forks| {
                    let is_second = key == 0 && forks.0.is_none();
                    if is_second { weight } else { 1 }
                })
                .eviction_listener(|_: &u64, _: &Forks, _| {})
                .build();
            let arc = std::sync::Arc::downgrade(cache.arc());
            let fork = move || {
                let inner = arc.upgrade().expect("in use");
                std::mem::forget(inner.shared.lock());
                // SAFETY: no other thread uses the cache.
                unsafe { inner.shared.reset_in_child() };
                drop(inner.lock(&inner.store.read_lock()));
            };
            cache.insert(0, Forks(Some(Box::new(fork))));
            (1..3).for_each(|key| cache.insert(key, Forks(None)));
            cache.insert(0, Forks(None));
            let there = cache.iter().count() as u64;
            assert_eq!((cache.entry_count(), there), (2, 2), "{weight}");
        }
    }

    /// It finds its own entry in the map, and links it with all others.
    #[test]
    fn the_first_insert_of_such_a_child_makes_room_once() {
        let cache: Cache<u64, u64> = Cache::builder()
            .max_bytes(11)
            .weigher(|_, &weight| weight)
            .build();
        (0..5).for_each(|key| cache.insert(key, 1));
        std::mem::forget(cache.inner().shared.lock());
        // SAFETY: no other thread uses the cache.
        unsafe { cache.inner().shared.reset_in_child() };
        cache.insert(5, 6);
        assert_eq!((cache.entry_count(), cache.weighted_bytes()), (6, 11));
    }
}
