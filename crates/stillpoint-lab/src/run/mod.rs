//! Runs an experiment's cases: each (case, round) in a fresh process, the cases of a round in an
//! order shuffled by the seed, so that no case always runs first, or always after the same other
//! one.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::array::Task;
use crate::interrupt;

pub mod child;
mod progress;
mod sample;

pub use progress::{Lines, Progress, bar_shown, silence_progress};
pub use sample::{Curve, Metrics, Sample, Spread, median_by, medians, spread};

/// The options that every experiment takes.
#[derive(Clone, Args)]
pub struct Common {
    /// Rounds; every subject is measured once in each, in a process of its own, and medians are
    /// reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Seed of the order in which a round's subjects run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    #[command(flatten)]
    pub task: Task,

    /// Seconds that one measurement may take before it is killed and reported
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout_s: u64,
}

impl Common {
    /// The seed: of a job array's task, one of its own.
    pub fn seed(&self) -> u64 {
        self.seed.wrapping_add(self.task.index.unwrap_or_default())
    }
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

/// A case and what its rounds measured; fewer samples than rounds where some failed.
pub struct Measured {
    /// What was measured.
    pub case: Case,
    /// One sample a round.
    pub samples: Vec<Sample>,
}

/// A round of a case that gave no sample.
pub struct Failure {
    case: Case,
    round: u32,
    error: anyhow::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, round {}: {:#}",
            self.case,
            self.round + 1,
            self.error
        )
    }
}

/// Measures every case by `measure` in as many rounds as it has, from the first on; a failed round
/// is told, and costs no other its sample. An interrupted run ends with what it has.
pub fn rounds(
    cases: Vec<(Case, u32)>,
    common: &Common,
    measure: impl Fn(&Case, Duration) -> Result<Sample>,
) -> (Vec<Measured>, Vec<Failure>) {
    let timeout = Duration::from_secs(common.timeout_s);
    let mut random = fastrand::Rng::with_seed(common.seed());
    let all: Vec<u32> = cases.iter().map(|&(_, rounds)| rounds).collect();
    let mut order: Vec<usize> = (0..cases.len()).collect();
    let mut measured: Vec<Measured> = cases
        .into_iter()
        .map(|(case, _)| Measured {
            case,
            samples: Vec::new(),
        })
        .collect();
    let mut failures = Vec::new();

    let progress = Progress::new(all.iter().map(|&rounds| rounds as usize).sum());
    'run: for round in 0..common.rounds {
        random.shuffle(&mut order);
        for &index in order.iter().filter(|&&index| round < all[index]) {
            let Measured { case, samples } = &mut measured[index];
            let what = format!("round {}: {case}", round + 1);
            progress.begin(&what);
            let outcome = measure(case, timeout);
            // A Ctrl-C goes to the child, too, whose end is no failure then.
            if interrupt::received().is_some() {
                samples.extend(outcome);
                break 'run;
            }
            match outcome {
                Ok(sample) => samples.push(sample),
                Err(error) => failures.push(Failure {
                    case: case.clone(),
                    round,
                    error,
                }),
            }
            progress.end(&what);
        }
    }
    progress.finish();
    (measured, failures)
}
