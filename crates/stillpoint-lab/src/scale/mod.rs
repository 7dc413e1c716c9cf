//! The experiments of `stillpoint scale`. A new one is a folder here with its own `Options`, its `experiment()`, which lists who
//! takes part and what is reported, and a line in [`Scale`], [`run`] and [`measure`].

use std::fs::File;
use std::process::{self, ExitCode};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::choice::Choice;
use crate::machine::Machine;
use crate::output::{self, Metric, Report, Row, table};
use crate::peers;
use crate::run::child::Request;
use crate::run::{self, Case, Common, Failure, Sample, child};

pub mod kfree;
pub mod lru;
pub mod read;
pub mod sync;
pub mod trace;
pub mod vmap;

/// The experiments.
#[derive(Subcommand)]
pub enum Scale {
    /// Free objects after a grace period, many threads at once: time, and memory that waits
    Kfree(kfree::Options),
    /// Count, add to and take from LRU lists of many tenants: counts and adds a second, and what goes into locks
    Lru(lru::Options),
    /// Enter and leave an empty read section: the cost of the pair
    Read(read::Options),
    /// Wait for a grace period, beside readers that sleep or work: how long, and at what cost
    Sync(sync::Options),
    /// Read in sections that sleep or await: what a grace period takes among them, and what they cost
    Trace(trace::Options),
    /// Find, check and copy in an address space of many areas; allocate and free them
    Vmap(vmap::Options),
}

/// Runs an experiment and prints what it found.
pub fn run(experiment: &Scale) -> Result<ExitCode> {
    match experiment {
        Scale::Kfree(options) => kfree::run(options),
        Scale::Lru(options) => lru::run(options),
        Scale::Read(options) => read::run(options),
        Scale::Sync(options) => sync::run(options),
        Scale::Trace(options) => trace::run(options),
        Scale::Vmap(options) => vmap::run(options),
    }
}

/// Takes one measurement, in the child process.
pub fn measure(request: &Request) -> Result<Sample> {
    match request.experiment.as_str() {
        kfree::NAME => kfree::experiment().measure(request),
        lru::NAME => lru::experiment().measure(request),
        read::NAME => read::experiment().measure(request),
        sync::NAME => sync::experiment().measure(request),
        trace::NAME => trace::experiment().measure(request),
        vmap::NAME => vmap::experiment().measure(request),
        unknown => bail!("no experiment {unknown}"),
    }
}

/// Starts a thread of a measurement. If the system has none to give, the process ends and says so: the others may be waiting for
/// this one, and a measurement with fewer threads than asked for is none.
pub fn spawn<'scope, T: Send + 'scope>(
    thread: thread::Builder, scope: &'scope Scope<'scope, '_>, work: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    thread.spawn_scoped(scope, work).unwrap_or_else(|error| {
        eprintln!("stillpoint: cannot start a thread ({error}); lower --threads or --readers");
        process::exit(1)
    })
}

/// A thread's part in a subject: its registration, its hazard pointer, or nothing at all. Dropped on the same thread, it ends.
pub trait Participant {
    /// Makes the calling thread's part. A thread has one part in a subject at a time.
    fn join() -> Self;
}

/// A thread's part in a subject that has read sections.
pub trait Reader: Participant {
    /// Runs `section` as a read section; where threads say that they are outside of one, this one says so after it.
    fn read(&mut self, section: impl FnOnce());

    /// Runs `work`, which may block: nobody waits for this thread meanwhile.
    fn away<T>(&mut self, work: impl FnOnce() -> T) -> T {
        work()
    }
}

type Measure<P> = dyn Fn(&P) -> Result<Sample>;

/// One subject in one of its variants and one scenario, and how it is measured.
pub struct Contender<P> {
    subject: &'static str,
    variant: &'static str,
    /// `None` where the experiment has one scenario only.
    scenario: Option<&'static str>,
    /// Puts the variant in force for the process, before any thread takes part.
    prepare: fn() -> Result<()>,
    measure: Box<Measure<P>>,
}

impl<P> Contender<P> {
    /// A subject whose process needs nothing before it is measured.
    pub fn new(subject: &'static str, variant: &'static str, measure: impl Fn(&P) -> Result<Sample> + 'static) -> Self {
        Self { subject, variant, scenario: None, prepare: || Ok(()), measure: Box::new(measure) }
    }

    /// The same in one of several scenarios.
    pub fn in_scenario(self, scenario: &'static str) -> Self {
        Self { scenario: Some(scenario), ..self }
    }

    /// The same with something to do first.
    pub fn prepared_by(self, prepare: fn() -> Result<()>) -> Self {
        Self { prepare, ..self }
    }

    fn case(&self) -> Case {
        Case {
            subject: self.subject.to_owned(),
            variant: self.variant.to_owned(),
            scenario: self.scenario.map(ToOwned::to_owned),
        }
    }
}

/// Who takes part in an experiment, and what it reports; `P` is what its work depends on.
pub struct Experiment<P> {
    /// Its name on the command line and in the JSON.
    pub name: &'static str,
    /// The figures, the one that the experiment is about first.
    pub metrics: &'static [Metric],
    /// Stillpoint's variants, the peers that this build has, and the limit, in the table's order.
    pub contenders: Vec<Contender<P>>,
}

/// Which of an experiment's cases a run was asked for; the limit always runs.
#[derive(Serialize)]
pub struct Chosen<'a> {
    /// Stillpoint's own variants.
    pub variants: &'a Choice,
    /// The peers.
    pub peers: &'a Choice,
    /// The scenarios; `None` where the experiment has one only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenarios: Option<&'a Choice>,
}

