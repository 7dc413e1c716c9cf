//! `stillpoint sim`: the kernel's grace periods in virtual time. The patches that Stillpoint
//! follows were measured on machines with 32 and 64 CPUs, ticks and jiffies; here their tables come
//! out of the mechanism.
//!
//! The crate [`kernel_sim`] is the machine, with every number that it depends on. Here [`sync`],
//! [`bridge`] and [`trace`] are the patches' experiments; [`seed`] has the authors' figures;
//! [`experiment`], [`measured`] and [`report`] turn runs into tables, JSON and pictures.
//!
//! **What is prediction and what is not.** The kernel's constants are the kernel's, and the
//! latencies' multiples of ticks follow from them alone: 10 and 6 ms, 980 to 18 ms, grace periods
//! of 8 and 16 ms and waits of 1 to 4 of them. The calibration ([`constants::CALIBRATION`]) was
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
use clap::{Args, Command, FromArgMatches, Subcommand};
use kernel_sim::{Size, constants};

use crate::choice::explain;
use crate::output::{self, Row};
use experiment::{Options, Simulation};

pub use report::SEED;

mod bridge;
mod experiment;
mod measured;
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
    #[command(after_long_help = help::<sync::Sync>())]
    Sync(Options<sync::Sync>),
    /// A network bridge set up and torn down on 64 CPUs that offload their callbacks, with and
    /// without direct wake-ups
    #[command(after_long_help = help::<bridge::Bridge>())]
    Bridge(Options<bridge::Bridge>),
    /// RCU Tasks Trace on a laptop, patch by patch
    #[command(after_long_help = help::<trace::Trace>())]
    Trace(Options<trace::Trace>),
}

/// What the model does not have.
pub const LEFT_OUT: &str = "The model leaves out: readers that hold a section across a tick, and with them boosting, urgent quiescent states and \
stalls; expedited grace periods; CPUs going offline; lock contention, and ticks that miss a lock; tasks taking turns on a CPU, and a \
wake-up's dependence on load; interrupts other than the tick; callback floods (bypass lists, batch limits, overload), lazy callbacks and \
the latch on many direct waiters; idle states' own latencies; the tree of timer groups above the first level; skewed ticks; tasks of \
RCU Tasks Trace other than those that run, its readers, and its stall reports.";

/// Explains the names in the tables and the JSON, and the constants.
fn help<S: Simulation>() -> String {
    let [cpus, hz, _] = S::DEFAULTS.map(|number| number.parse().expect("it is a number"));
    let base = S::base(Size {
        cpus: cpus as usize,
        hz,
    });
    let variants = S::VARIANTS
        .iter()
        .map(|variant| (variant.name, variant.about));
    let (variants, figures) = (
        explain("Variants", variants),
        output::explain(report::METRICS),
    );
    format!(
        "{variants}\n{figures}\n{}\n{LEFT_OUT}",
        constants::help(&base)
    )
}

/// Simulates what the seeds measured, on machines of their size: the experiments, and their rows.
pub fn of_seeds(seed: u64) -> Result<[(&'static str, Vec<Row>); 3]> {
    Ok([
        ("sim sync", of_seed::<sync::Sync>(seed)?),
        ("sim bridge", of_seed::<bridge::Bridge>(seed)?),
        ("sim trace", of_seed::<trace::Trace>(seed)?),
    ])
}

fn of_seed<S: Simulation>(seed: u64) -> Result<Vec<Row>> {
    let command = Options::<S>::augment_args(Command::new("sim").no_binary_name(true));
    let matches = command.try_get_matches_from(["--seed".to_owned(), seed.to_string()])?;
    let outcome = experiment::simulate(&Options::<S>::from_arg_matches(&matches)?)?;
    let mut rows = outcome.report.rows;
    rows.retain(|row| row.case.subject == report::OURS);
    Ok(rows)
}

/// Runs a simulation and prints what it found.
pub fn run(simulation: &Sim) -> Result<ExitCode> {
    match simulation {
        Sim::Sync(options) => experiment::run(options),
        Sim::Bridge(options) => experiment::run(options),
        Sim::Trace(options) => experiment::run(options),
    }
}
