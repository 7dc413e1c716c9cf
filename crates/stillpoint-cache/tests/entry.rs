//! Computes: their results, and what other calls and user code do meanwhile.

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;
mod helpers;

use common::{expected_panic, quietly};
use helpers::{pend, poll, weighed, with_listener};
use std::{
    cell::Cell,
    collections::BTreeMap,
    future::Future,
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc, Barrier, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};
use stillpoint_cache::{Cache, Cause, CompResult, Entry, ManualClock, Op};

type Numbers = Cache<u64, u64>;

fn cache() -> Numbers {
    Cache::with_entries(1000)
}

/// Computes the next number, and does `work` before that ends.
fn next_after(cache: &Numbers, key: u64, work: impl FnOnce()) -> CompResult<u64, u64> {
    cache.entry(&key).and_compute_with(|entry| {
        work();
        Op::Put(entry.map_or(0, Entry::into_value) + 1)
    })
}

/// Runs `work`, which panics.
fn panics<R>(work: impl FnOnce() -> R) {
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
}

/// The table of moka's documentation.
#[test]
fn each_operation_has_its_result() {
    let cache = cache();
    let compute = |op: Op<u64>, seen: Option<u64>| {
        cache.entry(&1).and_compute_with(|entry| {
            assert_eq!(entry.as_ref().map(|entry| *entry.value()), seen);
            assert!(entry.is_none_or(|entry| !entry.is_fresh() && *entry.key() == 1));
            op
        })
    };
    let is = |result: CompResult<u64, u64>, value, is_fresh, is_old_value_replaced| {
        let entry = result.into_entry().expect("an entry");
        assert_eq!((*entry.key(), *entry.value()), (1, value));
        assert_eq!(
            (entry.is_fresh(), entry.is_old_value_replaced()),
            (is_fresh, is_old_value_replaced)
        );
    };
    for op in [Op::Nop, Op::Remove] {
        assert_eq!(compute(op, None), CompResult::StillNone(1));
    }
    let result = compute(Op::Put(1), None);
    assert!(matches!(result, CompResult::Inserted(_)));
    is(result, 1, true, false);
    let result = compute(Op::Put(2), Some(1));
    assert!(matches!(result, CompResult::ReplacedWith(_)));
    is(result, 2, true, true);
    let result = compute(Op::Nop, Some(2));
    assert!(matches!(result, CompResult::Unchanged(_)));
    is(result, 2, false, false);
    let result = compute(Op::Remove, Some(2));
    assert!(matches!(result, CompResult::Removed(_)));
    is(result, 2, false, false);
    assert_eq!(cache.get(&1), None);
    let entry = cache.entry(&1).and_upsert_with(|_| 3);
    assert!(entry.is_fresh() && !entry.is_old_value_replaced());
    let entry = cache
        .entry(&1)
        .and_upsert_with(|entry| entry.unwrap().into_value() + 1);
    assert!(entry.is_fresh() && entry.is_old_value_replaced() && *entry.value() == 4);
    let failed = cache.entry(&1).and_try_compute_with(|_| Err("no"));
    assert_eq!((failed, cache.get(&1)), (Err("no"), Some(4)));
    let entry = cache.entry(&1).or_insert_with(|| unreachable!());
    assert!(!entry.is_fresh() && *entry.value() == 4);
    assert!(cache.entry(&2).or_insert(5).is_fresh());
    let failed = cache.entry(&3).or_try_insert_with(|| Err("no"));
    assert_eq!(failed, Err(Arc::new("no")));
    let all = cache.statistics();
    assert_eq!((all.inserts, all.replaced, all.removed), (5, 2, 1));
}

