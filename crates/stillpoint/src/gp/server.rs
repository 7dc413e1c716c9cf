//! The state of an engine's service thread. Also how the thread is kicked, how it ends when it has had no
//! work for a while, and why no work is forgotten.
//!
//! One word says whether there is a thread ([`RUNS`]) and whether it has been kicked for work that
//! it has not looked for yet ([`KICKED`]).
//!
//! ```text
//!   kicker   make work visible; word |= KICKED; signal;
//!            if RUNS was not in it: lock `state`, start a thread
//!   thread   word &= !KICKED; pass; announce; if KICKED: again; sleep
//!   its end  passes find nothing to do and nothing to wait for, for a second;
//!            lock `state`; word: RUNS -> 0, unless KICKED; state = Resting; unlock; end
//! ```
//!
//! Work that is made visible before a kick is seen by the pass after the swap that takes the kick. A kick
//! after that is seen by the last look, or wakes the sleeper (`stillpoint-platform/src/event.rs`).
//!
//! All changes of one word come in one order, and each read-modify-write sees the one before it. So
//! of a kick and the end one comes first:
//!
//! * **The kick**: the end finds `KICKED` and does not happen. The thread goes on with a pass that
//!   sees the work, because it takes the kick by acquire.
//! * **The end**: the kicker finds no `RUNS`. It takes the lock, under which the end came, finds
//!   the state `Resting` and starts another thread, whose first pass sees the work.
//!
//! Nothing else needs a look: what a pass leaves to be waited for (a grace period, a moment,
//! threads that are not parked) keeps the thread from being idle, and all other work is followed by
//! a kick of the thread that brings it.
//!
//! # The thread that has ended
//!
//! If the domain can end, its threads are not detached: the end of the domain waits until they are
//! gone, and have run the destructors of thread-local variables that user code has left. A thread
//! is joined when the next one is started, if it is gone by then. Otherwise it stays in the list:
//! such a destructor may block, or wait for work of the next thread, so only the thread that ends
//! the domain waits for it. The stack of the last thread stays mapped until then, with little
//! memory behind it.
//!
//! A global domain never ends, so its threads are detached when they end. (ThreadSanitizer reports
//! threads that have ended and were never joined.)
//!
//! A thread that the program has asked for
//! ([`Engine::keep_service`](super::engine::Engine::keep_service)) does not end idle. Nor does the thread
//! that forked in a callback and goes on in the child: it may be the only one that the child has.

use super::{policy::Policy, seq::Cookie};
use crate::platform::{
    clock::Nanos,
    owned_mutex::OwnedMutex,
    refused,
    sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering},
    thread,
};
use std::{cell::Cell, fmt, io, sync::OnceLock};

/// The first sleep lasts this long at most; each further one twice as long as the last, up to
/// [`LONGEST_SLEEP`]. The bounds are a safety net, and pace stall reports: the proof that a waiter
/// is woken does not need them.
pub(super) const FIRST_SLEEP: Nanos = 20_000_000;
pub(super) const LONGEST_SLEEP: Nanos = 256_000_000;

/// How an engine's service ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The caller waits for the thread's end.
    Awaited,
    /// The caller does not wait: the thread ends by itself when it has done what is left.
    LeftToService,
}

#[derive(Debug)]
pub(super) enum State {
    NotStarted,
    Running {
        server: Server,
        /// The threads before it, as in `Resting`.
        ended: Vec<thread::Handle>,
    },
    /// It ended because it was idle. These have ended, and may still be exiting.
    Resting(Vec<thread::Handle>),
    /// It has failed too often, and has ended.
    Down,
    Stopped,
}

/// The threads that make the rounds of an engine.
#[derive(Debug)]
pub(crate) enum Server {
    /// A thread.
    Thread(thread::Handle),
    /// The threads that many domains share.
    Pool,
    /// In the child of a fork, the thread that forked: it does not end, and cannot be joined.
    Forked,
}

/// How [`Engine::serve`](super::engine::Engine::serve) has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Served {
    /// It was asked to stop. The caller finishes the remaining work.
    Stopped,
    /// It has had no work for a while.
    Idle,
    /// It has failed too often. The domain goes on without it.
    Down,
}

/// The result of a round.
#[derive(Debug)]
pub(crate) enum Round {
    /// There is more to do.
    Again,
    /// There is nothing to do before a moment, a kick or the end of this grace period.
    Rest {
        cookie: Option<Cookie>,
        until: Option<Nanos>,
    },
    /// The round was the last one.
    Ended(Served),
}

/// State that is kept from one round of a server to the next.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The longest sleep while readers hold a grace period up.
    pub(super) bound: Nanos,
    pub(super) idle_since: Option<Nanos>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            bound: FIRST_SLEEP,
            idle_since: None,
        }
    }
}

type Spawn = Box<dyn Fn(String) -> io::Result<Server> + Send + Sync>;

