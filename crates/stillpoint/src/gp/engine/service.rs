//! The service thread: one per engine, started when it is needed, for work that no caller does.
//! Without work for a second it ends; the next work starts another (`server.rs`).
//!
//! It runs passes. A pass (supplied by the module above) runs callbacks, drains what idle threads
//! left, and returns what to wait for next: a grace period, a moment, or nothing. Between passes
//! the thread sleeps until one of these comes, or until it is kicked. A kick that finds no thread
//! starts one. `server.rs` says why no kick is lost.
//!
//! A domain of the drop-in has no such thread: threads that all such domains share make its rounds
//! (`pool.rs`).
//!
//! # When the system refuses the thread
//!
//! The work stays queued, and the kick stands. The engine joins a queue of the process
//! (`stillpoint-platform/src/refused.rs`). Waits, slow retires and queued callbacks in any domain, and
//! rounds of any service thread, try again to start what is listed, a hundred times a second at most.
//! Meanwhile the callers of barriers make the passes, and the end of the domain does the rest. No other
//! domain's thread makes them: if it blocked in this domain's user code it would hold up its own domain.
//! Nor does a retire, whose caller may hold a lock that a destructor takes.
//!
//! # When it fails
//!
//! User code cannot end the thread (`stillpoint-platform/src/user_code.rs`); a panic of the library
//! itself could. The thread catches that, counts it, and begins again with a pass over everything.
//! After [`MOST_FAILURES`] within a minute it stays down: a thread that only panics is of no use.
//! Then
//!
//! * `barrier` and `kvfree_barrier` run passes on the calling thread, as they do when the system
//!   refuses the thread; if the fault occurs again, the caller panics;
//! * waits for grace periods, cookies, sections and retires have never needed the thread;
//! * tasks that wait are woken, and ask again by themselves: the future of a grace period tries
//!   to end it at each poll; the future of a barrier panics, because a poll must not invoke
//!   callbacks;
//! * callbacks, deferred destructors and large pages wait for the next barrier, and no thread that
//!   retires waits for them.
//!
//! In the child of a fork the thread no longer exists, and starts again on demand. If the service
//! thread itself forked, in a callback or a destructor, it goes on in the child.

use super::{Engine, Progress};
use crate::{
    gp::{
        IN_MODEL,
        policy::Policy,
        pool,
        seq::Cookie,
        server::{
            ENDED, End, FIRST_SLEEP, Idle, LONGEST_SLEEP, MOST_FAILURES, Pace, Round, SERVES,
            Served, Server, State, is_service_thread,
        },
        work::{Outlook, Work},
    },
    platform::{
        clock::{self, Nanos},
        environment::{self, Print},
        memory,
        owned_mutex::OwnedMutexGuard,
        refused, stderr,
        sync::{Ordering, lock},
        thread, user_code,
    },
};
use std::{
    io,
    mem,
    // std's also in the model, which has no statics and refuses no thread.
    sync::atomic::AtomicBool as StdBool,
};

/// The length of a thread's name that the kernel keeps, in bytes.
const LONGEST_NAME: usize = 15;

impl<P: Policy> Engine<P> {
    /// Tells the service thread that there is work. The caller has already made the work visible.
    pub(crate) fn kick(&self) {
        let stalls = &self.stalls;
        stalls
            .service
            .start(clock::now(), || stalls.bytes_unreclaimed());
        let found = self.service.signs.kick();
        if !found.kicked {
            // One wake-up is enough until the thread has looked.
            self.wake_service();
        }
        if !found.runs {
            self.start_service();
        }
    }

    /// Wakes the thread that makes the rounds.
    fn wake_service(&self) {
        if self.shares_service() {
            pool::wake();
        } else {
            self.shared.service().signal();
        }
    }

    /// Lets the pool make the rounds. Called before the engine is used.
    pub(crate) fn share_service(&self) {
        self.service.shares.store(true, Ordering::Relaxed);
        self.shared.share_service(pool::event());
    }

    /// Returns whether [`Engine::share_service`] has been called.
    pub(crate) fn shares_service(&self) -> bool {
        // Needs no partner: set before the engine is used.
        self.service.shares.load(Ordering::Relaxed)
    }

