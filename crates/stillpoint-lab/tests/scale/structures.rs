//! `scale lru`, `scale vmap` and `scale map`.

use crate::{assert_figures, cases, in_scenario, listed, measured, text};

/// The scenarios of `scale vmap`, who has a row in each, and which figures.
#[test]
fn vmap_measures_every_subject() {
    let scenarios =
        "find-100000,copy-256,copy-4096-2threads,alloc-pool,random-size,purge,purge-single";
    let (_, json) = measured(&format!(
        "scale vmap --rounds 1 --threads 3 --connections 5 --copy-ms 5 --scenarios {scenarios}"
    ));
    assert_eq!(json["params"]["connections"], 5);
    for scenario in scenarios.split(',') {
        let (expected, figures) = match scenario {
            "find-100000" => (
                "rcu section-alone std-rwlock-btreemap limit",
                "check_ns find_dependent_ns find_ns",
            ),
            "copy-256" | "copy-4096-2threads" => (
                "rcu one-section found-once section-alone unchecked node-rwlock node-spinlock global-lock \
                 global-mutex heap",
                "requests_per_s",
            ),
            "purge" | "purge-single" => ("rcu mmap limit", "purge_ns_per_page"),
            _ => ("rcu mmap", "alloc_free_ns"),
        };
        let rows = in_scenario(&json, scenario);
        assert_eq!(cases(rows.iter().copied()), expected, "{scenario}");
        rows.iter().for_each(|row| assert_figures(row, figures));
    }
}

#[test]
fn lru_measures_every_variant() {
    let (_, json) = measured(
        "scale lru --rounds 1 --tenants 50 --lists 4 --counters 2 --mutators 1 --scenarios threads-2,custom",
    );
    assert_eq!(json["params"]["counters"], 2);
    for scenario in ["threads-2", "custom"] {
        let rows = in_scenario(&json, scenario);
        assert_eq!(cases(rows.iter().copied()), "rcu spinlock mutex limit");
        for row in rows {
            assert_figures(
                row,
                "counts_per_s adds_per_s count_ns add_p999_us lock_share*",
            );
            let has_lock = text(row, "subject") != "limit";
            assert!(has_lock || row["metrics"]["lock_share"] == 0.0, "{row}");
        }
    }
}

/// The scenarios of `scale map`, who has a row in each, and which figures.
#[test]
fn map_measures_every_subject() {
    let scenarios =
        "get-1000,readheavy-2,exchange-1,rapidgrow-n-grow,growth,memory,oget-100000,oscan,omixed-2";
    let (_, json) = measured(&format!(
        "scale map --rounds 1 --threads 3 --capacity-log2 12 --divide 1000 --scenarios {scenarios}"
    ));
    assert_eq!(json["params"]["capacity_log2"], 12);
    for scenario in scenarios.split(',') {
        let rows = in_scenario(&json, scenario);
        let expected = listed("map", Some(scenario));
        assert_eq!(cases(rows.iter().copied()), expected, "{scenario}");
        let subjects = if scenario.starts_with('o') { 5 } else { 7 };
        assert!(rows.len() >= subjects, "{scenario}");
        for row in rows {
            let figures = match (scenario, text(row, "subject")) {
                ("get-1000" | "oget-100000", _) => "dependent_ns ns_per_op",
                ("growth", "limit") => "max_us p9999_us p999_us",
                ("growth", _) => "max_us p9999_us p999_us read_p999_us* read_rest_p999_us*",
                // So few entries may fit in pages that were there before.
                ("memory", _) => "bytes_per_entry*",
                ("oscan", _) => "ns_per_key",
                _ => "ops_per_s",
            };
            assert_figures(row, figures);
        }
    }
}
