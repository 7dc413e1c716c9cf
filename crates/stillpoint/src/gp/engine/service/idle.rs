//! How the service thread ends when it has had no work for a while, and why no work is left lying.
//!
//! One word says whether there is a thread ([`RUNS`]) and whether it has been kicked for work that
//! it has not looked for yet ([`KICKED`]).
//!
//! ```text
//!   kicker   make work visible; word |= KICKED; if RUNS was not in it: lock `state`, start a thread
//!   thread   word &= !KICKED; a pass finds nothing to do and nothing to wait for, for a second;
//!            lock `state`; word: RUNS -> 0, unless KICKED; state = Resting; unlock; end
//! ```
//!
//! All changes of one word come in one order, and each read-modify-write sees the one before it. So
//! of a kick and the end one comes first:
//!
//! * **The kick**: the end finds `KICKED` and does not happen. The thread goes on with a pass that
//!   sees the work, because it takes the kick by acquire.
//! * **The end**: the kicker finds no `RUNS`. It takes the lock, under which the end came, finds
//!   the state `Resting` and starts another thread, whose first pass sees the work.
//!
//! Nothing else has to be looked at: what a pass leaves to be waited for (a grace period, a moment,
//! threads that are not parked) keeps the thread from being idle, and all other work is followed by
//! a kick of the thread that brings it.
//!
//! # The thread that has ended
//!
//! That of a domain which can end is not detached, so that the end of the domain can wait until it
//! is gone, with the destructors of what user code has left in its thread-local variables. It is
//! joined when the next one is started, if it is gone by then. One that is not stays in the list:
//! such a destructor may block, or wait for what the next thread has to do, and no thread waits for
//! it but the one that ends the domain. The stack of the last one stays mapped for so long, with
//! little memory behind it.
//!
//! A global domain never ends, so its threads are detached when they end. (ThreadSanitizer reports
//! threads that have ended and were never joined.)
//!
//! A thread that the program has asked for ([`Engine::keep_service`]) does not end idle. Nor does the
//! thread that forked in a callback and goes on in the child: it may be the only one that the child has.

use super::{Server, State, thread};
use crate::{
    gp::{engine::Engine, policy::Policy},
    platform::sync::{AtomicU32, Ordering, lock},
};
use std::mem;

/// There is a thread, which will look at the word again before it ends.
const RUNS: u32 = 1;

/// There is work that it has not looked for.
const KICKED: u32 = 2;

/// The word.
#[derive(Debug)]
pub(in crate::gp) struct Signs(AtomicU32);

/// The result of a kick.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) kicked: bool,
    pub(super) runs: bool,
}

impl Signs {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Release, pairs with `take_kick`: the work is seen by the pass that follows. Acquire, pairs
    /// with `set_runs` and `clear_runs`: what comes of it is decided under the lock of `state`.
    pub(super) fn kick(&self) -> Found {
        let before = self.0.fetch_or(KICKED, Ordering::AcqRel);
        Found {
            kicked: before & KICKED != 0,
            runs: before & RUNS != 0,
        }
    }

    /// Returns whether there was a kick. Acquire, pairs with `kick`: what was made visible before
    /// it is seen by the pass.
    pub(super) fn take_kick(&self) -> bool {
        self.0.fetch_and(!KICKED, Ordering::AcqRel) & KICKED != 0
    }

    pub(super) fn is_kicked(&self) -> bool {
        // Acquire, pairs with `kick`: as in `take_kick`, which comes next.
        self.0.load(Ordering::Acquire) & KICKED != 0
    }

    pub(super) fn runs(&self) -> bool {
        // Acquire, pairs with `set_runs` and `clear_runs`: a hint, as in `kick`.
        self.0.load(Ordering::Acquire) & RUNS != 0
    }

    pub(super) fn set_runs(&self) {
        // Release, pairs with `runs`: the thread is there before it is said to run.
        self.0.fetch_or(RUNS, Ordering::Release);
    }

    pub(super) fn clear_runs(&self) {
        // Release, pairs with `runs`: a thread that sees it down sees everything that the service
        // thread has done.
        self.0.fetch_and(!RUNS, Ordering::Release);
    }

