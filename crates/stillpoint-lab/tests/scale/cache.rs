//! `scale cache`.

use std::fs;

use tempfile::TempDir;

use crate::{assert_figures, cases, figure, in_scenario, listed, measured, program::stillpoint};

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

/// The scenarios of `scale cache`, who has a row in each, and which figures.
#[test]
fn cache_measures_every_subject() {
    let folder = traces();
    let scenarios = "read-n,mixed-2,read-200k,insert-200k,mixed-200k,oltp-1000,oltp-2000-6,two-loops,recent-3,memory,isolation,mix,mix-static,pressure";
    let (run, json) = measured(&format!(
        "scale cache --rounds 1 --threads 3 --divide 1000 --scenarios {scenarios} --traces {}",
        folder.path().display()
    ));
    assert_eq!(json["params"]["divide"], 1000);
    assert_eq!(json.get("skipped"), None);
    for scenario in scenarios.split(',') {
        let rows = in_scenario(&json, scenario);
        let subjects = rows.len();
        assert_eq!(
            cases(rows.iter().copied()),
            listed("cache", Some(scenario)),
            "{scenario}"
        );
        let (least, figures) = match scenario {
            "read-n" | "mixed-2" => (4, "ns_per_op* ops_per_s*"),
            "read-200k" => (3, "ns_per_op* ops_per_s*"),
            "insert-200k" => (3, "ns_per_op* ops_per_s* p999_ns*"),
            "mixed-200k" => (3, "hit_ratio* ns_per_op* ops_per_s* p999_ns*"),
            "memory" => (4, "bytes_per_entry*"),
            "isolation" => (4, "hit_ratio* hits_lost*"),
            "pressure" => (2, "rss_ratio* rss_ms?"),
            "oltp-2000-6" => (4, "hit_ratio* hit_ratio_one*"),
            "two-loops" | "recent-3" => (5, "hit_ratio*"),
            _ => (4, "hit_ratio*"),
        };
        assert!(subjects >= least, "{scenario}");
        rows.iter().for_each(|row| assert_figures(row, figures));
    }
    // What is left of the trace: blocks 0, 1, 2, then 1, 2, 3, then 4, 5, 6.
    for row in in_scenario(&json, "oltp-2000-6") {
        // One client has all, and the other one the same requests in the same order.
        for figure in ["hit_ratio", "hit_ratio_one"] {
            assert_eq!(row["metrics"][figure].as_f64(), Some(2.0 / 9.0), "{row}");
        }
    }
    assert!(run.out.contains("USENIX FAST 2003"), "{}", run.out);
}

/// A hit of an entry whose uses have been noted writes no line that another reader has; those of
/// caches that lock there do.
#[test]
fn cache_counts_shared_lines_that_a_hit_writes_if_asked_to() {
    let (_, json) = measured(
        "scale cache --rounds 1 --divide 1000 --scenarios read-2 --peers quick_cache --count",
    );
    assert_eq!(json["params"]["count"], true);
    let figures = |subject: &str| {
        ["shared_rmw_per_op", "shared_stores_per_op"]
            .map(|name| figure(&json, "read-2", subject, name))
    };
    if cfg!(target_arch = "x86_64") {
        assert_eq!(figures("stillpoint"), [Some(0.0); 2]);
        // It takes a lock that readers share, and gives it back.
        assert_eq!(figures("quick_cache"), [Some(2.0), Some(0.0)]);
    } else {
        assert_eq!(figures("stillpoint"), [None; 2]);
    }
}

/// A tenant of ours loses nothing within its minimum, whatever its neighbour does.
#[test]
fn a_tenant_loses_no_hit_within_its_minimum() {
    let (_, json) =
        measured("scale cache --rounds 1 --divide 10 --scenarios isolation --peers quick_cache");
    let lost = |subject| figure(&json, "isolation", subject, "hits_lost");
    assert_eq!(lost("stillpoint"), Some(0.0));
    assert!(lost("quick_cache") > Some(1_000.0));
}

/// A trace that is not there is neither passed nor failed.
#[test]
fn cache_skips_what_it_has_no_trace_for() {
    let folder = traces();
    let traces = folder.path().display();
    let (run, json) = measured(&format!(
        "scale cache --rounds 1 --divide 1000 --scenarios oltp-1000,p6-20000 --peers none --traces {traces}"
    ));
    let line = "\np6-20000: skipped: no traces\n";
    assert!(run.out.contains(line), "{}", run.out);
    let skipped = serde_json::json!([{"scenario": "p6-20000", "reason": "no traces"}]);
    assert_eq!(json["skipped"], skipped);
    assert!(in_scenario(&json, "p6-20000").is_empty());
    assert_eq!(in_scenario(&json, "oltp-1000").len(), 1);

    fs::write(folder.path().join("P6.lis"), "1 1 0 0\n1 one 0 1\n").expect("it can be written");
    for (folder, code, text) in [
        (
            "",
            1,
            "line 2: \"1 one 0 1\": its number of blocks is no number",
        ),
        ("/nowhere", 2, "nowhere is no folder"),
    ] {
        let run = stillpoint(&format!(
            "scale cache --rounds 1 --scenarios p6-20000 --peers none --traces {traces}{folder}"
        ));
        assert_eq!(run.code, code);
        assert!(run.err.contains(text), "{}", run.err);
    }
}
