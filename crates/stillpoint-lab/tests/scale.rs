//! Small runs of the experiments: the JSON keeps its contract, the table shows the same figures,
//! and a run that fails says so. Times are never judged.

mod program;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, hint, thread};

use program::{Run, stillpoint};
use serde_json::Value;
use tempfile::TempDir;

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

/// Every figure of the JSON stands in the table's row for the case, as far as the table writes it
/// out, and nothing else does.
fn assert_table_agrees(out: &str, json: &Value) {
    let mut lines = out
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| {
            line.trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .collect::<Vec<_>>()
        });
    let header = lines.next().expect("a table");
    let table: Vec<_> = lines.skip(1).collect();
    assert_eq!(table.len(), rows(json).len());

    for (row, cells) in rows(json).iter().zip(table) {
        let scenario = row
            .get("scenario")
            .map(|scenario| scenario.as_str().expect("a scenario is a string"));
        let names: Vec<_> = scenario
            .into_iter()
            .chain([text(row, "subject"), text(row, "variant")])
            .collect();
        assert_eq!(cells[..names.len()], names);
        let metrics = row["metrics"].as_object().expect("metrics is an object");
        let mut shown = 0;
        for (name, cell) in header
            .iter()
            .zip(&cells)
            .skip(names.len())
            .filter(|(name, _)| *name != "x limit")
        {
            let Some(figure) = metrics.get(name) else {
                assert_eq!(cell, "-", "{name}");
                continue;
            };
            let decimals = cell.split_once('.').map_or(0, |(_, digits)| digits.len());
            let figure = figure.as_f64().expect("a number");
            assert_eq!(&format!("{figure:.decimals$}"), cell, "{name}");
            shown += 1;
        }
        assert_eq!(shown, metrics.len(), "each figure has a column");
    }
}

/// Which of the kfree figures a subject has.
fn kfree_figures(subject: &str, variant: &str) -> BTreeSet<&'static str> {
    let mut figures = BTreeSet::from(["footprint_mib", "ns_per_object", "peak_mib", "total_s"]);
    if matches!(
        subject,
        "stillpoint" | "haphazard" | "ps-reclaim" | "liburcu-memb"
    ) {
        figures.insert("drain_ms");
    }
    if subject == "stillpoint" {
        figures.insert("grace_periods");
        // Readers that fence need no membarriers.
        if variant != "fences" {
            figures.insert("membarriers_per_s");
        }
    }
    figures
}

fn assert_kfree_figures(json: &Value) {
    for row in rows(json) {
        let metrics = row["metrics"].as_object().expect("metrics is an object");
        let names: BTreeSet<_> = metrics.keys().map(String::as_str).collect();
        let expected = kfree_figures(text(row, "subject"), text(row, "variant"));
        assert_eq!(names, expected, "{row}");
        for (name, figure) in metrics {
            let figure = figure.as_f64().expect("a number");
            assert!(figure.is_finite(), "{name}: {row}");
            match name.as_str() {
                // Work this small can end before a grace period does, and without a change in
                // resident pages.
                "grace_periods" | "membarriers_per_s" | "peak_mib" => {
                    assert!(figure >= 0.0, "{name}: {row}")
                }
                "footprint_mib" => {}
                _ => assert!(figure > 0.0, "{name}: {row}"),
            }
        }
        // The samples cover the run, and miss some of the kernel's mark.
        let points = curve(row, "since_start_s", "above_start_mib");
        let total = metrics["total_s"].as_f64().expect("a number");
        assert!(
            points[0].0 >= 0.0 && points[points.len() - 1].0 >= total,
            "{row}"
        );
    }
}

#[test]
fn kfree_without_peers() {
    let (run, json) = with_json(&format!("{TINY} --peers none --seed 7"));
    assert_eq!(run.code, 0, "{}", run.err);
    let lines: Vec<_> = run.err.lines().collect();
    assert_eq!(lines.len(), 8, "no progress bar in a pipe: {}", run.err);
    for (number, line) in (1..).zip(&lines) {
        let begins = format!("stillpoint: {number} of 8: round 1: ");
        assert!(line.starts_with(&begins), "{}", run.err);
    }
    assert_contract(&json, "kfree");
    assert_eq!(json["params"]["seed"], 7);
    assert_eq!(json["params"]["peers"], Value::Array(Vec::new()));
    assert_eq!(
        cases(&json),
        [
            ("stillpoint", "per-page"),
            ("stillpoint", "whole-batch"),
            ("stillpoint", "call"),
            ("stillpoint", "fences"),
            ("stillpoint", "budget-1"),
            ("stillpoint", "budget-2"),
            ("stillpoint", "budget-4"),
            ("limit", "default")
        ]
    );
    assert_kfree_figures(&json);
    assert_table_agrees(&run.out, &json);
}

