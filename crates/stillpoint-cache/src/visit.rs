//! The work of the [service thread](crate::service) in a cache, and its times.

use crate::{
    cache::{Cache, Inner},
    clock::Clock,
    container::Container,
    memory::PAUSE,
    node::NEVER,
    removal::Cause,
    remove::give_way,
    service::{self, GAP},
    shared::FORGOTTEN,
    state::{For, ROOT, State},
    watcher::{Visited, Watcher},
};
use std::{
    hash::{BuildHasher, Hash},
    sync::{Arc, Weak, atomic::Ordering},
};
use stillpoint_platform::{
    clock::{self, Nanos},
    sync::MutexGuard,
};

/// Number of batches of each kind in a visit, for which other caches wait.
const BATCHES: usize = 64;

/// A part of what a cache has goes when its container is short of memory: an eighth.
const PRESSED: u64 = 8;

impl<K, V, S> Inner<K, V, S> {
    /// Releases the lock of the queues after a change, and asks for the visit that the change makes necessary.
    #[inline(always)]
    pub fn unlock(&self, state: MutexGuard<'_, State>, expires: u64) {
        let visit = self.next_visit(&state, expires);
        drop(state);
        self.ask_for_visit(visit);
    }

    /// Returns the time of the visit that a change makes necessary, if any: an entry that expires, or a
    /// tenant that is above its high limit or has tables that are too large. Under the lock of the queues.
    pub fn next_visit(&self, state: &State, expires: u64) -> Option<Nanos> {
        let visit = &self.shared.visit;
        let before = visit.load(Ordering::Relaxed);
        let follows = || {
            let container = self.settings.container.as_ref();
            container.is_some_and(|it| it.follows.load(Ordering::Relaxed))
        };
        let at = if state.has_work() || before == FORGOTTEN && follows() {
            0
        } else if !matches!(self.settings.clock, Clock::Monotonic) {
            NEVER
        } else if before == FORGOTTEN {
            expires.min(state.next_due().unwrap_or(NEVER))
        } else {
            expires
        };
        (at < before).then(|| {
            visit.store(at, Ordering::Relaxed);
            at
        })
    }

    /// Asks for a visit, if there is to be one. Outside of locks.
    #[inline]
    pub fn ask_for_visit(&self, at: Option<Nanos>) {
        if let Some(at) = at {
            self.ask_at(at);
        }
    }

    #[cold]
    fn ask_at(&self, at: Nanos) {
        let asked = self.visited.get().is_some_and(|own| service::ask(own, at));
        if !asked {
            self.shared.visit.store(FORGOTTEN, Ordering::Relaxed);
        }
    }
}

impl<K, V, S> Visited for Inner<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn visit(self: Arc<Self>, watcher: &mut Watcher<'_>) -> Option<Nanos> {
        let handle = Arc::clone(&self.shared.root);
        let cache = Cache {
            inner: self,
            handle,
        };
        let inner = &cache.inner;
        if inner.shared.is_lost() {
            // In the child of a fork: asked for by the arena, which still works.
            return None;
        }
        // What is asked for from now on comes before the end of this, or leads to another visit.
        cache.with_state(|_| inner.shared.visit.store(NEVER, Ordering::Relaxed));
        let mut again = false;
        if matches!(inner.settings.clock, Clock::Monotonic) {
            let now = inner.settings.clock.now();
            again |= cache.in_batches(BATCHES, Cause::Expired, |state, locked, claimed| {
                state.expire(locked, now, claimed)
            });
        }
        again |= cache.in_batches(BATCHES, Cause::Evicted, State::reclaim_high);
        let (looks, more) = cache.follow_container(watcher);
        again |= more;
        again |= cache.trim_oversized(BATCHES);
        let compact = cache.compact();
        let now = clock::now();
        let settle = inner.memory.settle(now);
        cache.with_state(|state| {
            let due = match inner.settings.clock {
                Clock::Monotonic => state.next_due(),
                Clock::Manual(_) => None,
            };
            let next = due
                .map(|due| due.max(now + GAP))
                .into_iter()
                .chain(looks)
                .chain(compact)
                .chain(settle)
                .min();
            let next = if again { Some(now) } else { next };
            if let Some(next) = next {
                inner.shared.visit.fetch_min(next, Ordering::Relaxed);
            }
            next
        })
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Makes the cache known to the service thread.
    pub(crate) fn be_visited(&self) {
        let own: Weak<Inner<K, V, S>> = Arc::downgrade(&self.inner);
        if let Some(arena) = &self.inner.memory.arena {
            let own: Weak<dyn Visited> = own.clone();
            arena.on_scattered(move || service::ask(&own, clock::now() + PAUSE));
        }
        let _ = self.inner.visited.set(own);
        if self.inner.settings.container.is_some() {
            self.inner.ask_for_visit(Some(0));
        }
    }

    /// Makes tables smaller that are too large: some parts, between which other threads have the lock.
    /// Returns whether there is more.
    pub(crate) fn trim_oversized(&self, parts: usize) -> bool {
        for _ in 0..parts {
            if self.with_state(State::trim_oversized).is_none() {
                return false;
            }
            give_way();
        }
        true
    }

    /// Looks at the container's limit and events, and evicts what they ask for: some batches. Returns
    /// when to look again, and whether there is more to evict.
    fn follow_container(&self, watcher: &mut Watcher<'_>) -> (Option<Nanos>, bool) {
        let Some(container) = &self.inner.settings.container else {
            return (None, false);
        };
        let heard = container.events();
        if container.follows.load(Ordering::Relaxed) {
            // First: what changes from now on leads to another look.
            watcher.hear(&heard);
        }
        let Some(looks) = container.look() else {
            return (None, false);
        };
        let (root, mut asked) = (self.root(), 0);
        if let Some(max) = looks.max {
            root.set_max_of_container(max);
            asked += root.weighted_bytes().saturating_sub(root.max());
        }
        if looks.is_pressed {
            let bytes = root.weighted_bytes();
            let part = bytes - bytes / PRESSED;
            container.goal.fetch_min(part, Ordering::Relaxed);
            asked += bytes - part;
        }
        let goal = container.goal.load(Ordering::Relaxed);
        let is_shrinking = goal != u64::MAX || root.weighted_bytes() > root.max();
        let again = if is_shrinking {
            root.shrinking(Some(asked), || self.shrink_for_container(container, goal))
        } else {
            false
        };
        // At once where another group has the least limit by now: that is to be heard.
        let is_heard = container.events() == heard;
        let pause = if is_heard { container.every } else { 0 };
        (Some(clock::now() + pause), again)
    }

    /// Evicts what is above the limit, and above the goal: some batches. Returns whether there is more.
    fn shrink_for_container(&self, container: &Container, goal: u64) -> bool {
        // Whatever it is by now: the program may have set one.
        let mut again = self.in_batches(BATCHES, Cause::Evicted, |state, locked, claimed| {
            state.shrink(locked, (ROOT, state.max()), For::Limit, claimed)
        });
        if goal != u64::MAX {
            let more = self.in_batches(BATCHES, Cause::Evicted, |state, locked, claimed| {
                state.shrink(locked, (ROOT, goal), For::Pressure, claimed)
            });
            if !more {
                container.goal.store(u64::MAX, Ordering::Relaxed);
            }
            again |= more;
        }
        again
    }
}

