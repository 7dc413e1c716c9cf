//! Limits that fall: what goes for it, what does not, and on which thread.
//!
//! Detects an index that does not shrink meanwhile, a limit that holds at once, and evictions on
//! the asking thread.

use super::*;
use crate::store::{Limits, OnEvict, StoreStatistics, ceiling::Ceiling};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

const LIMIT: u64 = if cfg!(miri) { 128 << 10 } else { 4 << 20 };

/// Small items, of which an index takes a large part. Some do not fit.
fn fill(tenant: &Tenant) {
    for number in 0..LIMIT / 32 {
        set(tenant, &number.to_le_bytes(), b"v").unwrap();
    }
}

/// No more went than had to go for the limit: what is left is near it.
#[track_caller]
fn check_near(figures: &StoreStatistics, limit: u64) {
    assert!(figures.segment_bytes <= limit, "{figures:?}");
    assert!(figures.segment_bytes >= limit * 3 / 4, "{figures:?}");
    assert!(figures.all.item_bytes >= limit * 3 / 8, "{figures:?}");
}

#[test]
fn no_item_goes_for_an_index_that_shrinks_behind_it() {
    let (store, tenant, _) = store_of(LIMIT, true);
    fill(&tenant);
    let full = store.statistics();
    assert!(full.all.index_bytes * 8 > full.segment_bytes, "{full:?}");
    for part in [2, 8] {
        store.set_limit(LIMIT / part);
        // Readers of other tests may have been in the way.
        rest(&store);
        check_near(&store.statistics(), LIMIT / part);
    }
    // A tenant's own.
    store.set_limit(LIMIT);
    let other = store.create_tenant("other").unwrap();
    fill(&other);
    other.set_limits(Limits::max(LIMIT / 8));
    rest(&store);
    let figures = other.statistics();
    assert!(figures.segment_bytes <= LIMIT / 8 && figures.item_bytes >= LIMIT * 3 / 64);
}

/// An index shrinks once readers have left. Until then it is above the limit: its items do not go
/// for it, and stores are not refused.
#[test]
fn readers_keep_an_index_and_cost_no_item() {
    let (store, tenant, _) = store_of(LIMIT, true);
    let limit = LIMIT / 4;
    // The index alone is to be above the limit. It grows late while readers of other tests are in the way.
    let is_large = || {
        fill(&tenant);
        rest(&store);
        store.statistics().all.index_bytes > limit * 5 / 4
    };
    assert!((0..10).any(|_| is_large()), "{:?}", store.statistics());
    beside_a_reader(|| {
        let full = store.statistics();
        let left = store.set_limit(limit);
        assert!(left > 0, "{full:?}, then {:?}", store.statistics());
        for number in 0..100u32 {
            set(&tenant, &number.to_le_bytes(), b"v").unwrap();
        }
        store.maintain();
    });
    rest(&store);
    check_near(&store.statistics(), limit);
    assert_eq!(tenant.statistics().refused, 0);
}

/// A pass waits for readers once, and not for those of each tenant.
#[test]
fn a_pass_waits_for_readers_once() {
    let (store, _, _) = store_of(64 << 20, true);
    let tenants: Vec<_> = (0..8u8)
        .map(|number| store.create_tenant(&number.to_string()).unwrap())
        .collect();
    let items = if cfg!(miri) { 100 } else { 2000u32 };
    for tenant in &tenants {
        for number in 0..items {
            set(tenant, &number.to_le_bytes(), b"v").unwrap();
        }
        for number in 10..items {
            tenant.delete(&number.to_le_bytes(), None).unwrap();
        }
    }
    synchronize();
    let waits = || tenants[0].state.common().pool.waits.load(Ordering::Relaxed);
    let waited = beside_a_reader(|| {
        let before = waits();
        store.maintain();
        waits() - before
    });
    assert_eq!(waited, 1);
    rest(&store);
    assert!(store.statistics().all.index_bytes < 8 << 12);
}

/// The thread that asks evicts nothing, and no store is refused meanwhile.
#[test]
fn the_background_lowers_a_limit() {
    let by = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&by);
    let config = Config {
        limit: LIMIT,
        on_evict: Some(OnEvict::new(move |_| {
            let mut by = told.lock().unwrap();
            let thread = thread::current();
            if by.last() != Some(&thread.id()) {
                by.push(thread.id());
            }
        })),
        ..Config::default()
    };
    let store = Store::new(config).unwrap();
    let tenant = store.create_tenant("t").unwrap();
    for number in 0..LIMIT / 64 {
        set(&tenant, &number.to_le_bytes(), b"v").unwrap();
    }
    let wait_for = |limit: u64| {
        while store.statistics().segment_bytes > limit {
            thread::yield_now();
        }
    };
    by.lock().unwrap().clear();
    store.request_limit(LIMIT / 4);
    assert_eq!(store.limit(), LIMIT / 4);
    wait_for(LIMIT / 4);
    tenant.request_limits(Limits::max(LIMIT / 8));
    wait_for(LIMIT / 8);
    let by = by.lock().unwrap();
    assert!(!by.is_empty() && !by.contains(&thread::current().id()));
}

