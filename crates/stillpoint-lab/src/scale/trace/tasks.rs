//! async10000: 10,000 tasks on one runtime with a worker for each CPU, and a thread that replaces
//! a value they all read.
//!
//! A task reads the value, sleeps on a timer for some milliseconds, looks at what it has found once
//! more and reads the value anew, all in one section; and then the next one, without a pause. The
//! updater makes a new value, puts it instead of the old one, and sleeps for `--update-us`. Once
//! every task has ended a section, two spans are timed:
//!
//! 1. the tasks and the updater alone: `reads_per_s` (sections ended) and `updates_per_s`;
//! 2. beside them, where the subject has grace periods, a thread that waits for one of the tasks'
//!    domain after the other, and one that waits in another domain every millisecond: `gp_mean_ms`,
//!    `gp_p99_ms`, and `other_domain_gp_us`. The first span has no such threads, so that no
//!    subject's rates pay for what others cannot do.
//!
//! Fair: the same tasks, timers, runtime, values and allocator for all; the sleeps come from the
//! same seeds; a subject without updates (the limit, a static) has no updater. With the default
//! sleeps the timers alone keep the workers busy: rates are those of a full machine, and a waiting
//! thread competes with the workers for a processor.
//!
//! Every value holds a number twice, in two ways. A task that finds them different, or a number
//! that is smaller than one found before, has found memory that was freed, and ends the process, so
//! that a subject that frees too early has no figures.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use anyhow::Result;
use stillpoint::Rcu;
use stillpoint::tasks_trace::TraceDomain;
use tokio::runtime::{self, Runtime};
use tokio::time::sleep;

use super::ours::{self, Mode};
use super::{ASYNC, Work};
use crate::machine::Machine;
use crate::peers;
use crate::run::Sample;
use crate::scale::timing::{repeat, time};
use crate::scale::{Benchmarks, SetAtEnd, join, spawn};
use crate::subject::{Cell, Peer, Registry, Value};

mod footprint;

/// Between two waits in the other domain.
const PAUSE: Duration = Duration::from_millis(1);

/// Adds the benchmarks of this scenario.
pub fn add_to(all: &mut Benchmarks<Work>, limit: Peer) {
    for (variant, mode) in [("native", Mode::Native), ("read-mb", Mode::ReadMb)] {
        all.add(Peer::ours(variant), ASYNC, move |work| {
            measure_ours(mode, work)
        });
    }
    peers::register(all);
    all.add(limit, ASYNC, |work| measure(Static, work));
}

impl Registry for Benchmarks<Work> {
    fn shares<C: Cell>(&mut self, peer: Peer, make: fn(Value) -> C) {
        self.add(peer, ASYNC, move |work| measure(make(Value::first()), work));
    }
}

/// Sections that one task has ended. Its own cache line, so that tasks of two workers do not write
/// to the same.
#[derive(Default)]
#[repr(align(64))]
struct Count(AtomicU64);

/// What is counted while the tasks run.
struct Counts {
    sections: Vec<Arc<Count>>,
    updates: AtomicU64,
}

impl Counts {
    fn sections(&self) -> u64 {
        self.sections
            .iter()
            .map(|count| count.0.load(Ordering::Relaxed))
            .sum()
    }

    fn all_have_begun(&self) -> bool {
        self.sections
            .iter()
            .all(|count| count.0.load(Ordering::Relaxed) > 0)
    }
}

/// The tasks, and the memory of their guards.
fn measure_ours(mode: Mode, work: &Work) -> Result<Sample> {
    // First, while the process is as it was born; in another domain, which leaves that of the tasks as it
    // is.
    let bytes_per_guard = footprint::bytes_per_guard(&mode.another())?;
    let domain = mode.domain();
    let cell = Traced {
        domain,
        elsewhere: mode.another(),
        cell: Rcu::new_in(domain, Value::first()),
    };
    let mut sample = measure(cell, work)?;
    sample.add([("bytes_per_guard", bytes_per_guard)]);
    Ok(sample)
}

/// A cell whose sections are owned guards.
struct Traced {
    domain: &'static TraceDomain,
    elsewhere: TraceDomain,
    cell: Rcu<Value>,
}

impl Cell for Traced {
    const REPLACE: Option<fn(&Self, Value)> = Some(|traced, value| traced.cell.store(value));
    const SYNCHRONIZE: Option<fn(&Self)> = Some(|traced| traced.domain.synchronize());

    fn synchronize_elsewhere(&self) -> Option<impl Fn() + Send> {
        Some(|| self.elsewhere.synchronize())
    }

