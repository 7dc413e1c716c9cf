//! `stillpoint scale sync`: how long it takes to wait for a grace period, beside readers that sleep
//! or work, and what processor time the wait costs.
//!
//! [`workload`] says what happens in each scenario and what is timed, [`readers`] who reads
//! meanwhile, [`figures`] what is reported of it.

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::Benchmark;
use super::in_domain::Fences;
use crate::choice::{Family, PossibleValues};
use crate::output::{Metric, metric};
use crate::peers;
use crate::subject::{Callbacks, Peer, Polled, Registry, Updater};
use readers::ReaderPool;

mod callback_latch;
pub mod figures;
mod ours;
mod readers;
mod workload;

pub use ours::{Qsbr, bare_membarrier, has_limit, prepare_limit};
pub use readers::start_thread;

/// What the work depends on.
#[derive(Args, Serialize, Deserialize)]
pub struct Work {
    /// Threads that wait at the same time in herd64
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: u32,
}

impl super::Work for Work {
    const NAME: &'static str = "sync";

    const SHOWS: &'static str = "How long a thread waits until readers are done, and what that costs the processors; less \
        is better.";

    /// Stillpoint's own variants.
    const VARIANTS: PossibleValues = PossibleValues::of_variants(&[
        ("rcu", "synchronize() of the global domain"),
        ("expedited", "synchronize_expedited()"),
        (
            "qsbr",
            "a private domain whose readers report quiescent states",
        ),
        (
            "service-led",
            "a callback that the service thread calls, as waits in the kernel were before direct wake-ups",
        ),
        ("fences", "a private domain whose readers fence"),
    ]);

    const PEERS: PossibleValues = PossibleValues::of_registered_peers(peers::that_wait);

    const SCENARIOS: &'static [Family] = &[
        Family::of(
            &["idle", "idle16", "idle255", "idle1000"],
            "One thread waits, beside no reader, or beside so many registered threads that sleep.",
        ),
        Family::of(
            &["busy1", "busy-oversub"],
            "One thread waits beside one reader that is always in sections, or two on the same two CPUs.",
        ),
        Family::of(
            &["herd64"],
            "As many threads as --threads says (64) wait at once.",
        ),
        Family::of(
            &["bridge"],
            "One thread waits 100 times 4 times in a row, beside 64 registered threads that sleep.",
        ),
        Family::of(
            &["callback"],
            "From call() to the first instruction of the callback, beside 16 threads that sleep.",
        ),
        Family::of(
            &["barrier"],
            "A callback and the barrier behind it, beside 16 threads that sleep.",
        ),
        Family::of(
            &["poll"],
            "From start_poll() to the first poll() that is true, beside 16 threads that sleep.",
        ),
    ];

    const METRICS: &'static [Metric] = &[
        metric("mean_us", 3, "how long what is timed took, on average"),
        metric("min_us", 3, "the shortest"),
        metric("p50_us", 3, "half of them took no longer"),
        metric("p99_us", 3, "99 of 100 took no longer"),
        metric("max_us", 1, "the longest"),
        metric(
            "cpu_us_per_gp",
            3,
            "processor time of all threads for a wait, without that of the readers",
        ),
        metric(
            "calls_per_gp",
            2,
            "waits that a grace period served; absent if none ended meanwhile",
        ),
        metric("calls_per_s", 0, "waits of all threads in a second"),
        metric("total_s", 5, "sum of all waits of bridge"),
    ];

    fn benchmarks() -> Vec<Benchmark<Self>> {
        let mut benchmarks = Vec::new();
        let mut list = Waiters(&mut benchmarks);
        let ours = |variant| Peer::new("stillpoint").variant(variant);
        list.waits::<ours::Rcu>(ours("rcu"));
        list.waits::<ours::Expedited>(ours("expedited"));
        list.waits::<ours::Qsbr>(ours("qsbr"));
        list.waits::<ours::ServiceLed>(ours("service-led"));
        list.waits::<Fences>(ours("fences"));
        list.calls::<ours::Rcu>(ours("rcu"));
        list.calls::<ours::Qsbr>(ours("qsbr"));
        list.polls::<ours::Rcu>(ours("rcu"));
        list.polls::<ours::Qsbr>(ours("qsbr"));
        peers::register(&mut list);
        if ours::has_limit() {
            let limit = Peer::new("limit").prepared_by(ours::prepare_limit);
            list.waits::<ours::Limit>(limit);
            list.0.extend(bare_waits::<ours::Limit>(limit));
        }
        benchmarks
    }

    fn check(&self) -> Result<(), clap::Error> {
        if !ours::has_limit() {
            eprintln!(
                "stillpoint: limit left out: the kernel has no membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)"
            );
        }
        Ok(())
    }
}

/// Subjects that can wait, defer and poll.
struct Waiters<'c>(&'c mut Vec<Benchmark<Work>>);

impl Registry for Waiters<'_> {
    fn waits<S: Updater>(&mut self, peer: Peer) {
        let with = |scenario, pool| {
            Benchmark::new(peer, move |_work: &Work| workload::waits::<S>(pool))
                .in_scenario(scenario)
        };
        self.0.extend([
            with("idle", ReaderPool::NONE),
            with("idle16", ReaderPool::asleep(16)),
            with("idle255", ReaderPool::asleep(254)),
            with("idle1000", ReaderPool::asleep(1000)),
            with("busy1", ReaderPool::busy(1)),
            with("busy-oversub", ReaderPool::busy(2).on_two_cpus()),
            Benchmark::new(peer, |work: &Work| {
                workload::herd::<S>(work.threads as usize)
            })
            .in_scenario("herd64"),
            Benchmark::new(peer, |_work: &Work| workload::bridge::<S>()).in_scenario("bridge"),
        ]);
    }

    fn calls<S: Callbacks>(&mut self, peer: Peer) {
        self.0.extend([
            Benchmark::new(peer, |_work: &Work| workload::callback::<S>()).in_scenario("callback"),
            Benchmark::new(peer, |_work: &Work| workload::barrier::<S>()).in_scenario("barrier"),
        ]);
    }

    fn polls<S: Polled>(&mut self, peer: Peer) {
        self.0
            .push(Benchmark::new(peer, |_work: &Work| workload::poll::<S>()).in_scenario("poll"));
    }
}

/// A bare wait where others defer or poll, for the limit.
fn bare_waits<S: Updater>(limit: Peer) -> impl Iterator<Item = Benchmark<Work>> {
    ["callback", "barrier", "poll"]
        .into_iter()
        .map(move |scenario| {
            Benchmark::new(limit, |_work: &Work| {
                workload::waits::<S>(workload::IDLE_READERS)
            })
            .in_scenario(scenario)
        })
}
