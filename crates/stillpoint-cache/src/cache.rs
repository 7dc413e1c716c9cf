//! `Cache`: what it is, and its reading half. [`crate::put`] and
//! [`crate::remove`] have what changes it, [`crate::load`]
//! what loads, [`crate::limits`] tenants and limits.

use crate::{
    clock::Clock,
    container::Container,
    flight::{Flights, Shown},
    listener::{Listener, Notes},
    memory::Memory,
    node::{HIDDEN, Id, Locked, Meta, NEVER, Node},
    removal::Cause,
    shared::Shared,
    state::State,
    statistics::{Event, Statistics},
    tenant::Handle,
    watcher::Visited,
    weigh::Scale,
};
use std::{
    fmt,
    hash::{BuildHasher, Hash},
    marker::PhantomData,
    ops::Deref,
    sync::{Arc, OnceLock, Weak, atomic::Ordering},
    time::Duration,
};
use stillpoint::Guard;
use stillpoint_map::{
    DefaultHashBuilder, Equivalent,
    internal::{Entry, Found, PinnedStore, Sound, Store, mix, spread},
};
use stillpoint_platform::{
    fork::{AtForkHandle, ForkReset},
    sync::MutexGuard,
};

/// An in-process cache, which many threads use at a time, or the view of it that a tenant has.
///
/// A handle: clones are the same cache.
///
/// ```
/// use stillpoint_cache::Cache;
///
/// let cache: Cache<u64, String> = Cache::with_bytes(1 << 20);
/// cache.insert(1, "one".to_owned());
/// assert_eq!(cache.get(&1).as_deref(), Some("one"));
/// assert_eq!(cache.get_with(&2, || "two".to_owned()), "two"); // loads, once for all callers
/// assert_eq!(cache.get_ref(&2).unwrap().len(), 3);           // no clone
/// ```
///
/// # What goes first
///
/// S3-FIFO, with an admission by frequency. A new entry is on probation in a small queue. It stays
/// if it is used twice there, or if it is inserted again soon after its eviction and is asked for
/// more often than the entry that it would replace. A new value for a key keeps the old one's place,
/// and counts as a use. Scans, and loops larger than the cache, do not evict entries in use.
///
/// The small queue has a fiftieth of the weight, and up to nine tenths if keys are used again soon
/// after their eviction from it. The choice does not depend on the number of threads. There are no
/// shards: an entry may be as large as the whole cache.
///
/// # Tenants
///
/// [`tenant`](Self::tenant) returns a view of the same cache with separate limits. Keys are one
/// space: any view finds any entry, and may replace and remove it. An entry belongs to the tenant
/// whose view inserted its key, also when another view replaces its value, unless that had expired or
/// was invalidated.
///
/// | limit | what it does |
/// |---|---|
/// | [min](Self::set_min) | memory up to this is never taken for others; while it has less, the tenant's inserts evict entries of others first |
/// | [low](Self::set_low) | the same, unless nothing else is left |
/// | [high](Self::set_high) | above this it gives way before others, and a service thread evicts the excess |
/// | [max](Self::set_max) | an insert that would exceed it first evicts entries of this tenant or those below it |
///
/// Limits are in the unit of the whole cache's limit: bytes, entries, or a unit that the program chooses
/// ([`Builder`](crate::Builder)). They count for a tenant together with all below it. If the minima of
/// siblings add up to more than their parent has, each is protected up to what it uses of its min, and
/// in proportion if together they use more than there is. A min holds to the byte: no entry goes whose
/// eviction would leave less.
///
/// Above the guarantees, the tenant gives way whose memory earns least per byte. A tenant earns when
/// evicted entries are asked for again and are worth a place, and when entries that would go next are in
/// use. A tenant that only scans earns nothing.
///
/// # Costs
///
/// | | |
/// |---|---|
/// | [`get`](Self::get) | a section, a look-up in the map, an increment of the thread's counter; only an entry's first three hits write to it. No lock, no allocation |
/// | [`insert`](Self::insert) | one allocation, a bucket's lock, and the cache's one lock of the queues, once (twice if entries have expired); evicts entries one by one until there is room. Waits for readers only past the budget of unreclaimed memory |
/// | an entry | 64 bytes beside key and value, the map's 17 to 32, and 20 to 40 for ghosts and counts: 112 are charged, if the limit is in bytes |
/// | an entry that expires | 32 bytes more |
/// | a tenant | some 900 bytes beside its entries, 300 more once look-ups are counted, and 256 for each processor, up to 4 KiB, once several threads look up through its views. They count against no limit, and are freed soon after it is deleted and its last view is gone |
/// | an empty cache | some 2 KiB, and 256 bytes for each processor, up to 4 KiB, once several threads look up |
///
/// One lock guards the queues. Most holds are short. These look at each tenant below the one concerned:
/// [`statistics`](Self::statistics), [`entry_count`](Self::entry_count) and, if there is no room, an insert
///
/// - that is about to be refused,
/// - of a tenant that has less than its share, where minima add up to more than there is,
/// - beside tenants, with others below them, that have more than their min or low only by what is pinned there.
///
/// An insert looks at the tenants above its own. If there is no room, minima add up to more than there is, and
/// each of those has children that keep what they have, it looks at each of them once for each of the others.
///
/// Tables of ghosts and counts are copied when they grow. All else goes in batches: what expires, a limit that
/// is lowered, a tenant that is deleted, and tables that have become too large. These shrink when a limit is
/// lowered or memory is short, and on the service thread once seven of eight entries have gone.
///
/// Evicted entries are freed after a grace period, and count against the
/// [budget](stillpoint::Domain::set_budget) of the global domain until then, each with its block and what
/// its key and value own. A thread that inserts faster than readers leave is
/// throttled at the end of the call, for a bounded time.
///
/// **A [`Ref`] that is held keeps all that leaves this cache, and others, meanwhile.** While the budget is
/// full, inserts are throttled. Once the reader has been reported as stalled, after ten seconds
/// ([`set_stall_timeout`](stillpoint::Domain::set_stall_timeout)), they are not: what was evicted then
/// grows without a limit, to gigabytes in a cache that changes fast. Drop a `Ref` before anything
/// that blocks, or take a clone ([`get`](Self::get)).
///
/// Without memory the process ends, as with std's collections; an [`Arena`](crate::Arena) of byte values
/// returns an error. The service thread starts when an entry with a deadline is inserted, when a tenant
/// exceeds its high limit, and when most of several thousand entries have gone. It ends after ten seconds
/// with nothing to do.
///
/// An insert that is much larger than others evicts in batches, each in a section. The room that it has
/// made is reserved for it. While a limit is being lowered, an insert evicts one batch of what is above the limit,
/// and the thread that lowers it the rest.
///
/// # Expiry
///
/// An expired entry is never returned. Later inserts free its memory; in a cache that no thread uses, the
/// service thread of all caches does so within a fraction of a second, and
/// [`run_pending`](Self::run_pending) at once. While that thread works on a cache, it holds a reference: if
/// the last user leaves meanwhile, the cache is dropped there.
///
/// # User code
///
/// Weigher, loaders, functions that compute an [entry](Self::entry) and the listener run outside of locks and
/// sections (the listener also on the service thread); `Hash`, `Eq` and `Clone` outside of locks. All may use
/// the cache, and may panic. Destructors run outside of sections, also if user code panics. A listener that
/// inserts what was evicted is told of what that evicts after it has returned
/// ([`eviction_listener`](crate::Builder::eviction_listener)). Values are dropped after a grace period,
/// as the [map](stillpoint_map::HashMap) says.
///
/// # Keys that an attacker chooses
///
/// The default hasher does not resist an attacker who chooses the keys: each look-up of one of many keys
/// with the same hash walks them all. For such keys take
/// [`RandomState`](std::hash::RandomState), with [`Builder::hasher`](crate::Builder::hasher).
///
/// # Signals and forks
///
/// Nothing here is async-signal-safe. The child of a fork goes on using the cache if no other thread was
/// changing it at that instant. Otherwise look-ups and drops work there, and an operation that needs the
/// lock of a thread that is gone ends the process with a message. The listener may be told of nothing there.
/// Entries that were being inserted or removed at that instant may stay in the child as entries that nothing
/// evicts.
pub struct Cache<K, V, S = DefaultHashBuilder> {
    pub(crate) inner: Arc<Inner<K, V, S>>,
    pub(crate) handle: Arc<Handle>,
}

