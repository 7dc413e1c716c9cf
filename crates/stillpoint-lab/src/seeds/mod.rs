//! `stillpoint seeds`: what five patches to the Linux kernel gained, and what their counterparts
//! gain here. The experiments are those of `scale` and `sim`; [`kernel`] has the authors' figures,
//! [`systems`] says which figures stand beside each other, and [`page`] prints them.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::interrupt;
use crate::load::Watch;
use crate::machine::Machine;
use crate::output::{Output, Report, Row, say};
use crate::run::Common;
use crate::{scale, sim};

mod kernel;
mod page;
pub mod systems;

/// Subject of simulated figures.
const SIMULATION: &str = "simulation";

/// The help on the rows.
pub const HELP: &str = "The JSON has a row for each case, as `scale` writes it, with its experiment beside it. The subject
`seed` is the kernel, by the figures of its patch; `simulation` is the kernel's machinery in virtual time;
`stillpoint` and `limit` are measured.";

/// The command line.
#[derive(Args)]
pub struct Options {
    /// Do little work: enough to see that all runs, too little for figures
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    common: Common,
}

/// Experiments of `scale`: name, options, and further options without and with `--quick`.
const EXPERIMENTS: [(&str, &str, &str, &str); 5] = [
    (
        "kfree",
        "--variants per-page,whole-batch --peers none",
        "",
        "--threads 2 --loops 4 --objects 100",
    ),
    (
        "sync",
        "--variants rcu,service-led --peers none --scenarios bridge",
        "",
        "",
    ),
    (
        "lru",
        "--variants rcu,spinlock,mutex --peers none --scenarios threads-16",
        "",
        "--tenants 10 --lists 2",
    ),
    (
        "trace",
        "--variants native,read-mb --peers none --scenarios idle,sleepers",
        "--span-ms 300",
        "--threads 2 --span-ms 20",
    ),
    (
        "vmap",
        "--variants rcu,unchecked,node-rwlock,node-spinlock,global-lock,global-mutex --peers none --scenarios copy-4096",
        "",
        "--threads 2 --connections 4 --copy-ms 5",
    ),
];

/// All figures: the kernel's, simulated ones, and those measured here.
pub struct Found(Vec<Row>);

impl Found {
    /// Returns the kernel's figures.
    pub fn of_the_kernel() -> Self {
        let mut found = Self(Vec::new());
        for (experiment, rows) in kernel::rows() {
            found.add(experiment, rows);
        }
        found
    }

    /// Adds an experiment's figures. Those of `sim` become the [`SIMULATION`]'s, so that they do not look like
    /// measurements.
    pub fn add(&mut self, experiment: &'static str, rows: impl IntoIterator<Item = Row>) {
        let named = |mut row: Row| {
            if experiment.starts_with("sim ") {
                SIMULATION.clone_into(&mut row.case.subject);
            }
            Row {
                experiment: Some(experiment),
                curve: None,
                ..row
            }
        };
        self.0.extend(rows.into_iter().map(named));
    }

    /// Returns a figure; `None` if it was not measured.
    fn figure(
        &self,
        experiment: &str,
        subject: &str,
        variant: &str,
        scenario: Option<&str>,
        metric: &str,
    ) -> Option<f64> {
        let is_it = |row: &&Row| {
            row.experiment == Some(experiment)
                && row.case.subject == subject
                && row.case.variant == variant
                && row.case.scenario.as_deref() == scenario
        };
        self.0.iter().find(is_it)?.metrics.get(metric).copied()
    }
}

/// Measures, simulates and prints.
pub fn run(options: &Options) -> Result<ExitCode> {
    let Options { quick, common } = options;
    let json = common.json.as_deref().map(Output::create).transpose()?;
    let watch = Watch::start();
    let mut found = Found::of_the_kernel();
    for (experiment, rows) in sim::of_seeds(common.seed)? {
        found.add(experiment, rows);
    }
    let mut failures = Vec::new();
    for (experiment, chosen, full, less) in EXPERIMENTS {
        let work = if *quick { less } else { full };
        let compared = scale::compare(experiment, &format!("{chosen} {work}"), common)?;
        found.add(experiment, compared.report.rows);
        failures.extend(compared.failures);
        if interrupt::received().is_some() {
            break;
        }
    }
    let interrupted = interrupt::received();

    let machine = Machine::watched_by(&watch);
    say!("{}", page::head(&machine, common.rounds, *quick));
    for system in systems::all(&found, machine.cpus) {
        say!("\n{}", page::render(&system));
    }
    scale::tell(&failures, common.seed);
    if let Some(file) = json {
        let report = Report {
            experiment: "seeds",
            params: json!({"rounds": common.rounds, "seed": common.seed, "quick": quick}),
            machine,
            partial: interrupted.is_some(),
            rows: found.0,
            skipped: Vec::new(),
        };
        report.write_json(file)?;
    }
    Ok(interrupted.unwrap_or(scale::verdict(&failures)))
}

#[cfg(test)]
mod tests;
