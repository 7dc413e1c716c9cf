//! The service thread: one per engine, started on first need, for what nobody else's call can do.
//!
//! It runs passes. A pass (the room above supplies it) runs callbacks and drains what idle threads left, and says what it
//! waits for: a grace period, a moment, or nothing. Between passes the thread sleeps until one of these comes, or until it
//! is kicked.
//!
//! ```text
//!   kicker   make work visible; kicked = true [K1]; signal
//!   thread   kicked = false [K2]; pass; announce; if kicked [K3]: again; sleep
//! ```
//!
//! Work that is made visible before K1 is seen by the pass after the K2 that reads it, and a kick after K2 is seen by K3 or
//! wakes the sleeper (`platform/event.rs`).
//!
//! In the child of a fork the thread is gone, and starts again on demand; unless it is the one that forked, in a callback or a
//! destructor, and goes on.

use super::{
    callbacks::WouldDeadlock,
    engine::{Engine, Progress},
    policy::Policy,
    seq::Cookie,
    wait::{FIRST_SLEEP, Haste, LONGEST_SLEEP, Waited},
};
use crate::platform::{
    clock::{self, Nanos},
    fork,
    sync::{AtomicBool, Mutex, Ordering, lock},
    thread,
    turn::Turn,
};
use std::{cell::Cell, fmt, io, iter, ptr, sync::OnceLock};

/// What a pass leaves to be waited for. Empty: nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outlook {
    /// The next pass can go on once this has ended.
    pub(crate) cookie: Option<Cookie>,
    /// The next pass is due now or then, whatever happens.
    pub(crate) at: Option<Nanos>,
}

/// The work of an engine's service thread.
pub(crate) trait Work: Send + Sync + 'static {
    /// Does what can be done now. One thread at a time.
    fn pass(&self) -> Outlook;
}

#[derive(Debug)]
enum State {
    NotStarted,
    /// `None` in the child of a fork by that very thread: it ends by itself, and nobody can join it.
    Running(Option<thread::Handle>),
    Stopped,
}

type Spawn = Box<dyn Fn(String) -> io::Result<thread::Handle> + Send + Sync>;

pub(super) struct Service {
    /// Starts a thread of the given name that serves this engine. Set once, by the room that owns the engine.
    spawn: OnceLock<Spawn>,
    state: Mutex<State>,
    running: AtomicBool,
    stop: AtomicBool,
    kicked: AtomicBool,
    /// Held during a pass.
    turn: Turn,
}

/// A domain whose foreign code runs on this thread, inside that of others: what a destructor of one domain retires to another may
/// free there and then.
struct Frame {
    domain: u64,
    what: What,
    outer: *const Frame,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// A callback or a destructor, in a pass.
    Pass,
    /// A task's waker, after one.
    Waker,
}

#[cfg(not(stillpoint_shuttle))]
thread_local! {
    /// The innermost of them; null for none.
    static FRAMES: Cell<*const Frame> = const { Cell::new(ptr::null()) };
    /// The domain whose service thread this is; 0 for none.
    static SERVES: Cell<u64> = const { Cell::new(0) };
}

// shuttle's threads share one system thread.
#[cfg(stillpoint_shuttle)]
crate::platform::model::thread_local! {
    static FRAMES: Cell<*const Frame> = Cell::new(ptr::null());
    static SERVES: Cell<u64> = Cell::new(0);
}

/// Whether the calling thread runs a callback or a deferred destructor of domain `id` at this moment.
pub(crate) fn in_pass(id: u64) -> bool {
    is_inside(id, What::Pass)
}

/// Whether the calling thread runs a waker of domain `id` at this moment.
pub(super) fn in_waker(id: u64) -> bool {
    is_inside(id, What::Waker)
}

fn is_inside(id: u64, what: What) -> bool {
    // SAFETY: null, or a frame of a `mark` that has not returned, on this thread's stack.
    let frame = |at: *const Frame| unsafe { at.as_ref() };
    iter::successors(frame(FRAMES.with(Cell::get)), |inner| frame(inner.outer))
        .any(|frame| frame.domain == id && frame.what == what)
}

