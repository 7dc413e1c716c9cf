//! What the experiments have in common: the command line, who takes part, and the way from there to
//! a table and a JSON file.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::choice::{Choice, Explained, Family, Menu, explain, scenarios};
use crate::interrupt;
use crate::load::Watch;
use crate::machine::{Machine, this_command, this_program};
use crate::output::{self, Metric, Output, Report, Row, Skipped, say, table};
use crate::peers;
use crate::run::child::Request;
use crate::run::{self, Case, Common, Failure, Sample, child};
use crate::subject::Peer;

/// What an experiment's work depends on, by the options that say so, and what the experiment is.
pub trait Work: Args + Serialize + DeserializeOwned + 'static {
    /// The experiment's name on the command line and in the JSON.
    const NAME: &'static str;

    /// What the table shows, in a sentence or two below it.
    const SHOWS: &'static str;

    /// Stillpoint's own variants.
    const VARIANTS: &'static [Explained];

    /// The scenarios, in the table's order, where there is more than one.
    const SCENARIOS: &'static [Family] = &[];

    /// The scenarios that run only if they are named.
    const ONLY_IF_NAMED: &'static [&'static str] = &[];

    /// Whether no figure of a scenario depends on what else runs: several are measured at a time.
    fn is_untimed(_scenario: &str) -> bool {
        false
    }

    /// The figures, the one that the experiment is about first.
    const METRICS: &'static [Metric];

    /// Adds Stillpoint's variants, the peers that this build has, and the limit, in the table's
    /// order; but for the scenarios.
    fn add_to(all: &mut Benchmarks<Self>);

    /// Why a scenario is not measured here; `None`: it is.
    fn skipped(&self, _scenario: &str) -> Option<&'static str> {
        None
    }

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

/// Returns what can be picked: scenarios, where there are several, variants and peers.
fn menus<W: Work>() -> impl Iterator<Item = Menu> {
    let scenarios = Menu::new("scenarios", "Scenarios to measure", scenarios(W::SCENARIOS));
    let variants = W::VARIANTS.iter().map(|(name, _)| *name);
    let variants = Menu::new("variants", "Stillpoint's own variants to measure", variants);
    let purpose = "Peers to measure beside Stillpoint and the limit";
    let peers = Menu::new("peers", purpose, peers_of::<W>());
    let scenarios = (!W::SCENARIOS.is_empty()).then_some(scenarios);
    scenarios.into_iter().chain([variants, peers])
}

/// Returns the peers' names, in the table's order, whether or not this build has them.
fn peers_of<W: Work>() -> Vec<&'static str> {
    let mut all = Benchmarks::<W>(Vec::new());
    W::add_to(&mut all);
    let mut names = peers::missing(W::NAME).to_vec();
    for Benchmark { subject, .. } in all.0 {
        if !["stillpoint", "limit"].contains(&subject.name) && !names.contains(&subject.name) {
            names.push(subject.name);
        }
    }
    names
}

