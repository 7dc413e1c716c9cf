//! A limit in bytes is one of the process's memory.
#![cfg(all(target_os = "linux", not(miri)))]

use std::{fs, time::Duration};
use stillpoint_cache::Cache;

const LIMIT: u64 = 16 << 20;

/// Resident memory in bytes.
fn resident() -> u64 {
    stillpoint::global().kvfree_barrier();
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    // SAFETY: it has no preconditions.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64
}

/// One test in its process: no other thread uses memory.
#[test]
fn a_cache_takes_as_much_memory_as_its_limit_says() {
    // Without huge pages the pages that are resident are those that were written, on every machine.
    // SAFETY: it changes a flag of this process.
    let disabled = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    assert_eq!(disabled, 0);
    // The service thread, and memory that allocators keep.
    fill(&Cache::builder().max_bytes(1 << 20).build(), 100);
    takes_its_limit(30);
    takes_its_limit(1000);
}

/// Inserts until the cache is full. Returns the next key.
fn fill(cache: &Cache<String, Vec<u8>>, bytes: usize) -> u64 {
    let mut keys = 0..;
    let fills = |&key: &u64| key % 64 != 0 || cache.statistics().evicted == 0;
    keys.by_ref()
        .take_while(fills)
        .for_each(|key| insert(cache, key, bytes));
    keys.start
}

fn insert(cache: &Cache<String, Vec<u8>>, key: u64, bytes: usize) {
    cache.insert(format!("customer:{key:08}:page"), vec![1; bytes]);
}

fn takes_its_limit(bytes: usize) {
    let before = resident();
    let builder = Cache::builder().time_to_live(Duration::from_secs(3600));
    let cache = builder.max_bytes(LIMIT).build();
    let least = LIMIT - LIMIT / 20;
    let ratio = || {
        assert!(cache.weighted_bytes() >= least, "it is not full");
        (resident() - before) as f64 / LIMIT as f64
    };
    let full = fill(&cache, bytes);
    let at_rest = ratio();
    (full..3 * full).for_each(|key| insert(&cache, key, bytes));
    let churned = ratio();
    assert!(
        (0.8..1.15).contains(&at_rest) && churned < 1.3,
        "{at_rest:.3} at rest and {churned:.3} after churn with values of {bytes}"
    );
    // Kept until the process ends: memory that allocators would use again is not measured.
    std::mem::forget(cache);
}