impl Chosen<'_> {
    /// The chosen ones of `contenders`; of the peers, those `at_hand`.
    fn among<'c, P>(&self, contenders: &'c [Contender<P>], at_hand: &Choice) -> impl Iterator<Item = &'c Contender<P>> {
        let takes_part = |contender: &Contender<P>| match contender.subject {
            "stillpoint" => self.variants.includes(contender.variant),
            "limit" => true,
            peer => at_hand.includes(peer),
        };
        let takes_place = |contender: &Contender<P>| match (self.scenarios, contender.scenario) {
            (Some(scenarios), Some(scenario)) => scenarios.includes(scenario),
            _ => true,
        };
        contenders.iter().filter(move |contender| takes_part(contender) && takes_place(contender))
    }
}

/// What the JSON says a run was asked for.
#[derive(Serialize)]
struct Params<'a, P> {
    #[serde(flatten)]
    work: &'a P,
    rounds: u32,
    seed: u64,
    #[serde(flatten)]
    chosen: &'a Chosen<'a>,
}

impl<P: Serialize + DeserializeOwned> Experiment<P> {
    /// In the child: takes the measurement that the parent asks for.
    fn measure(&self, request: &Request) -> Result<Sample> {
        let params = P::deserialize(&request.params)?;
        let contender = self
            .contenders
            .iter()
            .find(|contender| contender.case() == request.case)
            .with_context(|| format!("{} is not in this build", request.case))?;
        (contender.prepare)()?;
        (contender.measure)(&params)
    }

    /// In the parent: measures the chosen cases of Stillpoint and the peers, and the limit, round by round.
    pub fn compare(self, work: &P, chosen: &Chosen, common: &Common) -> Result<Comparison> {
        let json = common.json.as_deref().map(output::create).transpose()?;
        let at_hand = peers::at_hand(chosen.peers);

        let cases: Vec<Case> = chosen.among(&self.contenders, &at_hand).map(Contender::case).collect();
        let params = serde_json::to_value(work)?;
        let measure = |case: &Case, timeout: Duration| {
            let experiment = self.name.to_owned();
            child::measure(&Request { experiment, case: case.clone(), params: params.clone() }, timeout)
        };
        let (measured, failures) = run::rounds(cases, common, measure);

        let rows = measured
            .iter()
            .filter(|measured| !measured.samples.is_empty())
            .map(|measured| Row {
                case: measured.case.clone(),
                metrics: run::medians(&measured.samples),
                curve: run::median_by(&measured.samples, self.metrics[0].name)
                    .map(|sample| sample.curve.clone())
                    .filter(|curve| !curve.is_empty()),
            })
            .collect();
        let asked = Params { work, rounds: common.rounds, seed: common.seed, chosen };
        let report = Report { experiment: self.name, params: serde_json::to_value(asked)?, machine: Machine::here(), rows };
        Ok(Comparison { report, metrics: self.metrics, failures, json })
    }
}

/// What a run found.
pub struct Comparison {
    /// The medians.
    pub report: Report,
    metrics: &'static [Metric],
    failures: Vec<Failure>,
    json: Option<File>,
}

impl Comparison {
    /// Prints the table and writes the JSON file, tells the failures, and turns them into the exit code.
    pub fn conclude(self) -> Result<ExitCode> {
        println!("{}", table::render(&self.report.rows, self.metrics));
        if let Some(file) = self.json {
            self.report.write_json(file).context("cannot write the JSON file")?;
        }
        for failure in &self.failures {
            eprintln!("stillpoint: failed: {failure}");
        }
        Ok(if self.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::choice::Menu;

    /// What can be asked for is what there is, and no two contenders are the same case. A peer may be missing from this build.
    fn assert_menus<P>(experiment: &Experiment<P>, variants: &Menu, peers: &Menu, scenarios: Option<&Menu>) {
        let cases: BTreeSet<_> = experiment.contenders.iter().map(|contender| contender.case().to_string()).collect();
        assert_eq!(cases.len(), experiment.contenders.len());

        let set = |names: &[&'static str]| names.iter().copied().collect::<BTreeSet<_>>();
        let ours = |contender: &&Contender<P>| contender.subject == "stillpoint";
        let ours: BTreeSet<_> = experiment.contenders.iter().filter(ours).map(|contender| contender.variant).collect();
        assert_eq!(ours, set(variants.names()));

        let subjects: BTreeSet<_> = experiment.contenders.iter().map(|contender| contender.subject).collect();
        let others: BTreeSet<_> = subjects.difference(&BTreeSet::from(["stillpoint", "limit"])).copied().collect();
        assert!(others.is_subset(&set(peers.names())), "{others:?}");

        let found: BTreeSet<_> = experiment.contenders.iter().filter_map(|contender| contender.scenario).collect();
        assert_eq!(found, scenarios.map(|menu| set(menu.names())).unwrap_or_default());
    }

    #[test]
    fn the_menus_name_what_there_is() {
        assert_menus(&kfree::experiment(), &kfree::VARIANTS, &kfree::PEERS, None);
        assert_menus(&lru::experiment(), &lru::VARIANTS, &lru::PEERS, Some(&lru::SCENARIOS));
        assert_menus(&read::experiment(), &read::VARIANTS, &read::PEERS, None);
        assert_menus(&sync::experiment(), &sync::VARIANTS, &sync::PEERS, Some(&sync::SCENARIOS));
        assert_menus(&trace::experiment(), &trace::VARIANTS, &trace::PEERS, Some(&trace::SCENARIOS));
        assert_menus(&vmap::experiment(), &vmap::VARIANTS, &vmap::PEERS, Some(&vmap::SCENARIOS));
    }
}
