//! `stillpoint sim trace`: one caller calls `synchronize_rcu_tasks_trace` again and again on a
//! laptop of 2020 that is otherwise idle.
//!
//! Where 980 ms come from, at 1,000 Hz: five waits for holdouts, of 100, 111, 125, 143 and 166
//! jiffies, as the wheel rounds them; only after the last is the grace period half a second old,
//! and interrupts are sent to the CPUs' running tasks; one more wait, of 200, to see that they have
//! arrived; 6 for a grace period of normal RCU between the tasks' inspection and the first wait;
//! and the thread's sleep of 100.

use clap::Args;
use kernel_sim::{Constants, Kernel, Setup, Size, tasks_trace};
use serde::Serialize;

use super::experiment::{Simulation, Variant, parse_count, variant};
use super::measured::{Measured, Wait};
use super::seed;
use crate::run::Metrics;

fn polling(constants: &mut Constants, size: Size) {
    constants.tasks_trace_init_fract = (size.hz / 5).max(1);
}

fn ipis(constants: &mut Constants, size: Size) {
    polling(constants, size);
    constants.rcu_task_ipi_delay = 0;
    constants.tasks_trace_ipi_at_once = true;
}

fn gp_sleep(constants: &mut Constants, size: Size) {
    ipis(constants, size);
    constants.tasks_trace_gp_sleep = (size.hz / 200).max(1);
}

/// Its options.
#[derive(Args, Serialize)]
pub struct Trace {
    /// Calls of a run
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = parse_count)]
    pub calls: usize,
}

impl Simulation for Trace {
    const NAME: &'static str = "trace";

    const DEFAULTS: [&'static str; 3] = ["8", "1000", "1"];

    /// Each with the patches of those before it.
    const VARIANTS: &'static [Variant] = &[
        variant("baseline", "the kernel before the series", |_, _| {}),
        variant(
            "polling",
            "polls a fifth of a second apart, not a whole one",
            polling,
        ),
        variant(
            "ipis",
            "and interrupts at once where a CPU runs a reader",
            ipis,
        ),
        variant(
            "gp_sleep",
            "and shorter pauses of the grace-period thread: the whole series",
            gp_sleep,
        ),
    ];

    const HEADLINE: &'static str = "mean_ms";

    /// A kernel whose timers fire where they were armed.
    fn base(size: Size) -> Constants {
        Constants {
            timer_pull: false,
            ..Constants::of_kernel(size.cpus, size.hz)
        }
    }

    fn simulate(&self, setup: Setup) -> Measured {
        calls(setup, self.calls)
    }

    fn seed(variant: &str) -> Option<(Metrics, Vec<Metrics>)> {
        seed::trace(variant)
    }
}

/// Makes `calls` calls, each as soon as the one before has returned.
fn calls(setup: Setup, calls: usize) -> Measured {
    let mut kernel = Kernel::boot(setup);
    let mut thread = tasks_trace::TasksTrace::start(&mut kernel);
    let mut waits = Vec::with_capacity(calls);
    for _ in 0..calls {
        let began = thread.caller_is_back();
        thread.grace_period(&mut kernel);
        let ended = thread.caller_is_back();
        waits.push(Wait { began, ended });
        thread.rest(&mut kernel);
    }
    // The grace periods that are counted are those of normal RCU, of which each wait holds one:
    // they do not explain its length.
    Measured {
        longest_ms: Vec::new(),
        ..Measured::gather(waits, kernel)
    }
}