/// What holds neither rises with the usage nor stays below what is asked for.
#[test]
fn what_holds_is_between_the_usage_and_what_was_asked_for() {
    let config = Config {
        clock: Clock::Manual(ManualClock::new()),
        ..Config::default()
    };
    let ceiling = Ceiling::none();
    // Asked for, used, and what holds then.
    for (asked, usage, holds) in [
        (1000, 500, 1000),
        (100, 500, 500),
        (100, 600, 500),
        (50, 300, 300),
        (400, 300, 400),
        (200, 300, 300),
        (200, 200, 200),
        (0, 100, 100),
        (0, 0, 0),
        (150, 300, 150),
    ] {
        let before = ceiling.holds();
        let mut max = None;
        ceiling.ask(asked, |bytes| max = Some(bytes));
        assert_eq!(max, (asked > before).then_some(asked));
        assert_eq!(ceiling.follow(usage, false, &config), holds);
        assert_eq!(ceiling.is_falling(), holds > asked);
    }
}

/// A limit that is raised in the middle of its fall, by the thread that asked for it: what the
/// background has under way ends with the segment that it is at.
#[test]
fn a_fall_ends_where_the_limit_is_raised() {
    let (begun, begins) = mpsc::channel();
    let (raise, raised) = mpsc::channel::<()>();
    let evicted = Arc::new(AtomicU64::new(0));
    let (count, raised) = (Arc::clone(&evicted), Mutex::new(raised));
    let lowered = Arc::new(AtomicBool::new(false));
    let is_lowered = Arc::clone(&lowered);
    let hook = OnEvict::new(move |_| {
        // (While the store is filled, some are evicted too.)
        if is_lowered.load(Ordering::Relaxed) && count.fetch_add(1, Ordering::Relaxed) == 0 {
            begun.send(()).unwrap();
            // An error: the test has failed.
            let _ = raised.lock().unwrap().recv();
        }
    });
    let config = Config {
        limit: LIMIT,
        on_evict: Some(hook),
        ..Config::default()
    };
    let store = Store::new(config).unwrap();
    let tenant = store.tenant("").unwrap();
    fill(&tenant);
    let before = store.statistics();
    lowered.store(true, Ordering::Relaxed);
    store.request_limit(LIMIT / 8);
    begins.recv().unwrap();
    store.request_limit(LIMIT);
    raise.send(()).unwrap();
    assert_eq!(store.limit(), LIMIT);
    // What is asked for now is done behind the fall.
    assert!(store.request_search());
    while store.search_statistics().is_running {
        thread::yield_now();
    }
    let gone = before.all.items - store.statistics().all.items;
    // A segment's items, and what is evicted beside it to keep room. A round would take a fifth of all.
    assert!(evicted.load(Ordering::Relaxed) > 0 && gone > 0);
    assert!(gone <= before.all.items / 8, "{gone} of {before:?}");
}

/// Limits of several tenants and of the store, that are changed again while they fall, and a tenant
/// that goes meanwhile: each comes down, and nothing stays of the tenant.
#[test]
fn limits_fall_together() {
    let (store, _) = live(LIMIT);
    let tenants = ["a", "b", "c"].map(|name| store.create_tenant(name).unwrap());
    for _ in 0..if cfg!(miri) { 1 } else { 3 } {
        for number in 0..LIMIT / 256 {
            for tenant in &tenants {
                set(tenant, &number.to_le_bytes(), b"v").unwrap();
            }
        }
        store.request_limit(LIMIT / 2);
        for (part, tenant) in [16, 32, 64].into_iter().zip(&tenants) {
            tenant.request_limits(Limits::max(LIMIT / part));
        }
        tenants[0].request_limits(Limits::max(LIMIT));
        store.request_limit(LIMIT / 4);
        tenants[0].request_limits(Limits::max(LIMIT / 16));
        for (part, tenant) in [16, 32, 64].into_iter().zip(&tenants) {
            while tenant.statistics().segment_bytes > LIMIT / part {
                thread::yield_now();
            }
            tenant.request_limits(Limits::max(u64::MAX));
        }
        store.request_limit(LIMIT);
        // Of one that goes while its limit falls, nothing stays; nor of one that was swept before.
        for swept in [0, 2] {
            let other = store.create_tenant("d").unwrap();
            let left = || other.memory().usage() > 0;
            // Segments that are open go without a sweep.
            let fill = || (0..1000u32).all(|n| set(&other, &n.to_le_bytes(), b"v").is_ok());
            for _ in 0..swept {
                assert!(fill());
                other.flush_all(0);
                while left() {
                    thread::yield_now();
                }
            }
            assert!(fill());
            if swept == 0 {
                other.request_limits(Limits::max(0));
            }
            store.delete_tenant("d").unwrap();
            while left() {
                thread::yield_now();
            }
        }
    }
}

