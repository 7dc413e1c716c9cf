//! `scale trace`.

use serde_json::Value;

use crate::{
    assert_contract, assert_table_agrees, cases, in_scenario, rows, sync::limit_case, text,
    with_json,
};

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
