//! What the program prints, and the files that it is to write: neither is lost to the other.

mod program;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use program::stillpoint;
use serde_json::Value;
use tempfile::TempDir;

const TINY: &str = "scale kfree --threads 2 --loops 4 --objects 100 --rounds 1 --peers none";

fn full() -> Stdio {
    let full = OpenOptions::new().write(true).open("/dev/full");
    full.expect("it is on every Linux").into()
}

#[test]
fn a_full_standard_output_is_told_and_costs_no_file() {
    for arguments in [
        TINY,
        "torture rcu --calm --duration 0.2",
        "sim trace",
        "scale --list",
        "torture --list",
    ] {
        let folder = TempDir::new().expect("a folder for temporary files");
        let mut command = Command::new(env!("CARGO_BIN_EXE_stillpoint"));
        command.args(arguments.split(' ')).stdout(full());
        let json = folder.path().join("figures.json");
        let measures = !arguments.ends_with("--list");
        if measures {
            command.arg("--json").arg(&json);
        }
        let run = command.output().expect("the program starts");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{arguments}: {said}");
        let told = "stillpoint: cannot write to standard output: No space left on device";
        assert_eq!(said.matches(told).count(), 1, "{arguments}: {said}");
        assert!(!said.contains("panicked"), "{arguments}: {said}");
        if measures {
            let text = fs::read_to_string(json).expect("it is there");
            serde_json::from_str::<Value>(&text).expect("it is JSON");
        }
    }
}

#[test]
fn figures_may_go_to_standard_output() {
    let folder = TempDir::new().expect("a folder for temporary files");
    // A link like /dev/stdout, which a program that is broken may replace.
    let link = folder.path().join("stdout");
    symlink("/proc/self/fd/1", &link).expect("the folder can be written");
    let run = stillpoint(&format!("{TINY} --json {}", link.display()));
    assert_eq!(run.code, 0, "{}", run.err);
    let (table, json) = run.out.split_once("\n{").expect("the JSON comes last");
    assert!(table.contains("| limit "), "{table}");
    let json: Value = serde_json::from_str(&format!("{{{json}")).expect("it is JSON");
    assert_eq!(json["experiment"], "kfree");

    // A file in its place has both as well.
    let path = folder.path().join("out");
    let file = fs::File::create(&path).expect("it can be written");
    let status = Command::new(env!("CARGO_BIN_EXE_stillpoint"))
        .args(TINY.split(' '))
        .arg("--json")
        .arg(&link)
        .arg("--quiet")
        .stdout(file)
        .status()
        .expect("the program starts");
    assert_eq!(status.code(), Some(0));
    let text = fs::read_to_string(path).expect("it is there");
    let (table, json) = text.split_once("\n{").expect("the JSON comes last");
    assert!(table.contains("| limit "), "{text}");
    serde_json::from_str::<Value>(&format!("{{{json}")).expect("it is JSON");
}

#[test]
fn a_device_that_is_full_fails_the_run() {
    let run = stillpoint(&format!("{TINY} --json /dev/full"));
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.err.contains("cannot write /dev/full"), "{}", run.err);
    assert!(run.out.contains("| limit "), "{}", run.out);
}

#[test]
fn a_run_that_is_refused_keeps_the_old_figures() {
    let folder = TempDir::new().expect("a folder for temporary files");
    let path = folder.path().join("figures.json");
    fs::write(&path, "old").expect("it can be written");
    let run = stillpoint(&format!(
        "scale cache --scenarios mix --traces /nowhere --json {}",
        path.display()
    ));
    assert_eq!(run.code, 2, "{}", run.err);
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "old");
    let run = stillpoint(&format!("{TINY} --json {}", path.display()));
    assert_eq!(run.code, 0, "{}", run.err);
    let text = fs::read_to_string(&path).expect("it is there");
    let json: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(json.get("partial"), None);
}

#[test]
fn quiet_runs_say_nothing_of_progress() {
    for arguments in [format!("--quiet {TINY}"), format!("{TINY} --quiet")] {
        let run = stillpoint(&arguments);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments}");
    }
}
