//! The torture by its command line: sound flavours come out clean, broken ones are detected, and
//! the JSON says what it takes to do the same again.

mod program;

use std::process::Command;
use std::{fs, thread};

use program::stillpoint;
use serde_json::Value;
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
        rows.find(|row| row["subject"] == "stillpoint" && row["variant"] == flavour)
            .expect("there is such a row")
    }

    fn figure(&self, flavour: &str, name: &str) -> f64 {
        self.row(flavour)["metrics"][name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: {}", self.json))
    }

    fn assert_clean(&self, flavour: &str) {
        assert_eq!(self.figure(flavour, "errors"), 0.0, "{}", self.out);
        assert!(
            self.figure(flavour, "reader_sections") > 0.0,
            "{}",
            self.out
        );
        assert!(self.figure(flavour, "grace_periods") > 0.0, "{}", self.out);
    }

    fn assert_detected(&self, flavour: &str, faults: &[String]) {
        assert_eq!(self.code, 1, "{}", self.out);
        assert!(
            self.out.contains(&format!("{flavour}: FAILURE after ")),
            "{}",
            self.out
        );
        assert_eq!(self.json["params"]["as_expected"], true, "{}", self.out);
        let found: f64 = faults
            .iter()
            .map(|fault| self.figure(flavour, &format!("errors_{fault}")))
            .sum();
        assert!(found > 0.0, "{}", self.out);
        assert!(
            self.out
                .contains(&format!("stillpoint torture {flavour} --seed ")),
            "how to do the same again: {}",
            self.out
        );
    }
}

#[test]
fn sound_flavours_are_clean() {
    let all = Tortured::new("all --duration 9 --seed 3 --kernel-format");
    assert_eq!(all.code, 0, "{}", all.out);
    assert!(
        all.out.contains("all-torture:--- End of test: SUCCESS"),
        "{}",
        all.out
    );
    let sound = flavours(SOUND);
    sound
        .iter()
        .for_each(|(flavour, _)| all.assert_clean(flavour));
    assert!(all.figure("kvfree", "objects") > 0.0);
    assert!(all.figure("lru", "objects") > 0.0);
    assert!(all.figure("vmap", "objects") > 0.0);
    assert_eq!(all.json["experiment"], "torture");
    assert_eq!(all.json["params"]["seed"], 3);
    assert_eq!(all.json["rows"].as_array().map(Vec::len), Some(sound.len()));
    assert!(all.json["machine"]["cpus"].as_u64() >= Some(1));
    for line in [
        "Reader Pipe:",
        "Reader Batch:",
        "rtc: ",
        " ver: ",
        " tfle: ",
        "Start of test: seed=3",
    ] {
        assert!(all.out.contains(line), "{line}: {}", all.out);
    }
}

#[test]
fn counts_and_verdicts_are_in_words() {
    let run = Tortured::new("rcu --calm --duration 0.5 --stat-interval 0.1 --seed 6");
    assert_eq!(run.code, 0, "{}", run.out);
    for text in [
        "rcu: 0.5 s, seed 6: 3 readers, 2 writers, 2 that only wait; no disturbances\n",
        " s so far: ",
        " read sections checked, ",
        "rcu: SUCCESS after ",
        "; no faults\n",
    ] {
        assert!(run.out.contains(text), "{text}: {}", run.out);
    }
    let broken = Tortured::new(&format!("busted {LONG}"));
    assert!(broken.out.contains("; FAULTS: "), "{}", broken.out);
    for text in ["rtc:", "-torture:", "!!!"] {
        assert!(
            !run.out.contains(text) && !broken.out.contains(text),
            "{text}"
        );
    }
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
    if !stillpoint::membarrier_active()
        || thread::available_parallelism().map_or(1, usize::from) < 2
    {
        return eprintln!(
            "skipped: without membarrier, or on one processor, there is nothing to see"
        );
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
        assert!(run.figure(flavour, "signals") > 0.0, "{}", run.out);
    }
}

