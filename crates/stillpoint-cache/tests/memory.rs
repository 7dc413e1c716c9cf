//! A limit in bytes is one of the process's memory.
#![cfg(all(target_os = "linux", not(miri)))]

use std::{fs, time::Duration};
use stillpoint_cache::Cache;

const LIMIT: u64 = 24 << 20;

fn resident() -> u64 {
    stillpoint::global().kvfree_barrier();
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    // SAFETY: it has no preconditions.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64
}

/// One test of its own process: no other thread uses memory.
#[test]
fn a_cache_takes_as_much_memory_as_its_limit_says() {
    // The service thread, and what allocators keep.
    fill(&Cache::builder().max_bytes(1 << 20).build(), 100);
    for bytes in [30, 1000] {
        let builder = || Cache::builder().time_to_live(Duration::from_secs(3600));
        let weigh = |key: &String, value: &Vec<u8>| (key.len() + value.len()) as u64;
        takes_its_limit(|| builder().max_bytes(LIMIT).build(), bytes);
        takes_its_limit(|| builder().max_bytes(LIMIT).weigher(weigh).build(), bytes);
    }
}

fn fill(cache: &Cache<String, Vec<u8>>, bytes: usize) {
    for key in 0_u64.. {
        cache.insert(format!("customer:{key:08}:page"), vec![1; bytes]);
        if key % 64 == 0 && cache.statistics().evicted > 0 {
            break;
        }
    }
}

fn takes_its_limit(cache: impl Fn() -> Cache<String, Vec<u8>>, bytes: usize) {
    let before = resident();
    let cache = cache();
    fill(&cache, bytes);
    let taken = resident() - before;
    let limit = LIMIT as f64;
    let ratio = taken as f64 / limit;
    assert!(
        (0.8..1.2).contains(&ratio),
        "{ratio:.3} with values of {bytes}"
    );
    // Kept until the process ends: memory that allocators would use again is not measured.
    std::mem::forget(cache);
}
