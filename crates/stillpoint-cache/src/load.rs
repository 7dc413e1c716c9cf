//! Loads: one for all callers that miss a key at a time.
//!
//! The first caller puts a [`Flight`] into a map of these, and loads; the others find it and wait.
//! A flight ends with a value, with an error, or abandoned: where the loader panicked or its future
//! was dropped. The callers that waited for an abandoned one begin anew, with their own loaders.

use crate::{cache::Cache, statistics::Event};
use std::{
    any::Any,
    convert::Infallible,
    future::{Future, poll_fn},
    hash::{BuildHasher, Hash},
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};
use stillpoint_map::HashMap;
use stillpoint_platform::{
    clock,
    fork::process,
    sync::{Mutex, lock},
    thread::token,
    user_code,
};

/// The loads under way, by key.
pub type Flights<K, V> = HashMap<K, Arc<Flight<V>>>;

enum Outcome<V> {
    Value(V),
    Error(Arc<dyn Any + Send + Sync>),
    Abandoned,
}

/// A load under way.
pub struct Flight<V> {
    outcome: OnceLock<Outcome<V>>,
    waiting: Mutex<Vec<Waker>>,
    /// The token of the thread that runs the loader at this moment; 0 for none.
    running: AtomicU64,
    /// In a child of a fork, the threads that were loading are gone.
    process: u64,
}

impl<V> Flight<V> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            outcome: OnceLock::new(),
            waiting: Mutex::new(Vec::new()),
            running: AtomicU64::new(0),
            process: process().generation(),
        })
    }

    /// Whether the calling thread is inside the loader: to wait for it would be for ever.
    fn is_mine(&self) -> bool {
        self.running.load(Ordering::Relaxed) == token().get()
    }

    /// Whether it began before a fork that this process is the child of.
    fn is_of_parent(&self) -> bool {
        self.process != process().generation()
    }

    fn end(&self, outcome: Outcome<V>) {
        if self.is_of_parent() {
            // No thread of this process waits for it, and the lock may be a lost thread's.
            return;
        }
        let _ = self.outcome.set(outcome);
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for waker in waiting {
            // A waker is user code, and this may be called while a loader's panic unwinds.
            let _ = user_code::contained(|| waker.wake());
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<&Outcome<V>> {
        if self.outcome.get().is_none() {
            // Cloned, and dropped if it is there already, outside of the lock: it is user code.
            let mut waker = Some(context.waker().clone());
            let mut waiting = lock(&self.waiting);
            if !waiting.iter().any(|other| other.will_wake(context.waker())) {
                waiting.extend(waker.take());
            }
            drop(waiting);
        }
        // After the waker is there: `end` sets the outcome before it takes the wakers.
        match self.outcome.get() {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }

    fn wait(&self) -> &Outcome<V> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match self.poll(&mut context) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => thread::park(),
            }
        }
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
    outcome: Outcome<V>,
}

impl<K, V, S> Drop for Leader<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn drop(&mut self) {
        if let Some(began) = self.began {
            let counters = self.cache.counters();
            counters.add(Event::LoadNanos, clock::now().saturating_sub(began));
            counters.count(match self.outcome {
                Outcome::Value(_) => Event::Load,
                _ => Event::LoadFailure,
            });
        }
        let flights = self.cache.inner().flights.pin();
        let _ = flights.remove_if(&self.key, |_, other| Arc::ptr_eq(other, &self.flight));
        drop(flights);
        self.flight
            .end(std::mem::replace(&mut self.outcome, Outcome::Abandoned));
    }
}

/// Marks a flight as run by the calling thread.
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

/// What a caller that has missed is to do.
enum Role<'c, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    Found(V),
    Lead(Leader<'c, K, V, S>),
    Wait(Arc<Flight<V>>),
    /// The loader asks for what it is to load.
    Recursive,
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Returns the value of a key; where there is none, what `load` returns, which is inserted.
    ///
    /// Of all callers that ask for the key meanwhile, one loads, and the others wait for it. If
    /// `load` panics, the panic is its caller's, and another one loads. A `load` that asks for its
    /// own key runs the inner loader, and does not wait for itself. Two loaders that ask for each
    /// other's keys wait for ever. Hold no [`Ref`](crate::Ref) meanwhile: its section would stay
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
                    let running = Running::on(&leader.flight.running);
                    let loaded = load();
                    drop(running);
                    return leader.finish(loaded);
                }
                Role::Recursive => {
                    let value = load().map_err(Arc::new)?;
                    self.insert(key, value.clone());
                    return Ok(value);
                }
                Role::Wait(flight) => {
                    if let Some(result) = shared(flight.wait()) {
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
                    return leader.finish(loaded);
                }
                Role::Recursive => {
                    let value = load.await.map_err(Arc::new)?;
                    self.insert(key, value.clone());
                    return Ok(value);
                }
                Role::Wait(flight) => {
                    if let Some(result) = poll_fn(|context| flight.poll(context).map(shared)).await
                    {
                        return result;
                    }
                }
            }
        }
    }

    fn role(&self, key: &K) -> Role<'_, K, V, S> {
        let new = Flight::new();
        let flights = self.inner().flights.pin();
        if let Err(occupied) = flights.try_insert(key.clone(), Arc::clone(&new)) {
            let flight = Arc::clone(occupied.current);
            if flight.is_of_parent() && !flight.is_mine() {
                let _ = flights.remove_if(key, |_, other| Arc::ptr_eq(other, &flight));
                drop(flights);
                return self.role(key);
            }
            return if flight.is_mine() {
                Role::Recursive
            } else {
                Role::Wait(flight)
            };
        }
        drop(flights);
        let mut leader = Leader {
            cache: self,
            key: key.clone(),
            flight: new,
            began: None,
            outcome: Outcome::Abandoned,
        };
        // A load may have ended since the miss.
        if let Some(value) = self.peek(key) {
            leader.outcome = Outcome::Value(value.clone());
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
                let (ours, theirs) = (value.clone(), value.clone());
                self.cache.insert(self.key.clone(), value);
                self.outcome = Outcome::Value(theirs);
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

/// What a flight has brought for a caller that waited; `None` if that is to begin anew.
fn shared<V: Clone, E: Send + Sync + 'static>(outcome: &Outcome<V>) -> Option<Result<V, Arc<E>>> {
    match outcome {
        Outcome::Value(value) => Some(Ok(value.clone())),
        Outcome::Error(error) => Some(Err(Arc::clone(error).downcast().ok()?)),
        Outcome::Abandoned => None,
    }
}
