//! The figures of a run, for scripts ([`Report`], as JSON) and for people ([`table`], [`plot`]):
//! the same figures.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use crate::machine::Machine;
use crate::run::{Case, Curve, Metrics};

pub mod plot;
pub mod table;

/// A figure that an experiment reports.
pub struct Metric {
    /// Its name, the unit in it.
    pub name: &'static str,
    /// Digits after the point in the table; the JSON holds the figure in full.
    pub decimals: usize,
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
    /// A row for each case that gave at least one sample.
    pub rows: Vec<Row>,
}

/// A case and its medians.
#[derive(Serialize)]
pub struct Row {
    /// The subject, variant and scenario.
    #[serde(flatten)]
    pub case: Case,
    /// The medians; what the subject cannot have is absent.
    pub metrics: Metrics,
    /// The curve of the round whose first figure is the median one, where the experiment has
    /// curves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
}

impl Row {
    /// A row without a curve.
    pub fn new(case: Case, metrics: Metrics) -> Self {
        Self {
            case,
            metrics,
            curve: None,
        }
    }
}

impl Report {
    /// Writes the report as JSON.
    pub fn write_json(&self, mut file: File) -> Result<()> {
        serde_json::to_writer_pretty(&mut file, self)?;
        writeln!(file)?;
        Ok(())
    }
}

/// Creates a file that the end of a run will fill: a path that cannot be written must be known
/// before the run, not after it.
pub fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot create {}", path.display()))
}
