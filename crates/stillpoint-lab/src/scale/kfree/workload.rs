//! The work, the same for every subject, as rcuscale's kfree threads do it: each of `threads`
//! threads runs `loops` loops, each of which allocates `objects` objects, one by one, and retires
//! each at once. Beside them `readers` threads run read sections of `reader_hold_us` microseconds
//! back to back, by the subject's own means.
//!
//! Figures:
//! - `total_s`: seconds from the common start to the last thread's last retire;
//! - `ns_per_object`: the same time in ns, divided by the objects of all threads;
//! - `footprint_mib`: the kernel's formula over this process's resident memory: each thread begins
//!   with a note of it, and at every quarter of its loops moves a running mean halfway to the
//!   present value; the figure is that mean less the first note, of the thread that ends last. The
//!   first note is one for all, from before the start: with fewer CPUs than threads a thread that
//!   takes its own often begins, and ends, when the others have filled the memory;
//! - `peak_mib`: the most memory that was resident between just before the threads' start and the
//!   end of the drain, above that before the start;
//! - `drain_ms`: milliseconds from the last retire until nothing waits, while all threads live on
//!   and call nothing. Stillpoint is left to itself, which includes the time by which an idle
//!   thread is known; who has a call for it (liburcu, ps-reclaim) is asked;
//! - `grace_periods`: those completed between the start and the last retire;
//! - `membarriers_per_s`: those issued in that time, of whichever thread;
//! - `shared_rmw_per_object`, of Stillpoint's pages, with `--count`: the atomic read-modify-writes of lines that
//!   threads share, for an object of 32 bytes; `lines.rs` counts them behind the run: two
//!   threads in turn, the others beside them.
//!
//! Fair: one allocator (the system's malloc, objects aligned to 16 bytes) serves all; what a
//! subject keeps beside an object or in it is its own choice, and its memory counts; a process has
//! one subject, a registration that a subject asks for comes before the start, and no subject is
//! told beforehand how much will come. Unlike the kernel's, the threads are not pinned, run at
//! normal priority and start together.

use std::hint;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Work;
use crate::run::Sample;
use crate::scale::memory::{self, Watch};
use crate::scale::{join, spawn};
use crate::subject::Reclaimer;

/// Measures the work with `R`.
pub fn measure<R: Reclaimer>(work: &Work) -> Result<Sample> {
    let loops: Loops<R> = match work.object_size {
        16 => allocate_and_retire::<R, 16>,
        32 => allocate_and_retire::<R, 32>,
        64 => allocate_and_retire::<R, 64>,
        128 => allocate_and_retire::<R, 128>,
        256 => allocate_and_retire::<R, 256>,
        512 => allocate_and_retire::<R, 512>,
        1024 => allocate_and_retire::<R, 1024>,
        2048 => allocate_and_retire::<R, 2048>,
        4096 => allocate_and_retire::<R, 4096>,
        other => bail!("no objects of {other} bytes"),
    };
    run(loops, work)
}

/// [`allocate_and_retire`] with objects of one size: all that is compiled for each.
type Loops<R> = fn(&mut R, &Work, u64) -> Result<f64>;

/// What the threads of one run share.
struct Shared {
    /// All threads begin together here.
    start: Barrier,
    /// Producers and the main thread meet here after the last retire, and once more after the
    /// drain.
    finish: Barrier,
    /// Readers go on until this is set.
    stop: AtomicBool,
}

/// What a producer saw.
struct Seen {
    began: Instant,
    ended: Instant,
    footprint_mib: f64,
    /// The counts at its end.
    grace_periods: Option<u64>,
    membarriers: Option<u64>,
}

