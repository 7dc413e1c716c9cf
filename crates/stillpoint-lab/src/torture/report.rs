//! The text and the JSON of a run.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use serde_json::Value;

use crate::interrupt;
use crate::load::Watch;
use crate::machine::{Machine, environment, this_program, with_environment};
use crate::output::{Output, Report, Row, say};
use crate::run::{Case, Metrics};

use super::options::{Plan, Turns};
use super::session::Session;
use super::tally::{FAULTS, Fault, Tally};

/// What one flavour's run came to.
pub struct Outcome {
    /// The counts, for the JSON.
    pub row: Row,
    /// True if nothing was wrong.
    pub clean: bool,
    /// True if only that was wrong which had been left out on purpose.
    pub as_expected: bool,
}

/// The line at the start: all that it takes to do the same again.
pub fn announce(plan: &Plan) {
    let (flavour, seed) = (&plan.flavour, plan.seed);
    let names: Vec<String> = plan
        .disturbances
        .iter()
        .map(|disturbance| disturbance.option().replace('-', " "))
        .collect();
    let disturbances = match plan.turns {
        _ if names.is_empty() => "no disturbances".to_owned(),
        Turns::Short => "all disturbances in turn".to_owned(),
        Turns::Whole => format!("all the time: {}", names.join(", ")),
    };
    let wrap = if plan.gpwrap {
        ", sequences that wrap"
    } else {
        ""
    };
    say!(
        "{flavour}: {:.1} s, seed {seed}: {} readers, {} writers, {} that only wait; {disturbances}{wrap}",
        plan.duration_s,
        plan.readers,
        plan.writers,
        plan.fakewriters
    );
}

/// Prints the counts so far.
pub fn say_counts(session: &Session) {
    let (flavour, so_far) = (&session.plan.flavour, session.start.elapsed());
    let so_far = so_far.as_secs_f64();
    say!("{flavour}: {so_far:.1} s so far: {}", counts(session));
}

/// Returns each count with the figure's name and its words in the report.
fn counted(tally: &Tally) -> [(&'static str, &'static str, u64); 11] {
    let counts: [(_, _, &AtomicU64); 11] = [
        ("reader_sections", "read sections checked", &tally.sections),
        ("waits", "waits for grace periods", &tally.waits),
        ("elements", "elements recycled", &tally.recycled),
        ("callbacks", "callbacks", &tally.invoked),
        ("objects", "deferred frees", &tally.freed),
        ("barriers", "barriers", &tally.barriers_done),
        ("signals", "signal handlers", &tally.signals),
        ("thread_exits", "threads come and gone", &tally.exits),
        ("forks", "forks", &tally.forks),
        ("stalls", "stalls reported", &tally.stalls),
        ("grace_periods", "", &tally.grace_periods),
    ];
    counts.map(|(name, words, count)| (name, words, count.load(Ordering::Relaxed)))
}

/// What has been done, in words; what a flavour does not do is left out.
fn counts(session: &Session) -> String {
    let done = counted(&session.tally)
        .into_iter()
        .filter(|(_, words, count)| !words.is_empty() && *count > 0)
        .map(|(_, words, count)| format!("{count} {words}"));
    let faults = FAULTS
        .iter()
        .map(|&(fault, name)| (session.tally.count_of(fault), name.replace('_', " ")))
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{name} ({count})"));
    let done = done.collect::<Vec<_>>().join(", ");
    let faults = match faults.collect::<Vec<_>>().join(", ").as_str() {
        "" => "no faults".to_owned(),
        faults => format!("FAULTS: {faults}"),
    };
    match done.as_str() {
        "" => faults,
        done => format!("{done}; {faults}"),
    }
}

/// What a run came to, in a word.
pub fn verdict(clean: bool) -> &'static str {
    match interrupt::received() {
        _ if !clean => "FAILURE",
        Some(_) => "INTERRUPTED",
        None => "SUCCESS",
    }
}

