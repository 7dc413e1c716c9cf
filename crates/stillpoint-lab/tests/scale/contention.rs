//! `scale contention`.

use crate::{assert_contract, assert_table_agrees, in_scenario, with_json};

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
