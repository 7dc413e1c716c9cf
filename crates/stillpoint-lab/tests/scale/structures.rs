//! `scale lru`, `scale vmap` and `scale map`.

use serde_json::Value;

use crate::{
    assert_contract, assert_table_agrees, in_scenario, program::stillpoint, text, with_json,
};

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
                let others = ["std-rwlock-btreemap", "limit"].map(|subject| (subject, "default"));
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
        "oget-100000" => (&["dependent_ns", "ns_per_op"], true),
        "oscan" => (&["ns_per_key"], true),
        _ => (&["ops_per_s"], true),
    }
}

/// The scenarios of `scale map`, who has a row in each, and which figures.
#[test]
fn map_measures_every_subject() {
    let scenarios = "get-1000,readheavy-2,exchange-1,rapidgrow-n-grow,growth,growth-presized,memory,many,drop,iterate,garbage,oget-100000,oscan,omixed-2";
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
        let subjects = if scenario.starts_with('o') { 5 } else { 7 };
        assert!(rows.len() >= subjects, "{scenario}");
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
