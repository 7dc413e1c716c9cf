//! Loads: one for all callers that miss a key at a time.
//!
//! The first caller puts a [`Flight`] into a map of these, and loads; the others find it and wait. The callers
//! that waited for an abandoned one begin anew, with their own loaders.
//!
//! An invalidation takes a load's flight out of the map (a compute's stays), and makes its
//! [`Load`](crate::state::Load) outdated under the lock of the queues: later callers load anew, and the
//! flight's value goes only to callers that waited before. It is not kept: either the leader finds under the
//! lock that the load is outdated, or its entry was linked before, and the invalidation finds that in the map.
//!
//! The map does not own flights. So a value is dropped with the last caller that waits for it, and not
//! after the next grace period, nor by an invalidation, which uses the [`Load`](crate::state::Load) alone.
//!
//! All that the leader runs until its flight has ended is user code that may ask for the same key:
//! loader, weigher, clones, listener. It must not wait for itself: `Flight::running`.

use crate::{
    cache::Cache,
    flight::{Flight, Outcome, Shown, Waiter},
    node::Id,
    put::{self, Origin, unseen},
    statistics::Event,
};
use std::{
    any::Any,
    convert::Infallible,
    future::{Future, poll_fn},
    hash::{BuildHasher, Hash},
    mem,
    pin::pin,
    sync::{Arc, Weak, atomic::Ordering},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};
use stillpoint_map::{Equivalent, internal::Found};
use stillpoint_platform::{clock, user_code};

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Takes the flight of a key out of the map if `condition` accepts it.
    fn take_flight<Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        condition: impl FnOnce(&Shown<V>) -> bool,
    ) {
        let section = self.inner.section();
        let flights = section.flights();
        let there = flights.find(self.hash(key), |other| key.equivalent(other));
        if let Some(there) = there.filter(|there| condition(&there.get().value)) {
            flights.remove(there);
        }
    }

    fn forget_flight<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q, flight: &Weak<Flight<V>>) {
        self.take_flight(key, |other| other.flight.ptr_eq(flight));
    }

    /// Outdates the load or compute of a key that is under way: its value is not kept. A load's flight leaves
    /// the map, so later callers load anew. A compute's stays: callers that wait for it go on waiting.
    pub(crate) fn outdate_load<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) {
        // Outdated before it leaves the map: what a later load brings is not replaced by what this one does.
        self.take_flight(key, |flight| {
            // The lock also orders the caller's look-up after the insert of a flight that has ended.
            self.with_state(|_| flight.load.outdate());
            !flight.is_compute
        });
    }

    /// Ends the sharing of all loads of the tenant and those below it. Their values are not kept, nor those of
    /// computes that have seen an entry there.
    pub(crate) fn outdate_loads(&self) {
        let section = self.inner.section();
        let flights = section.flights();
        for there in flights.iter() {
            let Shown {
                load, is_compute, ..
            } = &there.get().value;
            let outdated = self.with_own(|state, number| {
                let is_within = load.is_within(state, number);
                load.is_outdated.fetch_or(is_within, Ordering::Relaxed) | is_within
            });
            if outdated == Some(true) && !is_compute {
                flights.remove(there);
            }
        }
    }
}

/// The caller that loads or computes. Its flight ends with it.
pub struct Leader<'a, K, V, S, Q: ?Sized> {
    pub cache: &'a Cache<K, V, S>,
    pub key: &'a Q,
    pub flight: Arc<Flight<V>>,
    /// The entry that a compute has seen, until it changes that.
    pub seen: Option<Id>,
    /// `None` until it loads, and for a compute.
    began: Option<u64>,
    has_loaded: bool,
    /// Takes the flight out of the map: no later caller finds it. `None` once that is done.
    leave_map: Option<fn(&Self)>,
    /// The outcome for callers that wait.
    outcome: Outcome<V>,
}

