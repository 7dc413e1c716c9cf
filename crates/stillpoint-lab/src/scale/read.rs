//! `stillpoint scale read`: what it costs to enter and leave a read section that does nothing.
//!
//! `ns_per_pair` is the time of one thread for one pair, the loop around it included, which the
//! limit shows alone. Every subject has its own loop ([`ReadSide::pairs`]), so that an inlined
//! read side is inlined; the body is a compiler barrier in all of them, in C as in Rust. Under QSBR
//! a pair is nothing, and the thread passes one quiescent state after the loop. A process times
//! 16 slices of about 25 ms each ([`ns_per_pair`]) and reports the best: a pair's cost does not vary, so
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

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use stillpoint::tasks_trace;

use super::subjects::{BareLoop, Fences, FreeAtOnce, Global, Qsbr, Tasks, Trace};
use super::timing::ns_per_pair;
use super::{Benchmarks, SetAtEnd, spawn};
use crate::choice::{Explained, Family, explained, families};
use crate::output::{Metric, metrics};
use crate::peers;
use crate::run::Sample;
use crate::subject::{Guarded, Peer, ReadSide, Reclaimer, Registry};

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
        all.both::<Closure, Global>(Peer::ours("closure"));
        all.both::<Fences, Fences>(Peer::ours("fences"));
        all.both::<Qsbr, Fences>(Peer::ours("qsbr"));
        all.both::<Trace, Tasks>(Peer::ours("trace"));
        all.both::<TraceOwned, Tasks>(Peer::ours("trace-owned"));
        peers::register(all);
        all.both::<BareLoop, FreeAtOnce>(Peer::LIMIT);
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
        let measure = |work: &Work| beside_flood::<F>(|| ns_per_pair::<R>(work.threads));
        self.add(peer, "beside-flood", move |work| sample(measure(work)));
    }
}

fn sample(ns_per_pair: Result<f64>) -> Result<Sample> {
    Ok(Sample::of([("ns_per_pair", ns_per_pair?)]))
}

/// `stillpoint::read`, which runs a closure as the section.
#[derive(Default)]
pub struct Closure;

impl ReadSide for Closure {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            stillpoint::read(|_guard| black_box(()));
        }
    }
}

/// `stillpoint::tasks_trace::read_lock_owned`: a section that a task may hold across an `.await`.
#[derive(Default)]
pub struct TraceOwned;

impl Guarded for TraceOwned {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        tasks_trace::read_lock_owned()
    }
}

/// Bytes of an object that the neighbour retires.
const SIZE: usize = 32;

/// Objects between two looks whether it is over.
const BATCH: usize = 1000;

/// Runs `measured` while another thread retires objects by means of `F`.
fn beside_flood<F: Reclaimer>(measured: impl FnOnce() -> Result<f64>) -> Result<f64> {
    let over = AtomicBool::new(false);
    let has_begun = Barrier::new(2);
    thread::scope(|scope| {
        let _end = SetAtEnd(&over);
        spawn(Builder::new(), scope, || {
            let mut part = F::register_thread();
            retire_some(&mut part);
            has_begun.wait();
            while !over.load(Ordering::Relaxed) {
                retire_some(&mut part);
            }
        });
        has_begun.wait();
        measured()
    })
}

fn retire_some<F: Reclaimer>(part: &mut F) {
    (0..BATCH).for_each(|_| part.allocate_and_retire::<SIZE>());
    part.end_loop::<SIZE>();
}
