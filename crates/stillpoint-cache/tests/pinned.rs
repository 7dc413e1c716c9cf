//! Pinned entries: nothing evicts them, and they count.

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;
mod helpers;

use common::eventually;
use helpers::{press, weighed};
use std::time::Duration;
use stillpoint_cache::{Cache, InsertError, ManualClock};

fn counted(max: u64) -> Cache<u64, u64> {
    Cache::builder().max_entries(max).build()
}

#[test]
fn nothing_evicts_what_is_pinned() {
    let cache = counted(100);
    (0..50).for_each(|key| cache.insert(key, key));
    assert!((0..50).all(|key| cache.pin(&key) && cache.pin(&key)));
    assert!(!cache.pin(&5000) && !cache.unpin(&5000));
    (100..10_000).for_each(|key| cache.insert(key, key));
    assert!((0..50).all(|key| cache.get(&key) == Some(key)));
    assert_eq!(
        (cache.entry_count(), cache.statistics().pinned_bytes),
        (100, 50)
    );
    // Under pressure, too.
    press(&cache);
    assert_eq!((cache.entry_count(), cache.weighted_bytes()), (50, 50));
    // A limit below it is kept once it can be.
    cache.set_max_bytes(20);
    assert_eq!(cache.weighted_bytes(), 50);
    assert!((0..50).all(|key| cache.unpin(&key)));
    cache.insert(5000, 0);
    assert_eq!(
        (cache.weighted_bytes(), cache.statistics().pinned_bytes),
        (20, 0)
    );
}

#[test]
fn insert_that_finds_nothing_but_pinned_entries_is_refused_with_the_tenants_name() {
    let cache = counted(100);
    let tenant = cache.tenant("tenant");
    tenant.set_max(10);
    (0..10).for_each(|key| tenant.insert(key, key));
    assert!((0..9).all(|key| tenant.pin(&key)));
    tenant.try_insert(20, 0).unwrap();
    assert!(!tenant.contains_key(&9) && tenant.pin(&20));
    let error = tenant.try_insert(21, 0).unwrap_err();
    assert!(
        matches!(&error, InsertError::Full { tenant, limit: 10, .. } if &**tenant == "tenant"),
        "{error}"
    );
    assert!(error.to_string().contains("pinned"));
    // The rest of the cache goes on, and takes nothing from it.
    (100..1000).for_each(|key| cache.try_insert(key, key).unwrap());
    assert_eq!((cache.weighted_bytes(), tenant.weighted_bytes()), (100, 10));
    // All that goes by another way than eviction does.
    assert_eq!(tenant.take(&0), Some(0));
    tenant.insert(1, 11);
    assert_eq!(
        cache.statistics().pinned_bytes,
        8,
        "what replaces is not pinned"
    );
    tenant.invalidate_all();
    assert_eq!(
        (tenant.entry_count(), cache.statistics().pinned_bytes),
        (0, 0)
    );
    tenant.insert(30, 0);
    assert!(tenant.pin(&30) && tenant.delete());
    assert_eq!(
        (cache.contains_key(&30), cache.statistics().pinned_bytes),
        (false, 0)
    );
}

/// Entries that are pinned in the inserting tenant itself count, too.
#[test]
fn what_is_refused_for_pinned_entries_evicts_nothing() {
    let cache = weighed(1000);
    cache.insert(0, 600);
    assert!(cache.pin(&0));
    (1..401).for_each(|key| cache.insert(key, 1));
    assert!(cache.try_insert(5000, 401).is_err());
    assert_eq!(cache.weighted_bytes(), 1000);
    cache.try_insert(5000, 400).unwrap();
    assert_eq!((cache.entry_count(), cache.weighted_bytes()), (2, 1000));
}

#[test]
fn the_builder_says_what_is_pinned_from_the_beginning_and_it_expires() {
    let clock = ManualClock::default();
    let cache = Cache::builder()
        .max_entries(10)
        .is_pinned(|&key, _| key < 5)
        .time_to_live(Duration::from_secs(10))
        .clock(clock.clone())
        .build();
    (0..100).for_each(|key| cache.insert(key, key));
    assert!((0..5).all(|key| cache.contains_key(&key)));
    cache.insert(0, 1);
    assert_eq!(
        (cache.entry_count(), cache.statistics().pinned_bytes),
        (10, 5)
    );
    clock.advance(Duration::from_secs(11));
    assert!(!cache.pin(&0), "its time is over");
    cache.run_pending();
    let statistics = cache.statistics();
    assert_eq!(
        (
            statistics.entries,
            statistics.pinned_bytes,
            statistics.bytes
        ),
        (0, 0, 0)
    );
}

#[test]
fn limits_are_kept_once_nothing_is_pinned() {
    let cache = counted(1000);
    let (tenant, beside) = (cache.tenant("tenant"), cache.tenant("beside"));
    (0..100).for_each(|key| tenant.insert(key, key));
    (1000..1020).for_each(|key| beside.insert(key, key));
    assert!((0..100).all(|key| tenant.pin(&key)));
    tenant.set_high(50);
    beside.set_high(10);
    // The service thread comes to both under one hold of the lock, or has been to the first before:
    // so it has found nothing there, and does not try again.
    eventually(|| beside.weighted_bytes() <= 10);
    assert_eq!(tenant.weighted_bytes(), 100);
    assert!((0..100).all(|key| tenant.unpin(&key)));
    eventually(|| tenant.weighted_bytes() <= 50);

    // Also where it is another tenant's limit, and at once for a max.
    let below = tenant.tenant("below");
    (200..300).for_each(|key| below.insert(key, key));
    assert!((200..300).filter(|key| below.pin(key)).count() > 40);
    tenant.set_max(30);
    assert!(tenant.weighted_bytes() > 30);
    for key in 200..300 {
        below.unpin(&key);
    }
    assert_eq!(tenant.weighted_bytes(), 30);
}
