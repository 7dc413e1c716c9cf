//! The search for expired items, and what is counted of flushed ones.
//!
//! Detects a search that runs though it is off, without its bound, or twice at a time.

use super::{super::Search, *};
use std::time::{Duration, Instant};

/// Items in several segments, of which one in a hundred stays.
pub fn store_some(tenant: &Tenant, exptime: u32) {
    for number in 0..1000u32 {
        let exptime = if number % 100 == 0 { 0 } else { exptime };
        tenant
            .set(&number.to_le_bytes(), 0, exptime, &[1; 300], Mode::Set, ANY)
            .unwrap();
    }
}

#[test]
fn expired_items_stay_where_they_are_not_searched_for() {
    let (store, tenant, clock) = store_of(4 << 20, true);
    let off = Search {
        on: false,
        ..Search::default()
    };
    assert_eq!(store.search(), Search::default());
    store.set_search(off);
    store_some(&tenant, clock.now() + 10);
    clock.advance(10);
    store.maintain();
    let figures = tenant.statistics();
    assert_eq!(
        (figures.items, figures.expired, figures.searched),
        (1000, 0, 0)
    );
    assert_eq!(store.search_statistics().passes, 0);
    // But on demand.
    assert!(store.request_search());
    let figures = tenant.statistics();
    assert_eq!(
        (figures.items, figures.expired, figures.searched),
        (10, 990, 1000)
    );
    let search = store.search_statistics();
    assert_eq!((search.passes, search.is_running), (1, false));
    // What has nothing that could expire is not looked at.
    store.set_search(Search::default());
    store.maintain();
    assert_eq!(tenant.statistics().searched, 1000);
    assert_eq!(store.search_statistics().passes, 2);
}

#[test]
fn a_pass_looks_at_no_more_than_it_may() {
    let (store, tenant, clock) = store_of(4 << 20, true);
    store.set_search(Search {
        most: 1,
        ..Search::default()
    });
    store_some(&tenant, clock.now() + 10);
    clock.advance(10);
    let mut passes = 0;
    while tenant.statistics().items > 10 {
        let before = tenant.statistics();
        store.maintain();
        passes += 1;
        let after = tenant.statistics();
        let looked = after.searched - before.searched;
        // The whole of one segment.
        assert!((1..1000).contains(&looked), "{looked}");
        assert!(after.expired > before.expired);
    }
    assert!(passes > 1);
    assert_eq!(tenant.statistics().expired, 990);
}

/// Without rests, too, a search that was asked for lets the thread do what else is asked for after
/// each segment; and it ends, though more expires all the time.
#[test]
fn a_search_gives_way_and_ends() {
    let (store, tenant, clock) = store_of(4 << 20, true);
    store_some(&tenant, clock.now() + 1);
    clock.advance(1);
    let then = clock.now();
    let mut parts = 1;
    while !store.search_in_haste(then) {
        assert!(tenant.statistics().searched > 0);
        parts += 1;
        assert!(parts < 1000, "it does not end");
        // More of it than a part looks at.
        store_some(&tenant, clock.now() + 1);
        clock.advance(1);
    }
    assert!(parts > 1);
}

#[test]
fn tenants_take_turns_where_a_pass_does_not_come_to_all() {
    let (store, _, clock) = store_of(4 << 20, true);
    store.set_search(Search {
        rest: Duration::from_millis(1),
        ..Search::default()
    });
    let tenants = ["a", "b", "c"].map(|name| store.create_tenant(name).unwrap());
    for tenant in &tenants {
        store_some(tenant, clock.now() + 1);
    }
    clock.advance(1);
    for _ in &tenants {
        store.maintain_in(Duration::from_secs(100), true);
    }
    for tenant in &tenants {
        assert!((1..1000).contains(&tenant.statistics().searched));
    }
}

/// Detects a turn without rests that goes on, however late it is.
#[test]
fn a_search_without_rests_ends_with_its_turn() {
    let (store, tenant, clock) = store_of(4 << 20, true);
    store_some(&tenant, clock.now() + 1);
    clock.advance(1);
    let searched = |turn, is_asked| {
        let before = tenant.statistics().searched;
        store.maintain_in(turn, is_asked);
        tenant.statistics().searched - before
    };
    let first = searched(Duration::ZERO, false);
    assert!((1..500).contains(&first), "{first}");
    // What one client asks for does not end it.
    assert_eq!(first + searched(Duration::from_secs(100), true), 1000);
}