impl<K, V, S, Q: ?Sized> Drop for Leader<'_, K, V, S, Q> {
    fn drop(&mut self) {
        if let Some(id) = self.seen {
            // In the child of a fork that has lost the lock, the note stays.
            if let Some(mut state) = self.cache.inner.shared.lock_unless_lost() {
                state.forget_compute(id, &self.flight.load);
            }
        }
        if let Some(began) = self.began {
            let ended = if self.has_loaded {
                Event::Load
            } else {
                Event::LoadFailure
            };
            let counters = &self.cache.handle.counters;
            counters.add(Event::LoadNanos, clock::now().saturating_sub(began));
            counters.add(ended, 1);
        }
        // `Hash` and `Eq` may panic: the flight ends all the same, and `role` takes it out.
        if let Some(leave_map) = self.leave_map {
            let _ = user_code::contained(|| leave_map(self));
        }
        self.flight
            .end(mem::replace(&mut self.outcome, Outcome::Abandoned));
        // In the child of a fork it has no outcome that would say so.
        self.flight.running.store(0, Ordering::Relaxed);
    }
}

/// The next step of a caller that has missed, or computes.
pub enum Role<'a, K, V, S, Q: ?Sized> {
    Lead(Leader<'a, K, V, S, Q>),
    Wait(Arc<Flight<V>>),
    /// The thread already leads the flight of this key: it runs the loader, and inserts nothing.
    Alone,
}

/// A loader's result: a value, and its time to live unless that is the cache's.
pub type Timed<V> = (V, Option<Duration>);

/// The result of a load.
pub struct Loaded<V> {
    pub value: V,
    /// Whether this caller has loaded it.
    pub is_fresh: bool,
}

impl<V> Loaded<V> {
    fn found(value: V) -> Self {
        let is_fresh = false;
        Self { value, is_fresh }
    }
}

