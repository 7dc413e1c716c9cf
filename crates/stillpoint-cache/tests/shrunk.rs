//! What has left the process when a cache was told to shrink.

use std::{
    thread,
    time::{Duration, Instant},
};
use stillpoint_cache::{Bytes, Cache};

/// One test of its own process: no other thread takes memory.
#[test]
fn what_has_left_is_measured() {
    let pages: Cache<u64, Bytes> = Cache::with_bytes(64 << 20);
    for key in 0..50_000 {
        pages.insert_bytes(key, &[7; 1000]).expect("room");
    }
    let held = pages.weighted_bytes();
    pages.set_max_bytes(held / 4);
    let after = pages.statistics();
    assert_eq!(after.shrink_asked_bytes, held - held / 4);
    assert_eq!(after.shrink_charged_bytes, held - after.bytes);
    // It is measured later, by the service thread.
    let begun = Instant::now();
    while pages.statistics().shrink_left_bytes == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it is not measured"
        );
        thread::yield_now();
    }
    let left = pages.statistics().shrink_left_bytes;
    assert!(left > held / 4, "{left} of {held}");
    // A tenant's are the whole cache's, and not counted twice.
    let tenant = pages.tenant("tenant");
    assert_eq!(tenant.statistics().shrink_asked_bytes, 0);
    // A limit that nothing is above asks for nothing.
    pages.set_max_bytes(held);
    assert_eq!(pages.statistics().shrink_asked_bytes, held - held / 4);
}