#[track_caller]
fn until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(
            begun.elapsed() < Duration::from_secs(100),
            "it does not come"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Between two segments the background would rest for an hour. Neither what is done each second waits
/// for that, nor a limit, nor the end of the store.
#[test]
fn what_is_asked_for_does_not_wait_for_a_rest() {
    let (store, tenant) = live(4 << 20);
    let wanted = Search {
        on: false,
        rest: Duration::from_secs(3600),
        most: 0,
    };
    store.set_search(wanted);
    store_some(&tenant, 1);
    assert!(store.request_search());
    until(|| tenant.statistics().searched > 0);
    assert!(store.search_statistics().is_running);
    assert!(!store.request_search(), "one at a time");
    // What is done each second is done.
    let other = store.create_tenant("other").unwrap();
    store_some(&other, 0);
    for number in (0..1000u32).filter(|number| number % 16 > 0) {
        other.delete(&number.to_le_bytes(), None).unwrap();
    }
    until(|| other.statistics().copied > 0);
    assert!(store.search_statistics().is_running);
    store.request_limit(64 << 10);
    until(|| store.statistics().segment_bytes <= 64 << 10);
    until(|| !store.search_statistics().is_running);
    assert!(tenant.statistics().searched < 1000);
    // The next one rests when the store ends.
    store_some(&tenant, 1);
    let before = tenant.statistics().searched;
    assert!(store.request_search());
    until(|| tenant.statistics().searched > before);
}

#[test]
fn a_read_of_what_was_flushed_is_counted_until_that_is_freed() {
    let (store, tenant, clock) = store_of(1 << 20, true);
    set(&tenant, b"a", b"v").unwrap();
    set(&tenant, b"b", b"v").unwrap();
    let soon = clock.now() + 1;
    tenant.set(b"c", 0, soon, b"v", Mode::Set, ANY).unwrap();
    let counted = || tenant.statistics().get_flushed;
    assert_eq!(value_of(&tenant, b"none"), None);
    assert_eq!(counted(), 0);
    clock.advance(1);
    tenant.flush_all(0);
    assert_eq!(value_of(&tenant, b"d"), None);
    assert_eq!(counted(), 0);
    // Also what had expired before, and by a read that does not count as a use.
    assert_eq!(value_of(&tenant, b"c"), None);
    assert_eq!(tenant.peek(b"a", |_| ()), None);
    let all = tenant.statistics();
    assert_eq!((all.get_flushed, all.get_expired), (2, 0));
    // What is there again is found.
    set(&tenant, b"b", b"w").unwrap();
    assert_eq!(value_of(&tenant, b"b").as_deref(), Some(&b"w"[..]));
    assert_eq!(counted(), 2);
    store.maintain();
    assert_eq!(value_of(&tenant, b"a"), None);
    assert_eq!(counted(), 2);
    // The one that was flushed last counts.
    tenant.flush_all(0);
    tenant.flush_all(0);
    assert_eq!(value_of(&tenant, b"b"), None);
    assert_eq!(counted(), 2);
}

/// An eviction may free what was flushed before it is swept: then it is not looked at.
#[test]
fn flushed_items_that_an_eviction_frees_are_not_looked_at() {
    let (store, tenant, _) = store_of(4 << 20, true);
    store_some(&tenant, 0);
    tenant.flush_all(0);
    assert!(value_of(&tenant, &1u32.to_le_bytes()).is_none());
    assert_eq!(tenant.statistics().get_flushed, 1);
    // All but what is open. What it frees is still there for a while: for a reader.
    beside_a_reader(|| {
        store.shrink(u64::MAX);
        for number in 0..1000u32 {
            assert_eq!(value_of(&tenant, &number.to_le_bytes()), None);
        }
    });
    assert_eq!(tenant.statistics().get_flushed, 1);
}

/// While one thread flushes and evicts, others read what was flushed.
#[test]
fn flushed_items_are_read_beside_sweeps_and_evictions() {
    let (store, tenant, _) = store_of(1 << 20, true);
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    for number in 0..50u32 {
                        let value = value_of(&tenant, &number.to_le_bytes());
                        assert!(value.is_none_or(|value| value == [number as u8; 300]));
                    }
                }
            });
        }
        for round in 0..rounds {
            for number in 0..50u32 {
                set(&tenant, &number.to_le_bytes(), &[number as u8; 300]).unwrap();
            }
            tenant.flush_all(0);
            match round % 3 {
                0 => store.maintain(),
                1 => drop(store.shrink(u64::MAX)),
                _ => {}
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
