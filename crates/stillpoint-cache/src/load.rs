//! Loads: one for all callers that miss a key at a time.
//!
//! The first caller puts a [`Flight`] into a map of these, and loads; the others find it and wait.
//! A flight ends with a value, with an error, or abandoned: where the loader panicked or its future
//! was dropped. The callers that waited for an abandoned one begin anew, with their own loaders.
//!
//! An invalidation takes the flight out of the map, and makes its [`Load`] outdated under the lock of the
//! queues: later callers load anew, and the flight's value goes only to callers that waited before. It is
//! not kept: either the leader finds under the lock that the load is outdated, or its entry was linked
//! before, and the invalidation finds that in the map.
//!
//! The map does not own flights. So a value is dropped with the last caller that waits for it, and not
//! after the next grace period, nor by an invalidation, which uses the [`Load`] alone.
//!
//! All that the leader runs until its flight has ended is user code that may ask for the same key:
//! loader, weigher, clones, listener. It must not wait for itself: `Flight::running`.

use crate::{cache::Cache, statistics::Event, tenant::Handle};
use std::{
    any::Any,
    convert::Infallible,
    future::{Future, poll_fn},
    hash::{BuildHasher, Hash},
    mem,
    pin::pin,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};
use stillpoint_map::{Equivalent, HashMap};
use stillpoint_platform::{
    clock,
    fork::process,
    sync::{Mutex, lock},
    thread::token,
    user_code,
};

/// Upper bound on the ended flights that a caller takes out of the map. Keys whose `Eq` does not agree with
/// itself could keep it at that without end.
const STALE_FLIGHTS: usize = 8;

/// The loads under way, by key.
pub type Flights<K, V> = HashMap<K, Shown<V>>;

/// A flight, as later callers and invalidations find it.
pub struct Shown<V> {
    load: Arc<Load>,
    flight: Weak<Flight<V>>,
}

/// The part of a load that invalidations use.
#[derive(Debug)]
pub struct Load {
    /// Whether the key was invalidated after it had begun. Changed and read under the lock of the
    /// queues, so Relaxed.
    pub is_outdated: AtomicBool,
    /// The tenant whose view loads.
    tenant: Arc<Handle>,
}

impl Load {
    /// Makes the part of a load by a view of `tenant`.
    pub fn of(tenant: Arc<Handle>) -> Self {
        Self {
            is_outdated: AtomicBool::new(false),
            tenant,
        }
    }
}

enum Outcome<V> {
    Value(V),
    Error(Arc<dyn Any + Send + Sync>),
    Abandoned,
}

/// A load under way.
pub struct Flight<V> {
    outcome: OnceLock<Outcome<V>>,
    /// The wakers of those that wait, each at a place of its own; `None` where one has left.
    waiting: Mutex<Vec<Option<Waker>>>,
    /// The token of the thread that leads at this moment; 0 for none, between polls of a future.
    running: AtomicU64,
    /// The process that began it. In a child of a fork, the threads that were loading are gone.
    process: u64,
    load: Arc<Load>,
}

impl<V> Flight<V> {
    fn of(tenant: Arc<Handle>) -> Arc<Self> {
        Arc::new(Self {
            outcome: OnceLock::new(),
            waiting: Mutex::new(Vec::new()),
            running: AtomicU64::new(token().get()),
            process: process().generation(),
            load: Arc::new(Load::of(tenant)),
        })
    }

    fn shown(self: &Arc<Self>) -> Shown<V> {
        Shown {
            load: Arc::clone(&self.load),
            flight: Arc::downgrade(self),
        }
    }

    /// Returns whether the calling thread leads the flight, and so must not wait for it.
    fn is_mine(&self) -> bool {
        self.running.load(Ordering::Relaxed) == token().get()
    }

    /// Returns whether the flight began in a parent of this process.
    fn is_of_parent(&self) -> bool {
        self.process != process().generation()
    }

    fn end(&self, outcome: Outcome<V>) {
        if self.is_of_parent() {
            // No thread of this process waits for it, and the lock may be a lost thread's.
            return;
        }
        let _ = self.outcome.set(outcome);
        let waiting = mem::take(&mut *lock(&self.waiting));
        for waker in waiting.into_iter().flatten() {
            // A waker is user code, and this may be called while a loader's panic unwinds.
            let _ = user_code::contained(|| waker.wake());
        }
    }

    /// Blocks the thread until the flight has ended.
    fn wait<R>(&self, then: impl FnOnce(Option<&Outcome<V>>) -> R) -> R {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut waiter = Waiter::of(self);
        loop {
            match waiter.poll(&mut context) {
                Poll::Ready(outcome) => return then(outcome),
                Poll::Pending => thread::park(),
            }
        }
    }
}

/// A caller that waits for a flight. Its waker goes with it.
struct Waiter<'f, V> {
    flight: &'f Flight<V>,
    /// Index of its waker.
    place: Option<usize>,
}

impl<'f, V> Waiter<'f, V> {
    fn of(flight: &'f Flight<V>) -> Self {
        Self {
            flight,
            place: None,
        }
    }

    /// Returns the outcome; `None` for a flight whose leader a fork has left behind.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<&'f Outcome<V>>> {
        let flight = self.flight;
        if flight.is_of_parent() {
            // No thread ends it here, and its lock may be a lost thread's.
            return Poll::Ready(flight.outcome.get());
        }
        if flight.outcome.get().is_none() {
            // Cloned, and the old one dropped, outside of the lock: it is user code.
            let waker = Some(context.waker().clone());
            let old = self.register(waker);
            drop(old);
        }
        // After the waker is there: `end` sets the outcome before it takes the wakers.
        match flight.outcome.get() {
            Some(outcome) => Poll::Ready(Some(outcome)),
            None => Poll::Pending,
        }
    }

    /// Puts a waker at the waiter's place, and returns what was there.
    fn register(&mut self, waker: Option<Waker>) -> Option<Waker> {
        let mut waiting = lock(&self.flight.waiting);
        // `end` takes all places, but then there is an outcome, and no waker matters.
        match self.place.and_then(|place| waiting.get_mut(place)) {
            Some(place) => mem::replace(place, waker),
            None => {
                self.place = Some(waiting.len());
                waiting.push(waker);
                None
            }
        }
    }
}

impl<V> Drop for Waiter<'_, V> {
    fn drop(&mut self) {
        let Some(place) = self.place else {
            return;
        };
        if self.flight.is_of_parent() || self.flight.outcome.get().is_some() {
            return;
        }
        let mut waiting = lock(&self.flight.waiting);
        let waker = waiting.get_mut(place).and_then(Option::take);
        // Places at the end are used again. In the middle, each is one word until the load ends.
        while waiting.last().is_some_and(Option::is_none) {
            waiting.pop();
        }
        drop(waiting);
        // User code, outside of the lock, and perhaps while a panic unwinds.
        let _ = user_code::contained(|| drop(waker));
    }
}

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
    use std::sync::Barrier;

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
            let invalidation = scope.spawn(|| cache.invalidate(&1));
            for _ in 0..1000 {
                thread::yield_now();
            }
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
