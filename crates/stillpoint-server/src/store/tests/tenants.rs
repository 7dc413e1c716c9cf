//! Tenants: separate key spaces, flushes, deletion.

use super::*;
use crate::store::{Refused, TenantError};
use std::sync::Arc;

#[test]
fn tenants_have_names_in_order_and_the_default_one_stays() {
    let (store, _, _) = store_of(1 << 20, true);
    for name in ["b", "a"] {
        store.create_tenant(name).unwrap();
    }
    assert_eq!(store.names(), ["".into(), "a".into(), "b".into()]);
    assert_eq!(store.create_tenant("a").err(), Some(TenantError::Exists));
    assert_eq!(store.delete_tenant(""), Err(TenantError::Default));
}

#[test]
fn a_deleted_tenant_gives_its_memory_back_and_stores_nothing() {
    let (store, _, _) = store_of(1 << 20, true);
    let before = store.statistics().segment_bytes;
    let tenant = store.create_tenant("t").unwrap();
    for number in 0..200u32 {
        set(&tenant, &number.to_le_bytes(), &[0; 500]).unwrap();
    }
    let mut draft = tenant.prepare(b"small", 0, 0, 10).unwrap();
    draft.push(&[0; 10]).unwrap();
    assert!(store.statistics().segment_bytes > before + 100_000);
    store.delete_tenant("t").unwrap();
    assert!(tenant.is_deleted());
    assert_eq!(value_of(&tenant, &0u32.to_le_bytes()), None);
    assert_eq!(
        set(&tenant, b"k", b"v"),
        Err(Outcome::Refused(Refused::Deleted))
    );
    assert_eq!(
        draft.store(Mode::Set, ANY),
        Err(Outcome::Refused(Refused::Deleted))
    );
    assert_eq!(store.tenant("t").err(), Some(TenantError::NotFound));
    // The open segment goes with the key space, after a grace period.
    stillpoint::kvfree_barrier();
    assert_eq!(store.statistics().segment_bytes, before);
    // The name is free again, and begins empty.
    let again = store.create_tenant("t").unwrap();
    assert!(again != tenant && value_of(&again, &0u32.to_le_bytes()).is_none());
}

/// No command has come to the tenant since it was due: the next one takes nothing back.
#[test]
fn a_flush_that_is_due_is_not_lost_to_one_for_later() {
    let (_store, tenant, clock) = store_of(1 << 20, true);
    set(&tenant, b"k", b"v").unwrap();
    tenant.flush_all(10);
    clock.advance(9);
    // It is not due yet, so this one counts.
    tenant.flush_all(10);
    clock.advance(9);
    assert!(value_of(&tenant, b"k").is_some());
    clock.advance(1);
    tenant.flush_all(100);
    assert_eq!(value_of(&tenant, b"k"), None);
    set(&tenant, b"k", b"v").unwrap();
    clock.advance(99);
    assert!(value_of(&tenant, b"k").is_some());
    clock.advance(1);
    assert_eq!(value_of(&tenant, b"k"), None);
}

#[test]
fn a_flush_takes_effect_when_it_is_due_and_memory_follows() {
    let (store, tenant, clock) = store_of(1 << 20, true);
    let fill = |from: u32| {
        for number in from..from + 300 {
            set(&tenant, &number.to_le_bytes(), &[1; 500]).unwrap();
        }
    };
    fill(0);
    tenant.flush_all(10);
    clock.advance(9);
    assert!(value_of(&tenant, &299u32.to_le_bytes()).is_some());
    fill(300);
    clock.advance(1);
    let there = (0..600u32).filter(|number| value_of(&tenant, &number.to_le_bytes()).is_some());
    assert_eq!(there.count(), 0);
    fill(0);
    assert_eq!(tenant.statistics().items, 300);
    let stored = tenant.statistics().stored;
    tenant.flush_all(0);
    assert_eq!(
        (tenant.statistics().items, tenant.statistics().stored),
        (0, stored)
    );
    store.maintain();
    stillpoint::kvfree_barrier();
    assert_eq!(tenant.statistics().segment_bytes, 0);
}