/// The cache that all views share.
pub struct Inner<K, V, S> {
    /// First, because fields are dropped in order: no fork finds the others half dropped.
    place: AtForkHandle,
    pub store: Store<K, Node<V>>,
    pub shared: Shared,
    pub settings: Settings<K, V>,
    pub hasher: S,
    pub flights: Flights<K, V>,
    /// The reference that the service thread has.
    pub visited: OnceLock<Weak<dyn Visited>>,
    pub memory: Memory,
}

/// All settings but the hasher, which a [`Builder`](crate::Builder) collects.
pub struct Settings<K, V> {
    /// The limit, in its unit.
    pub max: Option<u64>,
    pub name: String,
    pub scale: Scale<K, V>,
    pub is_pinned: Option<Box<IsPinned<K, V>>>,
    pub expiry: Expiry<K, V>,
    pub listener: Option<Listener<K, V>>,
    pub clock: Clock,
    /// The container whose limit it follows.
    pub container: Option<Container>,
}

type IsPinned<K, V> = dyn Fn(&K, &V) -> bool + Send + Sync;
type ExpireAfter<K, V> = dyn Fn(&K, &V) -> Option<Duration> + Send + Sync;

/// Lifetimes of entries, in nanoseconds.
pub struct Expiry<K, V> {
    pub live: Option<u64>,
    pub idle: Option<u64>,
    pub after: Option<Box<ExpireAfter<K, V>>>,
}

