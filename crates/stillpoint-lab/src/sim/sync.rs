//! `stillpoint sim sync`: one caller calls `synchronize_rcu` again and again on a machine that is
//! otherwise idle.
//!
//! Where 10 ms come from, at 1,000 Hz: the callback is noticed at the next tick (1); a timer of 3
//! jiffies fires at the fourth tick (4), the scan finds every CPU idle but the thread's own, which
//! runs it; another such wait (4); the callback is invoked at the next tick (1). With the thread's
//! own report, the second wait goes.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use kernel_sim::{Constants, Size};
use serde::Serialize;

use super::experiment::{self, Experiment, Outcome};
use super::measured::Loop;
use super::options::{Common, Variant, parse_count, parse_cpus, parse_hz};
use super::seed;
use crate::choice::{Choice, PossibleValues};
use crate::output::say;

/// The variants.
pub const VARIANTS: &[Variant] = &[
    Variant {
        name: "baseline",
        apply: |_, _| {},
    },
    Variant {
        name: "fix",
        apply: |constants, _| constants.early_qs = true,
    },
];

pub const MENU: PossibleValues = PossibleValues::of_simulated(&[
    ("baseline", "the kernel before the patch"),
    ("fix", "the grace-period thread reports its own CPU"),
]);

/// The command line.
#[derive(Args, Serialize)]
pub struct Options {
    /// CPUs
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = parse_cpus)]
    cpus: usize,

    /// Ticks a second
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = parse_hz)]
    hz: u64,

    /// Runs, each on a machine that has just booted
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = parse_count)]
    runs: usize,

    /// Calls of each caller in a run
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = parse_count)]
    calls: usize,

    /// Callers at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_count)]
    callers: usize,

    #[arg(long, value_name = "all|NAME,...", default_value = "all", help = MENU.help(),
          value_parser = |text: &str| MENU.parse(text))]
    variants: Choice,

    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
}

/// The constants that the variants begin with. Calibrated: how often something else asks for a
/// grace period (it makes the longest waits), and how often the scheduler takes the grace-period
/// thread to the caller's CPU (there it finds its own CPU ticking, and so quiescent at the first
/// scan: the fast runs among the seed's).
pub fn base(size: Size) -> Constants {
    Constants {
        background_tasks_per_s: 2.0,
        gp_thread_pulled: 0.0002,
        ..Constants::of_kernel(size.cpus, size.hz)
    }
}

/// Simulates it.
pub fn simulate(options: &Options) -> Result<Outcome> {
    let size = Size {
        cpus: options.cpus,
        hz: options.hz,
    };
    let work = Loop {
        callers: options.callers,
        calls: options.calls,
        pause_ms: 0.0,
    };
    let experiment = Experiment {
        name: "sync",
        size,
        base: base(size),
        variants: experiment::chosen(VARIANTS, &options.variants),
        runs: options.runs,
        params: serde_json::to_value(options)?,
        seed: seed::sync,
    };
    let mut outcome = experiment.run(&options.common, |setup| work.run(setup))?;
    outcome.summarise_runs(seed::summary);
    Ok(outcome)
}

/// Runs it.
pub fn run(options: &Options) -> Result<ExitCode> {
    let outcome = simulate(options)?;
    say!("{}\n", outcome.report.table_of_runs());
    outcome.conclude("mean_ms")
}
