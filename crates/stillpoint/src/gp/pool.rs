//! The threads that many domains share. The domains are those of the drop-in's `Collector`s: a program may
//! have a thousand, each with a little work.
//!
//! A domain that shares has no thread. While it has work it is a *member*: [`enroll`] makes it one, and it
//! leaves when its own thread would have ended. One thread, the *server*, makes the members' rounds, one
//! after the other; between rounds it sleeps until one of them has news. While there are two members a second
//! thread *watches*: if the server has been in one round for [`LONG_ROUND`], in user code that blocks, and
//! another member has something to do, the watcher becomes the server, and starts a watcher. So members go on
//! even if their user code waits for that of others, and there are at most two threads more than blocked
//! rounds.
//!
//! If the system refuses one of these threads while others exist, the pool joins the queue of refused
//! services (`stillpoint-platform/src/refused.rs`), as an engine without a thread does. If there is no
//! thread at all, the member joins that queue, and not the pool.
//!
//! ```text
//!   kicker   kicked = true; signal; lock; if no thread is idle and there is a member: start one
//!   thread   announce; lock; if a member is kicked or due: take it out, unlock, round, put it back
//!                            else: unlock, sleep until the first is due
//! ```
//!
//! A thread sees a kick when it looks after its announcement, or the kick's signal wakes it (`event.rs`). A
//! member's round takes the kick, as a round of a service thread does. All other state is under the lock; no
//! user code runs under it.

use super::{
    seq::Cookie,
    server::{ENDED, LONGEST_SLEEP, Pace, Round, SERVES, Served},
};
use crate::platform::{
    clock::{self, Nanos},
    event::EventCount,
    fork::{AtForkHandle, ForkReset},
    race::RaceCell,
    refused,
    sync::{Mutex, lock},
    thread::{self, Token},
};
use std::{
    cell::Cell,
    collections::VecDeque,
    io,
    // std's also in the model, which shares no threads.
    sync::{Arc, Weak},
};

/// Time in one round, in nanoseconds, after which the server has a successor.
const LONG_ROUND: Nanos = 50_000_000;

/// A domain that shares threads.
pub(crate) trait Member: Send + Sync {
    /// Makes a round.
    fn round(&self, pace: &mut Pace) -> Round;

    /// Asks the reader that holds up `cookie` to signal. Returns true if the next round is due now.
    fn watch(&self, cookie: Option<Cookie>) -> bool;

    /// Returns true if there is something to do after a round that waits for `cookie`.
    fn has_news(&self, cookie: Option<Cookie>) -> bool;

    /// Called after the last round. Runs user code.
    fn leave(&self, served: Served);
}

/// A member between two rounds.
struct Place {
    member: Arc<dyn Member>,
    pace: Pace,
    cookie: Option<Cookie>,
    /// When the next round is due at the latest.
    at: Nanos,
}

struct State {
    /// Members in no round, in the order in which they are looked at.
    members: VecDeque<Place>,
    threads: usize,
    /// Threads in no round.
    idle: usize,
    /// The thread that began the latest round, while it is in that round, and when it began it.
    server: Option<(Token, Nanos)>,
    /// True from a refused start until the next attempt, which is made by a thread that finds the pool in
    /// the queue of refused services.
    is_refused: bool,
    name: String,
}

impl State {
    fn new(threads: usize) -> Self {
        Self {
            members: VecDeque::new(),
            threads,
            idle: 0,
            server: None,
            is_refused: false,
            name: String::new(),
        }
    }

    /// Returns the number of idle threads that are needed: a server, unless there is one, and a watcher,
    /// while there are members for them.
    fn wanted(&self) -> usize {
        let most = if self.server.is_some() { 1 } else { 2 };
        self.members.len().min(most)
    }

    /// Returns what the idle thread `me` does next.
    fn next(&mut self, me: Token, now: Nanos) -> Next {
        if self.idle > self.wanted() {
            self.idle -= 1;
            self.threads -= 1;
            return Next::End;
        }
        let taken_over = self
            .server
            .map_or(0, |(_, since)| since.saturating_add(LONG_ROUND));
        let mut earliest = Nanos::MAX;
        for _ in 0..self.members.len() {
            let Some(place) = self.members.pop_front() else {
                break;
            };
            let is_due = place.at <= now || place.member.has_news(place.cookie);
            if is_due && taken_over <= now {
                self.server = Some((me, now));
                self.idle -= 1;
                return Next::Serve(place);
            }
            earliest = earliest.min(if is_due { now } else { place.at });
            self.members.push_back(place);
        }
        let until = earliest.max(taken_over);
        Next::Sleep(if self.server.is_some() {
            // The server may put back a member that is due earlier, and go on with another.
            until.min(now + LONGEST_SLEEP)
        } else {
            until
        })
    }
}

enum Next {
    Serve(Place),
    Sleep(Nanos),
    End,
}

struct Pool {
    place: AtForkHandle,
    refused: refused::Place,
    state: Mutex<State>,
    event: EventCount,
}