/// Marks the calling thread as running foreign code for domain `id` while `work` runs.
pub(crate) fn as_pass<R>(id: u64, work: impl FnOnce() -> R) -> R {
    mark(id, What::Pass, work)
}

/// Marks the calling thread as waking tasks for domain `id` while `work` runs. That is no pass: it may wait for one.
pub(super) fn as_waker<R>(id: u64, work: impl FnOnce() -> R) -> R {
    mark(id, What::Waker, work)
}

fn mark<R>(id: u64, what: What, work: impl FnOnce() -> R) -> R {
    struct Restore(*const Frame);
    impl Drop for Restore {
        fn drop(&mut self) {
            FRAMES.with(|frames| frames.set(self.0));
        }
    }
    let outer = FRAMES.with(Cell::get);
    let frame = Frame { domain: id, what, outer };
    let _restore = Restore(outer);
    FRAMES.with(|frames| frames.set(&raw const frame));
    work()
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("running", &self.running).finish_non_exhaustive()
    }
}

impl Service {
    pub(super) fn new() -> Self {
        Self {
            spawn: OnceLock::new(),
            state: Mutex::new(State::NotStarted),
            running: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            kicked: AtomicBool::new(false),
            turn: Turn::new(),
        }
    }

    /// In the child of a fork.
    ///
    /// # Safety
    ///
    /// As for [`fork::InChild::in_child`]; this is the service of domain `id`.
    #[cfg(not(stillpoint_loom))]
    pub(super) unsafe fn in_child(&self, id: u64) {
        let serves = SERVES.with(Cell::get) == id;
        let state = match serves {
            _ if self.stop.load(Ordering::Relaxed) => State::Stopped,
            true => State::Running(None),
            false => State::NotStarted,
        };
        // SAFETY: the caller's promise; foreign code does not run under this lock.
        unsafe { self.state.renew(state) };
        self.running.store(serves, Ordering::Relaxed);
        // Once more through the loop, whatever it was about to sleep for; a vanished thread's signal may be missing.
        self.kicked.store(serves, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { self.turn.in_child() };
    }
}

impl<P: Policy> Engine<P> {
    /// Tells the service thread that there is work, which the caller has made visible before.
    pub(crate) fn kick(&self) {
        self.stalls.service_wanted();
        // [K1] Once is enough until the thread has looked.
        if !self.service.kicked.swap(true, Ordering::AcqRel) {
            self.shared.service.signal();
        }
        self.ensure_service();
    }

    /// Starts the service thread if it does not run, which only an earlier kick for which the system had no thread leaves behind.
    #[inline]
    pub(crate) fn ensure_service(&self) {
        if !self.service_runs() {
            self.start_service();
        }
    }

    /// How to start the service thread: it must call [`Engine::serve`] and end when that returns.
    pub(crate) fn set_service(&self, spawn: impl Fn(String) -> io::Result<thread::Handle> + Send + Sync + 'static) {
        assert!(self.service.spawn.set(Box::new(spawn)).is_ok(), "an engine has one service");
    }

    /// Whether there is a service thread, and not only work for one.
    pub(crate) fn service_runs(&self) -> bool {
        self.service.running.load(Ordering::Acquire)
    }

    /// Starts the service thread with `serve` if it does not run. If the system gives no thread, the work stays queued: the
    /// next call tries again, and those who wait for it run passes themselves.
    #[cold]
    fn start_service(&self) {
        let Some(spawn) = self.service.spawn.get() else { return };
        let mut state = lock(&self.service.state);
        if matches!(*state, State::NotStarted)
            && let Ok(thread) = spawn(format!("stillpoint/{}", self.domain))
        {
            *state = State::Running(Some(thread));
            self.service.running.store(true, Ordering::Release);
        }
    }

    pub(super) fn request_stop(&self) {
        self.service.stop.store(true, Ordering::Release);
        self.service.kicked.swap(true, Ordering::AcqRel);
    }

