//! What the experiments have in common: the command line, who takes part, and the way from there to a table and a JSON file.

use std::fs::File;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::choice::{Choice, Menu};
use crate::machine::Machine;
use crate::output::{self, Metric, Report, Row, table};
use crate::peers;
use crate::run::child::Request;
use crate::run::{self, Case, Common, Failure, Sample, child};
use crate::subject::Peer;

/// What an experiment's work depends on, by the options that say so, and what the experiment is.
pub trait Work: Args + Serialize + DeserializeOwned + 'static {
    /// The experiment's name on the command line and in the JSON.
    const NAME: &'static str;

    /// Stillpoint's own variants.
    const VARIANTS: Menu;

    /// The peers.
    const PEERS: Menu;

    /// The scenarios, in the table's order, where there is more than one.
    const SCENARIOS: Option<Menu> = None;

    /// The figures, the one that the experiment is about first.
    const METRICS: &'static [Metric];

    /// Stillpoint's variants, the peers that this build has, and the limit, in the table's order; but for the scenarios.
    fn contenders() -> Vec<Contender<Self>>;

    /// Says on standard error what cannot take part here, and refuses work that cannot be done.
    fn check(&self) -> Result<(), clap::Error> {
        Ok(())
    }
}

/// The command line of an experiment: its work, and what to measure.
pub struct Selection<W> {
    /// What the work depends on.
    pub work: W,
    /// Which cases are measured.
    pub chosen: Chosen,
    /// The options that every experiment takes.
    pub common: Common,
}