impl refused::Refused for Pool {
    fn start_again(&self) -> bool {
        // The same pool: no other is ever listed.
        let pool = pool();
        let mut state = lock(&pool.state);
        state.is_refused = false;
        pool.ensure_idle(&mut state);
        !state.is_refused
    }
}

/// The pool of the process.
static POOL: RaceCell<Arc<Pool>> = RaceCell::new();

stillpoint_platform::thread_constant! {
    /// Whether the thread is one of the pool's.
    static IS_SHARED: Cell<bool> = Cell::new(false);
}

impl ForkReset for Pool {
    unsafe fn reset_in_child(&self) {
        self.event.reset_in_child();
        // A pool thread that forks is in a round: it has its member, and goes on.
        let threads = usize::from(IS_SHARED.with(Cell::get));
        // SAFETY: the caller's promise; no user code runs under this lock.
        unsafe { self.state.reinit(State::new(threads)) };
    }
}

/// Returns the pool. The first call allocates it.
fn pool() -> &'static Pool {
    POOL.get().unwrap_or_else(|| {
        let pool = Arc::new_cyclic(|pool: &Weak<Pool>| {
            let place = AtForkHandle::reserve();
            Pool {
                refused: refused::Place::new(&place, pool.clone()),
                place,
                state: Mutex::new(State::new(0)),
                event: EventCount::new(),
            }
        });
        // Before any thread finds it, so that each child of a fork resets it.
        // SAFETY: once; complete, and it stays where it is, or its place is dropped with it.
        unsafe { pool.place.occupy(&*pool) };
        POOL.put(pool)
    })
}

/// Returns the event on which the threads sleep. Readers that they wait for signal it.
pub(crate) fn event() -> &'static EventCount {
    &pool().event
}

/// Adds a member, whose first round is due at once. A thread that has to be started for it is called
/// `name`.
///
/// # Errors
///
/// If the pool has no thread, and the system refuses one.
pub(crate) fn enroll(member: Arc<dyn Member>, name: String) -> io::Result<()> {
    let pool = pool();
    let mut state = lock(&pool.state);
    // Also for those in a round, which come back.
    let others = state.threads - state.idle;
    if state.members.try_reserve(1 + others).is_err() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    state.name = name;
    state.members.push_back(Place {
        member,
        pace: Pace::new(),
        cookie: None,
        at: 0,
    });
    if state.threads > 0 {
        pool.ensure_idle(&mut state);
    } else if let Err(error) = pool.start(&mut state) {
        state.members.pop_back();
        return Err(error);
    }
    drop(state);
    pool.event.signal();
    Ok(())
}

/// Wakes the threads, so that one of them serves the member that has been kicked.
pub(super) fn wake() {
    let pool = pool();
    pool.event.signal();
    pool.ensure_idle(&mut lock(&pool.state));
    refused::retry();
}

impl Pool {
    /// Starts a thread if there are members and no thread is idle. If the system refuses it, lists the
    /// pool for the next attempt, before which this starts none.
    fn ensure_idle(&'static self, state: &mut State) {
        let is_wanted = state.idle == 0 && !state.members.is_empty() && !state.is_refused;
        if is_wanted && self.start(state).is_err() {
            // If it cannot be listed for lack of memory, the next call tries again.
            state.is_refused = self.refused.list();
        }
    }

    /// Starts a thread, which is idle at first.
    fn start(&'static self, state: &mut State) -> io::Result<()> {
        // Detached: no thread waits for its end.
        thread::spawn(&state.name, || self.run())?;
        state.threads += 1;
        state.idle += 1;
        Ok(())
    }

    fn run(&'static self) {
        IS_SHARED.with(|is_shared| is_shared.set(true));
        // Also for the destructors of its thread-local variables, at its end.
        SERVES.with(|serves| serves.set(ENDED));
        let me = thread::token();
        loop {
            let waiter = self.event.prepare();
            let mut state = lock(&self.state);
            match state.next(me, clock::now()) {
                Next::Sleep(until) => {
                    drop(state);
                    waiter.sleep((until < Nanos::MAX).then_some(until));
                }
                Next::End => {
                    drop(state);
                    waiter.leave();
                    // It may have been the thread that slept until the next member is due.
                    self.event.signal();
                    return;
                }
                Next::Serve(place) => {
                    waiter.leave();
                    // So that another thread can take over if this member blocks.
                    self.ensure_idle(&mut state);
                    drop(state);
                    let place = serve(place);
                    let mut state = lock(&self.state);
                    state.members.extend(place);
                    state.idle += 1;
                    if state.server.is_some_and(|(server, _)| server == me) {
                        state.server = None;
                    }
                }
            }
        }
    }
}

/// Makes a member's round. Returns its place, unless it has left.
fn serve(mut place: Place) -> Option<Place> {
    (place.cookie, place.at) = match place.member.round(&mut place.pace) {
        Round::Again => (None, 0),
        Round::Rest { cookie, until } => {
            let is_due = place.member.watch(cookie);
            (
                cookie,
                if is_due {
                    0
                } else {
                    until.unwrap_or(Nanos::MAX)
                },
            )
        }
        Round::Ended(served) => {
            place.member.leave(served);
            return None;
        }
    };
    Some(place)
}
