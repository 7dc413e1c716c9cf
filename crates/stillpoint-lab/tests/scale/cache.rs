//! `scale cache`.

use std::fs;

use tempfile::TempDir;

use crate::{
    assert_contract, assert_table_agrees, in_scenario, program::stillpoint, text, with_json,
};

/// A folder with two of the three traces, which are short.
pub fn traces() -> TempDir {
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
        "oltp-2000-6" | "p3-20000-6" => (&["hit_ratio", "hit_ratio_one"], &[]),
        _ => (&["hit_ratio"], &[]),
    }
}

/// The scenarios of `scale cache`, who has a row in each, and which figures.
#[test]
fn cache_measures_every_subject() {
    let folder = traces();
    let scenarios = "read-n,mixed-2,oltp-1000,oltp-2000-6,p3-20000-6,memory,isolation,isolation-static,mix,mix-static,pressure,many-tenants";
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
        let least = match scenario {
            // Long: of the library alone.
            "p3-20000-6" => 1,
            "pressure" => 2,
            _ => 4,
        };
        assert!(rows.len() >= least, "{scenario}");
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
                let most = if name.starts_with("hit_ratio") {
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
        // One client has all, and the other one the same requests in the same order.
        for figure in ["hit_ratio", "hit_ratio_one"] {
            assert_eq!(row["metrics"][figure].as_f64(), Some(2.0 / 9.0), "{row}");
        }
    }
    assert_table_agrees(&run.out, &json);
    assert!(run.out.contains("USENIX FAST 2003"), "{}", run.out);
}

/// A hit of an entry whose uses have been noted writes no line that another reader has; those of
/// caches that lock there do.
#[test]
fn cache_counts_shared_lines_that_a_hit_writes_if_asked_to() {
    let (run, json) = with_json(
        "scale cache --rounds 1 --divide 1000 --scenarios read-2 --peers quick_cache --count",
    );
    assert_eq!(run.code, 0, "{}", run.err);
    assert_contract(&json, "cache");
    assert_eq!(json["params"]["count"], true);
    let figures = |subject: &str| {
        let rows = in_scenario(&json, "read-2");
        let row = rows.into_iter().find(|row| row["subject"] == subject);
        let metrics = &row.expect("it is measured")["metrics"];
        ["shared_rmw_per_op", "shared_stores_per_op"].map(|name| metrics[name].as_f64())
    };
    if cfg!(target_arch = "x86_64") {
        assert_eq!(figures("stillpoint"), [Some(0.0); 2]);
        // It takes a lock that readers share, and gives it back.
        assert_eq!(figures("quick_cache"), [Some(2.0), Some(0.0)]);
    } else {
        assert_eq!(figures("stillpoint"), [None; 2]);
    }
    assert_table_agrees(&run.out, &json);
}

/// A tenant of ours loses nothing within its minimum, whatever its neighbour does.
#[test]
fn a_tenant_loses_no_hit_within_its_minimum() {
    let (run, json) =
        with_json("scale cache --rounds 1 --divide 10 --scenarios isolation --peers quick_cache");
    assert_eq!(run.code, 0, "{}", run.err);
    let lost = |subject| {
        let rows = in_scenario(&json, "isolation");
        let row = rows.into_iter().find(|row| row["subject"] == subject);
        row.expect("it is measured")["metrics"]["hits_lost"].as_f64()
    };
    assert_eq!(lost("stillpoint"), Some(0.0));
    assert!(lost("quick_cache") > Some(1_000.0));
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