impl<W: Work> Args for Selection<W> {
    fn augment_args(command: Command) -> Command {
        let menus = W::SCENARIOS.into_iter().chain([W::VARIANTS, W::PEERS]).map(Menu::arg);
        Common::augment_args(W::augment_args(command).args(menus))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<W: Work> FromArgMatches for Selection<W> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let picked = |option: &str| matches.get_one::<Choice>(option).cloned().expect("every menu has a default");
        Ok(Self {
            work: W::from_arg_matches(matches)?,
            chosen: Chosen {
                variants: picked("variants"),
                peers: picked("peers"),
                scenarios: W::SCENARIOS.map(|_| picked("scenarios")),
            },
            common: Common::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Which of an experiment's cases a run was asked for; the limit always runs.
#[derive(Serialize)]
pub struct Chosen {
    /// Stillpoint's own variants.
    variants: Choice,
    /// The peers.
    peers: Choice,
    /// The scenarios; `None` where the experiment has one only.
    #[serde(skip_serializing_if = "Option::is_none")]
    scenarios: Option<Choice>,
}

impl Chosen {
    /// The chosen ones of `contenders`; of the peers, those `at_hand`.
    fn among<'c, W>(&self, contenders: &'c [Contender<W>], at_hand: &Choice) -> impl Iterator<Item = &'c Contender<W>> {
        let takes_part = |contender: &Contender<W>| match contender.subject.name {
            "stillpoint" => self.variants.includes(contender.subject.variant),
            "limit" => true,
            peer => at_hand.includes(peer),
        };
        let takes_place = |contender: &Contender<W>| match (&self.scenarios, contender.scenario) {
            (Some(scenarios), Some(scenario)) => scenarios.includes(scenario),
            _ => true,
        };
        contenders.iter().filter(move |contender| takes_part(contender) && takes_place(contender))
    }
}

type Measure<W> = dyn Fn(&W) -> Result<Sample>;

/// One subject in one of its variants and one scenario, and how it is measured.
pub struct Contender<W> {
    subject: Peer,
    /// `None` where the experiment has one scenario only.
    scenario: Option<&'static str>,
    measure: Box<Measure<W>>,
}

impl<W> Contender<W> {
    /// Stillpoint in one of its variants.
    pub fn ours(variant: &'static str, measure: impl Fn(&W) -> Result<Sample> + 'static) -> Self {
        Self::new(Peer::new("stillpoint").variant(variant), measure)
    }

    /// The same work with no reclamation, lock or check.
    pub fn limit(measure: impl Fn(&W) -> Result<Sample> + 'static) -> Self {
        Self::new(Peer::new("limit"), measure)
    }

    /// Any subject.
    pub fn new(subject: Peer, measure: impl Fn(&W) -> Result<Sample> + 'static) -> Self {
        Self { subject, scenario: None, measure: Box::new(measure) }
    }

    /// The same in one of several scenarios.
    pub fn in_scenario(self, scenario: &'static str) -> Self {
        Self { scenario: Some(scenario), ..self }
    }

    /// The same with something to do first, in the process that measures.
    pub fn prepared_by(self, prepare: fn() -> Result<()>) -> Self {
        Self { subject: self.subject.prepared_by(prepare), ..self }
    }

    fn case(&self) -> Case {
        Case {
            subject: self.subject.name.to_owned(),
            variant: self.subject.variant.to_owned(),
            scenario: self.scenario.map(ToOwned::to_owned),
        }
    }
}

/// The contenders, scenario by scenario.
fn contenders<W: Work>() -> Vec<Contender<W>> {
    let mut contenders = W::contenders();
    if let Some(scenarios) = W::SCENARIOS {
        let scenarios = scenarios.names();
        contenders.sort_by_key(|contender| scenarios.iter().position(|&name| contender.scenario == Some(name)));
    }
    contenders
}

/// What the JSON says a run was asked for.
#[derive(Serialize)]
struct Params<'a, W> {
    #[serde(flatten)]
    work: &'a W,
    rounds: u32,
    seed: u64,
    #[serde(flatten)]
    chosen: &'a Chosen,
}

/// In the child: takes the measurement that the parent asks for.
pub fn measure<W: Work>(request: &Request) -> Result<Sample> {
    let work = W::deserialize(&request.params)?;
    let contenders = contenders::<W>();
    let contender = contenders
        .iter()
        .find(|contender| contender.case() == request.case)
        .with_context(|| format!("{} is not in this build", request.case))?;
    (contender.subject.prepare)()?;
    (contender.measure)(&work)
}

/// Runs an experiment and prints its table.
pub fn run<W: Work>(selection: &Selection<W>) -> Result<ExitCode> {
    selection.work.check()?;
    let found = compare(selection)?;
    println!("{}; medians of {} rounds\n", found.report.machine, selection.common.rounds);
    found.conclude()
}

/// In the parent: measures the chosen cases of Stillpoint and the peers, and the limit, round by round.
pub fn compare<W: Work>(selection: &Selection<W>) -> Result<Comparison> {
    let Selection { work, chosen, common } = selection;
    let json = common.json.as_deref().map(output::create).transpose()?;
    let at_hand = peers::at_hand(&chosen.peers);

    let contenders = contenders::<W>();
    let cases: Vec<Case> = chosen.among(&contenders, &at_hand).map(Contender::case).collect();
    let params = serde_json::to_value(work)?;
    let measure = |case: &Case, timeout: Duration| {
        let experiment = W::NAME.to_owned();
        child::measure(&Request { experiment, case: case.clone(), params: params.clone() }, timeout)
    };
    let (measured, failures) = run::rounds(cases, common, measure);

    let rows = measured
        .iter()
        .filter(|measured| !measured.samples.is_empty())
        .map(|measured| Row {
            case: measured.case.clone(),
            metrics: run::medians(&measured.samples),
            curve: run::median_by(&measured.samples, W::METRICS[0].name)
                .map(|sample| sample.curve.clone())
                .filter(|curve| !curve.is_empty()),
        })
        .collect();
    let asked = Params { work, rounds: common.rounds, seed: common.seed, chosen };
    let report = Report { experiment: W::NAME, params: serde_json::to_value(asked)?, machine: Machine::here(), rows };
    Ok(Comparison { report, metrics: W::METRICS, failures, json })
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
pub mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What can be asked for is what there is, and no two contenders are the same case. A peer may be missing from this build.
    pub fn assert_menus<W: Work>() {
        let contenders = contenders::<W>();
        let cases: BTreeSet<_> = contenders.iter().map(|contender| contender.case().to_string()).collect();
        assert_eq!(cases.len(), contenders.len());

        let set = |names: &[&'static str]| names.iter().copied().collect::<BTreeSet<_>>();
        let ours = |contender: &&Contender<W>| contender.subject.name == "stillpoint";
        let ours: BTreeSet<_> = contenders.iter().filter(ours).map(|contender| contender.subject.variant).collect();
        assert_eq!(ours, set(&W::VARIANTS.names()));

        let subjects: BTreeSet<_> = contenders.iter().map(|contender| contender.subject.name).collect();
        let others: BTreeSet<_> = subjects.difference(&BTreeSet::from(["stillpoint", "limit"])).copied().collect();
        assert!(others.is_subset(&set(&W::PEERS.names())), "{others:?}");

        let found: BTreeSet<_> = contenders.iter().filter_map(|contender| contender.scenario).collect();
        assert_eq!(found, W::SCENARIOS.map(|menu| set(&menu.names())).unwrap_or_default());
    }
}
