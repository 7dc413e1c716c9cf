//! Waiting without a thread: grace periods and barriers as futures, for any executor.
//!
//! A future registers its task's waker with the domain, whose service thread calls it
//! (`gp/wakers.rs`). Only that thread works for the future: a grace period ends whether the future
//! is polled or not, and a future that is dropped leaves nothing behind.
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
    future::Future,
    panic::Location,
    pin::Pin,
    task::{Context, Poll},
};

/// A future: what it waits for, and where it is registered while it does.
struct Sleeper<'d, P: Policy> {
    engine: &'d Engine<P>,
    awaited: Awaited,
    /// The process in which it was made.
    process: Process,
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
            process: fork::process(),
            made_at: Location::caller(),
            place: None,
            listed: None,
        }
    }

    /// Makes one last attempt before the task is registered. Returns whether the wait is over.
    fn try_end(&self) -> bool {
        match self.awaited {
            // Without a reader in the way this ends the grace period, and costs less than a wake-up.
            Awaited::GracePeriod(cookie) => {
                self.engine.recheck(cookie, thread::token()) == Progress::Ended
            }
            // The child of a fork has forgotten the callbacks.
            Awaited::Callbacks(_) => self.process != fork::process(),
        }
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

impl<P: Policy> Future for Sleeper<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (engine, awaited, waker) = (self.engine, self.awaited, context.waker());
        let will_wake = |place: &Place| engine.futures.will_wake(awaited, waker, place);
        let waits = engine.service_runs() && self.place.as_ref().is_some_and(will_wake);
        if engine.has_come(awaited) || !waits && self.try_end() {
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
                // The system refuses the service thread, or that is down: the task has to poll
                // again by itself.
                waker.wake_by_ref();
            }
        }
        Poll::Pending
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
    /// So it never ends if the same task holds a guard across the `.await`, or if another task
    /// does, which the same single-threaded executor would have to run first. That cannot be
    /// detected beforehand; it is reported as a stall that names the guard's thread.
    ///
    /// The domain's service thread wakes the task, between its passes; callbacks that are queued
    /// later cannot delay that. If the executor runs the task inside its waker, it runs on that
    /// thread. It may call [`Domain::barrier`] there, but while it waits, the domain's other tasks
    /// and callbacks wait too.
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
        let awaited = Awaited::GracePeriod(self.core().known(cookie));
        GracePeriod(Sleeper::new(self.core(), awaited))
    }

    /// Returns a future, for tasks, that is ready when every callback that was queued before this
    /// call has been invoked. Takes a lock for a moment; does not block. This is never refused: a
    /// wait for itself is reported as a stall. A callback, deferred destructor or waker of the
    /// domain must not block its thread on the future; see [`Domain::synchronize_async`].
    ///
    /// # Panics
    ///
    /// The future does, when it is polled and would have to wait, if the service thread stays down
    /// after faults of this library
    /// ([`Statistics::service_failures`](crate::Statistics::service_failures)). [`Domain::barrier`]
    /// goes on working.
    #[track_caller]
    pub fn barrier_async(&self) -> CallbackBarrier<'_> {
        let awaited = Awaited::Callbacks(self.engine().callbacks_queued());
        CallbackBarrier(Sleeper::new(self.core(), awaited))
    }
}

impl<P: Policy> Core<P> {
    /// See [`Domain::synchronize_async`].
    #[track_caller]
    pub fn synchronize_async(&self) -> impl Future<Output = ()> + use<'_, P> {
        Sleeper::new(self, Awaited::GracePeriod(self.start_poll()))
    }

    /// See [`Domain::barrier_async`].
    #[track_caller]
    pub fn barrier_async(&self) -> impl Future<Output = ()> + use<'_, P> {
        Sleeper::new(self, Awaited::Callbacks(self.engine().callbacks_queued()))
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
pub struct GracePeriod<'d>(Sleeper<'d, Sound>);

impl GracePeriod<'_> {
    /// Returns the grace period's cookie.
    pub fn cookie(&self) -> Cookie {
        match self.0.awaited {
            Awaited::GracePeriod(cookie) => cookie,
            Awaited::Callbacks(_) => unreachable!("it waits for a grace period"),
        }
    }
}

impl Future for GracePeriod<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl fmt::Debug for GracePeriod<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GracePeriod")
            .field("domain", &self.0.engine.domain)
            .field("cookie", &self.cookie())
            .finish()
    }
}

/// Ready when every callback that was queued before it was made has been invoked: made by
/// [`Domain::barrier_async`](crate::Domain::barrier_async).
///
/// May be dropped at any time, and moved between threads and executors between polls. Polling it
/// again after it was ready is harmless.
#[must_use = "a future does nothing for its task unless it is awaited"]
pub struct CallbackBarrier<'d>(Sleeper<'d, Sound>);

impl Future for CallbackBarrier<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl fmt::Debug for CallbackBarrier<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackBarrier")
            .field("domain", &self.0.engine.domain)
            .finish_non_exhaustive()
    }
}