#[test]
fn computes_of_one_key_are_one_after_the_other_and_readers_always_find_it() {
    const EACH: u64 = if cfg!(miri) { 20 } else { 500 };
    let (cache, start) = (cache(), Barrier::new(4));
    let inside = AtomicBool::new(false);
    cache.insert(1, 0);
    thread::scope(|scope| {
        let compute = || {
            start.wait();
            for _ in 0..EACH {
                next_after(&cache, 1, || {
                    assert!(!inside.swap(true, Ordering::SeqCst));
                    thread::yield_now();
                    inside.store(false, Ordering::SeqCst);
                });
            }
        };
        let workers = [(); 3].map(|()| scope.spawn(compute));
        start.wait();
        let mut last = 0;
        while !workers.iter().all(|worker| worker.is_finished()) {
            let now = cache
                .get(&1)
                .expect("the old one until the new one is there");
            assert!(now >= last);
            last = now;
        }
    });
    assert_eq!(cache.get(&1), Some(3 * EACH));
    let all = cache.statistics();
    assert_eq!((all.entries, all.replaced), (1, 3 * EACH));
}

#[test]
fn a_compute_that_panics_or_is_dropped_leaves_the_entry_as_it_was() {
    let cache = cache();
    for there in [None, Some(7)] {
        panics(|| cache.entry(&1).and_upsert_with(|_| expected_panic()));
        assert_eq!(cache.get(&1), there);
        {
            let compute = cache
                .entry(&1)
                .and_upsert_with_async(|_| std::future::pending());
            assert!(poll(&mut pin!(compute)).is_pending());
        }
        assert_eq!(cache.get(&1), there);
        assert_eq!(*cache.entry(&1).and_upsert_with(|_| 7).value(), 7);
    }
    // In a clone, and in the weigher.
    struct Fragile(bool);
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            if self.0 {
                expected_panic()
            } else {
                Self(false)
            }
        }
    }
    let weighs = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&weighs);
    let cache = Cache::builder()
        .max_weight(100, move |_: &u64, _: &Fragile| {
            if flag.load(Ordering::Relaxed) {
                1
            } else {
                expected_panic()
            }
        })
        .build();
    cache.insert(1, Fragile(false));
    panics(|| cache.entry(&1).and_upsert_with(|_| Fragile(true)));
    weighs.store(false, Ordering::Relaxed);
    panics(|| cache.entry(&1).and_upsert_with(|_| Fragile(false)));
    panics(|| cache.replace(1, Fragile(false)));
    weighs.store(true, Ordering::Relaxed);
    assert!(cache.statistics().replaced == 0 && cache.remove(&1));
    cache.insert(1, Fragile(true));
    panics(|| cache.entry(&1).and_upsert_with(|_| Fragile(false)));
    panics(|| cache.replace(1, Fragile(false)));
    assert!(cache.statistics().replaced == 0 && cache.remove(&1));
}

type Change = fn(&Numbers);

const REMOVE: [Change; 4] = [
    |cache| _ = cache.remove(&1),
    |cache| _ = cache.take(&1),
    |cache| cache.invalidate_all(),
    |cache| _ = cache.invalidate_entries_if(|_, _| true),
];

/// Also if the compute goes through another tenant's view.
#[test]
fn what_was_computed_before_a_removal_is_not_kept() {
    for remove in REMOVE {
        for is_there in [false, true] {
            let cache = cache();
            let (tenant, other) = (cache.tenant("tenant"), cache.tenant("other"));
            let views = if is_there {
                &[&cache, &tenant, &other][..]
            } else {
                &[&tenant]
            };
            for view in views {
                if is_there {
                    tenant.insert(1, 7);
                }
                let before = cache.statistics().removed;
                next_after(view, 1, || remove(&tenant));
                assert!(!cache.contains_key(&1));
                assert_eq!(cache.statistics().removed, before + u64::from(is_there));
                // Nor is what is put in its place.
                next_after(view, 1, || {
                    remove(&tenant);
                    tenant.insert(1, 10);
                });
                assert_eq!(cache.take(&1), Some(10));
                // A removal finds nothing to remove.
                tenant.insert(1, 7);
                let result = view.entry(&1).and_compute_with(|_| {
                    remove(&tenant);
                    Op::Remove
                });
                assert_eq!(result, CompResult::StillNone(1));
            }
        }
    }
    // Invalidations of other tenants leave the value.
    let cache = cache();
    let (tenant, other) = (cache.tenant("tenant"), cache.tenant("other"));
    tenant.insert(1, 7);
    next_after(&tenant, 1, || other.invalidate_all());
    next_after(&tenant, 1, || {
        _ = tenant.invalidate_entries_if(|_, _| false)
    });
    next_after(&other, 1, || other.invalidate_all());
    assert_eq!((cache.get(&1), tenant.entry_count()), (Some(10), 1));
}

