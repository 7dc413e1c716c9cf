//! `stillpoint seeds`: every before and after is there, as figures for scripts and as a page for
//! people, and what fails is told. Times are never judged.

mod program;
mod refused;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use program::stillpoint;
use refused::assert_refused;
use serde_json::Value;
use tempfile::TempDir;

/// Experiment, subject, variant, scenario and one figure of what must be there.
const ROWS: &str = "
kfree,seed,before,,footprint_mb
kfree,seed,after,,footprint_mb
kfree,stillpoint,whole-batch,,footprint_mib
kfree,stillpoint,per-page,,peak_mib
sync,seed,before,,mean_ms
sync,seed,after,,mean_ms
bridge,seed,default,,least_cpu_s
bridge,seed,fix,,greatest_cpu_s
bridge,seed,fix+wake,,p50_ms
sim sync,simulation,baseline,,mean_ms
sim sync,simulation,fix,,mean_ms
sim bridge,simulation,default,,p50_ms
sim bridge,simulation,fix+wake,,p50_ms
sync,stillpoint,service-led,bridge,cpu_us_per_gp
sync,stillpoint,rcu,bridge,p50_us
lru,seed,before,,lock_share
lru,stillpoint,spinlock,threads-16,lock_share
lru,stillpoint,mutex,threads-16,lock_share
lru,stillpoint,rcu,threads-16,counts_per_s
trace,seed,baseline,,read_ns
trace,seed,gp_sleep,,gp_mean_ms
sim trace,simulation,baseline,,mean_ms
sim trace,simulation,gp_sleep,,mean_ms
trace,stillpoint,read-mb,idle,read_ns
trace,stillpoint,native,idle,gp_mean_ms
trace,stillpoint,read-mb,sleepers,gp_mean_ms
trace,stillpoint,native,sleepers,gp_mean_ms
vmap,seed,before,,requests_per_s
vmap,seed,after,,requests_per_s
vmap,stillpoint,global-lock,copy-4096,requests_per_s
vmap,stillpoint,global-mutex,copy-4096,requests_per_s
vmap,stillpoint,node-spinlock,copy-4096,requests_per_s
vmap,stillpoint,node-rwlock,copy-4096,requests_per_s
vmap,stillpoint,rcu,copy-4096,requests_per_s
";

#[test]
fn every_before_and_after_is_there() {
    let folder = TempDir::new().expect("a folder for temporary files");
    let file = folder.path().join("seeds.json");
    let arguments = format!(
        "seeds --quick --rounds 1 --seed 7 --json {}",
        file.display()
    );
    let run = stillpoint(&arguments);
    assert_eq!(run.code, 0, "{}", run.err);
    let json = fs::read_to_string(file).expect("the JSON file is there");
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json["experiment"], "seeds");
    assert_eq!(json["params"]["seed"], 7);
    assert!(json["machine"]["cpus"].is_u64());
    let rows = json["rows"].as_array().expect("rows is an array");
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let case =
        |row: &Value| ["experiment", "subject", "variant", "scenario"].map(|key| text(row, key));
    let cases: BTreeSet<_> = rows.iter().map(case).collect();
    assert_eq!(cases.len(), rows.len(), "no case is there twice");
    for line in ROWS.lines().filter(|line| !line.is_empty()) {
        let (wanted, metric) = line.rsplit_once(',').expect("there is a figure");
        let row = rows.iter().find(|row| case(row).join(",") == wanted);
        let row = row.unwrap_or_else(|| panic!("no {wanted:?}"));
        assert!(row["metrics"][metric].is_number(), "{row}");
    }

    assert_eq!(
        run.out.matches("\nMore: cargo lab").count(),
        5,
        "{}",
        run.out
    );
    for text in [
        "| kernel ",
        "| simulated ",
        "| here ",
        "node-rwlock over global-mutex: ",
    ] {
        assert!(run.out.contains(text), "{text}: {}", run.out);
    }
    for line in run.out.lines() {
        assert!(line.chars().count() <= 110, "{line}");
    }
}

#[test]
fn bad_usage_is_refused() {
    assert_refused(
        "seeds --rounds 0 => --rounds\nseeds --threads 2 => --threads\nseeds --seed x => --seed",
    );
}

/// Without room for its addresses no arena is made; what can be measured is printed all the same.
#[test]
fn a_measurement_that_fails_is_told_and_fails_the_run() {
    let script = "ulimit -v 2000000; exec \"$0\" --quiet seeds --quick --rounds 1";
    let mut bash = Command::new("bash");
    bash.args(["-c", script, env!("CARGO_BIN_EXE_stillpoint")]);
    let run = bash.output().expect("bash is there");
    let [out, err] = [&run.stdout, &run.stderr].map(|text| String::from_utf8_lossy(text));
    assert_eq!(run.status.code(), Some(1), "{err}");
    assert!(
        err.contains("failed: stillpoint rcu in copy-4096, round 1"),
        "{err}"
    );
    assert!(out.contains("Seed 004") && out.contains("| here "), "{out}");
}