fn run<R: Reclaimer>(loops: Loops<R>, work: &Work) -> Result<Sample> {
    let shared = Shared {
        start: Barrier::new((work.threads + work.readers) as usize),
        finish: Barrier::new(work.threads as usize + 1),
        stop: AtomicBool::new(false),
    };
    let watch = Watch::start()?;
    let grace_periods_before = R::GRACE_PERIODS.map(|count| count());
    let membarriers_before = R::MEMBARRIERS.map(|count| count());

    let (producers, drained) = thread::scope(|scope| {
        for _ in 0..work.readers {
            spawn(Builder::new(), scope, || {
                read_back_to_back::<R>(&shared, work)
            });
        }
        let produce = || produce(loops, &shared, work, watch.base());
        let producers = (0..work.threads).map(|_| spawn(Builder::new(), scope, produce));
        let producers: Vec<_> = producers.collect();

        shared.finish.wait();
        let drained = R::DRAIN.map(|drain| {
            drain();
            Instant::now()
        });
        shared.stop.store(true, Ordering::Relaxed);
        shared.finish.wait();
        let seen = producers.into_iter().map(|producer| join(producer)?);
        anyhow::Ok((seen.collect::<Result<Vec<Seen>>>()?, drained))
    })?;

    let began = producers.iter().map(|seen| seen.began).min();
    let last = producers.iter().max_by_key(|seen| seen.ended);
    let (began, last) = began.zip(last).context("no thread ran")?;
    let memory = watch.finish(began)?;
    let total = last.ended - began;
    let objects = work.all_objects() as f64;
    let mut sample = Sample::of([
        ("total_s", total.as_secs_f64()),
        ("ns_per_object", total.as_nanos() as f64 / objects),
        ("footprint_mib", last.footprint_mib),
        ("peak_mib", memory.peak_mib),
    ]);
    let drain = |drained: Instant| (drained - last.ended).as_secs_f64() * 1e3;
    sample.add(drained.map(|drained| ("drain_ms", drain(drained))));
    let counted = |before: Option<u64>, after: Option<u64>| Some((after? - before?) as f64);
    let grace_periods = counted(grace_periods_before, last.grace_periods);
    sample.add(grace_periods.map(|count| ("grace_periods", count)));
    let membarriers = counted(membarriers_before, last.membarriers);
    sample.add(membarriers.map(|count| ("membarriers_per_s", count / total.as_secs_f64())));
    sample.curve = memory.curve;
    Ok(sample)
}

/// A thread that allocates and retires, and then waits for the drain without a further call on the
/// subject.
fn produce<R: Reclaimer>(loops: Loops<R>, shared: &Shared, work: &Work, base: u64) -> Result<Seen> {
    let mut part = R::register_thread();
    shared.start.wait();
    let began = Instant::now();
    let footprint = loops(&mut part, work, base);
    let ended = Instant::now();
    let grace_periods = R::GRACE_PERIODS.map(|count| count());
    let membarriers = R::MEMBARRIERS.map(|count| count());
    shared.finish.wait();
    shared.finish.wait();
    Ok(Seen {
        began,
        ended,
        footprint_mib: footprint?,
        grace_periods,
        membarriers,
    })
}

/// The loops; returns the kernel's footprint above `base`.
fn allocate_and_retire<R: Reclaimer, const N: usize>(
    part: &mut R,
    work: &Work,
    base: u64,
) -> Result<f64> {
    let quarter = (work.loops / 4).max(1);
    let first = base as f64;
    let mut mean = first;
    for round in 0..work.loops {
        if round > 0 && round % quarter == 0 {
            mean = f64::midpoint(mean, memory::resident()? as f64);
        }
        for _ in 0..work.objects {
            part.allocate_and_retire::<N>();
        }
        part.end_loop::<N>();
    }
    Ok(memory::mib(first, mean))
}

/// A thread that reads.
fn read_back_to_back<R: Reclaimer>(shared: &Shared, work: &Work) {
    let hold = Duration::from_micros(work.reader_hold_us);
    let mut part = R::register_thread();
    shared.start.wait();
    while !shared.stop.load(Ordering::Relaxed) {
        part.read(|| {
            let begun = Instant::now();
            while begun.elapsed() < hold {
                hint::spin_loop();
            }
        });
    }
}
