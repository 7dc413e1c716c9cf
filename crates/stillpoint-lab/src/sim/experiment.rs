//! What every simulation has in common: the command line, its variants, each in several runs, and the
//! seed's figures beside them.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use kernel_sim::{Constants, Setup, Size};
use serde::Serialize;
use serde_json::Value;

use super::measured::Measured;
use super::report::{OURS, SEED, table};
use super::seed;
use crate::choice::{Choice, Menu};
use crate::machine::Machine;
use crate::output::{Output, Report, Row, say};
use crate::run::{Case, Metrics, Progress};

/// A simulation, and the options that it alone has.
pub trait Simulation: Args + Serialize + 'static {
    /// Its name on the command line and in the JSON.
    const NAME: &'static str;

    /// The seed's machine and runs: CPUs, ticks a second, runs.
    const DEFAULTS: [&'static str; 3];

    /// The variants, in the table's order.
    const VARIANTS: &'static [Variant];

    /// The figure that is divided by the seed's.
    const HEADLINE: &'static str;

    /// Returns the constants that the variants begin with.
    fn base(size: Size) -> Constants;

    /// Simulates one run, on a machine that has just booted.
    fn simulate(&self, setup: Setup) -> Measured;

    /// Returns the seed's figures for a variant, and those of its runs.
    fn seed(variant: &str) -> Option<(Metrics, Vec<Metrics>)>;

    /// Returns what stands above the table.
    fn head(_rows: &[Row]) -> String {
        String::new()
    }
}

/// A patch, or several, in force.
pub struct Variant {
    /// Its name on the command line and in the JSON.
    pub name: &'static str,
    /// Its explanation in one line.
    pub about: &'static str,
    /// Puts it in force.
    pub apply: fn(&mut Constants, Size),
}

/// Returns a variant: its name, its explanation, and what puts it in force.
pub const fn variant(
    name: &'static str,
    about: &'static str,
    apply: fn(&mut Constants, Size),
) -> Variant {
    Variant { name, about, apply }
}

/// The command line of a simulation.
#[derive(Args, Serialize)]
pub struct Options<S: Simulation> {
    /// CPUs
    #[arg(long, value_name = "N", default_value = S::DEFAULTS[0], value_parser = parse_cpus)]
    cpus: usize,

    /// Ticks a second
    #[arg(long, value_name = "N", default_value = S::DEFAULTS[1], value_parser = parse_hz)]
    hz: u64,

    /// Runs, each on a machine that has just booted
    #[arg(long, value_name = "N", default_value = S::DEFAULTS[2], value_parser = parse_count)]
    runs: usize,

    #[command(flatten)]
    #[serde(flatten)]
    work: S,

    #[arg(long, value_name = "all|NAME,...", default_value = "all", help = menu::<S>().help(),
          value_parser = |text: &str| menu::<S>().parse(text))]
    variants: Choice,

    /// Seed of all chance; the same seed gives the same events, byte for byte
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    json: Option<PathBuf>,
}

fn menu<S: Simulation>() -> Menu {
    let names = S::VARIANTS.iter().map(|variant| variant.name);
    Menu::new("variants", "Variants to simulate", names)
}

fn parse_cpus(text: &str) -> Result<usize, String> {
    in_range(text, 1, 4096).map(|cpus| cpus as usize)
}

fn parse_hz(text: &str) -> Result<u64, String> {
    in_range(text, 10, 10_000)
}

/// Reads a count.
pub fn parse_count(text: &str) -> Result<usize, String> {
    in_range(text, 1, 100_000).map(|count| count as usize)
}

fn in_range(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("say a whole number in {least}..={most}"))
}

impl<S: Simulation> Options<S> {
    fn size(&self) -> Size {
        Size {
            cpus: self.cpus,
            hz: self.hz,
        }
    }

    /// Returns a variant's constants: those that all begin with, changed by its patches.
    fn constants(&self, variant: &Variant) -> Constants {
        let mut constants = S::base(self.size());
        (variant.apply)(&mut constants, self.size());
        constants
    }

    /// Returns the machine of a variant's `run`th run. Its chance does not depend on the variant.
    fn setup(&self, constants: &Constants, run: u64) -> Setup {
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Setup {
            size: self.size(),
            constants: constants.clone(),
            seed: seed.wrapping_add(run),
        }
    }
}

/// What the table shows.
const SHOWS: &str = "What a wait for a grace period takes in the model; less is better. `seed` is \
what the patches' authors measured on the kernel, `x seed` the model's figure divided by theirs: 1 \
is a perfect fit.";

/// The result of a simulation.
pub struct Outcome {
    /// The figures: ours, and the seed's.
    pub report: Report,
    json: Option<Output>,
}

/// Simulates every variant. The runs of one together give its figures.
pub fn simulate<S: Simulation>(options: &Options<S>) -> Result<Outcome> {
    let variants = S::VARIANTS
        .iter()
        .filter(|variant| options.variants.includes(variant.name));
    let variants = variants.map(|variant| (variant, options.constants(variant)));
    let variants: Vec<(&Variant, Constants)> = variants.collect();
    let json = options.json.as_deref().map(Output::create).transpose()?;
    let progress = Progress::new(variants.len());

    let mut rows = Vec::new();
    for (variant, constants) in &variants {
        progress.begin(variant.name);
        let mut all = Measured::default();
        let mut each = Vec::new();
        for index in 0..options.runs {
            let measured = options
                .work
                .simulate(options.setup(constants, index as u64));
            each.push(measured.metrics());
            all.append(measured);
        }
        progress.end(variant.name);
        let summary = seed::summary(&each);
        let has_runs = options.runs > 1;
        rows.push(Row {
            runs: if has_runs { each } else { Vec::new() },
            longest_ms: all.longest_ms.clone(),
            ..Row::new(
                case(OURS, variant),
                if has_runs { summary } else { all.metrics() },
            )
        });
    }
    progress.finish();
    for (variant, _) in &variants {
        rows.extend(S::seed(variant.name).map(|(metrics, runs)| Row {
            runs,
            ..Row::new(case(SEED, variant), metrics)
        }));
    }
    let mut params = serde_json::to_value(options)?;
    let in_force = |(variant, constants): &(&Variant, Constants)| {
        (variant.name.to_owned(), constants.by_name().into())
    };
    params["constants"] = Value::Object(variants.iter().map(in_force).collect());
    Ok(Outcome {
        report: Report {
            experiment: S::NAME,
            params,
            machine: Machine::here(),
            partial: false,
            rows,
            skipped: Vec::new(),
        },
        json,
    })
}

fn case(subject: &str, variant: &Variant) -> Case {
    Case::new(subject, variant.name, None)
}

/// Simulates, prints the table, and fills the files.
pub fn run<S: Simulation>(options: &Options<S>) -> Result<ExitCode> {
    let Outcome { report, json } = simulate(options)?;
    say!(
        "{}{}\n\n{SHOWS}",
        S::head(&report.rows),
        table(&report.rows, S::HEADLINE)
    );
    if let Some(file) = json {
        report.write_json(file)?;
    }
    Ok(ExitCode::SUCCESS)
}
