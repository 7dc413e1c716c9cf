//! RCU Tasks Trace as of 5.9: a thread that inspects every task, and waits until those that it
//! could not inspect have been.
//!
//! A running task cannot be inspected from outside (the light read side leaves no trace there), so
//! its CPU gets an interrupt. Each CPU runs one task, if only the idle task; all others are asleep
//! and outside of any section, and need no interrupt.

use super::Kernel;
use super::queue::Time;

/// A running task that must be inspected.
#[derive(Debug)]
struct Holdout {
    /// When the interrupt sent to its CPU is done.
    checked_at: Option<Time>,
}

/// The thread.
#[derive(Debug)]
pub struct TasksTrace {
    /// The machine's identifier of the CPU.
    caller: usize,
    /// When its waiter runs again.
    caller_back: Time,
}

impl TasksTrace {
    /// Starts the grace-period thread; it runs, and its caller has just called.
    pub fn start(kernel: &mut Kernel) -> Self {
        let cpu = kernel.any_cpu();
        let caller = kernel.add_caller(cpu);
        kernel.next_caller();
        Self {
            caller,
            caller_back: kernel.now(),
        }
    }

    /// The time at which the caller, woken by the last callback, calls again.
    pub fn caller_is_back(&self) -> Time {
        self.caller_back
    }

    fn sleep(&self, kernel: &mut Kernel, jiffies: u64) {
        kernel.sleep(self.caller, jiffies);
        kernel.next_caller();
    }

    /// Runs a grace period, and its callbacks (`rcu_tasks_wait_gp`).
    pub fn grace_period(&mut self, kernel: &mut Kernel) {
        let began = kernel.jiffies();
        let others = kernel.size().cpus - 1;
        let mut holdouts: Vec<Holdout> =
            (0..others).map(|_| Holdout { checked_at: None }).collect();
        self.interrupt(kernel, &mut holdouts, began);
        kernel.synchronize_rcu(self.caller);
        kernel.next_caller();
        let mut fract = kernel.constants().tasks_trace_init_fract;
        while !holdouts.is_empty() {
            self.sleep(kernel, kernel.size().hz / fract);
            fract = (fract - 1).max(1);
            self.interrupt(kernel, &mut holdouts, began);
            let now = kernel.now();
            holdouts.retain(|holdout| holdout.checked_at.is_none_or(|at| at > now));
        }
        self.caller_back = kernel.now() + kernel.latency();
    }

    /// Sends an interrupt to every CPU that has none under way, if the grace period is old enough.
    fn interrupt(&self, kernel: &Kernel, holdouts: &mut [Holdout], began: u64) {
        let constants = kernel.constants();
        let now = kernel.jiffies() + u64::from(constants.tasks_trace_ipi_at_once);
        if now <= began + constants.rcu_task_ipi_delay {
            return;
        }
        let arrives = kernel.now() + (constants.ipi_us * 1e3) as Time;
        for holdout in holdouts {
            holdout.checked_at.get_or_insert(arrives);
        }
    }

    /// The sleep after a grace period, before the next one begins.
    pub fn rest(&self, kernel: &mut Kernel) {
        self.sleep(kernel, kernel.constants().tasks_trace_gp_sleep);
    }
}
