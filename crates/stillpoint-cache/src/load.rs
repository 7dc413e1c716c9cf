//! Loads: one for all callers that miss a key at a time.
//!
//! The first caller puts a [`Flight`] into a map of these, and loads; the others find it and wait.
//! A flight ends with a value, with an error, or abandoned: where the loader panicked or its future
//! was dropped. The callers that waited for an abandoned one begin anew, with their own loaders.
//!
//! An invalidation takes the flight out of the map, and makes its [`Load`](crate::flight::Load) outdated
//! under the lock of the queues: later callers load anew, and the flight's value goes only to callers that
//! waited before. It is not kept: either the leader finds under the lock that the load is outdated, or its entry was linked
//! before, and the invalidation finds that in the map.
//!
//! The map does not own flights. So a value is dropped with the last caller that waits for it, and not
//! after the next grace period, nor by an invalidation, which uses the [`Load`](crate::flight::Load) alone.
//!
//! All that the leader runs until its flight has ended is user code that may ask for the same key:
//! loader, weigher, clones, listener. It must not wait for itself: `Flight::running`.

use crate::{
    cache::Cache,
    flight::{Flight, Outcome, Shown, Waiter},
    statistics::Event,
};
use std::{
    any::Any,
    convert::Infallible,
    future::{Future, poll_fn},
    hash::{BuildHasher, Hash},
    mem,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};
use stillpoint_map::Equivalent;
use stillpoint_platform::{clock, thread::token, user_code};

/// Upper bound on the ended flights that a caller takes out of the map. Keys whose `Eq` does not agree with
/// itself could keep it at that without end.
const STALE_FLIGHTS: usize = 8;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn forget_flight(&self, key: &K, flight: &Weak<Flight<V>>) {
        let flights = self.inner().flights.pin();
        let _ = flights.remove_if(key, |_, other| other.flight.ptr_eq(flight));
    }

    /// Ends the sharing of a load of a key that is under way. Its value is not kept.
    pub(crate) fn outdate_load<Q>(&self, key: &Q)
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let flights = self.inner().flights.pin();
        // Outdated before it leaves the map: what a later load brings is not replaced by what this one does.
        let _ = flights.remove_if(key, |_, flight| {
            // The lock also orders the caller's look-up after the insert of a flight that has ended.
            self.with_state(|_| flight.load.is_outdated.store(true, Ordering::Relaxed));
            true
        });
    }

    /// Ends the sharing of all loads of the tenant and those below it. Their values are not kept.
    pub(crate) fn outdate_loads(&self) {
        self.inner().flights.pin().retain(|_, Shown { load, .. }| {
            let outdated = self.with_own(|state, number| {
                let is_within = state.is_within(load.tenant.number(), number);
                load.is_outdated.fetch_or(is_within, Ordering::Relaxed) | is_within
            });
            outdated != Some(true)
        });
    }
}

/// The caller that loads. Its flight ends with it.
struct Leader<'c, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    cache: &'c Cache<K, V, S>,
    key: K,
    flight: Arc<Flight<V>>,
    /// `None` until it loads.
    began: Option<u64>,
    has_loaded: bool,
    /// Whether the flight is in the map.
    is_shown: bool,
    /// The outcome for callers that wait.
    outcome: Outcome<V>,
}

impl<K, V, S> Drop for Leader<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn drop(&mut self) {
        // A future's, which is dropped between two polls.
        self.flight.running.store(token().get(), Ordering::Relaxed);
        if let Some(began) = self.began {
            let handle = self.cache.handle();
            handle.count(Event::LoadNanos, clock::now().saturating_sub(began));
            let ended = if self.has_loaded {
                Event::Load
            } else {
                Event::LoadFailure
            };
            handle.count(ended, 1);
        }
        // `Hash` and `Eq` may panic: the flight ends all the same, and `role` takes it out.
        if self.is_shown {
            let _ = user_code::contained(|| self.leave_map());
        }
        self.flight
            .end(mem::replace(&mut self.outcome, Outcome::Abandoned));
        // In the child of a fork it has no outcome that would say so.
        self.flight.running.store(0, Ordering::Relaxed);
    }
}

impl<K, V, S> Leader<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Takes the flight out of the map: no later caller finds it.
    fn leave_map(&mut self) {
        let flight = Arc::downgrade(&self.flight);
        self.cache.forget_flight(&self.key, &flight);
        self.is_shown = false;
    }
}

/// Marks a flight as led by the calling thread, during a poll.
struct Running<'a>(&'a AtomicU64);

