//! `stillpoint sim bridge`: a program sets up and tears down a network bridge, which waits for
//! readers four times each time, on 64 CPUs at 250 Hz that offload their callbacks. (The seed
//! states neither; both follow from its figures.)
//!
//! A grace period takes 8 ms with one scan, 16 with two. An offloaded callback waits for 2 to 4 of
//! them ([`kernel_sim`]), a direct wait for 1 to 2. So each maximum is so many grace periods, which
//! the run prints for the longest wait.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use kernel_sim::{Constants, Kernel, Setup, Size, Stream};
use serde::Serialize;

use super::experiment::{self, Experiment, Outcome};
use super::measured::{Measured, Wait};
use super::options::{Common, Variant, parse_count, parse_cpus, parse_hz};
use super::report::OURS;
use super::seed;
use crate::choice::{Choice, PossibleValues};
use crate::output::say;

/// The variants.
pub const VARIANTS: &[Variant] = &[
    Variant {
        name: "default",
        apply: |_, _| {},
    },
    Variant {
        name: "fix",
        apply: |constants, _| constants.early_qs = true,
    },
    Variant {
        name: "fix+wake",
        apply: |constants, _| {
            constants.early_qs = true;
            constants.rcu_normal_wake_from_gp = true;
        },
    },
    Variant {
        name: "wake",
        apply: |constants, _| constants.rcu_normal_wake_from_gp = true,
    },
];

pub const MENU: PossibleValues = PossibleValues::of_simulated(&[
    ("default", "the kernel before the patch"),
    ("fix", "the grace-period thread reports its own CPU"),
    (
        "fix+wake",
        "and it wakes waiters directly (rcu_normal_wake_from_gp)",
    ),
    ("wake", "direct wake-ups alone"),
]);

/// The command line.
#[derive(Args, Serialize)]
pub struct Options {
    /// CPUs
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = parse_cpus)]
    cpus: usize,

    /// Ticks a second
    #[arg(long, value_name = "N", default_value_t = 250, value_parser = parse_hz)]
    hz: u64,

    /// Runs, each on a machine that has just booted
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_count)]
    runs: usize,

    /// Bridges of a run
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = parse_count)]
    iterations: usize,

    #[arg(long, value_name = "all|NAME,...", default_value = "all", help = MENU.help(),
          value_parser = |text: &str| MENU.parse(text))]
    variants: Choice,

    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
}

/// The constants that the variants begin with. All that is set here but `rcu_nocbs` is calibration.
pub fn base(size: Size) -> Constants {
    Constants {
        rcu_nocbs: true,
        idle_tick_kept: 0.42,
        background_tasks_per_s: 600.0,
        background_cpus: 8,
        bridge_work_us: 300.0,
        bridge_think_us: 95_000.0,
        bridge_callbacks: 1,
        ..Constants::of_kernel(size.cpus, size.hz)
    }
}

/// Simulates it.
pub fn simulate(options: &Options) -> Result<Outcome> {
    let size = Size {
        cpus: options.cpus,
        hz: options.hz,
    };
    let experiment = Experiment {
        name: "bridge",
        size,
        base: base(size),
        variants: experiment::chosen(VARIANTS, &options.variants),
        runs: options.runs,
        params: serde_json::to_value(options)?,
        seed: seed::bridge,
    };
    let mut outcome =
        experiment.run(&options.common, |setup| bridges(setup, options.iterations))?;
    outcome.summarise_runs(seed::summary);
    Ok(outcome)
}

/// Runs it.
pub fn run(options: &Options) -> Result<ExitCode> {
    let outcome = simulate(options)?;
    for row in outcome
        .report
        .rows
        .iter()
        .filter(|row| row.row.case.subject == OURS)
    {
        let shares: Vec<String> = row.longest_ms.iter().map(|ms| format!("{ms:.1}")).collect();
        say!(
            "{}: the longest wait saw {} grace periods: {} ms",
            row.row.case.variant,
            shares.len(),
            shares.join(" + ")
        );
    }
    say!("");
    outcome.conclude("p50_ms")
}

/// Waits of an iteration: they come in pairs, one upon the other.
const PAIRS: usize = 2;

/// Sets up and tears down so many bridges.
pub fn bridges(setup: Setup, iterations: usize) -> Measured {
    let mut workload = Stream::new(setup.seed, "workload");
    let mut kernel = Kernel::boot(setup);
    let Constants {
        bridge_think_us,
        bridge_work_us,
        bridge_callbacks,
        ..
    } = *kernel.constants();
    let home = kernel.any_cpu();
    let caller = kernel.add_caller(home);
    kernel.next_caller();
    let began = kernel.now();
    let mut waits = Vec::with_capacity(iterations * PAIRS * 2);
    for _ in 0..iterations {
        // Programs come and go, each where the scheduler puts it.
        let cpu = kernel.any_cpu();
        kernel.migrate(caller, cpu);
        for _ in 0..PAIRS {
            // Uniform, so that the mean of the two parts together is the whole.
            let think = workload.uniform_us(2.0 * bridge_think_us / PAIRS as f64);
            kernel.work(caller, think);
            kernel.next_caller();
            for _ in 0..2 {
                (0..bridge_callbacks).for_each(|_| kernel.defer(caller));
                kernel.work(caller, workload.exponential_us(bridge_work_us));
                kernel.next_caller();
                let began = kernel.now();
                kernel.synchronize_rcu(caller);
                kernel.next_caller();
                waits.push(Wait {
                    began,
                    ended: kernel.now(),
                });
            }
        }
    }
    let real = Some(kernel.now() - began);
    Measured {
        real,
        ..Measured::gather(waits, kernel)
    }
}
