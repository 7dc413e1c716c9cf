//! The simulations by their command line: the JSON keeps its contract, the table shows the same
//! figures, the seed decides everything.

mod program;
mod refused;

use std::fs;

use program::stillpoint;
use refused::assert_refused;
use serde_json::Value;
use tempfile::TempDir;

/// A run with `--json`, its output and what the file holds.
fn with_json(arguments: &str) -> (String, Value) {
    let folder = TempDir::new().expect("a folder for temporary files");
    let file = folder.path().join("figures.json");
    let run = stillpoint(&format!("sim {arguments} --json {}", file.display()));
    assert_eq!(run.code, 0, "{}", run.err);
    for line in run.err.lines() {
        assert!(
            line.starts_with("stillpoint: "),
            "no progress bar in a pipe: {line}"
        );
    }
    assert!(run.out.contains("; less is better"), "{}", run.out);
    let text = fs::read_to_string(file).expect("the JSON file is there");
    (run.out, serde_json::from_str(&text).expect("it is JSON"))
}

fn rows(json: &Value) -> &Vec<Value> {
    json["rows"].as_array().expect("rows is an array")
}

fn row<'a>(json: &'a Value, subject: &str, variant: &str) -> &'a Value {
    let mut found = rows(json)
        .iter()
        .filter(|row| row["subject"] == subject && row["variant"] == variant);
    let row = found.next().expect("there is such a row");
    assert!(found.next().is_none(), "and no other");
    row
}

fn figure(row: &Value, name: &str) -> f64 {
    row["metrics"][name].as_f64().expect(name)
}

/// Every variant has a row of ours and one of the seed's, all figures of ours in the table.
fn assert_contract(out: &str, json: &Value, experiment: &str, variants: &[&str]) {
    assert_eq!(json["experiment"], experiment);
    assert_eq!(json["params"]["seed"], 1);
    assert!(json["machine"]["cpus"].as_u64() >= Some(1));
    assert_eq!(rows(json).len(), 2 * variants.len());
    for variant in variants {
        let ours = row(json, "stillpoint", variant);
        row(json, "seed", variant);
        let [min, p50, max] = ["min_ms", "p50_ms", "max_ms"].map(|name| figure(ours, name));
        assert!(0.0 < min && min <= p50 && p50 <= max, "{ours}");
        assert!(figure(ours, "fqs_per_gp") >= 0.0);
        for name in ["mean_ms", "p50_ms", "min_ms", "max_ms"] {
            let shown = format!(" {:.3} ", figure(ours, name));
            assert!(out.contains(&shown), "{name}: {out}");
        }
    }
}

#[test]
fn sync_prints_run_by_run_beside_the_seed() {
    let (out, json) = with_json("sync");
    assert_contract(&out, &json, "sync", &["baseline", "fix"]);
    assert_near(
        &json,
        "mean_ms",
        &[("baseline", 10.05), ("fix", 6.03)],
        0.05,
    );
    let baseline = row(&json, "stillpoint", "baseline");
    assert_eq!(baseline["runs"].as_array().map(Vec::len), Some(10));
    assert!(
        out.contains("10.088") && out.contains("9.579"),
        "the seed's own runs: {out}"
    );
}

/// Our figure of each variant is that, more or less.
fn assert_near(json: &Value, name: &str, figures: &[(&str, f64)], tolerance: f64) {
    for (variant, expected) in figures {
        let found = figure(row(json, "stillpoint", variant), name);
        assert!(
            (found / expected - 1.0).abs() < tolerance,
            "{variant}: {found}"
        );
    }
}

#[test]
fn bridge_explains_its_maxima() {
    let (out, json) = with_json("bridge");
    let variants = ["default", "fix", "fix+wake", "wake"];
    assert_contract(&out, &json, "bridge", &variants);
    let medians = [37.2, 31.5, 15.8, 22.5];
    let medians: Vec<_> = variants.into_iter().zip(medians).collect();
    assert_near(&json, "p50_ms", &medians, 0.15);
    for variant in variants {
        let ours = row(&json, "stillpoint", variant);
        let shares = ours["longest_ms"].as_array().expect("shares").iter();
        let shares: f64 = shares.filter_map(Value::as_f64).sum();
        // The longest wait is grace periods and little else.
        assert!(
            (shares / figure(ours, "max_ms") - 1.0).abs() < 0.02,
            "{ours}"
        );
        assert!(figure(ours, "real_s") > 0.0, "{ours}");
        assert!(
            out.contains(&format!("{variant}: the longest wait saw")),
            "{out}"
        );
    }
}

#[test]
fn trace_follows_the_patches() {
    let (out, json) = with_json("trace");
    let variants = ["baseline", "polling", "ipis", "gp_sleep"];
    assert_contract(&out, &json, "trace", &variants);
    let means = [980.0, 620.0, 120.0, 18.0];
    let means: Vec<_> = variants.into_iter().zip(means).collect();
    assert_near(&json, "mean_ms", &means, 0.06);
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    for arguments in [
        "sync --runs 2 --calls 10",
        "bridge --iterations 5",
        "trace --calls 3",
    ] {
        let rows = |arguments: &str| with_json(arguments).1["rows"].clone();
        let first = rows(arguments);
        assert_eq!(first, rows(arguments));
        assert_ne!(first, rows(&format!("{arguments} --seed 2")));
    }
}

const REFUSED: &str = "
sim sync --cpus 4097 => 1..=4096
sim sync --hz 0 => 10..=10000
sim sync --calls 0 => 1..=100000
sim bridge --variants baseline => no variant 'baseline' | default, fix, fix+wake, wake
";

#[test]
fn bad_usage_is_refused_and_explained() {
    assert_refused(REFUSED);
    let help = stillpoint("sim sync --help").out;
    assert!(
        help.contains("Calibration, not prediction") && help.contains("The model leaves out"),
        "{help}"
    );
}
