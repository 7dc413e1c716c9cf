//! `stillpoint-top`, as it is run: beside processes that publish, that do not, that lie, and that may
//! not be looked at.
//!
//! Each process is this test program, started again to play one [`part`].
#![cfg(target_os = "linux")]

mod part;
mod terminal;

use part::Part;
use serde_json::Value;
use std::{
    env,
    os::unix::process::CommandExt,
    process::{Command, Output},
};

/// What one run gave.
struct Run {
    code: i32,
    out: String,
    err: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("the program was not killed"),
            out: String::from_utf8(output.stdout).expect("the output is text"),
            err: String::from_utf8(output.stderr).expect("the messages are text"),
        }
    }
}

/// `stillpoint-top ARGUMENTS`.
fn stillpoint_top(arguments: &str) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stillpoint-top"));
    let output = command.args(arguments.split(' ')).output();
    output.expect("the program starts").into()
}

/// `stillpoint-top ARGUMENTS PID`.
fn top(arguments: &str, of: &Part) -> Run {
    stillpoint_top(&format!("{arguments} {}", of.pid()))
}

fn json(of: &Part) -> Value {
    let run = top("--once --json", of);
    assert_eq!(run.code, 0, "{}", run.err);
    serde_json::from_str(&run.out).expect("it is JSON")
}

/// A thing of a process, of the only one there is.
fn thing<'a>(seen: &'a Value, name: &str) -> &'a Value {
    let things = seen["processes"][0]["things"].as_array();
    let is_it = |thing: &&Value| thing["name"] == name;
    let thing = things.expect("there are things").iter().find(is_it);
    thing.unwrap_or_else(|| panic!("there is no {name} in {seen}"))
}

/// The part that the tests play in their own process.
#[test]
fn a_process_that_is_looked_at() {
    part::play();
}

#[test]
fn it_shows_domains_and_who_holds_them_up() {
    let stuck = Part::start("stuck");
    let run = top("--once", &stuck);
    assert_eq!((run.code, &*run.err), (0, ""), "{}", run.out);
    let lines: Vec<_> = run.out.lines().collect();
    assert_eq!(lines[0], "stillpoint-top: 1 process, 3 domains");
    assert_eq!(
        lines[1],
        "sorted by process; rates are means since each was made"
    );
    assert_eq!(
        lines[3].split_whitespace().collect::<Vec<_>>(),
        [
            "PID", "COMMAND", "DOMAIN", "GP/s", "P50", "P99", "UNRECL", "BUDGET", "WAIT/", "MB/s"
        ]
    );
    let row = |name: &str| {
        let row = lines.iter().find(|line| line.contains(name));
        let row = row.unwrap_or_else(|| panic!("no {name}:\n{}", run.out));
        row.split_whitespace().collect::<Vec<_>>()
    };
    let routes = row("routes");
    assert_eq!(routes[0], stuck.pid().to_string());
    assert_eq!((routes[2], routes[7]), ("routes", "1.0M"));
    assert_ne!(routes[3], "0", "grace periods a second");
    assert_eq!(row("!stuck")[2], "!stuck");
    assert!(run.out.contains("STALLED") && run.out.contains("stuck: grace period, for "));
    assert!(run.out.contains("thread 'sleeper'"), "{}", run.out);
    let is_short = |line: &&str| line.chars().count() <= 80;
    assert!(lines.iter().all(is_short), "{}", run.out);
    assert!(!run.out.contains('\u{1b}'), "a pipe gets no colors");
}

#[test]
fn it_prints_json() {
    let stuck = Part::start("stuck");
    let seen = json(&stuck);
    assert_eq!(seen["processes"][0]["pid"], stuck.pid());
    assert_eq!(seen["unreadable"], Value::Array(vec![]));
    let routes = thing(&seen, "routes");
    assert_eq!(routes["values"]["budget_bytes"], 1_u64 << 20);
    let times = &routes["values"]["grace_period_times"];
    let [count, p50, p99, max] =
        ["count", "p50_us", "p99_us", "max_us"].map(|name| times[name].as_f64().expect("a number"));
    assert!(count > 0.0 && p50 <= p99 && p99 <= max, "{times}");
    assert_eq!(routes["values"]["stalled_since_s"], Value::Null);
    let stalled = &thing(&seen, "stuck")["values"];
    assert!(
        stalled["stalled_since_s"]
            .as_f64()
            .is_some_and(|since| since >= 0.0)
    );
    assert!(
        stalled["stall"]
            .as_str()
            .is_some_and(|stall| stall.contains("'sleeper'"))
    );
    // The same among all that there are.
    let all = stillpoint_top("--once --json");
    let all: Value = serde_json::from_str(&all.out).expect("it is JSON");
    let mut processes = all["processes"].as_array().expect("a list").iter();
    assert!(processes.any(|process| process["pid"] == stuck.pid()));
    assert_eq!(stillpoint_top("--json").code, 2, "--json needs --once");
}

