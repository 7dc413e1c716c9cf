//! `scale server`: stillcache beside memcached and redis.

use std::process::Command;

use crate::{assert_contract, assert_table_agrees, cache::traces, in_scenario, text, with_json};

/// Which figures a subject of `scale server` has in a scenario, and those that it may have.
fn server_figures(scenario: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match scenario {
        "get-pipelined" | "get-keys" => (&["cpu_us_per_op", "ops_per_s"], &[]),
        "idle-clients" => (&["bytes_per_client"], &[]),
        "memory" => (&["bytes_per_item"], &[]),
        "shrink" => (&["p999_ratio", "p999_us", "rss_ratio"], &["rss_ms"]),
        "isolation" => (&["hit_ratio", "hits_lost"], &[]),
        "stuck-client" => (&["held_mib"], &["dropped_ms"]),
        "replay-oltp" => (&["hit_ratio"], &[]),
        _ => (
            &["cpu_us_per_op", "ops_per_s", "p50_us", "p999_us", "p99_us"],
            &[],
        ),
    }
}

/// The scenarios of `scale server`, and which figures ours has. The peers are the system's, and take
/// part where they are.
#[test]
fn server_measures_every_subject() {
    let folder = traces();
    let scenarios = "get-1,get-pipelined,get-keys,set,mixed,idle-clients,memory,shrink,isolation,stuck-client,replay-oltp";
    let (run, json) = with_json(&format!(
        "scale server --rounds 1 --threads 1 --divide 100 --scenarios {scenarios} --traces {}",
        folder.path().display()
    ));
    assert_eq!(run.code, 0, "{}", run.err);
    assert_contract(&json, "server");
    for scenario in scenarios.split(',') {
        let rows = in_scenario(&json, scenario);
        assert_eq!(text(rows[0], "subject"), "stillpoint", "{scenario}");
        assert_eq!(text(rows[0], "variant"), "stillcache", "{scenario}");
        let (figures, may_be) = server_figures(scenario);
        for row in rows {
            let metrics = row["metrics"].as_object().expect("metrics is an object");
            let known = |name: &&String| {
                let name = name.as_str();
                figures.contains(&name) || may_be.contains(&name)
            };
            assert_eq!(metrics.keys().filter(known).count(), metrics.len(), "{row}");
            let have = |name: &&str| metrics.contains_key(*name);
            assert!(figures.iter().all(have), "{row}");
            for (name, figure) in metrics {
                let figure = figure.as_f64().expect("a number");
                assert!(figure >= 0.0 && figure.is_finite(), "{name}: {row}");
            }
        }
    }
    let ours = |scenario| in_scenario(&json, scenario)[0]["metrics"].clone();
    assert_eq!(ours("isolation")["hits_lost"], 0.0);
    // Those that do not read are dropped, which a look of six seconds sees.
    assert!(ours("stuck-client")["dropped_ms"].is_number());
    assert_table_agrees(&run.out, &json);
}

/// A peer that the system does not have is named, with what to install, and left out.
#[test]
fn server_leaves_out_what_is_not_installed() {
    let run = Command::new(env!("CARGO_BIN_EXE_stillpoint"))
        .args(
            "scale server --rounds 1 --divide 100 --scenarios get-pipelined --peers memcached"
                .split(' '),
        )
        .env("PATH", "/nonexistent")
        .output()
        .expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    let (out, err) = (text(run.stdout), text(run.stderr));
    assert!(run.status.success(), "{err}");
    assert!(err.contains("memcached left out: skipped"), "{err}");
    assert!(
        out.contains("stillcache") && !out.contains("memcached |"),
        "{out}"
    );
}
