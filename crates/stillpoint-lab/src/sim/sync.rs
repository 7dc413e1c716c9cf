//! `stillpoint sim sync`: one caller calls `synchronize_rcu` again and again on a machine that is
//! otherwise idle.
//!
//! Where 10 ms come from, at 1,000 Hz: the callback is noticed at the next tick (1); a timer of 3
//! jiffies fires at the fourth tick (4), the scan finds every CPU idle but the thread's own, which
//! runs it; another such wait (4); the callback is invoked at the next tick (1). With the thread's
//! own report, the second wait goes.

use clap::Args;
use kernel_sim::{Constants, Setup, Size};
use serde::Serialize;

use super::experiment::{Simulation, Variant, parse_count, variant};
use super::measured::{Loop, Measured};
use super::report::table_of_runs;
use super::seed;
use crate::output::Row;
use crate::run::Metrics;

/// Its options.
#[derive(Args, Serialize)]
pub struct Sync {
    /// Calls of each caller in a run
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = parse_count)]
    calls: usize,

    /// Callers at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_count)]
    callers: usize,
}

impl Simulation for Sync {
    const NAME: &'static str = "sync";

    const DEFAULTS: [&'static str; 3] = ["32", "1000", "10"];

    const VARIANTS: &'static [Variant] = &[
        variant("baseline", "the kernel before the patch", |_, _| {}),
        variant(
            "fix",
            "the grace-period thread reports its own CPU",
            |constants, _| constants.early_qs = true,
        ),
    ];

    const HEADLINE: &'static str = "mean_ms";

    /// Calibrated: how often something else asks for a
    /// grace period (it makes the longest waits), and how often the scheduler takes the grace-period
    /// thread to the caller's CPU (there it finds its own CPU ticking, and so quiescent at the first
    /// scan: the fast runs among the seed's).
    fn base(size: Size) -> Constants {
        Constants {
            background_tasks_per_s: 2.0,
            gp_thread_pulled: 0.0002,
            ..Constants::of_kernel(size.cpus, size.hz)
        }
    }

    fn simulate(&self, setup: Setup) -> Measured {
        let work = Loop {
            callers: self.callers,
            calls: self.calls,
            pause_ms: 0.0,
        };
        work.run(setup)
    }

    fn seed(variant: &str) -> Option<(Metrics, Vec<Metrics>)> {
        seed::sync(variant)
    }

    fn head(rows: &[Row]) -> String {
        table_of_runs(rows) + "\n\n"
    }
}
