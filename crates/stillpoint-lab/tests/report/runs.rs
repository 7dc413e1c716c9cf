//! Reports that run their parts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::{
    draw,
    processes::{Orphan, child_of, is_alive, signal, wait_for},
    program::stillpoint,
    titles,
};

#[test]
fn a_report_runs_its_parts_and_can_be_drawn_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let page = at("r.html").display().to_string();
    let run = stillpoint(&format!(
        "report --parts sim-bridge,sim-trace --seed 5 --output {page}"
    ));
    assert_eq!(run.code, 0, "{}", run.err);
    let lines: Vec<_> = run
        .err
        .lines()
        .filter(|line| !line.starts_with("stillpoint: busy machine:"))
        .collect();
    assert_eq!((run.out.as_str(), lines.len()), ("", 3), "{}", run.err);
    for (line, begins) in lines.iter().zip([
        "stillpoint: 1 of 2: sim bridge: ",
        "stillpoint: 2 of 2: sim trace: ",
        &format!("stillpoint: wrote {page}"),
    ]) {
        assert!(
            line.starts_with(begins),
            "no progress bar in a pipe: {line}"
        );
    }
    assert!(!at("r.json.partial").exists());

    let text = fs::read_to_string(at("r.json")).expect("the JSON lies beside the page");
    let figures: Value = serde_json::from_str(&text).expect("it is JSON");
    let commands: Vec<_> = figures["parts"]
        .as_array()
        .expect("parts")
        .iter()
        .map(|part| part["command"].as_str())
        .collect();
    assert_eq!(
        commands,
        [
            Some("stillpoint sim bridge --seed 5"),
            Some("stillpoint sim trace --seed 5")
        ]
    );
    let rows = figures["rows"].as_array().expect("rows");
    assert_eq!(
        rows.iter()
            .filter(|row| row["part"] == "sim-bridge" && row["subject"] == "stillpoint")
            .count(),
        4
    );

    // The command that the page shows gives the figures that it shows.
    let again = at("again.json").display().to_string();
    assert_eq!(
        stillpoint(&format!("sim bridge --seed 5 --json {again}")).code,
        0
    );
    let again: Value =
        serde_json::from_str(&fs::read_to_string(again).expect("written")).expect("JSON");
    assert_eq!(again["rows"][0]["metrics"], rows[0]["metrics"]);

    let drawn = draw(&figures);
    assert_eq!(
        drawn.page,
        fs::read_to_string(at("r.html")).expect("written")
    );
}

/// A report of two parts, and its child that runs the one whose command line has this in it.
fn start_report(folder: &Path, parts: &str, command: &str) -> (Child, PathBuf) {
    let report = Command::new(env!("CARGO_BIN_EXE_stillpoint"))
        .args([
            "report",
            "--parts",
            parts,
            "--torture-s",
            "3600",
            "--output",
        ])
        .arg(folder.join("r.html"))
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let child = wait_for(|| child_of(report.id(), command));
    (report, child)
}

#[test]
fn a_part_that_is_killed_is_a_failure_and_the_report_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut report, child) = start_report(folder.path(), "kfree,sim-trace", "\0scale\0kfree\0");
    signal("KILL", &child);
    assert_eq!(report.wait().expect("it ends").code(), Some(1));
    let page = fs::read_to_string(folder.path().join("r.html")).expect("it was written");
    assert!(page.contains("1 of 2 parts failed") && page.contains("ended by signal 9"));
    assert!(titles(&page).contains(&"Mean RCU Tasks Trace wait by patch".to_owned()));
}

#[test]
fn nothing_outlives_a_report_that_is_broken_off_and_what_it_had_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut report, child) = start_report(folder.path(), "sim-trace,torture", "\0torture\0all\0");
    assert!(is_alive(&child));
    report.kill().expect("it runs");
    report.wait().expect("it ends");
    // Left alone it would go on for an hour.
    let orphan = Orphan(&child);
    wait_for(|| (!is_alive(orphan.0)).then_some(()));
    let partial = folder.path().join("r.json.partial");
    let figures = fs::read_to_string(partial).expect("it is there");
    let drawn = draw(&serde_json::from_str(&figures).expect("it is whole"));
    assert_eq!(
        titles(&drawn.page).last().map(String::as_str),
        Some("Mean RCU Tasks Trace wait by patch")
    );
    assert!(
        drawn
            .page
            .contains("Not finished: 1 of 2 parts are missing")
    );
}
