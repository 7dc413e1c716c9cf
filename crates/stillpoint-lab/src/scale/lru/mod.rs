//! `stillpoint scale lru`: threads count what many tenants have on LRU lists, as all do that are short of memory, while a few add and
//! delete; the kernel's fork bomb in a small control group.
//!
//! [`workload`] says what is measured and why it is fair, [`ours`] and [`locked`] have the lists, [`profile`] the sampling.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::Contender;
use crate::choice::Menu;
use crate::output::Metric;
use workload::{Cast, measure};

mod locked;
mod ours;
mod profile;
mod workload;

/// The scenarios, in the table's order.
const SCENARIOS: &[&str] = &["threads-2", "threads-16", "spread-16", "churn", "custom"];

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

impl super::Work for Work {
    const NAME: &'static str = "lru";

    /// Stillpoint's own variants: the lists as they are, and the kernel's as they were, a lock for each list of all tenants.
    const VARIANTS: Menu = Menu::of_variants(&["rcu", "spinlock", "mutex"]);

    /// The peers: none has lists of tenants.
    const PEERS: Menu = Menu::of_peers(&[]);

    const SCENARIOS: Option<Menu> = Some(Menu::of_scenarios(SCENARIOS));

    const METRICS: &'static [Metric] = &[
        Metric { name: "counts_per_s", decimals: 0 },
        Metric { name: "adds_per_s", decimals: 0 },
        Metric { name: "count_ns", decimals: 2 },
        Metric { name: "lock_share", decimals: 4 },
        Metric { name: "tenants_per_s", decimals: 0 },
        Metric { name: "add_p999_us", decimals: 2 },
    ];

    fn contenders() -> Vec<Contender<Self>> {
        let mut contenders = Vec::new();
        for &scenario in SCENARIOS {
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
                contenders.push(Contender::ours("rcu", ours).in_scenario(scenario));
                contenders.push(Contender::limit(limit).in_scenario(scenario));
                continue;
            }
            contenders.extend(
                [
                    Contender::ours("rcu", move |work: &Work| measure::<ours::Lists>(work, cast(work), None)),
                    Contender::ours("spinlock", move |work: &Work| measure::<locked::Spinlocks>(work, cast(work), None)),
                    Contender::ours("mutex", move |work: &Work| measure::<locked::Mutexes>(work, cast(work), None)),
                    Contender::limit(move |work: &Work| measure::<locked::Nothing>(work, cast(work), None)),
                ]
                .map(|contender| contender.in_scenario(scenario)),
            );
        }
        contenders
    }
}