#[cfg(all(test, not(miri), not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{clock::ManualClock, shared::eventually};
    use std::time::Duration;

    const ENTRIES: u64 = 1 << 16;

    fn empty() -> Cache<u64, u64> {
        let builder = Cache::builder().max_entries(ENTRIES);
        builder.build()
    }

    fn filled() -> Cache<u64, u64> {
        let cache = empty();
        (0..ENTRIES).for_each(|key| cache.insert(key, key));
        assert!(room(&cache) >= ENTRIES as usize);
        cache
    }

    /// Returns the number of entries that the tenant has counters for.
    fn room(cache: &Cache<u64, u64>) -> usize {
        cache.with_present(|state, number| state.tenant(number).policy.room())
    }

    fn becomes_small(cache: &Cache<u64, u64>) {
        eventually(|| room(cache) <= ENTRIES as usize / 8);
    }

    #[test]
    fn tables_go_with_the_entries_that_they_are_for() {
        let cache = filled();
        cache.invalidate_all();
        becomes_small(&cache);

        let cache = filled();
        (0..ENTRIES - 10).for_each(|key| assert!(cache.remove(&key)));
        becomes_small(&cache);

        let cache = filled();
        (0..ENTRIES).for_each(|key| assert!(cache.pin(&key)));
        becomes_small(&cache);

        let cache = Cache::builder().max_entries(ENTRIES);
        let cache = cache.time_to_live(Duration::from_millis(300)).build();
        (0..ENTRIES).for_each(|key| cache.insert(key, key));
        becomes_small(&cache);
    }

    /// The thread finds nothing due by such a clock, and is not to come for that: the insert asks.
    #[test]
    fn tables_go_with_entries_that_an_insert_has_found_expired() {
        let time = ManualClock::default();
        let cache = Cache::builder().max_entries(ENTRIES);
        let cache = cache.time_to_live(Duration::from_secs(1));
        let cache = cache.clock(time.clone()).build();
        (0..ENTRIES).for_each(|key| cache.insert(key, key));
        time.advance(Duration::from_secs(2));
        let is_trimmed = || room(&cache) < ENTRIES as usize;
        assert!(!is_trimmed());
        // No insert comes after the one that finds the last that are too many.
        for key in ENTRIES.. {
            cache.insert(key, key);
            if is_trimmed() || cache.with_state(|state| state.has_work()) {
                break;
            }
            assert!(key < 2 * ENTRIES, "it has expired nothing");
        }
        eventually(is_trimmed);
    }

    #[test]
    fn tables_go_with_entries_that_another_tenant_has_displaced() {
        let cache = empty();
        let [old, new] = ["old", "new"].map(|name| cache.tenant(name));
        (0..ENTRIES).for_each(|key| old.insert(key, key));
        assert!(room(&old) >= ENTRIES as usize);
        // What `new` is promised, it takes.
        new.set_min(ENTRIES);
        (ENTRIES..2 * ENTRIES).for_each(|key| new.insert(key, key));
        becomes_small(&old);
    }
}
