//! The background reclaimer of a hierarchy: a thread that brings tenants back below their high
//! limit.
//!
//! It starts when the first tenant passes its limit, and ends with the hierarchy. A tenant is in
//! its queue at most once. It is queued after its usage has passed the limit, and the thread clears
//! the mark before it reads the usage, so no tenant stays above its limit unseen. If no thread can
//! be started, the charging thread does the work. Panics are contained at each call of a shrinker
//! and around each pass, so none ends the thread.

use super::{
    Event, Memcg, reclaim as passes,
    resched::{Resched, is_reclaiming},
};
use std::{fmt, sync::Arc};
use stillpoint_platform::{
    event::EventCount,
    sync::{AtomicBool, Mutex, Ordering, lock},
    thread, user_code,
};

/// The part of its high limit that a tenant is brought below it, so that one whose charges go on does
/// not wake the thread for each.
const SLACK: u64 = 256;

fn reclaim(tenant: &Memcg, resched: &mut Resched) {
    let high = tenant.high();
    if tenant.counter().usage() > high {
        passes::reclaim(tenant, high - high / SLACK, resched);
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum State {
    NotStarted,
    Running,
    Stopped,
}

pub(crate) struct Background {
    pub(super) state: Mutex<State>,
    pub(super) queue: Mutex<Vec<Arc<Memcg>>>,
    pub(super) wake: EventCount,
    pub(super) stop: AtomicBool,
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background")
            .field("state", &*lock(&self.state))
            .finish_non_exhaustive()
    }
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

    /// Queues the tenant for reclaim if it is above its high limit.
    #[inline]
    pub(crate) fn wake_if_high(self: &Arc<Self>, tenant: &Memcg) {
        if tenant.counter().usage() > tenant.high() {
            self.tell(tenant);
        }
    }

    #[cold]
    fn tell(self: &Arc<Self>, tenant: &Memcg) {
        tenant.count(Event::High, 1);
        // It must not reclaim for itself, and its own work brings the usage down. Release, pairs
        // with `run`: the usage that we have seen is seen by the reclaim that takes the tenant off
        // the queue.
        if is_reclaiming() || tenant.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(handle) = tenant.tree.handle_of(tenant) else {
            return;
        };
        let kept = Arc::clone(handle.memcg());
        if self.ensure_started() {
            lock(&self.queue).push(kept);
            self.wake.signal();
        } else {
            // Release, pairs with `tell`: the next thread that queues a tenant comes after this
            // attempt.
            tenant.queued.store(false, Ordering::Release);
            if stillpoint::internal::can_wait() {
                reclaim(tenant, &mut Resched::direct());
            }
        }
    }

    fn ensure_started(self: &Arc<Self>) -> bool {
        let mut state = lock(&self.state);
        if *state == State::NotStarted {
            let this = Arc::clone(self);
            if thread::spawn("stillpoint/high".to_owned(), move || this.run()).is_ok() {
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
                    tenant.queued.swap(false, Ordering::AcqRel);
                    tenant.tree.stocks().drain(None);
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
}
