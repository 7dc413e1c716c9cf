//! The service thread: one per engine, started on first need, for what nobody else's call can do.
//!
//! It runs passes. A pass (the room above supplies it) runs callbacks and drains what idle threads
//! left, and says what it waits for: a grace period, a moment, or nothing. Between passes the
//! thread sleeps until one of these comes, or until it is kicked.
//!
//! ```text
//!   kicker   make work visible; kicked = true; signal
//!   thread   kicked = false; pass; announce; if kicked: again; sleep
//! ```
//!
//! Work that is made visible before a kick is seen by the pass after the swap that takes the kick,
//! and a kick after that is seen by the last look or wakes the sleeper
//! (`stillpoint-platform/src/event.rs`).
//!
//! # When it fails
//!
//! User code cannot end the thread (`stillpoint-platform/src/user_code.rs`); a fault of the
//! library's own that panics could. The thread catches that, counts it, and begins again with a
//! pass over everything. After [`MOST_FAILURES`] within a minute it stays down: what fails that
//! often would fail again, and a thread that does nothing but panic is of no use. Then
//!
//! * `barrier` and `kvfree_barrier` run passes on the calling thread, as where the system gives no
//!   thread; if the fault is met again it is the caller that panics;
//! * waits for grace periods, cookies, sections and retires have never needed the thread;
//! * tasks that wait are woken, and ask again by themselves: a future of a grace period ends it so,
//!   over and over if readers are in the way; one of a barrier panics, because to invoke callbacks
//!   is no business of a poll's;
//! * callbacks and deferred destructors wait for the next barrier, and a thread that retires past
//!   the budget for a bounded time.
//!
//! In the child of a fork the thread is gone, and starts again on demand; unless it is the one that
//! forked, in a callback or a destructor, and goes on.

use super::{
    Engine, Progress,
    wait::{FIRST_SLEEP, Haste, LONGEST_SLEEP, Waited},
};
use crate::{
    gp::{
        IN_MODEL,
        policy::Policy,
        seq::Cookie,
        work::{Outlook, Work, WouldDeadlock},
    },
    platform::{
        clock::{self, Nanos},
        fork,
        owned_mutex::OwnedMutex,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
        thread, user_code,
    },
};
use std::{cell::Cell, fmt, io, sync::OnceLock};

/// The thread stays down after so many failures within [`LATELY`].
const MOST_FAILURES: usize = 3;

/// A minute.
const LATELY: Nanos = 60_000_000_000;

/// How an engine's service ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The caller waits for the thread's end.
    Awaited,
    /// The caller does not wait: the thread ends by itself when it has done what is left.
    LeftToService,
}

#[derive(Debug)]
pub(in crate::gp) enum State {
    NotStarted,
    /// `None` in the child of a fork by that very thread: it ends by itself, and nobody can join
    /// it.
    Running(Option<thread::Handle>),
    /// It has failed too often, and has ended.
    Down,
    Stopped,
}

/// How [`Engine::serve`] has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Served {
    /// It was asked to: what is left is now the caller's to finish.
    Stopped,
    /// It has failed too often. The domain goes on without it.
    Down,
}

type Spawn = Box<dyn Fn(String) -> io::Result<thread::Handle> + Send + Sync>;

pub(in crate::gp) struct Service {
    /// Starts a thread of the given name that serves this engine. Set once, by the room that owns
    /// the engine.
    spawn: OnceLock<Spawn>,
    pub(in crate::gp) state: Mutex<State>,
    pub(in crate::gp) running: AtomicBool,
    pub(in crate::gp) stop: AtomicBool,
    pub(in crate::gp) kicked: AtomicBool,
    /// Held during a pass.
    pub(in crate::gp) turn: OwnedMutex,
    failures: AtomicU64,
}

stillpoint_platform::thread_constant! {
    /// The domain whose service thread this is; 0 for none.
    static SERVES: Cell<u64> = Cell::new(0);
}

/// Whether the calling thread is the service thread of domain `id`.
pub(in crate::gp) fn serves(id: u64) -> bool {
    SERVES.with(Cell::get) == id
}

