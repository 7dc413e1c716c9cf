//! `stillpoint scale sync`: how long it takes to wait for a grace period, beside readers that sleep or work, and what processor
//! time the wait costs.
//!
//! [`workload`] says what happens in each scenario and what is timed, [`crowd`] who reads meanwhile, [`figures`] what is
//! reported of it.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Chosen, Contender, Experiment, Reader};
use crate::choice::{Choice, Menu};
use crate::output::Metric;
use crate::peers::kernel::{self, Kernel};
#[cfg(have_liburcu)]
use crate::peers::{liburcu_memb::LiburcuMemb, liburcu_qsbr::LiburcuQsbr};
use crate::peers::{ps_reclaim::PsReclaim, sdd::Sdd};
use crate::run;
use crowd::Crowd;

mod appointment;
mod crowd;
pub mod figures;
mod ours;
mod workload;

pub use crowd::start_thread;
pub use ours::{Qsbr, bare_membarrier, has_limit, prepare_limit};
pub use workload::look_until;

/// The experiment's name.
pub const NAME: &str = "sync";

/// Stillpoint's own variants.
pub const VARIANTS: Menu = Menu::of_variants(&["rcu", "expedited", "qsbr", "service-led"]);

/// The peers.
pub const PEERS: Menu = Menu::of_peers(&["liburcu-memb", "liburcu-qsbr", "sdd", "ps-reclaim", kernel::NAME]);

/// The scenarios, in the table's order.
pub const SCENARIOS: Menu = Menu::of_scenarios(&[
    "idle",
    "idle16",
    "idle1000",
    "busy1",
    "busy-oversub",
    "herd64",
    "bridge",
    "callback",
    "barrier",
    "poll",
]);

const METRICS: &[Metric] = &[
    Metric { name: "mean_us", decimals: 3 },
    Metric { name: "min_us", decimals: 3 },
    Metric { name: "p50_us", decimals: 3 },
    Metric { name: "p99_us", decimals: 3 },
    Metric { name: "max_us", decimals: 1 },
    Metric { name: "cpu_us_per_gp", decimals: 3 },
    Metric { name: "calls_per_gp", decimals: 2 },
    Metric { name: "calls_per_s", decimals: 0 },
    Metric { name: "total_s", decimals: 5 },
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
    /// Threads that wait at the same time in herd64
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: u32,
}

/// A subject whose grace periods can be waited for.
pub trait Updater: Reader {
    /// Grace periods that have ended so far; `None` where the subject does not count them.
    const GRACE_PERIODS: Option<fn() -> u64> = None;

    /// Waits for a grace period.
    fn synchronize(&mut self);
}

/// A subject that invokes callbacks after a grace period.
pub trait Callbacks: Updater {
    /// Has `callback` invoked, some time, on some thread.
    fn call(&mut self, callback: impl FnOnce() + Send + 'static);

    /// Waits until all callbacks queued before have been invoked. To be called [away](Reader::away).
    fn barrier();
}

/// A subject whose grace periods can be started and asked about.
pub trait Polled: Updater {
    /// Names a grace period.
    type Cookie: Copy;

    /// Starts one.
    fn start_poll(&mut self) -> Self::Cookie;

