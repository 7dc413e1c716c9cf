//! Small runs of the experiments: the JSON keeps its contract, the table shows the same figures,
//! and a run that fails says so. Times are never judged.

mod cache;
mod kfree;
#[path = "../program/mod.rs"]
mod program;
mod server;
mod structures;
mod sync;
mod trace;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, hint,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use serde_json::Value;
use tempfile::TempDir;

use program::{Run, stillpoint};

const TINY: &str = "scale kfree --threads 2 --loops 4 --objects 100 --rounds 1";

/// A run with `--json`, and what the file holds.
fn with_json(arguments: &str) -> (Run, Value) {
    let folder = TempDir::new().expect("a folder for temporary files");
    let file = folder.path().join("figures.json");
    let run = stillpoint(&format!("{arguments} --json {}", file.display()));
    let text = fs::read_to_string(file).expect("the JSON file is there");
    (run, serde_json::from_str(&text).expect("it is JSON"))
}

fn rows(json: &Value) -> &Vec<Value> {
    json["rows"].as_array().expect("rows is an array")
}

/// The cases of an experiment that this build can measure, as `--list` has them, in the table's
/// order.
fn listed(experiment: &str) -> Vec<(String, String)> {
    let list = stillpoint("scale --list").out;
    let of_experiment =
        list.lines()
            .filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
                [name, subject, variant, ..] => {
                    (name == experiment).then(|| (subject.to_owned(), variant.to_owned()))
                }
                _ => panic!("{line}"),
            });
    let cases: Vec<_> = of_experiment.collect();
    assert!(cases.len() > 3, "{list}");
    cases
}

#[track_caller]
fn assert_all_measured(json: &Value, experiment: &str) {
    let listed = listed(experiment);
    let listed: Vec<_> = listed
        .iter()
        .map(|(subject, variant)| (subject.as_str(), variant.as_str()))
        .collect();
    assert_eq!(cases(json), listed);
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().expect("subject and variant are strings")
}

/// Subject and variant of every row.
fn cases(json: &Value) -> Vec<(&str, &str)> {
    rows(json)
        .iter()
        .map(|row| (text(row, "subject"), text(row, "variant")))
        .collect()
}

/// The contract's outer keys, and a machine that could exist.
fn assert_contract(json: &Value, experiment: &str) {
    assert_eq!(json["experiment"], experiment);
    assert!(json["params"]["rounds"].is_u64());
    assert!(json["params"]["threads"].is_u64());
    assert!(json["machine"]["cpus"].as_u64() >= Some(1));
    assert!(json["machine"]["kernel"].is_string());
    assert!(json["machine"]["membarrier"].is_boolean());
}

/// A row's curve over these axes, whose first numbers grow.
fn curve(row: &Value, x: &str, y: &str) -> Vec<(f64, f64)> {
    let curve = &row["curve"];
    assert_eq!(
        (curve["x"].as_str(), curve["y"].as_str()),
        (Some(x), Some(y)),
        "{row}"
    );
    let points: Vec<(f64, f64)> =
        serde_json::from_value(curve["points"].clone()).expect("pairs of numbers");
    assert!(
        !points.is_empty() && points.is_sorted_by(|a, b| a.0 < b.0),
        "{row}"
    );
    points
}

