//! Computes: calls that read the entry of a key, and change it depending on what they read.
//!
//! A compute leads the key's [flight](crate::flight), as a load does: so computes and loads of one key come
//! one after the other. Its flight stays in the map when the key is invalidated, and ends without a value:
//! callers that have waited look the key up anew.
//!
//! It changes the entry that it has seen, and no other ([`crate::state`], `watched`). If another call has
//! removed or replaced that meanwhile, the compute came before that call, and its result is not kept. If the
//! entry was evicted, or has expired, or there was none, a new one is put in as a load puts it in.

use crate::{
    cache::{Cache, Presence},
    flight::Waiter,
    load::{Leader, Role, block_on, sure},
    node::{Id, Node},
    put::{Origin, owned, unseen},
    removal::Cause,
};
use std::{
    convert::Infallible,
    fmt,
    future::{Future, poll_fn, ready},
    hash::{BuildHasher, Hash},
    sync::Arc,
    time::Duration,
};
use stillpoint_map::{Equivalent, internal::Found};

/// A clone of an entry, as a call has found it or made it. See [`Cache::entry`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<K, V> {
    key: K,
    value: V,
    is_fresh: bool,
    is_old_value_replaced: bool,
}

impl<K, V> Entry<K, V> {
    fn of<Q: ToOwned<Owned = K> + ?Sized>(key: &Q, value: V, is_fresh: bool) -> Self {
        Self {
            key: key.to_owned(),
            value,
            is_fresh,
            is_old_value_replaced: false,
        }
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the value.
    pub fn value(&self) -> &V {
        &self.value
    }

    /// Returns the value, and drops the rest.
    pub fn into_value(self) -> V {
        self.value
    }

    /// Returns whether this call made the value.
    pub fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// Returns whether the value has taken the place of another one.
    pub fn is_old_value_replaced(&self) -> bool {
        self.is_old_value_replaced
    }
}

/// An operation of a compute: see [`EntrySelector::and_compute_with`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op<V> {
    /// Nothing.
    Nop,
    /// Inserts a value, in place of the one that is there.
    Put(V),
    /// Like [`Put`](Self::Put), with a time to live.
    PutWithTtl(V, Duration),
    /// Removes the entry.
    Remove,
}

/// The result of a compute: see [`EntrySelector::and_compute_with`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompResult<K, V> {
    /// There was no entry, or another call has taken it out before, and none was inserted.
    StillNone(K),
    /// The entry was left as it was.
    Unchanged(Entry<K, V>),
    /// There was no entry, and this one was inserted.
    Inserted(Entry<K, V>),
    /// There was an entry, in whose place this one was inserted.
    ReplacedWith(Entry<K, V>),
    /// This entry was removed.
    Removed(Entry<K, V>),
}

impl<K, V> CompResult<K, V> {
    /// Returns the entry; `None` for [`StillNone`](Self::StillNone).
    pub fn into_entry(self) -> Option<Entry<K, V>> {
        match self {
            Self::StillNone(_) => None,
            Self::Unchanged(entry)
            | Self::Inserted(entry)
            | Self::ReplacedWith(entry)
            | Self::Removed(entry) => Some(entry),
        }
    }
}

/// The key whose entry a call reads and changes: see [`Cache::entry`].
#[must_use = "it does nothing until one of its methods is called"]
pub struct EntrySelector<'a, K, V, S, Q: ?Sized> {
    cache: &'a Cache<K, V, S>,
    key: &'a Q,
}

impl<K, V, S, Q: fmt::Debug + ?Sized> fmt::Debug for EntrySelector<'_, K, V, S, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EntrySelector").field(&self.key).finish()
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Selects a key, for calls that compute its new value from the old one, or say whether they made the
    /// entry. Does nothing until one of these is called, which clones the key.
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let visits: Cache<String, u64> = Cache::with_entries(100);
    /// let visit = |page: &str| {
    ///     let entry = visits.entry(page).and_upsert_with(|entry| entry.map_or(0, |entry| *entry.value()) + 1);
    ///     (*entry.value(), entry.is_old_value_replaced())
    /// };
    /// assert_eq!((visit("/"), visit("/")), ((1, false), (2, true)));
    ///
    /// let entry = visits.entry("/help").or_insert(7);
    /// assert_eq!((entry.is_fresh(), entry.into_value()), (true, 7));
    /// ```
    pub fn entry<'a, Q>(&'a self, key: &'a Q) -> EntrySelector<'a, K, V, S, Q>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        EntrySelector { cache: self, key }
    }
}