#[test]
fn expired_items_leave_unasked() {
    let (store, tenant, clock) = store_of(4 << 20, true);
    let soon = clock.now() + 10;
    search::store_some(&tenant, soon);
    let full = tenant.statistics();
    clock.advance(10);
    store.maintain();
    let after = tenant.statistics();
    assert_eq!(
        (after.items, after.expired, after.expired_unfetched),
        (10, 990, 990)
    );
    assert!(after.segment_bytes * 4 < full.segment_bytes, "{after:?}");
    assert!((0..10u32).all(|number| value_of(&tenant, &(number * 100).to_le_bytes()).is_some()));
}

#[test]
fn many_small_tenants_cost_what_they_use() {
    let many = if cfg!(miri) { 5 } else { 1000 };
    let (store, _, _) = store_of(64 << 20, true);
    for number in 0..many {
        let tenant = store.create_tenant(&format!("t{number}")).unwrap();
        set(&tenant, b"k", &[0; 100]).unwrap();
    }
    let figures = store.statistics();
    assert_eq!((figures.all.items, figures.all.evicted), (many, 0));
    assert!(figures.segment_bytes <= many * 4096);
}

/// What a tenant retires after the store's end is freed, and the memory with it.
#[test]
fn a_tenant_that_outlives_its_store_leaves_nothing() {
    let (store, tenant, _) = store_of(4 << 20, true);
    let pool = Arc::downgrade(&tenant.state.common().pool);
    set(&tenant, b"k", &[0; 40_000]).unwrap();
    drop(store);
    for byte in 1..5 {
        set(&tenant, b"k", &[byte; 40_000]).unwrap();
    }
    assert_eq!(value_of(&tenant, b"k"), Some(vec![4; 40_000]));
    drop(tenant);
    // Its key space goes after a grace period, and what that has after another one.
    stillpoint::kvfree_barrier();
    stillpoint::kvfree_barrier();
    assert_eq!(pool.strong_count(), 0);
}

/// What is open has a size of the time when it was opened.
#[test]
fn a_tenant_that_has_become_small_costs_little() {
    let (store, tenant, _) = store_of(32 << 20, true);
    let items = if cfg!(miri) { 400 } else { 9000u32 };
    for number in 0..items {
        set(&tenant, &number.to_le_bytes(), &[1; 1000]).unwrap();
    }
    for number in 3..items {
        tenant.delete(&number.to_le_bytes(), None).unwrap();
    }
    rest(&store);
    let few = tenant.statistics();
    assert_eq!(few.items, 3);
    assert!(few.segment_bytes <= 4 << 12, "{few:?}");
    for number in 0..3u32 {
        assert_eq!(
            value_of(&tenant, &number.to_le_bytes()),
            Some(vec![1; 1000])
        );
        tenant.delete(&number.to_le_bytes(), None).unwrap();
    }
    rest(&store);
    assert_eq!(tenant.statistics().segment_bytes, 0);
    set(&tenant, b"k", b"v").unwrap();
    assert_eq!(value_of(&tenant, b"k"), Some(b"v".to_vec()));
}

/// A client that knows a CAS value of a deleted tenant changes nothing of one with the same name.
#[test]
fn cas_values_of_a_deleted_tenant_do_not_come_again() {
    let (store, _, _) = store_of(1 << 20, true);
    let stored = |value: &[u8]| {
        let tenant = store.create_tenant("a").unwrap();
        (set(&tenant, b"k", value).unwrap(), tenant)
    };
    let (first, _) = stored(b"1");
    store.delete_tenant("a").unwrap();
    let (second, tenant) = stored(b"2");
    assert!(second > first, "{first} {second}");
    let condition = Condition::of(Some(first));
    let changed = tenant.set(b"k", 0, 0, b"3", Mode::Set, condition);
    assert_eq!(changed, Err(Outcome::Exists));
}