/// Every figure of the JSON stands in a row of a table for the case, as far as the table writes it out,
/// and nothing else does. The tables fit the screen.
fn assert_table_agrees(out: &str, json: &Value) {
    let mut shown: Vec<BTreeMap<String, String>> = Vec::new();
    for table in out.split("\n\n").filter(|text| text.starts_with('|')) {
        assert!(table.lines().all(|line| line.len() <= 110), "{table}");
        let mut lines = table.lines().map(|line| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        });
        let header = lines.next().expect("a header");
        let cells = lines
            .skip(1)
            .map(|cells| header.iter().cloned().zip(cells).collect());
        shown.extend(cells);
    }
    for row in rows(json) {
        let is_of_case = |cells: &&BTreeMap<String, String>| {
            ["scenario", "subject", "variant"].iter().all(|name| {
                cells.get(*name).map(String::as_str) == row.get(name).and_then(Value::as_str)
            })
        };
        let metrics = row["metrics"].as_object().expect("metrics is an object");
        let mut figures = 0;
        for (name, cell) in shown.iter().filter(is_of_case).flatten() {
            let Some(figure) = metrics.get(name) else {
                let is_named =
                    ["scenario", "subject", "variant", "x limit"].contains(&name.as_str());
                assert!(is_named || cell == "-", "{name}: {cell}");
                continue;
            };
            let decimals = cell.split_once('.').map_or(0, |(_, digits)| digits.len());
            let figure = figure.as_f64().expect("a number");
            assert_eq!(&format!("{figure:.decimals$}"), cell, "{name}");
            figures += 1;
        }
        assert_eq!(figures, metrics.len(), "each figure has a column: {row}");
    }
    let cases: BTreeSet<_> = shown
        .iter()
        .map(|cells| ["scenario", "subject", "variant"].map(|name| cells.get(name)))
        .collect();
    assert_eq!(cases.len(), rows(json).len());
}

#[test]
fn the_spread_of_several_rounds_is_in_the_json() {
    let tiny = TINY.replace("--rounds 1", "--rounds 3");
    let (run, json) = with_json(&format!("{tiny} --peers none"));
    assert_eq!(run.code, 0, "{}", run.err);
    for row in rows(&json) {
        let metrics = row["metrics"].as_object().expect("metrics is an object");
        let spread = row["spread"].as_object().expect("spread is an object");
        assert!(metrics.keys().eq(spread.keys()));
        for (name, ends) in spread {
            let [least, greatest] = [0, 1].map(|end| ends[end].as_f64().expect("a number"));
            let median = metrics[name].as_f64().expect("a number");
            assert!(least <= median && median <= greatest, "{name}: {ends}");
        }
    }
    let (_, once) = with_json(&format!("{TINY} --peers none"));
    assert!(rows(&once).iter().all(|row| row["spread"].is_null()));
}

#[test]
fn the_plot_names_every_case() {
    let folder = TempDir::new().expect("a folder for temporary files");
    let file = folder.path().join("memory.svg");
    let run = stillpoint(&format!(
        "{TINY} --peers seize,sdd --plot {}",
        file.display()
    ));
    assert_eq!(run.code, 0, "{}", run.err);
    let svg = fs::read_to_string(file).expect("the plot is there");
    assert!(svg.starts_with("<svg"));
    for name in [
        "stillpoint per-page",
        "stillpoint whole-batch",
        "stillpoint call",
        "seize",
        "seize batch-1024",
        "sdd",
        "limit",
    ] {
        assert!(svg.lines().any(|line| line.trim() == name), "{name}");
    }
}

#[test]
fn a_measurement_past_its_time_is_told_and_fails_the_run() {
    let endless = "scale kfree --threads 1 --loops 1000000 --objects 100000 --rounds 1 --peers none --timeout-s 1";
    let (run, json) = with_json(endless);
    assert_eq!(run.code, 1, "{}", run.out);
    assert!(
        run.err
            .contains("stillpoint per-page, round 1: killed after 1 s"),
        "{}",
        run.err
    );
    assert!(
        run.err.contains("limit, round 1: killed after 1 s"),
        "{}",
        run.err
    );
    assert!(rows(&json).is_empty());
}

#[test]
fn read_measures_every_peer() {
    let (run, json) = with_json("scale read --rounds 1 --threads 2");
    assert_eq!(run.code, 0, "{}", run.err);
    assert_contract(&json, "read");
    assert_all_measured(&json, "read");
    assert_eq!(
        cases(&json).contains(&("liburcu-qsbr", "default")),
        cfg!(have_liburcu)
    );
    for row in rows(&json) {
        let figure = row["metrics"]["ns_per_pair"].as_f64().expect("a number");
        assert!(figure.is_finite() && figure > 0.0, "{row}");
    }
    // Who cannot retire has no neighbour that does.
    let subjects = |scenario| {
        in_scenario(&json, scenario)
            .into_iter()
            .map(|row| (text(row, "subject"), text(row, "variant")))
            .collect::<Vec<_>>()
    };
    let reads_only = ["liburcu-qsbr", "arc-swap", "std-rwlock"];
    let mut alone = subjects("alone");
    alone.retain(|(subject, _)| !reads_only.contains(subject));
    assert_eq!(subjects("beside-flood"), alone);
    assert!(alone.contains(&("stillpoint", "fences")) && alone.contains(&("limit", "default")));
    assert_table_agrees(&run.out, &json);
}

