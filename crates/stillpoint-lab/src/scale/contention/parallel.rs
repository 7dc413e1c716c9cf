//! Measures an operation while many threads run it at once.

use std::sync::Barrier;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::turns::Operation;
use crate::run::{Curve, Metrics, Sample};
use crate::scale::spawn;

/// With fewer processors threads take turns, and a figure says nothing of what they share.
const FEWEST_PROCESSORS: usize = 4;

/// How long the threads run.
const SPAN: Duration = Duration::from_millis(300);

/// Runs between two looks at the clock.
const RUNS: u64 = 64;

/// How many threads an operation is timed with: 1, 2, 4 and so on up to the machine's processors.
pub fn counts_of_threads() -> impl Iterator<Item = u32> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let enough = processors >= FEWEST_PROCESSORS;
    (0..u32::BITS)
        .map(|power| 1 << power)
        .take_while(move |&threads| enough && threads as usize <= processors)
}

/// A thread's time for an operation, of which a run has so many.
pub fn time<O: Operation>(
    threads: usize,
    per_run: usize,
    make: impl Fn(usize) -> O + Sync,
) -> Result<Sample> {
    let together = Barrier::new(threads);
    let runs: Vec<(u64, Duration)> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                let (together, make) = (&together, &make);
                spawn(Builder::new(), scope, move || {
                    let mut operation = make(thread);
                    together.wait();
                    let begun = Instant::now();
                    let mut runs = 0;
                    while begun.elapsed() < SPAN {
                        for _ in 0..RUNS {
                            operation.before();
                            operation.run();
                        }
                        runs += RUNS;
                    }
                    (runs, begun.elapsed())
                })
            })
            .collect();
        started
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked")))
            .collect::<Result<_>>()
    })?;
    let all = runs.iter().map(|(runs, _)| runs).sum::<u64>() as usize * per_run;
    let spent: Duration = runs.iter().map(|(_, spent)| spent).sum();
    let ns = spent.as_nanos() as f64 / all as f64;
    Ok(Sample {
        metrics: Metrics::from([("ns_per_op".to_owned(), ns)]),
        curve: Curve::new(),
    })
}
