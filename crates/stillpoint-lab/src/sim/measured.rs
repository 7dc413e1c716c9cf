//! What one simulated run measured, and the figures made of it.
use kernel_sim::{GracePeriod, Kernel, Setup, Size, Stream, Time};

use crate::run::{Metrics, metrics};

/// One wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// When it was called for.
    pub began: Time,
    /// When the caller ran again.
    pub ended: Time,
}

impl Wait {
    /// How long it took.
    pub fn ms(&self) -> f64 {
        (self.ended - self.began) as f64 / 1e6
    }
}

/// A run, or several.
#[derive(Debug, Default)]
pub struct Measured {
    /// The waits, in the order of their ends.
    pub waits: Vec<Wait>,
    /// The grace periods that ended meanwhile.
    pub grace_periods: Vec<GracePeriod>,
    /// The whole workload's time, where that is a figure.
    pub real: Option<Time>,
    /// The longest wait's share of each grace period that it saw, in milliseconds.
    pub longest_ms: Vec<f64>,
}

impl Measured {
    /// What there is once the workload has ended.
    pub fn gather(waits: Vec<Wait>, kernel: Kernel) -> Self {
        let grace_periods = kernel.grace_periods().to_vec();
        let longest = waits.iter().max_by_key(|wait| wait.ended - wait.began);
        let longest_ms = longest.map(|wait| shares(wait, &grace_periods));
        Self {
            waits,
            grace_periods,
            real: None,
            longest_ms: longest_ms.unwrap_or_default(),
        }
    }

    /// Puts another run behind this one.
    pub fn append(&mut self, mut other: Self) {
        if other.longest_ms.iter().sum::<f64>() > self.longest_ms.iter().sum() {
            self.longest_ms = other.longest_ms;
        }
        self.waits.append(&mut other.waits);
        self.grace_periods.append(&mut other.grace_periods);
        self.real = self.real.or(other.real);
    }

    /// The waits' figures, in milliseconds; and the scans for each grace period.
    pub fn metrics(&self) -> Metrics {
        let sorted = self.sorted_ms();
        let mut figures = metrics([
            ("mean_ms", sorted.iter().sum::<f64>() / sorted.len() as f64),
            ("p50_ms", sorted[(sorted.len() - 1) / 2]),
            ("min_ms", sorted[0]),
            ("max_ms", sorted[sorted.len() - 1]),
        ]);
        let scans: u32 = self.grace_periods.iter().map(|gp| gp.scans).sum();
        let periods = self.grace_periods.len() as f64;
        let scans = (periods > 0.0).then(|| ("fqs_per_gp", f64::from(scans) / periods));
        let real = self.real.map(|real| ("real_s", real as f64 / 1e9));
        figures.extend(metrics(scans.into_iter().chain(real)));
        figures
    }

    /// The waits' times in milliseconds, the shortest first.
    fn sorted_ms(&self) -> Vec<f64> {
        let mut times: Vec<f64> = self.waits.iter().map(Wait::ms).collect();
        times.sort_by(f64::total_cmp);
        times
    }
}

/// How much of each grace period lies in `wait`, in milliseconds. What began on the caller's way
/// out is no part of it.
fn shares(wait: &Wait, grace_periods: &[GracePeriod]) -> Vec<f64> {
    let share = |gp: &GracePeriod| {
        let (began, ended) = (wait.began.max(gp.began), wait.ended.min(gp.ended));
        ended.saturating_sub(began) as f64 / 1e6
    };
    grace_periods
        .iter()
        .map(share)
        .filter(|&ms| ms > 0.1)
        .collect()
}

/// Callers that call `synchronize_rcu` again and again.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    /// Number of them at once, each on its own CPU as far as there are enough.
    pub callers: usize,
    /// Calls of each.
    pub calls: usize,
    /// Milliseconds of sleep between two calls of one, in the mean; 0 for none.
    pub pause_ms: f64,
}

impl Loop {
    /// Runs on a machine that has just booted.
    pub fn run(self, setup: Setup) -> Measured {
        let Size { cpus, hz } = setup.size;
        let mut workload = Stream::new(setup.seed, "workload");
        let mut kernel = Kernel::boot(setup);
        let first = kernel.any_cpu();
        for caller in 0..self.callers {
            kernel.add_caller((first + caller) % cpus);
        }
        let mut waits = Vec::with_capacity(self.callers * self.calls);
        let mut waiting: Vec<Option<Time>> = vec![None; self.callers];
        let mut left = vec![self.calls; self.callers];
        while waits.len() < self.callers * self.calls {
            let caller = kernel.next_caller();
            if let Some(began) = waiting[caller].take() {
                waits.push(Wait {
                    began,
                    ended: kernel.now(),
                });
                left[caller] -= 1;
                let pause = workload.uniform_us(2e3 * self.pause_ms) * hz / 1_000_000_000;
                if left[caller] == 0 {
                    kernel.depart(caller);
                    continue;
                }
                if pause > 0 {
                    kernel.sleep(caller, pause);
                    continue;
                }
            }
            waiting[caller] = Some(kernel.now());
            kernel.synchronize_rcu(caller);
        }
        Measured::gather(waits, kernel)
    }
}