#[test]
#[ignore = "steps through millions of instructions: for an optimised build"]
fn kfree_counts_shared_lines_if_asked_to() {
    let (run, json) = with_json(&format!("{TINY} --peers none --variants per-page --count"));
    assert_eq!(run.code, 0, "{}", run.err);
    let row = &rows(&json)[0];
    assert_eq!(row["variant"], "per-page");
    let count = &row["metrics"]["shared_rmw_per_object"];
    if cfg!(target_arch = "x86_64") {
        // A fast path with none, and a few for each page.
        let count = count.as_f64().expect("a number");
        assert!(count > 0.0 && count < 0.1, "{row}");
    } else {
        assert!(count.is_null(), "{row}");
    }
    assert_table_agrees(&run.out, &json);
}

#[test]
fn kfree_with_all_peers() {
    let (run, json) = with_json(&format!(
        "{TINY} --readers 1 --reader-hold-us 50 --peers all"
    ));
    assert_eq!(run.code, 0, "{}", run.err);
    assert_all_measured(&json, "kfree");
    let measured = cases(&json);
    for peer in ["crossbeam-epoch", "seize"] {
        assert!(measured.contains(&(peer, "default")), "{measured:?}");
    }
    assert_eq!(
        measured.contains(&("liburcu-memb", "one-worker")),
        cfg!(have_liburcu),
        "{measured:?}"
    );
    assert_kfree_figures(&json);
    assert_table_agrees(&run.out, &json);
}

