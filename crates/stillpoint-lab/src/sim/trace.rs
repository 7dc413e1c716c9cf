//! `stillpoint sim trace`: one caller calls `synchronize_rcu_tasks_trace` again and again on a
//! laptop of 2020 that is otherwise idle.
//!
//! Where 980 ms come from, at 1,000 Hz: five waits for holdouts, of 100, 111, 125, 143 and 166
//! jiffies, as the wheel rounds them; only after the last is the grace period half a second old,
//! and interrupts are sent to the CPUs' running tasks; one more wait, of 200, to see that they have
//! arrived; 6 for a grace period of normal RCU between the tasks' inspection and the first wait;
//! and the thread's sleep of 100.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use kernel_sim::{Constants, Kernel, Setup, Size, tasks_trace};
use serde::Serialize;

use super::experiment::{self, Experiment, Outcome};
use super::measured::{Measured, Wait};
use super::options::{Common, Variant, parse_count, parse_cpus, parse_hz};
use super::seed;
use crate::choice::{Choice, PossibleValues};

/// The variants, each with the patches of those before it.
pub const VARIANTS: &[Variant] = &[
    Variant {
        name: "baseline",
        apply: |_, _| {},
    },
    Variant {
        name: "polling",
        apply: polling,
    },
    Variant {
        name: "ipis",
        apply: ipis,
    },
    Variant {
        name: "gp_sleep",
        apply: gp_sleep,
    },
];

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

pub const MENU: PossibleValues = PossibleValues::of_simulated(&[
    ("baseline", "the kernel before the series"),
    (
        "polling",
        "polls a fifth of a second apart, not a whole one",
    ),
    ("ipis", "and interrupts at once where a CPU runs a reader"),
    (
        "gp_sleep",
        "and shorter pauses of the grace-period thread: the whole series",
    ),
]);

/// The command line.
#[derive(Args, Serialize)]
pub struct Options {
    /// CPUs
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = parse_cpus)]
    cpus: usize,

    /// Ticks a second
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = parse_hz)]
    hz: u64,

    /// Runs, each on a machine that has just booted
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_count)]
    runs: usize,

    /// Calls of a run
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = parse_count)]
    calls: usize,

    #[arg(long, value_name = "all|NAME,...", default_value = "all", help = MENU.help(),
          value_parser = |text: &str| MENU.parse(text))]
    variants: Choice,

    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
}

/// The constants that the variants begin with: a kernel whose timers fire where they were armed.
pub fn base(size: Size) -> Constants {
    Constants {
        timer_pull: false,
        ..Constants::of_kernel(size.cpus, size.hz)
    }
}

/// Simulates it.
pub fn simulate(options: &Options) -> Result<Outcome> {
    let size = Size {
        cpus: options.cpus,
        hz: options.hz,
    };
    let experiment = Experiment {
        name: "trace",
        size,
        base: base(size),
        variants: experiment::chosen(VARIANTS, &options.variants),
        runs: options.runs,
        params: serde_json::to_value(options)?,
        seed: seed::trace,
    };
    let mut outcome = experiment.run(&options.common, |setup| calls(setup, options.calls))?;
    outcome.summarise_runs(seed::summary);
    Ok(outcome)
}

/// Runs it.
pub fn run(options: &Options) -> Result<ExitCode> {
    let outcome = simulate(options)?;
    outcome.conclude("mean_ms")
}

/// Calls so many times, each as soon as the one before has returned.
pub fn calls(setup: Setup, calls: usize) -> Measured {
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
