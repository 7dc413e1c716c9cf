//! Waiting without a thread: grace periods and barriers as futures, for any executor.
//!
//! A future registers its task's waker with the domain, whose service thread calls it
//! (`gp/wakers.rs`), and which is all that works for it. So nothing depends on a future
//! being polled, and one that is dropped leaves nothing behind.
//!
//! In the child of a fork the wakers are forgotten. A future made before the fork registers again
//! when it is polled: its grace period is started again, and a barrier has no callbacks left to
//! wait for.

use super::{core::Core, domain::Domain};
use crate::{
    gp::{Awaited, Cookie, Engine, Listed, Place, Progress, policy::Sound},
    kvfree::Policy,
    platform::{
        fork::{self, Process},
        thread,
    },
};
use std::{
    fmt,
    future::{Future, poll_fn},
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
    /// The waiter's entry for stall reports, while it waits.
    listed: Option<Listed<'d>>,
}

impl<'d, P: Policy> Sleeper<'d, P> {
    #[track_caller]
    fn new(domain: &'d Core<P>, awaited: Awaited) -> Self {
        Self {
            engine: domain.engine(),
            awaited,
            made_at: Location::caller(),
            place: None,
            listed: None,
        }
    }

    /// Returns ready if the awaited event has come; `last_try` may bring it about, where that costs
    /// less than a wake-up.
    fn poll(&mut self, waker: &Waker, last_try: impl FnOnce(&Engine<P>) -> bool) -> Poll<()> {
        let (engine, awaited) = (self.engine, self.awaited);
        let will_wake = |place: &Place| engine.futures.will_wake(awaited, waker, place);
        let waits = engine.service_runs() && self.place.as_ref().is_some_and(will_wake);
        if engine.has_come(awaited) || !waits && last_try(engine) {
            self.leave();
            return Poll::Ready(());
        }
        if !waits {
            engine.wake_after(awaited, waker, self.place.get_or_insert_default());
            // Also replaces one from before a fork.
            self.listed = Some(engine.list_future(self.made_at));
            if !engine.service_runs() {
                if let Awaited::Callbacks(_) = awaited
                    && let Some(why) = engine.says_down()
                {
                    self.leave();
                    panic!("stillpoint: {why}");
                }
                // The system has no thread to give, or it is down: the task has to ask again by
                // itself.
                waker.wake_by_ref();
            }
        }
        Poll::Pending
    }

    fn poll_grace_period(&mut self, waker: &Waker, cookie: Cookie) -> Poll<()> {
        // Idle, one attempt ends it.
        self.poll(waker, |engine| {
            engine.recheck(cookie, thread::token()) == Progress::Ended
        })
    }

    /// Polls for callbacks that are queued in `process`; in another process they are forgotten.
    fn poll_barrier(&mut self, waker: &Waker, process: Process) -> Poll<()> {
        let forgotten = process != fork::process();
        self.poll(waker, |_| forgotten)
    }

    /// Takes back what was registered.
    fn leave(&mut self) {
        self.listed = None;
        drop(
            self.place
                .take()
                .and_then(|place| self.engine.futures.forget(self.awaited, &place)),
        );
    }
}

impl<P: Policy> Drop for Sleeper<'_, P> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Domain {
    /// Returns a future, for tasks, that is ready when every section that had begun before this
    /// call has ended.
    ///
    /// The grace period starts now and ends by itself, whether or not the future is polled; no
    /// thread waits. For any executor. Sections of the polling thread hold it up like all others.
    /// So it never ends if the same task holds a guard across the `.await`, or if another task does
    /// that the same single-threaded executor would have to run first. That cannot be detected
    /// beforehand; it is reported as a stall that names the guard's thread.
    ///
    /// The domain's service thread wakes the task, between its passes, in no order that later calls
    /// could hold up. An executor that goes on with a task inside its waker does so on that thread:
    /// there the task may call [`Domain::barrier`], but whatever it waits for, the tasks and
    /// callbacks behind it wait too.
    ///
    /// # Deadlocks
    ///
    /// A callback, deferred destructor or waker of this domain that blocks its thread on this
    /// future waits for ever, since it blocks the thread that would wake it. There, call
    /// [`Domain::synchronize`], which needs no other thread, or leave the future to an executor.
    ///
    /// If no thread can be created, the task is woken to try again, until that succeeds or the
    /// grace period has ended.
    ///
    /// ```
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     loop {
    /// #         let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
    /// #         std::thread::yield_now();
    /// #     }
    /// # }
    /// block_on(async {
    ///     stillpoint::global().synchronize_async().await;
    /// });
    /// ```
    #[track_caller]
    pub fn synchronize_async(&self) -> GracePeriod<'_> {
        self.cond_synchronize_async(self.start_poll())
    }

    /// Returns a future, for tasks, that is ready when the grace period has ended. See
    /// [`Domain::synchronize_async`].
    #[track_caller]
    pub fn cond_synchronize_async(&self, cookie: Cookie) -> GracePeriod<'_> {
        GracePeriod::new(self, self.core().known(cookie))
    }

    /// Returns a future, for tasks, that is ready when every callback that was queued before this
    /// call has been invoked. Takes a lock for a moment; does not block. Never refused: a wait for
    /// itself is reported as a stall. Nothing of the domain may block its thread on it, as on
    /// [`Domain::synchronize_async`].
    ///
    /// # Panics
    ///
    /// The future does, when it is polled and would have to wait, if the service thread stays down
    /// after faults of this library
    /// ([`Statistics::service_failures`](crate::Statistics::service_failures)). [`Domain::barrier`]
    /// goes on working.
    #[track_caller]
    pub fn barrier_async(&self) -> CallbackBarrier<'_> {
        CallbackBarrier::new(self)
    }
}

