//! The background reclaimer of a hierarchy: a thread that brings tenants back below their high
//! limits.
//!
//! It starts when the first tenant passes its limit, and ends with the hierarchy. A tenant is in
//! its queue at most once. It is queued after its usage has passed the limit, and the thread clears
//! the mark before it reads the usage, so no tenant stays above its limit unseen. If no thread can
//! be started, or there is no memory for the queue, the charging thread reclaims, if it may wait.
//! Panics are contained at each call of a shrinker and around each pass, so none ends the thread.

use super::{
    Event, Memcg,
    resched::{Resched, is_reclaiming},
};
use crate::levels::HasLevel;
use std::sync::Arc;
use stillpoint_platform::{
    event::EventCount,
    sync::{AtomicBool, Mutex, Ordering, lock},
    thread, user_code,
};

/// Divisor of the high limit: the thread reclaims until the usage is `high / SLACK` below it. Otherwise a
/// tenant that goes on charging would wake the thread at each charge.
const SLACK: u64 = 256;

fn reclaim(tenant: &Memcg, resched: &mut Resched) {
    let high = tenant.high();
    if tenant.usage() > high {
        let enough = || tenant.usage() <= high - high / SLACK;
        tenant.controller.reclaim(tenant, &enough, resched);
    }
}

#[derive(Debug, PartialEq)]
enum State {
    NotStarted,
    Running,
    Stopped,
}

#[derive(Debug)]
pub(crate) struct Background {
    state: Mutex<State>,
    queue: Mutex<Vec<Arc<Memcg>>>,
    wake: EventCount,
    stop: AtomicBool,
}

impl Background {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::NotStarted),
            queue: Mutex::new(Vec::new()),
            wake: EventCount::new(),
            stop: AtomicBool::new(false),
        })
    }

    /// Queues a tenant, which is above its high limit, for reclaim. `keep` returns a reference to
    /// it, or `None` if it has no handles.
    pub(crate) fn tell(
        self: &Arc<Self>,
        tenant: &Memcg,
        keep: impl FnOnce() -> Option<Arc<Memcg>>,
    ) {
        tenant.count(Event::High, 1);
        // A thread that reclaims must not wait for itself, and its work brings the usage down.
        // Release, pairs with `run` and the swap below: the usage that we have seen is seen by the
        // reclaim that follows the clearing of the mark.
        if is_reclaiming() || tenant.queued.swap(true, Ordering::Release) {
            return;
        }
        let Some(kept) = keep() else {
            return;
        };
        if self.ensure_started() && self.enqueue(kept) {
            self.wake.signal();
        } else {
            // Acquire, pairs with `tell`, as in `run`: the reclaim sees the usage that other tellers
            // have seen, who leave it to us.
            tenant.queued.swap(false, Ordering::Acquire);
            if stillpoint::internal::can_wait() {
                reclaim(tenant, &mut Resched::direct());
            }
        }
    }

    /// Returns false if there is no memory.
    fn enqueue(&self, tenant: Arc<Memcg>) -> bool {
        let mut queue = lock(&self.queue);
        let has_room = queue.try_reserve(1).is_ok();
        if has_room {
            queue.push(tenant);
        }
        has_room
    }

    /// Returns false if the thread cannot be started, or has been stopped.
    fn ensure_started(self: &Arc<Self>) -> bool {
        let mut state = lock(&self.state);
        if *state == State::NotStarted {
            let this = Arc::clone(self);
            if thread::spawn("stillpoint/high", move || this.run()).is_ok() {
                *state = State::Running;
            }
        }
        *state == State::Running
    }

    /// Tells the thread to end. No thread waits for that: it is idle, or the hierarchy would still
    /// be in use.
    pub(crate) fn stop(&self) {
        *lock(&self.state) = State::Stopped;
        // Release, pairs with `run`: all that was queued is seen by the thread's last look.
        self.stop.store(true, Ordering::Release);
        self.wake.signal();
    }

    fn run(&self) {
        loop {
            let waiter = self.wake.prepare();
            let next = lock(&self.queue).pop();
            if let Some(tenant) = next {
                waiter.leave();
                // The shrinkers' panics are contained one by one; whatever else fails must not end
                // the thread.
                let _ = user_code::contained(move || {
                    // Acquire, pairs with `tell`: it reads the teller's `true`, and so sees the
                    // usage that the teller has seen.
                    tenant.queued.swap(false, Ordering::Acquire);
                    tenant.stocks.drain(None);
                    reclaim(&tenant, &mut Resched::background());
                });
            } else if self.stop.load(Ordering::Acquire) {
                // Acquire, pairs with `stop`: what was queued before it has been seen.
                waiter.leave();
                return;
            } else {
                waiter.sleep(None);
            }
        }
    }

    /// In the child of a fork: the thread is gone, and starts again on demand.
    ///
    /// # Safety
    ///
    /// See [`ForkReset::reset_in_child`](stillpoint_platform::fork::ForkReset::reset_in_child).
    pub(crate) unsafe fn reset_in_child(&self) {
        let state = if self.stop.load(Ordering::Relaxed) {
            State::Stopped
        } else {
            State::NotStarted
        };
        // SAFETY: the caller's promise; no user code runs under these locks. What was queued is
        // leaked.
        unsafe {
            self.state.reinit(state);
            self.queue.reinit(Vec::new());
        }
        self.wake.reset_in_child();
    }
}
