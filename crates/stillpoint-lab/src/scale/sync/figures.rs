//! What is noted of the waits, and the figures made of it.
//!
//! - `mean_us`, `min_us`, `p50_us`, `p99_us`, `max_us`: the times of the single waits. Each holds
//!   one reading of the clock (some twenty nanoseconds), the limit's as well;
//! - `cpu_us_per_gp`: processor time of the process between the first wait's start and the last
//!   one's end, without that of the readers that spin, for each wait. It holds the work of the
//!   subject's own threads, and the timing itself (some fifty nanoseconds a wait);
//! - `calls_per_gp`: waits for each grace period that has ended meanwhile; absent where none had
//!   to, because no other thread is registered (idle).

use std::time::Duration;

use rustix::time::ClockId;

use super::Updater;
use super::readers::{ReaderControl, cpu_time};
use crate::run::{Curve, Sample};
use crate::scale::timing::Times;

/// Waits go on for this long in one process.
pub const BUDGET: Duration = Duration::from_millis(120);

/// What a span of waits cost.
pub struct Cost {
    cpu: Duration,
    grace_periods: Option<u64>,
}

/// Sets the busy readers going, runs `waits`, halts the readers; what `waits` returned and what it
/// cost.
pub fn observe<S: Updater, T>(control: &ReaderControl, waits: impl FnOnce() -> T) -> (T, Cost) {
    let ended_before = S::GRACE_PERIODS.map(|count| count());
    // The kernel's sum over threads is exact only for those that do not run: it is read while all
    // readers sleep.
    let cpu_before = cpu_time(ClockId::ProcessCPUTime);
    control.set_going();
    let result = waits();
    let readers = control.halt();
    let cpu = cpu_time(ClockId::ProcessCPUTime) - cpu_before;
    let ended = S::GRACE_PERIODS.map(|count| count());
    let grace_periods = ended
        .zip(ended_before)
        .map(|(after, before)| after - before);
    let cpu = cpu.saturating_sub(readers);
    (result, Cost { cpu, grace_periods })
}

/// The figures that every scenario reports.
pub fn sample(times: &Times, cost: &Cost) -> Sample {
    let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let waits = times.len() as f64;
    let mut sample = Sample::of([
        ("mean_us", times.mean() / 1e3),
        ("min_us", us(times.min())),
        ("p50_us", us(times.value_at_quantile(0.5))),
        ("p99_us", us(times.value_at_quantile(0.99))),
        ("max_us", us(times.max())),
        ("cpu_us_per_gp", cost.cpu.as_secs_f64() * 1e6 / waits),
    ]);
    let grace_periods = cost.grace_periods.filter(|&count| count > 0);
    sample.add(grace_periods.map(|count| ("calls_per_gp", waits / count as f64)));
    sample.curve = distribution(times);
    sample
}

/// Points of a distribution's curve for each further tenth of the waits that are left above.
const POINTS_A_TENTH: u32 = 8;

/// Returns the curve of wait times at percentiles ever closer to 100, as far as there are waits between
/// them.
fn distribution(times: &Times) -> Curve {
    let rounded = |percentile: f64| (percentile * 1e5).round() / 1e5;
    let us = |left: f64| times.value_at_quantile(1.0 - left) as f64 / 1e3;
    let left = (0..).map(|step| 0.1_f64.powf(f64::from(step) / f64::from(POINTS_A_TENTH)));
    let left = left.take_while(|left| left * times.len() as f64 >= 1.0);
    Curve {
        x: "percentile".to_owned(),
        y: "wait_us".to_owned(),
        points: left
            .map(|left| (rounded(100.0 * (1.0 - left)), us(left)))
            .collect(),
    }
}
