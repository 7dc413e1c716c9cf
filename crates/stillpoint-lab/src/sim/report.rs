//! The figures of a simulation beside the seed's: one table for people, one JSON for scripts, the
//! same figures.

use std::process::ExitCode;

use anyhow::Result;
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::Value;

use super::options::Files;
use crate::machine::Machine;
use crate::output::{self, Metric, Row, metric};
use crate::run::{Case, Metrics};

/// The subject of simulated figures, by the lab's contract. They are the kernel's, as the model has
/// it; `kernel` is the real one.
pub const OURS: &str = "stillpoint";

/// The subject of measured ones: what the patch's author saw.
pub const SEED: &str = "seed";

/// A figure's columns, in this order.
pub const METRICS: &[Metric] = &[
    metric("mean_ms", 3, "how long a wait took, on average"),
    metric("p50_ms", 3, "half of the waits took no longer"),
    metric("min_ms", 3, "the shortest wait"),
    metric("max_ms", 3, "the longest wait"),
    metric("real_s", 3, "how long the run took, in virtual time"),
    metric("fqs_per_gp", 2, "scans of the CPUs for a grace period"),
];

/// A row, and what it is made of.
#[derive(Serialize)]
pub struct SimRow {
    /// The subject, variant and figures.
    #[serde(flatten)]
    pub row: Row,
    /// The figures of each run, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Metrics>,
    /// The longest wait's share of each grace period that it saw, in milliseconds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub longest_ms: Vec<f64>,
}

impl SimRow {
    /// A row of nothing but figures.
    pub fn new(subject: &str, variant: &str, metrics: Metrics) -> Self {
        let case = Case {
            subject: subject.to_owned(),
            variant: variant.to_owned(),
            scenario: None,
        };
        Self {
            row: Row::new(case, metrics),
            runs: Vec::new(),
            longest_ms: Vec::new(),
        }
    }

    fn is(&self, subject: &str, like: &Self) -> bool {
        let (own, other) = (&self.row.case, &like.row.case);
        own.subject == subject && own.variant == other.variant
    }
}

/// A simulation's outcome, as the JSON file holds it.
#[derive(Serialize)]
pub struct SimReport {
    /// The experiment's name.
    pub experiment: &'static str,
    /// What was asked for.
    pub params: Value,
    /// Where it ran, which makes no difference.
    pub machine: Machine,
    /// Ours, and the seed's.
    pub rows: Vec<SimRow>,
}

impl SimReport {
    /// Ends the trace and writes the JSON file, if they were asked for.
    pub fn conclude(&self, mut files: Files) -> Result<ExitCode> {
        files.commit_trace()?;
        if let Some(mut file) = files.json {
            output::write_json(self, &mut file)?;
            file.commit()?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Our rows, the seed's figures beside those that it has, and for `headline` the ratio.
    pub fn table(&self, headline: &str) -> String {
        let has = |subject: &str, name: &str| {
            self.rows
                .iter()
                .any(|row| row.row.case.subject == subject && row.row.metrics.contains_key(name))
        };
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        let mut header = vec!["variant"];
        for metric in METRICS.iter().filter(|metric| has(OURS, metric.name)) {
            header.push(metric.name);
            if has(SEED, metric.name) {
                header.push(SEED);
                header.extend((metric.name == headline).then_some("x seed"));
            }
        }
        table.set_header(header);
        for ours in self.rows.iter().filter(|row| row.row.case.subject == OURS) {
            let seed = self.rows.iter().find(|row| row.is(SEED, ours));
            let mut cells = vec![Cell::new(&ours.row.case.variant)];
            for metric in METRICS.iter().filter(|metric| has(OURS, metric.name)) {
                let figure = ours.row.metrics.get(metric.name).copied();
                cells.push(number(figure, metric.decimals));
                if has(SEED, metric.name) {
                    let theirs = seed
                        .and_then(|seed| seed.row.metrics.get(metric.name))
                        .copied();
                    cells.push(number(theirs, metric.decimals));
                    if metric.name == headline {
                        cells.push(number(
                            figure.zip(theirs).map(|(ours, theirs)| ours / theirs),
                            3,
                        ));
                    }
                }
            }
            table.add_row(cells);
        }
        table.to_string()
    }

    /// The runs of every variant one by one, ours beside the seed's, as the seed prints them.
    pub fn table_of_runs(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header([
            "variant", "run", "mean_ms", SEED, "min_ms", SEED, "max_ms", SEED,
        ]);
        for ours in self.rows.iter().filter(|row| row.row.case.subject == OURS) {
            let seed = self.rows.iter().find(|row| row.is(SEED, ours));
            for (index, run) in ours.runs.iter().enumerate() {
                let theirs = seed.and_then(|seed| seed.runs.get(index));
                let mut cells = vec![
                    Cell::new(&ours.row.case.variant),
                    number(Some((index + 1) as f64), 0),
                ];
                for name in ["mean_ms", "min_ms", "max_ms"] {
                    cells.push(number(run.get(name).copied(), 3));
                    cells.push(number(theirs.and_then(|run| run.get(name)).copied(), 3));
                }
                table.add_row(cells);
            }
        }
        table.to_string()
    }
}

fn number(value: Option<f64>, decimals: usize) -> Cell {
    let text = value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"));
    Cell::new(text).set_alignment(CellAlignment::Right)
}
