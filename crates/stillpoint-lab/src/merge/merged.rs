//! What `stillpoint merge` writes, and `report --from` and `torture --replay` read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::input::Ran;
use crate::run::{Metrics, Spread};
use crate::torture::plan::Plan;

/// The experiment's name in the JSON.
pub const NAME: &str = "merge";

/// Results that have been joined.
#[derive(Serialize, Deserialize)]
pub struct Merged {
    /// [`NAME`].
    pub experiment: String,
    /// What was joined.
    pub params: Params,
    /// How many there are of everything. The lists below are cut off where they are too long.
    pub counts: Counts,
    /// Where it ran, and which programs.
    pub machines: Vec<Machines>,
    /// The indices of the job array that have no result: single ones, and ranges such as "3-7".
    pub missing: Vec<String>,
    /// Results of runs that were broken off.
    pub partial: Vec<Named>,
    /// Files that were left out, because another one has the same index, or the same content.
    pub duplicates: Vec<Named>,
    /// Files that could not be merged.
    pub unreadable: Vec<Named>,
    /// Runs that found a fault; and those of broken flavours that found none.
    pub failures: Vec<Failure>,
    /// What has to hold over a sweep.
    pub properties: Vec<Property>,
    /// The figures.
    pub rows: Vec<Row>,
}

/// What was joined.
#[derive(Serialize, Deserialize)]
pub struct Params {
    /// The kind of results: "torture", "sim sync", "scale kfree".
    pub of: String,
    /// The indices that the job array has, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indices: Option<String>,
}

/// How many there are.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Files that were read, those left out among them.
    pub files: u64,
    /// Files whose figures are in the rows.
    pub merged: u64,
    /// Runs of a torture; elsewhere the same as `merged`.
    pub runs: u64,
    /// Runs that failed.
    pub failures: u64,
    /// Properties that do not hold.
    pub broken_properties: u64,
    /// Indices without a result.
    pub missing: u64,
    /// Results of runs that were broken off.
    pub partial: u64,
    /// Files that another one makes superfluous.
    pub duplicates: u64,
    /// Files that could not be merged.
    pub unreadable: u64,
}

impl Counts {
    /// Returns whether all that was asked for has been run and read, and nothing was wrong.
    pub fn is_clean(&self) -> bool {
        !self.has_faults() && self.unreadable == 0
    }

    /// Returns whether a run failed, or is not there, or not as a whole.
    pub fn has_faults(&self) -> bool {
        self.failures > 0 || self.broken_properties > 0 || self.missing > 0 || self.partial > 0
    }
}

#[cfg(test)]
#[test]
fn a_result_with_files_that_could_not_be_read_is_not_clean() {
    let clean = Counts::default();
    assert!(clean.is_clean() && !clean.has_faults());
    let unreadable = Counts {
        unreadable: 1,
        ..clean
    };
    assert!(!unreadable.is_clean() && !unreadable.has_faults());
    let missing = Counts {
        missing: 1,
        ..clean
    };
    assert!(!missing.is_clean() && missing.has_faults());
}

/// Files of one machine and program.
#[derive(Serialize, Deserialize)]
pub struct Machines {
    /// Which.
    #[serde(flatten)]
    pub ran: Ran,
    /// How many.
    pub files: u64,
}

/// A file, and what is the matter with it.
#[derive(Serialize, Deserialize)]
pub struct Named {
    /// Its path, as it was given.
    pub file: String,
    /// The reason.
    pub why: String,
}

/// A run that failed, and all that it takes to repeat it.
#[derive(Serialize, Deserialize)]
pub struct Failure {
    /// The file that it is in.
    pub file: String,
    /// The index of its task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// What was tortured.
    pub flavour: String,
    /// The seed.
    pub seed: u64,
    /// What is wrong: the faults with their numbers, or "not detected".
    pub what: String,
    /// The faults, by name.
    pub faults: BTreeMap<String, f64>,
    /// The command that makes the same choices.
    pub command: String,
    /// Where it ran, and which program.
    #[serde(flatten)]
    pub ran: Ran,
    /// What the run was to do, for `torture --replay`.
    pub plan: Plan,
}

/// What has to hold over a sweep, and whether it does.
#[derive(Serialize, Deserialize)]
pub struct Property {
    /// The property.
    pub name: String,
    /// True if it holds wherever it was looked at.
    pub holds: bool,
    /// How often it was looked at.
    pub looked_at: u64,
    /// Where it does not hold, the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken_at: Vec<String>,
}

/// The figures of one case over all files: sums of a torture's, otherwise means.
#[derive(Serialize, Deserialize)]
pub struct Row {
    /// Whose figures.
    pub subject: String,
    /// In which variant; of a torture, the flavour.
    pub variant: String,
    /// In which scenario, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// The point of a sweep: those parameters that are not the same in all files.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub point: Map<String, Value>,
    /// Runs that have the case.
    pub runs: u64,
    /// The sums, or the means.
    pub metrics: Metrics,
    /// The least and the greatest.
    pub spread: Spread,
    /// The worst value of each figure, and whose it is.
    pub worst: BTreeMap<String, Worst>,
}

impl Row {
    /// The number that a parameter has at this point.
    pub fn at(&self, parameter: &str) -> Option<f64> {
        self.point.get(parameter).and_then(Value::as_f64)
    }

    /// A figure.
    pub fn figure(&self, metric: &str) -> Option<f64> {
        self.metrics.get(metric).copied()
    }
}

/// The worst value of a figure.
#[derive(Clone, Serialize, Deserialize)]
pub struct Worst {
    /// The value.
    pub value: f64,
    /// The file that it is in.
    pub file: String,
    /// The seed of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}
