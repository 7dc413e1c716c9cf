//! `Cache`: what it is, and its reading half. [`crate::put`] has what changes it, [`crate::load`]
//! what loads, [`crate::limits`] tenants and limits.

use crate::{
    builder::{Builder, Expiry, Weigher},
    clock::Clock,
    listener::{Listener, Notes},
    load::Flights,
    node::{Id, Locked, NEVER, Node},
    state::{ROOT, State},
    statistics::{Counters, Event, Statistics},
    tenant::Handle,
};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    marker::PhantomData,
    ops::Deref,
    sync::{Arc, atomic::Ordering},
};
use stillpoint::Guard;
use stillpoint_map::{
    DefaultHashBuilder, Equivalent,
    internal::{Found, Store, spread},
};
use stillpoint_platform::sync::{Mutex, MutexGuard, lock};

/// An in-process cache, which many threads use at a time, or the view of it that a tenant has.
pub struct Cache<K, V, S = DefaultHashBuilder> {
    inner: Arc<Inner<K, V, S>>,
    handle: Arc<Handle>,
}

/// What all views share.
pub struct Inner<K, V, S> {
    pub store: Store<K, Node<V>>,
    state: Mutex<State>,
    root: Arc<Handle>,
    name: String,
    pub hasher: S,
    pub weigher: Option<Box<Weigher<K, V>>>,
    pub expiry: Expiry<K, V>,
    pub listener: Option<Listener<K, V>>,
    pub clock: Clock,
    pub flights: Flights<K, V>,
}

impl<K, V, S> Inner<K, V, S> {
    pub fn new(builder: Builder<K, V, S>, name: String, max: u64) -> Self {
        let root = Handle::new(ROOT, "".into(), None);
        Self {
            store: Store::new(None),
            state: Mutex::new(State::new(Arc::clone(&root), max)),
            root,
            name,
            hasher: builder.hasher,
            weigher: builder.weigher,
            expiry: builder.expiry,
            listener: builder.listener,
            clock: builder.clock,
            flights: Flights::new(),
        }
    }

    /// Locks the queues. The caller is in a section of the store since before, and stays in it for
    /// as long as it uses what it claims.
    pub fn lock<'a>(&'a self, _section: &'a Guard<'_>) -> (MutexGuard<'a, State>, Locked) {
        let state = lock(&self.state);
        // SAFETY: the lock is held for as long as `state` is, with which callers use this. What is
        // in queues is in the map; what callers have found, the section keeps.
        (state, unsafe { Locked::assume() })
    }

    pub fn notes(&self) -> Notes<'_, K, V> {
        Notes::new(self.listener.as_ref())
    }

    /// Whether an entry is there no longer, as its time is over.
    #[inline(always)]
    pub fn has_expired(&self, entry: Found<'_, K, Node<V>>) -> bool {
        let expires = entry.get().value.meta.expires.load(Ordering::Relaxed);
        expires != NEVER && self.clock.is_over(expires)
    }
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Makes a cache whose entries weigh `max_bytes` together, at most.
    #[must_use]
    pub fn new(max_bytes: u64) -> Self {
        Builder::new().max_bytes(max_bytes).build()
    }

    /// Begins to set up a cache.
    pub fn builder() -> Builder<K, V> {
        Builder::new()
    }
}

impl<K, V, S> Cache<K, V, S> {
    pub(crate) fn of(inner: Inner<K, V, S>) -> Self {
        let handle = Arc::clone(&inner.root);
        Self {
            inner: Arc::new(inner),
            handle,
        }
    }