#[test]
fn what_is_inserted_during_a_compute_stays() {
    let cache = cache();
    for is_there in [false, true] {
        for op in [Op::Put(1), Op::Remove, Op::Nop] {
            cache.remove(&1);
            if is_there {
                cache.insert(1, 7);
            }
            let op = |_| {
                cache.insert(1, 10);
                op
            };
            let result = cache.entry(&1).and_compute_with(op);
            assert_eq!(cache.get(&1), Some(10), "after {result:?}");
        }
    }
    cache.insert(1, 7);
    next_after(&cache, 1, || assert!(!cache.insert_if_absent(1, 10)));
    assert_eq!(cache.get(&1), Some(8));
}

#[test]
fn what_was_evicted_or_has_expired_meanwhile_is_put_in_anew() {
    let cache: Numbers = Cache::with_entries(10);
    cache.insert(1, 7);
    next_after(&cache, 1, || {
        (100..1000).for_each(|key| cache.insert(key, key));
        assert!(!cache.contains_key(&1));
    });
    assert_eq!(cache.get(&1), Some(8));
    cache.insert(2, 7);
    let result = cache.entry(&2).and_compute_with(|_| {
        (100..1000).for_each(|key| cache.insert(key, key));
        Op::Remove
    });
    assert_eq!(
        (result, cache.entry_count()),
        (CompResult::StillNone(2), 10)
    );
    // Whether it is there still, or has been taken out.
    for run_pending in [false, true] {
        let clock = ManualClock::default();
        let minute = Duration::from_secs(60);
        let cache: Numbers = Cache::builder()
            .max_entries(10)
            .time_to_live(minute)
            .clock(clock.clone())
            .build();
        cache.insert(1, 7);
        let expire = || {
            clock.advance(minute);
            if run_pending {
                cache.run_pending();
            }
        };
        next_after(&cache, 1, expire);
        assert_eq!(cache.get(&1), Some(8));
        let put = |entry: Option<Entry<_, _>>| {
            assert!(entry.is_some());
            Op::PutWithTtl(9, minute / 2)
        };
        cache.entry(&1).and_compute_with(put);
        assert_eq!(cache.peek(&1).unwrap().time_left(), Some(minute / 2));
        clock.advance(minute / 2);
        let gone = cache.entry(&1).and_compute_with(|_| Op::Nop);
        assert_eq!(gone, CompResult::StillNone(1));
        let all = cache.statistics();
        assert_eq!((all.inserts, all.expired, all.replaced), (3, 1, 1));
    }
}