#[test]
fn what_cannot_be_found_out_here_is_refused() {
    for (flavour, _) in flavours(BROKEN_IN_THE_HARDWARE) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stillpoint"));
        let run = command
            .args(["torture", &flavour])
            .env("STILLPOINT_MEMBARRIER", "off")
            .output()
            .expect("the program starts");
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
        "rcu --kernel-format --duration 3 --seed 5 --readers 3 --writers 1 --fakewriters 1 {asked}"
    ));
    assert_eq!(run.code, 0, "{}", run.out);
    run.assert_clean("rcu");
    for count in [
        "barriers",
        "signals",
        "thread_exits",
        "forks",
        "callbacks",
        "stalls",
    ] {
        assert!(run.figure("rcu", count) > 0.0, "{count}: {}", run.out);
    }
    // Handlers' sections are in both, too.
    for histogram in ["Reader Pipe: ", "Reader Batch: "] {
        let (_, counts) = run
            .out
            .rsplit_once(histogram)
            .expect("there is one at the end");
        let sum: u64 = counts
            .lines()
            .next()
            .expect("a line")
            .split_whitespace()
            .map(|count| count.parse::<u64>().expect("a count"))
            .sum();
        assert_eq!(
            sum as f64,
            run.figure("rcu", "reader_sections"),
            "{histogram}: {}",
            run.out
        );
    }
    let plan = &run.json["params"]["plans"][0];
    assert_eq!(
        (&plan["readers"], &plan["writers"], &plan["gpwrap"]),
        (&3.into(), &1.into(), &true.into())
    );
    assert_eq!(plan["disturbances"].as_array().map(Vec::len), Some(11));
    assert_eq!(plan["turns"], "whole");
}

#[test]
fn the_seed_decides_the_parameters() {
    let plan = |seed| {
        Tortured::new(&format!("qsbr --calm --duration 0.2 --seed {seed}")).json["params"]["plans"]
            .clone()
    };
    assert_eq!(plan(8), plan(8));
    assert_ne!(plan(8), plan(9));
    let unseeded = Tortured::new("qsbr --calm --duration 0.2");
    let seed = unseeded.json["params"]["seed"].as_u64().expect("a number");
    assert!(
        unseeded
            .out
            .contains(&format!("qsbr: 0.2 s, seed {seed}: ")),
        "{}",
        unseeded.out
    );
    assert_eq!(plan(seed), unseeded.json["params"]["plans"]);
}

#[test]
fn bad_usage_is_refused_and_explained() {
    let refused: &[(&str, &[&str])] = &[
        (
            "torture nothing",
            &[
                "no flavour 'nothing'",
                "say all, rcu, rcu-fence",
                "busted-wake",
            ],
        ),
        ("torture rcu --readers 0", &["--readers", "1..=1024"]),
        ("torture rcu --writers 65", &["--writers", "1..=64"]),
        ("torture rcu --duration 0", &["--duration", "say seconds"]),
        (
            "torture rcu --stall-reader x",
            &["--stall-reader", "say seconds"],
        ),
        (
            "torture rcu --barrier-callbacks 0",
            &["--barrier-callbacks", "1..=64"],
        ),
        (
            "torture rcu --calm --fork",
            &["--calm", "cannot be used with"],
        ),
        (
            "torture wake --writers 2",
            &[
                "--writers is not supported by flavour wake:",
                "--fakewriters, --signals)",
            ],
        ),
        (
            "torture busted-wake --readers 3",
            &["--readers is not supported by flavour busted-wake:"],
        ),
        (
            "torture busted-poll --signals",
            &["--signals is not supported by flavour busted-poll:"],
        ),
        (
            "torture busted-lru --fakewriters 1",
            &["--fakewriters is not supported by flavour busted-lru:"],
        ),
        (
            "torture lru --gpwrap",
            &["--gpwrap is not supported by flavour lru:"],
        ),
        ("torture", &["<FLAVOUR>"]),
    ];
    for (arguments, fragments) in refused {
        let run = stillpoint(arguments);
        assert_eq!(
            (run.code, run.out.as_str()),
            (2, ""),
            "{arguments}: {}",
            run.err
        );
        for fragment in *fragments {
            assert!(
                run.err.contains(fragment),
                "{arguments}: no '{fragment}' in: {}",
                run.err
            );
        }
    }
    let run = stillpoint("torture rcu --json /nowhere/at/all");
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(
        run.err.contains("cannot write /nowhere/at/all"),
        "{}",
        run.err
    );
}

#[test]
fn help_has_the_table_of_flavours_and_what_cannot_be_shown_here() {
    let help = stillpoint("torture --help").out;
    for (name, _) in [SOUND, BROKEN, BROKEN_IN_THE_HARDWARE]
        .into_iter()
        .flat_map(flavours)
    {
        assert!(help.contains(&format!("  {name} ")), "{name}: {help}");
    }
    assert!(help.contains("models/check"), "{help}");
}