/// The entries of a cache, in a section.
pub type Pinned<K, V> = PinnedStore<K, Node<V>, Sound>;

/// The entries of a cache in a section of the calling thread in the domain that all caches are in, the global one.
pub struct Section<'c, K, V, S> {
    inner: &'c Inner<K, V, S>,
    guard: Guard<'static>,
}

impl<K, V, S> Section<'_, K, V, S> {
    /// Returns the loads and computes of the cache.
    pub fn flights(&self) -> &PinnedStore<K, Shown<V>, Sound> {
        // SAFETY: as in `deref`.
        unsafe { self.inner.flights.pinned_unchecked() }
    }
}

impl<K, V, S> Deref for Section<'_, K, V, S> {
    type Target = Pinned<K, V>;

    #[inline(always)]
    fn deref(&self) -> &Pinned<K, V> {
        // SAFETY: `Inner::new` makes each store in the global domain, which `guard` is a section of.
        unsafe { self.inner.store.pinned_unchecked() }
    }
}

/// Whether look-ups find an entry that is in the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Found,
    /// A load has not linked it yet, or it was claimed.
    Hidden,
    Expired,
}

impl Presence {
    /// Returns the cause to report for an entry that a call takes out because of `cause`.
    #[inline]
    pub fn cause(self, cause: Cause) -> Cause {
        match self {
            Self::Expired => Cause::Expired,
            Self::Found | Self::Hidden => cause,
        }
    }
}

impl<K, V, S> Inner<K, V, S> {
    pub fn new(settings: Settings<K, V>, hasher: S, max: u64, memory: Memory) -> Self {
        Self {
            place: AtForkHandle::reserve(),
            store: Store::new(None),
            shared: Shared::new(max),
            settings,
            hasher,
            flights: Flights::new(None),
            visited: OnceLock::new(),
            memory,
        }
    }

    /// Begins a section.
    #[inline(always)]
    pub fn section(&self) -> Section<'_, K, V, S> {
        let guard = stillpoint::read_lock();
        Section { inner: self, guard }
    }

    /// Locks the queues. The caller is in a section since before, and stays in it for as long as it uses
    /// what it claims.
    #[inline]
    pub fn lock<'a>(&'a self, _section: &'a Pinned<K, V>) -> (MutexGuard<'a, State>, Locked) {
        let state = self.shared.lock();
        // SAFETY: the lock is held for as long as `state` is, with which callers use this. What is
        // in queues has not been retired; what callers have found, the section keeps.
        (state, unsafe { Locked::assume() })
    }

    pub fn notes(&self) -> Notes<'_, K, V> {
        Notes::new(self.settings.listener.as_ref())
    }

    /// Returns whether look-ups find an entry that is in the map.
    #[inline(always)]
    pub fn is_found(&self, entry: Found<'_, K, Node<V>>) -> bool {
        self.presence(&entry.get().value.meta) == Presence::Found
    }

    /// Returns whether look-ups find an entry that is in the map, and if not, why.
    pub fn presence(&self, meta: &Meta) -> Presence {
        match meta.expires.load(Ordering::Relaxed) {
            HIDDEN => Presence::Hidden,
            at if at != NEVER && self.settings.clock.before(at).is_none() => Presence::Expired,
            _ => Presence::Found,
        }
    }

    /// Records a use of an expiring entry. Returns false if it has expired.
    #[inline(never)]
    fn mark_expiring(&self, meta: &Meta) -> bool {
        let Settings { clock, expiry, .. } = &self.settings;
        let Some(now) = clock.before(meta.expires.load(Ordering::Relaxed)) else {
            return false;
        };
        meta.mark();
        if let Some(idle) = expiry.idle {
            meta.touch(now, idle, || clock.now());
        }
        true
    }
}