impl<'a, K, V, S, Q> EntrySelector<'a, K, V, S, Q>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
    Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
{
    /// Returns the entry; where there is none, inserts `value`. As [`or_insert_with`](Self::or_insert_with).
    pub fn or_insert(self, value: V) -> Entry<K, V> {
        self.or_insert_with(|| value)
    }

    /// Returns the entry; where there is none, inserts what `load` returns. It is a load, as
    /// [`get_with`](Cache::get_with) says: an entry is [fresh](Entry::is_fresh) if this call has loaded it.
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let cache: Cache<u64, u64> = Cache::with_entries(100);
    /// assert!(cache.entry(&1).or_insert_with(|| 2).is_fresh());
    /// assert!(!cache.entry(&1).or_insert_with(|| 3).is_fresh());
    /// ```
    pub fn or_insert_with(self, load: impl FnOnce() -> V) -> Entry<K, V> {
        sure(self.or_try_insert_with(|| Ok(load())))
    }

    /// As [`or_insert_with`](Self::or_insert_with), with a loader that may fail.
    ///
    /// # Errors
    ///
    /// As [`try_get_with`](Cache::try_get_with).
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let cache: Cache<String, u32> = Cache::with_entries(100);
    /// let entry = cache.entry("7").or_try_insert_with(|| "7".parse());
    /// assert_eq!(entry.map(|entry| *entry.value()), Ok::<_, std::sync::Arc<std::num::ParseIntError>>(7));
    /// ```
    pub fn or_try_insert_with<E: Send + Sync + 'static>(
        self,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<Entry<K, V>, Arc<E>> {
        let load = || load().map(|value| (value, None));
        let loaded = self.cache.get_or_load(self.key, load)?;
        Ok(Entry::of(self.key, loaded.value, loaded.is_fresh))
    }

    /// Inserts what `f` returns for the entry that is there, or for `None`. As
    /// [`and_compute_with`](Self::and_compute_with) with [`Op::Put`].
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let cache: Cache<u64, Vec<u64>> = Cache::with_entries(100);
    /// for number in 0..3 {
    ///     cache.entry(&1).and_upsert_with(|entry| {
    ///         let mut all = entry.map(|entry| entry.into_value()).unwrap_or_default();
    ///         all.push(number);
    ///         all
    ///     });
    /// }
    /// assert_eq!(cache.get(&1), Some(vec![0, 1, 2]));
    /// ```
    pub fn and_upsert_with(self, f: impl FnOnce(Option<Entry<K, V>>) -> V) -> Entry<K, V> {
        let result = self.and_compute_with(|entry| Op::Put(f(entry)));
        result.into_entry().expect("an entry was put in")
    }

    /// Calls `f` with the entry that is there, or with `None`, and does what it returns:
    ///
    /// | | there was an entry | there was none |
    /// |---|---|---|
    /// | [`Op::Put`], [`Op::PutWithTtl`] | [`CompResult::ReplacedWith`] the new one | [`CompResult::Inserted`] |
    /// | [`Op::Remove`] | [`CompResult::Removed`] | [`CompResult::StillNone`] |
    /// | [`Op::Nop`] | [`CompResult::Unchanged`] | [`CompResult::StillNone`] |
    ///
    /// Computes and loads of one key come one after the other: one that finds another under way waits for it,
    /// outside of sections and locks. Look-ups do not wait; they find the old entry until the new one is there.
    /// A compute counts as a look-up. One that ends wakes all that wait for the key, so n waiting computes are
    /// woken up to n²/2 times. A waiting future that is no longer polled holds up no other; one that leads does,
    /// until it is polled to its end or dropped.
    ///
    /// No insert and no removal waits for a compute. If another call replaces, removes or invalidates the entry
    /// while `f` runs, the compute counts as earlier: its result is returned but not kept, and [`Op::Remove`]
    /// returns [`CompResult::StillNone`]. If the entry is evicted or expires meanwhile, or if there was none,
    /// the new value is inserted, unless another call's entry is there when `f` returns or the key was
    /// invalidated. A value that a limit refuses is not kept, as with [`insert`](Cache::insert).
    ///
    /// If `f` panics, the entry stays as it was, and the panic is the caller's. `f` may use the cache. A load of
    /// the same key inside of it is not kept, and what it inserts itself stays, in place of its result. `f` may
    /// be called inside of a load or a compute of another key; two that wait for each other's keys wait for
    /// ever, and so does a call on a thread for a compute that a suspended future of the same thread has begun.
    /// Hold no [`Ref`](crate::Ref) meanwhile.
    ///
    /// # Panics
    ///
    /// If it is called inside of a load or a compute of the same key: in `f`, a loader, the weigher, the
    /// listener that is told of the old entry (there the panic ends the listener's call alone).
    ///
    /// ```
    /// use stillpoint_cache::{Cache, CompResult, Op};
    ///
    /// let tries: Cache<String, u32> = Cache::with_entries(100);
    /// tries.insert("user".to_owned(), 1);
    /// // One try less, and no entry after the last.
    /// let result = tries.entry("user").and_compute_with(|entry| match entry.map(|entry| entry.into_value()) {
    ///     Some(left @ 1..) => Op::Put(left - 1),
    ///     _ => Op::Remove,
    /// });
    /// assert!(matches!(result, CompResult::ReplacedWith(entry) if *entry.value() == 0));
    /// ```
    pub fn and_compute_with(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> Op<V>,
    ) -> CompResult<K, V> {
        let Ok(result) = self.and_try_compute_with(|entry| Ok::<_, Infallible>(f(entry)));
        result
    }

    /// As [`and_compute_with`](Self::and_compute_with), with a function that may fail: then nothing is changed.
    ///
    /// # Errors
    ///
    /// Returns the error of `f`, to this caller only.
    ///
    /// ```
    /// use stillpoint_cache::{Cache, Op};
    ///
    /// let cache: Cache<u64, String> = Cache::with_entries(100);
    /// let result = cache.entry(&1).and_try_compute_with(|_| "x".parse::<u32>().map(|x| Op::Put(x.to_string())));
    /// assert!(result.is_err() && !cache.contains_key(&1));
    /// ```
    pub fn and_try_compute_with<E>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> Result<Op<V>, E>,
    ) -> Result<CompResult<K, V>, E> {
        block_on(self.and_try_compute_with_async(|entry| ready(f(entry))))
    }

    /// As [`and_upsert_with`](Self::and_upsert_with), with a function that returns a future: see
    /// [`and_try_compute_with_async`](Self::and_try_compute_with_async).
    pub async fn and_upsert_with_async<F: Future<Output = V>>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
    ) -> Entry<K, V> {
        let put = |entry| {
            let value = f(entry);
            async { Op::Put(value.await) }
        };
        let result = self.and_compute_with_async(put).await;
        result.into_entry().expect("an entry was put in")
    }

    /// As [`and_compute_with`](Self::and_compute_with), with a function that returns a future: see
    /// [`and_try_compute_with_async`](Self::and_try_compute_with_async).
    pub async fn and_compute_with_async<F: Future<Output = Op<V>>>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
    ) -> CompResult<K, V> {
        let compute = |entry| {
            let op = f(entry);
            async { Ok::<_, Infallible>(op.await) }
        };
        let Ok(result) = self.and_try_compute_with_async(compute).await;
        result
    }

    /// As [`and_try_compute_with`](Self::and_try_compute_with), with a function that returns a future. Needs no
    /// particular runtime. If the future that this returns is dropped, the entry stays as it was.
    ///
    /// # Errors
    ///
    /// As [`and_try_compute_with`](Self::and_try_compute_with).
    ///
    /// ```
    /// use stillpoint_cache::{Cache, CompResult, Op};
    ///
    /// async fn refresh(pages: &Cache<String, usize>, path: &str) -> std::io::Result<CompResult<String, usize>> {
    ///     pages.entry(path).and_try_compute_with_async(async |_| Ok(Op::Put(path.len()))).await
    /// }
    /// ```
    pub async fn and_try_compute_with_async<E, F>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
    ) -> Result<CompResult<K, V>, E>
    where
        F: Future<Output = Result<Op<V>, E>>,
    {
        let mut leader = self.lead().await;
        let seen = leader.see();
        let entry = seen
            .clone()
            .map(|value| Entry::of(leader.key, value, false));
        let op = leader.flight.run(async { f(entry).await }).await?;
        Ok(leader.apply(seen, op))
    }

    /// Waits until the caller leads the key's flight.
    async fn lead(self) -> Leader<'a, K, V, S, Q> {
        loop {
            match self.cache.role(self.key, true) {
                Role::Lead(leader) => return leader,
                Role::Wait(flight) => {
                    let mut waiter = Waiter::of(&flight);
                    poll_fn(|context| waiter.poll(context).map(|_| ())).await;
                }
                Role::Alone => panic!(
                    "a compute of a key was called inside of a load or a compute of the same key (or the \
                     key's `Eq` does not agree with itself): it would wait for itself"
                ),
            }
        }
    }
}

