//! Ctrl-C and SIGTERM: what is known so far is told, the files of the run before stay, no child is
//! left behind.

mod processes;

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use processes::{Orphan, child_of, is_alive, signal, wait_for};
use serde_json::Value;
use tempfile::TempDir;

const OLD: &str = "the figures of last night";

/// A scale run that goes on for long, with little to measure in each round.
const SCALE: &str =
    "scale kfree --threads 2 --loops 4 --objects 100 --rounds 1000 --peers none --seed 77";

/// The same with a measurement that goes on for long.
const ENDLESS: &str = "scale kfree --threads 1 --loops 1000000 --objects 100000 --rounds 1 --peers none \
     --timeout-s 86400";

/// A run that writes to `keep.json` in a folder, where there are figures already.
struct Started {
    folder: TempDir,
    child: Child,
    /// In `/proc`.
    process: PathBuf,
}

impl Started {
    fn new(arguments: &str, stdout: Stdio) -> Self {
        let folder = TempDir::new().expect("a folder for temporary files");
        fs::write(folder.path().join("keep.json"), OLD).expect("it can be written");
        // Also where the tests run in the background of a shell, in which SIGINT is ignored.
        let child = Command::new("env")
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_stillpoint")])
            .args(arguments.split(' '))
            .args(["--json", "keep.json"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let process = PathBuf::from(format!("/proc/{}", child.id()));
        Self {
            folder,
            child,
            process,
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.folder.path().join(name)).ok()
    }

    /// Waits until standard error has this.
    fn wait_for_line(&mut self, wanted: &str) {
        let errors = self.child.stderr.as_mut().expect("piped");
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains(wanted) {
            let mut byte = [0];
            let read = errors.read(&mut byte).expect("it can be read");
            let so_far = String::from_utf8_lossy(&said);
            assert!(read > 0, "no '{wanted}' in: {so_far}");
            said.push(byte[0]);
        }
    }

    /// Waits until the program catches SIGINT, or does so no more.
    fn wait_until_caught(&self, caught: bool) {
        wait_for(|| (catches_interrupt(&self.process) == caught).then_some(()));
    }

    /// The exit code, and what was printed.
    fn end(&mut self) -> (Option<i32>, String) {
        let mut out = String::new();
        let stdout = self.child.stdout.as_mut().expect("piped");
        stdout.read_to_string(&mut out).expect("it is text");
        (self.child.wait().expect("it ends").code(), out)
    }

    fn assert_old_is_kept(&self) {
        assert_eq!(self.text("keep.json").as_deref(), Some(OLD));
        let names: Vec<_> = fs::read_dir(self.folder.path())
            .expect("it is there")
            .map(|entry| entry.expect("it can be read").file_name())
            .filter(|name| name != "keep.json" && name != "keep.json.partial")
            .collect();
        assert!(names.is_empty(), "{names:?}");
    }

    fn partial(&self) -> Value {
        let text = self.text("keep.json.partial").expect("it is there");
        serde_json::from_str(&text).expect("it is JSON")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn catches_interrupt(process: &Path) -> bool {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << 1) != 0)
}

#[test]
fn an_interrupted_scale_prints_the_rounds_so_far() {
    let mut run = Started::new(SCALE, Stdio::piped());
    // A round has eight measurements: each case has been measured then.
    run.wait_for_line("stillpoint: 8 of 8000: ");
    signal("INT", &run.process);
    let (code, out) = run.end();
    assert_eq!(code, Some(130), "{out}");
    for text in ["INTERRUPTED", "seed 77", "| stillpoint | call ", "| limit "] {
        assert!(out.contains(text), "{text}: {out}");
    }
    run.assert_old_is_kept();
    let partial = run.partial();
    assert_eq!(partial["partial"], true);
    assert_eq!(partial["rows"].as_array().map(Vec::len), Some(8));
}

#[test]
fn a_measurement_under_way_ends_with_the_run() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let mut run = Started::new(ENDLESS, Stdio::piped());
        let child = wait_for(|| child_of(run.child.id(), "\0measure\0"));
        let orphan = Orphan(&child);
        signal(name, &run.process);
        let (ended, out) = run.end();
        assert_eq!(ended, Some(code), "{out}");
        assert!(!is_alive(orphan.0), "{name}");
        assert!(out.contains("INTERRUPTED"), "{out}");
        run.assert_old_is_kept();
        assert!(run.text("keep.json.partial").is_none(), "nothing is known");
    }
}

#[test]
fn a_measurement_ends_with_a_run_that_is_killed() {
    let mut run = Started::new(ENDLESS, Stdio::piped());
    let child = wait_for(|| child_of(run.child.id(), "\0measure\0"));
    let orphan = Orphan(&child);
    signal("KILL", &run.process);
    let status = run.child.wait().expect("it ends");
    assert_eq!(status.signal(), Some(9));
    wait_for(|| (!is_alive(orphan.0)).then_some(()));
}

