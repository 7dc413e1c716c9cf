//! What the mechanism alone must do: no background, no jitter, no chance but where callers live.

use kernel_sim::{Constants, Setup, Size};
use proptest::prelude::*;

use super::bridge::Bridge;
use super::experiment::Simulation;
use super::measured::Loop;
use super::sync::Sync;
use super::trace::Trace;

fn setup(size: Size, constants: Constants, seed: u64) -> Setup {
    Setup {
        size,
        constants,
        seed,
    }
}

const ONE: Loop = Loop {
    callers: 1,
    calls: 12,
    pause_ms: 0.0,
};

/// The mean of calls that follow each other, in ticks.
fn ticks(size: Size, constants: &Constants, seed: u64) -> f64 {
    mean_ms(size, constants, seed) * size.hz as f64 / 1e3
}

fn mean_ms(size: Size, constants: &Constants, seed: u64) -> f64 {
    ONE.run(setup(size, constants.clone().undisturbed(), seed))
        .metrics()["mean_ms"]
}

/// A machine on which the caller has its own CPU.
fn apart(cpus: usize, seed: u64) -> bool {
    let mut kernel = kernel_sim::Kernel::boot(setup(
        Size { cpus, hz: 1000 },
        Constants::of_kernel(cpus, 1000),
        seed,
    ));
    kernel.gp_thread_cpu() != kernel.any_cpu()
}

