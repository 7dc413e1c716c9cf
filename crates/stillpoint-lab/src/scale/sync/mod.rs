//! `stillpoint scale sync`: how long it takes to wait for a grace period, beside readers that sleep
//! or work, and what processor time the wait costs.
//!
//! [`workload`] says what happens in each scenario and what is timed, [`readers`] who reads
//! meanwhile, [`figures`] what is reported of it.

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::Benchmarks;
use super::subjects::{Fences, Qsbr, has_limit, prepare_limit};
use crate::choice::{Explained, Family, explained, families};
use crate::output::{Metric, metrics};
use crate::peers;
use crate::subject::{Callbacks, Peer, Polled, Registry, Updater};
use readers::ReaderPool;
use workload::{herd, waits};

mod figures;
mod ours;
mod readers;
mod workload;

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
    const VARIANTS: &'static [Explained] = explained! {
        "rcu" => "synchronize() of the global domain";
        "expedited" => "synchronize_expedited()";
        "qsbr" => "a private domain whose readers report quiescent states";
        "service-led" => "a callback that the service thread calls, as waits in the kernel were before direct wake-ups";
        "fences" => "a private domain whose readers fence";
    };

    const SCENARIOS: &'static [Family] = families! {
        "idle", "idle1000" => "One thread waits, beside no reader, or beside 1,000 registered threads that sleep.";
        "busy1", "busy-oversub" => "One thread waits beside one reader that is always in sections, or two on the same two CPUs.";
        "herd64" => "As many threads as --threads says (64) wait at once.";
        "bridge" => "One thread waits 100 times 4 times in a row, beside 64 registered threads that sleep.";
        "callback" => "From call() to the first instruction of the callback, beside 16 threads that sleep.";
        "barrier" => "A callback and the barrier behind it, beside 16 threads that sleep.";
        "poll" => "From start_poll() to the first poll() that is true, beside 16 threads that sleep.";
    };

    const METRICS: &'static [Metric] = metrics! {
        "mean_us" 3 "how long what is timed took, on average";
        "min_us" 3 "the shortest";
        "p50_us" 3 "half of them took no longer";
        "p99_us" 3 "99 of 100 took no longer";
        "max_us" 1 "the longest";
        "cpu_us_per_gp" 3 "processor time of all threads for a wait, without that of the readers";
        "calls_per_gp" 2 "waits that a grace period served; absent if none ended meanwhile";
        "calls_per_s" 0 "waits of all threads in a second";
        "total_s" 5 "sum of all waits of bridge";
    };

    fn add_to(all: &mut Benchmarks<Self>) {
        all.waits::<ours::Rcu>(Peer::ours("rcu"));
        all.waits::<ours::Expedited>(Peer::ours("expedited"));
        all.waits::<Qsbr>(Peer::ours("qsbr"));
        all.waits::<ours::ServiceLed>(Peer::ours("service-led"));
        all.waits::<Fences>(Peer::ours("fences"));
        all.calls::<ours::Rcu>(Peer::ours("rcu"));
        all.calls::<Qsbr>(Peer::ours("qsbr"));
        all.polls::<ours::Rcu>(Peer::ours("rcu"));
        all.polls::<Qsbr>(Peer::ours("qsbr"));
        peers::register(all);
        if has_limit() {
            let limit = Peer::LIMIT.prepared_by(prepare_limit);
            all.waits::<ours::Limit>(limit);
            // A bare wait where others defer or poll.
            for scenario in ["callback", "barrier", "poll"] {
                all.add(limit, scenario, |_| {
                    waits::<ours::Limit>(workload::IDLE_READERS)
                });
            }
        }
    }

    fn check(&self) -> Result<(), clap::Error> {
        if !has_limit() {
            eprintln!(
                "stillpoint: limit left out: the kernel has no membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)"
            );
        }
        Ok(())
    }
}

impl Registry for Benchmarks<Work> {
    fn waits<S: Updater>(&mut self, peer: Peer) {
        for (scenario, pool) in [
            ("idle", ReaderPool::NONE),
            ("idle1000", ReaderPool::asleep(1000)),
            ("busy1", ReaderPool::busy(1)),
            ("busy-oversub", ReaderPool::busy(2).on_two_cpus()),
        ] {
            self.add(peer, scenario, move |_| waits::<S>(pool));
        }
        self.add(peer, "herd64", |work| herd::<S>(work.threads as usize));
        self.add(peer, "bridge", |_| workload::bridge::<S>());
    }

    fn calls<S: Callbacks>(&mut self, peer: Peer) {
        self.add(peer, "callback", |_| workload::callback::<S>());
        self.add(peer, "barrier", |_| workload::barrier::<S>());
    }

    fn polls<S: Polled>(&mut self, peer: Peer) {
        self.add(peer, "poll", |_| workload::poll::<S>());
    }
}
