//! Waiting without a callback (`rcu_normal_wake_from_gp`): callers stand in a line, which the
//! grace-period thread takes with it when it begins, and wakes when it ends.

use std::mem;

use super::queue::Time;
use super::{Event, Kernel, Thread};

/// Direct waiters.
#[derive(Debug, Default)]
pub struct Direct {
    /// Those whom no grace period has taken with it yet (`srs_next`).
    line: Vec<usize>,
    /// Those of the grace period under way.
    taken: Vec<usize>,
    /// Those whose grace period has ended, and whom the worker is to wake.
    left_over: Vec<usize>,
    /// Heads in use: one for the grace period under way, one for each of those that the worker has
    /// still to do.
    heads: u64,
    /// Of these, those that the worker has to do.
    left_heads: u64,
}

impl Kernel {
    /// The caller stands in line, and asks for a grace period at once.
    pub(super) fn wait_directly(&mut self, caller: usize) {
        self.direct.line.push(caller);
        let cookie = self.gp.seq.snap();
        if self.ask_for(cookie) {
            self.wake_gp(self.callers[caller].cpu);
        }
    }

    /// A grace period begins, and takes the line with it. If it has no head to do so, another one
    /// is asked for.
    pub(super) fn take_line(&mut self) {
        if self.direct.line.is_empty() {
            return;
        }
        if self.direct.heads == self.setup.constants.sr_normal_gp_wait_head_max {
            let after_this = self.gp.seq.snap().ended();
            self.tree.needed = self.tree.needed.max(after_this);
            return;
        }
        self.direct.heads += 1;
        self.direct.taken = mem::take(&mut self.direct.line);
    }

    /// It has ended: the thread wakes the first few, and leaves the others to the worker.
    pub(super) fn wake_line(&mut self) {
        let mut taken = mem::take(&mut self.direct.taken);
        if taken.is_empty() {
            return;
        }
        let few = (self.setup.constants.sr_max_users_wake_from_gp as usize).min(taken.len());
        let rest = taken.split_off(few);
        for caller in taken {
            self.wake(Thread::Caller(caller));
        }
        if rest.is_empty() {
            self.direct.heads -= 1;
            return;
        }
        if self.direct.left_over.is_empty() {
            self.wake(Thread::Worker);
        }
        self.direct.left_over.extend(rest);
        self.direct.left_heads += 1;
    }

    /// The worker wakes those whom the thread has left to it, one after the other. It runs where
    /// the grace-period thread does.
    pub(super) fn run_worker(&mut self) {
        self.direct.heads -= mem::take(&mut self.direct.left_heads);
        let callers = mem::take(&mut self.direct.left_over);
        let each = self.setup.constants.worker_wake_us;
        self.occupy(self.gp.cpu, each * callers.len() as f64);
        for (turn, caller) in (1..).zip(callers) {
            let at = self.queue.now() + (each * f64::from(turn) * 1e3) as Time;
            self.queue.at(at, Event::Run(Thread::Caller(caller)));
        }
    }
}
