//! `stillpoint sim improve`: a further improvement of the grace-period machinery, beside the
//! patches that are there.
//!
//! **The proposal.** The first scan only takes snapshots, and credits CPUs that happen to be idle;
//! a wait passes before it, and another before it can tell that a busy one has been idle since.
//! Nothing is gained by waiting before a snapshot. So take it at the end of `rcu_gp_init`: idle
//! CPUs are credited at once, and every later scan can compare. The grace-period thread's own CPU,
//! which it finds busy, has just been reported by the patch of seed 001, so the two belong
//! together; any other CPU that is busy for a moment is found changed by the next scan. On a
//! machine that is idle but for the caller, a grace period then takes microseconds.
//!
//! **Its price.** Grace periods that short would follow each other without pause, and the waits are
//! there to gather callers. So the spacing moves from within a grace period to before it
//! (`gp_spacing`): one begins no sooner after the beginning of the last than the shortest one takes
//! today. A caller that arrives meanwhile is served by it from its beginning, and no longer waits
//! for the rest of one that began too early for it. On a busy machine, whose CPUs would all have
//! reported before the first scan, the snapshot is a look at each CPU for nothing, and the spacing
//! is longer than grace periods there are today: direct waits take twice as long.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use kernel_sim::{Constants, Setup, Size};
use serde::Serialize;

use super::bridge;
use super::measured::{Loop, Measured};
use super::options::{Common, Variant, parse_count};
use super::report::{OURS, SimReport, SimRow};
use super::sync;
use crate::machine::Machine;
use crate::output::say;

/// The variants.
pub const VARIANTS: &[Variant] = &[
    Variant {
        name: "fix",
        apply: |constants, _| constants.early_qs = true,
    },
    Variant {
        name: "scan-at-init",
        apply: scan_at_init,
    },
    Variant {
        name: "fix+wake",
        apply: |constants, _| {
            constants.early_qs = true;
            constants.rcu_normal_wake_from_gp = true;
        },
    },
    Variant {
        name: "scan-at-init+wake",
        apply: |constants, size| {
            scan_at_init(constants, size);
            constants.rcu_normal_wake_from_gp = true;
        },
    },
];

/// The wheel adds a jiffy to the wait of today.
fn scan_at_init(constants: &mut Constants, _: Size) {
    constants.early_qs = true;
    constants.scan_at_init = true;
    constants.gp_spacing = constants.jiffies_till_first_fqs + 1;
}

/// What a machine is put to.
struct Scenario {
    name: &'static str,
    size: Size,
    base: fn(Size) -> Constants,
    work: fn(Setup, usize) -> Measured,
}

const LARGE: Size = Size { cpus: 64, hz: 1000 };

const ONE: Loop = Loop {
    callers: 1,
    calls: 0,
    pause_ms: 0.0,
};

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "loop",
        size: LARGE,
        base: sync::base,
        work: |setup, calls| Loop { calls, ..ONE }.run(setup),
    },
    Scenario {
        name: "apart",
        size: LARGE,
        base: sync::base,
        work: |setup, calls| {
            Loop {
                calls,
                pause_ms: 50.0,
                ..ONE
            }
            .run(setup)
        },
    },
    Scenario {
        name: "herd",
        size: LARGE,
        base: sync::base,
        work: |setup, calls| {
            Loop {
                callers: 64,
                calls,
                ..ONE
            }
            .run(setup)
        },
    },
    Scenario {
        name: "half-busy",
        size: LARGE,
        base: |size| Constants {
            busy_cpus: size.cpus as u64 / 2,
            ..sync::base(size)
        },
        work: |setup, calls| Loop { calls, ..ONE }.run(setup),
    },
    Scenario {
        name: "busy",
        size: LARGE,
        base: |size| Constants {
            busy_cpus: size.cpus as u64,
            ..sync::base(size)
        },
        work: |setup, calls| Loop { calls, ..ONE }.run(setup),
    },
    Scenario {
        name: "bridge",
        size: Size { cpus: 64, hz: 250 },
        base: bridge::base,
        work: bridge::bridges,
    },
];

/// What the table shows.
const SHOWS: &str = "What a wait for a grace period takes in the model, with the patches that are \
there (fix, fix+wake) and with the proposal on top of them (scan-at-init); less is better. \
looks_per_s is the price: CPUs that are looked at in a second.";

/// What the long help says first.
pub const HELP: &str = "The proposal: take the first snapshot of the CPUs at the end of a grace \
period's beginning, so that idle CPUs are credited at once, and wait between grace periods in place \
of within them. The scenarios: one caller in a loop (loop), one that pauses for 50 ms (apart), 64 \
callers (herd), a loop while half of the CPUs (half-busy) or all of them (busy) have work, and the \
bridge of `sim bridge`.";

/// The command line.
#[derive(Args, Serialize)]
pub struct Options {
    /// Calls of each caller; of the bridge, iterations
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = parse_count)]
    calls: usize,

    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
}

/// Runs it.
pub fn run(options: &Options) -> Result<ExitCode> {
    let common = &options.common;
    let mut cases = Vec::new();
    for scenario in SCENARIOS {
        for variant in VARIANTS {
            cases.push((
                scenario,
                variant,
                common.constants((scenario.base)(scenario.size), variant, scenario.size)?,
            ));
        }
    }
    let mut files = common.create_files()?;
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for (scenario, variant, constants) in cases {
        let measured = (scenario.work)(common.setup(scenario.size, &constants, 0), options.calls);
        files.write_trace(
            &format!("improve {} {}", scenario.name, variant.name),
            &measured.log,
        )?;
        let mut metrics = measured.metrics();
        let seconds = measured.span as f64 / 1e9;
        let looks: f64 = measured
            .grace_periods
            .iter()
            .map(|gp| f64::from(gp.looked_at))
            .sum();
        metrics.insert(
            "gps_per_s".to_owned(),
            measured.grace_periods.len() as f64 / seconds,
        );
        metrics.insert("looks_per_s".to_owned(), looks / seconds);
        rows.push(SimRow::new(
            OURS,
            variant.name,
            Some(scenario.name.to_owned()),
            metrics,
        ));
        if scenario.name == "bridge" {
            lines.push(super::experiment::distribution(
                variant.name,
                &measured.sorted_ms(),
            ));
        }
    }
    let report = SimReport {
        experiment: "improve",
        params: serde_json::to_value(options)?,
        machine: Machine::here(),
        rows,
    };
    say!("{}\n\n{SHOWS}", report.table("mean_ms"));
    if let Some(file) = files.plot.take() {
        super::experiment::plot_distributions(
            file,
            "improve: the bridge, 64 CPUs, 250 Hz",
            &lines,
        )?;
    }
    report.conclude(files)
}
