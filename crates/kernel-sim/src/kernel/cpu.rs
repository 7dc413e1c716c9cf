//! A CPU: busy or idle, its tick running or stopped, and what it knows and owes of the grace period
//! (`rcu_data`).

use super::queue::Time;
use super::segments::Segments;
use super::seq::Seq;
use super::{Event, Kernel};

/// One CPU.
#[derive(Debug)]
pub struct Cpu {
    /// Tasks that run on it, all at once: they do not take turns here.
    tasks: u32,
    /// Counts entries into idle and exits from it; even means idle, an extended quiescent state
    /// (`rcu_dynticks`, `ct_rcu_watching`).
    watching: u64,
    /// What `watching` was when the grace-period thread looked first.
    snapshot: u64,
    tick_runs: bool,
    /// Ticks come in stretches; this numbers them.
    stretch: u64,
    /// The idle governor has left the tick running, until it comes.
    tick_kept: bool,
    /// Its tick is stopped, and its clock set for the next timer of all, because no other CPU was
    /// awake to handle it.
    pub wakes_for_timer: bool,
    /// The sequence number that it saw last (`rdp->gp_seq`).
    seq: Seq,
    /// The grace period waits for it, as far as it knows (`core_needs_qs`).
    owes: bool,
    /// And it has not passed through a quiescent state since it learnt of that (`cpu_no_qs`).
    not_quiescent: bool,
    /// Its callbacks.
    pub callbacks: Segments,
}

impl Default for Cpu {
    fn default() -> Self {
        Self {
            tasks: 0,
            watching: 0,
            snapshot: 0,
            tick_runs: false,
            stretch: 0,
            tick_kept: false,
            wakes_for_timer: false,
            seq: Seq::FIRST,
            owes: false,
            not_quiescent: false,
            callbacks: Segments::default(),
        }
    }
}

impl Cpu {
    /// Returns whether anything runs on it.
    pub fn is_busy(&self) -> bool {
        self.tasks > 0
    }

    /// Returns whether it has its tick.
    pub fn ticks(&self) -> bool {
        self.tick_runs
    }

    /// The first look at it: is it idle now? If not, a later look will tell whether it has been.
    pub fn look_first(&mut self) -> bool {
        self.snapshot = self.watching;
        !self.is_busy()
    }

    /// A later look: is it idle, or has it been since the first?
    pub fn look_again(&self) -> bool {
        !self.is_busy() || self.watching != self.snapshot
    }
}

impl Kernel {
    /// A task starts to run on `cpu`.
    pub(super) fn enter(&mut self, cpu: usize) {
        let state = &mut self.cpus[cpu];
        state.tasks += 1;
        if state.tasks == 1 {
            state.watching += 1;
            state.tick_kept = false;
            self.start_tick(cpu);
        }
    }

    /// A task leaves `cpu`: a context switch, which is a quiescent state. It is reported at the
    /// next tick, if there is one.
    pub(super) fn leave(&mut self, cpu: usize) {
        let state = &mut self.cpus[cpu];
        state.tasks -= 1;
        state.not_quiescent = false;
        if state.tasks == 0 {
            state.watching += 1;
            state.tick_kept = self.governor.chance(self.setup.constants.idle_tick_kept);
            self.stop_tick_if_idle(cpu);
        }
    }

    fn start_tick(&mut self, cpu: usize) {
        let state = &mut self.cpus[cpu];
        if state.tick_runs {
            return;
        }
        state.tick_runs = true;
        state.wakes_for_timer = false;
        state.stretch += 1;
        let stretch = state.stretch;
        self.ticking += 1;
        let next = self.time_of(self.jiffies() + 1);
        self.queue.at(next, Event::Tick { cpu, stretch });
    }

