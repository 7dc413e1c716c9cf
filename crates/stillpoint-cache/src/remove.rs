//! What takes entries out, and what keeps them from being taken.

use crate::{
    cache::{Cache, Pinned, Presence},
    listener::Notes,
    node::{Id, Locked, NEVER, Node},
    put::owned,
    removal::Cause,
    service,
    state::{Claimed, For, ROOT, State},
    tenant::Handle,
};
use std::{
    hash::{BuildHasher, Hash},
    sync::Arc,
    thread,
    time::Duration,
};
use stillpoint_map::{Equivalent, internal::Found};
use stillpoint_platform::clock;

/// Pauses between two holds of the lock by a thread that does nothing else meanwhile. The release wakes a
/// thread that waits for the lock, but that gets it only if it is still free by then.
pub fn give_way() {
    thread::sleep(Duration::from_micros(50));
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Removes an entry. Returns whether there was one. What a load of the key that is under way
    /// returns is not kept: see [`get_with`](Self::get_with).
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// struct Page(usize); // no `Clone`
    ///
    /// let pages = Cache::builder().max_entries(100).build();
    /// pages.insert("/".to_owned(), Page(3));
    /// assert!(pages.remove("/") && !pages.remove("/"));
    /// ```
    #[doc(alias = "invalidate")]
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.remove_with(key, |_| ()).is_some()
    }

    /// As [`remove`](Self::remove), and returns a clone of the value: readers may have the value itself.
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let cache: Cache<u64, u64> = Cache::with_entries(100);
    /// cache.insert(1, 2);
    /// assert_eq!((cache.take(&1), cache.take(&1)), (Some(2), None));
    /// ```
    pub fn take<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        V: Clone,
    {
        self.remove_with(key, V::clone)
    }

    fn remove_with<Q, R>(&self, key: &Q, of: impl FnOnce(&V) -> R) -> Option<R>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // First: either the load finds that it is outdated, or its entry is found here.
        self.outdate_load(key);
        let mut notes = self.inner.notes();
        let store = &self.inner.section();
        loop {
            let found = self.find(key, store)?;
            if let Some(presence) = self.take_found(found, store, &mut notes) {
                return (presence == Presence::Found).then(|| of(&found.get().value.value));
            }
        }
    }

    /// Pins the entry of a key: it is not evicted, neither for a limit nor under memory pressure.
    /// Returns false if there is none.
    ///
    /// It goes if it is replaced, removed or invalidated, or expires. What is pinned counts below all
    /// limits as before: an insert for which nothing else is left is refused, with the tenant's name
    /// ([`InsertError::Full`](crate::InsertError::Full)), and a limit that is set below what is
    /// pinned is not kept until that is unpinned. The entry that replaces a pinned one is pinned if
    /// [`is_pinned`](crate::Builder::is_pinned) says so.
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let cache: Cache<u64, u64> = Cache::builder().max_entries(10).build();
    /// cache.insert(0, 0);
    /// assert!(cache.pin(&0));
    /// (1..100).for_each(|key| cache.insert(key, key));
    /// assert_eq!((cache.get(&0), cache.statistics().pinned_bytes), (Some(0), 1));
    /// ```
    pub fn pin<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.set_pinned(key, true)
    }

    /// Makes the entry of a key evictable again. It is evicted at once if its tenant has more than its max.
    /// Returns false if there is none.
    pub fn unpin<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.set_pinned(key, false)
    }

    fn set_pinned<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q, pinned: bool) -> bool {
        let section = self.inner.section();
        let store = &*section;
        let Some(found) = self.find(key, store) else {
            return false;
        };
        let (mut state, mut locked) = self.inner.lock(store);
        let id = Id::of(found);
        let done = self.inner.is_found(found) && state.pin(&mut locked, id, pinned);
        let number = locked.of(id).tenant;
        let is_above_max = done && !pinned && state.is_above_max(number);
        self.inner.unlock(state, NEVER);
        drop(section);
        if is_above_max {
            // The number may be another tenant's by now: its limit holds, too.
            self.in_batches(usize::MAX, Cause::Evicted, |state, locked, claimed| {
                state.keep_max(locked, number, claimed)
            });
        }
        done
    }

    /// Claims an entry and takes it out of the map. Returns whether look-ups found it until then. Returns
    /// `None` if the map did not have it any more.
    fn take_found(
        &self,
        found: Found<'_, K, Node<V>>,
        store: &Pinned<K, V>,
        notes: &mut Notes<'_, K, V>,
    ) -> Option<Presence> {
        let (presence, claimed) = self.claim(found, self.inner.lock(store));
        let removed = store.remove_owning(found, owned(found));
        if claimed {
            notes.add(found, presence.cause(Cause::Removed));
        }
        removed.then_some(presence)
    }

    /// Removes all entries of the tenant and all below it; of those that are inserted meanwhile,
    /// some. Does nothing if the tenant has been deleted.
    ///
    /// It works in batches, between which other threads have the lock, and ends however fast they
    /// insert: each tenant loses what it has when its turn comes.
    pub fn invalidate_all(&self) {
        self.outdate_loads();
        // Handles, not numbers: a number may be another tenant's by the time of its turn.
        let handles = self.with_own(|state, number| {
            let all = state.below(number);
            all.map(|number| Arc::clone(&state.tenant(number).handle))
                .collect::<Vec<_>>()
        });
        for handle in handles.unwrap_or_default() {
            self.invalidate_tenant(&handle);
        }
    }

    /// Removes all entries of one tenant, as long as it is there.
    fn invalidate_tenant(&self, handle: &Arc<Handle>) {
        let mut until = None;
        self.in_batches(usize::MAX, Cause::Removed, |state, locked, claimed| {
            handle.own_number().is_some_and(|number| {
                let next = state.tenant(number).policy.rounds() + 1;
                let until = *until.get_or_insert(next);
                state.invalidate(locked, number, until, claimed)
            })
        });
    }

    /// Evicts until the tenant uses no more than that.
    pub(crate) fn shrink_to(&self, bytes: u64) {
        let handle = &self.handle;
        self.in_batches(usize::MAX, Cause::Evicted, |state, locked, claimed| {
            handle
                .own_number()
                .is_some_and(|number| state.shrink(locked, (number, bytes), For::Limit, claimed))
        });
    }

    /// Shrinks tables to what their entries need, in parts. Other threads may take the lock between two parts.
    fn trim(&self) {
        let mut next = ROOT;
        while let Some(Some(_)) = self.with_own(|state, number| state.trim(number, &mut next)) {
            give_way();
        }
        self.inner.section().shrink_to_fit();
    }

    /// Calls `shrink`, which should evict `asked` bytes, or some entries if that is `None`. The memory of values is
    /// wanted back meanwhile, and for a while after that.
    pub(crate) fn shrinking<R>(&self, asked: Option<u64>, shrink: impl FnOnce() -> R) -> R {
        let memory = &self.inner.memory;
        let before = self.weighted_bytes();
        memory.want_back(clock::now());
        let result = shrink();
        self.trim();
        let evicted = before.saturating_sub(self.weighted_bytes());
        memory.note_shrink(asked.unwrap_or(evicted), evicted);
        if let Some(until) = memory.want_back(clock::now())
            && let Some(own) = self.inner.visited.get()
        {
            // Without memory for it, or a thread, the next one ends it.
            service::ask(own, until);
        }
        result
    }

    /// Evicts up to `entries` entries that no min protects. Returns how many.
    pub(crate) fn evict_some(&self, entries: usize) -> usize {
        let (handle, mut evicted) = (&self.handle, 0);
        self.in_batches(usize::MAX, Cause::Evicted, |state, locked, claimed| {
            let Some(number) = handle.own_number() else {
                return false;
            };
            while evicted < entries && !claimed.is_full() {
                if !state.give_back(locked, number, claimed) {
                    return false;
                }
                evicted += 1;
            }
            evicted < entries
        });
        evicted
    }

    /// Takes out up to `most` batches, each in a section, while `claim` returns true. Returns whether there may
    /// be more.
    pub(crate) fn in_batches(
        &self,
        most: usize,
        cause: Cause,
        mut claim: impl FnMut(&mut State, &mut Locked, &mut Claimed) -> bool,
    ) -> bool {
        (0..most).all(|_| {
            let mut notes = self.inner.notes();
            let store = &self.inner.section();
            self.batch(cause, store, &mut notes, &mut claim)
        })
    }

    /// Removes the entries of the tenant and all below it for which `condition` returns true.
    /// Returns how many; 0 if the tenant has been deleted.
    ///
    /// `condition` runs inside sections, a few buckets at a time, and outside of locks.
    pub fn invalidate_entries_if(&self, mut condition: impl FnMut(&K, &V) -> bool) -> u64 {
        // Whatever they load, the condition might be true of it.
        self.outdate_loads();
        let (mut position, mut removed) = (Some(0), 0);
        while position.is_some() {
            // Told after the section.
            let mut notes = self.inner.notes();
            self.visit_some(&mut position, |found, store| {
                let entry = found.get();
                // A hidden one has not been inserted yet, or is removed already.
                if self.inner.presence(&entry.value.meta) != Presence::Hidden
                    && self.has(found, store, Handle::own_number)
                    && condition(&entry.key, &entry.value.value)
                    && self.take_found(found, store, &mut notes).is_some()
                {
                    removed += 1;
                }
            });
        }
        removed
    }

    /// Returns whether the tenant or one below it has the entry. `number` says for which tenant a view stands
    /// that has been deleted: for the one above ([`Handle::number`]), or for none ([`Handle::own_number`]).
    pub(crate) fn has(
        &self,
        found: Found<'_, K, Node<V>>,
        store: &Pinned<K, V>,
        number: impl FnOnce(&Arc<Handle>) -> Option<u32>,
    ) -> bool {
        self.handle.parent.is_none() || {
            let (state, mut locked) = self.inner.lock(store);
            let of = state.owner(&mut locked, Id::of(found));
            of.zip(number(&self.handle)).is_some_and(|(of, above)| {
                // A claimed one's may have ended.
                state.is_there(of) && state.is_within(of, above)
            })
        }
    }

    /// Takes out all that has expired by now, without waiting for an insert to do so.
    ///
    /// Works in batches: between two of them other threads have the lock, the listener is told, and
    /// no section is open. What expires meanwhile is left for the next call.
    pub fn run_pending(&self) {
        let now = self.inner.settings.clock.now();
        self.in_batches(usize::MAX, Cause::Expired, |state, locked, claimed| {
            state.expire(locked, now, claimed)
        });
    }
}

/// As [`Cache::remove`], but the entry is dropped without a grace period, and its memory is never
/// freed: broken on purpose, to see that torture detects it.
///
/// # Safety
///
/// No thread uses of an entry what its drop does not leave.
pub unsafe fn drop_at_once<K, V, S>(cache: &Cache<K, V, S>, key: &K)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    let store = &cache.inner.section();
    if let Some(found) = cache.find(key, store) {
        cache.claim(found, cache.inner.lock(store));
        // SAFETY: the caller's promise.
        unsafe { store.drop_at_once(found) };
    }
}
