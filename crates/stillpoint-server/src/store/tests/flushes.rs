//! Flushes beside a reader that does not leave.
//!
//! Detects key spaces without a bound or still counted when freed, and a tenant that pays for
//! another one's flushes.

use super::*;
use crate::store::common::FLUSHED_MAX;
use std::thread;

/// Large, so that no store waits for that reader because much is in limbo: tests beside these would
/// wait longer, too.
const LIMIT: u64 = 512 << 20;

/// Whether the test of that name is to go on: by itself, in a process of its own, as tests beside it
/// would wait for its readers. Else that process has run it.
fn is_alone(name: &str) -> bool {
    const ALONE: &str = "STILLCACHE_TEST_ALONE";
    if cfg!(miri) || std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let name = format!("store::tests::flushes::{name}");
    let ended = std::process::Command::new(program)
        .args([&*name, "--exact"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ended.stdout);
    assert!(
        ended.status.success() && told.contains("1 passed"),
        "{told}"
    );
    false
}

/// Flushes until key spaces are not begun any more.
fn flush_much(tenant: &Tenant) {
    while !tenant.state.owner.has_flushed_much() {
        tenant.flush_all(0);
    }
}

const ROUNDS: u32 = if cfg!(miri) { 20 } else { 1_500 };
const ITEMS: u64 = if cfg!(miri) { 40 } else { 2_000 };

/// What flushed key spaces take, and one more of a few KiB.
const BOUND: u64 = FLUSHED_MAX + (8 << 10);

#[test]
fn flushes_in_a_loop_take_a_bounded_amount() {
    if !is_alone("flushes_in_a_loop_take_a_bounded_amount") {
        return;
    }
    let (store, _, _) = store_of(LIMIT, true);
    let tenant = store.create_tenant("flushed").unwrap();
    let common = tenant.state.common();
    let spaces = || common.unreclaimed() - common.pool.limbo_bytes();
    beside_a_reader(|| {
        for number in 0..ROUNDS {
            let key = number.to_le_bytes();
            set(&tenant, &key, b"v").unwrap();
            assert!(tenant.get(&key, |_| ()).is_some());
            tenant.flush_all(0);
            assert!(tenant.get(&key, |_| ()).is_none());
        }
        assert_eq!(tenant.statistics().items, 0);
        assert_eq!(tenant.statistics().flushed, u64::from(ROUNDS));
        assert!(spaces() <= BOUND, "{}", spaces());
        assert!(store.statistics().limbo_bytes >= spaces());
    });
    // Once it has left, they are freed, and a flush begins a key space again.
    rest(&store);
    stillpoint::kvfree_barrier();
    assert_eq!(spaces(), 0);
    let before = tenant.state.present();
    tenant.flush_all(0);
    assert!(!Arc::ptr_eq(&before, &tenant.state.present()));
}

/// However many items there are, beside a table that grows and shrinks; of one tenant alone.
#[test]
fn what_is_removed_one_by_one_is_all_there_was() {
    if !is_alone("what_is_removed_one_by_one_is_all_there_was") {
        return;
    }
    let (store, _, clock) = store_of(LIMIT, true);
    let (tenant, other) = (
        store.create_tenant("flushed").unwrap(),
        store.tenant("").unwrap(),
    );
    let key = |number: u64| number.to_le_bytes();
    let fill = |from: u64| {
        for number in from..from + ITEMS {
            set(&tenant, &key(number), &pattern(number, 0, 40)).unwrap();
        }
    };
    set(&other, b"other's", b"v").unwrap();
    beside_a_reader(|| {
        flush_much(&tenant);
        let space = tenant.state.present();
        fill(0);
        let pin = tenant.get(&key(7), |item| item.pin()).flatten();
        tenant.flush_all(0);
        assert_eq!(tenant.statistics().items, 0);
        assert!((0..ITEMS).all(|number| tenant.get(&key(number), |_| ()).is_none()));
        assert_eq!(pin.expect("it is pinned")[..], pattern(7, 0, 40));
        // One that is due does the same.
        fill(10_000);
        tenant.flush_all(1);
        assert_eq!(tenant.statistics().items, ITEMS);
        clock.advance(1);
        assert_eq!(value_of(&tenant, &key(10_000)), None);
        assert_eq!(tenant.statistics().items, 0);
        assert!(
            Arc::ptr_eq(&space, &tenant.state.present()),
            "it is the same one"
        );
        // A tenant that is deleted stores nothing more, whatever is unreclaimed.
        fill(20_000);
        store.delete_tenant("flushed").unwrap();
        assert!(!Arc::ptr_eq(&space, &tenant.state.present()));
        assert!(set(&tenant, b"k", b"v").is_err());
    });
    assert_eq!(value_of(&other, b"other's").as_deref(), Some(&b"v"[..]));
    rest(&store);
    check_dead(&other);
}

/// Threads that store, read and flush: what was there before a flush is not found behind it.
#[test]
fn items_are_removed_beside_writers() {
    if !is_alone("items_are_removed_beside_writers") {
        return;
    }
    let (store, _, _) = store_of(LIMIT, true);
    let tenant = store.create_tenant("flushed").unwrap();
    beside_a_reader(|| {
        flush_much(&tenant);
        thread::scope(|scope| {
            for thread in 0..2u64 {
                let tenant = &tenant;
                scope.spawn(move || {
                    for round in 0..if cfg!(miri) { 1 } else { 10u64 } {
                        for number in 0..ITEMS / 10 {
                            let key = [thread, number].map(u64::to_le_bytes).concat();
                            set(tenant, &key, &round.to_le_bytes()).unwrap();
                        }
                        tenant.flush_all(0);
                        for number in 0..ITEMS / 10 {
                            let key = [thread, number].map(u64::to_le_bytes).concat();
                            assert_eq!(value_of(tenant, &key), None, "{round}");
                        }
                    }
                });
            }
        });
        assert_eq!(tenant.statistics().items, 0);
        assert_eq!(tenant.statistics().item_bytes, 0);
    });
    rest(&store);
    check_dead(&tenant);
}

/// What a tenant was charged for its index is not counted beside that: after the flush of a large
/// one, the next still begins a key space.
#[test]
fn what_is_charged_is_not_counted_again() {
    let (store, _, _) = store_of(LIMIT, true);
    let tenant = store.create_tenant("large").unwrap();
    for number in 0..30_000u64 {
        set(&tenant, &number.to_le_bytes(), b"v").unwrap();
    }
    // Lines behind buckets are charged there.
    store.maintain();
    let lines = tenant.state.present().table.index.bytes_of_lines();
    assert!(lines > 16 << 10, "{lines}");
    beside_a_reader(|| {
        tenant.flush_all(0);
        let common = tenant.state.common();
        let spaces = common.unreclaimed() - common.pool.limbo_bytes();
        assert!((1..8 << 10).contains(&spaces), "{spaces}");
    });
}

/// A tenant that is flushed in a loop costs another one nothing: that begins a key space.
#[test]
fn a_tenant_is_flushed_whatever_another_one_has_unreclaimed() {
    let (store, _, clock) = store_of(LIMIT, true);
    let tenant = store.create_tenant("flushed").unwrap();
    let others = ["", "due"].map(|name| match name {
        "" => store.tenant("").unwrap(),
        name => store.create_tenant(name).unwrap(),
    });
    beside_a_reader(|| {
        flush_much(&tenant);
        let before = others.each_ref().map(|other| other.state.present());
        set(&others[0], b"k", b"v").unwrap();
        others[0].flush_all(0);
        others[1].flush_all(1);
        clock.advance(1);
        for (other, before) in others.iter().zip(&before) {
            assert_eq!(value_of(other, b"k"), None);
            assert!(!Arc::ptr_eq(before, &other.state.present()));
        }
    });
}
