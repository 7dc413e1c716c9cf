//! The torture by its command line: sound flavours come out clean, broken ones are detected, and
//! the JSON says what it takes to do the same again.

mod program;
mod refused;

use std::process::Command;
use std::{fs, thread};

use program::stillpoint;
use refused::assert_refused;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The flavours of a kind, as `--list` has it, and the faults of which broken ones must show one.
fn flavours(kind: &str) -> Vec<(String, Vec<String>)> {
    let list = stillpoint("torture --list").out;
    let of_kind = list.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (name, found) = (words.next()?, words.next()?);
        let faults = words.next().map_or(Vec::new(), |faults| {
            faults.split(',').map(str::to_owned).collect()
        });
        (found == kind).then(|| (name.to_owned(), faults))
    });
    let flavours: Vec<_> = of_kind.collect();
    assert!(flavours.len() > 1, "{list}");
    flavours
}

const SOUND: &str = "sound";
const BROKEN: &str = "broken";

/// What only optimised code shows, where membarrier works, to two processors.
const BROKEN_IN_THE_HARDWARE: &str = "broken-in-the-hardware";

/// Broken flavours end with the first fault; this is for machines with better things to do.
const LONG: &str = "--duration 300";

struct Tortured {
    code: i32,
    out: String,
    json: Value,
}

impl Tortured {
    fn new(arguments: &str) -> Self {
        let folder = TempDir::new().expect("a folder for temporary files");
        let file = folder.path().join("figures.json");
        let run = stillpoint(&format!("torture {arguments} --json {}", file.display()));
        let text =
            fs::read_to_string(file).unwrap_or_else(|_| panic!("no JSON: {}{}", run.out, run.err));
        Self {
            code: run.code,
            out: run.out,
            json: serde_json::from_str(&text).expect("it is JSON"),
        }
    }

    fn row(&self, flavour: &str) -> &Value {
        let mut rows = self.json["rows"]
            .as_array()
            .expect("rows is an array")
            .iter();
        let row = rows.find(|row| row["subject"] == "stillpoint" && row["variant"] == flavour);
        row.expect("there is such a row")
    }

    fn figure(&self, flavour: &str, name: &str) -> f64 {
        let figure = self.row(flavour)["metrics"][name].as_f64();
        figure.unwrap_or_else(|| panic!("{name}: {}", self.json))
    }

    fn assert_clean(&self, flavour: &str) {
        assert_eq!(self.figure(flavour, "errors"), 0.0, "{}", self.out);
        self.assert_some(flavour, &["reader_sections", "grace_periods"]);
    }

    fn assert_some(&self, flavour: &str, counts: &[&str]) {
        for count in counts {
            assert!(self.figure(flavour, count) > 0.0, "{count}: {}", self.out);
        }
    }

    fn assert_says(&self, texts: &[&str]) {
        for text in texts {
            assert!(self.out.contains(text), "{text}: {}", self.out);
        }
    }

    fn assert_detected(&self, flavour: &str, faults: &[String]) {
        assert_eq!(self.code, 1, "{}", self.out);
        assert_eq!(self.json["params"]["as_expected"], true, "{}", self.out);
        let count = |fault| self.figure(flavour, &format!("errors_{fault}"));
        assert!(faults.iter().map(count).sum::<f64>() > 0.0, "{}", self.out);
        // And how to do the same again.
        let command = format!("stillpoint torture {flavour} --seed ");
        self.assert_says(&[&format!("{flavour}: FAILURE after "), &command]);
    }
}

#[test]
fn sound_flavours_are_clean() {
    let all = Tortured::new("all --duration 14 --seed 3");
    assert_eq!(all.code, 0, "{}", all.out);
    let sound = flavours(SOUND);
    for (flavour, _) in &sound {
        // Its two threads are bound to a processor each, and may have had no turn together.
        if flavour == "wake" {
            assert_eq!(all.figure(flavour, "errors"), 0.0, "{}", all.out);
        } else {
            all.assert_clean(flavour);
        }
    }
    for flavour in ["kvfree", "lru", "vmap"] {
        all.assert_some(flavour, &["objects"]);
    }
    assert_eq!(all.json["experiment"], "torture");
    assert_eq!(all.json["params"]["seed"], 3);
    assert_eq!(all.json["rows"].as_array().map(Vec::len), Some(sound.len()));
    assert!(all.json["machine"]["cpus"].as_u64() >= Some(1));
    all.assert_says(&["\nSUCCESS (all, seed 3)\n"]);
}

#[test]
fn counts_and_verdicts_are_in_words() {
    let run = Tortured::new("rcu --calm --duration 0.5 --stat-interval 0.1 --seed 6");
    assert_eq!(run.code, 0, "{}", run.out);
    run.assert_says(&[
        "rcu: 0.5 s, seed 6: 3 readers, 2 writers, 2 that only wait; no disturbances\n",
        " s so far: ",
        " read sections checked, ",
        "rcu: SUCCESS after ",
        "; no faults\n",
    ]);
    let broken = Tortured::new(&format!("busted {LONG}"));
    broken.assert_says(&["; FAULTS: "]);
}