/// A listener hears of each entry once.
#[test]
fn a_listener_hears_what_a_compute_takes_out() {
    let told: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let tell = Arc::clone(&told);
    let cache = Cache::builder()
        .max_weight(100, |_: &u64, &weight: &u64| weight)
        .eviction_listener(move |_, &value, cause: Cause| {
            *tell
                .lock()
                .unwrap()
                .entry(format!("{cause:?} {value}"))
                .or_default() += 1;
        })
        .build();
    let heard = |expected: &[(&str, u64)]| {
        let told = std::mem::take(&mut *told.lock().unwrap());
        let expected = expected
            .iter()
            .map(|&(what, times)| (what.to_owned(), times));
        assert_eq!(told, expected.collect());
    };
    cache.entry(&1).and_upsert_with(|_| 5);
    cache.entry(&1).and_compute_with(|_| Op::Nop);
    heard(&[]);
    cache.entry(&1).and_upsert_with(|_| 4);
    heard(&[("Replaced 5", 1)]);
    cache.entry(&1).and_compute_with(|_| Op::Remove);
    heard(&[("Removed 4", 1)]);
    // More than one batch of others makes room for it.
    (100..200).for_each(|key| cache.insert(key, 1));
    cache
        .entry(&100)
        .and_upsert_with(|entry| 90 + entry.unwrap().into_value());
    assert_eq!((cache.get(&100), cache.weighted_bytes()), (Some(91), 100));
    heard(&[("Evicted 1", 90), ("Replaced 1", 1)]);
    // A refused value is dropped, and the old entry is gone too.
    cache.entry(&100).and_upsert_with(|_| 101);
    heard(&[("Refused 101", 1), ("Removed 91", 1)]);
    assert!(!cache.contains_key(&100));
    // The listener does not hear of a value that is not kept.
    cache.insert(1, 1);
    cache.entry(&1).and_upsert_with(|_| {
        cache.insert(1, 2);
        3
    });
    heard(&[("Replaced 1", 1)]);
    assert_eq!(cache.get(&1), Some(2));
}

#[test]
fn a_call_inside_of_a_compute_of_its_key_panics_or_is_not_kept() {
    let cache = cache();
    let nested = || cache.entry(&1).and_upsert_with(|_| 9);
    quietly(|| {
        panics(|| cache.entry(&1).and_upsert_with(|_| nested().into_value()));
        panics(|| cache.get_with(&1, || nested().into_value()));
        let mut outer = Box::pin(
            cache
                .entry(&1)
                .and_upsert_with_async(|_| async { nested().into_value() }),
        );
        panics(|| poll(&mut outer.as_mut()));
    });
    assert_eq!(cache.get(&1), None);
    next_after(&cache, 1, || assert_eq!(cache.get_with(&1, || 5), 5));
    assert_eq!(cache.get(&1), Some(1));
    next_after(&cache, 1, || _ = next_after(&cache, 2, || ()));
    assert_eq!((cache.get(&1), cache.get(&2)), (Some(2), Some(1)));
}

#[test]
fn a_loader_that_finds_nothing_answers_all_who_wait() {
    let cache = cache();
    let mut load = pin!(cache.optionally_get_with_async(&1, async {
        pend().await;
        None
    }));
    let mut other = pin!(cache.optionally_get_with_async(&1, async { unreachable!() }));
    assert!(poll(&mut load).is_pending() && poll(&mut other).is_pending());
    assert_eq!(poll(&mut load), Poll::Ready(None));
    assert_eq!(poll(&mut other), Poll::Ready(None));
    let mut again = pin!(cache.optionally_get_with_async(&1, async { Some(3) }));
    assert_eq!(poll(&mut again), Poll::Ready(Some(3)));
    assert_eq!(cache.get(&1), Some(3));
}