impl<P: Policy> Core<P> {
    /// See [`Domain::synchronize_async`].
    #[track_caller]
    pub fn synchronize_async(&self) -> impl Future<Output = ()> + use<'_, P> {
        let cookie = self.start_poll();
        let mut sleeper = Sleeper::new(self, Awaited::GracePeriod(cookie));
        poll_fn(move |context| sleeper.poll_grace_period(context.waker(), cookie))
    }

    /// See [`Domain::barrier_async`].
    #[track_caller]
    pub fn barrier_async(&self) -> impl Future<Output = ()> + use<'_, P> {
        let process = fork::process();
        let mut sleeper = Sleeper::new(self, Awaited::Callbacks(self.engine().callbacks_queued()));
        poll_fn(move |context| sleeper.poll_barrier(context.waker(), process))
    }
}

/// Ready when a grace period has ended: made by
/// [`Domain::synchronize_async`](crate::Domain::synchronize_async) and
/// [`Domain::cond_synchronize_async`](crate::Domain::cond_synchronize_async).
///
/// May be dropped at any time, and moved between threads and executors between polls. Polling it
/// again after it was ready is harmless. What wakes its task, and what must not block on it: see
/// [`Domain::synchronize_async`](crate::Domain::synchronize_async).
#[must_use = "a future does nothing for its task unless it is awaited"]
pub struct GracePeriod<'d> {
    domain: &'d Domain,
    cookie: Cookie,
    sleeper: Sleeper<'d, Sound>,
}

impl<'d> GracePeriod<'d> {
    #[track_caller]
    pub(super) fn new(domain: &'d Domain, cookie: Cookie) -> Self {
        Self {
            domain,
            cookie,
            sleeper: Sleeper::new(domain.core(), Awaited::GracePeriod(cookie)),
        }
    }

    /// Returns the grace period's cookie.
    pub fn cookie(&self) -> Cookie {
        self.cookie
    }
}

impl Future for GracePeriod<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let cookie = self.cookie;
        self.sleeper.poll_grace_period(context.waker(), cookie)
    }
}

impl fmt::Debug for GracePeriod<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GracePeriod")
            .field("domain", &self.domain.id())
            .field("cookie", &self.cookie)
            .finish()
    }
}

/// Ready when every callback that was queued before it was made has been invoked: made by
/// [`Domain::barrier_async`](crate::Domain::barrier_async).
///
/// May be dropped at any time, and moved between threads and executors between polls. Polling it
/// again after it was ready is harmless.
#[must_use = "a future does nothing for its task unless it is awaited"]
pub struct CallbackBarrier<'d> {
    domain: &'d Domain,
    /// The process in which the callbacks are queued that it waits for.
    process: Process,
    sleeper: Sleeper<'d, Sound>,
}

impl<'d> CallbackBarrier<'d> {
    #[track_caller]
    pub(super) fn new(domain: &'d Domain) -> Self {
        let awaited = Awaited::Callbacks(domain.engine().callbacks_queued());
        Self {
            domain,
            process: fork::process(),
            sleeper: Sleeper::new(domain.core(), awaited),
        }
    }
}

impl Future for CallbackBarrier<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let process = self.process;
        self.sleeper.poll_barrier(context.waker(), process)
    }
}

impl fmt::Debug for CallbackBarrier<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackBarrier")
            .field("domain", &self.domain.id())
            .finish_non_exhaustive()
    }
}
