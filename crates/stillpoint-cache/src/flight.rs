//! Loads and computes under way, for which callers wait.
//!
//! A load ends with a value, with an error, or abandoned: where the loader panicked or its future was dropped.
//! A compute always ends abandoned: callers that have waited for it look the key up.

use crate::{state::Load, tenant::Handle};
use std::{
    any::Any,
    future::{Future, poll_fn},
    mem,
    pin::pin,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};
use stillpoint_map::internal::Store;
use stillpoint_platform::{
    fork::process,
    sync::{Mutex, lock},
    thread::token,
    user_code,
};

/// The loads and computes under way, by key.
pub type Flights<K, V> = Store<K, Shown<V>>;

/// A flight, as later callers and invalidations find it.
pub struct Shown<V> {
    pub load: Arc<Load>,
    /// Whether it is a compute, and so ends without a value.
    pub is_compute: bool,
    pub flight: Weak<Flight<V>>,
}

/// The outcome of a flight.
pub enum Outcome<V> {
    Value(V),
    Error(Arc<dyn Any + Send + Sync>),
    Abandoned,
}

/// A load or a compute under way.
pub struct Flight<V> {
    pub outcome: OnceLock<Outcome<V>>,
    /// The wakers of the callers that wait. `None` is the place of a caller that has left.
    waiting: Mutex<Vec<Option<Waker>>>,
    /// The token of the thread that leads at this moment; 0 for none, between polls of a future.
    pub running: AtomicU64,
    /// The process that began it. In a child of a fork, the threads that were loading are gone.
    process: u64,
    pub load: Arc<Load>,
}

impl<V> Flight<V> {
    pub fn of(tenant: Arc<Handle>) -> Arc<Self> {
        Arc::new(Self {
            outcome: OnceLock::new(),
            waiting: Mutex::new(Vec::new()),
            running: AtomicU64::new(token().get()),
            process: process().generation(),
            load: Load::of(tenant),
        })
    }

    pub fn shown(self: &Arc<Self>, is_compute: bool) -> Shown<V> {
        Shown {
            load: Arc::clone(&self.load),
            is_compute,
            flight: Arc::downgrade(self),
        }
    }

    /// Returns whether the calling thread leads the flight, and so must not wait for it.
    pub fn is_mine(&self) -> bool {
        self.running.load(Ordering::Relaxed) == token().get()
    }

    /// Returns whether the flight began in a parent of this process.
    pub fn is_of_parent(&self) -> bool {
        self.process != process().generation()
    }

    /// Runs user code of the flight, which may ask for the same key: the thread that polls it must not wait for
    /// itself. The thread on which `work` ends, or is dropped, leads until the flight ends: clones and what an
    /// insert calls are user code, too.
    pub async fn run<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        let running = &self.running;
        // If this future is dropped, its destructors are user code as well. Dropped before `work`.
        let _dropping = Dropping(running);
        poll_fn(|context| {
            running.store(token().get(), Ordering::Relaxed);
            let polled = work.as_mut().poll(context);
            if polled.is_pending() {
                running.store(0, Ordering::Relaxed);
            }
            polled
        })
        .await
    }

    pub fn end(&self, outcome: Outcome<V>) {
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
}

/// Marks a flight as led by the calling thread, once it is dropped.
struct Dropping<'a>(&'a AtomicU64);

impl Drop for Dropping<'_> {
    fn drop(&mut self) {
        self.0.store(token().get(), Ordering::Relaxed);
    }
}

/// A caller that waits for a flight. Its waker goes with it.
pub struct Waiter<'f, V> {
    flight: &'f Flight<V>,
    /// Index of its waker.
    place: Option<usize>,
}

impl<'f, V> Waiter<'f, V> {
    pub fn of(flight: &'f Flight<V>) -> Self {
        Self {
            flight,
            place: None,
        }
    }

    /// Returns the outcome; `None` for a flight whose leader a fork has left behind.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<&'f Outcome<V>>> {
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