/// The error of a loader that finds nothing.
struct Nothing;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the value of a key; where there is none, what `load` returns, which is inserted.
    ///
    /// The key is borrowed, and cloned only for a load.
    ///
    /// An entry that is inserted for the key during the load stays, and the loaded value does not replace it,
    /// unless that entry has been evicted or has expired by then. If the key is removed or invalidated during
    /// the load, alone or with others, the load is outdated: later callers load anew, and the value goes only
    /// to callers that waited before, and is not kept.
    ///
    /// Of all callers that ask for the key meanwhile, one loads, and the others wait for it. If
    /// `load` panics, the panic is its caller's, and another one loads. A `load` that asks for its
    /// own key runs the inner loader, whose value is not inserted; so do `Clone`, the weigher and
    /// the listener, where they ask for it. Two loaders that ask for each other's keys wait for
    /// ever, and so does a call on a thread for a load that a suspended future of the same thread
    /// has begun. Hold no [`Ref`](crate::Ref) meanwhile: its section would stay
    /// open.
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let pages: Cache<String, usize> = Cache::with_entries(100);
    /// assert_eq!(pages.get_with("/help", || 4), 4);
    /// assert_eq!(pages.get_with("/help", || unreachable!()), 4);
    /// ```
    pub fn get_with<Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized>(
        &self,
        key: &Q,
        load: impl FnOnce() -> V,
    ) -> V {
        sure(self.get_or_load(key, || Ok((load(), None)))).value
    }

    /// As [`get_with`](Self::get_with), with a loader that may fail.
    ///
    /// # Errors
    ///
    /// That of `load`, which all callers get that have waited for it. (One that has waited with
    /// another type of errors loads itself.)
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let numbers: Cache<String, u32> = Cache::with_entries(100);
    /// assert_eq!(numbers.try_get_with("7", || "7".parse::<u32>()), Ok(7));
    /// assert!(numbers.try_get_with("x", || "x".parse::<u32>()).is_err());
    /// ```
    pub fn try_get_with<Q, E>(
        &self,
        key: &Q,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, Arc<E>>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
        E: Send + Sync + 'static,
    {
        let load = || load().map(|value| (value, None));
        self.get_or_load(key, load).map(|loaded| loaded.value)
    }

    /// As [`try_get_with`](Self::try_get_with), with a loader that also says how long the entry lasts, as
    /// [`insert_with_ttl`](Self::insert_with_ttl) does.
    ///
    /// # Errors
    ///
    /// As [`try_get_with`](Self::try_get_with).
    ///
    /// ```
    /// use std::{convert::Infallible, time::Duration};
    /// use stillpoint_cache::{Cache, ManualClock};
    ///
    /// let clock = ManualClock::default();
    /// let names: Cache<String, u32> = Cache::builder().max_entries(100).clock(clock.clone()).build();
    /// let resolve = || Ok::<_, Infallible>((7, Duration::from_secs(60)));
    /// assert_eq!(names.try_get_with_ttl("localhost", resolve), Ok(7));
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(names.get("localhost"), None);
    /// ```
    pub fn try_get_with_ttl<Q, E>(
        &self,
        key: &Q,
        load: impl FnOnce() -> Result<(V, Duration), E>,
    ) -> Result<V, Arc<E>>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
        E: Send + Sync + 'static,
    {
        let load = || load().map(|(value, ttl)| (value, Some(ttl)));
        self.get_or_load(key, load).map(|loaded| loaded.value)
    }

    /// As [`get_with`](Self::get_with), with a loader that may find nothing. That is not kept: callers
    /// that have waited get `None` as well, and later ones load anew. It counts as a failure.
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// let users: Cache<String, u32> = Cache::with_entries(100);
    /// assert_eq!(users.optionally_get_with("nobody", || None), None);
    /// assert_eq!(users.optionally_get_with("root", || Some(0)), Some(0));
    /// ```
    pub fn optionally_get_with<Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized>(
        &self,
        key: &Q,
        load: impl FnOnce() -> Option<V>,
    ) -> Option<V> {
        let load = || load().map(|value| (value, None)).ok_or(Nothing);
        let loaded = self.get_or_load(key, load).ok()?;
        Some(loaded.value)
    }

    /// As [`get_with`](Self::get_with), with a future as loader. Needs no particular runtime.
    ///
    /// If the future that this returns is dropped while it loads, another caller loads.
    ///
    /// ```
    /// use stillpoint_cache::Cache;
    ///
    /// async fn page(pages: &Cache<String, usize>, path: &str) -> usize {
    ///     pages.get_with_async(path, async { path.len() }).await
    /// }
    /// ```
    pub async fn get_with_async<Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized>(
        &self,
        key: &Q,
        load: impl Future<Output = V>,
    ) -> V {
        let load = async { Ok((load.await, None)) };
        sure(self.get_or_load_async(key, load).await)
    }

    /// As [`try_get_with`](Self::try_get_with), with a future as loader: see
    /// [`get_with_async`](Self::get_with_async).
    ///
    /// # Errors
    ///
    /// As [`try_get_with`](Self::try_get_with).
    pub async fn try_get_with_async<Q, E>(
        &self,
        key: &Q,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, Arc<E>>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
        E: Send + Sync + 'static,
    {
        let load = async { load.await.map(|value| (value, None)) };
        self.get_or_load_async(key, load).await
    }

    /// As [`try_get_with_ttl`](Self::try_get_with_ttl), with a future as loader: see
    /// [`get_with_async`](Self::get_with_async).
    ///
    /// # Errors
    ///
    /// As [`try_get_with`](Self::try_get_with).
    pub async fn try_get_with_ttl_async<Q, E>(
        &self,
        key: &Q,
        load: impl Future<Output = Result<(V, Duration), E>>,
    ) -> Result<V, Arc<E>>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
        E: Send + Sync + 'static,
    {
        let load = async { load.await.map(|(value, ttl)| (value, Some(ttl))) };
        self.get_or_load_async(key, load).await
    }

    /// As [`optionally_get_with`](Self::optionally_get_with), with a future as loader: see
    /// [`get_with_async`](Self::get_with_async).
    pub async fn optionally_get_with_async<
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    >(
        &self,
        key: &Q,
        load: impl Future<Output = Option<V>>,
    ) -> Option<V> {
        let load = async { load.await.map(|value| (value, None)).ok_or(Nothing) };
        self.get_or_load_async(key, load).await.ok()
    }

    /// Returns the value of a key, and loads it if there is none.
    pub(crate) fn get_or_load<Q, E>(
        &self,
        key: &Q,
        load: impl FnOnce() -> Result<Timed<V>, E>,
    ) -> Result<Loaded<V>, Arc<E>>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
        E: Send + Sync + 'static,
    {
        match self.get(key) {
            Some(value) => Ok(Loaded::found(value)),
            None => block_on(self.load(key, async { load() })),
        }
    }

    async fn get_or_load_async<Q, E>(
        &self,
        key: &Q,
        load: impl Future<Output = Result<Timed<V>, E>>,
    ) -> Result<V, Arc<E>>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
        E: Send + Sync + 'static,
    {
        match self.get(key) {
            Some(value) => Ok(value),
            None => self.load(key, load).await.map(|loaded| loaded.value),
        }
    }

    /// Loads a key that a look-up has missed, unless another caller does.
    async fn load<Q, E>(
        &self,
        key: &Q,
        load: impl Future<Output = Result<Timed<V>, E>>,
    ) -> Result<Loaded<V>, Arc<E>>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
        E: Send + Sync + 'static,
    {
        let is_fresh = true;
        let peek = || self.peek(key).map(|found| V::clone(&found));
        loop {
            match self.role(key, false) {
                Role::Lead(mut leader) => {
                    // A load may have ended since the miss. It is not for those that wait: the key may have
                    // been invalidated before they came.
                    if let Some(value) = peek() {
                        return Ok(Loaded::found(value));
                    }
                    leader.began = Some(clock::now());
                    let loaded = leader.flight.run(load).await;
                    let value = leader.finish(loaded)?;
                    return Ok(Loaded { value, is_fresh });
                }
                Role::Alone => {
                    // Not inserted: what the outer load returns is.
                    let (value, _) = load.await.map_err(Arc::new)?;
                    return Ok(Loaded { value, is_fresh });
                }
                Role::Wait(flight) => {
                    let mut waiter = Waiter::of(&flight);
                    let result = poll_fn(|context| waiter.poll(context).map(shared)).await;
                    if let Some(result) = result {
                        return result.map(Loaded::found);
                    }
                    // Without a value, if it was a compute. The next flight may be another's.
                    if let Some(value) = peek() {
                        return Ok(Loaded::found(value));
                    }
                }
            }
        }
    }

    /// Returns the part of the caller in the flight of a key.
    pub(crate) fn role<'a, Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized>(
        &'a self,
        key: &'a Q,
        is_compute: bool,
    ) -> Role<'a, K, V, S, Q> {
        let mut ended = Weak::new();
        loop {
            let flight_of = |there: Found<'_, K, Shown<V>>| Weak::clone(&there.get().value.flight);
            let hash = self.hash(key);
            let there = {
                let section = self.inner.section();
                let flights = section.flights();
                let there = flights.find(hash, |other| key.equivalent(other));
                there.map(flight_of)
            };
            let seen = if let Some(seen) = there {
                seen
            } else {
                // The clone may panic: before there is a flight, which the leader alone ends.
                let key_of_flight = key.to_owned();
                let flight = Flight::of(Arc::clone(&self.handle));
                // The key's destructor is user code: declared before the section.
                let mut made = None;
                let section = self.inner.section();
                let flights = section.flights();
                made.replace(flights.new_entry(hash, key_of_flight, flight.shown(is_compute)));
                let Err(there) = put::add(flights, &mut made) else {
                    return Role::Lead(Leader {
                        cache: self,
                        key,
                        flight,
                        seen: None,
                        began: None,
                        has_loaded: false,
                        leave_map: Some(|leader| {
                            let flight = Arc::downgrade(&leader.flight);
                            leader.cache.forget_flight(leader.key, &flight);
                        }),
                        outcome: Outcome::Abandoned,
                    });
                };
                flight_of(there)
            };
            // What has ended is no longer led by any thread, whatever `running` says.
            if let Some(flight) = seen.upgrade()
                && flight.outcome.get().is_none()
            {
                if flight.is_mine() {
                    return Role::Alone;
                }
                if !flight.is_of_parent() {
                    return Role::Wait(flight);
                }
            }
            // Otherwise the key's `Eq` does not agree with itself, and the flight cannot be taken out.
            if seen.ptr_eq(&ended) {
                return Role::Alone;
            }
            // Of a leader that a fork has left behind, or whose `Eq` has panicked at its end.
            self.forget_flight(key, &seen);
            ended = seen;
        }
    }
}