    /// Starts the service thread if it does not run: there may be work of an earlier kick for which
    /// the system had no thread. Then tries again to start those of other domains.
    #[inline]
    pub(crate) fn ensure_service(&self) {
        if !self.service_runs() {
            self.start_service();
        }
        refused::retry();
    }

    /// Sets how to start the service thread, or how to join the pool. The thread must call
    /// [`Engine::serve`], finish the domain if that was stopped, and end.
    pub(crate) fn set_service(
        &self,
        spawn: impl Fn(String) -> io::Result<Server> + Send + Sync + 'static,
    ) {
        assert!(
            self.service.spawn.set(Box::new(spawn)).is_ok(),
            "an engine has one service"
        );
    }

    /// Sets the place that lists the engine if the system refuses the thread. It leads to
    /// [`Engine::start_service_again`].
    pub(crate) fn set_refused(&self, place: refused::Place) {
        assert!(
            self.service.refused.set(place).is_ok(),
            "an engine has one service"
        );
    }

    /// Returns true if there is a service thread, and not only work for one.
    pub(crate) fn service_runs(&self) -> bool {
        self.service.signs.runs()
    }

    /// Starts the service thread, which from now on does not end when it is idle.
    pub(crate) fn keep_service(&self) -> io::Result<()> {
        // Before the lock in `try_start_service`: a thread that ends idle does so before that, and
        // another is started, or sees this.
        self.service.stays.store(true, Ordering::Relaxed);
        self.try_start_service()
    }

    /// Starts the service thread if it does not run. If the system refuses it, the work stays queued
    /// (see the module's head), and the next attempt is one of [`refused::retry`].
    #[cold]
    fn start_service(&self) {
        // Acquire and release, pairs with `start_service_again`: it clears this after us, and then sees
        // our caller's kick; or we see it cleared.
        if self.service.refusal.fetch_or(0, Ordering::AcqRel) == 0 {
            self.start_service_now();
        } else {
            refused::retry();
        }
    }

    /// Returns false if the system refuses the thread.
    fn start_service_now(&self) -> bool {
        let started = self.try_start_service();
        if let Err(error) = &started {
            self.note_refused(error);
        }
        started.is_ok()
    }

    #[cold]
    fn try_start_service(&self) -> io::Result<()> {
        let Some(spawn) = self.service.spawn.get() else {
            return Ok(());
        };
        let mut state = lock(&self.service.state);
        if !matches!(*state, State::NotStarted | State::Resting(_)) {
            return Ok(());
        }
        if !memory::is_there_for(thread::START_BYTES) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let server = spawn(self.thread_name())?;
        let mut ended = match mem::replace(&mut *state, State::NotStarted) {
            State::Resting(ended) => ended,
            _ => Vec::new(),
        };
        join_gone(&mut ended);
        // So that this thread's end needs no memory.
        ended.reserve(1);
        *state = State::Running { server, ended };
        self.service.signs.set_runs();
        Ok(())
    }

    /// Lists the engine among those whose thread the system has refused, and says so once in the
    /// process. No subscriber of `tracing` hears it here, because the caller may hold a lock of the
    /// library's or of the user's; the report of the stall has it.
    fn note_refused(&self, error: &io::Error) {
        let number = error.raw_os_error().unwrap_or(libc::ENOMEM);
        let Some(place) = self.service.refused.get() else {
            return;
        };
        // Release and acquire, pairs with `start_service_again`: it clears this after we have set it,
        // and then sees our caller's kick; or we list the engine again.
        let is_listed = self
            .service
            .refusal
            .swap(number.cast_unsigned(), Ordering::AcqRel)
            != 0;
        if !is_listed && !place.list() {
            // So that the next work tries again. Release, pairs with `start_service`: that attempt
            // happens after this one.
            self.service.refusal.store(0, Ordering::Release);
        }
        static SAID: StdBool = StdBool::new(false);
        if !IN_MODEL
            && environment::stall().print != Print::Never
            && !SAID.swap(true, Ordering::Relaxed)
        {
            stderr::line(format_args!(
                "the system refuses a service thread for {}: {error}. Callbacks and deferred destructors wait until one can be started, or \
                 until barrier() and kvfree_barrier() run them. See the limits on processes (ulimit -u, pids.max) and on memory. This message is \
                 printed once",
                self.title()
            ));
        }
    }

