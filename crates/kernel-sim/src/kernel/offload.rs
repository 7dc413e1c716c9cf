//! Waiting by a callback that is offloaded to threads (`rcu_nocbs`). A watcher has a group of CPUs.
//! It tells their callbacks which grace period to wait for, and sleeps until the earliest of these
//! has ended: what is queued meanwhile is not looked at before, and what it tells at an end it
//! tells after the next grace period has begun. So a wait takes up to four grace periods.

use super::seq::Seq;
use super::{Kernel, Thread};

/// What a watcher does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// Sleeps: a first callback wakes it.
    Asleep,
    /// Woken, or running.
    Awake,
    /// Sleeps until this grace period has ended, whatever is queued.
    WaitsFor(Seq),
}

impl Kernel {
    fn stride(&self) -> usize {
        self.setup.constants.rcu_nocb_gp_stride as usize
    }

    /// The first callback of `cpu` is there that is not ready: those that are have nothing to wait
    /// for.
    pub(super) fn call_watcher(&mut self, cpu: usize) {
        let group = cpu / self.stride();
        if self.watchers[group] == Watcher::Asleep {
            self.wake_watcher(group);
        }
    }

    fn wake_watcher(&mut self, group: usize) {
        self.watchers[group] = Watcher::Awake;
        self.wake(Thread::Watcher(group));
    }

    /// A grace period has ended, as the tree has it (`rcu_nocb_gp_cleanup`).
    pub(super) fn wake_waiting_watchers(&mut self) {
        for group in 0..self.watchers.len() {
            if matches!(self.watchers[group], Watcher::WaitsFor(gp) if self.tree.seq.done(gp)) {
                self.wake_watcher(group);
            }
        }
    }

    /// One round of a watcher (`nocb_gp_wait`). It runs on its group's first CPU.
    pub(super) fn run_watcher(&mut self, group: usize) {
        let first = group * self.stride();
        self.occupy(first, self.setup.constants.offload_thread_us);
        let mut earliest: Option<Seq> = None;
        for cpu in first..(first + self.stride()).min(self.cpus.len()) {
            if self.advance(cpu) {
                self.wake_gp(first);
            }
            let callbacks = &self.cpus[cpu].callbacks;
            earliest = earliest.into_iter().chain(callbacks.next_gp()).min();
            if callbacks.has_ready() {
                self.wake(Thread::Invoker(cpu));
            }
        }
        self.watchers[group] = match earliest {
            None => Watcher::Asleep,
            Some(gp) if self.tree.seq.done(gp) => {
                self.wake(Thread::Watcher(group));
                Watcher::Awake
            }
            Some(gp) => Watcher::WaitsFor(gp),
        };
    }

    /// A CPU's invoking thread runs, there.
    pub(super) fn run_invoker(&mut self, cpu: usize) {
        self.occupy(cpu, self.setup.constants.offload_thread_us);
        self.invoke_ready(cpu);
    }
}
