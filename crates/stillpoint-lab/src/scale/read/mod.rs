//! `stillpoint scale read`: what it costs to enter and leave a read section that does nothing.
//!
//! `ns_per_pair` is the time of one thread for one pair, the loop around it included, which the limit shows alone. Every subject
//! has a loop of its own ([`ReadSide::pairs`]), so that an inlined read side is inlined; the body is a compiler barrier in all of
//! them, in C as in Rust. Under QSBR a pair is nothing, and the thread passes one quiescent state after the loop. A process times
//! [`SLICES`] slices of about [`SLICE`] each and reports the best: a pair's cost does not vary, so whatever lengthens a slice is
//! the machine's other work. With more threads than one, all run a slice together, and its figure is their mean; with more than
//! there are CPUs, it holds the time that a thread waits for one. `scale trace` takes its `read_ns` in the same way.

use std::process::ExitCode;
use std::sync::Barrier;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::sync::Qsbr;
use super::{Chosen, Contender, Experiment, Participant, spawn};
use crate::choice::{Choice, Menu};
use crate::output::Metric;
#[cfg(feature = "kovan")]
use crate::peers::kovan::Kovan;
use crate::peers::{
    arc_swap::ArcSwapLoad, crossbeam_epoch::CrossbeamEpoch, haphazard::Haphazard, ps_reclaim::PsReclaim, sdd::Sdd, seize::Seize,
    std_rwlock::StdRwLock,
};
#[cfg(have_liburcu)]
use crate::peers::{liburcu_memb::LiburcuMemb, liburcu_qsbr::LiburcuQsbr};
use crate::run::{self, Curve, Metrics, Sample};

mod ours;

pub use ours::{Limit, Trace};

/// The experiment's name.
pub const NAME: &str = "read";

/// Stillpoint's own variants.
pub const VARIANTS: Menu = Menu::of_variants(&["guard", "closure", "qsbr", "trace", "trace-owned"]);

/// The peers.
pub const PEERS: Menu = Menu::of_peers(&[
    "liburcu-memb",
    "liburcu-qsbr",
    "crossbeam-epoch",
    "seize",
    "haphazard",
    "sdd",
    "ps-reclaim",
    "kovan",
    "arc-swap",
    "std-rwlock",
]);

const METRICS: &[Metric] = &[Metric { name: "ns_per_pair", decimals: 2 }];

/// Slices that a process times.
const SLICES: usize = 16;

/// How long a slice takes, about.
const SLICE: Duration = Duration::from_millis(25);

/// The command line.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    work: Work,

    #[arg(long, value_name = "all|NAME,...", default_value = "all", help = VARIANTS.help(),
          value_parser = |text: &str| VARIANTS.parse(text))]
    variants: Choice,

    #[arg(long, value_name = "all|none|NAME,...", default_value = "all", help = PEERS.help(),
          value_parser = |text: &str| PEERS.parse(text))]
    peers: Choice,

    #[command(flatten)]
    common: run::Common,
}

/// What the work depends on.
#[derive(Args, Serialize, Deserialize)]
pub struct Work {
    /// Threads that read
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: u32,
}

/// A read side whose lock and unlock are timed.
pub trait ReadSide: Participant {
    /// Enters and leaves an empty section `count` times.
    fn pairs(&mut self, count: u64);
}

/// Who takes part.
pub fn experiment() -> Experiment<Work> {
    let contenders = vec![
        Contender::new("stillpoint", "guard", measure::<ours::Guard>),
        Contender::new("stillpoint", "closure", measure::<ours::Closure>),
        Contender::new("stillpoint", "qsbr", measure::<Qsbr>),
        Contender::new("stillpoint", "trace", measure::<Trace>),
        Contender::new("stillpoint", "trace-owned", measure::<ours::TraceOwned>),
        #[cfg(have_liburcu)]
        Contender::new("liburcu-memb", "default", measure::<LiburcuMemb>),
        #[cfg(have_liburcu)]
        Contender::new("liburcu-qsbr", "default", measure::<LiburcuQsbr>),
        Contender::new("crossbeam-epoch", "default", measure::<CrossbeamEpoch>),
        Contender::new("seize", "default", measure::<Seize>),
        Contender::new("haphazard", "default", measure::<Haphazard>),
        Contender::new("sdd", "default", measure::<Sdd>),
        Contender::new("ps-reclaim", "default", measure::<PsReclaim>),
        #[cfg(feature = "kovan")]
        Contender::new("kovan", "default", measure::<Kovan>),
        Contender::new("arc-swap", "default", measure::<ArcSwapLoad>),
        Contender::new("std-rwlock", "default", measure::<StdRwLock>),
        Contender::new("limit", "default", measure::<Limit>),
    ];
    Experiment { name: NAME, metrics: METRICS, contenders }
}

/// Runs the experiment and prints its table.
pub fn run(options: &Options) -> Result<ExitCode> {
    let chosen = Chosen { variants: &options.variants, peers: &options.peers, scenarios: None };
    let found = experiment().compare(&options.work, &chosen, &options.common)?;
    println!("{}; medians of {} rounds\n", found.report.machine, options.common.rounds);
    found.conclude()
}

fn measure<R: ReadSide>(work: &Work) -> Result<Sample> {
    let metrics = Metrics::from([("ns_per_pair".to_owned(), ns_per_pair::<R>(work.threads)?)]);
    Ok(Sample { metrics, curve: Curve::new() })
}

/// What a pair costs while so many threads read.
pub fn ns_per_pair<R: ReadSide>(threads: u32) -> Result<f64> {
    let count = pairs_per_slice::<R>();
    let together = Barrier::new(threads as usize);
    let threads: Vec<[f64; SLICES]> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|_| {
                spawn(Builder::new(), scope, || {
                    let mut part = R::join();
                    [(); SLICES].map(|()| {
                        together.wait();
                        time_pairs(&mut part, count).as_nanos() as f64 / count as f64
                    })
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))).collect::<Result<_>>()
    })?;

    let mean = |slice: usize| threads.iter().map(|slices| slices[slice]).sum::<f64>() / threads.len() as f64;
    Ok((0..SLICES).map(mean).fold(f64::INFINITY, f64::min))
}

/// How many pairs one thread alone does in a slice's time.
fn pairs_per_slice<R: ReadSide>() -> u64 {
    let mut part = R::join();
    let mut count = 1024;
    loop {
        let taken = time_pairs(&mut part, count);
        if taken >= SLICE / 10 {
            return (count as f64 * SLICE.as_secs_f64() / taken.as_secs_f64()) as u64;
        }
        count *= 2;
    }
}

fn time_pairs<R: ReadSide>(part: &mut R, count: u64) -> Duration {
    let begun = Instant::now();
    part.pairs(count);
    begun.elapsed()
}