#[test]
fn broken_flavours_are_found_out() {
    for (flavour, faults) in flavours(BROKEN) {
        Tortured::new(&format!("{flavour} {LONG}")).assert_detected(&flavour, &faults);
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "only optimized code shows it")]
fn what_only_the_hardware_breaks_is_found_out() {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    if !stillpoint::membarrier_active() || processors < 2 {
        return eprintln!("skipped: without membarrier or two processors there is nothing to see");
    }
    for (flavour, faults) in flavours(BROKEN_IN_THE_HARDWARE) {
        Tortured::new(&format!("{flavour} {LONG}")).assert_detected(&flavour, &faults);
    }
}

#[test]
fn handlers_read_lists_and_areas_too() {
    for flavour in ["lru", "vmap"] {
        let run = Tortured::new(&format!("{flavour} --duration 2 --signals"));
        assert_eq!(run.code, 0, "{}", run.out);
        run.assert_clean(flavour);
        run.assert_some(flavour, &["signals"]);
    }
}

#[test]
fn what_cannot_be_found_out_here_is_refused() {
    for (flavour, _) in flavours(BROKEN_IN_THE_HARDWARE) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stillpoint"));
        command
            .args(["torture", &flavour])
            .env("STILLPOINT_MEMBARRIER", "off");
        let run = command.output().expect("the program starts");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("{flavour} cannot be detected here")),
            "{said}"
        );
    }
}

#[test]
fn every_disturbance_does_something_when_it_is_asked_for() {
    let asked = "--stall-reader 0.1 --stall-service 0.05 --fwd-progress --barrier-callbacks 3 --read-exit --registration-churn --signals \
                 --preempt --shuffle --stutter --gpwrap --fork";
    let run = Tortured::new(&format!(
        "rcu --duration 3 --seed 5 --readers 3 --writers 1 --fakewriters 1 {asked}"
    ));
    assert_eq!(run.code, 0, "{}", run.out);
    run.assert_clean("rcu");
    run.assert_some("rcu", &["barriers", "signals", "thread_exits"]);
    run.assert_some("rcu", &["forks", "callbacks", "stalls"]);
    let plan = &run.json["params"]["plans"][0];
    for (name, value) in [
        ("readers", json!(3)),
        ("writers", json!(1)),
        ("gpwrap", json!(true)),
    ] {
        assert_eq!(plan[name], value);
    }
    assert_eq!(plan["disturbances"].as_array().map(Vec::len), Some(11));
    assert_eq!(plan["turns"], "whole");
}

#[test]
fn the_seed_decides_the_parameters() {
    let plan = |seed| {
        let run = Tortured::new(&format!("qsbr --calm --duration 0.2 --seed {seed}"));
        run.json["params"]["plans"].clone()
    };
    assert_eq!(plan(8), plan(8));
    assert_ne!(plan(8), plan(9));
    let unseeded = Tortured::new("qsbr --calm --duration 0.2");
    let seed = unseeded.json["params"]["seed"].as_u64().expect("a number");
    unseeded.assert_says(&[&format!("qsbr: 0.2 s, seed {seed}: ")]);
    assert_eq!(plan(seed), unseeded.json["params"]["plans"]);
}

const REFUSED: &str = "
torture nothing => no flavour 'nothing' | say all, rcu, rcu-fence | busted-wake
torture rcu --readers 0 => --readers | 1..=1024
torture rcu --writers 65 => --writers | 1..=64
torture rcu --duration 0 => --duration | say seconds
torture rcu --stall-reader x => --stall-reader | say seconds
torture rcu --barrier-callbacks 0 => --barrier-callbacks | 1..=64
torture rcu --calm --fork => --calm | cannot be used with
torture wake --writers 2 => --writers is not supported by flavour wake: | --fakewriters, --signals)
torture busted-wake --readers 3 => --readers is not supported by flavour busted-wake:
torture busted-poll --signals => --signals is not supported by flavour busted-poll:
torture busted-lru --fakewriters 1 => --fakewriters is not supported by flavour busted-lru:
torture lru --gpwrap => --gpwrap is not supported by flavour lru:
torture => <FLAVOUR>
";

#[test]
fn bad_usage_is_refused_and_explained() {
    assert_refused(REFUSED);
    let run = stillpoint("torture rcu --json /nowhere/at/all");
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(
        run.err.contains("cannot write /nowhere/at/all"),
        "{}",
        run.err
    );
}

#[test]
fn help_has_the_table_of_flavours_and_what_cannot_be_shown_here() {
    let help = stillpoint("torture --help").out;
    let kinds = [SOUND, BROKEN, BROKEN_IN_THE_HARDWARE];
    for (name, _) in kinds.into_iter().flat_map(flavours) {
        assert!(help.contains(&format!("  {name} ")), "{name}: {help}");
    }
    assert!(help.contains("models/check"), "{help}");
}