#[test]
fn kfree_prints_the_kernels_line_for_each_variant_of_ours_if_asked_for() {
    let (run, _) = with_json(&format!("{TINY} --peers none"));
    assert!(!run.out.contains("kfree'ers"), "{}", run.out);
    let (run, json) = with_json(&format!("{TINY} --peers none --kernel-format"));
    let ours = rows(&json)
        .iter()
        .filter(|row| row["subject"] == "stillpoint");
    let lines: Vec<_> = run
        .out
        .lines()
        .filter(|line| line.starts_with("Total time taken"))
        .collect();
    let expected: Vec<_> = ours
        .map(|row| {
            let figure = |name: &str| row["metrics"][name].as_f64().expect("a number");
            format!(
                "Total time taken by all kfree'ers: {:.0} ns, loops: 4, batches: {:.0}, memory footprint: {:.0}MB",
                figure("total_s") * 1e9,
                figure("grace_periods"),
                figure("footprint_mib").floor()
            )
        })
        .collect();
    assert_eq!(lines, expected);
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
fn every_object_size_is_measured() {
    for size in [16, 32, 64, 128, 256, 512, 1024, 2048, 4096] {
        let (run, json) = with_json(&format!("{TINY} --object-size {size} --peers haphazard"));
        assert_eq!(run.code, 0, "{size}: {}", run.err);
        assert_eq!(json["params"]["object_size"], size);
        assert_eq!(rows(&json).len(), 9);
    }
}

#[test]
fn the_plot_names_every_case() {
    let folder = TempDir::new().expect("a folder for temporary files");
    let file = folder.path().join("memory.svg");
    let run = stillpoint(&format!(
        "{TINY} --peers seize,haphazard --plot {}",
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
        "haphazard",
        "limit",
    ] {
        assert!(svg.lines().any(|line| line.trim() == name), "{name}");
    }
}

#[test]
fn time_against_memory_is_drawn_and_judged() {
    let folder = TempDir::new().expect("a folder for temporary files");
    let file = folder.path().join("tradeoff.svg");
    let run = stillpoint(&format!(
        "{TINY} --variants budget-1,budget-4 --peers seize --tradeoff {}",
        file.display()
    ));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("\nTime against memory: "), "{}", run.out);
    let svg = fs::read_to_string(file).expect("the plot is there");
    assert!(svg.starts_with("<svg"));
    for name in [
        "1 stillpoint budget-1",
        "2 stillpoint budget-4",
        "3 seize",
        "4 seize batch-64",
        "5 seize batch-1024",
        "6 seize batch-4096",
        "7 limit",
    ] {
        assert!(svg.lines().any(|line| line.trim() == name), "{name}");
    }
    // Without a peer there is nothing to judge.
    let run = stillpoint(&format!("{TINY} --peers none"));
    assert!(!run.out.contains("Time against memory"), "{}", run.out);
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

#[test]
fn a_peer_that_needs_a_newer_rust_is_told_and_the_run_goes_on() {
    let (run, json) = with_json(&format!("{TINY} --peers kovan"));
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(
        cases(&json).iter().any(|case| case.0 == "kovan"),
        cfg!(feature = "kovan")
    );
    assert_eq!(
        run.err.contains("--features kovan"),
        !cfg!(feature = "kovan")
    );
}

#[test]
fn a_peer_behind_a_feature_is_not_missed_unless_it_is_named() {
    let (run, _) = with_json(TINY);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(!run.err.contains("kovan left out"), "{}", run.err);
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
fn every_table_has_a_sentence_below_it() {
    for experiment in ["kfree", "read", "sync", "trace", "lru", "vmap", "map"] {
        let tiny = match experiment {
            "kfree" => "--threads 2 --loops 4 --objects 100",
            "read" => "--threads 1 --scenarios beside-flood",
            "sync" => "--scenarios idle",
            "trace" => "--scenarios idle --span-ms 10",
            "lru" => "--scenarios threads-2 --tenants 10 --lists 1",
            "map" => "--scenarios exchange-1 --capacity-log2 10",
            _ => "--scenarios alloc-pool",
        };
        let run = stillpoint(&format!(
            "--quiet scale {experiment} {tiny} --rounds 1 --peers none --variants all"
        ));
        assert_eq!(run.code, 0, "{}", run.err);
        let (_, below) = run.out.rsplit_once("|\n\n").expect("a table");
        assert!(
            below.contains(" is better") && below.contains("`x limit` "),
            "{}",
            run.out
        );
    }
}

#[test]
fn variants_restrict_stillpoint_alone() {
    let (run, json) = with_json(&format!("{TINY} --variants call --peers haphazard"));
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(
        cases(&json),
        [
            ("stillpoint", "call"),
            ("haphazard", "default"),
            ("limit", "default")
        ]
    );
    assert_eq!(json["params"]["variants"], serde_json::json!(["call"]));
}

const TIMES: [&str; 5] = ["mean_us", "min_us", "p50_us", "p99_us", "max_us"];

/// The rows of one scenario, which have it.
fn in_scenario<'a>(json: &'a Value, scenario: &str) -> Vec<&'a Value> {
    rows(json)
        .iter()
        .filter(|row| text(row, "scenario") == scenario)
        .collect()
}

/// Every row has the times and the cost, and of `others` those that it can have.
fn assert_sync_figures(row: &Value, others: &[&str]) {
    let metrics = row["metrics"].as_object().expect("metrics is an object");
    let figure = |name: &str| metrics.get(name).and_then(Value::as_f64);
    let times = TIMES.map(|name| figure(name).expect(name));
    assert!(
        times.iter().all(|time| time.is_finite() && *time > 0.0),
        "{row}"
    );
    let [mean, min, p50, p99, max] = times;
    assert!(
        min <= p50 && p50 <= p99 && p99 <= max && min <= mean && mean <= max,
        "{row}"
    );
    // A distribution goes from the fastest wait towards the slowest; its times are rounded up, to
    // three digits.
    let points = curve(row, "percentile", "wait_us");
    assert!(
        points.is_sorted_by(|a, b| a.1 <= b.1)
            && points[0].0 == 0.0
            && points[points.len() - 1].0 < 100.0,
        "{row}"
    );
    assert!(
        points[0].1 >= min && points[0].1 <= min * 1.01 && points[points.len() - 1].1 <= max * 1.01,
        "{row}"
    );
    assert!(
        figure("cpu_us_per_gp").expect("every process takes time") > 0.0,
        "{row}"
    );

    // Only Stillpoint counts grace periods; each ends at least one wait, and perhaps those of
    // others. The only registered thread needs none.
    let ours = text(row, "subject") == "stillpoint";
    let may_need_none = ours && text(row, "scenario") == "idle";
    assert!(
        figure("calls_per_gp").is_some() == ours || may_need_none,
        "{row}"
    );
    assert!(
        figure("calls_per_gp").is_none_or(|calls| calls > 0.0),
        "{row}"
    );
    for name in others {
        assert!(figure(name).expect(name) > 0.0, "{row}");
    }
    let counted = usize::from(figure("calls_per_gp").is_some());
    assert_eq!(
        metrics.len(),
        TIMES.len() + 1 + counted + others.len(),
        "{row}"
    );
}

#[test]
fn sync_without_peers() {
    let (run, json) =
        with_json("scale sync --rounds 1 --scenarios idle,callback --peers none --seed 3");
    assert_eq!(run.code, 0, "{}", run.err);
    assert_contract(&json, "sync");
    assert_eq!(
        json["params"]["scenarios"],
        serde_json::json!(["idle", "callback"])
    );
    let cases = |scenario| {
        in_scenario(&json, scenario)
            .into_iter()
            .map(|row| (text(row, "subject"), text(row, "variant")))
    };
    let ours = ["rcu", "expedited", "qsbr", "service-led", "fences"]
        .map(|variant| ("stillpoint", variant));
    let limit = limit_case(&json);
    assert!(cases("idle").eq(ours.into_iter().chain(limit)));
    assert!(
        cases("callback").eq([("stillpoint", "rcu"), ("stillpoint", "qsbr")]
            .into_iter()
            .chain(limit))
    );
    assert_eq!(
        in_scenario(&json, "idle").len() + in_scenario(&json, "callback").len(),
        rows(&json).len()
    );
    rows(&json)
        .iter()
        .for_each(|row| assert_sync_figures(row, &[]));
    assert_table_agrees(&run.out, &json);
}

/// The limit's case, where the kernel has a membarrier to be it.
fn limit_case(json: &Value) -> Option<(&'static str, &'static str)> {
    (json["machine"]["membarrier"] == true).then_some(("limit", "default"))
}

#[test]
fn sync_beside_readers_and_in_a_herd() {
    let scenarios = "idle16,idle255,busy1,busy-oversub,herd64,bridge,barrier,poll";
    let peers = "liburcu-memb,liburcu-qsbr,sdd,ps-reclaim";
    let (run, json) = with_json(&format!(
        "scale sync --rounds 1 --threads 4 --variants rcu,qsbr,fences --scenarios {scenarios} --peers {peers}"
    ));
    assert_eq!(run.code, 0, "{}", run.err);
    for scenario in scenarios.split(',') {
        let liburcu = match scenario {
            // Debian's liburcu has no polled grace periods.
            "poll" if !cfg!(have_liburcu_poll) => 0,
            _ if !cfg!(have_liburcu) => 0,
            _ => 2,
        };
        // Neither invokes callbacks by itself; ps-reclaim has no cookies.
        let others = match scenario {
            "barrier" => 0,
            "poll" => 1,
            _ => 2,
        };
        let ours = match scenario {
            "barrier" | "poll" => 2,
            _ => 3,
        };
        let peers = liburcu + others;
        let rows = in_scenario(&json, scenario);
        assert_eq!(
            rows.len(),
            ours + peers + limit_case(&json).iter().len(),
            "{scenario}"
        );
        for row in rows {
            let others: &[&str] = match scenario {
                "herd64" => &["calls_per_s"],
                "bridge" => &["total_s"],
                _ => &[],
            };
            assert_sync_figures(row, others);
        }
    }
    assert_table_agrees(&run.out, &json);
}

/// Every figure of one `scale trace` row is there, and no other.
fn assert_trace_figures(row: &Value, membarrier: bool) {
    let waits = ["gp_mean_ms", "gp_p99_ms"].as_slice();
    let mut expected = match (text(row, "scenario"), text(row, "subject")) {
        ("idle", "stillpoint") => [waits, &["read_ns"]].concat(),
        ("idle", "limit") if membarrier => [waits, &["read_ns"]].concat(),
        ("idle", "limit") => vec!["read_ns"],
        ("sleepers", "stillpoint") => [waits, &["exit_to_gp_us"]].concat(),
        ("sleepers", "limit") => vec!["exit_to_gp_us"],
        ("async10000", "stillpoint") => [
            waits,
            &[
                "other_domain_gp_us",
                "reads_per_s",
                "updates_per_s",
                "bytes_per_guard",
            ],
        ]
        .concat(),
        ("async10000", "tokio" | "arc-swap") => vec!["reads_per_s", "updates_per_s"],
        ("async10000", "limit") if membarrier => vec!["other_domain_gp_us", "reads_per_s"],
        ("async10000", "limit") => vec!["reads_per_s"],
        other => panic!("no such case: {other:?}"),
    };
    expected.sort_unstable();
    let metrics = row["metrics"].as_object().expect("metrics is an object");
    let names: Vec<_> = metrics.keys().map(String::as_str).collect();
    assert_eq!(names, expected, "{row}");
    for (name, figure) in metrics {
        let figure = figure.as_f64().expect("a number");
        assert!(figure.is_finite(), "{name}: {row}");
        // On a machine with much else to do, a short span may see no task and no update through.
        let may_be_none = ["reads_per_s", "updates_per_s"].contains(&name.as_str());
        assert!(
            figure > 0.0 || may_be_none && figure == 0.0,
            "{name}: {row}"
        );
    }
}

#[test]
fn trace_measures_every_scenario() {
    let (run, json) = with_json(
        "scale trace --rounds 1 --threads 3 --tasks 50 --hold-ms 2 --span-ms 40 --seed 9",
    );
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(!run.err.contains("left out"), "{}", run.err);
    assert_contract(&json, "trace");
    for (option, value) in [
        ("threads", 3),
        ("tasks", 50),
        ("hold_ms", 2),
        ("span_ms", 40),
        ("update_us", 100),
        ("seed", 9),
    ] {
        assert_eq!(json["params"][option], value, "{option}");
    }
    let ours = [("stillpoint", "native"), ("stillpoint", "read-mb")];
    let limit = ("limit", "default");
    for (scenario, peers) in [
        ("idle", &[][..]),
        ("sleepers", &[]),
        (
            "async10000",
            &[("tokio", "rwlock"), ("arc-swap", "default")],
        ),
    ] {
        let found = in_scenario(&json, scenario)
            .into_iter()
            .map(|row| (text(row, "subject"), text(row, "variant")));
        assert!(
            found.eq(ours.iter().chain(peers).copied().chain([limit])),
            "{scenario}"
        );
    }
    let membarrier = limit_case(&json).is_some();
    rows(&json)
        .iter()
        .for_each(|row| assert_trace_figures(row, membarrier));
    assert_table_agrees(&run.out, &json);
}

#[test]
fn a_live_owned_guard_weighs_at_least_a_record() {
    let (run, json) = with_json(
        "scale trace --rounds 1 --scenarios async10000 --tasks 2 --hold-ms 1 --span-ms 1 --peers none",
    );
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(
        cases(&json),
        [
            ("stillpoint", "native"),
            ("stillpoint", "read-mb"),
            ("limit", "default")
        ]
    );
    for row in rows(&json)
        .iter()
        .filter(|row| row["subject"] == "stillpoint")
    {
        let bytes = row["metrics"]["bytes_per_guard"]
            .as_f64()
            .expect("a number");
        // A record has a cache line of its own, the guard points to it, and neither is a page.
        assert!((72.0..1024.0).contains(&bytes), "{row}");
    }
}

#[test]
fn an_updater_without_pauses_leaves_a_sample() {
    let arguments = "scale trace --rounds 1 --scenarios async10000 --tasks 20 --hold-ms 1 --span-ms 20 --update-us 0 --variants native";
    let (run, json) = with_json(arguments);
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(
        cases(&json),
        [
            ("stillpoint", "native"),
            ("tokio", "rwlock"),
            ("arc-swap", "default"),
            ("limit", "default")
        ]
    );
    assert_eq!(json["params"]["variants"], serde_json::json!(["native"]));
}
/// The scenarios of `scale vmap`, who has a row in each, and which figures.
#[test]
fn vmap_measures_every_subject() {
    let scenarios =
        "find-1000,copy-256,copy-4096-2threads,alloc-pool,random-size-align,purge,purge-single";
    let (run, json) = with_json(&format!(
        "scale vmap --rounds 1 --threads 3 --connections 5 --copy-ms 5 --scenarios {scenarios}"
    ));
    assert_eq!(run.code, 0, "{}", run.err);
    assert_contract(&json, "vmap");
    assert_eq!(json["params"]["connections"], 5);
    let ours = [
        "rcu",
        "one-section",
        "found-once",
        "section-alone",
        "unchecked",
        "node-rwlock",
        "node-spinlock",
        "global-lock",
        "global-mutex",
        "heap",
    ];
    for scenario in scenarios.split(',') {
        let (expected, figures): (Vec<_>, &[&str]) = match scenario {
            "find-1000" => {
                let others = ["std-rwlock-btreemap", "rangemap", "limit"]
                    .map(|subject| (subject, "default"));
                let ours = ["rcu", "section-alone"].map(|variant| ("stillpoint", variant));
                let all = ours.into_iter().chain(others).collect();
                (all, &["check_ns", "find_dependent_ns", "find_ns"])
            }
            "copy-256" | "copy-4096-2threads" => (
                ours.map(|variant| ("stillpoint", variant)).to_vec(),
                &["requests_per_s"],
            ),
            "purge" | "purge-single" => (
                vec![
                    ("stillpoint", "rcu"),
                    ("mmap", "default"),
                    ("limit", "default"),
                ],
                &["purge_ns_per_page"],
            ),
            _ => (
                vec![("stillpoint", "rcu"), ("mmap", "default")],
                &["alloc_free_ns"],
            ),
        };
        let rows = in_scenario(&json, scenario);
        assert!(
            rows.iter()
                .map(|row| (text(row, "subject"), text(row, "variant")))
                .eq(expected),
            "{scenario}"
        );
        for row in rows {
            let metrics = row["metrics"].as_object().expect("metrics is an object");
            assert!(metrics.keys().eq(figures), "{row}");
            assert!(
                metrics.values().all(|figure| figure
                    .as_f64()
                    .is_some_and(|figure| figure.is_finite() && figure > 0.0)),
                "{row}"
            );
        }
    }
    assert_table_agrees(&run.out, &json);
}

#[test]
fn lru_measures_every_variant() {
    let (run, json) = with_json(
        "scale lru --rounds 1 --tenants 50 --lists 4 --counters 2 --mutators 1 --scenarios threads-2,custom",
    );
    assert_eq!(run.code, 0, "{}", run.err);
    assert_contract(&json, "lru");
    assert_eq!(json["params"]["counters"], 2);
    for scenario in ["threads-2", "custom"] {
        let rows = in_scenario(&json, scenario);
        let cases: Vec<_> = rows
            .iter()
            .map(|row| (text(row, "subject"), text(row, "variant")))
            .collect();
        let ours = ["rcu", "spinlock", "mutex"].map(|variant| ("stillpoint", variant));
        assert_eq!(cases, [&ours[..], &[("limit", "default")]].concat());
        for row in rows {
            let metrics = row["metrics"].as_object().expect("metrics is an object");
            let figure = |name: &str| metrics.get(name).and_then(Value::as_f64).expect(name);
            for name in ["counts_per_s", "adds_per_s", "count_ns", "add_p999_us"] {
                assert!(
                    figure(name).is_finite() && figure(name) > 0.0,
                    "{name}: {row}"
                );
            }
            let share = figure("lock_share");
            assert!((0.0..=1.0).contains(&share), "{row}");
            if text(row, "subject") == "limit" {
                assert_eq!(share, 0.0, "there is no lock: {row}");
            }
            assert_eq!(metrics.len(), 5, "{row}");
        }
    }
    assert_table_agrees(&run.out, &json);
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

/// Which figures a subject of `scale map` has in a scenario. A value may be dropped late, or not.
fn map_figures(scenario: &str, subject: &str) -> (&'static [&'static str], bool) {
    let has_reader: &[&str] = &[
        "max_us",
        "p9999_us",
        "p999_us",
        "read_p999_us",
        "read_rest_p999_us",
    ];
    let at_once = ["dashmap", "scc-hashmap", "std-rwlock", "limit"];
    match scenario {
        "get-1000" => (&["dependent_ns", "ns_per_op"], true),
        "growth" | "growth-presized" if subject == "limit" => (&has_reader[..3], true),
        "growth" | "growth-presized" => (has_reader, true),
        "memory" => (&["bytes_per_entry"], true),
        "many" => (&["bytes_per_empty"], true),
        "drop" => (&["drop_ms"], at_once.contains(&subject)),
        "iterate" => (&["keys_per_s"], true),
        "garbage" => (&["garbage_mib"], true),
        _ => (&["ops_per_s"], true),
    }
}

/// The scenarios of `scale map`, who has a row in each, and which figures.
#[test]
fn map_measures_every_subject() {
    let scenarios = "get-1000,readheavy-2,exchange-1,rapidgrow-n-grow,growth,growth-presized,memory,many,drop,iterate,garbage";
    let (run, json) = with_json(&format!(
        "scale map --rounds 1 --threads 3 --capacity-log2 12 --divide 1000 --garbage-s 1 --scenarios {scenarios}"
    ));
    assert_eq!(run.code, 0, "{}", run.err);
    assert_contract(&json, "map");
    assert_eq!(json["params"]["capacity_log2"], 12);
    let listed = stillpoint("scale --list").out;
    for scenario in scenarios.split(',') {
        let rows = in_scenario(&json, scenario);
        let cases = listed.lines().filter_map(|line| {
            let case = line.strip_prefix("map ")?.strip_suffix(scenario)?;
            case.strip_suffix(' ')?.split_once(' ')
        });
        assert!(
            rows.iter()
                .map(|row| (text(row, "subject"), text(row, "variant")))
                .eq(cases),
            "{scenario}"
        );
        assert!(rows.len() >= 7, "{scenario}");
        for row in rows {
            let metrics = row["metrics"].as_object().expect("metrics is an object");
            let (figures, is_sure) = map_figures(scenario, text(row, "subject"));
            assert!(
                metrics.keys().eq(figures) || metrics.is_empty() && !is_sure,
                "{row}"
            );
            for (name, figure) in metrics {
                let figure = figure.as_f64().expect("a number");
                // So few entries may fit in pages that were there before.
                let may_be_none = name.starts_with("bytes_") || name == "garbage_mib";
                assert!(
                    figure.is_finite() && (figure > 0.0 || may_be_none && figure == 0.0),
                    "{name}: {row}"
                );
            }
        }
    }
    assert_table_agrees(&run.out, &json);
}

/// A folder with two of the three traces, which are short.
fn traces() -> TempDir {
    let folder = TempDir::new().expect("a folder for temporary files");
    let lines: String = (0..3_000)
        .map(|number| format!("{} 3 0 {number}\n", number * number % 1_009))
        .collect();
    for name in ["OLTP.lis", "P3.lis"] {
        fs::write(folder.path().join(name), &lines).expect("it can be written");
    }
    folder
}

/// Which figures a subject of `scale cache` has in a scenario, and those that it may have.
fn cache_figures(scenario: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match scenario {
        "read-n" | "mixed-2" => (&["ns_per_op", "ops_per_s"], &[]),
        "memory" => (&["bytes_per_entry"], &[]),
        "isolation" | "isolation-static" => (&["hit_ratio", "hits_lost"], &[]),
        "pressure" => (&["rss_ratio"], &["rss_ms"]),
        "many-tenants" => (&["bytes_per_entry", "hit_ratio", "ns_per_op"], &[]),
        _ => (&["hit_ratio"], &[]),
    }
}

/// The scenarios of `scale cache`, who has a row in each, and which figures.
#[test]
fn cache_measures_every_subject() {
    let folder = traces();
    let scenarios = "read-n,mixed-2,oltp-1000,p3-20000-6,memory,isolation,isolation-static,mix,mix-static,pressure,many-tenants";
    let (run, json) = with_json(&format!(
        "scale cache --rounds 1 --threads 3 --divide 1000 --scenarios {scenarios} --traces {}",
        folder.path().display()
    ));
    assert_eq!(run.code, 0, "{}", run.err);
    assert_contract(&json, "cache");
    assert_eq!(json["params"]["divide"], 1000);
    assert_eq!(json.get("skipped"), None);
    let listed = stillpoint("scale --list").out;
    for scenario in scenarios.split(',') {
        let rows = in_scenario(&json, scenario);
        let cases = listed.lines().filter_map(|line| {
            let case = line.strip_prefix("cache ")?.strip_suffix(scenario)?;
            case.strip_suffix(' ')?.split_once(' ')
        });
        assert!(
            rows.iter()
                .map(|row| (text(row, "subject"), text(row, "variant")))
                .eq(cases),
            "{scenario}"
        );
        assert!(
            rows.len() >= if scenario == "pressure" { 2 } else { 6 },
            "{scenario}"
        );
        for row in rows {
            let metrics = row["metrics"].as_object().expect("metrics is an object");
            let (figures, may_be) = cache_figures(scenario);
            assert!(
                figures.iter().all(|name| metrics.contains_key(*name)),
                "{row}"
            );
            for (name, figure) in metrics {
                let name = name.as_str();
                assert!(figures.contains(&name) || may_be.contains(&name), "{row}");
                let figure = figure.as_f64().expect("a number");
                let most = if name == "hit_ratio" {
                    1.0
                } else {
                    f64::INFINITY
                };
                assert!(
                    figure >= 0.0 && figure <= most && figure.is_finite(),
                    "{row}"
                );
            }
        }
    }
    // What is left of the trace: blocks 0, 1, 2, then 1, 2, 3, then 4, 5, 6.
    for row in in_scenario(&json, "p3-20000-6") {
        assert_eq!(
            row["metrics"]["hit_ratio"].as_f64(),
            Some(2.0 / 9.0),
            "{row}"
        );
    }
    assert_table_agrees(&run.out, &json);
    assert!(run.out.contains("USENIX FAST 2003"), "{}", run.out);
}

/// A tenant of ours loses nothing within its minimum, whatever its neighbour does.
#[test]
fn a_tenant_loses_no_hit_within_its_minimum() {
    let (run, json) =
        with_json("scale cache --rounds 1 --divide 10 --scenarios isolation --peers lru-mutex");
    assert_eq!(run.code, 0, "{}", run.err);
    let lost = |subject| {
        let rows = in_scenario(&json, "isolation");
        let row = rows.into_iter().find(|row| row["subject"] == subject);
        row.expect("it is measured")["metrics"]["hits_lost"].as_f64()
    };
    assert_eq!(lost("stillpoint"), Some(0.0));
    assert!(lost("lru-mutex") > Some(1_000.0));
}

/// A trace that is not there is neither passed nor failed.
#[test]
fn cache_skips_what_it_has_no_trace_for() {
    let folder = traces();
    let traces = folder.path().display();
    let (run, json) = with_json(&format!(
        "scale cache --rounds 1 --divide 1000 --scenarios oltp-1000,p6-20000 --peers none --traces {traces}"
    ));
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.out.contains("\np6-20000: skipped: no traces\n"),
        "{}",
        run.out
    );
    let skipped = serde_json::json!([{"scenario": "p6-20000", "reason": "no traces"}]);
    assert_eq!(json["skipped"], skipped);
    assert!(in_scenario(&json, "p6-20000").is_empty());
    assert_eq!(in_scenario(&json, "oltp-1000").len(), 1);

    fs::write(folder.path().join("P6.lis"), "1 1 0 0\n1 one 0 1\n").expect("it can be written");
    let broken = stillpoint(&format!(
        "scale cache --rounds 1 --scenarios p6-20000 --peers none --traces {traces}"
    ));
    assert_eq!(broken.code, 1);
    assert!(
        broken
            .err
            .contains("line 2: \"1 one 0 1\": its number of blocks is no number"),
        "{}",
        broken.err
    );

    let nowhere = stillpoint(&format!(
        "scale cache --scenarios p6-20000 --traces {traces}/nowhere"
    ));
    assert_eq!(nowhere.code, 2);
    assert!(
        nowhere.err.contains("nowhere is no folder"),
        "{}",
        nowhere.err
    );
}

