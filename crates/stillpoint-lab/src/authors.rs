//! What the authors of the kernel's patches measured, and wrote beside them, in their own digits.
//! Those of each run and variant of a grace-period experiment are in `sim/seed.rs`; these are the
//! others. A figure that is made of theirs says how.

/// `[PATCH 4/4] rcu/kvfree: Use a polled API to speedup a reclaim process`, Uladzislau Rezki,
/// November 2022: the memory footprint of five runs of rcuscale each, in the MB that it prints.
pub const KVFREE_FOOTPRINT_MB: [[f64; 5]; 2] = [
    [2248.0, 2820.0, 6502.0, 3343.0, 6549.0],
    [61.0, 93.0, 66.0, 75.0, 62.0],
];

/// The same runs' total time, in nanoseconds.
pub const KVFREE_TOTAL_NS: [[f64; 5]; 2] = [
    [
        8_535_693_700.0,
        8_466_933_582.0,
        5_375_602_446.0,
        7_523_283_832.0,
        6_459_171_956.0,
    ],
    [
        8_560_060_176.0,
        8_573_885_501.0,
        8_320_000_202.0,
        8_552_718_794.0,
        8_601_368_792.0,
    ],
];

/// `rcu: report the grace-period thread's own CPU`, Joel Fernandes: the mean of all runs' means,
/// which its summary gives, in milliseconds.
pub const SYNC_SUMMARY_MS: [f64; 2] = [9.75, 6.04];

/// The same patch's bridge test by Uladzislau Rezki, together with `rcu_normal_wake_from_gp`: the
/// least and the greatest system CPU time of five runs, in seconds, before and after.
pub const BRIDGE_SYSTEM_CPU_S: [[f64; 2]; 2] = [[1.698, 1.937], [1.667, 1.930]];

/// `[PATCH v2-REBASED] mm: Make count list_lru_one::nr_items lockless`, Kirill Tkhai, November
/// 2017: samples in spinlocks in a profile by Shakeel Butt, `queued_spin_lock_slowpath` and
/// `_raw_spin_lock`, in percent. Neither is in the list that he gives for the patched kernel.
pub const LRU_SPINLOCK_PERCENT: [f64; 2] = [34.19, 30.77];

/// The least share in the list that he gives for the patched kernel, in percent: no spinlock took
/// more.
pub const LRU_LISTED_PERCENT: f64 = 0.04;

/// `[PATCH RFC tip/core/rcu 0/4] Accelerate RCU Tasks Trace updates`, Paul E. McKenney, September
/// 2020: a pair of lock and unlock, in nanoseconds.
pub const TRACE_READ_NS: [f64; 2] = [2.6, 3.0];

/// `[PATCH v3 04/11] mm: vmalloc: Remove global vmap_area_root rb-tree`, Uladzislau Rezki, January
/// 2024: requests a second of nginx on 48 CPUs, by Wen Gu: before, with the series, and with the
/// check for valid areas left out.
pub const VMAP_REQUESTS_PER_S: [f64; 3] = [113_536.56, 583_729.93, 805_164.78];

/// The middle of five.
pub fn median(mut five: [f64; 5]) -> f64 {
    five.sort_by(f64::total_cmp);
    five[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_runs() {
        assert_eq!(KVFREE_FOOTPRINT_MB.map(median), [3343.0, 66.0]);
    }
}