#[test]
fn a_missing_liburcu_is_told_and_the_run_goes_on() {
    let (run, json) = with_json(&format!("{TINY} --peers liburcu-memb"));
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(
        cases(&json).iter().any(|case| case.0 == "liburcu-memb"),
        cfg!(have_liburcu)
    );
    assert_eq!(
        run.err.contains("liburcu-memb left out"),
        !cfg!(have_liburcu)
    );
    assert_eq!(run.err.contains("Install liburcu-dev"), !cfg!(have_liburcu));
}

/// A machine is busy, and this is said, when its processors are kept from the run; what the run
/// itself does is none of that, which the unit tests of `load` have.
#[test]
fn a_busy_machine_is_told() {
    let over = AtomicBool::new(false);
    let (run, json) = thread::scope(|scope| {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..processors {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        let found = with_json("scale read --rounds 3 --scenarios alone --peers none");
        over.store(true, Ordering::Relaxed);
        found
    });
    assert_eq!(run.code, 0, "{}", run.err);
    let load = &json["machine"]["load"];
    assert_eq!(load["busy"], true, "{load}");
    assert!(
        run.out.contains("\nbusy machine: other programs took "),
        "{}",
        run.out
    );
    let share = |name: &str| load[name].as_f64().expect("a number");
    assert!(share("others") > 0.0 && share("own") > 0.0, "{load}");
    assert!(share("steal") >= 0.0 && share("before") >= 0.0, "{load}");
}

#[test]
fn variants_restrict_stillpoint_alone() {
    let (run, json) = with_json(&format!("{TINY} --variants call --peers sdd"));
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(
        cases(&json),
        [
            ("stillpoint", "call"),
            ("sdd", "default"),
            ("limit", "default")
        ]
    );
    assert_eq!(json["params"]["variants"], serde_json::json!(["call"]));
}

/// The rows of one scenario, which have it.
fn in_scenario<'a>(json: &'a Value, scenario: &str) -> Vec<&'a Value> {
    rows(json)
        .iter()
        .filter(|row| text(row, "scenario") == scenario)
        .collect()
}

/// The two builds of one program differ in what becomes of garbage.
#[test]
#[ignore = "builds three programs: the gate runs it beside the drop-in package's tests"]
fn epoch_compares_programs_with_and_without_the_drop_in() {
    let (run, json) =
        with_json("scale epoch --rounds 1 --scenarios pin-nested,box-1,prompt,moka-values");
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(json["experiment"], "epoch");
    assert_table_agrees(&run.out, &json);
    let metric = |scenario, variant, name: &str| {
        let row = in_scenario(&json, scenario)
            .into_iter()
            .find(|row| [&row["subject"], &row["variant"]].contains(&&variant))
            .expect("it is measured");
        row["metrics"][name].as_f64()
    };
    let (ours, original) = (Value::from("drop-in"), Value::from("crossbeam-epoch"));
    assert!(metric("pin-nested", ours.clone(), "cpu_ns_per_op") > Some(0.0));
    let limit = metric("box-1", Value::from("limit"), "cpu_ns_per_op");
    assert!(limit > Some(0.0));
    assert!(metric("box-1", ours.clone(), "cpu_ns_per_op") > Some(0.0));
    assert!(metric("prompt", ours.clone(), "drop_ms").is_some());
    assert_eq!(metric("prompt", original.clone(), "drop_ms"), None);
    assert_eq!(metric("moka-values", ours, "left"), Some(0.0));
    assert_eq!(metric("moka-values", original, "left"), Some(100.0));
}
