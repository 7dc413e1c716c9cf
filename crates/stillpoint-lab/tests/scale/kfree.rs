//! `scale kfree`.

use serde_json::{Value, json};

use crate::{TINY, assert_figures, cases, curve, listed, measured, rows, text};

fn assert_kfree_figures(json: &Value) {
    for row in rows(json) {
        // Work this small can end before a grace period does, and without a change in resident pages.
        let others = match (text(row, "subject"), text(row, "variant")) {
            // Readers that fence need no membarriers.
            ("stillpoint", "fences") => "drain_ms grace_periods*",
            ("stillpoint", _) => "drain_ms grace_periods* membarriers_per_s*",
            ("ps-reclaim" | "liburcu-memb", _) => "drain_ms",
            _ => "",
        };
        assert_figures(
            row,
            &format!("footprint_mib~ ns_per_object peak_mib* total_s {others}"),
        );
        // The samples cover the run, and miss some of the kernel's mark.
        let points = curve(row, "since_start_s", "above_start_mib");
        let total = row["metrics"]["total_s"].as_f64().expect("a number");
        let (first, last) = (points[0].0, points[points.len() - 1].0);
        assert!(first >= 0.0 && last >= total, "{row}");
    }
}

#[test]
fn kfree_without_peers() {
    let (run, json) = measured(&format!("{TINY} --peers none --seed 7"));
    let lines: Vec<_> = run.err.lines().collect();
    assert_eq!(lines.len(), 8, "no progress bar in a pipe: {}", run.err);
    for (number, line) in (1..).zip(&lines) {
        let begins = format!("stillpoint: {number} of 8: round 1: ");
        assert!(line.starts_with(&begins), "{}", run.err);
    }
    assert_eq!(json["params"]["seed"], 7);
    assert_eq!(json["params"]["peers"], json!([]));
    assert_eq!(
        cases(rows(&json)),
        "per-page whole-batch call fences budget-1 budget-2 budget-4 limit"
    );
    assert_kfree_figures(&json);
}

#[test]
#[ignore = "steps through millions of instructions: for an optimised build"]
fn kfree_counts_shared_lines_if_asked_to() {
    let (_, json) = measured(&format!("{TINY} --peers none --variants per-page --count"));
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
}

#[test]
fn kfree_with_all_peers() {
    let (_, json) = measured(&format!(
        "{TINY} --readers 1 --reader-hold-us 50 --peers all"
    ));
    let cases = cases(rows(&json));
    assert_eq!(cases, listed("kfree", None));
    assert!(cases.contains(" crossbeam-epoch ") && cases.contains(" seize "));
    let liburcu = cases.contains(" liburcu-memb/one-worker ");
    assert_eq!(liburcu, cfg!(have_liburcu), "{cases}");
    assert_kfree_figures(&json);
}

#[test]
fn the_least_and_the_greatest_object_size_are_measured() {
    for size in [16, 4096] {
        let (_, json) = measured(&format!("{TINY} --object-size {size} --peers sdd"));
        assert_eq!(json["params"]["object_size"], size);
        assert_eq!(rows(&json).len(), 9);
    }
}