impl<K: Send + Sync, V: Send + Sync, S: Sync> ForkReset for Inner<K, V, S> {
    unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.shared.reset_in_child() };
        if let Some(listener) = &self.settings.listener {
            // SAFETY: as above.
            unsafe { listener.reset_in_child() };
        }
    }
}

impl<K: Send + Sync, V: Send + Sync, S: Sync> Cache<K, V, S> {
    pub(crate) fn of(inner: Inner<K, V, S>) -> Self {
        let inner = Arc::new(inner);
        // SAFETY: once; complete, and it stays where it is: in the `Arc`, whose last owner drops the
        // place first.
        unsafe { inner.place.occupy(&*inner) };
        let handle = Arc::clone(&inner.shared.root);
        Self { inner, handle }
    }

    /// Returns a cache that the service thread does not know.
    #[cfg(test)]
    pub(crate) fn unvisited(settings: Settings<K, V>, hasher: S, memory: Memory) -> Self {
        Self::of(Inner::new(settings, hasher, u64::MAX, memory))
    }
}

impl<K, V, S> Cache<K, V, S> {
    pub(crate) fn view(&self, handle: Arc<Handle>) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            handle,
        }
    }

    pub(crate) fn root(&self) -> Self {
        self.view(Arc::clone(&self.inner.shared.root))
    }

    pub(crate) fn with_state<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut self.inner.shared.lock())
    }

    /// Calls `work` under the lock with the number of the tenant, or of the nearest one above that has not
    /// been deleted.
    pub(crate) fn with_present<R>(&self, work: impl FnOnce(&mut State, u32) -> R) -> R {
        self.with_state(|state| {
            let number = self.handle.number();
            work(state, number)
        })
    }

    /// Calls `work` under the lock with the number of the tenant. Returns `None` once the tenant has been
    /// deleted: a change of limits, or a removal of entries by tenant, must not fall on the one above.
    pub(crate) fn with_own<R>(&self, work: impl FnOnce(&mut State, u32) -> R) -> Option<R> {
        self.with_state(|state| {
            let number = self.handle.own_number()?;
            Some(work(state, number))
        })
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
    pub(crate) fn find<'g, Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        store: &'g Pinned<K, V>,
    ) -> Option<Found<'g, K, Node<V>>> {
        let hash = self.hash(key);
        store.find(hash, |other| key.equivalent(other))
    }

    /// Finds the entry of a key unless it has expired. Counts the look-up, and notes the use in the entry.
    #[inline(always)]
    pub(crate) fn look_up<'g, Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        store: &'g Pinned<K, V>,
    ) -> Option<Found<'g, K, Node<V>>> {
        // The entry is only read, so the hash need not be compared as in `find`.
        let hash = mix(self.inner.hasher.hash_one(key));
        if let Some(found) = store.look_up(hash, |other| key.equivalent(other)) {
            let meta = &found.get().value.meta;
            if meta.mark_lasting() || self.inner.mark_expiring(meta) {
                self.handle.counters.add(Event::Hit, 1);
                return Some(found);
            }
        }
        self.handle.count_miss();
        None
    }

    /// Counts a look-up that has found an entry, and notes the use in the entry.
    pub(crate) fn count_hit(&self, found: Found<'_, K, Node<V>>) {
        let meta = &found.get().value.meta;
        let _ = meta.mark_lasting() || self.inner.mark_expiring(meta);
        self.handle.counters.add(Event::Hit, 1);
    }

    /// Returns a clone of the value of a key, and counts as a use.
    ///
    /// Takes no lock and does not allocate, unless the clone does. The key may be anything that
    /// hashes and compares like one ([`Equivalent`]).
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        V: Clone,
    {
        let store = &self.inner.section();
        let found = self.look_up(key, store)?;
        Some(found.get().value.value.clone())
    }

    /// Returns a reference to the value of a key, which stays good while other threads evict or
    /// replace it.
    ///
    /// It holds a section open: keep it for a short time, and not across an `.await`. While it is held,
    /// nothing that leaves a cache is freed, and after ten seconds memory grows without a limit.
    #[inline]
    pub fn get_ref<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>> {
        let section = self.inner.section();
        let id = Id::of(self.look_up(key, &section)?);
        Some(self.reference(id, section.guard))
    }

    /// Returns a reference to the entry of a key, as [`get_ref`](Self::get_ref) does, and is no use of it: the
    /// entry is evicted, and expires, as if it had not been looked at, and no look-up is counted.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stillpoint_cache::Cache;
    ///
    /// let cache: Cache<u64, u64> = Cache::with_entries(100);
    /// cache.insert_with_ttl(1, 2, Duration::from_secs(60));
    /// let entry = cache.peek(&1).unwrap();
    /// assert_eq!((*entry, cache.statistics().hits), (2, 0));
    /// assert!(entry.time_left().unwrap() <= Duration::from_secs(60));
    /// ```
    pub fn peek<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>> {
        let section = self.inner.section();
        let found = self.find(key, &section)?;
        let id = self.inner.is_found(found).then(|| Id::of(found))?;
        Some(self.reference(id, section.guard))
    }

    /// Makes a reference to an entry that was found in the section.
    fn reference(&self, id: Id, _section: Guard<'static>) -> Ref<'_, K, V> {
        Ref {
            id,
            _section,
            clock: &self.inner.settings.clock,
            entry: PhantomData,
        }
    }

    /// Returns whether there is an entry. Neither counts as a use.
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        let store = &self.inner.section();
        let found = self.find(key, store);
        found.is_some_and(|found| self.inner.is_found(found))
    }

    /// Returns how many entries the tenant and all below it have.
    #[must_use]
    pub fn entry_count(&self) -> u64 {
        self.statistics().entries
    }

    /// Returns what they weigh, in the unit of the cache's limit.
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
                pinned_bytes: state.tenant(number).pinned_bytes,
                ..Statistics::default()
            };
            for number in state.below(number) {
                let tenant = state.tenant(number);
                all.hits += tenant.counted(Event::Hit);
                all.misses += tenant.counted(Event::Miss);
                all.loads += tenant.counted(Event::Load);
                all.load_failures += tenant.counted(Event::LoadFailure);
                all.load_nanos += tenant.counted(Event::LoadNanos);
                all.refused += tenant.counted(Event::Refused);
                all.inserts += tenant.events.inserts;
                all.evicted += tenant.events.evicted;
                all.expired += tenant.events.expired;
                all.replaced += tenant.events.replaced;
                all.removed += tenant.events.removed;
                all.ghost_hits += tenant.policy.ghost_hits();
                all.entries += tenant.entries() as u64;
            }
            if self.handle.parent.is_none() {
                self.inner.memory.count(&mut all);
            }
            all
        })
    }
}

