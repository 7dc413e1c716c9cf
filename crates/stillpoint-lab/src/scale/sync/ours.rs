//! Stillpoint's own variants, and the limit.

use std::sync::Arc;

use anyhow::{Context, Result};
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
use stillpoint::{Cookie, Domain, QsbrReader};

use super::callback_latch::CallbackLatch;
use crate::scale::in_domain::{Place, WithFences};
use crate::subject::{Callbacks, Participant, Polled, Reader, Updater};

/// A thread that reads in the global domain, and waits in the way of `W`.
pub struct Global<W>(W);

/// A way to wait.
pub trait Way: Default + 'static {
    /// Grace periods that have ended; `None` where the way has none.
    const GRACE_PERIODS: Option<fn() -> u64> =
        Some(|| stillpoint::global().statistics().grace_periods);

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

/// One membarrier, after [`prepare_limit`].
pub fn bare_membarrier() {
    membarrier(MembarrierCommand::PrivateExpedited)
        .expect("`prepare_limit` has registered the process");
}

/// Returns whether the kernel has what the limit is made of.
pub fn has_limit() -> bool {
    membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
}

/// Registers the process for the limit's membarriers.
pub fn prepare_limit() -> Result<()> {
    membarrier(MembarrierCommand::RegisterPrivateExpedited)
        .context("cannot register for membarrier")
}

/// A [`QsbrReader`] in a domain with fences.
pub struct Qsbr(QsbrReader<'static>);

impl Qsbr {
    /// The reader itself.
    pub fn reader(&mut self) -> &mut QsbrReader<'static> {
        &mut self.0
    }
}

impl Place for Qsbr {
    fn domain() -> &'static Domain {
        WithFences::domain()
    }
}

impl Participant for Qsbr {
    fn register_thread() -> Self {
        Self(Self::domain().qsbr_reader())
    }
}

impl Reader for Qsbr {
    fn read(&mut self, section: impl FnOnce()) {
        section();
        self.0.quiescent_state();
    }

    fn offline<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let _offline = self.0.offline();
        work()
    }
}

impl Updater for Qsbr {
    const GRACE_PERIODS: Option<fn() -> u64> = Some(|| Self::domain().statistics().grace_periods);

    fn synchronize(&mut self) {
        self.0.synchronize();
    }
}