    /// Returns whether it has ended: not if it was kicked.
    fn end<P: Policy>(&self) -> bool {
        if !P::ENDS_UNKICKED {
            self.clear_runs();
            return true;
        }
        // Release, pairs with `runs`: as in `clear_runs`. Relaxed where it fails: `take_kick` comes
        // next.
        self.0
            .compare_exchange(RUNS, 0, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// In the child of a fork, records whether the calling thread is the service thread; if not,
    /// there is none.
    pub(in crate::gp) fn reset_in_child(&self, serves: bool) {
        // Once more through the loop, whatever it was about to sleep for; a vanished thread's
        // signal may be missing.
        let word = if serves { RUNS | KICKED } else { 0 };
        self.0.store(word, Ordering::Relaxed);
    }
}

/// The result of an idle thread's wait.
#[derive(Debug)]
pub(super) enum Idle {
    /// It is to end.
    Ends,
    /// There is work.
    Kicked,
    /// It is none that may end: see the module's head. Or it has been asked to stop.
    Stays,
}

impl<P: Policy> Engine<P> {
    /// The end of a service thread without work, if there is still none.
    pub(super) fn end_idle(&self) -> Idle {
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
pub(super) fn join_gone(threads: &mut Vec<thread::Handle>) {
    *threads = mem::take(threads)
        .into_iter()
        .filter_map(|thread| thread.try_join().err())
        .collect();
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::gp::{
        barrier_mode::BarrierMode,
        policy::Sound,
        seq::{Cookie, Sequence},
    };

    /// It may be the only thread of its process.
    #[test]
    fn the_thread_that_forked_does_not_end_idle() {
        let first = Cookie::from_raw(0).seq();
        let engine = Engine::<Sound>::new(1, BarrierMode::Membarrier, Sequence::new(first));
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

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests {
    use super::super::Served;
    use super::*;
    use crate::gp::{
        barrier_mode::BarrierMode,
        loom_tests::{FIRST, model},
        policy::Sound,
        seq::Sequence,
        work::{Outlook, Work},
    };
    use crate::platform::{
        clock::Nanos,
        refused,
        sync::{Arc, AtomicBool},
    };
    use std::io;

    /// Ends at its first idle pass: time stands still.
    enum Hasty {}
    // SAFETY: nothing is left out.
    unsafe impl Policy for Hasty {
        const IDLE: Nanos = 0;
    }

    /// Ends without work, whether it was kicked or not.
    enum Deaf {}
    // SAFETY: this one leaves memory alone; it leaves work lying.
    unsafe impl Policy for Deaf {
        const IDLE: Nanos = 0;
        const ENDS_UNKICKED: bool = false;
    }

    fn a_thread() -> thread::Handle {
        thread::spawn("model".to_owned(), || ()).unwrap()
    }

    struct Job<P> {
        engine: Engine<P>,
        wanted: AtomicBool,
        done: AtomicBool,
        another: std::sync::Arc<std::sync::atomic::AtomicBool>,
    }

    impl<P: Policy> Work for Job<P> {
        fn pass(&self) -> Outlook {
            if self.wanted.load(Ordering::Relaxed) {
                self.done.store(true, Ordering::Relaxed);
            }
            Outlook::default()
        }
    }

    /// Work that comes while the thread ends is done by it, or another thread is asked for.
    fn work_while_it_ends<P: Policy>() {
        model(|| {
            let another = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let job = Arc::new(Job {
                engine: Engine::<P>::new(1, BarrierMode::Membarrier, Sequence::new(FIRST)),
                wanted: AtomicBool::new(false),
                done: AtomicBool::new(false),
                another: std::sync::Arc::clone(&another),
            });
            job.engine.set_service(move |_| {
                another.store(true, Ordering::Relaxed);
                Err(io::ErrorKind::WouldBlock.into())
            });
            *lock(&job.engine.service.state) = State::Running {
                server: Server::Thread(a_thread()),
                ended: Vec::new(),
            };
            job.engine.service.signs.set_runs();
            let theirs = Arc::clone(&job);
            let service = loom::thread::spawn(move || theirs.engine.serve(&*theirs));
            job.wanted.store(true, Ordering::Relaxed);
            job.engine.kick();
            assert_eq!(service.join().unwrap(), Served::Idle);
            assert!(
                job.done.load(Ordering::Relaxed) || job.another.load(Ordering::Relaxed),
                "work is left lying"
            );
        });
    }

    #[test]
    fn loom_an_idle_end_leaves_no_work() {
        work_while_it_ends::<Hasty>();
    }

    #[test]
    #[should_panic(expected = "work is left lying")]
    fn loom_an_idle_end_that_does_not_look_is_caught() {
        work_while_it_ends::<Deaf>();
    }

    /// The domain ends while a thread has brought work and has not kicked yet. `look` sees to it
    /// that a service thread does the work, and not the thread that ends the domain.
    fn work_at_the_domains_end(look: fn(&Engine<Hasty>)) {
        model(move || {
            let another = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let job = Arc::new(Job {
                engine: Engine::<Hasty>::new(1, BarrierMode::Membarrier, Sequence::new(FIRST)),
                wanted: AtomicBool::new(false),
                done: AtomicBool::new(false),
                another: std::sync::Arc::clone(&another),
            });
            job.engine.set_service(move |_| {
                another.store(true, Ordering::Relaxed);
                Err(io::ErrorKind::WouldBlock.into())
            });
            *lock(&job.engine.service.state) = State::Running {
                server: Server::Thread(a_thread()),
                ended: Vec::new(),
            };
            job.engine.service.signs.set_runs();
            let theirs = Arc::clone(&job);
            let service = loom::thread::spawn(move || theirs.engine.serve(&*theirs));
            job.wanted.store(true, Ordering::Relaxed);
            look(&job.engine);
            let finishes = job.engine.stop_service(super::super::End::LeftToService);
            let _ = service.join().unwrap();
            assert!(
                finishes || job.done.load(Ordering::Relaxed) || job.another.load(Ordering::Relaxed),
                "work is left to the caller"
            );
        });
    }

    #[test]
    fn loom_work_at_the_domains_end_is_left_to_a_service_thread() {
        work_at_the_domains_end(Engine::kick);
    }

    #[test]
    #[should_panic(expected = "work is left to the caller")]
    fn loom_a_thread_that_runs_is_no_thread_that_looks() {
        work_at_the_domains_end(Engine::ensure_service);
    }

    /// A stop while it ends: it ends in one way or the other, and the stopping thread knows which.
    #[test]
    fn loom_stop_while_it_ends() {
        model(|| {
            let job = Arc::new(Job {
                engine: Engine::<Hasty>::new(1, BarrierMode::Membarrier, Sequence::new(FIRST)),
                wanted: AtomicBool::new(false),
                done: AtomicBool::new(false),
                another: std::sync::Arc::default(),
            });
            *lock(&job.engine.service.state) = State::Running {
                server: Server::Thread(a_thread()),
                ended: Vec::new(),
            };
            job.engine.service.signs.set_runs();
            let theirs = Arc::clone(&job);
            let service = loom::thread::spawn(move || theirs.engine.serve(&*theirs));
            let finishes = job.engine.stop_service(super::super::End::LeftToService);
            let served = service.join().unwrap();
            assert_eq!(finishes, served == Served::Stopped);
        });
    }

    /// Work comes while another thread tries again to start a thread that was refused: whichever is
    /// first, one of them sees the work, and the engine is listed for the next attempt.
    #[test]
    fn loom_refused_work_stays_listed() {
        model(|| {
            let engine = Arc::new(Engine::<Sound>::new(
                1,
                BarrierMode::Membarrier,
                Sequence::new(FIRST),
            ));
            engine.set_service(|_| Err(io::ErrorKind::WouldBlock.into()));
            engine.set_refused(refused::Place::new(
                std::sync::Weak::<super::super::Gone>::new(),
            ));
            engine.service.refusal.store(1, Ordering::Relaxed);
            let theirs = Arc::clone(&engine);
            let retries = loom::thread::spawn(move || theirs.start_service_again());
            engine.kick();
            retries.join().unwrap();
            assert!(
                engine.service.refusal.load(Ordering::Relaxed) != 0,
                "work is left lying"
            );
        });
    }
}