    /// Whether it has ended. To be called [away](Reader::away).
    fn poll(cookie: Self::Cookie) -> bool;
}

/// Who takes part.
pub fn experiment() -> Experiment<Work> {
    let mut contenders = Vec::new();
    contenders.extend(waits::<ours::Rcu>("stillpoint", "rcu"));
    contenders.extend(waits::<ours::Expedited>("stillpoint", "expedited"));
    contenders.extend(waits::<ours::Qsbr>("stillpoint", "qsbr"));
    contenders.extend(waits::<ours::ServiceLed>("stillpoint", "service-led"));
    contenders.extend(callbacks::<ours::Rcu>("stillpoint", "rcu"));
    contenders.extend(callbacks::<ours::Qsbr>("stillpoint", "qsbr"));
    contenders.push(poll::<ours::Rcu>("stillpoint", "rcu"));
    contenders.push(poll::<ours::Qsbr>("stillpoint", "qsbr"));
    #[cfg(have_liburcu)]
    {
        contenders.extend(waits::<LiburcuMemb>("liburcu-memb", "default"));
        contenders.extend(waits::<LiburcuQsbr>("liburcu-qsbr", "default"));
        contenders.extend(callbacks::<LiburcuMemb>("liburcu-memb", "default"));
        contenders.extend(callbacks::<LiburcuQsbr>("liburcu-qsbr", "default"));
    }
    #[cfg(have_liburcu_poll)]
    {
        contenders.push(poll::<LiburcuMemb>("liburcu-memb", "default"));
        contenders.push(poll::<LiburcuQsbr>("liburcu-qsbr", "default"));
    }
    contenders.extend(waits::<Sdd>("sdd", "default"));
    contenders.push(poll::<Sdd>("sdd", "default"));
    contenders.extend(waits::<PsReclaim>("ps-reclaim", "default"));
    contenders.extend(waits::<Kernel>(kernel::NAME, "default"));
    if ours::has_limit() {
        let limit = waits::<ours::Limit>("limit", "default").chain(bare_waits::<ours::Limit>("limit", "default"));
        contenders.extend(limit.map(|contender| contender.prepared_by(ours::prepare_limit)));
    }
    contenders.sort_by_key(|contender| SCENARIOS.names().iter().position(|&name| contender.scenario == Some(name)));
    Experiment { name: NAME, metrics: METRICS, contenders }
}

/// Runs the experiment and prints its table.
pub fn run(options: &Options) -> Result<ExitCode> {
    if !ours::has_limit() {
        eprintln!("stillpoint: limit left out: the kernel has no membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)");
    }
    let chosen = Chosen { variants: &options.variants, peers: &options.peers, scenarios: Some(&options.scenarios) };
    let found = experiment().compare(&options.work, &chosen, &options.common)?;
    println!("{}; medians of {} rounds\n", found.report.machine, options.common.rounds);
    found.conclude()
}

/// The scenarios of those who can wait.
fn waits<S: Updater>(subject: &'static str, variant: &'static str) -> impl Iterator<Item = Contender<Work>> {
    let beside = move |scenario, crowd| {
        Contender::new(subject, variant, move |_work: &Work| workload::waits::<S>(crowd)).in_scenario(scenario)
    };
    [
        beside("idle", Crowd::NONE),
        beside("idle16", Crowd::asleep(16)),
        beside("idle1000", Crowd::asleep(1000)),
        beside("busy1", Crowd::busy(1)),
        beside("busy-oversub", Crowd::busy(2).on_two_cpus()),
        Contender::new(subject, variant, |work: &Work| workload::herd::<S>(work.threads as usize)).in_scenario("herd64"),
        Contender::new(subject, variant, |_work: &Work| workload::bridge::<S>()).in_scenario("bridge"),
    ]
    .into_iter()
}

/// A bare wait where others defer or poll, for the limit.
fn bare_waits<S: Updater>(subject: &'static str, variant: &'static str) -> impl Iterator<Item = Contender<Work>> {
    ["callback", "barrier", "poll"].into_iter().map(move |scenario| {
        Contender::new(subject, variant, |_work: &Work| workload::waits::<S>(workload::IDLE_READERS)).in_scenario(scenario)
    })
}

/// The scenarios of those who invoke callbacks.
fn callbacks<S: Callbacks>(subject: &'static str, variant: &'static str) -> impl Iterator<Item = Contender<Work>> {
    [
        Contender::new(subject, variant, |_work: &Work| workload::callback::<S>()).in_scenario("callback"),
        Contender::new(subject, variant, |_work: &Work| workload::barrier::<S>()).in_scenario("barrier"),
    ]
    .into_iter()
}

/// The scenario of those whose grace periods can be polled.
fn poll<S: Polled>(subject: &'static str, variant: &'static str) -> Contender<Work> {
    Contender::new(subject, variant, |_work: &Work| workload::poll::<S>()).in_scenario("poll")
}