/// The last lines of a flavour's run, which had to show one of the `expected` faults: none, if it
/// is sound.
pub fn conclude(session: &Session, expected: &[Fault]) -> Outcome {
    let (tally, plan) = (&session.tally, &session.plan);
    let survived = tally.survived(session.start).as_secs_f64();
    let clean = !tally.is_faulty();
    let found = |fault: Fault| tally.count_of(fault) > 0;
    let as_expected = match expected {
        [] => clean,
        expected => expected.iter().any(|&fault| found(fault)) && !found(Fault::NoEnd),
    };
    let (name, seed, verdict) = (&plan.flavour, plan.seed, verdict(clean));
    if let Some(first) = tally.first() {
        say!("{name}: after {survived:.3} s: {}", first.what);
    }
    if found(Fault::NoEnd) {
        say!(
            "{name}: the end has not come; threads that have not ended: {}",
            session.live()
        );
    }
    if !expected.is_empty() && !clean && !as_expected {
        say!("{name}: that is none of the faults expected of this flavour");
    }
    if !clean {
        let command = with_environment(&plan.command(), &environment());
        say!("{name}: to do the same again: {command}");
        say!("{name}: that was {}", this_program());
    }
    say!(
        "{name}: {verdict} after {survived:.3} s, seed {seed}: {}",
        counts(session)
    );
    let case = Case::new("stillpoint", name, None);
    Outcome {
        row: Row::new(case, metrics(session, survived)),
        clean,
        as_expected,
    }
}

fn metrics(session: &Session, survived: f64) -> Metrics {
    let tally = &session.tally;
    let counts = counted(tally)
        .into_iter()
        .map(|(name, _, count)| (name.to_owned(), count as f64));
    let faults = FAULTS
        .iter()
        .map(|&(fault, name)| (format!("errors_{name}"), tally.count_of(fault) as f64));
    let summary = [
        ("errors".to_owned(), tally.faults() as f64),
        ("survived_s".to_owned(), survived),
    ];
    counts.chain(faults).chain(summary).collect()
}

/// The outcomes of a run's flavours so far, and the file for them.
pub struct Results {
    /// What was asked for.
    params: Value,
    json: Option<Output>,
    watch: Watch,
    outcomes: Vec<Outcome>,
}

impl Results {
    /// With nothing in it.
    pub fn new(params: Value, json: Option<Output>, watch: Watch) -> Self {
        Self {
            params,
            json,
            watch,
            outcomes: Vec::new(),
        }
    }

    /// Adds a flavour's outcome.
    pub fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// Returns whether nothing was wrong so far.
    pub fn clean(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.clean)
    }

    /// Writes the file.
    pub fn write(&mut self) -> Result<()> {
        let Some(file) = self.json.take() else {
            return Ok(());
        };
        let outcomes = mem::take(&mut self.outcomes);
        let as_expected = outcomes.iter().all(|outcome| outcome.as_expected);
        self.params["as_expected"] = as_expected.into();
        let report = Report {
            experiment: "torture",
            params: mem::take(&mut self.params),
            machine: Machine::watched_by(&self.watch),
            partial: interrupt::received().is_some(),
            rows: outcomes.into_iter().map(|outcome| outcome.row).collect(),
            skipped: Vec::new(),
        };
        report.write_json(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::{flavours, options::tests::plan_for};

    fn as_expected(flavour: &str, faults: &[Fault]) -> bool {
        let session = Session::new(plan_for(flavour));
        faults
            .iter()
            .for_each(|&fault| session.tally.fault(fault, String::new));
        conclude(&session, flavours::named(flavour)[0].expected_faults).as_expected
    }

    #[test]
    fn an_end_that_does_not_come_is_never_expected() {
        assert!(as_expected("busted", &[Fault::TooShort]));
        assert!(!as_expected("busted", &[Fault::TooShort, Fault::NoEnd]));
        assert!(!as_expected("busted", &[Fault::WriterStall]));
        assert!(as_expected("rcu", &[]));
        assert!(!as_expected("rcu", &[Fault::NoEnd]));
    }
}
