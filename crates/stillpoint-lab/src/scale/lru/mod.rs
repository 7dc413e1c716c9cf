//! `stillpoint scale lru`: threads count what many tenants have on LRU lists, as all do that are short of memory, while a few add and
//! delete; the kernel's fork bomb in a small control group.
//!
//! [`workload`] says what is measured and why it is fair, [`ours`] and [`locked`] have the lists, [`profile`] the sampling.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Chosen, Contender, Experiment};
use crate::choice::{Choice, Menu};
use crate::output::Metric;
use crate::run;
use workload::{Cast, measure};

mod locked;
mod ours;
mod profile;
mod workload;

/// The experiment's name.
pub const NAME: &str = "lru";

/// Stillpoint's own variants: the lists as they are, and the kernel's as they were, a lock for each list of all tenants.
pub const VARIANTS: Menu = Menu::of_variants(&["rcu", "spinlock", "mutex"]);

/// The peers: none has lists of tenants.
pub const PEERS: Menu = Menu::of_peers(&[]);

/// The scenarios, in the table's order.
pub const SCENARIOS: Menu = Menu::of_scenarios(&["threads-2", "threads-16", "spread-16", "churn", "custom"]);

const METRICS: &[Metric] = &[
    Metric { name: "counts_per_s", decimals: 0 },
    Metric { name: "adds_per_s", decimals: 0 },
    Metric { name: "count_ns", decimals: 2 },
    Metric { name: "lock_share", decimals: 4 },
    Metric { name: "tenants_per_s", decimals: 0 },
    Metric { name: "add_p999_us", decimals: 2 },
];

/// The command line.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    work: Work,

    #[arg(long, value_name = "all|NAME,...", default_value = "all", help = SCENARIOS.help(),
          value_parser = |text: &str| SCENARIOS.parse(text))]
    scenarios: Choice,

    #[arg(long, value_name = "all|NAME,...", default_value = "all", help = VARIANTS.help(),
          value_parser = |text: &str| VARIANTS.parse(text))]
    variants: Choice,

    #[arg(long, value_name = "all|none|NAME,...", default_value = "all", help = PEERS.help(),
          value_parser = |text: &str| PEERS.parse(text))]
    peers: Choice,

    #[command(flatten)]
    common: run::Common,
}

/// What the work depends on.
#[derive(Args, Serialize, Deserialize)]
pub struct Work {
    /// Threads in custom, counters and mutators together
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=4096))]
    threads: u32,

    /// Threads that count in custom; all but the mutators, if this is not said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    counters: Option<u32>,

    /// Threads that add and delete in custom
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4096))]
    mutators: u32,

    /// Tenants
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tenants: u32,

    /// LRUs, each with a list for every tenant
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1000))]
    lists: u32,
}

impl Work {
    fn custom(&self) -> Cast {
        let counters = self.counters.unwrap_or_else(|| self.threads.saturating_sub(self.mutators).max(1));
        Cast { counters: counters as usize, mutators: self.mutators as usize, spread: false }
    }
}

/// Who takes part.
pub fn experiment() -> Experiment<Work> {
    let mut contenders = Vec::new();
    for &scenario in SCENARIOS.names() {
        let cast = move |work: &Work| match scenario {
            "threads-2" | "churn" => Cast { counters: 1, mutators: 1, spread: false },
            "threads-16" => Cast { counters: 14, mutators: 2, spread: false },
            "spread-16" => Cast { counters: 14, mutators: 2, spread: true },
            _ => work.custom(),
        };
        if scenario == "churn" {
            // The lists of the old kind, and no lists, have tenants that stay.
            let ours = move |work: &Work| measure(work, cast(work), Some(ours::Lists::churn));
            let limit = move |work: &Work| measure::<locked::Nothing>(work, cast(work), None);
            contenders.push(Contender::new("stillpoint", "rcu", ours).in_scenario(scenario));
            contenders.push(Contender::new("limit", "default", limit).in_scenario(scenario));
            continue;
        }
        contenders.extend(
            [
                Contender::new("stillpoint", "rcu", move |work: &Work| measure::<ours::Lists>(work, cast(work), None)),
                Contender::new("stillpoint", "spinlock", move |work: &Work| measure::<locked::Spinlocks>(work, cast(work), None)),
                Contender::new("stillpoint", "mutex", move |work: &Work| measure::<locked::Mutexes>(work, cast(work), None)),
                Contender::new("limit", "default", move |work: &Work| measure::<locked::Nothing>(work, cast(work), None)),
            ]
            .map(|contender| contender.in_scenario(scenario)),
        );
    }
    Experiment { name: NAME, metrics: METRICS, contenders }
}

/// Runs the experiment and prints its table.
pub fn run(options: &Options) -> Result<ExitCode> {
    let chosen = Chosen { variants: &options.variants, peers: &options.peers, scenarios: Some(&options.scenarios) };
    let found = experiment().compare(&options.work, &chosen, &options.common)?;
    println!("{}; medians of {} rounds\n", found.report.machine, options.common.rounds);
    found.conclude()
}
