//! `stillpoint sim bridge`: a program sets up and tears down a network bridge, which waits for
//! readers four times each time, on 64 CPUs at 250 Hz that offload their callbacks. (The seed
//! states neither; both follow from its figures.)
//!
//! A grace period takes 8 ms with one scan, 16 with two. An offloaded callback waits for 2 to 4 of
//! them ([`kernel_sim`]), a direct wait for 1 to 2. So each maximum is a number of grace
//! periods, which the run prints for the longest wait.

use clap::Args;
use kernel_sim::{Constants, Kernel, Setup, Size, Stream};
use serde::Serialize;

use super::experiment::{Simulation, Variant, parse_count, variant};
use super::measured::{Measured, Wait};
use super::report::OURS;
use super::seed;
use crate::output::Row;
use crate::run::Metrics;

/// Its options.
#[derive(Args, Serialize)]
pub struct Bridge {
    /// Bridges of a run
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = parse_count)]
    pub iterations: usize,
}

impl Simulation for Bridge {
    const NAME: &'static str = "bridge";

    const DEFAULTS: [&'static str; 3] = ["64", "250", "1"];

    const VARIANTS: &'static [Variant] = &[
        variant("default", "the kernel before the patch", |_, _| {}),
        variant(
            "fix",
            "the grace-period thread reports its own CPU",
            |constants, _| constants.early_qs = true,
        ),
        variant(
            "fix+wake",
            "and it wakes waiters directly (rcu_normal_wake_from_gp)",
            |constants, _| {
                constants.early_qs = true;
                constants.rcu_normal_wake_from_gp = true;
            },
        ),
        variant("wake", "direct wake-ups alone", |constants, _| {
            constants.rcu_normal_wake_from_gp = true
        }),
    ];

    const HEADLINE: &'static str = "p50_ms";

    /// All that is set here but `rcu_nocbs` is calibration.
    fn base(size: Size) -> Constants {
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

    fn simulate(&self, setup: Setup) -> Measured {
        bridges(setup, self.iterations)
    }

    fn seed(variant: &str) -> Option<(Metrics, Vec<Metrics>)> {
        seed::bridge(variant)
    }

    fn head(rows: &[Row]) -> String {
        let longest = |row: &Row| {
            let shares: Vec<String> = row.longest_ms.iter().map(|ms| format!("{ms:.1}")).collect();
            let (variant, count, shares) = (&row.case.variant, shares.len(), shares.join(" + "));
            format!("{variant}: the longest wait saw {count} grace periods: {shares} ms\n")
        };
        let ours = rows.iter().filter(|row| row.case.subject == OURS);
        ours.map(longest).collect::<String>() + "\n"
    }
}

/// Waits of an iteration: they come in pairs, one upon the other.
const PAIRS: usize = 2;

/// Sets up and tears down `iterations` bridges.
fn bridges(setup: Setup, iterations: usize) -> Measured {
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