/// When a service thread has failed lately, the oldest first; 0 for never.
#[derive(Debug)]
struct Failures([Nanos; MOST_FAILURES - 1]);

impl Failures {
    /// Whether one at the moment `now` is one too many.
    fn note(&mut self, now: Nanos) -> bool {
        let oldest = self.0[0];
        self.0.rotate_left(1);
        self.0[MOST_FAILURES - 2] = now;
        oldest > 0 && now.saturating_sub(oldest) < LATELY
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("running", &self.running)
            .finish_non_exhaustive()
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
            turn: OwnedMutex::new(),
            failures: AtomicU64::new(0),
        }
    }
}

impl<P: Policy> Engine<P> {
    /// Tells the service thread that there is work, which the caller has made visible before.
    pub(crate) fn kick(&self) {
        self.stalls.service_wanted();
        // Once is enough until the thread has looked. Release, pairs with the swap in `rounds`: the
        // work is seen by the pass that follows it.
        if !self.service.kicked.swap(true, Ordering::AcqRel) {
            self.shared.service.signal();
        }
        self.ensure_service();
    }

    /// Starts the service thread if it does not run, which only an earlier kick for which the
    /// system had no thread leaves behind.
    #[inline]
    pub(crate) fn ensure_service(&self) {
        if !self.service_runs() {
            self.start_service();
        }
    }

    /// How to start the service thread: it must call [`Engine::serve`], finish the domain if that
    /// was stopped, and end.
    pub(crate) fn set_service(
        &self,
        spawn: impl Fn(String) -> io::Result<thread::Handle> + Send + Sync + 'static,
    ) {
        assert!(
            self.service.spawn.set(Box::new(spawn)).is_ok(),
            "an engine has one service"
        );
    }

    /// Whether there is a service thread, and not only work for one.
    pub(crate) fn service_runs(&self) -> bool {
        // Acquire, pairs with `start_service` and `stay_down`: a hint; what comes of it is decided
        // under the lock of `state`.
        self.service.running.load(Ordering::Acquire)
    }

    /// Starts the service thread with `serve` if it does not run. If the system gives no thread,
    /// the work stays queued: the next call tries again, and those who wait for it run passes
    /// themselves.
    #[cold]
    fn start_service(&self) {
        let Some(spawn) = self.service.spawn.get() else {
            return;
        };
        let mut state = lock(&self.service.state);
        if matches!(*state, State::NotStarted)
            && let Ok(thread) = spawn(format!("stillpoint/{}", self.domain))
        {
            *state = State::Running(Some(thread));
            // Release, pairs with `service_runs`: the thread is there before it is said to run.
            self.service.running.store(true, Ordering::Release);
        }
    }

    pub(in crate::gp) fn request_stop(&self) {
        // Release, pairs with `rounds`: what was done before the end of the domain happens before
        // the thread's last look.
        self.service.stop.store(true, Ordering::Release);
        // Release, pairs with the swap in `rounds`: `stop` is seen by the round that takes this
        // kick.
        self.service.kicked.swap(true, Ordering::AcqRel);
    }

    /// Asks the service thread to stop, and, if its end is awaited, waits for that; but not in user
    /// code of whatever domain: that could be what the service thread waits for, or this very
    /// thread's. It then stops by itself. Whether there is a thread that finishes the domain.
    pub(crate) fn stop_service(&self, end: End) -> bool {
        self.request_stop();
        let state = std::mem::replace(&mut *lock(&self.service.state), State::Stopped);
        let State::Running(thread) = state else {
            return false;
        };
        self.shared.service.signal();
        if let Some(thread) = thread
            && end == End::Awaited
            && !user_code::runs()
        {
            // A panic of the library's own has been printed by its thread.
            thread.join();
        }
        true
    }

    /// What the service thread does until it is asked to stop, or has failed too often.
    pub(crate) fn serve(&self, work: &impl Work) -> Served {
        SERVES.with(|serves| serves.set(self.domain));
        let mut failures = Failures([0; MOST_FAILURES - 1]);
        let served = loop {
            if self.rounds_end_well(work) {
                break Served::Stopped;
            }
            self.service.failures.fetch_add(1, Ordering::Relaxed);
            if failures.note(clock::now()) {
                break self.stay_down();
            }
        };
        SERVES.with(|serves| serves.set(0));
        served
    }

