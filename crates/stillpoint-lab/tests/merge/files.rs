//! A folder of results, and what they are joined to.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Run, stillpoint};

pub struct Folder(pub TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(TempDir::new().expect("a folder for temporary files"))
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn put(&self, name: &str, text: &str) -> String {
        fs::write(self.at(name), text).expect("the folder can be written");
        self.at(name).display().to_string()
    }

    pub fn put_json(&self, name: &str, json: &Value) -> String {
        self.put(name, &json.to_string())
    }

    /// All files of the folder, merged.
    pub fn merge(&self, options: &str) -> (Run, Value) {
        merge(&format!("{} {options}", self.0.path().display()))
    }
}

/// The result of `stillpoint merge`, `null` if there is none.
pub fn merge(arguments: &str) -> (Run, Value) {
    let run = stillpoint(format!("merge {arguments}").trim_end());
    let json = serde_json::from_str(&run.out).unwrap_or_default();
    (run, json)
}

pub fn plan(flavour: &str, seed: u64) -> Value {
    json!({"flavour": flavour, "duration_s": 0.2, "readers": 2, "writers": 1, "fakewriters": 0, "disturbances": [], "turns": "whole",
        "gpwrap": false, "stall_reader_s": 0.05, "stall_service_s": 0.02, "barrier_callbacks": 4, "stat_interval_s": 15.0, "seed": seed})
}

/// A torture's file: one run of so many sections, with so many errors of cookies.
pub fn torture(flavour: &str, index: u64, sections: f64, errors: f64) -> Value {
    let seed = index + 1;
    json!({
        "experiment": "torture",
        "params": {"flavour": flavour, "duration_s": 0.2, "seed": seed, "plans": [plan(flavour, seed)], "index": index, "indices": "0-9"},
        "machine": {"cpus": 2, "kernel": "6.1.0", "membarrier": true, "version": "0.1.0", "commit": "0123456789ab"},
        "rows": [{"subject": "stillpoint", "variant": flavour,
            "metrics": {"reader_sections": sections, "errors": errors, "errors_cookie": errors, "survived_s": 0.2, "stalls": index as f64}}],
    })
}

/// A simulation's file.
pub fn sim(index: u64, cpus: u64, seed: u64, mean_ms: f64) -> Value {
    json!({
        "experiment": "sync",
        "params": {"cpus": cpus, "hz": 1000, "runs": 10, "calls": 100, "seed": seed, "index": index, "constants": {}},
        "machine": {"cpus": 2, "kernel": "6.1.0", "membarrier": true},
        "rows": [
            {"subject": "stillpoint", "variant": "fix", "metrics": {"mean_ms": mean_ms}},
            {"subject": "seed", "variant": "fix", "metrics": {"mean_ms": 6.0}},
        ],
    })
}

pub fn row<'j>(merged: &'j Value, variant: &str) -> &'j Value {
    let rows = merged["rows"].as_array().expect("there are rows");
    rows.iter()
        .find(|row| row["variant"] == variant)
        .expect("it has a row")
}

pub fn names(list: &Value) -> Vec<String> {
    let items = list.as_array().expect("it is a list").iter();
    items
        .map(|item| {
            let file = item["file"].as_str().expect("it names a file");
            let name = Path::new(file).file_name().expect("a name");
            name.to_string_lossy().into_owned()
        })
        .collect()
}