#[test]
fn it_says_why_there_is_nothing_to_see() {
    let gone = stillpoint_top("--once 4194999");
    assert_eq!(gone.code, 1);
    assert_eq!(
        gone.err,
        "stillpoint-top: process 4194999: there is no such process\n"
    );
    let silent = Part::start("silent");
    let run = top("--once", &silent);
    assert_eq!(run.code, 1);
    assert!(
        run.err.contains("STILLPOINT_STATS=on") && run.out.is_empty(),
        "{}",
        run.err
    );
}

/// `stillpoint-top ARGUMENTS` as another user; `None` where the tests are no root's, or that user may
/// not start the program.
fn as_nobody(arguments: &str) -> Option<Run> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stillpoint-top"));
    let command = command.args(arguments.split(' ')).uid(65534).gid(65534);
    Some(command.output().ok()?.into())
}

#[test]
fn it_says_what_may_not_be_looked_at() {
    let stuck = Part::start("stuck");
    let Some(run) = as_nobody(&format!("--once {}", stuck.pid())) else {
        return eprintln!("not tried: this takes root, and a program that all may start");
    };
    assert_eq!(run.code, 3, "{}", run.err);
    assert!(run.err.contains("may not be looked at"), "{}", run.err);
    let all = as_nobody("--once").expect("it went before");
    assert_eq!(all.code, 0, "{}", all.err);
    let says = all.out.contains("may not be looked at");
    assert!(says && !all.out.contains("routes"), "{}", all.out);
}

/// It is of the same user, so its descriptors are listed; but they may not be followed.
#[test]
fn a_process_with_more_capabilities_may_not_be_looked_at() {
    let Some(capable) = Part::try_start("capable") else {
        return eprintln!("not tried: this takes root");
    };
    let Some(run) = as_nobody(&format!("--once {}", capable.pid())) else {
        return eprintln!("not tried: this takes a program that all may start");
    };
    assert_eq!(run.code, 3, "{} {}", run.out, run.err);
}

#[test]
fn what_is_no_page_is_said_to_be_none() {
    for (part, why) in [
        ("short", "it has another length"),
        ("unsealed", "it is not sealed"),
        ("zeros", "it is not a statistics page"),
        ("version", "it has version 7"),
        ("leased", "it holds a lease on it"),
        ("many", "none of its first 16 files"),
    ] {
        let liar = Part::start(part);
        let run = top("--once", &liar);
        assert_eq!(run.code, 4, "{part}: {} {}", run.out, run.err);
        assert!(run.err.contains(why), "{part}: {}", run.err);
        // It does not keep others from being seen.
        let all = stillpoint_top("--once");
        assert_eq!(all.code, 0, "{part}: {}", all.err);
        let said = format!("{:>7} ", liar.pid());
        let is_said = all.out.lines().any(|line| line.starts_with(&said));
        assert!(is_said, "{part}: {}", all.out);
    }
}

#[test]
fn a_page_of_another_process_is_not_shown_as_its_own() {
    let run = top("--once", &Part::start("inherited"));
    assert_eq!(run.code, 1, "{} {}", run.out, run.err);
}

#[test]
fn what_a_terminal_would_obey_is_not_printed() {
    let liar = Part::start("escapes");
    for arguments in ["--once", "--once --json"] {
        let run = top(arguments, &liar);
        assert_eq!(run.code, 0, "{}", run.err);
        assert!(run.out.contains("?[2J"), "{}", run.out);
        let is_obeyed = |c: char| c.is_control() && c != '\n';
        assert!(!run.out.contains(is_obeyed), "{:?}", run.out);
    }
}

/// The screen of a terminal, with its keys: `scripts/top-in-tmux` fails if it does not see what it
/// waits for.
#[test]
fn it_runs_in_a_terminal() {
    if let Err(error) = Command::new("tmux").arg("-V").output() {
        assert!(env::var_os("CI").is_none(), "tmux is needed: {error}");
        return eprintln!("tmux is not there, the screen is not tried: {error}");
    }
    let stuck = Part::start("stuck");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/top-in-tmux");
    let run = Command::new(script)
        .arg(env!("CARGO_BIN_EXE_stillpoint-top"))
        .arg(stuck.pid().to_string())
        .output()
        .expect("the script starts");
    let (out, err) = (
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&run.stderr),
    );
    assert!(run.status.success(), "{out}{err}");
    assert!(out.contains("thread 'sleeper'"), "{out}");
}