#[test]
fn computes_and_loads_of_one_key_wait_for_each_other() {
    let cache = cache();
    let add = |entry: Option<Entry<u64, u64>>| async move {
        pend().await;
        entry.map_or(0, Entry::into_value) + 1
    };
    let mut compute = pin!(cache.entry(&1).and_upsert_with_async(add));
    let mut load = pin!(cache.get_with_async(&1, async { unreachable!() }));
    let mut other = pin!(cache.entry(&1).and_upsert_with_async(add));
    assert!(poll(&mut compute).is_pending());
    assert!(poll(&mut load).is_pending() && poll(&mut other).is_pending());
    assert!(matches!(poll(&mut compute), Poll::Ready(entry) if *entry.value() == 1));
    assert_eq!(poll(&mut load), Poll::Ready(1));
    assert!(poll(&mut other).is_pending());
    assert!(matches!(poll(&mut other), Poll::Ready(entry) if *entry.value() == 2));
    // A load that is under way.
    let mut load = pin!(cache.get_with_async(&2, async {
        pend().await;
        5
    }));
    let mut compute = pin!(cache.entry(&2).and_upsert_with_async(add));
    assert!(poll(&mut load).is_pending() && poll(&mut compute).is_pending());
    assert_eq!(poll(&mut load), Poll::Ready(5));
    assert!(poll(&mut compute).is_pending());
    assert!(matches!(poll(&mut compute), Poll::Ready(entry) if *entry.value() == 6));
    // Loads that come after a removal do not get what was computed before it, and other computes wait still.
    for remove in REMOVE {
        cache.insert(1, 7);
        let mut compute = pin!(cache.entry(&1).and_upsert_with_async(add));
        assert!(poll(&mut compute).is_pending());
        remove(&cache);
        let mut load = pin!(cache.get_with_async(&1, async { 10 }));
        let mut other = pin!(cache.entry(&1).and_upsert_with_async(add));
        assert!(poll(&mut load).is_pending() && poll(&mut other).is_pending());
        assert!(matches!(poll(&mut compute), Poll::Ready(entry) if *entry.value() == 8));
        assert_eq!(poll(&mut load), Poll::Ready(10));
        assert!(poll(&mut other).is_pending());
        assert!(matches!(poll(&mut other), Poll::Ready(entry) if *entry.value() == 11));
    }
    let all = cache.statistics();
    assert_eq!((all.loads, all.load_failures), (5, 0));
}

#[test]
fn futures_of_loads_and_computes_may_change_threads() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let cache = cache();
    let mut load = pin!(is_send(cache.get_with_async(&2, async { 2 })));
    assert_eq!(poll(&mut load), Poll::Ready(2));
    let compute = cache.entry(&1).and_compute_with_async(async |_| Op::Put(2));
    let mut compute = pin!(is_send(compute));
    assert!(matches!(
        poll(&mut compute),
        Poll::Ready(CompResult::Inserted(_))
    ));
}

/// Rows that change, and are invalidated after that, while others compute from what they were.
#[test]
fn no_caller_gets_what_was_computed_before_an_invalidation_that_it_came_after() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 3000 };
    let cache: Numbers = Cache::builder()
        .max_weight(1000, |_, &value| 1 + value % 3)
        .build();
    let tenant = cache.tenant("tenant");
    let (row, invalidated) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for worker in 0..3 {
            let (view, row, invalidated) = (
                if worker == 0 { &cache } else { &tenant },
                &row,
                &invalidated,
            );
            scope.spawn(move || {
                while invalidated.load(Ordering::SeqCst) < ROUNDS {
                    let least = invalidated.load(Ordering::SeqCst);
                    let value = match worker {
                        0 | 1 => view.entry(&1).and_upsert_with(|entry| {
                            let old =
                                entry.map_or_else(|| row.load(Ordering::SeqCst), Entry::into_value);
                            thread::yield_now();
                            old
                        }),
                        _ => view.entry(&1).or_insert_with(|| row.load(Ordering::SeqCst)),
                    };
                    assert!(*value.value() >= least, "{value:?} after {least}");
                }
            });
        }
        for round in 1..=ROUNDS {
            row.store(round, Ordering::SeqCst);
            match round % 4 {
                0 => _ = cache.remove(&1),
                // Whose entry it may be.
                1 => {
                    tenant.invalidate_all();
                    cache.invalidate_all();
                }
                2 => cache.insert(1, round),
                _ => _ = cache.invalidate_entries_if(|_, _| true),
            }
            invalidated.store(round, Ordering::SeqCst);
        }
    });
}