impl<'a> Running<'a> {
    fn on(running: &'a AtomicU64) -> Self {
        running.store(token().get(), Ordering::Relaxed);
        Self(running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The next step of a caller that has missed.
enum Role<'c, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    Found(V),
    Lead(Leader<'c, K, V, S>),
    Wait(Arc<Flight<V>>),
    /// Loads without a flight, and inserts nothing: the loader has asked for its own key.
    Alone,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the value of a key; where there is none, what `load` returns, which is inserted.
    ///
    /// An entry that is inserted for the key during the load stays, and the loaded value does not replace
    /// it. If the key is removed or invalidated during the load, alone or with others, the load is outdated:
    /// later callers load anew, and the value goes only to callers that waited before, and is not kept.
    ///
    /// Of all callers that ask for the key meanwhile, one loads, and the others wait for it. If
    /// `load` panics, the panic is its caller's, and another one loads. A `load` that asks for its
    /// own key runs the inner loader, whose value is not inserted; so do `Clone`, the weigher and
    /// the listener, where they ask for it. Two loaders that ask for each other's keys wait for
    /// ever, and so does a call on a thread for a load that a suspended future of the same thread
    /// has begun. Hold no [`Ref`](crate::Ref) meanwhile: its section would stay
    /// open.
    pub fn get_with(&self, key: K, load: impl FnOnce() -> V) -> V {
        match self.try_get_with(key, || Ok::<_, Infallible>(load())) {
            Ok(value) => value,
            Err(never) => match *never {},
        }
    }

    /// As [`get_with`](Self::get_with), with a loader that may fail.
    ///
    /// # Errors
    ///
    /// That of `load`, which all callers get that have waited for it. (One that has waited with
    /// another type of errors loads itself.)
    pub fn try_get_with<E: Send + Sync + 'static>(
        &self,
        key: K,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, Arc<E>> {
        if let Some(value) = self.get(&key) {
            return Ok(value);
        }
        loop {
            match self.role(&key) {
                Role::Found(value) => return Ok(value),
                Role::Lead(leader) => {
                    let loaded = load();
                    return leader.finish(loaded);
                }
                Role::Alone => {
                    // Not inserted: what the outer load returns is.
                    return load().map_err(Arc::new);
                }
                Role::Wait(flight) => {
                    if let Some(result) = flight.wait(shared) {
                        return result;
                    }
                }
            }
        }
    }

    /// As [`get_with`](Self::get_with), with a future as loader. Needs no particular runtime.
    ///
    /// If the future that this returns is dropped while it loads, another caller loads.
    pub async fn get_with_async(&self, key: K, load: impl Future<Output = V>) -> V {
        match self
            .try_get_with_async(key, async { Ok::<_, Infallible>(load.await) })
            .await
        {
            Ok(value) => value,
            Err(never) => match *never {},
        }
    }

    /// As [`try_get_with`](Self::try_get_with), with a future as loader.
    ///
    /// # Errors
    ///
    /// As [`try_get_with`](Self::try_get_with).
    pub async fn try_get_with_async<E: Send + Sync + 'static>(
        &self,
        key: K,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, Arc<E>> {
        if let Some(value) = self.get(&key) {
            return Ok(value);
        }
        loop {
            match self.role(&key) {
                Role::Found(value) => return Ok(value),
                Role::Lead(leader) => {
                    let mut load = pin!(load);
                    let flight = Arc::clone(&leader.flight);
                    let loaded = poll_fn(|context| {
                        let _running = Running::on(&flight.running);
                        load.as_mut().poll(context)
                    });
                    let loaded = loaded.await;
                    // The leader counts who else waits.
                    drop(flight);
                    return leader.finish(loaded);
                }
                Role::Alone => {
                    return load.await.map_err(Arc::new);
                }
                Role::Wait(flight) => {
                    let mut waiter = Waiter::of(&flight);
                    let result = poll_fn(|context| waiter.poll(context).map(shared)).await;
                    if let Some(result) = result {
                        return result;
                    }
                }
            }
        }
    }

    fn role(&self, key: &K) -> Role<'_, K, V, S> {
        for _ in 0..STALE_FLIGHTS {
            // Clones may panic: both before there is a flight, which the leader alone ends.
            let (key_of_flight, key_of_leader) = (key.clone(), key.clone());
            let new = Flight::of(Arc::clone(self.handle()));
            let flights = self.inner().flights.pin();
            let Err(occupied) = flights.try_insert(key_of_flight, new.shown()) else {
                drop(flights);
                return self.lead(key, key_of_leader, new);
            };
            let seen = Weak::clone(&occupied.current.flight);
            drop(flights);
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
            // Of a leader that a fork has left behind, or whose `Eq` has panicked at its end.
            self.forget_flight(key, &seen);
        }
        Role::Alone
    }

    /// Returns the role of the caller whose flight is in the map.
    fn lead(&self, key: &K, key_of_leader: K, flight: Arc<Flight<V>>) -> Role<'_, K, V, S> {
        let mut leader = Leader {
            cache: self,
            key: key_of_leader,
            flight,
            began: None,
            has_loaded: false,
            is_shown: true,
            outcome: Outcome::Abandoned,
        };
        // A load may have ended since the miss. It is not for those that wait: the key may have been
        // invalidated before they came.
        if let Some(value) = self.peek(key) {
            return Role::Found(value);
        }
        leader.began = Some(clock::now());
        Role::Lead(leader)
    }
}

impl<K, V, S> Leader<'_, K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    fn finish<E: Send + Sync + 'static>(mut self, loaded: Result<V, E>) -> Result<V, Arc<E>> {
        match loaded {
            Ok(value) => {
                // Clones and what an insert calls are user code, too.
                self.flight.running.store(token().get(), Ordering::Relaxed);
                let ours = value.clone();
                self.has_loaded = true;
                self.cache
                    .insert_loaded(self.key.clone(), value, &self.flight.load);
                self.leave_map();
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

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::{sync::Barrier, thread};

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
            let load = scope.spawn(|| drop(cache.get_with(1, || Cloned(Arc::clone(&clones)))));
            step.wait();
            let held = cache.inner().shared.lock();
            let invalidate = || scope.spawn(|| cache.invalidate(&1));
            let invalidation = cache.inner().shared.until_asked(invalidate);
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