/// A count of what the machine does is the same on each run, and what the code says.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn contention_counts_what_the_machine_does() {
    let (run, json) = with_json(
        "scale contention --rounds 1 --beside 2 --scenarios read,get-state,start-poll --peers crossbeam-epoch",
    );
    assert_eq!(run.code, 0, "{}", run.err);
    assert_contract(&json, "contention");
    assert_table_agrees(&run.out, &json);
    let figure = |scenario, subject, name: &str| {
        let row = in_scenario(&json, scenario)
            .into_iter()
            .find(|row| row["subject"] == subject)
            .expect("it is measured");
        row["metrics"][name].as_f64().expect("a number")
    };
    for name in ["shared_rmw_per_op", "shared_stores_per_op"] {
        assert_eq!(figure("read", "stillpoint", name), 0.0);
    }
    // Optimised, its read-modify-write is a fence and a load.
    let remains = f64::from(u8::from(cfg!(debug_assertions)));
    assert_eq!(
        figure("get-state", "stillpoint", "shared_rmw_per_op"),
        remains
    );
    assert_eq!(
        figure("get-state", "stillpoint", "shared_stores_per_op"),
        0.0
    );
    // A pinned thread says so where others look.
    assert!(figure("read", "crossbeam-epoch", "shared_rmw_per_op") >= 1.0);
    // To start one, to fence and to end it.
    assert!(figure("start-poll", "stillpoint", "shared_rmw_per_op") >= 3.0);
    let modelled = |scenario| figure(scenario, "stillpoint", "modelled_ns_per_op");
    assert!(modelled("start-poll") > modelled("read") && modelled("read") > 0.0);
}