    /// An idle CPU stops its tick, unless it has pending callbacks (`rcu_needs_cpu`) or the
    /// governor expects to be back before it.
    fn stop_tick_if_idle(&mut self, cpu: usize) {
        let state = &mut self.cpus[cpu];
        let needs_cpu = !self.setup.constants.rcu_nocbs && !state.callbacks.is_empty();
        if state.is_busy() || !state.tick_runs || needs_cpu || state.tick_kept {
            return;
        }
        state.tick_runs = false;
        self.ticking -= 1;
        if self.ticking == 0 {
            state.wakes_for_timer = true;
            self.last_awake = cpu;
        }
    }

    /// The tick's interrupt, and the soft interrupt behind it.
    pub(super) fn on_tick(&mut self, cpu: usize, stretch: u64) {
        if !self.cpus[cpu].tick_runs || self.cpus[cpu].stretch != stretch {
            return;
        }
        self.sched_clock_irq(cpu);
        self.cpus[cpu].tick_kept = false;
        self.stop_tick_if_idle(cpu);
        if self.cpus[cpu].tick_runs {
            let next: Time = self.queue.now() + self.tick;
            self.queue.at(next, Event::Tick { cpu, stretch });
        }
    }

    /// RCU's part in a tick (`rcu_sched_clock_irq`, `rcu_pending`): no task of ours is in a
    /// read-side section when it comes.
    pub(super) fn sched_clock_irq(&mut self, cpu: usize) {
        let in_progress = self.gp.seq.in_progress();
        let state = &mut self.cpus[cpu];
        state.not_quiescent = false;
        let own_callbacks = !self.setup.constants.rcu_nocbs;
        let pending = (state.owes && in_progress)
            || (own_callbacks
                && (state.callbacks.has_ready() || (!in_progress && state.callbacks.has_untold())))
            || state.seq != self.tree.seq;
        if pending {
            self.core(cpu);
        }
    }

    /// RCU's soft interrupt (`rcu_core`).
    fn core(&mut self, cpu: usize) {
        if self.note_gp_changes(cpu) {
            self.wake_gp(cpu);
        }
        if self.cpus[cpu].owes && !self.cpus[cpu].not_quiescent {
            self.report_own(cpu);
        }
        if self.setup.constants.rcu_nocbs {
            return;
        }
        if !self.gp.seq.in_progress()
            && self.cpus[cpu].callbacks.has_untold()
            && self.accelerate(cpu)
        {
            self.wake_gp(cpu);
        }
        self.invoke_ready(cpu);
    }

    /// `cpu` looks at its leaf of the tree: have grace periods ended, or begun? True if the
    /// grace-period thread is to be woken.
    pub(super) fn note_gp_changes(&mut self, cpu: usize) -> bool {
        let seen = self.tree.seq;
        let waits_for_us = self.tree.waits_for(cpu);
        let state = &mut self.cpus[cpu];
        let old = state.seq;
        if old == seen {
            return false;
        }
        state.seq = seen;
        let ended = seen.completed_since(old);
        if seen.new_since(old) {
            state.owes = waits_for_us;
            state.not_quiescent = waits_for_us;
        } else if ended {
            state.owes = false;
        } else {
            state.owes &= waits_for_us;
        }
        if self.setup.constants.rcu_nocbs {
            return false;
        }
        if ended {
            self.advance(cpu)
        } else {
            self.accelerate(cpu)
        }
    }

    /// `cpu` reports its own quiescent state (`rcu_report_qs_rdp`).
    pub(super) fn report_own(&mut self, cpu: usize) {
        let state = &mut self.cpus[cpu];
        state.owes = false;
        // One of an earlier grace period is worth nothing.
        if state.seq != self.tree.seq {
            return;
        }
        if self.tree.report(cpu) {
            self.last_report(cpu);
        }
    }

    /// A quiescent state for `cpu` now, whatever it runs (`rcu_qs`).
    pub(super) fn pass_quiescent_state(&mut self, cpu: usize) {
        self.cpus[cpu].not_quiescent = false;
    }
}
