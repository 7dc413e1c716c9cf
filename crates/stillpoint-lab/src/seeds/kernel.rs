//! The kernel's figures as rows. A figure that we also measure has the same name here.

use crate::authors::{
    BRIDGE_SYSTEM_CPU_S, KVFREE_FOOTPRINT_MB, KVFREE_TOTAL_NS, LRU_LISTED_PERCENT,
    LRU_SPINLOCK_PERCENT, SYNC_SUMMARY_MS, TRACE_READ_NS, VMAP_REQUESTS_PER_S, median,
};
use crate::output::Row;
use crate::run::{Case, Metrics, metrics};
use crate::sim::{SEED, seed};

/// Subject of these rows.
pub const KERNEL: &str = SEED;

/// Returns the rows of each experiment.
pub fn rows() -> [(&'static str, Vec<Row>); 6] {
    let [memory_before, memory_after] = KVFREE_FOOTPRINT_MB.map(median);
    let [time_before, time_after] = KVFREE_TOTAL_NS.map(|runs| median(runs) / 1e9);
    let kfree = [
        row(
            "before",
            [("footprint_mb", memory_before), ("total_s", time_before)],
        ),
        row(
            "after",
            [("footprint_mb", memory_after), ("total_s", time_after)],
        ),
    ];

    let sync = [("before", "baseline"), ("after", "fix")]
        .into_iter()
        .zip(SYNC_SUMMARY_MS);
    let sync = sync.map(|((name, variant), mean)| {
        let mut figures = seed::sync(variant).unwrap_or_default().0;
        figures.extend(metrics([("mean_ms", mean)]));
        of(name, figures)
    });
    let bridge = seed::BRIDGE
        .iter()
        .map(|&(variant, [real, median, _, longest])| {
            let mut figures = metrics([("real_s", real), ("p50_ms", median), ("max_ms", longest)]);
            let cpu = match variant {
                "default" => Some(BRIDGE_SYSTEM_CPU_S[0]),
                "fix" => Some(BRIDGE_SYSTEM_CPU_S[1]),
                _ => None,
            };
            if let Some([least, greatest]) = cpu {
                figures.extend(metrics([
                    ("least_cpu_s", least),
                    ("greatest_cpu_s", greatest),
                ]));
            }
            of(variant, figures)
        });

    let spinlocks: f64 = LRU_SPINLOCK_PERCENT.iter().sum();
    let lru = [
        row("before", [("lock_share", spinlocks / 100.0)]),
        row("after", [("most_lock_share", LRU_LISTED_PERCENT / 100.0)]),
    ];

    let [read_before, read_after] = TRACE_READ_NS;
    let trace = seed::TRACE.iter().map(|&(variant, mean)| {
        let mut figures = metrics([("gp_mean_ms", mean)]);
        let read = match variant {
            "baseline" => Some(read_before),
            "gp_sleep" => Some(read_after),
            _ => None,
        };
        figures.extend(metrics(read.map(|ns| ("read_ns", ns))));
        of(variant, figures)
    });

    let vmap = ["before", "after", "unchecked"]
        .into_iter()
        .zip(VMAP_REQUESTS_PER_S);
    let vmap = vmap.map(|(variant, requests)| row(variant, [("requests_per_s", requests)]));
    [
        ("kfree", kfree.into()),
        ("sync", sync.collect()),
        ("bridge", bridge.collect()),
        ("lru", lru.into()),
        ("trace", trace.collect()),
        ("vmap", vmap.collect()),
    ]
}

fn row<const N: usize>(variant: &str, figures: [(&str, f64); N]) -> Row {
    of(variant, metrics(figures))
}

fn of(variant: &str, metrics: Metrics) -> Row {
    Row::new(Case::new(KERNEL, variant, None), metrics)
}