    /// Tries again to start a service thread that was refused, if there is work for it. Returns false
    /// if it is refused again.
    pub(crate) fn start_service_again(&self) -> bool {
        // Acquire and release, pairs with `note_refused` and `start_service`: as there.
        self.service.refusal.swap(0, Ordering::AcqRel);
        if self.service_runs() || !self.service.signs.is_kicked() {
            return true;
        }
        self.start_service_now()
    }

    /// Returns the error number with which the system has refused the service thread, if there is
    /// work for one.
    pub(super) fn refusal(&self) -> Option<i32> {
        let number = self.service.refusal.load(Ordering::Relaxed);
        (number != 0 && !self.service_runs()).then_some(number.cast_signed())
    }

    /// Returns the service thread's name, cut to what the kernel keeps.
    fn thread_name(&self) -> String {
        match self.name() {
            Some(name) => {
                let mut name = format!("rcu/{name}");
                while name.len() > LONGEST_NAME {
                    name.pop();
                }
                name
            }
            None => format!("stillpoint/{}", self.domain),
        }
    }

    pub(in crate::gp) fn request_stop(&self) {
        // Release, pairs with `round_uncontained`: what was done before the end of the domain happens
        // before the thread's last look.
        self.service.stop.store(true, Ordering::Release);
        // The round that takes this kick sees it.
        self.service.signs.kick();
    }

    /// Asks the service thread to stop, and waits for its end if `end` says so. Never waits in user code of
    /// any domain, nor on a service thread: the service thread could wait for that code, or be this thread.
    /// It then stops by itself. Returns whether there is a thread that finishes the domain.
    pub(crate) fn stop_service(&self, end: End) -> bool {
        self.request_stop();
        let state = mem::replace(&mut *lock(&self.service.state), State::Stopped);
        let (server, ended) = match state {
            State::Running { server, ended } => (Some(server), ended),
            State::Resting(ended) => (None, ended),
            State::NotStarted | State::Down | State::Stopped => (None, Vec::new()),
        };
        self.wake_service();
        let finishes = server.is_some();
        if end == End::Awaited && !user_code::runs() && !is_service_thread() {
            match server {
                // A panic of the library's own has been printed by its thread.
                Some(Server::Thread(thread)) => thread.join(),
                Some(Server::Pool) => self.wait_for_pool(),
                Some(Server::Forked) | None => {}
            }
            ended.into_iter().for_each(thread::Handle::join);
        }
        finishes
    }

    /// Waits until the pool has finished the domain.
    fn wait_for_pool(&self) {
        // Acquire, pairs with `note_left`: everything that was left is done.
        let has_left = || self.service.has_left.load(Ordering::Acquire);
        while !has_left() {
            // The pool may have been refused the thread for this.
            refused::retry();
            // The pool signals; the bound is for the retry.
            self.sleep_until(clock::now() + LONGEST_SLEEP, has_left);
        }
    }

    /// Records that the pool has finished the domain, and wakes the thread that waits for that.
    pub(crate) fn note_left(&self) {
        // Release, pairs with `wait_for_pool`: as there.
        self.service.has_left.store(true, Ordering::Release);
        self.shared.waiters.signal();
    }

    /// Runs on the service thread until it is asked to stop, has had no work for a while, or has
    /// failed too often.
    pub(crate) fn serve(&self, work: &impl Work) -> Served {
        let mut pace = Pace::new();
        loop {
            match self.round(work, &mut pace) {
                Round::Again => {}
                Round::Rest { cookie, until } => self.rest(cookie, until),
                Round::Ended(served) => return served,
            }
        }
    }

    /// Sleeps until `until`, or until there is something to do.
    fn rest(&self, cookie: Option<Cookie>, until: Option<Nanos>) {
        self.shared
            .service_waits
            .store(cookie.is_some(), Ordering::Relaxed);
        let waiter = self.shared.service().prepare();
        // We see a kick, or its signal sees us announced. The same holds for the reader's signal.
        if cookie.is_some_and(|cookie| self.has_ended(cookie) || self.flag_holdout(cookie).0)
            || self.service.signs.is_kicked()
        {
            waiter.leave();
        } else {
            waiter.sleep(until);
        }
    }

