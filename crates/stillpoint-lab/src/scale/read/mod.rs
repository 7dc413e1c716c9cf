//! `stillpoint scale read`: what it costs to enter and leave a read section that does nothing.
//!
//! `ns_per_pair` is the time of one thread for one pair, the loop around it included, which the
//! limit shows alone. Every subject has a loop of its own ([`ReadSide::pairs`]), so that an inlined
//! read side is inlined; the body is a compiler barrier in all of them, in C as in Rust. Under QSBR
//! a pair is nothing, and the thread passes one quiescent state after the loop. A process times
//! [`SLICES`] slices of about [`SLICE`] each and reports the best: a pair's cost does not vary, so
//! whatever lengthens a slice is the machine's other work. With more threads than one, all run a
//! slice together, and its figure is their mean; with more than there are CPUs, it holds the time
//! that a thread waits for one. `scale trace` takes its `read_ns` in the same way.

use std::sync::Barrier;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::sync::Qsbr;
use super::{Benchmark, spawn};
use crate::choice::PossibleValues;
use crate::output::Metric;
use crate::peers;
use crate::run::{Curve, Metrics, Sample};
use crate::subject::{Peer, ReadSide, Registry};

mod ours;

pub use ours::{Guard, Limit, Trace};

/// Slices that a process times.
const SLICES: usize = 16;

/// How long a slice takes, about.
const SLICE: Duration = Duration::from_millis(25);

/// What the work depends on.
#[derive(Args, Serialize, Deserialize)]
pub struct Work {
    /// Threads that read
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: u32,
}

impl super::Work for Work {
    const NAME: &'static str = "read";

    const SHOWS: &'static str =
        "What a thread pays to enter and leave a read section; less is better.";

    /// Stillpoint's own variants.
    const VARIANTS: PossibleValues =
        PossibleValues::of_variants(&["guard", "closure", "qsbr", "trace", "trace-owned"]);

    const PEERS: PossibleValues = PossibleValues::of_registered_peers(peers::that_read);

    const METRICS: &'static [Metric] = &[Metric {
        name: "ns_per_pair",
        decimals: 2,
    }];

    fn benchmarks() -> Vec<Benchmark<Self>> {
        let mut benchmarks = vec![
            Benchmark::ours("guard", measure::<ours::Guard>),
            Benchmark::ours("closure", measure::<ours::Closure>),
            Benchmark::ours("qsbr", measure::<Qsbr>),
            Benchmark::ours("trace", measure::<Trace>),
            Benchmark::ours("trace-owned", measure::<ours::TraceOwned>),
        ];
        peers::register(&mut Readers(&mut benchmarks));
        benchmarks.push(Benchmark::limit(measure::<Limit>));
        benchmarks
    }
}

/// The peers.
struct Readers<'c>(&'c mut Vec<Benchmark<Work>>);

impl Registry for Readers<'_> {
    fn reads<S: ReadSide>(&mut self, peer: Peer) {
        self.0.push(Benchmark::new(peer, measure::<S>));
    }
}

fn measure<R: ReadSide>(work: &Work) -> Result<Sample> {
    let metrics = Metrics::from([("ns_per_pair".to_owned(), ns_per_pair::<R>(work.threads)?)]);
    Ok(Sample {
        metrics,
        curve: Curve::new(),
    })
}

/// What a pair costs while so many threads read.
pub fn ns_per_pair<R: ReadSide>(threads: u32) -> Result<f64> {
    let count = pairs_per_slice::<R>();
    let together = Barrier::new(threads as usize);
    let threads: Vec<[f64; SLICES]> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|_| {
                spawn(Builder::new(), scope, || {
                    let mut part = R::register_thread();
                    [(); SLICES].map(|()| {
                        together.wait();
                        time_pairs(&mut part, count).as_nanos() as f64 / count as f64
                    })
                })
            })
            .collect();
        started
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked")))
            .collect::<Result<_>>()
    })?;

    let mean = |slice: usize| {
        threads.iter().map(|slices| slices[slice]).sum::<f64>() / threads.len() as f64
    };
    Ok((0..SLICES).map(mean).fold(f64::INFINITY, f64::min))
}

/// How many pairs one thread alone does in a slice's time.
fn pairs_per_slice<R: ReadSide>() -> u64 {
    let mut part = R::register_thread();
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
