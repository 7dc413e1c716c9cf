//! Waiting by a callback on the caller's own CPU, the default: it is noticed at the next tick,
//! waits for its grace period, and is invoked by the soft interrupt of the first tick after that.

use super::segments::Callback;
use super::{Kernel, Thread};

impl Kernel {
    /// Queues a callback on `cpu`, on which the caller runs (`call_rcu`).
    pub(super) fn call_rcu(&mut self, cpu: usize, callback: Callback) {
        let had_pending = self.cpus[cpu].callbacks.has_pending();
        self.cpus[cpu].callbacks.enqueue(callback);
        if self.setup.constants.rcu_nocbs && !had_pending {
            self.call_watcher(cpu);
        }
    }

    /// Marks callbacks whose grace period has ended as ready, and assigns the others the one that
    /// they wait for (`rcu_advance_cbs`). Returns true if the grace-period thread must be woken.
    pub(super) fn advance(&mut self, cpu: usize) -> bool {
        let seq = self.tree.seq;
        let callbacks = &mut self.cpus[cpu].callbacks;
        if !callbacks.has_pending() {
            return false;
        }
        callbacks.advance(seq);
        self.accelerate(cpu)
    }

    /// Assigns a grace period to callbacks that have none, and requests it (`rcu_accelerate_cbs`).
    /// Returns true if the grace-period thread must be woken.
    pub(super) fn accelerate(&mut self, cpu: usize) -> bool {
        let cookie = self.gp.seq.snap();
        let callbacks = &mut self.cpus[cpu].callbacks;
        callbacks.has_pending() && callbacks.accelerate(cookie) && self.ask_for(cookie)
    }

    /// Invokes the ready callbacks (`rcu_do_batch`).
    pub(super) fn invoke_ready(&mut self, cpu: usize) {
        for callback in self.cpus[cpu].callbacks.take_ready() {
            if let Callback::Wake(caller) = callback {
                self.wake(Thread::Caller(caller));
            }
        }
    }
}
