//! The figures that the patches' authors measured on the real kernel, which stand beside ours.

use crate::run::{self, Metrics, Sample, metrics};

/// `synchronize_rcu` on 32 CPUs, ten runs of 100 calls: mean, least and greatest of each, in
/// milliseconds.
pub const SYNC: [(&str, [[f64; 3]; 10]); 2] = [
    (
        "baseline",
        [
            [10.088, 9.989, 18.848],
            [10.064, 9.982, 16.470],
            [10.051, 9.988, 15.113],
            [10.125, 9.929, 22.411],
            [8.695, 5.996, 15.471],
            [10.157, 9.977, 25.723],
            [10.102, 9.990, 20.224],
            [8.050, 5.985, 10.007],
            [10.059, 9.978, 15.934],
            [10.077, 9.984, 17.703],
        ],
    ),
    (
        "fix",
        [
            [6.027, 5.915, 8.589],
            [6.032, 5.984, 9.241],
            [6.010, 5.986, 7.004],
            [6.076, 5.993, 10.001],
            [6.084, 5.893, 10.250],
            [6.034, 5.908, 9.456],
            [6.051, 5.993, 10.000],
            [6.057, 5.941, 10.001],
            [6.016, 5.927, 7.540],
            [6.036, 5.993, 9.579],
        ],
    ),
];

/// A bridge set up and torn down 100 times on 64 CPUs: seconds in all; median, least and greatest
/// wait in milliseconds.
pub const BRIDGE: [(&str, [f64; 4]); 4] = [
    ("default", [24.221, 37.2495, 7.881, 63.651]),
    ("fix", [20.754, 31.5405, 7.918, 55.639]),
    ("fix+wake", [15.895, 15.765, 9.803, 31.861]),
    ("wake", [18.947, 22.480, 7.857, 32.040]),
];

/// The mean of RCU Tasks Trace's grace periods, in milliseconds, after each patch on top of those
/// before it.
pub const TRACE: [(&str, f64); 4] = [
    ("baseline", 980.0),
    ("polling", 620.0),
    ("ipis", 120.0),
    ("gp_sleep", 18.0),
];

/// The runs of the first table, and what they come to: the median of the means, the least and the
/// greatest of all.
pub fn sync(variant: &str) -> Option<(Metrics, Vec<Metrics>)> {
    let (_, runs) = SYNC.iter().find(|(name, _)| *name == variant)?;
    let runs: Vec<Metrics> = runs
        .iter()
        .map(|&[mean, min, max]| metrics([("mean_ms", mean), ("min_ms", min), ("max_ms", max)]))
        .collect();
    Some((summary(&runs), runs))
}

/// What runs come to: the medians of the means, the least and the greatest of all.
pub fn summary(runs: &[Metrics]) -> Metrics {
    let sample = |run: &Metrics| Sample {
        metrics: run.clone(),
        ..Sample::default()
    };
    let mut summary = run::medians(&runs.iter().map(sample).collect::<Vec<_>>());
    let all = |name: &'static str| runs.iter().filter_map(move |run| run.get(name).copied());
    let least = all("min_ms").fold(f64::INFINITY, f64::min);
    let greatest = all("max_ms").fold(0.0, f64::max);
    summary.extend(metrics([("min_ms", least), ("max_ms", greatest)]));
    summary
}

/// The second table's column.
pub fn bridge(variant: &str) -> Option<(Metrics, Vec<Metrics>)> {
    let (_, figures) = BRIDGE.iter().find(|(name, _)| *name == variant)?;
    let names = ["real_s", "p50_ms", "min_ms", "max_ms"];
    Some((metrics(names.into_iter().zip(*figures)), Vec::new()))
}

/// A mean of the third series.
pub fn trace(variant: &str) -> Option<(Metrics, Vec<Metrics>)> {
    let (_, mean) = *TRACE.iter().find(|(name, _)| *name == variant)?;
    Some((metrics([("mean_ms", mean)]), Vec::new()))
}
