//! `scale server`: stillcache beside memcached and redis.

use std::process::Command;

use crate::{assert_figures, cache::traces, cases, figure, in_scenario, measured};

/// The scenarios of `scale server`, and which figures ours has. The peers are the system's, and take
/// part where they are.
#[test]
fn server_measures_every_subject() {
    let folder = traces();
    let scenarios = "get-1,get-pipelined,set,memory,shrink,isolation,replay-oltp";
    let (_, json) = measured(&format!(
        "scale server --rounds 1 --threads 1 --divide 100 --scenarios {scenarios} --traces {}",
        folder.path().display()
    ));
    for scenario in scenarios.split(',') {
        let rows = in_scenario(&json, scenario);
        assert_eq!(cases([rows[0]]), "stillcache", "{scenario}");
        let figures = match scenario {
            "get-pipelined" => "cpu_us_per_op* ops_per_s*",
            "memory" => "bytes_per_item*",
            "shrink" => "p999_ratio* p999_us* rss_ratio* rss_ms?",
            "isolation" => "hit_ratio* hits_lost*",
            "replay-oltp" => "hit_ratio*",
            _ => "cpu_us_per_op* ops_per_s* p50_us* p999_us* p99_us*",
        };
        rows.iter().for_each(|row| assert_figures(row, figures));
    }
    let lost = figure(&json, "isolation", "stillpoint", "hits_lost");
    assert_eq!(lost, Some(0.0));
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
