//! Runs an experiment's cases: each (case, round) in a fresh process, the cases of a round in an
//! order shuffled by the seed, so that no case always runs first, or always after the same other
//! one.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::interrupt;

pub mod child;
mod progress;
mod sample;

pub use progress::{Progress, bar_shown, silence_progress};
pub use sample::{Curve, Metrics, Sample, Spread, median_by, medians, metrics, spread};

/// The options that every experiment takes.
#[derive(Clone, Args)]
pub struct Common {
    /// Rounds; every subject is measured once in each, in its own process, and medians are
    /// reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Seed of the order in which a round's subjects run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Seconds that one measurement may take before it is killed and reported
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout_s: u64,
}

/// What is measured: one subject in one of its variants, and one scenario.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// `stillpoint`, a peer by its crate's name, or `limit`.
    pub subject: String,
    /// The subject's way of doing the work; `default` where it has one only.
    pub variant: String,
    /// What goes on around it; absent where the experiment has one scenario only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
}

impl Case {
    /// Returns the case of these names.
    pub fn new(subject: &str, variant: &str, scenario: Option<&str>) -> Self {
        Self {
            subject: subject.to_owned(),
            variant: variant.to_owned(),
            scenario: scenario.map(ToOwned::to_owned),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)?;
        if self.variant != "default" {
            write!(f, " {}", self.variant)?;
        }
        match &self.scenario {
            Some(scenario) => write!(f, " in {scenario}"),
            None => Ok(()),
        }
    }
}

/// A round of a case that gave no sample.
pub struct Failure {
    case: Case,
    round: u32,
    error: anyhow::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, round, error } = self;
        write!(f, "{case}, round {}: {error:#}", round + 1)
    }
}

/// Measures every case by `measure` in as many rounds as it has, from the first on, and returns each
/// case with its samples. A failed round is told, and costs no other its sample. An interrupted run
/// ends with what it has.
///
/// What is `untimed` comes behind the others of its round, as many at a time as there are processors.
pub fn rounds(
    cases: Vec<(Case, u32)>,
    common: &Common,
    untimed: impl Fn(&Case) -> bool,
    measure: impl Fn(&Case, Duration) -> Result<Sample> + Sync,
) -> (Vec<(Case, Vec<Sample>)>, Vec<Failure>) {
    let timeout = Duration::from_secs(common.timeout_s);
    let mut random = fastrand::Rng::with_seed(common.seed);
    let (cases, all): (Vec<Case>, Vec<u32>) = cases.into_iter().unzip();
    let mut order: Vec<usize> = (0..cases.len()).collect();
    let mut samples = vec![Vec::new(); cases.len()];
    let mut failures = Vec::new();
    let processors = thread::available_parallelism().map_or(1, usize::from);

    let progress = Progress::new(all.iter().map(|&rounds| rounds as usize).sum());
    for round in 0..common.rounds {
        random.shuffle(&mut order);
        let what = |index: usize| format!("round {}: {}", round + 1, cases[index]);
        let mut note = |index: usize, outcome: Result<Sample>| {
            match outcome {
                Ok(sample) => samples[index].push(sample),
                // A Ctrl-C goes to the child, too, whose end is no failure then.
                Err(_) if interrupt::received().is_some() => return,
                Err(error) => failures.push(Failure {
                    case: cases[index].clone(),
                    round,
                    error,
                }),
            }
            progress.end(&what(index));
        };
        let due = order.iter().copied().filter(|&index| round < all[index]);
        let (together, alone): (Vec<usize>, Vec<usize>) =
            due.partition(|&index| untimed(&cases[index]));
        for (due, most) in [(alone, 1), (together, processors)] {
            let begin = |&index: &usize| progress.begin(&what(index));
            let work = |index: usize| measure(&cases[index], timeout);
            some_at_a_time(&due, most, begin, work, &mut note);
        }
        if interrupt::received().is_some() {
            break;
        }
    }
    progress.finish();
    (cases.into_iter().zip(samples).collect(), failures)
}

/// Does `work` on each of `due`, on `threads` threads at a time, until the run is interrupted. This
/// thread tells what one of them begins, and notes what comes of it.
fn some_at_a_time<T: Send>(
    due: &[usize],
    most: usize,
    begin: impl Fn(&usize),
    work: impl Fn(usize) -> T + Sync,
    mut note: impl FnMut(usize, T),
) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..most.min(due.len()) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                while interrupt::received().is_none()
                    // Relaxed: each is taken once, and they do not change.
                    && let Some(&index) = due.get(next.fetch_add(1, Ordering::Relaxed))
                    && sender.send((index, None)).is_ok()
                {
                    let _ = sender.send((index, Some(work(index))));
                }
            });
        }
        drop(sender);
        for (index, outcome) in receiver {
            match outcome {
                None => begin(&index),
                Some(outcome) => note(index, outcome),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn as_many_as_are_asked_for_are_at_work_at_a_time() {
        for most in [1, 2] {
            let (barrier, at_work) = (Barrier::new(most), AtomicUsize::new(0));
            let work = |index: usize| {
                assert!(at_work.fetch_add(1, Ordering::Relaxed) < most);
                barrier.wait();
                at_work.fetch_sub(1, Ordering::Relaxed);
                // The next ones begin when all of these have ended.
                barrier.wait();
                10 * index
            };
            let mut noted = Vec::new();
            let note = |index, outcome| noted.push((index, outcome));
            some_at_a_time(&[3, 1, 0, 2], most, |_| {}, work, note);
            noted.sort_unstable();
            assert_eq!(noted, [(0, 0), (1, 10), (2, 20), (3, 30)]);
        }
    }
}