impl<K, V, S, Q> Leader<'_, K, V, S, Q>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
    Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
{
    fn finish<E: Send + Sync + 'static>(
        mut self,
        loaded: Result<Timed<V>, E>,
    ) -> Result<V, Arc<E>> {
        match loaded {
            Ok((value, ttl)) => {
                let ours = value.clone();
                self.has_loaded = true;
                let key = self.key.to_owned();
                let origin = Origin::Load(&self.flight.load, None);
                let _ = self.cache.put(key, value, ttl, origin, unseen);
                // If it panics, the drop tries once more.
                if let Some(leave_map) = self.leave_map {
                    leave_map(&self);
                    self.leave_map = None;
                }
                // Who is about to wait begins anew, and finds the entry.
                if Arc::strong_count(&self.flight) > 1 {
                    self.outcome = Outcome::Value(ours.clone());
                }
                Ok(ours)
            }
            Err(error) => {
                let error = Arc::new(error);
                self.outcome = Outcome::Error(Arc::clone(&error) as Arc<dyn Any + Send + Sync>);
                Err(error)
            }
        }
    }
}

/// Returns the result of a flight for a caller that waited; `None` if that caller has to begin anew.
fn shared<V: Clone, E: Send + Sync + 'static>(
    outcome: Option<&Outcome<V>>,
) -> Option<Result<V, Arc<E>>> {
    match outcome? {
        Outcome::Value(value) => Some(Ok(value.clone())),
        Outcome::Error(error) => Some(Err(Arc::clone(error).downcast().ok()?)),
        Outcome::Abandoned => None,
    }
}

