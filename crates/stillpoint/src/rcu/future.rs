//! Waiting without a thread: grace periods and barriers as futures, for any executor.
//!
//! A future registers a callback that wakes its task; the service thread, which runs callbacks anyway, is all that works for it.
//! So nothing depends on a future being polled, and one that is dropped leaves a callback behind that does nothing.
//!
//! In the child of a fork that callback is forgotten, and may have vanished in the middle of telling. A future of before the fork
//! leaves it where it is: a grace period is asked for again, and of the callbacks that a barrier is for there are none left.

use super::Domain;
use crate::{
    gp::{Cookie, Listed, Policy, Progress, policy::Sound},
    platform::{
        fork::{self, Process},
        thread,
    },
};
use std::{
    fmt,
    future::Future,
    panic::Location,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

/// A callback's word that it has run, and whom to tell.
#[derive(Debug, Default)]
struct Signal(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    done: bool,
    waker: Option<Waker>,
}

impl Signal {
    fn with<R>(&self, work: impl FnOnce(&mut Heard) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn raise(&self) {
        let waker = self.with(|heard| {
            heard.done = true;
            heard.waker.take()
        });
        // Foreign code, so with nothing held.
        waker.into_iter().for_each(Waker::wake);
    }

    fn poll(&self, waker: &Waker) -> Poll<()> {
        let (poll, old) = self.with(|heard| match &heard.waker {
            _ if heard.done => (Poll::Ready(()), None),
            Some(known) if known.will_wake(waker) => (Poll::Pending, None),
            _ => (Poll::Pending, heard.waker.replace(waker.clone())),
        });
        drop(old);
        poll
    }

    /// Nobody listens any more.
    fn silence(&self) {
        drop(self.with(|heard| heard.waker.take()));
    }
}

/// Ready when a grace period has ended: made by [`Domain::synchronize_async`](crate::Domain::synchronize_async) and
/// [`Domain::cond_synchronize_async`](crate::Domain::cond_synchronize_async).
///
/// May be dropped at any time, and moved between threads and executors between polls. Polling it again after it was ready is
/// harmless.
#[must_use = "a future does nothing for its task unless it is awaited"]
pub struct GracePeriod<'d, P: Policy = Sound> {
    domain: &'d Domain<P>,
    cookie: Cookie,
    /// What its callback raises, and the process in which that callback is queued.
    signal: Option<(Arc<Signal>, Process)>,
    made_at: &'static Location<'static>,
    /// For stall reports, while it waits.
    listed: Option<Listed<'d>>,
}

impl<'d, P: Policy> GracePeriod<'d, P> {
    #[track_caller]
    pub(super) fn new(domain: &'d Domain<P>, cookie: Cookie) -> Self {
        Self { domain, cookie, signal: None, made_at: Location::caller(), listed: None }
    }

    /// The grace period's cookie.
    pub fn cookie(&self) -> Cookie {
        self.cookie
    }
}

impl<P: Policy> Future for GracePeriod<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (engine, cookie) = (&self.domain.inner.engine, self.cookie);
        if engine.has_ended(cookie) {
            self.listed = None;
            return Poll::Ready(());
        }
        if let Some((signal, process)) = &self.signal
            && *process == fork::process()
        {
            return signal.poll(context.waker());
        }
        // Idle, one attempt ends it: cheaper than to have oneself woken.
        if engine.advance_again(cookie, thread::token()) == Progress::Ended {
            return Poll::Ready(());
        }
        let signal = Arc::new(Signal::default());
        let pending = signal.poll(context.waker());
        let theirs = Arc::clone(&signal);
        engine.call_after(cookie, move || theirs.raise());
        self.signal = Some((signal, fork::process()));
        self.listed = Some(engine.list_future(self.made_at));
        pending
    }
}

impl<P: Policy> Drop for GracePeriod<'_, P> {
    fn drop(&mut self) {
        if let Some((signal, process)) = &self.signal
            && *process == fork::process()
        {
            signal.silence();
        }
    }
}

impl<P: Policy> fmt::Debug for GracePeriod<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GracePeriod").field("domain", &self.domain.id()).field("cookie", &self.cookie).finish()
    }
}

/// Ready when every callback that was queued before it was made has been invoked: made by
/// [`Domain::barrier_async`](crate::Domain::barrier_async).
///
/// May be dropped at any time, and moved between threads and executors between polls.
#[must_use = "a future does nothing for its task unless it is awaited"]
#[derive(Debug)]
pub struct CallbackBarrier<'d, P: Policy = Sound> {
    signal: Arc<Signal>,
    /// Where the callback is queued that raises it.
    process: Process,
    domain: &'d Domain<P>,
    /// For stall reports.
    listed: Option<Listed<'d>>,
}

impl<'d, P: Policy> CallbackBarrier<'d, P> {
    #[track_caller]
    pub(super) fn new(domain: &'d Domain<P>) -> Self {
        let signal = Arc::new(Signal::default());
        let theirs = Arc::clone(&signal);
        domain.inner.engine.call_behind(move || theirs.raise());
        let listed = Some(domain.inner.engine.list_future(Location::caller()));
        Self { signal, process: fork::process(), domain, listed }
    }
}

impl<P: Policy> Future for CallbackBarrier<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.process != fork::process() {
            return Poll::Ready(());
        }
        // Starts the service thread if the system had none to give before.
        self.domain.inner.engine.ensure_service();
        let poll = self.signal.poll(context.waker());
        if poll.is_ready() {
            self.listed = None;
        }
        poll
    }
}

impl<P: Policy> Drop for CallbackBarrier<'_, P> {
    fn drop(&mut self) {
        if self.process == fork::process() {
            self.signal.silence();
        }
    }
}