    /// Whether the rounds have ended because they were asked to. The models end a test by a panic,
    /// which must go through.
    fn rounds_end_well(&self, work: &impl Work) -> bool {
        if IN_MODEL {
            self.rounds(work);
            true
        } else {
            user_code::contained(|| self.rounds(work)).is_some()
        }
    }

    /// The end of a service thread that has failed too often; see the module's head.
    #[cold]
    fn stay_down(&self) -> Served {
        {
            let mut state = lock(&self.service.state);
            if matches!(*state, State::Stopped) {
                // The thread that has stopped it relies on it for the rest.
                return Served::Stopped;
            }
            *state = State::Down;
            // Release, pairs with `service_runs`: who sees it down sees what the thread has done.
            self.service.running.store(false, Ordering::Release);
        }
        // What follows may fork, and is no service thread in the child.
        SERVES.with(|serves| serves.set(0));
        // They go on by themselves.
        self.shared.waiters.signal();
        #[cfg(feature = "tracing")]
        user_code::tell(self.domain, || {
            tracing::error!(
                domain = self.domain,
                "the service thread has failed {MOST_FAILURES} times within a minute and stays down"
            );
        });
        // A future that registers later does so under the same lock, and then sees that the thread
        // does not run.
        self.wake_all_futures();
        Served::Down
    }

    /// What to say, and what to do.
    fn down(&self) -> String {
        format!(
            "the service thread of domain {} has panicked {MOST_FAILURES} times within a minute, by a fault of this library (the messages are \
             above; please report them), and stays down. barrier() does its work on the calling thread; barrier_async() cannot",
            self.domain
        )
    }

    /// What to say to a future that waits for callbacks, which only the service thread invokes by
    /// itself, if that is down.
    pub(crate) fn says_down(&self) -> Option<String> {
        let is_down = matches!(*lock(&self.service.state), State::Down);
        is_down.then(|| self.down())
    }

    /// Times that the service thread has panicked.
    pub(crate) fn service_failures(&self) -> u64 {
        self.service.failures.load(Ordering::Relaxed)
    }

    /// The service thread's main loop; returns once it has been asked to stop.
    fn rounds(&self, work: &impl Work) {
        let me = thread::token();
        let mut bound = FIRST_SLEEP;
        loop {
            // Acquire, pairs with `kick` and `request_stop`: what was made visible before them is
            // seen by this round.
            self.service.kicked.swap(false, Ordering::AcqRel);
            // Asked to stop before the kick that has been taken, or there will be another.
            // Acquire, pairs with `request_stop`.
            if self.service.stop.load(Ordering::Acquire) {
                return;
            }
            self.stalls.service_came();
            P::service_comes();
            let outlook = self.pass(work);
            let cookie = self.due(Cookie::oldest(outlook.cookie, self.wake_futures()));
            let mut until = outlook.at;
            if let Some(cookie) = cookie {
                if self.try_complete(cookie, me) == Progress::Ended {
                    bound = FIRST_SLEEP;
                    continue;
                }
                let now = clock::now();
                let due = self.note_held_up(cookie, now);
                let net = if P::BOUNDED_SLEEPS {
                    now.saturating_add(bound).min(due)
                } else {
                    Nanos::MAX
                };
                until = Some(until.unwrap_or(Nanos::MAX).min(net));
                bound = (2 * bound).min(LONGEST_SLEEP);
            }
            self.shared
                .service_waits
                .store(cookie.is_some(), Ordering::Relaxed);
            let waiter = self.shared.service.prepare();
            if cookie.is_some_and(|cookie| self.has_ended(cookie) || self.flag_holdout(cookie).0) {
                waiter.leave();
                continue;
            }
            // Acquire, pairs with `kick`: we see it, or its signal sees us announced.
            if self.service.kicked.load(Ordering::Acquire) {
                waiter.leave()
            } else {
                waiter.sleep(until)
            }
        }
    }

