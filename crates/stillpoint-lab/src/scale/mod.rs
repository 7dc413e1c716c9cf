//! The experiments of `stillpoint scale`. A new one is a folder here with its own `Options`, its `experiment()`, which lists who
//! takes part and what is reported, and a line in [`Scale`], [`run`] and [`measure`].

use std::fs::File;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::machine::Machine;
use crate::output::{self, Metric, Report, Row, table};
use crate::peers::{self, Peers};
use crate::run::child::Request;
use crate::run::{self, Case, Common, Failure, Measured, Sample, child};

pub mod kfree;
pub mod read;

/// The experiments.
#[derive(Subcommand)]
pub enum Scale {
    /// Free objects after a grace period, many threads at once: time, and memory that waits
    Kfree(kfree::Options),
    /// Enter and leave an empty read section: the cost of the pair
    Read(read::Options),
}

/// Runs an experiment and prints what it found.
pub fn run(experiment: &Scale) -> Result<ExitCode> {
    match experiment {
        Scale::Kfree(options) => kfree::run(options),
        Scale::Read(options) => read::run(options),
    }
}

/// Takes one measurement, in the child process.
pub fn measure(request: &Request) -> Result<Sample> {
    match request.experiment.as_str() {
        kfree::NAME => kfree::experiment().measure(request),
        read::NAME => read::experiment().measure(request),
        unknown => bail!("no experiment {unknown}"),
    }
}

/// A thread's part in a subject: its registration, its hazard pointer, or nothing at all. Dropped on the same thread, it ends.
pub trait Participant {
    /// Makes the calling thread's part. A thread has one part in a subject at a time.
    fn join() -> Self;
}

/// One subject in one of its variants, and how it is measured.
pub struct Contender<P> {
    subject: &'static str,
    variant: &'static str,
    /// Puts the variant in force for the process, before any thread takes part.
    prepare: fn() -> Result<()>,
    measure: fn(&P) -> Result<Sample>,
}

impl<P> Contender<P> {
    /// A subject whose process needs nothing before it is measured.
    pub fn new(subject: &'static str, variant: &'static str, measure: fn(&P) -> Result<Sample>) -> Self {
        Self { subject, variant, prepare: || Ok(()), measure }
    }

    /// The same with something to do first.
    pub fn prepared_by(self, prepare: fn() -> Result<()>) -> Self {
        Self { prepare, ..self }
    }

    fn case(&self) -> Case {
        Case { subject: self.subject.to_owned(), variant: self.variant.to_owned() }
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

/// What the JSON says a run was asked for.
#[derive(Serialize)]
struct Params<'a, P> {
    #[serde(flatten)]
    work: &'a P,
    rounds: u32,
    seed: u64,
    peers: &'a Peers,
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

    /// In the parent: measures Stillpoint, the chosen peers and the limit, round by round.
    pub fn compare(self, work: &P, peers: &Peers, common: &Common) -> Result<Comparison> {
        let json = common.json.as_deref().map(output::create).transpose()?;
        peers::tell_missing(peers);

        let cases: Vec<Case> = self
            .contenders
            .iter()
            .filter(|contender| matches!(contender.subject, "stillpoint" | "limit") || peers.include(contender.subject))
            .map(Contender::case)
            .collect();
        let params = serde_json::to_value(work)?;
        let measure = |case: &Case, timeout: Duration| {
            let experiment = self.name.to_owned();
            child::measure(&Request { experiment, case: case.clone(), params: params.clone() }, timeout)
        };
        let (measured, failures) = run::rounds(cases, common, measure);

        let rows = measured
            .iter()
            .filter(|measured| !measured.samples.is_empty())
            .map(|measured| Row { case: measured.case.clone(), metrics: run::medians(&measured.samples) })
            .collect();
        let asked = Params { work, rounds: common.rounds, seed: common.seed, peers };
        let report = Report { experiment: self.name, params: serde_json::to_value(asked)?, machine: Machine::here(), rows };
        Ok(Comparison { report, measured, metrics: self.metrics, failures, json })
    }
}

/// What a run found.
pub struct Comparison {
    /// The medians.
    pub report: Report,
    /// Every round's samples.
    pub measured: Vec<Measured>,
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
