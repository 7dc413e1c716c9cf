//! `scale trace`.

use serde_json::json;

use crate::{
    assert_figures, cases, figure, in_scenario, measured, rows, sync::has_membarrier, text,
};

#[test]
fn trace_measures_every_scenario() {
    let (run, json) =
        measured("scale trace --rounds 1 --threads 3 --tasks 50 --hold-ms 2 --span-ms 40 --seed 9");
    assert!(!run.err.contains("left out"), "{}", run.err);
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
    for (scenario, expected) in [
        ("idle", "native read-mb limit"),
        ("sleepers", "native read-mb limit"),
        ("async10000", "native read-mb tokio/rwlock arc-swap limit"),
    ] {
        assert_eq!(cases(in_scenario(&json, scenario)), expected, "{scenario}");
    }
    let membarrier = has_membarrier(&json);
    for row in rows(&json) {
        // On a machine with much else to do, a short span may see no task, update or exit through.
        let figures = match (text(row, "scenario"), text(row, "subject")) {
            ("idle", "limit") if !membarrier => "read_ns",
            ("idle", _) => "gp_mean_ms gp_p99_ms read_ns",
            ("sleepers", "limit") => "exit_to_gp_us?",
            ("sleepers", _) => "gp_mean_ms gp_p99_ms exit_to_gp_us?",
            (_, "stillpoint") => {
                "gp_mean_ms gp_p99_ms other_domain_gp_us reads_per_s* updates_per_s* bytes_per_guard"
            }
            (_, "limit") if membarrier => "other_domain_gp_us reads_per_s*",
            (_, "limit") => "reads_per_s*",
            _ => "reads_per_s* updates_per_s*",
        };
        assert_figures(row, figures);
    }
}

#[test]
fn a_live_owned_guard_weighs_at_least_a_record() {
    let (_, json) = measured(
        "scale trace --rounds 1 --scenarios async10000 --tasks 2 --hold-ms 1 --span-ms 1 --peers none",
    );
    assert_eq!(cases(rows(&json)), "native read-mb limit");
    let bytes = figure(&json, "async10000", "stillpoint", "bytes_per_guard").expect("a number");
    // A record fills a cache line, the guard points to it, and neither is a page.
    assert!((72.0..1024.0).contains(&bytes), "{bytes}");
}

#[test]
fn an_updater_without_pauses_leaves_a_sample() {
    let (_, json) = measured(
        "scale trace --rounds 1 --scenarios async10000 --tasks 20 --hold-ms 1 --span-ms 20 --update-us 0 --variants native",
    );
    assert_eq!(cases(rows(&json)), "native tokio/rwlock arc-swap limit");
    assert_eq!(json["params"]["variants"], json!(["native"]));
}
