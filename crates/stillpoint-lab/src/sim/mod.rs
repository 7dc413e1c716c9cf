//! `stillpoint sim`: the kernel's grace periods in virtual time. The patches that Stillpoint
//! follows were measured on machines with 32 and 64 CPUs, ticks and jiffies; here their tables come
//! out of the mechanism.
//!
//! The crate [`kernel_sim`] is the machine, with every number that it depends on. Here [`sync`],
//! [`bridge`] and [`trace`] are the patches' experiments; [`seed`] has the authors' figures;
//! [`experiment`], [`measured`] and [`report`] turn runs into tables, JSON and pictures; [`options`]
//! is the command line that all have.
//!
//! **What is prediction and what is not.** The kernel's constants are the kernel's, and the
//! latencies' multiples of ticks follow from them alone: 10 and 6 ms, 980 to 18 ms, grace periods
//! of 8 and 16 ms and waits of so many of them. The calibration ([`constants::CALIBRATION`]) was
//! chosen to fit: for `sync` how often the background asks for a grace period and the thread moves,
//! which makes the outliers and the fast runs; for `bridge` how often the idle governor keeps a
//! tick, which makes the mix of grace periods of 8 and 16 ms, and what the program does between its
//! waits. That the seed's bridge ran at 250 Hz with offloaded callbacks is inferred from its
//! figures. Four medians and four totals agree with one governor's probability, but that one was
//! fitted to them.
//!
//! **What the model leaves out** ([`LEFT_OUT`]) is part of every experiment's long help.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Command, Subcommand};
use kernel_sim::{Constants, Size, constants};

use crate::choice::{PossibleValues, explain};
use crate::output::{self, Row};
use experiment::Outcome;

pub use report::SEED;

mod bridge;
mod experiment;
mod measured;
mod options;
mod report;
pub mod seed;
mod sync;
#[cfg(test)]
mod tests;
mod trace;

/// The simulations.
#[derive(Subcommand)]
pub enum Sim {
    /// synchronize_rcu on an idle machine of 32 CPUs, with and without the report of the
    /// grace-period thread's own CPU
    #[command(after_long_help = help_of(&sync::MENU, &sync::base(Size { cpus: 32, hz: 1000 })))]
    Sync(sync::Options),
    /// A network bridge set up and torn down on 64 CPUs that offload their callbacks, with and
    /// without direct wake-ups
    #[command(after_long_help = help_of(&bridge::MENU, &bridge::base(Size { cpus: 64, hz: 250 })))]
    Bridge(bridge::Options),
    /// RCU Tasks Trace on a laptop, patch by patch
    #[command(after_long_help = help_of(&trace::MENU, &trace::base(Size { cpus: 8, hz: 1000 })))]
    Trace(trace::Options),
}

/// What the model does not have.
pub const LEFT_OUT: &str = "The model leaves out: readers that hold a section across a tick, and with them boosting, urgent quiescent states and \
stalls; expedited grace periods; CPUs going offline; lock contention, and ticks that miss a lock; tasks taking turns on a CPU, and a \
wake-up's dependence on load; interrupts other than the tick; callback floods (bypass lists, batch limits, overload), lazy callbacks and \
the latch on many direct waiters; idle states' own latencies; the tree of timer groups above the first level; skewed ticks; tasks of \
RCU Tasks Trace other than those that run, its readers, and its stall reports.";

fn help(constants: &Constants) -> String {
    format!("{}\n{LEFT_OUT}", constants::help(constants))
}

/// Explains the names in the tables and the JSON, and the constants.
fn help_of(variants: &PossibleValues, constants: &Constants) -> String {
    format!(
        "{}\n{}\n{}",
        explain("Variants", &variants.explained()),
        output::explain(report::METRICS),
        help(constants)
    )
}

/// Simulates what the seeds measured, on machines of their size: the experiments, and their rows.
pub fn of_seeds(seed: u64) -> Result<Vec<(&'static str, Vec<Row>)>> {
    fn options<O: Args>(seed: u64) -> Result<O> {
        let command = O::augment_args(Command::new("sim").no_binary_name(true));
        let matches = command.try_get_matches_from(["--seed".to_owned(), seed.to_string()])?;
        Ok(O::from_arg_matches(&matches)?)
    }
    let outcomes = [
        ("sim sync", sync::simulate(&options(seed)?)?),
        ("sim bridge", bridge::simulate(&options(seed)?)?),
        ("sim trace", trace::simulate(&options(seed)?)?),
    ];
    let simulated = |(name, outcome): (&'static str, Outcome)| {
        let rows = outcome.report.rows.into_iter().map(|row| row.row);
        let rows = rows.filter(|row| row.case.subject == report::OURS);
        (name, rows.collect())
    };
    Ok(outcomes.into_iter().map(simulated).collect())
}

/// Runs a simulation and prints what it found.
pub fn run(simulation: &Sim) -> Result<ExitCode> {
    match simulation {
        Sim::Sync(options) => sync::run(options),
        Sim::Bridge(options) => bridge::run(options),
        Sim::Trace(options) => trace::run(options),
    }
}
