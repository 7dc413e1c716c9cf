//! The experiments of `stillpoint scale`. A new one is a file or folder here with its own [`Work`],
//! which says who takes part and what is reported, and a line in [`Experiment`], [`run`] and [`ENTRIES`].

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use crate::output::say;
use crate::run::child::Request;
use crate::run::{Common, Sample};
use experiment::{Benchmarks, Comparison, Selection, Work};
use threads::{SetAtEnd, join, span, spawn};

pub use experiment::{tell, verdict};

#[cfg(feature = "peers")]
mod cache;
#[cfg(feature = "peers")]
mod epoch;
mod experiment;
#[cfg(feature = "peers")]
mod keys;
mod kfree;
mod lru;
#[cfg(feature = "peers")]
mod map;
mod memory;
mod read;
#[cfg(feature = "peers")]
mod server;
#[cfg(feature = "peers")]
mod shared_lines;
mod subjects;
mod sync;
mod threads;
mod timing;
mod trace;
#[cfg(feature = "peers")]
mod traces;
mod vmap;

/// The command line.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Options {
    /// Print a line for each case that this build can measure and end, for scripts: the experiment,
    /// the subject, its variant, and the scenario where there is more than one
    #[arg(long)]
    list: bool,

    #[command(subcommand)]
    experiment: Option<Experiment>,
}

/// The experiments.
#[derive(Subcommand)]
enum Experiment {
    /// Read and write caches that threads share, and replay traces on them: time, hits, memory, and
    /// what a neighbour costs a tenant. What one thread replays (traces without -6, and mix) is measured
    /// behind the rest, on all processors at once
    #[cfg(feature = "peers")]
    Cache(Selection<cache::Work>),
    /// Pin, defer and use what stands on crossbeam-epoch, with the drop-in package and with the
    /// original
    #[cfg(feature = "peers")]
    Epoch(Selection<epoch::Work>),
    /// Free objects after a grace period, many threads at once: time, and memory that waits
    Kfree(Selection<kfree::Work>),
    /// Count, add to and take from LRU lists of many tenants: counts and adds a second, and what
    /// goes into locks
    Lru(Selection<lru::Work>),
    /// Read, write and scan maps that threads share: time, memory, and pauses while they grow
    #[cfg(feature = "peers")]
    Map(Selection<map::Work>),
    /// Enter and leave an empty read section: the cost of the pair
    Read(Selection<read::Work>),
    /// Ask cache servers over a Unix socket: stillcache, memcached, redis. Processor time, latencies,
    /// memory, hits, and what a neighbour costs a tenant
    #[cfg(feature = "peers")]
    Server(Selection<server::Work>),
    /// Wait for a grace period, beside readers that sleep or work: how long, and at what cost
    Sync(Selection<sync::Work>),
    /// Read in sections that sleep or await: what a grace period takes among them, and what they
    /// cost
    Trace(Selection<trace::Work>),
    /// Find, check and copy in an address space of many areas; allocate and free them
    Vmap(Selection<vmap::Work>),
}

/// Runs an experiment and prints what it found.
pub fn run(options: &Options) -> Result<ExitCode> {
    let Some(experiment) = &options.experiment else {
        say!("{}", list().trim_end());
        return Ok(ExitCode::SUCCESS);
    };
    match experiment {
        #[cfg(feature = "peers")]
        Experiment::Epoch(selection) => experiment::run(selection),
        #[cfg(feature = "peers")]
        Experiment::Cache(selection) => experiment::run(selection),
        Experiment::Kfree(selection) => experiment::run(selection),
        Experiment::Lru(selection) => experiment::run(selection),
        #[cfg(feature = "peers")]
        Experiment::Map(selection) => experiment::run(selection),
        Experiment::Read(selection) => experiment::run(selection),
        #[cfg(feature = "peers")]
        Experiment::Server(selection) => experiment::run(selection),
        Experiment::Sync(selection) => experiment::run(selection),
        Experiment::Trace(selection) => experiment::run(selection),
        Experiment::Vmap(selection) => experiment::run(selection),
    }
}

/// An experiment, for what is done with any.
struct Entry {
    name: &'static str,
    list: fn() -> String,
    measure: fn(&Request) -> Result<Sample>,
    compare: fn(&str, &Common) -> Result<Comparison>,
    #[cfg(test)]
    assert_possible_values: fn(),
    #[cfg(test)]
    assert_fits: fn(),
}

impl Entry {
    const fn of<W: Work>() -> Self {
        Self {
            name: W::NAME,
            list: experiment::list::<W>,
            measure: experiment::measure::<W>,
            compare: experiment::compare_by::<W>,
            #[cfg(test)]
            assert_possible_values: experiment::tests::assert_possible_values::<W>,
            #[cfg(test)]
            assert_fits: experiment::tests::assert_fits::<W>,
        }
    }
}

/// The experiments of this build.
const ENTRIES: &[Entry] = &[
    #[cfg(feature = "peers")]
    Entry::of::<epoch::Work>(),
    #[cfg(feature = "peers")]
    Entry::of::<cache::Work>(),
    Entry::of::<kfree::Work>(),
    Entry::of::<lru::Work>(),
    #[cfg(feature = "peers")]
    Entry::of::<map::Work>(),
    Entry::of::<read::Work>(),
    #[cfg(feature = "peers")]
    Entry::of::<server::Work>(),
    Entry::of::<sync::Work>(),
    Entry::of::<trace::Work>(),
    Entry::of::<vmap::Work>(),
];

/// A line for each case: see the option `--list`.
fn list() -> String {
    ENTRIES.iter().map(|entry| (entry.list)()).collect()
}

/// Takes one measurement, in the child process.
pub fn measure(request: &Request) -> Result<Sample> {
    (entry(&request.experiment)?.measure)(request)
}

/// Measures what `scale EXPERIMENT OPTIONS` chooses, for figures that another command prints.
pub fn compare(experiment: &str, options: &str, common: &Common) -> Result<Comparison> {
    (entry(experiment)?.compare)(options, common)
}

fn entry(name: &str) -> Result<&'static Entry> {
    let entry = ENTRIES.iter().find(|entry| entry.name == name);
    entry.with_context(|| format!("no experiment {name}"))
}

/// Returns a value that is never dropped: the process ends with its measurement, and to drop millions of entries takes
/// longer than some of those.
#[cfg(feature = "peers")]
fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_values_are_the_benchmarks() {
        for entry in ENTRIES {
            (entry.assert_possible_values)();
        }
    }

    #[test]
    fn every_name_is_explained_and_every_table_fits() {
        for entry in ENTRIES {
            (entry.assert_fits)();
        }
    }
}