pub(super) struct Service {
    /// Function that starts a thread of the given name that serves this engine. Set once, by the module
    /// that owns the engine.
    pub(super) spawn: OnceLock<Spawn>,
    /// The place in the queue of refused services. Set with `spawn`.
    pub(super) refused: OnceLock<refused::Place>,
    /// The error number of the last refusal, while the engine is listed; 0 if it is not.
    pub(super) refusal: AtomicU32,
    /// Whether the thread goes on when it is idle.
    pub(super) stays: AtomicBool,
    /// Whether the pool's threads make the rounds. Set before the engine is used.
    pub(super) shares: AtomicBool,
    /// Whether the pool has finished the domain, after it was stopped.
    pub(super) has_left: AtomicBool,
    pub(super) state: Mutex<State>,
    pub(super) signs: Signs,
    pub(super) stop: AtomicBool,
    /// Held during a pass.
    pub(super) turn: OwnedMutex,
    pub(super) failures: AtomicU64,
    pub(super) lately: Failures,
}

stillpoint_platform::thread_constant! {
    /// The domain whose service thread this is; 0 for none, [`ENDED`] for one that has ended.
    pub(super) static SERVES: Cell<u64> = Cell::new(0);
}

/// No domain's number.
pub(super) const ENDED: u64 = u64::MAX;

/// Returns true on the service thread of domain `id`.
pub(super) fn serves(id: u64) -> bool {
    SERVES.with(Cell::get) == id
}

/// Returns whether the calling thread is a service thread, or was one and runs the destructors of
/// its thread-local variables.
pub(super) fn is_service_thread() -> bool {
    SERVES.with(Cell::get) != 0
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("signs", &self.signs)
            .finish_non_exhaustive()
    }
}

impl Service {
    pub(super) fn new() -> Self {
        Self {
            spawn: OnceLock::new(),
            refused: OnceLock::new(),
            refusal: AtomicU32::new(0),
            stays: AtomicBool::new(false),
            shares: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            state: Mutex::new(State::NotStarted),
            signs: Signs::new(),
            stop: AtomicBool::new(false),
            turn: OwnedMutex::new(),
            failures: AtomicU64::new(0),
            lately: Failures::new(),
        }
    }
}

/// There is a thread, which will look at the word again before it ends.
const RUNS: u32 = 1;

/// There is work that the thread has not looked for yet.
const KICKED: u32 = 2;

/// [`RUNS`] and [`KICKED`], in one word.
#[derive(Debug)]
pub(super) struct Signs(AtomicU32);

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

    /// Sets the kick. Release, pairs with `take_kick`: the work is seen by the pass that follows.
    /// Acquire, pairs with `set_runs` and `clear_runs`: what comes of it is decided under the lock
    /// of `state`.
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

    /// Ends the thread unless it was kicked. Returns whether it has ended.
    pub(super) fn end<P: Policy>(&self) -> bool {
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

    /// Records, in the child of a fork, whether the calling thread is the service thread. If it is not,
    /// there is none.
    pub(super) fn reset_in_child(&self, serves: bool) {
        // The thread goes through its loop once more, because a signal of a vanished thread may be
        // missing.
        let word = if serves { RUNS | KICKED } else { 0 };
        self.0.store(word, Ordering::Relaxed);
    }
}

/// The outcome of an attempt to end an idle thread.
#[derive(Debug)]
pub(super) enum Idle {
    /// The thread ends.
    Ends,
    /// There is work.
    Kicked,
    /// It may not end (see the module's head), or has been asked to stop.
    Stays,
}

/// Number of failures within [`LATELY`] after which the thread stays down.
pub(super) const MOST_FAILURES: usize = 3;

/// A minute.
const LATELY: Nanos = 60_000_000_000;

/// The times of a domain's latest service-thread failures, the oldest first; 0 for none. Only the
/// thread that makes the rounds writes them.
#[derive(Debug)]
pub(super) struct Failures([AtomicU64; MOST_FAILURES - 1]);

impl Failures {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Records a failure at `now`. Returns whether it is one too many.
    pub(super) fn note(&self, now: Nanos) -> bool {
        let mut newer = now;
        for at in self.0.iter().rev() {
            let at_before = at.load(Ordering::Relaxed);
            at.store(newer, Ordering::Relaxed);
            newer = at_before;
        }
        let oldest = newer;
        oldest > 0 && now.saturating_sub(oldest) < LATELY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_within_a_minute_are_too_many() {
        let second = LATELY / 60;
        let failures = Failures::new();
        assert_eq!(
            [1, 2, 3].map(|now| failures.note(now)),
            [false, false, true]
        );
        let failures = Failures::new();
        // The third is a minute after the first, and more; the fourth is not, of the second.
        assert_eq!(
            [1, 40, 61, 90, 150].map(|now| failures.note(now * second)),
            [false, false, false, true, false]
        );
    }
}
