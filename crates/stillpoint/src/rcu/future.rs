//! Waiting without a thread: grace periods and barriers as futures, for any executor.
//!
//! A future registers its task's waker with the domain, whose service thread calls it (`gp/wakers.rs`), and which is all that works for
//! it. So nothing depends on a future being polled, and one that is dropped leaves nothing behind.
//!
//! In the child of a fork the wakers are forgotten. A future of before the fork registers again when it is polled: its grace period is asked
//! for again, and of the callbacks that a barrier is for there are none left.

use super::Domain;
use crate::{
    gp::{Awaited, Cookie, Engine, Listed, Place, Policy, Progress, policy::Sound},
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
    task::{Context, Poll, Waker},
};

/// A future's part of the waiting: what it waits for, and where it is registered while it does.
struct Sleeper<'d, P: Policy> {
    engine: &'d Engine<P>,
    awaited: Awaited,
    made_at: &'static Location<'static>,
    place: Option<Place>,
    /// For stall reports, while it waits.
    listed: Option<Listed<'d>>,
}

impl<'d, P: Policy> Sleeper<'d, P> {
    #[track_caller]
    fn new(domain: &'d Domain<P>, awaited: Awaited) -> Self {
        Self { engine: domain.engine(), awaited, made_at: Location::caller(), place: None, listed: None }
    }

    /// Ready if what is waited for has come; `last_try` may bring it about, where that costs less than to be woken.
    fn poll(&mut self, waker: &Waker, last_try: impl FnOnce(&Engine<P>) -> bool) -> Poll<()> {
        let (engine, awaited) = (self.engine, self.awaited);
        let will_wake = |place: &Place| engine.will_wake(awaited, waker, place);
        let waits = engine.service_runs() && self.place.as_ref().is_some_and(will_wake);
        if engine.has_come(awaited) || !waits && last_try(engine) {
            self.leave();
            return Poll::Ready(());
        }
        if !waits {
            engine.wake_after(awaited, waker, self.place.get_or_insert_default());
            // Also in place of that of before a fork.
            self.listed = Some(engine.list_future(self.made_at));
            if !engine.service_runs() {
                if let Awaited::Callbacks(_) = awaited
                    && let Some(why) = engine.says_down()
                {
                    self.leave();
                    panic!("stillpoint: {why}");
                }
                // The system has no thread to give, or it is down: the task has to ask again by itself.
                waker.wake_by_ref();
            }
        }
        Poll::Pending
    }

    /// Takes back what was registered.
    fn leave(&mut self) {
        self.listed = None;
        drop(self.place.take().and_then(|place| self.engine.forget_waker(self.awaited, &place)));
    }
}

impl<P: Policy> Drop for Sleeper<'_, P> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Ready when a grace period has ended: made by [`Domain::synchronize_async`](crate::Domain::synchronize_async) and
/// [`Domain::cond_synchronize_async`](crate::Domain::cond_synchronize_async).
///
/// May be dropped at any time, and moved between threads and executors between polls. Polling it again after it was ready is
/// harmless. What wakes its task, and what must not block on it: see [`Domain::synchronize_async`](crate::Domain::synchronize_async).
#[must_use = "a future does nothing for its task unless it is awaited"]
pub struct GracePeriod<'d, P: Policy = Sound> {
    domain: &'d Domain<P>,
    cookie: Cookie,
    sleeper: Sleeper<'d, P>,
}

impl<'d, P: Policy> GracePeriod<'d, P> {
    #[track_caller]
    pub(super) fn new(domain: &'d Domain<P>, cookie: Cookie) -> Self {
        Self { domain, cookie, sleeper: Sleeper::new(domain, Awaited::GracePeriod(cookie)) }
    }

    /// The grace period's cookie.
    pub fn cookie(&self) -> Cookie {
        self.cookie
    }
}

impl<P: Policy> Future for GracePeriod<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let cookie = self.cookie;
        // Idle, one attempt ends it.
        self.sleeper.poll(context.waker(), |engine| engine.recheck(cookie, thread::token()) == Progress::Ended)
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
/// May be dropped at any time, and moved between threads and executors between polls. Polling it again after it was ready is
/// harmless.
#[must_use = "a future does nothing for its task unless it is awaited"]
pub struct CallbackBarrier<'d, P: Policy = Sound> {
    domain: &'d Domain<P>,
    /// Where the callbacks are queued that it is for.
    process: Process,
    sleeper: Sleeper<'d, P>,
}

impl<'d, P: Policy> CallbackBarrier<'d, P> {
    #[track_caller]
    pub(super) fn new(domain: &'d Domain<P>) -> Self {
        let awaited = Awaited::Callbacks(domain.engine().callbacks_queued());
        Self { domain, process: fork::process(), sleeper: Sleeper::new(domain, awaited) }
    }
}

impl<P: Policy> Future for CallbackBarrier<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let forgotten = self.process != fork::process();
        self.sleeper.poll(context.waker(), |_| forgotten)
    }
}

impl<P: Policy> fmt::Debug for CallbackBarrier<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackBarrier").field("domain", &self.domain.id()).finish_non_exhaustive()
    }
}
