//! `scale sync`.

use serde_json::{Value, json};

use crate::{assert_figures, cases, curve, in_scenario, measured, rows, text};

/// Every row has the times and the cost, and of `others` those that it can have.
fn assert_sync_figures(row: &Value, others: &str) {
    // Only Stillpoint counts grace periods; each ends at least one wait, and perhaps those of
    // others. The only registered thread needs none.
    let counted = match (text(row, "subject"), text(row, "scenario")) {
        ("stillpoint", "idle") => "calls_per_gp?",
        ("stillpoint", _) => "calls_per_gp",
        _ => "",
    };
    let times = ["mean_us", "min_us", "p50_us", "p99_us", "max_us"];
    let figures = format!("{} cpu_us_per_gp {counted} {others}", times.join(" "));
    assert_figures(row, &figures);
    let calls = row["metrics"]["calls_per_gp"].as_f64();
    assert!(calls.is_none_or(|calls| calls > 0.0), "{row}");
    let [mean, min, p50, p99, max] =
        times.map(|name| row["metrics"][name].as_f64().expect("a number"));
    assert!(
        min <= p50 && p50 <= p99 && p99 <= max && min <= mean && mean <= max,
        "{row}"
    );
    // A distribution goes from the fastest wait towards the slowest; its times are rounded up, to
    // three digits.
    let points = curve(row, "percentile", "wait_us");
    let (first, last) = (points[0], points[points.len() - 1]);
    assert!(points.is_sorted_by(|a, b| a.1 <= b.1), "{row}");
    assert!(first.0 == 0.0 && last.0 < 100.0, "{row}");
    assert!(
        first.1 >= min && first.1 <= min * 1.01 && last.1 <= max * 1.01,
        "{row}"
    );
}

/// The kernel has a membarrier, which is the limit.
pub fn has_membarrier(json: &Value) -> bool {
    json["machine"]["membarrier"] == true
}

#[test]
fn sync_without_peers() {
    let (_, json) =
        measured("scale sync --rounds 1 --scenarios idle,callback --peers none --seed 3");
    assert_eq!(json["params"]["scenarios"], json!(["idle", "callback"]));
    let limit = if has_membarrier(&json) { " limit" } else { "" };
    let all = cases(rows(&json));
    let [idle, callback] = ["idle", "callback"].map(|name| cases(in_scenario(&json, name)));
    assert_eq!(
        idle,
        format!("rcu expedited qsbr service-led fences{limit}")
    );
    assert_eq!(callback, format!("rcu qsbr{limit}"));
    assert_eq!(all, format!("{idle} {callback}"));
    rows(&json)
        .iter()
        .for_each(|row| assert_sync_figures(row, ""));
}

#[test]
fn sync_beside_readers_and_in_a_herd() {
    let scenarios = "idle1000,busy1,busy-oversub,herd64,bridge,barrier,poll";
    let peers = "liburcu-memb,liburcu-qsbr,sdd,ps-reclaim";
    let (_, json) = measured(&format!(
        "scale sync --rounds 1 --threads 4 --variants rcu,qsbr,fences --scenarios {scenarios} --peers {peers}"
    ));
    for scenario in scenarios.split(',') {
        let liburcu = match scenario {
            // Debian's liburcu has no polled grace periods.
            "poll" if !cfg!(have_liburcu_poll) => 0,
            _ if !cfg!(have_liburcu) => 0,
            _ => 2,
        };
        // Neither of the other peers invokes callbacks by itself; ps-reclaim has no cookies.
        let (ours, others, figures) = match scenario {
            "barrier" => (2, 0, ""),
            "poll" => (2, 1, ""),
            "herd64" => (3, 2, "calls_per_s"),
            "bridge" => (3, 2, "total_s"),
            _ => (3, 2, ""),
        };
        let rows = in_scenario(&json, scenario);
        let limit = usize::from(has_membarrier(&json));
        assert_eq!(rows.len(), ours + liburcu + others + limit, "{scenario}");
        rows.iter()
            .for_each(|row| assert_sync_figures(row, figures));
    }
}
