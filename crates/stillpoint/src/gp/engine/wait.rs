//! Waiting for a grace period: attempt, spin a little, flag a holdout, sleep until it leaves.
//!
//! Why no wake-up is lost is on the protocol page (`gp/README.md`); this file holds the pacing.

use super::{Engine, Progress};
use crate::{
    gp::{IN_MODEL, policy::Policy, seq::Cookie},
    platform::{
        clock::{self, Nanos},
        refused,
        thread::Token,
    },
};
use std::hint;

/// How long a waiter looks again and again before it sleeps: about what a sleep and a wake-up cost.
/// Not in the model, where time stands still.
const SPIN: Nanos = if IN_MODEL { 0 } else { 2_000 };

/// The spin time of expedited waits: longer than most sections. They do not yield: a reader that
/// shares their processor would keep it for its whole time slice, whereas one that a sleeper waits
/// for gives it up at the end of its section.
const EXPEDITED_SPIN: Nanos = if IN_MODEL { 0 } else { 50_000 };

/// The first sleep lasts this long at most; each further one twice as long as the last, up to
/// [`LONGEST_SLEEP`]. The bounds are a safety net and what paces stall reports: the proof that a
/// waiter is woken does not need them.
pub(super) const FIRST_SLEEP: Nanos = 20_000_000;
pub(super) const LONGEST_SLEEP: Nanos = 256_000_000;

/// What a waiter saves: processor time, or latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    Normal,
    Expedited,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Waited {
    Ended,
    TimedOut,
    /// Waiting would never end: a section of the calling thread is what holds the grace period up.
    HeldUpBySelf,
}

impl<P: Policy> Engine<P> {
    /// Waits until the grace period has ended or `deadline` has passed. At least one attempt is
    /// made.
    pub(crate) fn wait_for(
        &self,
        cookie: Cookie,
        me: Token,
        deadline: Option<Nanos>,
        haste: Haste,
    ) -> Waited {
        refused::retry();
        let mut bound = FIRST_SLEEP;
        let mut listed = None;
        loop {
            let (progress, looked) = self.spin_until_complete(cookie, me, haste);
            match progress {
                Progress::Ended => return Waited::Ended,
                Progress::HeldUpBySelf => return Waited::HeldUpBySelf,
                Progress::HeldUp => {}
            }
            if bound > FIRST_SLEEP {
                listed.get_or_insert_with(|| self.stalls.list_waiter());
            }
            let now = clock::now();
            let due = self.note_held_up(cookie, looked);
            if deadline.is_some_and(|at| at <= now) {
                return Waited::TimedOut;
            }
            let waiter = self.shared.waiters.prepare();
            // The first may have come true just before the announcement; the second covers the time
            // after it.
            if self.has_ended(cookie) || self.flag_holdout(cookie).0 {
                waiter.leave();
                continue;
            }
            let until = if P::BOUNDED_SLEEPS {
                now.saturating_add(bound).min(due)
            } else {
                Nanos::MAX
            };
            waiter.sleep(Some(deadline.map_or(until, |at| at.min(until))));
            bound = (2 * bound).min(LONGEST_SLEEP);
        }
    }

    /// Waits until `done`, which another thread makes true before it signals the waiters, or until
    /// `deadline`.
    pub(crate) fn sleep_until(&self, deadline: Nanos, done: impl Fn() -> bool) {
        while !done() && clock::now() < deadline {
            let waiter = self.shared.waiters.prepare();
            if done() {
                waiter.leave()
            } else {
                waiter.sleep(Some(deadline))
            }
        }
    }

    /// One attempt with a heavy barrier, then, for a moment, attempts that cost a scan each. Returns
    /// the result, and when the first attempt had been made if that has not ended it.
    fn spin_until_complete(&self, cookie: Cookie, me: Token, haste: Haste) -> (Progress, Nanos) {
        let mut progress = self.complete_coalesced(cookie, me);
        if progress != Progress::HeldUp {
            return (progress, 0);
        }
        let patience = match haste {
            Haste::Normal => SPIN,
            Haste::Expedited => EXPEDITED_SPIN,
        };
        let looked = clock::now();
        let until = looked + patience;
        while progress == Progress::HeldUp && clock::now() < until {
            hint::spin_loop();
            progress = self.recheck(cookie, me);
        }
        (progress, looked)
    }
}
