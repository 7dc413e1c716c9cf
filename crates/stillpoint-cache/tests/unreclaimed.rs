//! What has left a cache, and waits for readers: it counts with its weight.

use stillpoint_cache::Cache;

fn pending() -> u64 {
    stillpoint::global().statistics().bytes_pending
}

/// One test of its own process: no other thread retires.
#[test]
fn what_waits_for_readers_counts_with_its_weight() {
    let values: Cache<u64, Vec<u8>> = Cache::builder()
        .max_bytes(1 << 20)
        .weigher(|_, value: &Vec<u8>| value.len() as u64)
        .build();
    let large = 256 << 10;
    // Evicted, replaced, removed.
    let section = stillpoint::read_lock();
    values.insert(1, vec![0; large]);
    values.insert(1, vec![0; large]);
    values.insert(2, vec![0; large]);
    values.invalidate(&2);
    values.set_max_bytes(0);
    let (three, least) = (pending(), 3 * large as u64);
    assert!(three >= least, "{three} of {least}");
    assert!(three < least + (64 << 10), "{three}, and each counts once");
    drop(section);
    stillpoint::global().kvfree_barrier();
    assert!(pending() < large as u64);

    // What has nothing to drop owns nothing, whatever it weighs.
    let numbers: Cache<u64, u64> = Cache::builder()
        .max_bytes(1 << 40)
        .weigher(|_, &weight| weight)
        .build();
    let section = stillpoint::read_lock();
    numbers.insert(1, 1 << 30);
    numbers.invalidate_all();
    assert!(pending() < large as u64);
    drop(section);
}
