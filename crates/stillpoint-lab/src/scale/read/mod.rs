//! `stillpoint scale read`: what it costs to enter and leave a read section that does nothing.
//!
//! `ns_per_pair` is the time of one thread for one pair, the loop around it included, which the
//! limit shows alone. Every subject has its own loop ([`ReadSide::pairs`]), so that an inlined
//! read side is inlined; the body is a compiler barrier in all of them, in C as in Rust. Under QSBR
//! a pair is nothing, and the thread passes one quiescent state after the loop. A process times
//! [`SLICES`] slices of about [`SLICE`] each and reports the best: a pair's cost does not vary, so
//! whatever lengthens a slice is the machine's other work. With more threads than one, all run a
//! slice together, and its figure is their mean; with more than there are CPUs, it holds the time
//! that a thread waits for one. `scale trace` takes its `read_ns` in the same way.
//!
//! In the scenario `alone` nothing else runs in the process. In `beside-flood` another thread
//! allocates objects and retires each at once, without a pause and in the same domain, from before
//! the first slice until after the last: what retiring writes, readers may have to load again, and
//! a heavy barrier interrupts them. Subjects without deferred frees have no such row. The reader under QSBR
//! passes a quiescent state a slice, which holds its neighbour up most of the time. The limit's
//! neighbour frees at once.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::in_domain::{Fences, Global, Tasks};
use super::kfree;
use super::sync::Qsbr;
use super::{Benchmarks, in_threads};
use crate::choice::{Explained, Family, explained, families};
use crate::output::{Metric, metrics};
use crate::peers;
use crate::run::Sample;
use crate::subject::{Peer, ReadSide, Reclaimer, Registry};

mod flood;
mod ours;

pub use ours::{Limit, Trace};

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

    const SHOWS: &'static str = "What a thread pays to enter and leave a read section, alone or beside a thread that retires without \
         a pause; less is better.";

    /// Stillpoint's own variants.
    const VARIANTS: &'static [Explained] = explained! {
        "guard" => "read_lock() and the drop of its guard";
        "closure" => "read(|| ...)";
        "fences" => "a private domain whose readers fence";
        "qsbr" => "a reader that reports quiescent states, one for each slice of the measurement";
        "trace" => "a guard of tasks_trace, whose section may block";
        "trace-owned" => "an owned guard of tasks_trace, which a task may hold across an await";
    };

    const SCENARIOS: &'static [Family] = families! {
        "alone" => "Nothing else runs in the process.";
        "beside-flood" => "Another thread retires objects in the same domain without a pause.";
    };

    const METRICS: &'static [Metric] = metrics! {
        "ns_per_pair" 2 "time of one thread to enter and leave a section, the loop around it included";
    };

    fn add_to(all: &mut Benchmarks<Self>) {
        all.both::<Global, Global>(Peer::ours("guard"));
        all.both::<ours::Closure, Global>(Peer::ours("closure"));
        all.both::<Fences, Fences>(Peer::ours("fences"));
        all.both::<Qsbr, Fences>(Peer::ours("qsbr"));
        all.both::<Trace, Tasks>(Peer::ours("trace"));
        all.both::<ours::TraceOwned, Tasks>(Peer::ours("trace-owned"));
        peers::register(all);
        all.both::<Limit, kfree::Limit>(Peer::LIMIT);
    }
}

impl Registry for Benchmarks<Work> {
    fn reads<S: ReadSide>(&mut self, peer: Peer) {
        self.add(peer, "alone", |work| sample(ns_per_pair::<S>(work.threads)));
    }

    fn reads_beside_flood<S: ReadSide + Reclaimer>(&mut self, peer: Peer) {
        self.beside_flood::<S, S>(peer);
    }
}

impl Benchmarks<Work> {
    fn both<R: ReadSide, F: Reclaimer>(&mut self, peer: Peer) {
        self.reads::<R>(peer);
        self.beside_flood::<R, F>(peer);
    }

    /// The neighbour retires by means of `F`, in the domain in which `R` reads.
    fn beside_flood<R: ReadSide, F: Reclaimer>(&mut self, peer: Peer) {
        let measure = |work: &Work| flood::beside::<F>(|| ns_per_pair::<R>(work.threads));
        self.add(peer, "beside-flood", move |work| sample(measure(work)));
    }
}

fn sample(ns_per_pair: Result<f64>) -> Result<Sample> {
    Ok(Sample::of([("ns_per_pair", ns_per_pair?)]))
}

/// Measures a pair while `threads` threads read.
pub fn ns_per_pair<R: ReadSide>(threads: u32) -> Result<f64> {
    let count = pairs_per_slice::<R>();
    let together = Barrier::new(threads as usize);
    let threads: Vec<[f64; SLICES]> = in_threads(threads as usize, |_| {
        let mut part = R::register_thread();
        [(); SLICES].map(|()| {
            together.wait();
            time_pairs(&mut part, count).as_nanos() as f64 / count as f64
        })
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