    pub(crate) fn inner(&self) -> &Inner<K, V, S> {
        &self.inner
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    pub(crate) fn view(&self, handle: Arc<Handle>) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            handle,
        }
    }

    pub(crate) fn root(&self) -> Self {
        self.view(Arc::clone(&self.inner.root))
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.handle.counters
    }

    pub(crate) fn with_state<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut lock(&self.inner.state))
    }

    /// With the number of the tenant, or of the one above that has not been deleted.
    pub(crate) fn with_present<R>(&self, work: impl FnOnce(&mut State, u32) -> R) -> R {
        self.with_state(|state| work(state, self.handle.number()))
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    #[inline(always)]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        spread(self.inner.hasher.hash_one(key))
    }

    #[inline(always)]
    pub(crate) fn find<'g, Q>(
        &'g self,
        key: &Q,
        guard: &'g Guard<'_>,
    ) -> Option<Found<'g, K, Node<V>>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.hash(key);
        self.inner
            .store
            .find(hash, guard, |other| key.equivalent(other))
    }

    /// The entry, unless it has expired; counts and marks it.
    #[inline(always)]
    fn look_up<'g, Q>(&'g self, key: &Q, guard: &'g Guard<'_>) -> Option<Found<'g, K, Node<V>>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let found = self
            .find(key, guard)
            .filter(|&found| !self.inner.has_expired(found));
        let Some(found) = found else {
            self.counters().count(Event::Miss);
            return None;
        };
        self.counters().count(Event::Hit);
        let meta = &found.get().value.meta;
        meta.mark();
        if let Some(idle) = self.inner.expiry.idle {
            meta.touch(self.inner.clock.now(), idle);
        }
        Some(found)
    }

    /// Returns a clone of the value of a key.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        V: Clone,
    {
        let guard = self.inner.store.read_lock();
        Some(self.look_up(key, &guard)?.get().value.value.clone())
    }

    /// Returns a reference to the value of a key, which stays good while other threads evict or
    /// replace it. It holds a section open: keep it for a short time, and not across an `.await`.
    #[inline]
    pub fn get_ref<Q>(&self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let guard = self.inner.store.read_lock();
        let id = Id::of(self.look_up(key, &guard)?);
        Some(Ref {
            id,
            _guard: guard,
            entry: PhantomData,
        })
    }

    /// As [`get`](Self::get), without counting and marking.
    pub(crate) fn peek<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        V: Clone,
    {
        let guard = self.inner.store.read_lock();
        let found = self.find(key, &guard)?;
        (!self.inner.has_expired(found)).then(|| found.get().value.value.clone())
    }

    /// Returns whether there is an entry. Neither counts as a use.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let guard = self.inner.store.read_lock();
        self.find(key, &guard)
            .is_some_and(|found| !self.inner.has_expired(found))
    }

    /// Returns how many entries the tenant and all below it have.
    #[must_use]
    pub fn entry_count(&self) -> u64 {
        self.statistics().entries
    }

    /// Returns what they weigh.
    #[must_use]
    pub fn weighted_bytes(&self) -> u64 {
        self.with_present(|state, number| state.tenant(number).usage)
    }

    /// Returns what has happened in this tenant and all below it, and what is there.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.with_present(|state, number| {
            let mut all = Statistics {
                bytes: state.tenant(number).usage,
                ..Statistics::default()
            };
            for number in state.below(number) {
                let tenant = state.tenant(number);
                let counted = |event| tenant.handle.counters.get(event);
                all.hits += counted(Event::Hit);
                all.misses += counted(Event::Miss);
                all.loads += counted(Event::Load);
                all.load_failures += counted(Event::LoadFailure);
                all.load_nanos += counted(Event::LoadNanos);
                all.refused += counted(Event::Refused);
                all.inserts += tenant.events.inserts;
                all.evicted += tenant.events.evicted;
                all.expired += tenant.events.expired;
                all.replaced += tenant.events.replaced;
                all.removed += tenant.events.removed;
                all.ghost_hits += tenant.policy.ghost_hits();
                all.entries += tenant.policy.entries() as u64;
            }
            all
        })
    }
}

impl<K, V, S> Clone for Cache<K, V, S> {
    fn clone(&self) -> Self {
        self.view(Arc::clone(&self.handle))
    }
}

impl<K, V, S> fmt::Debug for Cache<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("name", &self.inner.name)
            .field("tenant", &self.handle.name)
            .finish_non_exhaustive()
    }
}

/// A reference to an entry, and the section that keeps it.
pub struct Ref<'c, K, V> {
    id: Id,
    _guard: Guard<'c>,
    entry: PhantomData<&'c (K, V)>,
}

impl<K, V> Ref<'_, K, V> {
    /// The key of the entry.
    #[must_use]
    pub fn key(&self) -> &K {
        // SAFETY: found in the section that this keeps open; the cache, which is borrowed, has not
        // been dropped.
        let found: Found<'_, K, Node<V>> = unsafe { self.id.found() };
        &found.get().key
    }
}

impl<K, V> Deref for Ref<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        // SAFETY: as in `key`.
        let found: Found<'_, K, Node<V>> = unsafe { self.id.found() };
        &found.get().value.value
    }
}

impl<K, V: fmt::Debug> fmt::Debug for Ref<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        V::fmt(self, f)
    }
}
