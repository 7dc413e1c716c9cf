//! Sharing heavy barriers: of many who wait at once, one drives and the others ride.
//!
//! A membarrier takes as long as it takes to interrupt every running thread of the process, and two at a time come one after the other
//! (the kernel has a lock for that). So a waiter that finds another one's under way, too early for its own grace period, gains
//! nothing by issuing its own: it sleeps, which also makes it one less to interrupt, and one barrier more serves all who have come
//! meanwhile. Nobody is kept waiting to be shared with: the first to find nobody driving drives at once.
//!
//! ```text
//!   turn = 2k        nobody drives; barrier k is next
//!   turn = 2k + 1    somebody drives barrier k
//!
//!   driver   turn: 2k -> 2k + 1 [F1] CAS; W2 to W4; turn = 2k + 2 [F2]; W5; wake all who ride on k, and one of those who ride on k + 1
//!   rider    t = turn; if even: drive; announce (E1, E2) for k + 1, or k if that began after the rider had come;
//!            if turn != t [F3]: again; sleep
//! ```
//!
//! The turn is a hint: what a rider believes is `fenced` and `completed` alone; the turn says whether and where it may sleep.
//! F2 and E5 against E1, E2 and F3 are the event's pair (`platform/event.rs`): a rider sees that the turn is over, or is seen
//! asleep. The one that is woken for the next turn drives it, or, if it need not any more and nobody does, wakes another; so no
//! sleeper is left without a driver. Proved by `loom_riders_are_not_left_asleep`. The bound is for a driver that has lost its
//! processor: past it a rider helps itself, without a turn, as those do who never wait (a poll, a deferred free).

use super::{
    engine::{Engine, Progress},
    policy::Policy,
    seq::Cookie,
};
use crate::platform::{
    clock::{self, Nanos},
    event::Event,
    sync::{AtomicU64, Ordering},
    thread::Token,
};

/// How long others' barriers are waited for. They take some tens of microseconds; past this, whoever drives has lost its
/// processor, and everybody helps itself.
const LONGEST_RIDE: Nanos = 5_000_000;

#[derive(Debug)]
pub(super) struct Ride {
    turn: AtomicU64,
    /// Those who ride on an even barrier, and on an odd one.
    riders: [Event; 2],
}

impl Ride {
    pub(super) fn new() -> Self {
        Self { turn: AtomicU64::new(0), riders: [Event::new(), Event::new()] }
    }

    /// How many turns there have been.
    pub(super) fn turns(&self) -> u64 {
        self.turn.load(Ordering::Relaxed) / 2
    }

    /// In the child of a fork: nobody drives or rides. Nor does the calling thread, because who does runs no user code.
    #[cfg(not(stillpoint_loom))]
    pub(super) fn in_child(&self) {
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn + turn % 2, Ordering::Relaxed);
        self.riders.iter().for_each(Event::in_child);
    }

    /// Those who ride on the barrier of `turn`.
    fn on(&self, turn: u64) -> &Event {
        &self.riders[(turn / 2 % 2) as usize]
    }
}

fn is_driven(turn: u64) -> bool {
    turn % 2 == 1
}

impl<P: Policy> Engine<P> {
    /// One attempt, in turn with others who wait.
    pub(super) fn attempt_in_turn(&self, cookie: Cookie, me: Token) -> Progress {
        let turn = self.shared.ride.turn.load(Ordering::Acquire);
        if self.is_fenced(cookie) || !self.barriers_are_dear() {
            self.advance(cookie, me)
        } else if !is_driven(turn) && self.take_turn(turn) {
            self.drive(cookie, me, turn + 1)
        } else {
            self.ride(cookie, me)
        }
    }

    /// [F1] Whether the caller now drives the barrier of `turn`, which nobody drove a moment ago.
    fn take_turn(&self, turn: u64) -> bool {
        self.shared.ride.turn.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn drive(&self, cookie: Cookie, me: Token, turn: u64) -> Progress {
        let ride = &self.shared.ride;
        let attempt = self.attempt(cookie, me, || ride.turn.store(turn + 1, Ordering::Release)); // [F2]
        self.counts.note_drive(attempt.fenced, attempt.ended);
        let (mine, next) = (ride.on(turn), ride.on(turn + 1));
        // An attempt that ended a grace period has done so by a read-modify-write, W5, after F2.
        if attempt.ended {
            mine.signal_after_rmw()
        } else {
            mine.signal()
        }
        // Whoever has taken the next turn meanwhile will wake all of them.
        if next.has_sleepers() && !is_driven(ride.turn.load(Ordering::Acquire)) {
            next.signal_one();
        }
        attempt.progress
    }

    fn ride(&self, cookie: Cookie, me: Token) -> Progress {
        let ride = &self.shared.ride;
        let came_in = ride.turn.load(Ordering::Acquire);
        let until = clock::now() + LONGEST_RIDE;
        loop {
            let turn = ride.turn.load(Ordering::Acquire);
            if self.is_fenced(cookie) || clock::now() >= until {
                break;
            }
            if !is_driven(turn) {
                if self.take_turn(turn) {
                    return self.drive(cookie, me, turn + 1);
                }
                continue;
            }
            // A turn that began after we came covers us; the one that we came in does not.
            let serves = if turn == came_in { turn + 1 } else { turn };
            let waiter = ride.on(serves).prepare();
            if ride.turn.load(Ordering::Acquire) == turn { waiter.sleep(Some(until)) } else { waiter.leave() } // [F3]
        }
        if !is_driven(ride.turn.load(Ordering::Acquire)) {
            ride.riders.iter().for_each(Event::signal_one);
        }
        self.advance(cookie, me)
    }
}
