//! What the other files look at in full, in sizes that Miri runs in a minute or two: tables that grow
//! and shrink, key spaces that come and go, segments that are evicted, compacted and pinned.
//!
//! Detects, under Miri, a reference to a segment from which its `Arc`'s counts are reached.

use super::*;
use crate::store::Limits;
use std::thread;

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

/// The index gets a page and lines behind its buckets, is charged for them, and gives them back.
#[test]
fn a_table_grows_and_shrinks() {
    const MANY: u32 = 90;
    const FEW: u32 = 5;
    let (store, tenant, _) = store_of(1 << 20, true);
    for number in 0..MANY {
        set(&tenant, &key(number), b"v").unwrap();
    }
    rest(&store);
    let full = tenant.statistics();
    assert!(full.index_bytes > 0 && full.items == u64::from(MANY));
    assert!(tenant.state.present().table.charged() >= full.index_bytes);
    let mut seen = 0;
    let mut cursor = crate::store::Cursor::default();
    while tenant.keys(&mut cursor, 8, |_| seen += 1) {}
    assert_eq!(seen, MANY);
    for number in FEW..MANY {
        tenant.delete(&key(number), None).unwrap();
    }
    rest(&store);
    assert!(tenant.statistics().index_bytes < full.index_bytes);
    assert!((0..FEW).all(|number| value_of(&tenant, &key(number)).is_some()));
    assert!((FEW..MANY).all(|number| value_of(&tenant, &key(number)).is_none()));
    check_dead(&tenant);
}

/// What was begun in a key space that has gone: a draft, a pin, a reader.
#[test]
fn key_spaces_come_and_go() {
    let (store, _, clock) = store_of(1 << 20, true);
    let (tenant, other) = (
        store.tenant("").unwrap(),
        store.create_tenant("other").unwrap(),
    );
    let mut draft = tenant.prepare(b"draft", 1, 0, 5).unwrap();
    draft.push(b"draft").unwrap();
    for number in 0..10 {
        set(&tenant, &key(number), &pattern(number.into(), 0, 50)).unwrap();
        set(&other, &key(number), b"other's").unwrap();
    }
    let pin = tenant.get(&key(3), |item| item.pin()).flatten().unwrap();
    let sweeps = |_: &Tenant| rest(&store);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for number in 0..10 {
                if let Some(value) = value_of(&tenant, &key(number)) {
                    assert_eq!(value, pattern(number.into(), 0, 50));
                }
            }
        });
        tenant.flush_all(0);
        sweeps(&tenant);
        reader.join().unwrap();
    });
    assert!((0..10).all(|number| value_of(&tenant, &key(number)).is_none()));
    assert_eq!(pin[..], pattern(3, 0, 50));
    draft.store(Mode::Set, ANY).unwrap();
    assert_eq!(value_of(&tenant, b"draft").as_deref(), Some(&b"draft"[..]));
    tenant.flush_all(1);
    clock.advance(1);
    assert_eq!(value_of(&tenant, b"draft"), None);
    assert_eq!(value_of(&other, &key(1)).as_deref(), Some(&b"other's"[..]));
    let late = other.get(&key(2), |item| item.pin()).flatten().unwrap();
    store.delete_tenant("other").unwrap();
    assert_eq!(value_of(&other, &key(1)), None);
    assert!(set(&other, b"k", b"v").is_err());
    sweeps(&tenant);
    drop((pin, other, tenant, store));
    // It outlives the store.
    assert_eq!(late[..], *b"other's");
}

/// A tenant of a few segments: items are evicted, copied, overwritten and compacted while another
/// thread reads them.
#[test]
fn segments_are_used_again_beside_a_reader() {
    let (store, _, _) = store_of(64 << 10, true);
    let tenant = store.create_tenant("small").unwrap();
    tenant.set_limits(Limits::max(8 << 10));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..24u32 {
                let number = round % 12;
                tenant.get(&key(number), |item| {
                    let value = item.value();
                    let version = u64::from(value[0]);
                    assert_eq!(value[1..], pattern(number.into(), version, 399));
                });
            }
        });
        for version in 0..2u8 {
            for number in 0..12 {
                let mut value = vec![version];
                value.extend(pattern(number.into(), version.into(), 399));
                set(&tenant, &key(number), &value).unwrap();
            }
            store.maintain();
        }
    });
    rest(&store);
    let figures = tenant.statistics();
    assert!(figures.items > 0 && figures.segment_bytes <= 8 << 10);
    check_dead(&tenant);
}

/// Without eviction, a limit refuses, and what was deleted makes room.
#[test]
fn what_is_dead_makes_room() {
    let (store, tenant, _) = store_of(16 << 10, false);
    let put = |number: u32| set(&tenant, &key(number), &[7; 1000]).is_ok();
    let stored = (0..40).take_while(|&number| put(number)).count() as u32;
    assert!((4..40).contains(&stored), "{stored}");
    for number in 0..stored / 2 {
        tenant.delete(&key(number), None).unwrap();
    }
    rest(&store);
    assert!(put(100));
    assert!((stored / 2..stored).all(|number| value_of(&tenant, &key(number)).is_some()));
    check_dead(&tenant);
}
