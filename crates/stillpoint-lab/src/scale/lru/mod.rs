//! `stillpoint scale lru`: threads count what many tenants have on LRU lists, as all do that are
//! short of memory, while a few add and delete; the kernel's fork bomb in a small control group.
//!
//! [`workload`] says what is measured and why it is fair, [`ours`] and [`locked`] have the lists,
//! [`profile`] the sampling.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::Benchmark;
use crate::choice::{Family, PossibleValues, scenarios};
use crate::output::{Metric, metric};
use workload::{Roles, measure};

mod locked;
mod ours;
mod profile;
mod workload;

/// The scenarios, in the table's order.
const SCENARIOS: &[Family] = &[
    Family::of(
        &["threads-2", "threads-16"],
        "One thread counts and one adds and deletes; or 14 count and 2 add and delete.",
    ),
    Family::of(
        &["spread-16"],
        "As threads-16, but each thread counts another list.",
    ),
    Family::of(
        &["churn"],
        "One thread counts, and another creates and deletes tenants.",
    ),
    Family::of(
        &["custom"],
        "Threads as --threads, --counters and --mutators say.",
    ),
];

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
    fn custom(&self) -> Roles {
        let counters = self
            .counters
            .unwrap_or_else(|| self.threads.saturating_sub(self.mutators).max(1));
        Roles {
            counters: counters as usize,
            mutators: self.mutators as usize,
            spread: false,
        }
    }
}

impl super::Work for Work {
    const NAME: &'static str = "lru";

    const SHOWS: &'static str = "How many counts and adds of list items there are in a second; more is better, but in \
        columns of times (ns, us) and of lock_share less is.";

    /// Stillpoint's own variants: the lists as they are, and the kernel's as they were, a lock for
    /// each list of all tenants.
    const VARIANTS: PossibleValues = PossibleValues::of_variants(&[
        ("rcu", "the lists as they are: counted without a lock"),
        (
            "spinlock",
            "a spinlock for each list of all tenants, as the kernel had",
        ),
        ("mutex", "the same with a mutex"),
    ]);

    /// The peers: none has lists of tenants.
    const PEERS: PossibleValues = PossibleValues::of_peers(&[]);

    const SCENARIOS: &'static [Family] = SCENARIOS;

    const METRICS: &'static [Metric] = &[
        metric(
            "counts_per_s",
            0,
            "counts of a list of a tenant, by all threads in a second",
        ),
        metric("adds_per_s", 0, "items added in a second"),
        metric("count_ns", 2, "a count, on the thread that counts"),
        metric(
            "lock_share",
            4,
            "share of the profile's samples that are in locks, 0 to 1",
        ),
        metric(
            "tenants_per_s",
            0,
            "tenants created and deleted in a second, in churn",
        ),
        metric("add_p999_us", 2, "999 of 1,000 adds took no longer"),
    ];

    fn benchmarks() -> Vec<Benchmark<Self>> {
        let mut benchmarks = Vec::new();
        for scenario in scenarios(SCENARIOS) {
            let roles = move |work: &Work| match scenario {
                "threads-2" | "churn" => Roles {
                    counters: 1,
                    mutators: 1,
                    spread: false,
                },
                "threads-16" => Roles {
                    counters: 14,
                    mutators: 2,
                    spread: false,
                },
                "spread-16" => Roles {
                    counters: 14,
                    mutators: 2,
                    spread: true,
                },
                _ => work.custom(),
            };
            if scenario == "churn" {
                // The lists of the old kind, and no lists, have tenants that stay.
                let ours = move |work: &Work| measure(work, roles(work), Some(ours::Lists::churn));
                let limit = move |work: &Work| measure::<locked::Nothing>(work, roles(work), None);
                benchmarks.push(Benchmark::ours("rcu", ours).in_scenario(scenario));
                benchmarks.push(Benchmark::limit(limit).in_scenario(scenario));
                continue;
            }
            benchmarks.extend(
                [
                    Benchmark::ours("rcu", move |work: &Work| {
                        measure::<ours::Lists>(work, roles(work), None)
                    }),
                    Benchmark::ours("spinlock", move |work: &Work| {
                        measure::<locked::Spinlocks>(work, roles(work), None)
                    }),
                    Benchmark::ours("mutex", move |work: &Work| {
                        measure::<locked::Mutexes>(work, roles(work), None)
                    }),
                    Benchmark::limit(move |work: &Work| {
                        measure::<locked::Nothing>(work, roles(work), None)
                    }),
                ]
                .map(|benchmark| benchmark.in_scenario(scenario)),
            );
        }
        benchmarks
    }
}
