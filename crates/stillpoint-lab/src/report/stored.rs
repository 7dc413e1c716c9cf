//! The JSON file that a report is drawn from: the parts that ran, and the rows of all of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::host::Host;
use crate::run::{Curve, Metrics, Spread};

/// The experiment's name in the JSON.
pub const NAME: &str = "report";

/// A report's figures.
#[derive(Serialize, Deserialize)]
pub struct Stored {
    /// [`NAME`].
    pub experiment: String,
    /// What was asked for.
    pub params: Params,
    /// The machine and the date.
    pub machine: Host,
    /// The commands of all parts that were planned; absent in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub planned: Vec<String>,
    /// The parts that ran, in their order.
    pub parts: Vec<Part>,
    /// Their figures.
    pub rows: Vec<Row>,
}

/// A report's options.
#[derive(Serialize, Deserialize)]
pub struct Params {
    /// True for `--quick`.
    pub quick: bool,
    /// The seed of everything.
    pub seed: u64,
}

/// One part: a command and its outcome.
#[derive(Clone, Serialize, Deserialize)]
pub struct Part {
    /// The part's name.
    pub name: String,
    /// The command that repeats it.
    pub command: String,
    /// Its duration.
    pub took_s: f64,
    /// Why it failed, if it did; it may have figures even so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Its standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// Its options, from its own JSON.
    #[serde(default)]
    pub params: Value,
}

/// A case of a part, and its figures.
#[derive(Clone, Serialize, Deserialize)]
pub struct Row {
    /// The part's name.
    #[serde(default)]
    pub part: String,
    /// The subject.
    pub subject: String,
    /// The variant.
    pub variant: String,
    /// The scenario, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// The figures.
    pub metrics: Metrics,
    /// The smallest and the largest value of the rounds; empty if the file has none.
    #[serde(default, skip_serializing_if = "Spread::is_empty")]
    pub spread: Spread,
    /// The curve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
    /// What else the part's JSON has; kept, and not drawn.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

impl Row {
    /// Returns whether it is one of Stillpoint's.
    pub fn is_ours(&self) -> bool {
        self.subject == "stillpoint"
    }

    /// Returns a figure.
    pub fn figure(&self, metric: &str) -> Option<f64> {
        self.metrics.get(metric).copied()
    }
}

/// A part's own JSON.
#[derive(Deserialize)]
pub struct Figures {
    /// What was asked for.
    pub params: Value,
    /// What was found.
    pub rows: Vec<Row>,
}

impl Stored {
    /// Reads a file that `stillpoint report` has written.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let wanted = "give --from the JSON file that `stillpoint report` has written";
        let value: Value = serde_json::from_str(&text)
            .with_context(|| format!("{name} is no JSON file; {wanted}"))?;
        match value.get("experiment").and_then(Value::as_str) {
            Some(NAME) => serde_json::from_value(value)
                .with_context(|| format!("{name} is no whole report; {wanted}")),
            Some(other) => bail!("{name} has the figures of `{other}` alone; {wanted}"),
            None => bail!("{name} has no figures of this program; {wanted}"),
        }
    }

    /// Returns the file's text.
    pub fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// Returns the part of this name.
    pub fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name)
    }

    /// Returns a part's rows.
    pub fn rows_of<'s>(&'s self, part: &'s str) -> impl Iterator<Item = &'s Row> {
        self.rows.iter().filter(move |row| row.part == part)
    }

    /// Returns the rows of one of a part's scenarios.
    pub fn scene<'s>(
        &'s self,
        part: &'s str,
        scenario: Option<&'s str>,
    ) -> impl Iterator<Item = &'s Row> {
        self.rows_of(part)
            .filter(move |row| row.scenario.as_deref() == scenario)
    }

    /// Returns one row.
    pub fn row(
        &self,
        part: &str,
        scenario: Option<&str>,
        subject: &str,
        variant: &str,
    ) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| {
            (row.part.as_str(), row.scenario.as_deref()) == (part, scenario)
                && (row.subject.as_str(), row.variant.as_str()) == (subject, variant)
        })
    }

    /// Returns the parts that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.failure.is_some())
    }

    /// Returns the commands of the parts that an interrupted run did not reach.
    pub fn missing(&self) -> impl Iterator<Item = &String> {
        let is_done = |command: &String| self.parts.iter().any(|part| part.command == *command);
        self.planned.iter().filter(move |command| !is_done(command))
    }

    /// Adds a part and its figures.
    pub fn add(&mut self, mut part: Part, figures: Option<Figures>) {
        part.params = Value::Object(Map::new());
        if let Some(figures) = figures {
            part.params = figures.params;
            for mut row in figures.rows {
                row.part.clone_from(&part.name);
                self.rows.push(row);
            }
        }
        self.parts.push(part);
    }
}
