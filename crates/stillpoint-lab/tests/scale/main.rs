//! Small runs of the experiments: the JSON keeps its contract, the table shows the same figures,
//! and a run that fails says so. Times are never judged.

mod cache;
mod kfree;
#[path = "../program/mod.rs"]
mod program;
mod scaling;
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

/// A run that measures what it is asked for: its JSON keeps the contract, and its tables have the same figures.
fn measured(arguments: &str) -> (Run, Value) {
    let (run, json) = with_json(arguments);
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(json["experiment"].as_str(), arguments.split(' ').nth(1));
    let params = json["params"].as_object().expect("an object");
    assert!(params["rounds"].is_u64() && params.get("threads").is_none_or(Value::is_u64));
    let machine = &json["machine"];
    assert!(machine["cpus"].as_u64() >= Some(1) && machine["kernel"].is_string());
    assert!(machine["membarrier"].is_boolean());
    assert_table_agrees(&run.out, &json);
    (run, json)
}

fn rows(json: &Value) -> &Vec<Value> {
    json["rows"].as_array().expect("rows is an array")
}

/// The rows of one scenario.
fn in_scenario<'a>(json: &'a Value, scenario: &str) -> Vec<&'a Value> {
    let mut found: Vec<_> = rows(json).iter().collect();
    found.retain(|row| row["scenario"] == scenario);
    found
}

/// A figure of a subject in a scenario.
fn figure(json: &Value, scenario: &str, subject: &str, name: &str) -> Option<f64> {
    let rows = in_scenario(json, scenario);
    let row = rows.into_iter().find(|row| row["subject"] == subject);
    row.expect("it is measured")["metrics"][name].as_f64()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().expect("it is a string")
}

/// The cases of rows, as words: a variant of ours, a peer, or a peer and its variant.
fn cases<'a>(rows: impl IntoIterator<Item = &'a Value>) -> String {
    let cases = rows
        .into_iter()
        .map(|row| case(text(row, "subject"), text(row, "variant")));
    cases.collect::<Vec<_>>().join(" ")
}

fn case(subject: &str, variant: &str) -> String {
    match (subject, variant) {
        ("stillpoint", variant) => variant.to_owned(),
        (peer, "default") => peer.to_owned(),
        (peer, variant) => format!("{peer}/{variant}"),
    }
}

/// The cases of an experiment, or of one of its scenarios, that this build can measure, as `--list` has them.
fn listed(experiment: &str, scenario: Option<&str>) -> String {
    let list = stillpoint("scale --list").out;
    let cases = list.lines().filter_map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        let is_meant = words[0] == experiment
            && scenario.is_none_or(|scenario| words.last() == Some(&scenario));
        is_meant.then(|| case(words[1], words[2]))
    });
    cases.collect::<Vec<_>>().join(" ")
}

/// A row has these figures and no others: `name`, which is above 0, `name*`, which may be 0, and `name?`, which may
/// be absent; `name~` may be below 0, too. All are finite.
fn assert_figures(row: &Value, figures: &str) {
    let metrics = row["metrics"].as_object().expect("metrics is an object");
    let mut found = 0;
    for spec in figures.split_whitespace() {
        let name = spec.trim_end_matches(['*', '?', '~']);
        let Some(figure) = metrics.get(name).map(Value::as_f64) else {
            assert!(spec.ends_with('?'), "{name}: {row}");
            continue;
        };
        let figure = figure.expect("a number");
        let least = match &spec[name.len()..] {
            "" => f64::MIN_POSITIVE,
            "~" => f64::MIN,
            _ => 0.0,
        };
        let is_share = name.starts_with("hit_ratio") || name.ends_with("_share");
        let most = if is_share { 1.0 } else { f64::MAX };
        assert!((least..=most).contains(&figure), "{name}: {row}");
        found += 1;
    }
    assert_eq!(metrics.len(), found, "{row}");
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
    let (_, json) = measured(&format!("{tiny} --peers none"));
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
fn a_measurement_past_its_time_is_told_and_fails_the_run() {
    let endless = "scale kfree --threads 1 --loops 1000000 --objects 100000 --rounds 1 --peers none --timeout-s 1";
    let (run, json) = with_json(endless);
    assert_eq!(run.code, 1, "{}", run.out);
    for case in ["stillpoint per-page", "limit"] {
        let line = format!("{case}, round 1: killed after 1 s");
        assert!(run.err.contains(&line), "{}", run.err);
    }
    assert!(rows(&json).is_empty());
}

#[test]
fn read_measures_every_peer() {
    let (_, json) = measured("scale read --rounds 1 --threads 2");
    assert_eq!(cases(rows(&json)), listed("read", None));
    rows(&json)
        .iter()
        .for_each(|row| assert_figures(row, "ns_per_pair"));
    let subjects = |scenario| cases(in_scenario(&json, scenario));
    // Who cannot retire has no neighbour that does.
    let (alone, beside) = (subjects("alone"), subjects("beside-flood"));
    let retires = |subject: &&str| !["liburcu-qsbr", "arc-swap", "std-rwlock"].contains(subject);
    assert!(alone.split(' ').filter(retires).eq(beside.split(' ')));
    assert_eq!(alone.contains("liburcu-qsbr"), cfg!(have_liburcu));
    assert!(alone.contains("fences") && alone.contains("limit"));
}

#[test]
fn a_missing_liburcu_is_told_and_the_run_goes_on() {
    let (run, json) = measured(&format!("{TINY} --peers liburcu-memb"));
    let is_measured = cases(rows(&json)).contains("liburcu-memb");
    assert_eq!(is_measured, cfg!(have_liburcu));
    for line in ["liburcu-memb left out", "Install liburcu-dev"] {
        assert_eq!(run.err.contains(line), !cfg!(have_liburcu), "{}", run.err);
    }
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
    let (_, json) = measured(&format!("{TINY} --variants call --peers sdd"));
    assert_eq!(cases(rows(&json)), "call sdd limit");
    assert_eq!(json["params"]["variants"], serde_json::json!(["call"]));
}

/// The two builds of one program differ in what becomes of garbage.
#[test]
#[ignore = "builds three programs; a release runs it"]
fn epoch_compares_programs_with_and_without_the_drop_in() {
    let (_, json) =
        measured("scale epoch --rounds 1 --scenarios pin-nested,box-1,prompt,moka-values");
    let metric = |scenario, case, name| {
        let rows = in_scenario(&json, scenario);
        let row = rows.into_iter().find(|row| cases([*row]) == case);
        row.expect("it is measured")["metrics"][name].as_f64()
    };
    for (scenario, case) in [
        ("pin-nested", "drop-in"),
        ("box-1", "limit"),
        ("box-1", "drop-in"),
    ] {
        assert!(metric(scenario, case, "cpu_ns_per_op") > Some(0.0));
    }
    assert!(metric("prompt", "drop-in", "drop_ms").is_some());
    assert_eq!(metric("prompt", "crossbeam-epoch", "drop_ms"), None);
    assert_eq!(metric("moka-values", "drop-in", "left"), Some(0.0));
    assert_eq!(
        metric("moka-values", "crossbeam-epoch", "left"),
        Some(100.0)
    );
}
