//! What the experiments have in common: the command line, who takes part, and the way from there to
//! a table and a JSON file.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::choice::{Choice, Family, PossibleValues, explain, scenarios};
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
    const VARIANTS: PossibleValues;

    /// The peers.
    const PEERS: PossibleValues;

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

    /// Stillpoint's variants, the peers that this build has, and the limit, in the table's order;
    /// but for the scenarios.
    fn benchmarks() -> Vec<Benchmark<Self>>;

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

impl<W: Work> Args for Selection<W> {
    fn augment_args(command: Command) -> Command {
        let scenarios = PossibleValues::of_scenarios(W::SCENARIOS);
        let options = (!W::SCENARIOS.is_empty())
            .then_some(scenarios)
            .into_iter()
            .chain([W::VARIANTS, W::PEERS])
            .map(PossibleValues::arg);
        Common::augment_args(W::augment_args(command).args(options)).after_long_help(help::<W>())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<W: Work> FromArgMatches for Selection<W> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let picked = |option: &str| {
            matches
                .get_one::<Choice>(option)
                .cloned()
                .expect("every option has a default")
        };
        Ok(Self {
            work: W::from_arg_matches(matches)?,
            chosen: Chosen {
                variants: picked("variants"),
                peers: picked("peers"),
                scenarios: (!W::SCENARIOS.is_empty()).then(|| {
                    let mut scenarios = picked("scenarios");
                    scenarios.keep_only_if_named(W::ONLY_IF_NAMED);
                    scenarios
                }),
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
    /// In how many of so many rounds a benchmark is measured.
    fn rounds<W: Work>(&self, benchmark: &Benchmark<W>, rounds: u32) -> u32 {
        let is_named = |scenario| {
            let scenarios = self.scenarios.as_ref();
            scenarios.is_some_and(|scenarios| scenarios.names_one(scenario))
        };
        let once = |scenario| {
            let family = W::SCENARIOS
                .iter()
                .find(|family| family.names.contains(&scenario));
            family.is_some_and(|family| family.once) && !is_named(scenario)
        };
        if benchmark.scenario.is_some_and(once) {
            1
        } else {
            rounds
        }
    }

    /// The chosen scenarios that are not measured here.
    fn skipped<W: Work>(&self, work: &W) -> Vec<Skipped> {
        let scenarios = self.scenarios.iter().flat_map(Choice::names);
        let skipped = |&scenario| {
            let reason = work.skipped(scenario)?;
            Some(Skipped { scenario, reason })
        };
        scenarios.filter_map(skipped).collect()
    }

    /// The chosen ones of `benchmarks`; of the peers, those `available`.
    fn among<'c, W>(
        &self,
        benchmarks: &'c [Benchmark<W>],
        available: &Choice,
    ) -> impl Iterator<Item = &'c Benchmark<W>> {
        let takes_part = |benchmark: &Benchmark<W>| match benchmark.subject.name {
            "stillpoint" => self.variants.includes(benchmark.subject.variant),
            "limit" => true,
            peer => available.includes(peer),
        };
        let takes_place = |benchmark: &Benchmark<W>| match (&self.scenarios, benchmark.scenario) {
            (Some(scenarios), Some(scenario)) => scenarios.includes(scenario),
            _ => true,
        };
        benchmarks
            .iter()
            .filter(move |benchmark| takes_part(benchmark) && takes_place(benchmark))
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

impl<W> Benchmark<W> {
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
        Self {
            subject,
            scenario: None,
            measure: Box::new(measure),
        }
    }

    /// The same in one of several scenarios.
    pub fn in_scenario(self, scenario: &'static str) -> Self {
        Self {
            scenario: Some(scenario),
            ..self
        }
    }

    /// The same with something to do first, in the process that measures.
    pub fn prepared_by(self, prepare: fn() -> Result<()>) -> Self {
        Self {
            subject: self.subject.prepared_by(prepare),
            ..self
        }
    }

    fn case(&self) -> Case {
        Case {
            subject: self.subject.name.to_owned(),
            variant: self.subject.variant.to_owned(),
            scenario: self.scenario.map(ToOwned::to_owned),
        }
    }
}

/// The benchmarks, scenario by scenario.
fn benchmarks<W: Work>() -> Vec<Benchmark<W>> {
    let mut benchmarks = W::benchmarks();
    benchmarks.sort_by_key(|benchmark| {
        scenarios(W::SCENARIOS).position(|name| benchmark.scenario == Some(name))
    });
    benchmarks
}

/// A line for each case of the experiment that this build has, in the table's order.
pub fn list<W: Work>() -> String {
    let line = |benchmark: Benchmark<W>| {
        let Benchmark {
            subject, scenario, ..
        } = benchmark;
        let scenario = scenario.map_or(String::new(), |scenario| format!(" {scenario}"));
        format!(
            "{} {} {}{scenario}\n",
            W::NAME,
            subject.name,
            subject.variant
        )
    };
    benchmarks::<W>().into_iter().map(line).collect()
}

/// What the long help says behind the options: each name that a table or the JSON has.
pub fn help<W: Work>() -> String {
    let mut text = explain("Variants of Stillpoint", &W::VARIANTS.explained());
    if !W::SCENARIOS.is_empty() {
        let scenarios = PossibleValues::of_scenarios(W::SCENARIOS).explained();
        text += "\n";
        text += &explain("Scenarios", &scenarios);
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

fn request<W: Work>(case: &Case, params: &Value) -> Request {
    Request {
        experiment: W::NAME.to_owned(),
        case: case.clone(),
        params: params.clone(),
    }
}

/// In the child: takes the measurement that the parent asks for.
pub fn measure<W: Work>(request: &Request) -> Result<Sample> {
    let work = W::deserialize(&request.params)?;
    let benchmarks = benchmarks::<W>();
    let benchmark = benchmarks
        .iter()
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

    let benchmarks = benchmarks::<W>();
    let rounds = |benchmark| chosen.rounds(benchmark, common.rounds);
    let cases: Vec<(Case, u32)> = chosen
        .among(&benchmarks, &available)
        .filter(|benchmark| {
            benchmark
                .scenario
                .is_none_or(|name| work.skipped(name).is_none())
        })
        .map(|benchmark| (benchmark.case(), rounds(benchmark)))
        .collect();
    let skipped = chosen.skipped(work);
    let params = serde_json::to_value(work)?;
    let measure = |case: &Case, timeout| child::measure(&request::<W>(case, &params), timeout);
    interrupt::catch();
    let watch = Watch::start();
    let untimed = |case: &Case| case.scenario.as_deref().is_some_and(W::is_untimed);
    let (measured, failures) = run::rounds(cases, common, untimed, measure);
    let interrupted = interrupt::received();

    let rows = measured
        .iter()
        .filter(|measured| !measured.samples.is_empty())
        .map(|measured| Row {
            experiment: None,
            case: measured.case.clone(),
            metrics: run::medians(&measured.samples),
            spread: run::spread(&measured.samples),
            curve: run::median_by(&measured.samples, W::METRICS[0].name)
                .map(|sample| sample.curve.clone())
                .filter(|curve| !curve.is_empty()),
        })
        .collect();
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
        partial: interrupted.is_some(),
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
        interrupted,
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
    /// The exit code of a run that was broken off.
    interrupted: Option<ExitCode>,
    json: Option<Output>,
}

impl Comparison {
    /// What stands above the table: the machine, and what the figures are.
    pub fn head(&self) -> String {
        let rounds = match (self.interrupted, self.rounds) {
            (Some(_), rounds) => {
                format!(
                    "INTERRUPTED, medians of what {rounds} rounds had come to; seed {}",
                    self.seed
                )
            }
            (None, 1) => "one round".to_owned(),
            (None, rounds) => format!("medians of {rounds} rounds"),
        };
        let Machine { load, .. } = &self.report.machine;
        let busy = load.as_ref().filter(|load| load.busy);
        let busy = busy.map_or(String::new(), |load| format!("\n{load}"));
        format!("{}; {rounds}{busy}", self.report.machine)
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
        if let Some(code) = self.interrupted {
            return Ok(code);
        }
        Ok(if self.failures.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
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
    use crate::output::table::tests::row;
    #[cfg(feature = "peers")]
    use crate::scale::map;

    #[cfg(feature = "peers")]
    /// The scenarios of `scale map` that run with these options, and in how many rounds of three.
    fn chosen(options: &[&str]) -> BTreeSet<(&'static str, u32)> {
        let command = Selection::<map::Work>::augment_args(Command::new("map"));
        let matches = command.get_matches_from(["map"].iter().chain(options));
        let selection = Selection::<map::Work>::from_arg_matches(&matches);
        let Selection { chosen, common, .. } = selection.expect("it is in order");
        let benchmarks = benchmarks::<map::Work>();
        let chosen = chosen.among(&benchmarks, &chosen.peers).map(|benchmark| {
            let rounds = chosen.rounds(benchmark, common.rounds);
            (benchmark.scenario.expect("they have scenarios"), rounds)
        });
        chosen.collect()
    }

    #[cfg(feature = "peers")]
    #[test]
    fn a_scenario_may_run_only_if_named_and_once_unless_named() {
        let all = chosen(&[]);
        assert_eq!(all, chosen(&["--scenarios", "all"]));
        assert!(all.contains(&("iterate", 3)) && all.contains(&("growth", 1)));
        assert!(
            !all.iter()
                .any(|(name, _)| map::Work::ONLY_IF_NAMED.contains(name))
        );
        let named = chosen(&["--scenarios", "growth,garbage"]);
        assert_eq!(named, BTreeSet::from([("growth", 3), ("garbage", 3)]));
    }

    /// The help explains every variant, scenario and figure, each in a line that fits, and a table with
    /// every figure of every scenario fits too.
    pub fn assert_fits<W: Work>() {
        let scenarios_of = PossibleValues::of_scenarios(W::SCENARIOS);
        let explained = [W::VARIANTS.explained(), scenarios_of.explained()].concat();
        let figures = W::METRICS.iter().map(|metric| metric.about);
        let abouts: Vec<&str> = explained.iter().map(|(_, about)| *about).collect();
        for about in abouts.into_iter().chain(figures) {
            assert!((3..=100).contains(&about.len()), "{}: {about}", W::NAME);
        }
        assert!(W::SHOWS.contains(" is better"), "{}", W::SHOWS);
        let help = help::<W>();
        let variants = W::VARIANTS.names().into_iter();
        let figures = W::METRICS.iter().map(|metric| metric.name);
        for name in variants.chain(scenarios(W::SCENARIOS)).chain(figures) {
            assert!(help.contains(name), "{}: {name}", W::NAME);
        }

        let figures: Vec<_> = W::METRICS
            .iter()
            .map(|metric| (metric.name, 123_456_789.0))
            .collect();
        let cases = benchmarks::<W>();
        let all = cases.iter().map(|benchmark| {
            let case = benchmark.case();
            Row {
                case,
                ..row("", None, &figures)
            }
        });
        let text = table::render(&all.collect::<Vec<_>>(), W::METRICS, W::SCENARIOS);
        table::tests::assert_fits(&text);
        let shown: BTreeSet<String> = table::tests::cells(&text).concat().into_iter().collect();
        for (name, _) in &figures {
            assert!(shown.contains(*name), "{}: {name}", W::NAME);
        }
        // A figure that one subject has in one scenario is a column there and nowhere else.
        let one: Vec<Row> = cases
            .iter()
            .enumerate()
            .map(|(index, benchmark)| {
                let figures = &figures[..if index == 0 { figures.len() } else { 1 }];
                let case = benchmark.case();
                Row {
                    case,
                    ..row("", None, figures)
                }
            })
            .collect();
        table::tests::assert_fits(&table::render(&one, W::METRICS, W::SCENARIOS));
    }

    /// What can be asked for is what there is, and no two benchmarks are the same case. A peer may
    /// be missing from this build.
    pub fn assert_possible_values<W: Work>() {
        let benchmarks = benchmarks::<W>();
        let cases: BTreeSet<_> = benchmarks
            .iter()
            .map(|benchmark| benchmark.case().to_string())
            .collect();
        assert_eq!(cases.len(), benchmarks.len());

        let set = |names: &[&'static str]| names.iter().copied().collect::<BTreeSet<_>>();
        let ours = |benchmark: &&Benchmark<W>| benchmark.subject.name == "stillpoint";
        let ours: BTreeSet<_> = benchmarks
            .iter()
            .filter(ours)
            .map(|benchmark| benchmark.subject.variant)
            .collect();
        assert_eq!(ours, set(&W::VARIANTS.names()));

        let subjects: BTreeSet<_> = benchmarks
            .iter()
            .map(|benchmark| benchmark.subject.name)
            .collect();
        let others: BTreeSet<_> = subjects
            .difference(&BTreeSet::from(["stillpoint", "limit"]))
            .copied()
            .collect();
        assert!(others.is_subset(&set(&W::PEERS.names())), "{others:?}");

        let found: BTreeSet<_> = benchmarks
            .iter()
            .filter_map(|benchmark| benchmark.scenario)
            .collect();
        assert_eq!(found, scenarios(W::SCENARIOS).collect());
    }
}
