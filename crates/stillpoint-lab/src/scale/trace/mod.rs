//! `stillpoint scale trace`: readers that sleep, on threads and in tasks; what a grace period takes
//! among them, and what they cost.
//!
//! | scenario | who reads | what is taken |
//! |---|---|---|
//! | idle | none | grace periods, and a thread guard's pair: [`idle`] |
//! | sleepers | threads (`--threads`), in sections that sleep for 1 ms | grace periods, and how soon they end: [`sleepers`] |
//! | async10000 | tasks (`--tasks`), in sections that hold across a timer | sections and updates a second, grace periods in the tasks' domain and in another one: `tasks`; memory of a guard: `tasks::footprint` |
//!
//! `native` is the global domain of `stillpoint::tasks_trace`, `read-mb` one made by
//! `TraceDomain::with_fences`. Peers are those whose readers may be tasks that sleep: a guard of
//! crossbeam-epoch's or a section of liburcu's may not.
//!
//! - `gp_mean_ms`, `gp_p99_ms`: the times of single waits, one after the other over the span
//!   (`--span-ms`);
//! - `read_ns`: a thread guard's pair, as `scale read` takes `ns_per_pair`; its `trace-owned` is
//!   the other guard;
//! - `exit_to_gp_us`: the mean time from the exit of a grace period's last holdout to the return of
//!   the wait;
//! - `other_domain_gp_us`: the median wait in a domain without readers, while the tasks read in
//!   another one. Not the mean: on a machine whose processors the tasks fill, that of anything at
//!   all is a matter of turns on them, as the limit's would show;
//! - `reads_per_s`, `updates_per_s`: sections that the tasks have ended, and values replaced;
//! - `bytes_per_guard`: memory for one more live owned guard, itself included.
//!
//! The limit is a bare membarrier where there are no readers to wait for, a bare wake-up where
//! there are sleepers, and tasks that read a static.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::Benchmarks;
use super::subjects::{BareLoop, Trace};
use super::timing::{Times, ns_per_pair, repeat, time};
use crate::choice::{Explained, Family, explained, families};
use crate::output::{Metric, metrics};
use crate::run::Sample;
use crate::subject::{Peer, ReadSide};
use ours::Mode;

mod ours;
mod sleepers;
#[cfg(feature = "peers")]
mod tasks;

const IDLE: &str = "idle";
const SLEEPERS: &str = "sleepers";
const ASYNC: &str = "async10000";

const FAMILIES: &[Family] = families! {
    IDLE => "No reader.";
    SLEEPERS => "Threads (--threads) in sections that sleep for 1 ms.";
    ASYNC => "Tasks (--tasks) in sections that they hold across timers.";
};

/// What the work depends on.
#[derive(Args, Serialize, Deserialize)]
pub struct Work {
    /// Threads that sleep in sections, in sleepers
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: u32,

    /// Tasks that hold sections across timers, in async10000
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tasks: u32,

    /// Milliseconds that a task's section lasts at most; each lasts some whole number of them, from
    /// 1
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    hold_ms: u64,

    /// Microseconds that the updater in async10000 sleeps after each update; 0: it never does
    #[arg(long, value_name = "US", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=60_000_000))]
    update_us: u64,

    /// Milliseconds over which figures are taken: in async10000 twice, for the rates and then for
    /// the grace periods
    #[arg(long, value_name = "MS", default_value_t = 750, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    span_ms: u64,
}

impl super::Work for Work {
    const NAME: &'static str = "trace";

    const SHOWS: &'static str = "How long a wait takes beside readers that sleep (less is better), and how many sections \
        and updates there are in a second (more is better).";

    /// Stillpoint's own variants.
    const VARIANTS: &'static [Explained] = explained! {
        "native" => "the global domain of tasks_trace, whose readers do not fence";
        "read-mb" => "a domain whose readers fence, so that grace periods interrupt no processor";
    };

    const SCENARIOS: &'static [Family] = if cfg!(feature = "peers") {
        FAMILIES
    } else {
        // Tasks need tokio.
        FAMILIES.split_at(2).0
    };

    const METRICS: &'static [Metric] = metrics! {
        "gp_mean_ms" 5 "how long a wait for a grace period takes, on average";
        "gp_p99_ms" 5 "99 of 100 waits took no longer";
        "read_ns" 2 "to enter and leave a section on a thread";
        "exit_to_gp_us" 1 "mean time from the exit of the last reader until the wait returns";
        "other_domain_gp_us" 2 "median wait in a domain without readers meanwhile";
        "reads_per_s" 0 "sections that the tasks ended in a second";
        "updates_per_s" 0 "values replaced in a second";
        "bytes_per_guard" 1 "memory for one more live owned guard";
    };

    fn add_to(all: &mut Benchmarks<Self>) {
        let (native, read_mb) = (Mode::Native, Mode::ReadMb);
        all.add(Peer::ours("native"), IDLE, move |work| {
            idle::<Trace>(Some(|| native.synchronize()), work)
        });
        all.add(Peer::ours("read-mb"), IDLE, move |work| {
            idle::<ours::Fenced>(Some(|| read_mb.synchronize()), work)
        });
        let limit = Peer::LIMIT.prepared_by(ours::prepare_limit);
        all.add(limit, IDLE, |work| {
            idle::<BareLoop>(ours::limit_of_waits(), work)
        });
        for (variant, mode) in [("native", native), ("read-mb", read_mb)] {
            let measure = move |work: &Work| sleepers::with_readers(mode.domain(), work);
            all.add(Peer::ours(variant), SLEEPERS, measure);
        }
        all.add(Peer::LIMIT, SLEEPERS, sleepers::bare_wakeups);
        #[cfg(feature = "peers")]
        tasks::add_to(all, limit);
    }
}

/// Returns the figures of waits for grace periods.
fn of_waits(times: &Times) -> [(&'static str, f64); 2] {
    let p99 = times.value_at_quantile(0.99) as f64;
    [("gp_mean_ms", times.mean() / 1e6), ("gp_p99_ms", p99 / 1e6)]
}

/// idle: times `wait`, where the subject has one, on a thread that has read before, beside no reader; then the pairs of
/// `R`.
fn idle<R: ReadSide>(wait: Option<impl Fn()>, work: &Work) -> Result<Sample> {
    let mut sample = Sample::default();
    if let Some(wait) = wait {
        R::register_thread().pairs(1);
        wait();
        let until = Instant::now() + Duration::from_millis(work.span_ms);
        sample.add(of_waits(&repeat(until, || time(&wait))));
    }
    sample.add([("read_ns", ns_per_pair::<R>(1)?)]);
    Ok(sample)
}
