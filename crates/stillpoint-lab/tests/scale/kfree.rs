//! `scale kfree`.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    TINY, assert_figures, cases, curve, listed, measured, program::stillpoint, rows, text,
};

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
fn kfree_prints_the_kernels_line_for_each_variant_of_ours_if_asked_for() {
    let (run, _) = measured(&format!("{TINY} --peers none"));
    assert!(!run.out.contains("kfree'ers"), "{}", run.out);
    let (run, json) = measured(&format!("{TINY} --peers none --kernel-format"));
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
fn the_least_and_the_greatest_object_size_are_measured() {
    for size in [16, 4096] {
        let (_, json) = measured(&format!("{TINY} --object-size {size} --peers sdd"));
        assert_eq!(json["params"]["object_size"], size);
        assert_eq!(rows(&json).len(), 9);
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