    /// One pass, after those of others.
    pub(crate) fn pass(&self, work: &impl Work) -> Outlook {
        let _turn = self.service.turn.lock();
        work.pass()
    }

    /// Waits until `done`, which passes will make true. Where no service thread could be had, or it
    /// is down, the caller runs the passes, and so does that thread itself, in a task that it
    /// wakes. Refused inside user code of the domain, which would wait for itself (but a task that
    /// is woken may wait), and as soon as a section of the caller's is what its passes wait for (a
    /// callback that they ran may have left one open). If such a pass forks there is nothing left
    /// to wait for in the child.
    pub(crate) fn wait_for_passes(
        &self,
        work: &impl Work,
        done: impl Fn() -> bool,
    ) -> Result<(), WouldDeadlock> {
        if user_code::runs_for(self.domain) {
            return Err(WouldDeadlock);
        }
        let (me, process) = (thread::token(), fork::process());
        let serves = serves(self.domain);
        let mut listed = None;
        while !done() && fork::process() == process {
            if self.service_runs() && !serves {
                let now = clock::now();
                let due = self.note_service(now);
                let waiter = self.shared.waiters.prepare();
                self.kick();
                // The pass that makes it true signals, and so does the thread when it goes down;
                // the bound is a safety net.
                if done() || !self.service_runs() {
                    waiter.leave()
                } else {
                    waiter.sleep(Some(due.min(now + LONGEST_SLEEP)))
                }
                listed.get_or_insert_with(|| self.stalls.list_waiter());
            } else if let Some(cookie) = Cookie::oldest(self.pass(work).cookie, self.wake_futures())
            {
                let until = clock::now() + LONGEST_SLEEP;
                if !done()
                    && self.wait_for(cookie, me, Some(until), Haste::Normal) == Waited::HeldUpBySelf
                    && !done()
                {
                    return Err(WouldDeadlock);
                }
            } else {
                // No thread, and nothing to wait for: there was no memory.
                self.ensure_service();
                self.sleep_until(clock::now() + FIRST_SLEEP, &done);
            }
        }
        Ok(())
    }

    /// Wakes those in `wait_for_passes`; for the pass to call when it has finished something that
    /// was asked for.
    pub(crate) fn signal_waiters(&self) {
        self.shared.waiters.signal();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_within_a_minute_are_too_many() {
        let second = LATELY / 60;
        let mut failures = Failures([0; MOST_FAILURES - 1]);
        assert_eq!(
            [1, 2, 3].map(|now| failures.note(now)),
            [false, false, true]
        );
        let mut failures = Failures([0; MOST_FAILURES - 1]);
        // The third is a minute after the first, and more; the fourth is not, of the second.
        assert_eq!(
            [1, 40, 61, 90, 150].map(|now| failures.note(now * second)),
            [false, false, false, true, false]
        );
    }
}

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests {
    use super::*;
    use crate::gp::{
        barrier_mode::BarrierMode,
        loom_tests::{FIRST, model},
        policy::Sound,
        seq::Sequence,
    };
    use crate::platform::sync::Arc;

    struct Passes(AtomicBool);

    impl Work for Passes {
        fn pass(&self) -> Outlook {
            self.0.store(true, Ordering::Relaxed);
            Outlook::default()
        }
    }

    /// Who waits for passes while the thread goes down makes them; time stands still, so one who
    /// sleeps then is a deadlock.
    #[test]
    fn loom_service_that_goes_down_is_not_waited_for() {
        model(|| {
            let engine = Arc::new(Engine::<Sound>::new(
                1,
                BarrierMode::Membarrier,
                Sequence::new(FIRST),
            ));
            *lock(&engine.service.state) = State::Running(None);
            engine.service.running.store(true, Ordering::Release);
            let theirs = Arc::clone(&engine);
            let goes = loom::thread::spawn(move || assert_eq!(theirs.stay_down(), Served::Down));
            let passes = Passes(AtomicBool::new(false));
            assert_eq!(
                engine.wait_for_passes(&passes, || passes.0.load(Ordering::Relaxed)),
                Ok(())
            );
            goes.join().unwrap();
        });
    }
}