/// A limit that falls is no reason to refuse, whatever the thread that lowers it: there is enough to
/// evict.
#[test]
fn items_are_stored_while_limits_fall() {
    let large = vec![1; 10_000];
    for (limit, keys, value) in [(LIMIT, 100_000, &large[..1]), (16 * LIMIT, 10_000, &large)] {
        let (store, _) = live(limit);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..2u32)
                .map(|writer| {
                    let (tenant, stop) = (store.tenant("").unwrap(), &stop);
                    scope.spawn(move || {
                        let mut result = Ok(0);
                        for number in 0u32.. {
                            let key = [writer, number % keys].map(u32::to_le_bytes).concat();
                            result = set(&tenant, &key, value);
                            if result.is_err() || stop.load(Ordering::Relaxed) {
                                break;
                            }
                        }
                        result
                    })
                })
                .collect();
            // Or until a writer has been refused.
            let until = |is_so: &dyn Fn(u64) -> bool| {
                while !is_so(store.statistics().segment_bytes)
                    && writers.iter().all(|writer| !writer.is_finished())
                {
                    thread::yield_now();
                }
            };
            for round in 0..if cfg!(miri) { 2 } else { 6 } {
                until(&|bytes| bytes >= limit / 2);
                match round % 2 {
                    0 => store.request_limit(limit / 8),
                    _ => _ = store.set_limit(limit / 8),
                }
                until(&|bytes| bytes <= limit / 4);
                store.request_limit(limit);
            }
            stop.store(true, Ordering::Relaxed);
            for writer in writers {
                writer.join().unwrap().unwrap();
            }
        });
    }
}

/// A fall ends with its turn, and for what else is asked for: otherwise a limit that is lowered meanwhile
/// would wait for it.
#[test]
fn a_fall_gives_way_after_a_segment() {
    for (turn, is_asked) in [(100, true), (0, false)] {
        let (store, tenant, _) = store_of(LIMIT, true);
        fill(&tenant);
        let common = tenant.state.common();
        assert!(common.ask_limit(LIMIT / 8, true));
        let before = common.lists.evicted();
        store.maintain_in(Duration::from_secs(turn), is_asked);
        assert!(common.lists.evicted() > before);
        // Where readers of other tests keep what was evicted, it evicts up to half at a time.
        let figures = store.statistics();
        assert!(figures.segment_bytes > LIMIT / 4, "{figures:?}");
        rest(&store);
        check_near(&store.statistics(), LIMIT / 8);
    }
}

/// Pinned segments are passed over, however many there are, for what can be evicted behind them.
#[test]
#[cfg_attr(miri, ignore = "many items")]
fn a_fall_ends_when_all_that_is_left_is_pinned() {
    let config = Config {
        limit: 128 << 20,
        pinned_max: Some(u64::MAX),
        clock: Clock::Manual(ManualClock::new()),
        ..Config::default()
    };
    let store = Store::new(config).unwrap();
    let tenant = store.tenant("").unwrap();
    let pins: Vec<_> = (0..1600u32)
        .filter_map(|number| {
            let key = number.to_le_bytes();
            set(&tenant, &key, &[1; 33_000]).unwrap();
            match number < 800 {
                true => tenant.get(&key, |item| item.pin()).unwrap(),
                false => None,
            }
        })
        .collect();
    assert_eq!(pins.len(), 800);
    assert!(store.set_limit(0) > 0);
    assert_eq!(store.statistics().all.items, 800);
}

/// Without eviction, what is mostly dead is compacted for a limit that falls, and not by the thread
/// that asks.
#[test]
fn the_background_compacts_for_a_limit() {
    let config = Config {
        limit: LIMIT,
        evict: false,
        ..Config::default()
    };
    for own in [false, true] {
        for background in [false, true] {
            let store = Store::new(config.clone()).unwrap();
            let tenant = store.create_tenant("t").unwrap();
            if !background {
                // What it is asked for is not done then.
                tenant.signal.stop();
            }
            for number in 0..LIMIT / 512 {
                set(&tenant, &number.to_le_bytes(), &[1; 100]).unwrap();
            }
            for number in 0..LIMIT / 512 {
                if number % 16 > 0 {
                    tenant.delete(&number.to_le_bytes(), None).unwrap();
                }
            }
            let before = tenant.statistics();
            let limit = LIMIT / 32;
            // Where there is a background, it may have begun.
            assert!(background || before.segment_bytes > limit * 2);
            if own {
                let limits = Limits::max(limit);
                tenant.request_limits(limits);
                assert_eq!(tenant.limits(), limits);
            } else {
                store.request_limit(limit);
                assert_eq!(store.limit(), limit);
            }
            if background {
                while tenant.statistics().segment_bytes > limit {
                    thread::yield_now();
                }
                assert!(tenant.statistics().copied > 0);
                assert_eq!(tenant.statistics().evicted, 0);
            } else {
                assert_eq!(tenant.statistics().copied, before.copied);
            }
        }
    }
}