/// A leader that computes.
impl<K, V, S, Q> Leader<'_, K, V, S, Q>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
    Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
{
    /// Looks the entry up, and returns a clone of its value.
    fn see(&mut self) -> Option<V> {
        let cache = self.cache;
        let store = &cache.inner.section();
        let found = cache.find(self.key, store);
        let found = found.filter(|&found| cache.inner.is_found(found));
        let watched = found.filter(|&found| {
            let (mut state, mut locked) = cache.inner.lock(store);
            state.watch(&mut locked, Id::of(found), &self.flight.load)
        });
        let Some(found) = watched else {
            cache.handle.count_miss();
            return None;
        };
        self.seen = Some(Id::of(found));
        cache.count_hit(found);
        Some(found.get().value.value.clone())
    }

    /// Applies `op`; `seen` is the value that `f` was shown.
    fn apply(mut self, seen: Option<V>, op: Op<V>) -> CompResult<K, V> {
        let (value, ttl) = match (op, seen) {
            (Op::Put(value), _) => (value, None),
            (Op::PutWithTtl(value, ttl), _) => (value, Some(ttl)),
            (Op::Nop, Some(value)) => {
                return CompResult::Unchanged(Entry::of(self.key, value, false));
            }
            (Op::Remove, Some(value)) if self.remove() => {
                return CompResult::Removed(Entry::of(self.key, value, false));
            }
            (Op::Nop | Op::Remove, _) => {
                return CompResult::StillNone(self.key.to_owned());
            }
        };
        let was_there = self.seen.is_some();
        let mut entry = Entry::of(self.key, value.clone(), true);
        let origin = Origin::Load(&self.flight.load, self.seen);
        let key = self.key.to_owned();
        let _ = self.cache.put(key, value, ttl, origin, unseen);
        self.seen = None;
        if was_there {
            entry.is_old_value_replaced = true;
            CompResult::ReplacedWith(entry)
        } else {
            CompResult::Inserted(entry)
        }
    }

    /// Removes the entry that it has seen. Returns false if that is not there.
    fn remove(&mut self) -> bool {
        let Some(id) = self.seen.take() else {
            return false;
        };
        let cache = self.cache;
        let mut notes = cache.inner.notes();
        let store = &cache.inner.section();
        let (mut state, mut locked) = cache.inner.lock(store);
        if !state.unwatch(&mut locked, id, &self.flight.load) {
            return false;
        }
        // SAFETY: of this cache. It had not been claimed under the lock just now, so it was not retired before
        // this section began.
        let found: Found<'_, K, Node<V>> = unsafe { id.found() };
        let (presence, _) = cache.claim(found, (state, locked));
        store.remove_owning(found, owned(found));
        notes.add(found, presence.cause(Cause::Removed));
        presence == Presence::Found
    }
}
