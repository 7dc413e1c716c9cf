//! One experiment: its variants, each in several runs, the seed's figures beside them.

use std::process::ExitCode;

use anyhow::Result;
use kernel_sim::{Constants, Setup, Size};
use serde_json::Value;

use super::measured::Measured;
use super::options::{Common, Files, Variant};
use super::report::{OURS, SEED, SimReport, SimRow};
use crate::choice::Choice;
use crate::machine::Machine;
use crate::output::plot::{self, Axes, Line};
use crate::output::{Output, say};
use crate::run::{Metrics, Progress};

/// The seed's figures for a variant, and those of its runs.
pub type Seed = fn(&str) -> Option<(Metrics, Vec<Metrics>)>;

/// What is simulated.
pub struct Experiment {
    /// Its name on the command line and in the JSON.
    pub name: &'static str,
    /// The machine.
    pub size: Size,
    /// The constants that the variants begin with.
    pub base: Constants,
    /// The variants.
    pub variants: Vec<Variant>,
    /// Runs of each.
    pub runs: usize,
    /// What the JSON says of the command line.
    pub params: Value,
    /// What the seed has.
    pub seed: Seed,
}

/// What the table shows.
const SHOWS: &str = "What a wait for a grace period takes in the model; less is better. `seed` is \
what the patches' authors measured on the kernel, `x seed` the model's figure divided by theirs: 1 \
is a perfect fit.";

/// The variants that were asked for.
pub fn chosen(variants: &[Variant], choice: &Choice) -> Vec<Variant> {
    variants
        .iter()
        .copied()
        .filter(|variant| choice.includes(variant.name))
        .collect()
}

/// What came of it.
pub struct Outcome {
    /// The rows.
    pub report: SimReport,
    files: Files,
    lines: Vec<Line<'static>>,
    title: String,
}

impl Experiment {
    /// Simulates every variant. The runs of one together give its figures.
    pub fn run(self, common: &Common, simulate: impl Fn(Setup) -> Measured) -> Result<Outcome> {
        let Self {
            name,
            size,
            base,
            variants,
            runs,
            mut params,
            seed,
        } = self;
        let constants = variants
            .iter()
            .map(|variant| common.constants(base.clone(), variant, size))
            .collect::<Result<Vec<_>>>()?;
        let mut files = common.create_files()?;
        let progress = Progress::new(variants.len());

        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        for (variant, constants) in variants.iter().zip(&constants) {
            progress.begin(variant.name);
            let mut all = Measured::default();
            let mut each = Vec::new();
            for index in 0..runs {
                let measured = simulate(common.setup(size, constants, index as u64));
                files.write_trace(
                    &format!("{name} {} run {}", variant.name, index + 1),
                    &measured.log,
                )?;
                each.push(measured.metrics());
                all.append(measured);
            }
            progress.end(variant.name);
            let mut row = SimRow::new(OURS, variant.name, all.metrics());
            row.longest_ms = all.longest_ms.clone();
            if runs > 1 {
                row.runs = each;
            }
            lines.push(distribution(variant.name, &all.sorted_ms()));
            rows.push(row);
        }
        progress.finish();

        for variant in &variants {
            if let Some((metrics, runs)) = seed(variant.name) {
                rows.push(SimRow {
                    runs,
                    ..SimRow::new(SEED, variant.name, metrics)
                });
            }
        }
        if let Some(params) = params.as_object_mut() {
            let in_force = variants
                .iter()
                .zip(&constants)
                .map(|(variant, constants)| (variant.name.to_owned(), constants.by_name().into()));
            params.insert("constants".to_owned(), Value::Object(in_force.collect()));
        }
        let title = format!("{name}: {} CPUs, {} Hz", size.cpus, size.hz);
        Ok(Outcome {
            report: SimReport {
                experiment: name,
                params,
                machine: Machine::here(),
                rows,
            },
            files,
            lines,
            title,
        })
    }
}

/// Returns the distribution function of a variant's waits, which come the shortest first.
pub fn distribution(variant: &'static str, sorted_ms: &[f64]) -> Line<'static> {
    let share = |index: usize| index as f64 / sorted_ms.len() as f64;
    let corners = |(index, &ms): (usize, &f64)| [(ms, share(index)), (ms, share(index + 1))];
    Line {
        name: variant.to_owned(),
        subject: variant,
        points: sorted_ms.iter().enumerate().flat_map(corners).collect(),
    }
}

/// Draws which share of the waits took so long at most, a curve for each variant.
fn plot_distributions(file: Output, title: &str, lines: &[Line<'_>]) -> Result<()> {
    let axes = Axes {
        size: (900, 520),
        title,
        names: [
            "milliseconds that a wait took",
            "share of the waits that took no longer",
        ],
        floor: None,
    };
    plot::write(file, &plot::curves(&axes, lines, true)?)
}

impl Outcome {
    /// Replaces the figures of each variant by what `summary` makes of those of its runs, where it
    /// has them.
    pub fn summarise_runs(&mut self, summary: fn(&[Metrics]) -> Metrics) {
        for row in self
            .report
            .rows
            .iter_mut()
            .filter(|row| row.row.case.subject == OURS && !row.runs.is_empty())
        {
            row.row.metrics = summary(&row.runs);
        }
    }

    /// Prints the table, and fills the files.
    pub fn conclude(self, headline: &str) -> Result<ExitCode> {
        say!("{}\n\n{SHOWS}", self.report.table(headline));
        let Self {
            report,
            mut files,
            lines,
            title,
        } = self;
        if let Some(file) = files.plot.take() {
            plot_distributions(file, &title, &lines)?;
        }
        report.conclude(files)
    }
}
