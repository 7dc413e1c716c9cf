//! `scale sync`.

use serde_json::Value;

use crate::{
    assert_contract, assert_table_agrees, cases, curve, in_scenario, rows, text, with_json,
};

const TIMES: [&str; 5] = ["mean_us", "min_us", "p50_us", "p99_us", "max_us"];

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
pub fn limit_case(json: &Value) -> Option<(&'static str, &'static str)> {
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