/// Returns the value of a load that cannot fail.
pub fn sure<T>(loaded: Result<T, Arc<Infallible>>) -> T {
    loaded.unwrap_or_else(|never| match *never {})
}

/// Polls a future of this crate on the calling thread, which is parked while it waits for a flight.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    // A caller that leads does not wait, and needs no waker.
    let mut context = Context::from_waker(Waker::noop());
    if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
        return output;
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::{
        cell::Cell,
        hash::Hasher,
        panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
        sync::{Barrier, atomic::AtomicU64},
        thread,
    };

    #[test]
    fn a_load_whose_hash_panics_once_leaves_no_flight() {
        thread_local!(static LEFT: Cell<usize> = const { Cell::new(usize::MAX) });
        /// A key whose nth hash panics.
        #[derive(Clone, PartialEq, Eq)]
        struct Key;
        impl Hash for Key {
            fn hash<H: Hasher>(&self, _: &mut H) {
                let left = LEFT.get();
                LEFT.set(left.wrapping_sub(1));
                if left == 0 {
                    resume_unwind(Box::new("expected"));
                }
            }
        }
        for hashes in 0.. {
            let cache: Cache<Key, u64> = Cache::with_entries(10);
            LEFT.set(hashes);
            let loaded = catch_unwind(AssertUnwindSafe(|| cache.get_with(&Key, || 1)));
            let flights = cache.inner.section().flights().iter().count();
            assert_eq!(flights, 0, "{hashes}");
            if loaded.is_ok() {
                assert!(hashes > 2);
                break;
            }
        }
    }

    /// It has found the load, and waits for the lock, when that ends.
    #[test]
    fn an_invalidation_has_no_value_that_is_being_loaded() {
        struct Cloned(Arc<AtomicU64>);
        impl Clone for Cloned {
            fn clone(&self) -> Self {
                self.0.fetch_add(1, Ordering::Relaxed);
                Self(Arc::clone(&self.0))
            }
        }
        let (clones, step) = (Arc::<AtomicU64>::default(), Arc::new(Barrier::new(2)));
        let told = Arc::clone(&step);
        let builder = Cache::builder().max_entries(1);
        // Between the insert of what was loaded and the end of the load.
        let builder = builder.eviction_listener(move |&key: &u32, _: &Cloned, _| {
            if key == 0 {
                told.wait();
                told.wait();
            }
        });
        let cache = builder.build();
        cache.insert(0, Cloned(Arc::default()));
        thread::scope(|scope| {
            let load = scope.spawn(|| drop(cache.get_with(&1, || Cloned(Arc::clone(&clones)))));
            step.wait();
            let held = cache.inner.shared.lock();
            let invalidate = || scope.spawn(|| cache.remove(&1));
            let invalidation = cache.inner.shared.until_asked(invalidate);
            step.wait();
            load.join().expect("it loads");
            drop(held);
            assert!(invalidation.join().expect("it invalidates"));
        });
        assert_eq!(
            (clones.load(Ordering::Relaxed), cache.entry_count()),
            (2, 0)
        );
    }
}
