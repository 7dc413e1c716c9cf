//! Limits while many threads charge at once: no charge is refused because of a refused charge.

mod setup;

use setup::{children, common::eventually};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};
use stillpoint_lru::{Charge, ChargeError, Hierarchy, Tenant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
const TIB: usize = 1 << 40;

/// Number of small charges in a test.
const CHARGES: u32 = if cfg!(miri) { 1_000 } else { 200_000 };

/// Runs `work` while another thread keeps asking `tenant` for `bytes`, which is refused each time.
fn beside_greed<R>(tenant: &Tenant, bytes: usize, work: impl FnOnce() -> R) -> R {
    let (enough, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !enough.load(Ordering::Relaxed) {
                assert!(tenant.charge(bytes).is_err());
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        eventually(|| asked.load(Ordering::Relaxed) > 0);
        let result = work();
        enough.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn refused_large_charge_blocks_no_small_one() {
    let hierarchy = Hierarchy::new();
    let root = hierarchy.root();
    root.set_max(GIB as u64);
    let [greedy, modest] = children(root);
    let refused = beside_greed(&greedy, TIB, || {
        (0..CHARGES)
            .filter(|number| modest.charge(1 + *number as usize % (20 * KIB)).is_err())
            .count()
    });
    assert_eq!(refused, 0, "of {CHARGES}");
    assert!(
        root.statistics().peak < MIB as u64,
        "{:?}",
        root.statistics()
    );
    assert_eq!((root.usage(), greedy.statistics().peak), (0, 0));
}

/// The limit is the sum of what the threads may hold: no charge is refused, whatever is in stock.
#[test]
fn stock_refuses_no_charge() {
    const THREADS: usize = 8;
    let hierarchy = Hierarchy::new();
    let root = hierarchy.root();
    root.set_max((THREADS * 20 * KIB) as u64);
    let tenants = children::<THREADS>(root);
    thread::scope(|scope| {
        for (thread, tenant) in tenants.iter().enumerate() {
            scope.spawn(move || {
                let mut held: Vec<Charge> = Vec::new();
                for number in 0..CHARGES as usize / 100 {
                    let bytes = 1 + (number * 7919 + thread * 104_729) % (10 * KIB);
                    if held.len() == 2 {
                        drop(held.swap_remove(number % 2));
                    }
                    held.push(tenant.charge(bytes).unwrap_or_else(|error| {
                        panic!("thread {thread}, charge {number}: {error}")
                    }));
                }
            });
        }
    });
    assert_eq!(root.usage(), 0);
    let statistics = root.statistics();
    assert!(statistics.peak <= statistics.max, "{statistics:?}");
}

/// Threads charge tenants of three levels, whose limits are changed meanwhile.
#[test]
fn refusal_reports_usage_and_peak_stays_below_max() {
    let hierarchy = Hierarchy::new();
    let root = hierarchy.root();
    let limit = (64 * KIB) as u64;
    root.set_max(limit);
    let team = root.create().unwrap();
    let [first, second] = children(&team);
    let leaves = [first, second, root.create().unwrap()];
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        let chargers: Vec<_> = leaves
            .iter()
            .enumerate()
            .map(|(thread, leaf)| {
                scope.spawn(move || {
                    let mut held: Vec<Charge> = Vec::new();
                    for number in 0..CHARGES as usize / 200 {
                        match leaf.charge(1 + (number * 7919 + thread * 104_729) % (40 * KIB)) {
                            Ok(charge) => held.push(charge),
                            Err(ChargeError::OverLimit {
                                requested,
                                usage,
                                max,
                            }) => {
                                assert!(
                                    usage + requested > max,
                                    "refused {requested} beside {usage} of {max}"
                                );
                                held.pop();
                            }
                            Err(error) => panic!("{error}"),
                        }
                        if held.len() == 3 {
                            drop(held.swap_remove(number % 3));
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            for max in [limit / 2, u64::MAX, limit / 4, limit].into_iter().cycle() {
                team.set_max(max);
                leaves[0].set_max(max / 2);
                if enough.load(Ordering::Relaxed) {
                    break;
                }
                thread::yield_now();
            }
        });
        chargers
            .into_iter()
            .for_each(|charger| charger.join().unwrap());
        enough.store(true, Ordering::Relaxed);
    });
    for tenant in leaves.iter().chain([&team, root]) {
        let statistics = tenant.statistics();
        assert_eq!(statistics.usage, 0);
        assert!(statistics.peak <= limit, "{statistics:?}");
    }
}