    /// Returns true if there is something to do after a round that waits for `cookie`.
    /// [`Engine::watch`] was called with the same cookie before.
    pub(crate) fn has_news(&self, cookie: Option<Cookie>) -> bool {
        let is_over =
            |cookie: Cookie| self.has_ended(cookie) || self.cached_holdout(cookie.seq()).is_none();
        self.service.signs.is_kicked() || cookie.is_some_and(is_over)
    }

    /// Asks the reader that holds up `cookie` to signal the pool, whose thread announces itself and
    /// then calls [`Engine::has_news`]. Returns true if the next round is due now.
    pub(crate) fn watch(&self, cookie: Option<Cookie>) -> bool {
        self.shared
            .service_waits
            .store(cookie.is_some(), Ordering::Relaxed);
        cookie.is_some_and(|cookie| self.has_ended(cookie) || self.flag_holdout(cookie).0)
    }

    /// Makes a round: does what there is to do now, on the service thread or one of the pool's. Contains
    /// panics, except in the models, where a panic fails the test.
    pub(crate) fn round(&self, work: &impl Work, pace: &mut Pace) -> Round {
        SERVES.with(|serves| serves.set(self.domain));
        let mut round = || self.round_uncontained(work, pace);
        let round = if IN_MODEL {
            Some(round())
        } else {
            user_code::contained(round)
        };
        let round = round.unwrap_or_else(|| self.note_failure());
        SERVES.with(|serves| serves.set(ENDED));
        round
    }

    /// Counts a panic of the library itself in a round. Returns the outcome of that round.
    #[cold]
    fn note_failure(&self) -> Round {
        self.service.failures.fetch_add(1, Ordering::Relaxed);
        if self.service.lately.note(clock::now()) {
            Round::Ended(self.stay_down())
        } else {
            Round::Again
        }
    }

    /// Ends a service thread that has failed too often; see the module's head.
    #[cold]
    pub(in crate::gp) fn stay_down(&self) -> Served {
        {
            let mut state = lock(&self.service.state);
            if matches!(*state, State::Stopped) {
                // The thread that has stopped it relies on it for the rest.
                return Served::Stopped;
            }
            *state = State::Down;
            self.service.signs.clear_runs();
        }
        // The code below may fork; in the child this thread must not count as a service thread.
        SERVES.with(|serves| serves.set(ENDED));
        // Waiters then make the passes themselves.
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
        self.futures.wake_all(self.domain);
        Served::Down
    }

    /// Returns the message of a failure, and the action that it asks for.
    fn down(&self) -> String {
        format!(
            "the service thread of {} has panicked {MOST_FAILURES} times within a minute, because of a fault in this library (the messages are \
             above; please report them), and stays down. barrier() does its work on the calling thread; barrier_async() cannot",
            self.title()
        )
    }

    /// Returns the message for a future that waits for callbacks while the service thread, which
    /// alone invokes them, is down.
    pub(crate) fn says_down(&self) -> Option<String> {
        let is_down = matches!(*lock(&self.service.state), State::Down);
        is_down.then(|| self.down())
    }

    /// Returns how often the service thread has panicked.
    pub(crate) fn service_failures(&self) -> u64 {
        self.service.failures.load(Ordering::Relaxed)
    }

