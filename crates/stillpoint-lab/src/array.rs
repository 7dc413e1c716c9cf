//! Job arrays: what a run has to know of the array that it is a task of. Schedulers give a task
//! nothing but its index; what the index stands for (a flavour and its seeds, a point of a sweep)
//! the command says. `stillpoint merge` joins the tasks' files, and names the indices that are
//! missing.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::Args;
use clap::error::ErrorKind;
use serde::{Serialize, Serializer};

/// The most indices of an array. Slurm's limit is 4,000,001, Kubernetes' 100,000.
const MOST_INDICES: u64 = 10_000_000;

/// The options of a task.
#[derive(Args, Clone, Default, Serialize)]
pub struct Task {
    /// Run as the task with this index of a job array: $SLURM_ARRAY_TASK_ID,
    /// $JOB_COMPLETION_INDEX
    #[arg(long, value_name = "I")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,

    /// All indices of the job array, so that `stillpoint merge` can name those that are missing
    #[arg(long, value_name = "FIRST-LAST", requires = "index")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub indices: Option<Indices>,
}

impl Task {
    /// Refuses an index that is none of the array's.
    pub fn check(&self) -> Result<(), clap::Error> {
        match (self.index, self.indices) {
            (Some(index), Some(indices)) if !indices.contains(index) => Err(clap::Error::raw(
                ErrorKind::ValueValidation,
                format!("--index {index} is not in --indices {indices}\n"),
            )),
            _ => Ok(()),
        }
    }
}

/// An array's indices, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indices {
    first: u64,
    last: u64,
}

impl Indices {
    /// Returns whether the index is one of them.
    pub fn contains(self, index: u64) -> bool {
        self.all().contains(&index)
    }

    /// All of them.
    pub fn all(self) -> RangeInclusive<u64> {
        self.first..=self.last
    }
}

impl FromStr for Indices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .split_once('-')
            .and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        match parsed {
            Some((first, last)) if first <= last && last - first < MOST_INDICES => {
                Ok(Self { first, last })
            }
            _ => Err(format!(
                "say FIRST-LAST, such as 0-19, with at most {MOST_INDICES} indices"
            )),
        }
    }
}

impl fmt::Display for Indices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl Serialize for Indices {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_a_range_with_both_ends() {
        let indices: Indices = "3-19".parse().expect("it is a range");
        assert!(indices.contains(3) && indices.contains(19));
        assert!(!indices.contains(2) && !indices.contains(20));
        assert_eq!(indices.to_string(), "3-19");
        for text in ["", "7", "5-4", "-1-3", "0-x", "0-10000000", "1-2-3"] {
            assert!(text.parse::<Indices>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_index_outside_of_its_array_is_refused() {
        let task = |index| Task {
            index: Some(index),
            indices: "0-9".parse().ok(),
        };
        assert!(task(9).check().is_ok());
        assert!(task(10).check().is_err());
        assert!(Task::default().check().is_ok());
    }
}
