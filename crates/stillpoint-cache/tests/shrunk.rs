//! What has left the process when a cache was told to shrink.

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;
mod helpers;

#[cfg(all(target_os = "linux", not(miri)))]
use helpers::resident;
use stillpoint_cache::{Bytes, Cache};

/// One test of its own process: no other thread takes memory.
#[test]
fn what_a_shrink_evicts_leaves_the_process() {
    let pages: Cache<u64, Bytes> = Cache::with_bytes(64 << 20);
    for key in 0..50_000 {
        pages.insert_bytes(key, &[7; 1000]).expect("room");
    }
    let held = pages.weighted_bytes();
    #[cfg(all(target_os = "linux", not(miri)))]
    let full = resident();
    pages.set_max_bytes(held / 4);
    let after = pages.statistics();
    assert_eq!(after.shrink_asked_bytes, held - held / 4);
    assert_eq!(after.shrink_charged_bytes, held - after.bytes);
    // Readers leave, and the service thread moves what lies here and there.
    #[cfg(all(target_os = "linux", not(miri)))]
    common::eventually(|| full.saturating_sub(resident()) >= held / 2);
    // A tenant's are the whole cache's, and not counted twice.
    let tenant = pages.tenant("tenant");
    assert_eq!(tenant.statistics().shrink_asked_bytes, 0);
    // A limit that nothing is above asks for nothing.
    pages.set_max_bytes(held);
    assert_eq!(pages.statistics().shrink_asked_bytes, held - held / 4);
}