#[test]
fn an_interrupted_torture_prints_its_counts_and_its_seed() {
    let mut run = Started::new("torture all --duration 3000 --seed 78", Stdio::piped());
    run.wait_until_caught(true);
    signal("INT", &run.process);
    let (code, out) = run.end();
    assert_eq!(code, Some(130), "{out}");
    for text in [
        "rcu: INTERRUPTED after ",
        "no faults",
        "INTERRUPTED (all, seed 78)",
    ] {
        assert!(out.contains(text), "{text}: {out}");
    }
    assert!(!out.contains("SUCCESS"), "{out}");
    run.assert_old_is_kept();
    let partial = run.partial();
    assert_eq!(partial["partial"], true);
    assert_eq!(partial["params"]["seed"], 78);
    assert_eq!(partial["rows"].as_array().map(Vec::len), Some(1));
}

#[test]
fn an_interrupted_report_keeps_its_parts_beside_the_one_before() {
    let mut run = Started::new(
        "report --parts sim-trace,torture --torture-s 3000 --seed 79 --output r.html",
        Stdio::piped(),
    );
    let child = wait_for(|| child_of(run.child.id(), "\0torture\0"));
    let orphan = Orphan(&child);
    signal("INT", &run.process);
    let mut said = String::new();
    let errors = run.child.stderr.as_mut().expect("piped");
    errors.read_to_string(&mut said).expect("it is text");
    let (code, _) = run.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(
        said.contains("interrupted after 1 parts; seed 79") && said.contains("keep.json.partial"),
        "{said}"
    );
    assert!(!is_alive(orphan.0));
    run.assert_old_is_kept();
    let again = Command::new(env!("CARGO_BIN_EXE_stillpoint"))
        .args([
            "report",
            "--from",
            "keep.json.partial",
            "--output",
            "r.html",
        ])
        .current_dir(run.folder.path())
        .output()
        .expect("the program starts");
    assert_eq!(again.status.code(), Some(0), "{again:?}");
}

/// In place of cargo: waits for a child, as cargo does for rustc, and says which processes they are.
const BUILDS_FOR_LONG: &str = r#"#!/bin/sh
sleep 100 &
echo $$ $! > "${0%/*}/processes"
wait
"#;

#[test]
fn an_interrupted_report_ends_a_build_and_does_not_wait_for_what_that_has_started() {
    let folder = TempDir::new().expect("a folder for temporary files");
    let at = |name: &str| folder.path().join(name);
    // Another process writes it: a fork of this one could still have it open when it is started.
    let write = "printf %s \"$1\" > \"$0\"; chmod +x \"$0\"";
    let mut shell = Command::new("sh");
    shell
        .args(["-c", write])
        .arg(at("cargo"))
        .arg(BUILDS_FOR_LONG);
    assert!(shell.status().expect("there is sh").success());
    let path = env::var("PATH").expect("there is one");
    let mut report = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_stillpoint")])
        .args(["--quiet", "report", "--parts", "epoch", "--output"])
        .arg(at("r.html"))
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .spawn()
        .expect("the program starts");
    let [cargo, rustc] = wait_for(|| {
        let text = fs::read_to_string(at("processes")).ok()?;
        let (cargo, rustc) = text.strip_suffix('\n')?.split_once(' ')?;
        Some([cargo, rustc].map(|id| Path::new("/proc").join(id)))
    });
    let (_orphan, orphan) = (Orphan(&cargo), Orphan(&rustc));
    signal("INT", Path::new(&format!("/proc/{}", report.id())));
    assert_eq!(report.wait().expect("it ends").code(), Some(130));
    assert!(is_alive(orphan.0), "nothing has ended it");
    wait_for(|| (!is_alive(&cargo)).then_some(()));
}

#[test]
fn a_second_signal_ends_the_program_at_once() {
    // It stays in its first line, because nothing more fits into the pipe.
    let (_reader, mut writer) = io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("it is a pipe");
    while writer.write(&[b'x'; 64]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("it is a pipe");
    let mut run = Started::new("torture rcu --duration 3000", writer.into());
    run.wait_until_caught(true);
    signal("INT", &run.process);
    run.wait_until_caught(false);
    assert!(is_alive(&run.process), "it cannot print what it knows");
    signal("INT", &run.process);
    let status = run.child.wait().expect("it ends");
    assert_eq!(status.signal(), Some(2));
    run.assert_old_is_kept();
}

#[test]
fn a_signal_that_is_ignored_stays_so() {
    let folder = TempDir::new().expect("a folder for temporary files");
    let json = folder.path().join("figures.json");
    let mut shell = Command::new("sh")
        .args(["-c", "trap '' INT; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_stillpoint"))
        .args("torture rcu --calm --duration 2 --seed 1 --json".split(' '))
        .arg(&json)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let process = PathBuf::from(format!("/proc/{}", shell.id()));
    // SIGTERM is caught, and SIGINT not even then.
    let mut out = [0; 4];
    let stdout = shell.stdout.as_mut().expect("piped");
    stdout.read_exact(&mut out).expect("it begins");
    assert_eq!(&out, b"rcu:");
    assert!(!catches_interrupt(&process));
    signal("INT", &process);
    assert_eq!(shell.wait().expect("it ends").code(), Some(0));
    let json = fs::read_to_string(json).expect("it is there");
    assert!(!json.contains("\"partial\""));
}
