//! Settings in the environment, each value in a separate process.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{CHILD, Ended, Reader, child_of, eventually, in_environments};
use std::{thread, time::Duration};
use stillpoint::Domain;

const MEMBARRIER: &str = "STILLPOINT_MEMBARRIER";
const STALL: &str = "STILLPOINT_STALL";

/// Returns the library's lines in a child's output.
/// Those about the service thread are left out: a busy machine may keep that waiting for longer than a time-out.
fn lines(ended: &Ended) -> Vec<&str> {
    let lines = ended.stderr.lines();
    lines
        .filter(|line| line.starts_with("stillpoint: ") && !line.contains(" service thread of "))
        .collect()
}

/// Runs the test `name` again, as the child `what`, with the variable's value. Returns how it
/// ended, with its output.
fn again(name: &str, what: &str, variable: &str, value: &str) -> Ended {
    let ended = in_environments(name, &[(CHILD, what), (variable, value)]);
    ended.well();
    ended
}

/// Checks that a warning names `variable` once, and says what it takes.
#[track_caller]
fn assert_told(ended: &Ended, variable: &str, value: &str) {
    let said = lines(ended);
    let told: Vec<_> = said
        .iter()
        .filter(|line| line.contains(variable) && line.contains("not understood"))
        .collect();
    assert_eq!(told.len(), 1, "{value}: {}", ended.stderr);
    assert!(
        told[0].contains(&format!("{variable}={value} ")),
        "{told:?}"
    );
}

#[test]
fn membarrier_is_turned_off_by_any_word_for_it() {
    let name = "membarrier_is_turned_off_by_any_word_for_it";
    if child_of().is_some() {
        // From several threads at once: it is looked at once, or told of once.
        thread::scope(|scope| {
            (0..4).for_each(|_| _ = scope.spawn(|| drop(stillpoint::read_lock())));
        });
        println!("membarrier {}", stillpoint::membarrier_active());
        return;
    }
    let shown = |value: &str| again(name, "1", MEMBARRIER, value);
    let works = shown("on").stdout.contains("membarrier true");
    for value in ["off", "OFF", "0", "no", "False", " off "] {
        let ended = shown(value);
        assert!(ended.stdout.contains("membarrier false"), "{value}");
        assert!(lines(&ended).is_empty(), "{value}: {}", ended.stderr);
    }
    for value in ["", "1", "YES", "true"] {
        let ended = shown(value);
        assert_eq!(ended.stdout.contains("membarrier true"), works, "{value}");
        assert!(lines(&ended).is_empty(), "{value}: {}", ended.stderr);
    }
    for value in ["banana", "offf", "2"] {
        let ended = shown(value);
        assert_eq!(ended.stdout.contains("membarrier true"), works, "{value}");
        assert_told(&ended, MEMBARRIER, value);
        assert_eq!(lines(&ended).len(), 1, "{}", ended.stderr);
    }
}

/// Stalls the domain once, for much longer than its time-out; `stalls` is whether that counts.
fn stall(domain: &Domain, stalls: bool) {
    let reader = Reader::enter(domain);
    domain.call(|| ());
    if stalls {
        eventually(|| domain.statistics().stalls == 1);
    }
    thread::sleep(Duration::from_millis(200));
    assert_eq!(domain.statistics().stalls, u64::from(stalls));
    reader.leave();
    domain.barrier();
}

const SHORT: Duration = Duration::from_millis(10);

#[test]
fn the_environment_says_when_stalls_are_written_to_stderr() {
    let name = "the_environment_says_when_stalls_are_written_to_stderr";
    let domain = Domain::new();
    match child_of().as_deref() {
        Some("no handler") => {
            domain.set_stall_timeout(SHORT);
            return stall(&domain, true);
        }
        Some("a handler") => {
            domain.on_stall(|_| println!("the handler is told"));
            domain.set_stall_timeout(SHORT);
            return stall(&domain, true);
        }
        Some("a handler taken back") => {
            domain.on_stall(|_| ());
            domain.reset_on_stall();
            domain.set_stall_timeout(SHORT);
            return stall(&domain, true);
        }
        Some("no time-out") => {
            domain.set_stall_timeout(Duration::ZERO);
            return stall(&domain, false);
        }
        Some("its time-out") => return stall(&domain, true),
        Some("the default time-out") => return stall(&domain, false),
        _ => (),
    }
    let reports = |what: &str, value: &str| {
        let ended = again(name, what, STALL, value);
        assert_eq!(
            ended.stdout.contains("the handler is told"),
            what == "a handler",
            "{what}, {value}"
        );
        println!("{}", ended.stderr);
        let reports = lines(&ended);
        let reports = reports
            .iter()
            .filter(|line| line.contains(" stalled for ") && line.contains("holds a guard"));
        (reports.count(), lines(&ended).len())
    };
    for (what, value, written) in [
        ("no handler", "", 1),
        ("no handler", "stderr", 1),
        ("no handler", "On", 1),
        ("no handler", "off", 0),
        ("no handler", "0", 0),
        ("no handler", "NO", 0),
        ("no handler", "3600", 1),
        ("a handler", "", 0),
        ("a handler", "0.05", 0),
        ("a handler", "off", 0),
        ("a handler", "stderr", 1),
        ("a handler taken back", "", 1),
        ("a handler taken back", "off", 0),
        ("no time-out", "", 0),
        ("no time-out", "0.001", 0),
        ("its time-out", "0.05", 1),
        ("its time-out", "1e-2", 1),
        ("the default time-out", "", 0),
        ("the default time-out", "3600", 0),
        ("the default time-out", "off", 0),
    ] {
        assert_eq!(reports(what, value), (written, written), "{what}, {value}");
    }
    for value in ["10 s", "-1", "nan", "often", "inf"] {
        let ended = again(name, "no handler", STALL, value);
        assert_told(&ended, STALL, value);
        assert_eq!(lines(&ended).len(), 2, "and the stall: {}", ended.stderr);
    }
}