impl<K, V, S> Drop for Cache<K, V, S> {
    /// Frees the handles of deleted tenants that have no view any more, now and then.
    fn drop(&mut self) {
        if !self.handle.deleted.load(Ordering::Relaxed) {
            return;
        }
        let root = Arc::clone(&self.inner.shared.root);
        let handle = std::mem::replace(&mut self.handle, root);
        // In the child of a fork that has lost the lock nothing is freed.
        if let Some(mut state) = self.inner.shared.lock_unless_lost() {
            let number = handle.number();
            drop(handle);
            state.forget_view(number);
        }
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
            .field("name", &self.inner.settings.name)
            .field("tenant", &self.handle.name)
            .finish_non_exhaustive()
    }
}

/// A reference to an entry, and the section that keeps it.
pub struct Ref<'c, K, V> {
    id: Id,
    _section: Guard<'static>,
    clock: &'c Clock,
    entry: PhantomData<&'c (K, V)>,
}

impl<K, V> Ref<'_, K, V> {
    fn entry(&self) -> &Entry<K, Node<V>> {
        // SAFETY: found in the section that this keeps open; the cache, which is borrowed, has not
        // been dropped.
        let found: Found<'_, K, Node<V>> = unsafe { self.id.found() };
        found.get()
    }

    /// Returns the key of the entry.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.entry().key
    }

    /// Returns the time until the entry expires if it is not used; `None` if it never expires. Zero if it has
    /// expired, or has been removed, since it was found.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let expires = self.entry().value.meta.expires.load(Ordering::Relaxed);
        let left = || Duration::from_nanos(expires.saturating_sub(self.clock.now()));
        (expires != NEVER).then(left)
    }
}

impl<K, V> Deref for Ref<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.entry().value.value
    }
}

impl<K, V: fmt::Debug> fmt::Debug for Ref<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        V::fmt(self, f)
    }
}