impl<W: Work> Args for Selection<W> {
    fn augment_args(command: Command) -> Command {
        let command = W::augment_args(command).args(menus::<W>().map(Menu::arg));
        Common::augment_args(command).after_long_help(help::<W>())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<W: Work> FromArgMatches for Selection<W> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let picked = |option: &str| {
            let choice = matches.get_one::<Choice>(option).cloned();
            choice.expect("every option has a default")
        };
        let scenarios = (!W::SCENARIOS.is_empty()).then(|| {
            let mut scenarios = picked("scenarios");
            scenarios.keep_only_if_named(W::ONLY_IF_NAMED);
            scenarios
        });
        Ok(Self {
            work: W::from_arg_matches(matches)?,
            chosen: Chosen {
                variants: picked("variants"),
                peers: picked("peers"),
                scenarios,
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
#[derive(Clone, Serialize)]
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
    /// Returns in how many of `rounds` rounds a benchmark is measured.
    fn rounds<W: Work>(&self, benchmark: &Benchmark<W>, rounds: u32) -> u32 {
        let is_once = |scenario| {
            let of = |family: &Family| family.once && family.names.contains(&scenario);
            let is_named = |scenarios: &Choice| scenarios.names_one(scenario);
            W::SCENARIOS.iter().any(of) && !self.scenarios.as_ref().is_some_and(is_named)
        };
        if benchmark.scenario.is_some_and(is_once) {
            1
        } else {
            rounds
        }
    }

    /// Returns the chosen scenarios that are not measured here.
    fn skipped<W: Work>(&self, work: &W) -> Vec<Skipped> {
        let scenarios = self.scenarios.iter().flat_map(Choice::names);
        let skipped = |&scenario| {
            let reason = work.skipped(scenario)?;
            Some(Skipped { scenario, reason })
        };
        scenarios.filter_map(skipped).collect()
    }

    /// Returns whether a benchmark was chosen; of the peers, those `available` are.
    fn includes<W>(&self, benchmark: &Benchmark<W>, available: &Choice) -> bool {
        let takes_part = match benchmark.subject.name {
            "stillpoint" => self.variants.includes(benchmark.subject.variant),
            "limit" => true,
            peer => available.includes(peer),
        };
        let scenarios = self.scenarios.as_ref().zip(benchmark.scenario);
        takes_part && scenarios.is_none_or(|(chosen, scenario)| chosen.includes(scenario))
    }
}

type Measure<W> = dyn Fn(&W) -> Result<Sample>;

/// One subject in one of its variants and one scenario, and how it is measured.
pub struct Benchmark<W> {
    subject: Peer,
    /// `None` where the experiment has one scenario only.
    scenario: Option<&'static str>,
    measure: Box<Measure<W>>,
}

/// An experiment's benchmarks. Each experiment is a [`Registry`](crate::subject::Registry) by them.
pub struct Benchmarks<W>(Vec<Benchmark<W>>);

impl<W> Benchmarks<W> {
    /// Adds a subject in a scenario; `None` where the experiment has one scenario only.
    pub fn add(
        &mut self,
        subject: Peer,
        scenario: impl Into<Option<&'static str>>,
        measure: impl Fn(&W) -> Result<Sample> + 'static,
    ) {
        self.0.push(Benchmark {
            subject,
            scenario: scenario.into(),
            measure: Box::new(measure),
        });
    }
}

impl<W> Benchmark<W> {
    fn case(&self) -> Case {
        Case::new(self.subject.name, self.subject.variant, self.scenario)
    }
}

/// Returns the benchmarks, scenario by scenario.
fn benchmarks<W: Work>() -> Vec<Benchmark<W>> {
    let mut all = Benchmarks(Vec::new());
    W::add_to(&mut all);
    let Benchmarks(mut all) = all;
    all.sort_by_key(|benchmark| {
        scenarios(W::SCENARIOS).position(|name| benchmark.scenario == Some(name))
    });
    all
}

/// Returns a line for each case of the experiment that this build has, in the table's order.
pub fn list<W: Work>() -> String {
    let line = |benchmark: Benchmark<W>| {
        let Peer { name, variant, .. } = benchmark.subject;
        let scenario = benchmark
            .scenario
            .map_or(String::new(), |name| format!(" {name}"));
        format!("{} {name} {variant}{scenario}\n", W::NAME)
    };
    benchmarks::<W>().into_iter().map(line).collect()
}

/// Returns what the long help says behind the options: each name that a table or the JSON has.
pub fn help<W: Work>() -> String {
    let mut text = explain("Variants of Stillpoint", W::VARIANTS.iter().copied());
    if !W::SCENARIOS.is_empty() {
        let scenarios = W::SCENARIOS
            .iter()
            .map(|family| (family.names.join(", "), family.about));
        text += "\n";
        text += &explain("Scenarios", scenarios);
    }
    let once = W::SCENARIOS.iter().filter(|family| family.once);
    let once: Vec<&str> = once.flat_map(|family| family.names).copied().collect();
    for (names, how) in [
        (once, "In one round, unless named"),
        (W::ONLY_IF_NAMED.to_vec(), "Only if named"),
    ] {
        if !names.is_empty() {
            text += &format!("  {how}: {}\n", names.join(", "));
        }
    }
    text += "\n";
    text + &output::explain(W::METRICS)
}

/// What every table's sentences end with.
const LIMIT: &str = "`x limit` divides the figure left of it by the limit's, whose work is the same \
with no reclamation, lock or check.";

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
    let mut benchmarks = benchmarks::<W>().into_iter();
    let benchmark = benchmarks
        .find(|benchmark| benchmark.case() == request.case)
        .with_context(|| format!("{} is not in this build", request.case))?;
    (benchmark.subject.prepare)()?;
    (benchmark.measure)(&work)
}

/// Runs an experiment and prints its table.
pub fn run<W: Work>(selection: &Selection<W>) -> Result<ExitCode> {
    selection.work.check()?;
    let found = compare(selection)?;
    say!("{}\n", found.head());
    found.conclude()
}

/// Measures what the experiment's command line with these options chooses, with the rounds, seed and
/// timeout of `common`, for another command's figures.
pub fn compare_by<W: Work>(options: &str, common: &Common) -> Result<Comparison> {
    let command = Selection::<W>::augment_args(Command::new(W::NAME).no_binary_name(true));
    let matches = command.try_get_matches_from(options.split_whitespace())?;
    let selection = Selection::<W> {
        common: Common {
            json: None,
            ..common.clone()
        },
        ..Selection::from_arg_matches(&matches)?
    };
    selection.work.check()?;
    compare(&selection)
}

/// In the parent: measures the chosen cases of Stillpoint and the peers, and the limit, round by
/// round.
pub fn compare<W: Work>(selection: &Selection<W>) -> Result<Comparison> {
    let Selection {
        work,
        chosen,
        common,
    } = selection;
    let json = common.json.as_deref().map(Output::create).transpose()?;
    let available = peers::available(&chosen.peers);

    let is_chosen = |benchmark: &Benchmark<W>| {
        let is_skipped = |name| work.skipped(name).is_some();
        chosen.includes(benchmark, &available) && !benchmark.scenario.is_some_and(is_skipped)
    };
    let cases = benchmarks::<W>().into_iter().filter(is_chosen);
    let rounds = |benchmark| chosen.rounds(&benchmark, common.rounds);
    let cases = cases
        .map(|benchmark| (benchmark.case(), rounds(benchmark)))
        .collect();
    let skipped = chosen.skipped(work);
    let params = serde_json::to_value(work)?;
    let measure = |case: &Case, timeout| {
        let request = Request {
            experiment: W::NAME.to_owned(),
            case: case.clone(),
            params: params.clone(),
        };
        child::measure(&request, timeout)
    };
    interrupt::catch();
    let watch = Watch::start();
    let untimed = |case: &Case| case.scenario.as_deref().is_some_and(W::is_untimed);
    let (measured, failures) = run::rounds(cases, common, untimed, measure);

    let measured = measured
        .into_iter()
        .filter(|(_, samples)| !samples.is_empty());
    let rows = measured.map(|(case, samples)| {
        let median = run::median_by(&samples, W::METRICS[0].name);
        Row {
            spread: run::spread(&samples),
            curve: median
                .map(|sample| sample.curve.clone())
                .filter(|curve| !curve.is_empty()),
            ..Row::new(case, run::medians(&samples))
        }
    });
    let rows = rows.collect();
    let asked = Params {
        work,
        rounds: common.rounds,
        seed: common.seed,
        chosen,
    };
    let report = Report {
        experiment: W::NAME,
        params: serde_json::to_value(asked)?,
        machine: Machine::watched_by(&watch),
        partial: interrupt::received().is_some(),
        rows,
        skipped,
    };
    Ok(Comparison {
        report,
        metrics: W::METRICS,
        families: W::SCENARIOS,
        shows: W::SHOWS,
        rounds: common.rounds,
        seed: common.seed,
        failures,
        json,
    })
}

/// What a run found.
pub struct Comparison {
    /// The medians.
    pub report: Report,
    metrics: &'static [Metric],
    families: &'static [Family],
    shows: &'static str,
    rounds: u32,
    seed: u64,
    /// Rounds that gave no sample.
    pub failures: Vec<Failure>,
    json: Option<Output>,
}

impl Comparison {
    /// What stands above the table: the machine, and what the figures are.
    pub fn head(&self) -> String {
        let Self {
            report,
            rounds,
            seed,
            ..
        } = self;
        let rounds = match rounds {
            _ if report.partial => {
                format!("INTERRUPTED, medians of what {rounds} rounds had come to; seed {seed}")
            }
            1 => "one round".to_owned(),
            rounds => format!("medians of {rounds} rounds"),
        };
        let busy = report
            .machine
            .busy()
            .map_or(String::new(), |load| format!("\n{load}"));
        format!("{}; {rounds}{busy}", report.machine)
    }

    /// Prints the table and writes the JSON file, tells the failures, and turns them into the exit
    /// code.
    pub fn conclude(self) -> Result<ExitCode> {
        say!(
            "{}\n\n{} {LIMIT}",
            table::render(&self.report.rows, self.metrics, self.families),
            self.shows
        );
        for Skipped { scenario, reason } in &self.report.skipped {
            say!("{scenario}: skipped: {reason}");
        }
        tell(&self.failures, self.seed);
        if let Some(file) = self.json {
            self.report.write_json(file)?;
        }
        let interrupted = interrupt::received().filter(|_| self.report.partial);
        Ok(interrupted.unwrap_or(verdict(&self.failures)))
    }
}

/// Returns the exit code of a run with these failures.
pub fn verdict(failures: &[Failure]) -> ExitCode {
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Tells on standard error which rounds failed, and how to run them again.
pub fn tell(failures: &[Failure], seed: u64) {
    for failure in failures {
        eprintln!("stillpoint: failed: {failure}");
    }
    if !failures.is_empty() {
        eprintln!(
            "stillpoint: to do the same again: {} (seed {seed}; {})",
            this_command(),
            this_program()
        );
    }
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeSet;

    use super::*;
    #[cfg(feature = "peers")]
    use crate::scale::map;

    #[cfg(feature = "peers")]
    /// The scenarios of `scale map` that run with these options, and in how many rounds of three.
    fn chosen(options: &[&str]) -> BTreeSet<(&'static str, u32)> {
        let command = Selection::<map::Work>::augment_args(Command::new("map"));
        let matches = command.get_matches_from(["map"].iter().chain(options));
        let selection = Selection::<map::Work>::from_arg_matches(&matches);
        let Selection { chosen, common, .. } = selection.expect("it is in order");
        let benchmarks = benchmarks::<map::Work>().into_iter();
        let benchmarks = benchmarks.filter(|benchmark| chosen.includes(benchmark, &chosen.peers));
        let rounds = |one: &Benchmark<map::Work>| chosen.rounds(one, common.rounds);
        let named =
            benchmarks.map(|one| (one.scenario.expect("they have scenarios"), rounds(&one)));
        named.collect()
    }

    #[cfg(feature = "peers")]
    #[test]
    fn a_scenario_may_run_only_if_named_and_once_unless_named() {
        let all = chosen(&[]);
        assert_eq!(all, chosen(&["--scenarios", "all"]));
        assert!(all.contains(&("exchange-2", 3)) && all.contains(&("growth", 1)));
        let only_if_named = |&(name, _): &_| map::Work::ONLY_IF_NAMED.contains(&name);
        assert!(!all.iter().any(only_if_named));
        let named = chosen(&["--scenarios", "growth,oscan"]);
        assert_eq!(named, BTreeSet::from([("growth", 3), ("oscan", 3)]));
    }

    /// The help explains every variant, scenario and figure, each in a line that fits, and a table with
    /// every figure of every scenario fits too.
    pub fn assert_fits<W: Work>() {
        let variants = W::VARIANTS.iter().copied();
        let figures = W::METRICS.iter().map(|metric| (metric.name, metric.about));
        let families = W::SCENARIOS
            .iter()
            .map(|family| (family.names[0], family.about));
        let help = help::<W>();
        for (name, about) in variants.chain(families).chain(figures) {
            assert!((3..=100).contains(&about.len()), "{}: {about}", W::NAME);
            assert!(
                help.contains(name) && help.contains(about),
                "{}: {name}",
                W::NAME
            );
        }
        assert!(
            scenarios(W::SCENARIOS).all(|name| help.contains(name)),
            "{help}"
        );
        assert!(W::SHOWS.contains(" is better"), "{}", W::SHOWS);

        // Every case has every figure; or one has all of them, and the others have one.
        let names: Vec<_> = W::METRICS.iter().map(|metric| metric.name).collect();
        for others in [names.len(), 1] {
            let row = |(index, benchmark): (usize, Benchmark<W>)| {
                let names = &names[..if index == 0 { names.len() } else { others }];
                let figures = names.iter().map(|name| ((*name).to_owned(), 123_456_789.0));
                Row::new(benchmark.case(), figures.collect())
            };
            let rows: Vec<Row> = benchmarks::<W>().into_iter().enumerate().map(row).collect();
            let text = table::render(&rows, W::METRICS, W::SCENARIOS);
            table::tests::assert_fits(&text);
            let shown = table::tests::cells(&text).concat();
            assert!(
                names
                    .iter()
                    .all(|name| shown.iter().any(|cell| cell == name)),
                "{text}"
            );
        }
    }

    /// No two benchmarks are the same case; all variants and scenarios that can be asked for are there,
    /// and no others.
    pub fn assert_possible_values<W: Work>() {
        let benchmarks = benchmarks::<W>();
        let cases: BTreeSet<_> = benchmarks
            .iter()
            .map(|one| one.case().to_string())
            .collect();
        assert_eq!(cases.len(), benchmarks.len());

        let ours = benchmarks.iter().map(|benchmark| benchmark.subject);
        let ours = ours.filter(|subject| subject.name == "stillpoint");
        let ours: BTreeSet<_> = ours.map(|subject| subject.variant).collect();
        assert_eq!(ours, W::VARIANTS.iter().map(|(name, _)| *name).collect());

        let found: BTreeSet<_> = benchmarks.iter().filter_map(|one| one.scenario).collect();
        assert_eq!(found, scenarios(W::SCENARIOS).collect());
    }
}