    /// Asks the service thread to stop and waits until it has, but not in a callback, destructor or waker of whatever domain: that could be
    /// one that the service thread waits for, or this very thread's. It then stops by itself. Whether there is, or was, such a thread.
    pub(crate) fn stop_service(&self) -> bool {
        self.request_stop();
        let state = std::mem::replace(&mut *lock(&self.service.state), State::Stopped);
        let State::Running(thread) = state else {
            return false;
        };
        self.shared.service.signal();
        if let Some(thread) = thread
            && FRAMES.with(Cell::get).is_null()
        {
            // A pass contains the panics of foreign code; one of our own has been printed by its thread.
            thread.join();
        }
        true
    }

    /// The service thread's main loop; returns once it has been asked to stop.
    pub(crate) fn serve(&self, work: &impl Work) {
        SERVES.with(|serves| serves.set(self.domain));
        let me = thread::token();
        let mut bound = FIRST_SLEEP;
        loop {
            self.service.kicked.swap(false, Ordering::AcqRel); // [K2]
            // Asked to stop before the kick that K2 has taken, or there will be another.
            if self.service.stop.load(Ordering::Acquire) {
                return;
            }
            self.stalls.service_came();
            let outlook = self.pass(work);
            let cookie = self.due(Cookie::oldest(outlook.cookie, self.wake_futures()));
            let mut until = outlook.at;
            if let Some(cookie) = cookie {
                if self.advance(cookie, me) == Progress::Ended {
                    bound = FIRST_SLEEP;
                    continue;
                }
                let now = clock::now();
                let due = self.note_held_up(cookie, now);
                let net = if P::BOUNDED_SLEEPS { now.saturating_add(bound).min(due) } else { Nanos::MAX };
                until = Some(until.unwrap_or(Nanos::MAX).min(net));
                bound = (2 * bound).min(LONGEST_SLEEP);
            }
            self.shared.service_waits.store(cookie.is_some(), Ordering::Relaxed);
            let waiter = self.shared.service.prepare();
            if cookie.is_some_and(|cookie| self.has_ended(cookie) || self.flag_holdout(cookie).0) {
                waiter.leave();
                continue;
            }
            // [K3]
            if self.service.kicked.load(Ordering::Acquire) { waiter.leave() } else { waiter.sleep(until) }
        }
    }

    /// One pass, after those of others.
    pub(crate) fn pass(&self, work: &impl Work) -> Outlook {
        let _turn = self.service.turn.take();
        as_pass(self.domain, || work.pass())
    }

    /// Waits until `done`, which passes will make true. Where no service thread could be had, the caller runs the passes, and so does that
    /// thread itself, in a task that it wakes. Refused inside a pass, which would wait for itself, and as soon as a section of the caller's is what
    /// its passes wait for (a callback that they ran may have left one open). If such a pass forks there is nothing left to wait for in the
    /// child.
    pub(crate) fn wait_for_passes(&self, work: &impl Work, done: impl Fn() -> bool) -> Result<(), WouldDeadlock> {
        if in_pass(self.domain) {
            return Err(WouldDeadlock);
        }
        let (me, process) = (thread::token(), fork::process());
        let serves = SERVES.with(Cell::get) == self.domain;
        let mut listed = None;
        while !done() && fork::process() == process {
            if self.service_runs() && !serves {
                let now = clock::now();
                let due = self.note_service(now);
                let waiter = self.shared.waiters.prepare();
                self.kick();
                // The pass that makes it true signals; the bound is a safety net.
                if done() {
                    waiter.leave()
                } else {
                    waiter.sleep(Some(due.min(now + LONGEST_SLEEP)))
                }
                listed.get_or_insert_with(|| self.stalls.list_waiter());
            } else if let Some(cookie) = Cookie::oldest(self.pass(work).cookie, self.wake_futures()) {
                let until = clock::now() + LONGEST_SLEEP;
                if !done() && self.wait_for(cookie, me, Some(until), Haste::Normal) == Waited::HeldUpBySelf && !done() {
                    return Err(WouldDeadlock);
                }
            } else {
                // No thread, and nothing to wait for: it is memory that was wanting.
                self.ensure_service();
                self.sleep_until(clock::now() + FIRST_SLEEP, &done);
            }
        }
        Ok(())
    }

    /// Wakes those in `wait_for_passes`; for the pass to call when it has finished something that was asked for.
    pub(crate) fn signal_waiters(&self) {
        self.shared.waiters.signal();
    }
}