#[test]
fn of_callers_that_insert_if_absent_one_inserts() {
    let (cache, inserted, start) = (cache(), AtomicU64::new(0), Barrier::new(4));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (cache, inserted, start) = (&cache, &inserted, &start);
            scope.spawn(move || {
                start.wait();
                for key in 0..200 {
                    inserted.fetch_add(
                        u64::from(cache.insert_if_absent(key, thread)),
                        Ordering::Relaxed,
                    );
                }
            });
        }
    });
    let all = cache.statistics();
    assert_eq!(
        (inserted.into_inner(), all.inserts, all.replaced),
        (200, 200, 0)
    );
    // An entry that has expired is none, and one that is refused was not inserted.
    let clock = ManualClock::default();
    let cache = Cache::builder()
        .max_weight(10, |_: &u64, &weight: &u64| weight)
        .clock(clock.clone())
        .build();
    cache.insert_with_ttl(1, 2, Duration::from_secs(1));
    assert!(!cache.insert_if_absent(1, 3) && !cache.insert_if_absent(2, 11));
    clock.advance(Duration::from_secs(1));
    assert!(cache.insert_if_absent(1, 3));
    assert_eq!(
        (cache.replace(1, 4), cache.replace(1, 11)),
        (Some(3), Some(4))
    );
    assert_eq!((cache.get(&1), cache.replace(1, 1)), (None, None));
    let all = cache.statistics();
    assert_eq!(
        (all.expired, all.refused, all.replaced, all.removed),
        (1, 2, 1, 1)
    );
    cache.insert_with_ttl(1, 2, Duration::from_secs(1));
    clock.advance(Duration::from_secs(1));
    assert_eq!(cache.replace(1, 3), None, "what has expired is none");
    // What a load that is under way brings is not kept.
    let mut load = pin!(cache.get_with_async(&7, async {
        pend().await;
        5
    }));
    assert!(poll(&mut load).is_pending() && cache.insert_if_absent(7, 6));
    assert_eq!((poll(&mut load), cache.get(&7)), (Poll::Ready(5), Some(6)));
}

#[test]
fn a_peek_is_no_use_and_knows_the_time_left() {
    let (clock, second) = (ManualClock::default(), Duration::from_secs(1));
    let cache: Numbers = Cache::builder()
        .max_entries(10)
        .time_to_idle(60 * second)
        .clock(clock.clone())
        .build();
    cache.insert(1, 2);
    let left = |key| cache.peek(key).map(|entry| entry.time_left().unwrap());
    clock.advance(50 * second);
    assert_eq!((left(&1), left(&2)), (Some(10 * second), None));
    assert_eq!(cache.get(&1), Some(2));
    assert_eq!(left(&1), Some(60 * second));
    let held = cache.peek(&1).unwrap();
    clock.advance(60 * second);
    assert_eq!((held.time_left(), left(&1)), (Some(Duration::ZERO), None));
    drop(held);
    let all = cache.statistics();
    assert_eq!((all.hits, all.misses), (1, 0));
    let cache: Numbers = Cache::with_entries(10);
    cache.insert(1, 2);
    assert_eq!(
        (
            cache.peek(&1).unwrap().time_left(),
            *cache.get_ref(&1).unwrap()
        ),
        (None, 2)
    );
    // A peek does not keep an entry: key 2 is evicted like the others.
    (2..11).for_each(|key| cache.insert(key, key));
    (0..100).for_each(|_| assert_eq!(cache.peek(&2).map(|found| *found), Some(2)));
    (11..100).for_each(|key| cache.insert(key, key));
    assert!(cache.peek(&2).is_none());
}

