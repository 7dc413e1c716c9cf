//! `stillpoint scale lru`: threads count what many tenants have on LRU lists, as all do that are
//! short of memory, while a few add and delete; the kernel's fork bomb in a small control group.
//!
//! [`workload`] says what is measured and why it is fair, [`ours`] and [`locked`] have the lists,
//! [`profile`] the sampling.

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::Benchmarks;
use crate::choice::{Explained, Family, explained, families, scenarios};
use crate::output::{Metric, metrics};
use crate::run::Sample;
use crate::subject::Peer;
use locked::{Mutexes, Nothing, Spinlocks};
use workload::{Churn, Roles, Subject, measure};

mod locked;
mod ours;
mod profile;
mod workload;

/// The scenarios, in the table's order.
const SCENARIOS: &[Family] = families! {
    "threads-2", "threads-16" => "One thread counts and one adds and deletes; or 14 count and 2 add and delete.";
    "spread-16" => "As threads-16, but each thread counts another list.";
    "churn" => "One thread counts, and another creates and deletes tenants.";
    "custom" => "Threads as --threads, --counters and --mutators say.";
};

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
        Roles::new(counters as usize, self.mutators as usize)
    }
}

impl super::Work for Work {
    const NAME: &'static str = "lru";

    const SHOWS: &'static str = "How many counts and adds of list items there are in a second; more is better, but in \
        columns of times (ns, us) and of lock_share less is.";

    /// Stillpoint's own variants: the lists as they are, and the kernel's as they were, a lock for
    /// each list of all tenants.
    const VARIANTS: &'static [Explained] = explained! {
        "rcu" => "the lists as they are: counted without a lock";
        "spinlock" => "a spinlock for each list of all tenants, as the kernel had";
        "mutex" => "the same with a mutex";
    };

    /// The peers: none has lists of tenants.
    const SCENARIOS: &'static [Family] = SCENARIOS;

    const METRICS: &'static [Metric] = metrics! {
        "counts_per_s" 0 "counts of a list of a tenant, by all threads in a second";
        "adds_per_s" 0 "items added in a second";
        "count_ns" 2 "a count, on the thread that counts";
        "lock_share" 4 "share of the profile's samples that are in locks, 0 to 1";
        "tenants_per_s" 0 "tenants created and deleted in a second, in churn";
        "add_p999_us" 2 "999 of 1,000 adds took no longer";
    };

    fn add_to(all: &mut Benchmarks<Self>) {
        for scenario in scenarios(SCENARIOS) {
            let roles = move |work: &Work| match scenario {
                "threads-2" | "churn" => Roles::new(1, 1),
                "threads-16" => Roles::new(14, 2),
                "spread-16" => Roles {
                    spread: true,
                    ..Roles::new(14, 2)
                },
                _ => work.custom(),
            };
            let churn = (scenario == "churn").then_some(ours::Lists::churn as Churn<_>);
            let ours = move |work: &Work| measure(work, roles(work), churn);
            all.add(Peer::ours("rcu"), scenario, ours);
            // The lists of the old kind have tenants that stay.
            if churn.is_none() {
                let spinlocks = move |work: &Work| measure_lists::<Spinlocks>(work, roles(work));
                all.add(Peer::ours("spinlock"), scenario, spinlocks);
                let mutexes = move |work: &Work| measure_lists::<Mutexes>(work, roles(work));
                all.add(Peer::ours("mutex"), scenario, mutexes);
            }
            let limit = move |work: &Work| measure_lists::<Nothing>(work, roles(work));
            all.add(Peer::LIMIT, scenario, limit);
        }
    }
}

/// Measures lists whose tenants stay.
fn measure_lists<S: Subject>(work: &Work, roles: Roles) -> Result<Sample> {
    measure::<S>(work, roles, None)
}