fn variant(constants: &Constants, early_qs: bool, wake: bool) -> Constants {
    Constants {
        early_qs,
        rcu_normal_wake_from_gp: wake,
        ..constants.clone()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A third CPU, which only a scan can find idle, keeps the first wait whole. The second, which
    /// the early report removes, is `jiffies_till_next_fqs` and the wheel's one more.
    #[test]
    fn a_removed_wait_removes_exactly_its_ticks(
        cpus in 3_usize..200, hz in 50_u64..2000, first in 1_u64..40, next in 1_u64..40, seed in any::<u64>(),
    ) {
        prop_assume!(apart(cpus, seed));
        let size = Size { cpus, hz };
        let constants = Constants { jiffies_till_first_fqs: first, jiffies_till_next_fqs: next, ..Constants::of_kernel(cpus, hz) };
        let base = ticks(size, &variant(&constants, false, false), seed);
        let fix = ticks(size, &variant(&constants, true, false), seed);
        prop_assert!((base - fix - (next + 1) as f64).abs() < 0.01, "{base} {fix}");
        prop_assert!((fix - (1 + first + 1 + 1) as f64).abs() < 0.01, "{fix}");
    }

    /// Direct waiting removes the tick that notices the callback and the one that invokes it.
    #[test]
    fn a_direct_wait_removes_two_ticks(cpus in 3_usize..200, hz in 50_u64..2000, first in 1_u64..40, seed in any::<u64>()) {
        prop_assume!(apart(cpus, seed));
        let size = Size { cpus, hz };
        let constants = Constants { jiffies_till_first_fqs: first, ..Constants::of_kernel(cpus, hz) };
        let callback = ticks(size, &variant(&constants, true, false), seed);
        let direct = ticks(size, &variant(&constants, true, true), seed);
        prop_assert!((callback - direct - 2.0).abs() < 0.01, "{callback} {direct}");
    }

    /// With the same jiffies.
    #[test]
    fn more_ticks_a_second_are_never_slower(
        cpus in 1_usize..100, slow in 50_u64..1000, more in 1_u64..1000, first in 1_u64..20, early in any::<bool>(), wake in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let constants = Constants { jiffies_till_first_fqs: first, jiffies_till_next_fqs: first, ..Constants::of_kernel(cpus, slow) };
        let constants = variant(&constants, early, wake);
        let of = |hz| mean_ms(Size { cpus, hz }, &constants, seed);
        prop_assert!(of(slow + more) <= of(slow) + 0.001);
    }

    /// Whatever the constants: every wait holds a grace period that began in it and ended in it.
    #[test]
    fn no_wait_is_shorter_than_a_grace_period(
        cpus in 1_usize..80, nocbs in any::<bool>(), wake in any::<bool>(), pull in any::<bool>(),
        early in any::<bool>(), callers in 1_usize..12, kept in 0.0..1.0, rate in 0.0..2000.0, busy in 0_u64..8, seed in any::<u64>(),
    ) {
        let size = Size { cpus, hz: 1000 };
        let constants = Constants {
            rcu_nocbs: nocbs,
            rcu_normal_wake_from_gp: wake,
            timer_pull: pull,
            early_qs: early,
            idle_tick_kept: kept,
            background_tasks_per_s: rate,
            busy_cpus: busy,
            gp_thread_pulled: 0.05,
            ..Constants::of_kernel(cpus, 1000)
        };
        let measured = Loop { callers, calls: 20, pause_ms: 2.0 }.run(setup(size, constants, seed));
        prop_assert_eq!(measured.waits.len(), callers * 20);
        for wait in &measured.waits {
            let whole = measured.grace_periods.iter().any(|gp| wait.began <= gp.began && gp.ended <= wait.ended);
            prop_assert!(whole, "{wait:?}");
        }
        prop_assert!(measured.grace_periods.windows(2).all(|pair| pair[0].ended <= pair[1].began));
    }
}

#[test]
fn the_tables_come_out_whatever_the_seed() {
    for seed in 0..5 {
        for (variant, mean) in [(0, 10.0), (1, 6.0)] {
            let size = Size { cpus: 32, hz: 1000 };
            let mut constants = Sync::base(size);
            (Sync::VARIANTS[variant].apply)(&mut constants, size);
            let mean_of = |run| {
                let setup = setup(size, constants.clone(), seed * 100 + run);
                Loop { calls: 100, ..ONE }.run(setup).metrics()["mean_ms"]
            };
            let mut means: Vec<f64> = (0..10).map(mean_of).collect();
            means.sort_by(f64::total_cmp);
            assert_near(means[5], mean, 0.02);
        }
        let (bridges, calls) = (Bridge { iterations: 300 }, Trace { calls: 50 });
        let medians = [37.2495, 31.5405, 15.765, 22.480];
        assert_figures(
            &bridges,
            Size { cpus: 64, hz: 250 },
            seed,
            "p50_ms",
            medians,
            0.15,
        );
        let means = [980.0, 620.0, 120.0, 18.0];
        assert_figures(
            &calls,
            Size { cpus: 8, hz: 1000 },
            seed,
            "mean_ms",
            means,
            0.06,
        );
    }
}

/// Each variant has its figure, more or less.
fn assert_figures<S: Simulation>(
    work: &S,
    size: Size,
    seed: u64,
    name: &str,
    figures: [f64; 4],
    tolerance: f64,
) {
    for (variant, figure) in S::VARIANTS.iter().zip(figures) {
        let mut constants = S::base(size);
        (variant.apply)(&mut constants, size);
        assert_near(
            work.simulate(setup(size, constants, seed)).metrics()[name],
            figure,
            tolerance,
        );
    }
}

fn assert_near(figure: f64, expected: f64, tolerance: f64) {
    assert!(
        (figure / expected - 1.0).abs() <= tolerance,
        "{figure} is not within {tolerance} of {expected}"
    );
}

#[test]
fn the_largest_machine_waits_for_its_own_jiffies() {
    let size = Size {
        cpus: 4096,
        hz: 1000,
    };
    let constants = Constants {
        early_qs: true,
        ..Constants::of_kernel(4096, 1000)
    };
    assert_eq!(constants.jiffies_till_first_fqs, 3 + 16);
    let seed = (0..).find(|&seed| apart(4096, seed)).expect("most are");
    assert_near(ticks(size, &constants, seed), 22.0, 0.01);
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let size = Size { cpus: 64, hz: 250 };
    let events = |seed| {
        let measured = Bridge { iterations: 10 }.simulate(setup(size, Bridge::base(size), seed));
        (measured.waits, measured.grace_periods)
    };
    assert_eq!(events(1), events(1));
    assert_ne!(events(1), events(2));
}