/// Keys that are unequal to themselves: nothing is found, and no thread waits for ever.
#[test]
fn computes_of_keys_that_lie_end_and_do_not_fail() {
    #[derive(Debug, Clone)]
    struct Liar(u64);
    impl Hash for Liar {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl PartialEq for Liar {
        fn eq(&self, _: &Self) -> bool {
            false
        }
    }
    impl Eq for Liar {}
    let cache: Cache<Liar, u64> = Cache::with_entries(10);
    for round in 0..100 {
        let entry = cache.entry(&Liar(1)).and_upsert_with(|entry| {
            assert!(entry.is_none());
            round
        });
        assert_eq!(*entry.value(), round);
        assert_eq!(cache.optionally_get_with(&Liar(1), || None), None);
        assert_eq!(
            cache.optionally_get_with(&Liar(1), || Some(round)),
            Some(round)
        );
    }
    assert!(cache.entry_count() <= 10);
}

/// As with a value of the same weight.
#[test]
fn a_heavier_value_is_kept_if_an_invalidation_has_left_its_entry() {
    let cache = weighed(1000);
    let (tenant, other) = (cache.tenant("tenant"), cache.tenant("other"));
    tenant.insert(1, 7);
    for view in [&cache, &tenant] {
        next_after(view, 1, || _ = view.invalidate_entries_if(|_, _| false));
    }
    next_after(&other, 1, || other.invalidate_all());
    assert_eq!((cache.get(&1), tenant.entry_count()), (Some(10), 1));
    assert_eq!(cache.weighted_bytes(), 10);
}

/// While it waits it is found, and removals take it.
#[test]
fn a_heavier_value_waits_for_room_as_any_inserted_entry() {
    let leave: fn(&Numbers) = |cache| _ = cache.invalidate_entries_if(|_, _| false);
    let changes = [(leave, Some(150))].into_iter();
    let changes = changes.chain(REMOVE.map(|remove| (remove, None)));
    for (change, expected) in changes {
        for compute in [true, false] {
            // The listener's panics are its own.
            let found: Arc<Mutex<Vec<Option<u64>>>> = Arc::default();
            let finds = Arc::clone(&found);
            let cache = with_listener(200, move |cache| {
                let before = cache.get(&1);
                change(&cache.tenant("tenant"));
                *finds.lock().unwrap() = vec![before, cache.get(&1)];
            });
            let tenant = cache.tenant("tenant");
            tenant.insert(1, 5);
            (100..295).for_each(|key| cache.insert(key, 1));
            if compute {
                let entry = cache.entry(&1).and_upsert_with(|_| 150);
                assert_eq!(*entry.value(), 150);
            } else {
                cache.insert(1, 150);
            }
            assert_eq!(*found.lock().unwrap(), [Some(150), expected]);
            assert_eq!(cache.get(&1), expected);
            assert_eq!(tenant.entry_count(), u64::from(expected.is_some()));
            assert_eq!(tenant.weighted_bytes(), expected.unwrap_or(0));
        }
    }
}

#[test]
fn a_heavier_value_keeps_the_uses_of_the_entry() {
    let left = |put: fn(&Numbers, u64)| {
        let cache = weighed(1000);
        (0..900).for_each(|key| cache.insert(key, 1));
        (0..300).for_each(|n| assert!(cache.get(&(n % 100)).is_some()));
        (0..100).for_each(|key| put(&cache, key));
        (10_000..12_000).for_each(|key| cache.insert(key, 1));
        (0..100).filter(|key| cache.contains_key(key)).count()
    };
    let inserted = left(|cache, key| cache.insert(key, 2));
    let computed = left(|cache, key| _ = cache.entry(&key).and_upsert_with(|_| 2));
    assert_eq!(computed, inserted);
    assert!(inserted > 90);
}

/// Through every view.
#[test]
fn what_was_computed_from_an_evicted_entry_is_not_kept_after_its_tenants_invalidation() {
    for remove in REMOVE {
        let cache = weighed(10);
        let (tenant, other) = (cache.tenant("tenant"), cache.tenant("other"));
        for view in [&cache, &tenant, &other] {
            for above in [&cache, &tenant] {
                tenant.insert(1, 5);
                next_after(view, 1, || {
                    cache.insert(2, 10);
                    assert!(!cache.contains_key(&1));
                    remove(above);
                });
                assert_eq!(cache.get(&1), None);
            }
        }
    }
}

/// Also if a second compute leads by then.
#[test]
fn a_load_that_has_waited_for_a_compute_finds_its_value() {
    let cache = cache();
    let add = |entry: Option<Entry<u64, u64>>| async move {
        pend().await;
        entry.map_or(0, Entry::into_value) + 1
    };
    let mut first = pin!(cache.entry(&1).and_upsert_with_async(add));
    let mut second = pin!(cache.entry(&1).and_upsert_with_async(add));
    let mut load = pin!(cache.get_with_async(&1, async { unreachable!() }));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    assert!(poll(&mut load).is_pending());
    assert!(poll(&mut first).is_ready() && poll(&mut second).is_pending());
    assert_eq!(poll(&mut load), Poll::Ready(1));
    let all = cache.statistics();
    assert_eq!((all.loads, all.load_failures), (0, 0));
}

/// The end of a compute wakes all that wait, not the first alone.
#[test]
fn a_waiting_compute_that_is_no_longer_polled_holds_up_no_other() {
    #[derive(Default)]
    struct Wakes(AtomicU64);
    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (cache, wakes) = (cache(), Arc::<Wakes>::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let add = |entry: Option<Entry<u64, u64>>| async move {
        pend().await;
        entry.map_or(0, Entry::into_value) + 1
    };
    let [mut first, mut left, mut last] =
        [(); 3].map(|()| Box::pin(cache.entry(&1).and_upsert_with_async(add)));
    assert!(poll(&mut first.as_mut()).is_pending() && poll(&mut left.as_mut()).is_pending());
    let waits = last.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(waits.is_pending());
    assert!(poll(&mut first.as_mut()).is_ready());
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert!(poll(&mut last.as_mut()).is_pending() && poll(&mut last.as_mut()).is_ready());
    assert_eq!(cache.get(&1), Some(2));
}

#[test]
fn computes_and_loads_that_wait_clone_no_key() {
    static CLONES: AtomicU64 = AtomicU64::new(0);
    #[derive(Debug, PartialEq, Eq, Hash)]
    struct Key;
    impl Clone for Key {
        fn clone(&self) -> Self {
            CLONES.fetch_add(1, Ordering::Relaxed);
            Self
        }
    }
    let cache: Cache<Key, u64> = Cache::with_entries(10);
    let compute = || {
        cache
            .entry(&Key)
            .and_upsert_with_async(|_| std::future::pending())
    };
    let mut computes: Vec<_> = (0..10).map(|_| Box::pin(compute())).collect();
    let mut load = pin!(cache.get_with_async(&Key, async { 1 }));
    for compute in &mut computes {
        assert!(poll(&mut compute.as_mut()).is_pending());
    }
    assert!(poll(&mut load).is_pending());
    assert_eq!(CLONES.load(Ordering::Relaxed), 1);
}

/// Such flights stay where a key's `Eq` panics as they end. They may come as fast as they are taken out.
#[test]
fn a_compute_passes_any_number_of_ended_flights() {
    static CACHE: OnceLock<Cache<Key, u64>> = OnceLock::new();
    thread_local! {
        static ENDED: Cell<u32> = const { Cell::new(0) };
        static PANICS: Cell<bool> = const { Cell::new(false) };
    }
    #[derive(Debug)]
    struct Key;
    impl Hash for Key {
        fn hash<H: Hasher>(&self, _: &mut H) {}
    }
    impl PartialEq for Key {
        fn eq(&self, _: &Self) -> bool {
            if PANICS.get() {
                expected_panic();
            }
            true
        }
    }
    impl Eq for Key {}
    impl Drop for Key {
        fn drop(&mut self) {
            assert!(!stillpoint::global().is_reading());
        }
    }
    impl Clone for Key {
        fn clone(&self) -> Self {
            let ended = ENDED.replace(0);
            if ended > 0 {
                let cache = CACHE.get().expect("a cache");
                let found = cache.optionally_get_with(&Self, || {
                    PANICS.set(true);
                    None
                });
                PANICS.set(false);
                assert_eq!(found, None);
                ENDED.set(ended - 1);
            }
            Self
        }
    }
    let cache = CACHE.get_or_init(|| Cache::with_entries(10));
    ENDED.set(20);
    let entry = cache.entry(&Key).and_upsert_with(|_| 1);
    assert_eq!((*entry.value(), ENDED.get()), (1, 0));
}
