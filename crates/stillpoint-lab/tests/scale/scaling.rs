//! The command `scaling`.

use std::fs;

use tempfile::TempDir;

use crate::{rows, with_json};

#[test]
fn every_experiment_is_measured_and_drawn_with_each_number_of_threads() {
    let folder = TempDir::new().expect("a folder for temporary files");
    let svg = folder.path().join("curves.svg");
    let arguments = "scaling --quick --rounds 1 --threads 2 --output";
    let (run, json) = with_json(&format!("{arguments} {}", svg.display()));
    assert_eq!(run.code, 0, "{}", run.err);
    for experiment in ["read", "kfree", "lru", "vmap", "map", "cache"] {
        for scenario in ["threads-1", "threads-2"] {
            let is_it = |row: &&serde_json::Value| {
                row["experiment"] == experiment && row["scenario"] == scenario
            };
            let subjects = rows(&json).iter().filter(is_it);
            assert!(subjects.count() > 2, "{experiment} {scenario}");
        }
    }
    // A panel for each experiment, with a line for each subject.
    let svg = fs::read_to_string(svg).expect("it is there");
    assert_eq!(svg.matches("<svg").count(), 1 + 6);
    for text in [
        "Read sections",
        "stillpoint guard",
        "papaya",
        "moka",
        "limit",
    ] {
        assert!(svg.contains(text) && run.out.contains(text), "{text}");
    }
}
