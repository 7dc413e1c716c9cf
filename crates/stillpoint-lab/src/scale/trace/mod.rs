//! `stillpoint scale trace`: readers that sleep, on threads and in tasks; what a grace period takes among them, and what they cost.
//!
//! | scenario | who reads | what is taken |
//! |---|---|---|
//! | idle | nobody | grace periods, and a thread guard's pair: [`idle`] |
//! | sleepers | threads (`--threads`), in sections that sleep for 1 ms | grace periods, and how soon they end: [`sleepers`] |
//! | async10000 | tasks (`--tasks`), in sections that hold across a timer | sections and updates a second, grace periods in the tasks' domain and in another one: [`tasks`]; memory of a guard: [`footprint`] |
//!
//! `native` is the global domain of `stillpoint::tasks_trace`, `read-mb` one made by `TraceDomain::with_fences`. Peers are those
//! whose readers may be tasks that sleep: a guard of crossbeam-epoch's or a section of liburcu's may not.
//!
//! - `gp_mean_ms`, `gp_p99_ms`: the times of single waits, one after the other over the span (`--span-ms`);
//! - `read_ns`: a thread guard's pair, as `scale read` takes `ns_per_pair`; its `trace-owned` is the other guard;
//! - `exit_to_gp_us`: the mean time from the exit of a grace period's last holdout to the return of the wait;
//! - `other_domain_gp_us`: the median wait in a domain where nobody reads, while the tasks read in theirs. Not the mean: on a machine
//!   whose processors the tasks fill, that of anything at all is a matter of turns on them, as the limit's would show;
//! - `reads_per_s`, `updates_per_s`: sections that the tasks have ended, and values replaced;
//! - `bytes_per_guard`: memory for one more live owned guard, itself included.
//!
//! The limit is a bare membarrier where others wait for nobody, a bare wake-up where they wait for sleepers, and tasks that read a static.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::read;
use super::sync::figures::Times;
use super::{Chosen, Contender, Experiment};
use crate::choice::{Choice, Menu};
use crate::output::Metric;
use crate::peers::{arc_swap::ArcSwap, tokio::RwLock};
use crate::run;
use ours::Mode;

mod footprint;
mod idle;
mod ours;
mod sleepers;
mod tasks;

pub use tasks::{Cell, Value};

/// The experiment's name.
pub const NAME: &str = "trace";

/// Stillpoint's own variants.
pub const VARIANTS: Menu = Menu::of_variants(&["native", "read-mb"]);

/// The peers.
pub const PEERS: Menu = Menu::of_peers(&["tokio", "arc-swap"]);

/// The scenarios, in the table's order.
pub const SCENARIOS: Menu = Menu::of_scenarios(&[IDLE, SLEEPERS, ASYNC]);

const IDLE: &str = "idle";
const SLEEPERS: &str = "sleepers";
const ASYNC: &str = "async10000";

const METRICS: &[Metric] = &[
    Metric { name: "gp_mean_ms", decimals: 5 },
    Metric { name: "gp_p99_ms", decimals: 5 },
    Metric { name: "read_ns", decimals: 2 },
    Metric { name: "exit_to_gp_us", decimals: 1 },
    Metric { name: "other_domain_gp_us", decimals: 2 },
    Metric { name: "reads_per_s", decimals: 0 },
    Metric { name: "updates_per_s", decimals: 0 },
    Metric { name: "bytes_per_guard", decimals: 1 },
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
    /// Threads that sleep in sections, in sleepers
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: u32,

    /// Tasks that hold sections across timers, in async10000
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tasks: u32,

    /// Milliseconds that a task's section lasts at most; each lasts some whole number of them, from 1
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    hold_ms: u64,

    /// Microseconds that the updater in async10000 sleeps after each update; 0: it never does
    #[arg(long, value_name = "US", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=60_000_000))]
    update_us: u64,

    /// Milliseconds over which figures are taken: in async10000 twice, for the rates and then for the grace periods
    #[arg(long, value_name = "MS", default_value_t = 750, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    span_ms: u64,
}

/// Who takes part.
pub fn experiment() -> Experiment<Work> {
    let (native, read_mb) = (Mode::Native, Mode::ReadMb);
    let limit = |contender: Contender<Work>| contender.prepared_by(ours::prepare_limit);
    let contenders = vec![
        Contender::new("stillpoint", "native", move |work| idle::measure::<read::Trace>(Some(|| native.synchronize()), work))
            .in_scenario(IDLE),
        Contender::new("stillpoint", "read-mb", move |work| idle::measure::<ours::Fenced>(Some(|| read_mb.synchronize()), work))
            .in_scenario(IDLE),
        limit(Contender::new("limit", "default", |work| idle::measure::<read::Limit>(ours::limit_of_waits(), work)))
            .in_scenario(IDLE),
        Contender::new("stillpoint", "native", move |work| sleepers::beside(native.domain(), work)).in_scenario(SLEEPERS),
        Contender::new("stillpoint", "read-mb", move |work| sleepers::beside(read_mb.domain(), work)).in_scenario(SLEEPERS),
        Contender::new("limit", "default", sleepers::bare_wakeups).in_scenario(SLEEPERS),
        Contender::new("stillpoint", "native", move |work| ours::measure_tasks(native, work)).in_scenario(ASYNC),
        Contender::new("stillpoint", "read-mb", move |work| ours::measure_tasks(read_mb, work)).in_scenario(ASYNC),
        Contender::new("tokio", "rwlock", |work| tasks::measure(RwLock::new(Value::first()), work)).in_scenario(ASYNC),
        Contender::new("arc-swap", "default", |work| tasks::measure(ArcSwap::from_pointee(Value::first()), work))
            .in_scenario(ASYNC),
        limit(Contender::new("limit", "default", |work| tasks::measure(ours::Static, work))).in_scenario(ASYNC),
    ];
    Experiment { name: NAME, metrics: METRICS, contenders }
}

/// Runs the experiment and prints its table.
pub fn run(options: &Options) -> Result<ExitCode> {
    let chosen = Chosen { variants: &options.variants, peers: &options.peers, scenarios: Some(&options.scenarios) };
    let found = experiment().compare(&options.work, &chosen, &options.common)?;
    println!("{}; medians of {} rounds\n", found.report.machine, options.common.rounds);
    found.conclude()
}

/// Sets the flag when it is dropped, also where something failed.
struct SetAtEnd<'f>(&'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The figures of waits for grace periods.
fn of_waits(times: &Times) -> [(String, f64); 2] {
    let ms = |nanoseconds: f64| nanoseconds / 1e6;
    [("gp_mean_ms".to_owned(), ms(times.mean())), ("gp_p99_ms".to_owned(), ms(times.value_at_quantile(0.99) as f64))]
}
