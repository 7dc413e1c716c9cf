//! `stillpoint scale lru`: threads count what many tenants have on LRU lists, as all do that are
//! short of memory, while a few add and delete; the kernel's fork bomb in a small control group.
//!
//! [`workload`] says what is measured and why it is fair, [`ours`] and [`locked`] have the lists,
//! [`profile`] the sampling.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::Benchmarks;
use crate::choice::{Explained, Family, explained, families};
use crate::output::{Metric, metrics};
use crate::subject::Peer;
use locked::{Mutexes, Nothing, Spinlocks};
use workload::{Roles, Subject, measure};

mod locked;
mod ours;
mod profile;
mod workload;

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
        }
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

    const SCENARIOS: &'static [Family] = families! {
        "threads-2", "threads-16" => "One thread counts and one adds and deletes; or 14 count and 2 add and delete.";
        "custom" => "Threads as --threads, --counters and --mutators say.";
    };

    const METRICS: &'static [Metric] = metrics! {
        "counts_per_s" 0 "counts of a list of a tenant, by all threads in a second";
        "adds_per_s" 0 "items added in a second";
        "count_ns" 2 "a count, on the thread that counts";
        "lock_share" 4 "share of the profile's samples that are in locks, 0 to 1";
        "add_p999_us" 2 "999 of 1,000 adds took no longer";
    };

    fn add_to(all: &mut Benchmarks<Self>) {
        all.lists::<ours::Lists>(Peer::ours("rcu"));
        all.lists::<Spinlocks>(Peer::ours("spinlock"));
        all.lists::<Mutexes>(Peer::ours("mutex"));
        all.lists::<Nothing>(Peer::LIMIT);
    }
}

impl Benchmarks<Work> {
    fn lists<S: Subject>(&mut self, peer: Peer) {
        let roles = |counters, mutators| Roles { counters, mutators };
        self.add(peer, "threads-2", move |work| {
            measure::<S>(work, roles(1, 1))
        });
        self.add(peer, "threads-16", move |work| {
            measure::<S>(work, roles(14, 2))
        });
        self.add(peer, "custom", |work| measure::<S>(work, work.custom()));
    }
}
