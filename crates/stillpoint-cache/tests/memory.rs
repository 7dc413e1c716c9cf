//! A limit in bytes is one of the process's memory.
#![cfg(all(target_os = "linux", not(miri)))]

mod helpers;

use std::time::Duration;
use stillpoint_cache::Cache;

const LIMIT: u64 = 16 << 20;

/// Returns the resident memory in bytes, without what allocators keep.
fn resident() -> f64 {
    stillpoint::global().kvfree_barrier();
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
    helpers::resident() as f64
}

/// A value of a type that does not implement `Weigh`.
struct Page(Vec<u8>);

/// One test in its process: no other thread uses memory.
#[test]
fn a_cache_takes_as_much_memory_as_its_limit_says() {
    // Without huge pages the pages that are resident are those that were written, on every machine.
    // SAFETY: it changes a flag of this process.
    let disabled = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    assert_eq!(disabled, 0);
    // At most this much waits for the service thread and is measured with the rest.
    stillpoint::global().set_budget(1 << 20);
    // The service thread, and memory that is used once.
    fill(&Cache::builder().max_bytes(1 << 20).build(), |_| {
        vec![1_u8; 100]
    });
    let strings = || Cache::builder().max_bytes(LIMIT).time_to_live(HOUR).build();
    takes_its_limit("30 bytes", strings(), |_| vec![1_u8; 30]);
    takes_its_limit("1000 bytes", strings(), |_| vec![1_u8; 1000]);
    takes_its_limit("30 to 1000 bytes", strings(), |key| vec![1_u8; mixed(key)]);
    let pages = Cache::builder()
        .weigher(|key: &String, page: &Page| (key.capacity() + page.0.capacity()) as u64);
    let pages = pages.max_bytes(LIMIT).time_to_live(HOUR).build();
    takes_its_limit("30 to 1000 bytes by a weigher", pages, |key| {
        Page(vec![1; mixed(key)])
    });
}

const HOUR: Duration = Duration::from_secs(3600);

/// Returns a size from 30 to 1000 for a key.
fn mixed(key: u64) -> usize {
    30 + (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % 971
}

fn name(key: u64) -> String {
    format!("customer:{key:08}:page")
}

/// Inserts until the cache is full. Returns the next key.
fn fill<V: Send + Sync + 'static>(cache: &Cache<String, V>, value: impl Fn(u64) -> V) -> u64 {
    let mut keys = 0..;
    let fills = |&key: &u64| key % 64 != 0 || cache.statistics().evicted == 0;
    keys.by_ref()
        .take_while(fills)
        .for_each(|key| cache.insert(name(key), value(key)));
    keys.start
}

fn takes_its_limit<V: Send + Sync + 'static>(
    what: &str,
    cache: Cache<String, V>,
    value: impl Fn(u64) -> V,
) {
    let before = resident();
    let full = fill(&cache, &value);
    let of_entry = cache.weighted_bytes() as f64 / cache.entry_count() as f64;
    let ratio = || {
        let all = cache.statistics();
        let fit = LIMIT as f64 / of_entry;
        assert!(
            all.entries as f64 > 0.95 * fit,
            "{what}: {} entries, and {fit} fit",
            all.entries
        );
        (resident() - before) / LIMIT as f64
    };
    let at_rest = ratio();
    for key in full..3 * full {
        cache.insert(name(key), value(key));
        // Another size in its place, and gaps.
        cache.insert(name(key - full / 4), value(key + 1));
        if key % 8 == 0 {
            cache.remove(&name(key - full / 2));
        }
    }
    let churned = ratio();
    assert!(
        (0.8..1.15).contains(&at_rest) && churned < 1.3,
        "{what}: {at_rest:.3} at rest and {churned:.3} after churn"
    );
    // Kept until the process ends: memory that allocators would use again is not measured.
    std::mem::forget(cache);
}