    /// Makes a round, which may panic.
    fn round_uncontained(&self, work: &impl Work, pace: &mut Pace) -> Round {
        // What was made visible before a kick or a request to stop is seen by this round.
        if self.service.signs.take_kick() {
            pace.idle_since = None;
        }
        // A stop that was requested before the kick taken above is seen here. Otherwise another
        // kick follows.
        // Acquire, pairs with `request_stop`.
        if self.service.stop.load(Ordering::Acquire) {
            return Round::Ended(Served::Stopped);
        }
        refused::retry();
        P::service_comes();
        let outlook = self.pass(work);
        let cookie = self.due(Cookie::oldest(outlook.cookie, self.wake_futures()));
        let mut until = outlook.at;
        if let Some(cookie) = cookie {
            if self.try_complete(cookie, thread::token()) == Progress::Ended {
                pace.bound = FIRST_SLEEP;
                return Round::Again;
            }
            let now = clock::now();
            let due = self.note_held_up(cookie, now);
            let net = if P::BOUNDED_SLEEPS {
                now.saturating_add(pace.bound).min(due)
            } else {
                Nanos::MAX
            };
            until = Some(until.unwrap_or(Nanos::MAX).min(net));
            pace.bound = (2 * pace.bound).min(LONGEST_SLEEP);
        }
        if until.is_some() {
            pace.idle_since = None;
        } else {
            let now = clock::now();
            let end = pace.idle_since.get_or_insert(now).saturating_add(P::IDLE);
            if now < end {
                until = Some(end);
            } else {
                match self.end_idle() {
                    Idle::Ends => return Round::Ended(Served::Idle),
                    Idle::Kicked => return Round::Again,
                    Idle::Stays => {}
                }
            }
        }
        Round::Rest { cookie, until }
    }

    /// Waits until no other thread makes a pass, and makes one. Called by the service thread, and by
    /// threads that wait for the work of passes.
    pub(crate) fn pass(&self, work: &impl Work) -> Outlook {
        let _turn = self.take_turn();
        self.service_came();
        work.pass()
    }

    /// Waits until no other thread makes a pass, and keeps other threads from making one until the
    /// guard is dropped.
    pub(crate) fn take_turn(&self) -> OwnedMutexGuard<'_> {
        self.service.turn.lock()
    }

    /// Ends the idle service thread, if there is still no work for it.
    fn end_idle(&self) -> Idle {
        let mut state = lock(&self.service.state);
        let State::Running { server, ended } = &mut *state else {
            return Idle::Stays;
        };
        if matches!(server, Server::Forked) {
            return Idle::Stays;
        }
        // Needs no partner: `keep_service` takes the same lock after it has set this.
        if self.service.stays.load(Ordering::Relaxed) {
            return Idle::Stays;
        }
        if !self.service.signs.end::<P>() {
            return Idle::Kicked;
        }
        let ended = mem::take(ended);
        let before = mem::replace(&mut *state, State::Resting(ended));
        if let State::Running {
            server: Server::Thread(thread),
            ..
        } = before
            && let State::Resting(ended) = &mut *state
            && !self.shared.seq.is_global()
        {
            ended.push(thread);
        }
        Idle::Ends
    }
}

/// Joins those of `threads` that are gone.
fn join_gone(threads: &mut Vec<thread::Handle>) {
    *threads = mem::take(threads)
        .into_iter()
        .filter_map(|thread| thread.try_join().err())
        .collect();
}

/// A domain that is gone.
#[cfg(test)]
pub(in crate::gp) struct Gone;

#[cfg(test)]
impl Gone {
    pub(in crate::gp) fn place() -> refused::Place {
        refused::Place::new(
            &crate::platform::fork::AtForkHandle::reserve(),
            std::sync::Weak::<Self>::new(),
        )
    }
}

#[cfg(test)]
impl refused::Refused for Gone {
    fn start_again(&self) -> bool {
        true
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::gp::{
        engine::wait::{Haste, Waited},
        policy::Sound,
    };
    use std::{
        sync::{Arc, atomic::AtomicUsize},
        time::Duration,
    };

    /// Each attempt maps a stack: only the first is made by the work itself.
    #[test]
    fn while_a_thread_is_refused_work_does_not_try_each_time() {
        let engine = Engine::<Sound>::for_test();
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        engine.set_service(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Err(io::Error::from_raw_os_error(libc::EAGAIN))
        });
        engine.set_refused(Gone::place());
        for _ in 0..1000 {
            engine.kick();
            engine.ensure_service();
        }
        assert_eq!(attempts.load(Ordering::Relaxed), 1);
        assert_eq!(engine.refusal(), Some(libc::EAGAIN));
        // Another thread's attempt.
        assert!(!engine.start_service_again());
        engine.kick();
        assert_eq!(attempts.load(Ordering::Relaxed), 2);
    }

