//! Stillpoint's own variants, and the limit.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use stillpoint::{Cookie, Domain};

use crate::scale::subjects::{Place, bare_membarrier, grace_periods};
use crate::subject::{Callbacks, Participant, Polled, Reader, Updater};

/// A thread that reads in the global domain, and waits in the way of `W`.
pub struct Global<W>(W);

/// A way to wait.
pub trait Way: Default + 'static {
    /// Grace periods that have ended; `None` where the way has none.
    const GRACE_PERIODS: Option<fn() -> u64> = Some(grace_periods);

    /// Waits.
    fn wait(&mut self);
}

/// `stillpoint::synchronize`.
pub type Rcu = Global<Normal>;

/// `stillpoint::synchronize_expedited`.
pub type Expedited = Global<ExpeditedWait>;

/// The wait travels as a callback through the service thread, and the caller sleeps until it is
/// invoked.
pub type ServiceLed = Global<Callback>;

/// A bare membarrier, beside Stillpoint's readers: one is what a grace period cannot do without
/// where readers do not fence.
pub type Limit = Global<Membarrier>;

impl<W: Way> Participant for Global<W> {
    /// A thread's first section registers it.
    fn register_thread() -> Self {
        drop(stillpoint::read_lock());
        Self(W::default())
    }
}

impl<W: Way> Reader for Global<W> {
    fn read(&mut self, section: impl FnOnce()) {
        let _guard = stillpoint::read_lock();
        section();
    }
}

impl<W: Way> Updater for Global<W> {
    const GRACE_PERIODS: Option<fn() -> u64> = W::GRACE_PERIODS;

    fn synchronize(&mut self) {
        self.0.wait();
    }
}

impl Place for Rcu {
    fn domain() -> &'static Domain {
        stillpoint::global()
    }
}

impl<T: Place + Updater> Callbacks for T {
    fn call(&mut self, callback: impl FnOnce() + Send + 'static) {
        T::domain().call(callback);
    }

    fn barrier() {
        T::domain().barrier();
    }
}

impl<T: Place + Updater> Polled for T {
    type Cookie = Cookie;

    fn start_poll(&mut self) -> Cookie {
        T::domain().start_poll()
    }

    fn poll(cookie: Cookie) -> bool {
        T::domain().poll(cookie)
    }
}

/// See [`Rcu`].
#[derive(Default)]
pub struct Normal;

impl Way for Normal {
    fn wait(&mut self) {
        stillpoint::synchronize();
    }
}

/// See [`Expedited`].
#[derive(Default)]
pub struct ExpeditedWait;

impl Way for ExpeditedWait {
    fn wait(&mut self) {
        stillpoint::synchronize_expedited();
    }
}

/// See [`ServiceLed`].
#[derive(Default)]
pub struct Callback(Arc<CallbackLatch>);

impl Way for Callback {
    fn wait(&mut self) {
        let latch = Arc::clone(&self.0);
        stillpoint::call(move || latch.invoke());
        self.0.wait();
    }
}

/// See [`Limit`].
#[derive(Default)]
pub struct Membarrier;

impl Way for Membarrier {
    const GRACE_PERIODS: Option<fn() -> u64> = None;

    fn wait(&mut self) {
        bare_membarrier();
    }
}

/// One callback at a time keeps it, one thread waits for it.
#[derive(Default)]
pub struct CallbackLatch {
    kept: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl CallbackLatch {
    /// For the callback: records when it was invoked, and wakes the waiter.
    pub fn invoke(&self) {
        let now = Instant::now();
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        self.changed.notify_one();
    }

    /// Sleeps until it has been kept; when that was. It can be kept again afterwards.
    pub fn wait(&self) -> Instant {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match kept.take() {
                Some(at) => return at,
                None => {
                    kept = self
                        .changed
                        .wait(kept)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        }
    }
}
