//! What a run prints, line by line as rcutorture does, and what it writes as JSON.

use std::fs::File;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use crate::machine::Machine;
use crate::output::{Report, Row};
use crate::run::{Case, Metrics};

use super::plan::{Disturbance, Plan, Turns};
use super::session::Session;
use super::tally::{FAULTS, Fault, render};

/// What one flavour's run came to.
pub struct Outcome {
    /// The counts, for the JSON.
    pub row: Row,
    /// Whether nothing was wrong.
    pub clean: bool,
    /// Whether only that was wrong which had been left out on purpose.
    pub as_expected: bool,
}

/// The line at the start: all that it takes to do the same again.
pub fn announce(plan: &Plan) {
    let params = serde_json::to_string(plan).expect("a plan has names and numbers");
    println!(
        "{}-torture:--- Start of test: seed={} {params}",
        plan.flavour, plan.seed
    );
}

/// The lines of counts.
pub fn lines(session: &Session) {
    let (tally, name) = (&session.tally, &session.plan.flavour);
    let mark = if tally.is_faulty() { "!!! " } else { "" };
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let faults: String = FAULTS
        .iter()
        .map(|&(fault, short, _)| format!(" {short}: {}", tally.count_of(fault)))
        .collect();
    println!(
        "{name}-torture: {mark}t: {:.1} rtc: {} ver: {} tfle: {} rta: {} rtf: {}{faults} nt: {} barrier: {}/{}:{} exits: {} forks: {} stalls: {}",
        session.start.elapsed().as_secs_f64(),
        count(&tally.sections),
        count(&tally.waits),
        count(&tally.exhausted),
        count(&tally.published),
        count(&tally.recycled),
        count(&tally.signals),
        count(&tally.barriers_done),
        count(&tally.barriers),
        tally.count_of(Fault::Barrier),
        count(&tally.exits),
        count(&tally.forks),
        count(&tally.stalls),
    );
    println!("{name}-torture: {mark}Reader Pipe: {}", render(&tally.pipe));
    println!(
        "{name}-torture: {mark}Reader Batch: {}",
        render(&tally.batch)
    );
    println!(
        "{name}-torture: {mark}callbacks: {}/{} objects: {}/{}",
        count(&tally.invoked),
        count(&tally.queued),
        count(&tally.freed),
        count(&tally.retired)
    );
}

/// The last lines of a flavour's run, which had to show one of the `expected` faults: none, if it
/// is sound.
pub fn conclude(session: &Session, expected: &[Fault]) -> Outcome {
    lines(session);
    let (tally, plan) = (&session.tally, &session.plan);
    let survived = tally.survived(session.start).as_secs_f64();
    let clean = !tally.is_faulty();
    let verdict = if clean { "SUCCESS" } else { "FAILURE" };
    let name = &plan.flavour;
    if let Some(first) = tally.first() {
        println!("{name}-torture: !!! after {survived:.3} s: {}", first.what);
    }
    if tally.count_of(Fault::NoEnd) > 0 {
        println!(
            "{name}-torture: !!! the end has not come; threads that have not ended: {}",
            session.live()
        );
    }
    if !clean {
        println!("{name}-torture: to do the same again: {}", replay(plan));
    }
    println!(
        "{name}-torture:--- End of test: {verdict}: seed={} after {survived:.3} s",
        plan.seed
    );
    let found = |fault: Fault| tally.count_of(fault) > 0;
    let as_expected = match expected {
        [] => clean,
        expected => expected.iter().any(|&fault| found(fault)) && !found(Fault::NoEnd),
    };
    if !expected.is_empty() && !clean && !as_expected {
        println!("{name}-torture: !!! that is none of the faults expected of this flavour");
    }
    let case = Case {
        subject: "stillpoint".to_owned(),
        variant: name.clone(),
        scenario: None,
    };
    Outcome {
        row: Row::new(case, metrics(session, survived)),
        clean,
        as_expected,
    }
}

fn metrics(session: &Session, survived: f64) -> Metrics {
    let tally = &session.tally;
    let counts: [(&str, &AtomicU64); 11] = [
        ("reader_sections", &tally.sections),
        ("grace_periods", &tally.grace_periods),
        ("waits", &tally.waits),
        ("callbacks", &tally.invoked),
        ("objects", &tally.freed),
        ("elements", &tally.recycled),
        ("barriers", &tally.barriers_done),
        ("signals", &tally.signals),
        ("thread_exits", &tally.exits),
        ("forks", &tally.forks),
        ("stalls", &tally.stalls),
    ];
    let counts = counts
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count.load(Ordering::Relaxed) as f64));
    let faults = FAULTS
        .iter()
        .map(|&(fault, _, name)| (format!("errors_{name}"), tally.count_of(fault) as f64));
    let summary = [
        ("errors".to_owned(), tally.faults() as f64),
        ("survived_s".to_owned(), survived),
    ];
    counts.chain(faults).chain(summary).collect()
}

/// The command that makes the same choices.
fn replay(plan: &Plan) -> String {
    let mut command = format!(
        "stillpoint torture {} --seed {} --duration {} --readers {} --writers {} --fakewriters {}",
        plan.flavour, plan.seed, plan.duration_s, plan.readers, plan.writers, plan.fakewriters
    );
    if plan.turns == Turns::Whole {
        for &disturbance in &plan.disturbances {
            command += &match disturbance {
                Disturbance::StallReader => format!(" --stall-reader {}", plan.stall_reader_s),
                Disturbance::StallService => format!(" --stall-service {}", plan.stall_service_s),
                Disturbance::BarrierCallbacks => {
                    format!(" --barrier-callbacks {}", plan.barrier_callbacks)
                }
                Disturbance::FwdProgress => " --fwd-progress".to_owned(),
                Disturbance::ReadExit => " --read-exit".to_owned(),
                Disturbance::RegistrationChurn => " --registration-churn".to_owned(),
                Disturbance::Signals => " --signals".to_owned(),
                Disturbance::Preempt => " --preempt".to_owned(),
                Disturbance::Shuffle => " --shuffle".to_owned(),
                Disturbance::Stutter => " --stutter".to_owned(),
                Disturbance::Fork => " --fork".to_owned(),
            };
        }
        match (plan.gpwrap, plan.disturbances.is_empty()) {
            (true, _) => command += " --gpwrap",
            (false, true) => command += " --calm",
            (false, false) => {}
        }
    }
    command
}

/// The outcomes of a run's flavours so far, and the file for them.
pub struct Results {
    /// What was asked for.
    params: Map<String, Value>,
    json: Option<File>,
    outcomes: Vec<Outcome>,
}

impl Results {
    /// With nothing in it.
    pub fn new(params: Map<String, Value>, json: Option<File>) -> Self {
        Self {
            params,
            json,
            outcomes: Vec::new(),
        }
    }

    /// Adds a flavour's outcome.
    pub fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// Writes the file. Whether all was clean.
    pub fn write(&mut self) -> Result<bool> {
        let outcomes = mem::take(&mut self.outcomes);
        let clean = outcomes.iter().all(|outcome| outcome.clean);
        let as_expected = outcomes.iter().all(|outcome| outcome.as_expected);
        if let Some(file) = self.json.take() {
            self.params
                .insert("as_expected".to_owned(), as_expected.into());
            let params = Value::Object(mem::take(&mut self.params));
            let rows = outcomes.into_iter().map(|outcome| outcome.row).collect();
            let report = Report {
                experiment: "torture",
                params,
                machine: Machine::here(),
                rows,
            };
            report
                .write_json(file)
                .context("cannot write the JSON file")?;
        }
        Ok(clean)
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