    /// A pass may have more callbacks than it can run in the stall time-out. One that does not return
    /// is reported, though only the first callback that is queued meanwhile kicks the thread.
    #[test]
    fn a_callback_that_returns_is_progress() {
        let engine = Arc::new(Engine::<Sound>::for_test());
        engine.set_service(|_| Ok(Server::Forked));
        engine.set_stall_handler(Some(Arc::new(|_| ())));
        engine.set_stall_timeout(Duration::from_nanos(1));
        let [served, stuck] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        for _ in 0..3 {
            let theirs = Arc::clone(&engine);
            let (served, stuck) = (Arc::clone(&served), Arc::clone(&stuck));
            engine.call(move || {
                served.fetch_add(theirs.is_served().into(), Ordering::Relaxed);
                theirs.call(|| ());
                let _ = theirs.note_service(Nanos::MAX);
                stuck.fetch_add((!theirs.is_served()).into(), Ordering::Relaxed);
            });
        }
        let ended = engine.wait_for(engine.start(), thread::token(), None, Haste::Normal);
        assert_eq!(ended, Waited::Ended);
        let _ = engine.run_callbacks();
        let counts = [served, stuck].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [3, 3]);
        assert!(engine.run_all_callbacks());
    }

    struct Callbacks(Arc<Engine<Sound>>);

    impl Work for Callbacks {
        fn pass(&self) -> Outlook {
            self.0.run_callbacks()
        }
    }

    /// Returns an engine whose service thread the system refuses.
    fn refused() -> Arc<Engine<Sound>> {
        let engine = Engine::<Sound>::for_test();
        engine.set_service(|_| Err(io::Error::from_raw_os_error(libc::EAGAIN)));
        engine.set_refused(Gone::place());
        engine.set_stall_handler(Some(Arc::new(|_| ())));
        Arc::new(engine)
    }

    /// The thread is refused, but callers have done the work, so nothing is late. Later work is
    /// timed anew.
    #[test]
    fn callers_that_make_the_passes_leave_no_stall() {
        let engine = refused();
        for stalls in 0..3 {
            engine.call(|| ());
            assert_eq!(
                engine.barrier(&Callbacks(Arc::clone(&engine)), None),
                Ok(())
            );
            assert_eq!(engine.callbacks_pending(), 0);
            let _ = engine.note_service(Nanos::MAX);
            assert_eq!(engine.service_stalls(), stalls);
            engine.call(|| ());
            let _ = engine.note_service(Nanos::MAX);
            assert_eq!(engine.service_stalls(), stalls + 1);
        }
        assert!(engine.run_all_callbacks());
    }

    /// A caller that waits for its turn has not come to the work: the pass before it may be stuck.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_pass_that_is_stuck_is_reported_while_others_wait_for_their_turn() {
        let engine = refused();
        engine.call(|| ());
        let turn = engine.take_turn();
        let (tell, told) = std::sync::mpsc::channel();
        let theirs = Arc::clone(&engine);
        let waits = std::thread::spawn(move || {
            tell.send(thread::tid()).expect("the test waits");
            theirs.barrier(&Callbacks(Arc::clone(&theirs)), None)
        });
        let tid = told.recv().expect("it begins");
        while thread::blocked_in(tid).is_none_or(|call| call.name != "futex")
            && !waits.is_finished()
        {
            std::thread::yield_now();
        }
        let _ = engine.note_service(Nanos::MAX);
        assert_eq!(engine.service_stalls(), 1);
        drop(turn);
        assert_eq!(waits.join().expect("no panic"), Ok(()));
    }

    /// It may be the only thread of its process.
    #[test]
    fn the_thread_that_forked_does_not_end_idle() {
        let engine = Engine::<Sound>::for_test();
        *lock(&engine.service.state) = State::Running {
            server: Server::Forked,
            ended: Vec::new(),
        };
        engine.service.signs.reset_in_child(true);
        engine.service.signs.take_kick();
        assert!(matches!(engine.end_idle(), Idle::Stays));
        assert!(engine.service_runs());
    }
}
