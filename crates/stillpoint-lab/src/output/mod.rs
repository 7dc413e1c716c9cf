//! The figures of a run, for scripts ([`Report`], as JSON) and for people ([`table`], [`plot`]):
//! the same figures.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use crate::choice;
use crate::machine::Machine;
use crate::run::{Case, Curve, Metrics, Spread};

mod file;
pub mod numbers;
pub mod plot;
pub mod table;

pub use file::Output;

/// A figure that an experiment reports.
pub struct Metric {
    /// Its name, the unit in it.
    pub name: &'static str,
    /// Digits after the point in the table; the JSON holds the figure in full.
    pub decimals: usize,
    /// Explanation of the figure, in one line.
    pub about: &'static str,
}

/// Returns a table of metrics: a line with name, decimals and explanation for each.
macro_rules! metrics {
    ($($name:tt $decimals:literal $about:literal;)*) => {
        &[$($crate::output::Metric { name: $name, decimals: $decimals, about: $about }),*]
    };
}
pub(crate) use metrics;

/// Explains the figures of a table in a help text.
pub fn explain(metrics: &'static [Metric]) -> String {
    let figures = metrics.iter().map(|metric| (metric.name, metric.about));
    choice::explain("Figures", figures)
}

/// What a run found, as its JSON file holds it.
#[derive(Serialize)]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// What the run was asked for.
    pub params: Value,
    /// Where it ran.
    pub machine: Machine,
    /// True if the run was broken off, so that rows or rounds are missing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// A row for each case that gave at least one sample.
    pub rows: Vec<Row>,
    /// The scenarios that were asked for and cannot be measured here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
}

/// A scenario that is neither measured nor failed.
#[derive(Serialize)]
pub struct Skipped {
    /// Its name.
    pub scenario: &'static str,
    /// What is missing.
    pub reason: &'static str,
}

/// A case and its medians.
#[derive(Serialize)]
pub struct Row {
    /// The experiment, where the rows are of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<&'static str>,
    /// The subject, variant and scenario.
    #[serde(flatten)]
    pub case: Case,
    /// The medians; what the subject cannot have is absent.
    pub metrics: Metrics,
    /// The least and the greatest value of the rounds, where there were several.
    #[serde(skip_serializing_if = "Spread::is_empty")]
    pub spread: Spread,
    /// The curve of the round whose first figure is the median one, where the experiment has
    /// curves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
    /// Of a simulation: the figures of each run, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Metrics>,
    /// Of a simulation: the longest wait's share of each grace period that it saw, in milliseconds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub longest_ms: Vec<f64>,
}

impl Row {
    /// A row of a single round, without a curve.
    pub fn new(case: Case, metrics: Metrics) -> Self {
        Self {
            experiment: None,
            case,
            metrics,
            spread: Spread::new(),
            curve: None,
            runs: Vec::new(),
            longest_ms: Vec::new(),
        }
    }
}

impl Report {
    /// Writes the report as JSON. That of a run that was broken off goes beside the file, if
    /// there are any figures, which is said on standard error.
    pub fn write_json(&self, mut file: Output) -> Result<()> {
        if self.partial && self.rows.is_empty() && file.is_replaced() {
            return Ok(());
        }
        file.write(&(serde_json::to_string_pretty(self)? + "\n"))?;
        if self.partial {
            let partial = file.commit_partial()?;
            eprintln!(
                "stillpoint: the figures so far are in {}",
                partial.display()
            );
            Ok(())
        } else {
            file.commit()
        }
    }
}

/// True if something could not be written to standard output.
static SILENCED: AtomicBool = AtomicBool::new(false);

/// Prints a line like `println!`, and does not panic: what else a run has to tell, and its files,
/// come all the same. [`exit_code`] knows if it failed.
macro_rules! say {
    ($($arguments:tt)*) => { $crate::output::say_line(format_args!($($arguments)*)) };
}
pub(crate) use say;

/// For [`say!`].
pub fn say_line(line: fmt::Arguments<'_>) {
    if cfg!(test) {
        // The only way to print that the test harness captures.
        return println!("{line}");
    }
    if let Err(error) = writeln!(io::stdout().lock(), "{line}")
        && !SILENCED.swap(true, Ordering::Relaxed)
        // Who has closed a pipe has seen enough.
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        eprintln!("stillpoint: cannot write to standard output: {error}");
    }
}

/// What to exit with instead of `code`: not with success, if something was not printed.
pub fn exit_code(code: ExitCode) -> ExitCode {
    if code == ExitCode::SUCCESS && SILENCED.load(Ordering::Relaxed) {
        ExitCode::FAILURE
    } else {
        code
    }
}