    async fn section(&self, nap: Duration) {
        let guard = self.domain.read_lock_owned();
        let load = || self.cell.load(&guard);
        let found = load();
        found.check(found);
        sleep(nap).await;
        found.check(load());
    }
}

/// A value that is never replaced needs no section.
struct Static;

static VALUE: Value = Value::first();

impl Cell for Static {
    fn synchronize_elsewhere(&self) -> Option<impl Fn() + Send> {
        ours::limit_of_waits()
    }

    async fn section(&self, nap: Duration) {
        let load = || black_box(&VALUE);
        let found = load();
        found.check(found);
        sleep(nap).await;
        found.check(load());
    }
}

/// Measures the work on `cell`.
fn measure<C: Cell>(cell: C, work: &Work) -> Result<Sample> {
    let cell = Arc::new(cell);
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(Machine::here().cpus)
        .enable_time()
        .build()?;
    let counts = Counts {
        sections: start_tasks(&runtime, &cell, work),
        updates: AtomicU64::new(0),
    };
    let halt = AtomicBool::new(false);

    let (cell, counts, halt) = (&*cell, &counts, &halt);
    let sample = thread::scope(|scope| {
        // Dropped at the end of this closure, by which the tasks are cancelled: an updater that
        // waits for them goes on then.
        let _runtime = runtime;
        let _halt = SetAtEnd(halt);
        if let Some(replace) = C::REPLACE {
            spawn(Builder::new(), scope, move || {
                update_again_and_again(|value| replace(cell, value), &counts.updates, halt, work)
            });
        }
        while !counts.all_have_begun() {
            thread::sleep(PAUSE);
        }

        let mut sample = rates::<C>(counts, work);

        let until = Instant::now() + Duration::from_millis(work.span_ms);
        let here = C::SYNCHRONIZE.map(|wait| {
            spawn(Builder::new(), scope, move || {
                repeat(until, || time(|| wait(cell)))
            })
        });
        let elsewhere = cell.synchronize_elsewhere().map(|wait| {
            spawn(Builder::new(), scope, move || {
                repeat(until, || {
                    thread::sleep(PAUSE);
                    time(&wait)
                })
            })
        });
        if let Some(here) = here {
            sample.add(super::of_waits(&join(here)?));
        }
        if let Some(elsewhere) = elsewhere {
            let median = join(elsewhere)?.value_at_quantile(0.5);
            sample.add([("other_domain_gp_us", median as f64 / 1e3)]);
        }
        anyhow::Ok(sample)
    })?;

    // All tasks are cancelled, so all sections are over: if one were not, this would not return.
    if let Some(synchronize) = C::SYNCHRONIZE {
        synchronize(cell);
    }
    Ok(sample)
}

fn start_tasks<C: Cell>(runtime: &Runtime, cell: &Arc<C>, work: &Work) -> Vec<Arc<Count>> {
    let hold_ms = work.hold_ms;
    let start = |seed| {
        let (cell, count) = (Arc::clone(cell), Arc::new(Count::default()));
        let own = Arc::clone(&count);
        let mut random = fastrand::Rng::with_seed(seed);
        runtime.spawn(async move {
            loop {
                cell.section(Duration::from_millis(random.u64(1..=hold_ms)))
                    .await;
                own.0
                    .store(own.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
        });
        count
    };
    (0..u64::from(work.tasks)).map(start).collect()
}

fn update_again_and_again(
    replace: impl Fn(Value),
    updates: &AtomicU64,
    halt: &AtomicBool,
    work: &Work,
) {
    let pause = Duration::from_micros(work.update_us);
    for number in 1.. {
        if halt.load(Ordering::Relaxed) {
            return;
        }
        replace(Value::numbered(number));
        updates.store(number, Ordering::Relaxed);
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }
}

/// Counts for a span.
fn rates<C: Cell>(counts: &Counts, work: &Work) -> Sample {
    let begun = Instant::now();
    let (sections, updates) = (counts.sections(), counts.updates.load(Ordering::Relaxed));
    thread::sleep(Duration::from_millis(work.span_ms));
    let sections = counts.sections() - sections;
    let updates = counts.updates.load(Ordering::Relaxed) - updates;
    let span = begun.elapsed().as_secs_f64();

    let mut sample = Sample::of([("reads_per_s", sections as f64 / span)]);
    sample.add(C::REPLACE.map(|_| ("updates_per_s", updates as f64 / span)));
    sample
}
