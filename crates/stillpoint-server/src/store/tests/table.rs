//! What an index takes: charged, and given back when the items have gone.
//!
//! Detects an index that is not charged, or not given back.

use super::*;
use crate::store::{Limits, TenantStatistics};

const ITEMS: u32 = if cfg!(miri) { 600 } else { 30_000 };

fn filled(limit: u64) -> (Store, Tenant) {
    let (store, tenant, _) = store_of(limit, true);
    for number in 0..ITEMS {
        set(&tenant, &number.to_le_bytes(), b"v").unwrap();
    }
    (store, tenant)
}

/// What is charged to it is what its segments and its index take.
fn check(figures: &TenantStatistics) {
    let least = figures.item_bytes + figures.index_bytes;
    assert!(figures.segment_bytes >= least, "{figures:?}");
}

#[test]
fn an_index_is_charged_and_shrinks_with_its_items() {
    let (store, tenant) = filled(64 << 20);
    let full = tenant.statistics();
    assert_eq!((full.items, full.evicted), (ITEMS.into(), 0));
    assert!(full.index_bytes >= u64::from(ITEMS) / 6 * 64, "{full:?}");
    check(&full);
    let mut before = full;
    for part in [3, 10, 40] {
        for number in ITEMS / part..ITEMS {
            let _ = tenant.delete(&number.to_le_bytes(), None);
        }
        rest(&store);
        let fewer = tenant.statistics();
        let index = fewer.index_bytes;
        assert!(index * 2 < before.index_bytes, "{fewer:?} after {before:?}");
        let fits = fewer.item_bytes * 2 + index * 17 / 16 + 16384;
        assert!(fewer.segment_bytes <= fits, "{fewer:?}");
        check(&fewer);
        assert!((0..ITEMS / part).all(|number| value_of(&tenant, &number.to_le_bytes()).is_some()));
        before = fewer;
    }
    // It grows again, for other items.
    for number in 0..ITEMS {
        set(&tenant, &number.to_le_bytes(), b"w").unwrap();
    }
    check(&tenant.statistics());
    assert!((0..ITEMS).all(|number| value_of(&tenant, &number.to_le_bytes()).is_some()));
    tenant.flush_all(0);
    stillpoint::kvfree_barrier();
    rest(&store);
    let empty = tenant.statistics();
    assert_eq!((empty.segment_bytes, empty.index_bytes), (0, 0));
}

/// Items that are small take less than their index allows: that is evicted for, too.
#[test]
fn an_index_counts_to_the_limit() {
    let limit = if cfg!(miri) { 64 << 10 } else { 1 << 20 };
    let (store, tenant) = filled(limit);
    // Lines behind buckets are charged in the background.
    rest(&store);
    let full = tenant.statistics();
    check(&full);
    assert!(full.segment_bytes <= limit && full.evicted > 0, "{full:?}");
    assert!(full.index_bytes > limit / 8);
    store.set_limit(limit / 4);
    rest(&store);
    let less = tenant.statistics();
    check(&less);
    assert!(less.segment_bytes <= limit / 4);
    assert!(
        less.index_bytes * 2 < full.index_bytes,
        "{less:?} after {full:?}"
    );
    // Of a tenant with a limit of its own.
    let other = store.create_tenant("other").unwrap();
    let max = limit / 16;
    other.set_limits(Limits::max(max));
    for number in 0..ITEMS / 4 {
        set(&other, &number.to_le_bytes(), b"v").unwrap();
        assert!(other.statistics().segment_bytes <= max);
    }
    assert!(other.statistics().index_bytes > 0);
}

/// Without eviction, too, what is stored stays, and what is refused is refused for a limit.
#[test]
fn without_eviction_an_index_grows_as_far_as_it_may() {
    let (store, tenant, _) = store_of(if cfg!(miri) { 32 << 10 } else { 512 << 10 }, false);
    let put = |number: u32| set(&tenant, &number.to_le_bytes(), b"v").is_ok();
    let stored = (0..ITEMS).take_while(|&number| put(number)).count() as u32;
    assert!((100..ITEMS).contains(&stored), "{stored}");
    // Lines behind buckets are charged in the background, and how many there are is left to chance.
    let figures = tenant.statistics();
    let lines = tenant.state.present().table.index.bytes_of_lines();
    let least = figures.item_bytes + figures.index_bytes - lines;
    assert!(figures.segment_bytes >= least, "{figures:?}, {lines}");
    // Not out of what segments have beside their items.
    assert!(tenant.state.present().table.charged() + lines >= figures.index_bytes);
    assert!(tenant.statistics().segment_bytes <= store.limit());
    assert!((0..stored).all(|number| value_of(&tenant, &number.to_le_bytes()).is_some()));
}
