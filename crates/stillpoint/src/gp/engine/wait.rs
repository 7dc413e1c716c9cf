//! Waiting for a grace period: attempt, spin a little, flag a holdout, sleep until it leaves.
//!
//! `gp/README.md` explains why no wake-up is lost; this file sets the pace of the attempts.

use super::{Engine, Progress};
use crate::{
    gp::{
        IN_MODEL,
        policy::Policy,
        seq::Cookie,
        server::{FIRST_SLEEP, LONGEST_SLEEP, serves},
        wakers::{Awaited, Place},
        work::{Work, WouldDeadlock},
    },
    platform::{
        clock::{self, Nanos},
        fork, refused,
        thread::{self, Token},
        user_code,
    },
};
use std::{hint, task::Waker};

/// How long a waiter spins before it sleeps, in nanoseconds: about the cost of a sleep and a
/// wake-up. 0 in the model, where time stands still.
const SPIN: Nanos = if IN_MODEL { 0 } else { 2_000 };

/// The spin time of expedited waits, in nanoseconds: longer than most sections. These waits do not
/// yield: a reader that shares their processor would keep it for its whole time slice, whereas one
/// that a sleeper waits for gives it up at the end of its section.
const EXPEDITED_SPIN: Nanos = if IN_MODEL { 0 } else { 50_000 };

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
            // The grace period may have ended just before the announcement. The flag covers the
            // time after it.
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

    /// Waits until `done` returns true, or until `deadline`. Another thread makes it true, and then
    /// signals the waiters.
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

    /// Makes one attempt with a heavy barrier and then, for a moment, attempts that cost a scan each.
    /// Returns the result and, if the first attempt was held up, the time at which it was over.
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

    /// Waits until passes make `done` true. If there is no service thread, or the caller is that thread
    /// in a task that it wakes, the caller makes the passes. Fails inside user code of the domain,
    /// which would wait for itself, except in a task that is woken. Also fails as soon as the passes
    /// wait for a section of the caller, which a callback may have left open. If user code in such a
    /// pass forks, this returns in the child, where nothing is left to wait for.
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
            // The service thread may have ended idle. The caller starts it, and does not run user
            // code of others itself.
            self.ensure_service();
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
                // There is no thread, and no grace period to wait for: a pass ran out of memory.
                self.sleep_until(clock::now() + FIRST_SLEEP, &done);
            }
        }
        Ok(())
    }

    /// Wakes the threads in `wait_for_passes`. A pass calls it when it has finished work that was
    /// requested.
    pub(crate) fn signal_waiters(&self) {
        self.shared.waiters.signal();
    }

    /// Returns true if the event is known to have come. One load.
    pub(crate) fn has_come(&self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::GracePeriod(cookie) => self.has_ended(cookie),
            Awaited::Callbacks(position) => self.callbacks_invoked() >= position,
        }
    }

    /// Registers `waker` at `place`, instead of the waker there. It is woken once `awaited` has
    /// come, even if that is already so.
    pub(crate) fn wake_after(&self, awaited: Awaited, waker: &Waker, place: &Place) {
        if self.futures.put(awaited, waker, place) {
            self.kick();
        } else {
            self.ensure_service();
        }
    }

    /// Wakes the tasks whose event has come. Returns the grace period that the others wait for.
    pub(super) fn wake_futures(&self) -> Option<Cookie> {
        let (completed, invoked) = (self.shared.seq.completed().bits(), self.callbacks_invoked());
        self.futures.wake_due(self.domain, completed, invoked)
    }
}
