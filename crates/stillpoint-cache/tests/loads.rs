//! Loads: one for all callers, whatever becomes of the loader.

mod helpers;

use helpers::{pend, poll};
use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::Poll,
    thread,
};
use stillpoint_cache::Cache;

fn cache() -> Cache<u32, u32> {
    Cache::with_bytes(1 << 20)
}

#[test]
fn many_callers_share_one_load() {
    let (cache, loads, start) = (cache(), AtomicUsize::new(0), Barrier::new(8));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                for key in 0..100 {
                    let value = cache.get_with(&key, || {
                        loads.fetch_add(1, Ordering::Relaxed);
                        thread::yield_now();
                        key * 2
                    });
                    assert_eq!(value, key * 2);
                }
            });
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 100);
    assert_eq!(cache.statistics().loads, 100);
}

#[test]
fn an_error_is_for_all_who_wait_and_is_not_kept() {
    let cache = cache();
    let (began, begin) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let leader = scope.spawn(|| {
            cache.try_get_with(&1, move || {
                began.send(()).unwrap();
                ended.recv().unwrap();
                Err::<u32, &str>("no answer")
            })
        });
        begin.recv().unwrap();
        let mut waiter = pin!(cache.try_get_with_async(&1, async { Ok::<u32, &str>(7) }));
        assert!(poll(&mut waiter).is_pending());
        end.send(()).unwrap();
        assert_eq!(*leader.join().unwrap().unwrap_err(), "no answer");
        let Poll::Ready(Err(error)) = poll(&mut waiter) else {
            panic!("the flight has ended");
        };
        assert_eq!(*error, "no answer");
    });
    assert_eq!(cache.get_with(&1, || 8), 8);
    assert_eq!(cache.statistics().load_failures, 1);
}

#[test]
fn a_panic_is_its_callers_alone() {
    let cache = cache();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        cache.get_with(&1, || std::panic::resume_unwind(Box::new("expected")))
    }));
    assert!(panicked.is_err());
    assert_eq!(cache.get_with(&1, || 5), 5);
}

#[test]
fn a_load_that_is_cancelled_is_taken_up_by_another_caller() {
    let cache = cache();
    let mut first = Box::pin(cache.get_with_async(&1, std::future::pending::<u32>()));
    assert!(poll(&mut first.as_mut()).is_pending());
    let mut second = pin!(cache.get_with_async(&1, async {
        pend().await;
        6
    }));
    assert!(poll(&mut second).is_pending(), "it waits");
    drop(first);
    assert!(poll(&mut second).is_pending(), "it loads");
    assert_eq!(poll(&mut second), Poll::Ready(6));
    assert_eq!(cache.get(&1), Some(6));
    let statistics = cache.statistics();
    assert_eq!((statistics.loads, statistics.load_failures), (1, 1));
}

#[test]
fn a_loader_may_ask_for_its_own_key() {
    let cache = cache();
    let value = cache.get_with(&1, || cache.get_with(&1, || 3) + cache.get_with(&2, || 4));
    assert_eq!((value, cache.get(&1), cache.get(&2)), (7, Some(7), Some(4)));
    let mut outer = pin!(cache.get_with_async(&3, async {
        pend().await;
        cache.get_with_async(&3, async { 1 }).await + 1
    }));
    assert!(poll(&mut outer).is_pending());
    assert_eq!(poll(&mut outer), Poll::Ready(2));
}

#[test]
fn a_waiter_with_another_error_loads_itself() {
    let cache = cache();
    let mut first = Box::pin(cache.try_get_with_async(&1, async {
        pend().await;
        Err::<u32, String>("no".to_owned())
    }));
    assert!(poll(&mut first.as_mut()).is_pending());
    let mut second = pin!(cache.try_get_with_async(&1, async { Ok::<u32, Infallible>(9) }));
    assert!(poll(&mut second).is_pending());
    assert!(matches!(poll(&mut first.as_mut()), Poll::Ready(Err(_))));
    assert!(matches!(poll(&mut second), Poll::Ready(Ok(9))));
}

type Invalidate = fn(&Cache<u32, u32>);

const INVALIDATE: [Invalidate; 4] = [
    |cache| assert!(!cache.remove(&1)),
    |cache| assert_eq!(cache.take(&1), None),
    |cache| cache.invalidate_all(),
    |cache| assert_eq!(cache.invalidate_entries_if(|_, _| false), 0),
];

/// A load that began before is for those that waited before.
#[test]
fn what_is_loaded_meanwhile_is_outdated_by_an_invalidation() {
    for invalidate in INVALIDATE {
        let cache = cache();
        let old = || async {
            pend().await;
            1
        };
        let (mut leader, mut waiter) = (
            pin!(cache.get_with_async(&1, old())),
            pin!(cache.get_with_async(&1, async { unreachable!() })),
        );
        assert!(poll(&mut leader).is_pending() && poll(&mut waiter).is_pending());
        invalidate(&cache);
        assert_eq!(cache.get_with(&1, || 2), 2, "after it");
        assert_eq!(poll(&mut leader), Poll::Ready(1));
        assert_eq!(poll(&mut waiter), Poll::Ready(1));
        assert_eq!(cache.get(&1), Some(2));
        // Also where no other load came.
        cache.remove(&1);
        let mut leader = pin!(cache.get_with_async(&1, old()));
        assert!(poll(&mut leader).is_pending());
        invalidate(&cache);
        assert_eq!(poll(&mut leader), Poll::Ready(1));
        assert_eq!(cache.get(&1), None);
        let all = cache.statistics();
        assert_eq!((all.entries, all.inserts), (0, all.removed));
    }
}

#[test]
fn a_tenant_outdates_loads_of_its_own_and_of_those_below() {
    let cache = cache();
    let tenant = cache.tenant("tenant");
    let (below, other) = (tenant.tenant("below"), cache.tenant("another"));
    let views = [&tenant, &below, &other, &cache];
    let keys = views.map(NameLength::name_length);
    let mut loads = [0, 1, 2, 3].map(|at| {
        Box::pin(views[at].get_with_async(&keys[at], async {
            pend().await;
            1
        }))
    });
    for load in &mut loads {
        assert!(poll(&mut load.as_mut()).is_pending());
    }
    tenant.invalidate_all();
    for load in &mut loads {
        assert!(poll(&mut load.as_mut()).is_ready());
    }
    let kept = keys.map(|key| cache.contains_key(&key));
    assert_eq!(kept, [false, false, true, true]);
}

trait NameLength {
    fn name_length(&self) -> u32;
}

impl NameLength for Cache<u32, u32> {
    fn name_length(&self) -> u32 {
        self.tenant_name().len() as u32
    }
}

/// Rows that change, and are invalidated after that, while others load them.
#[test]
fn no_caller_gets_what_was_loaded_before_an_invalidation_that_it_came_after() {
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 5000 };
    let cache: Cache<u32, usize> = Cache::with_entries(2);
    let (row, invalidated) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for reader in 0..3 {
            let (cache, row, invalidated) = (&cache, &row, &invalidated);
            scope.spawn(move || {
                while invalidated.load(Ordering::SeqCst) < ROUNDS {
                    let least = invalidated.load(Ordering::SeqCst);
                    let value = match reader {
                        0 => cache.get(&1).unwrap_or(least),
                        _ => cache.get_with(&1, || {
                            let value = row.load(Ordering::SeqCst);
                            thread::yield_now();
                            value
                        }),
                    };
                    assert!(value >= least, "{value} after {least}");
                }
            });
        }
        for round in 1..=ROUNDS {
            row.store(round, Ordering::SeqCst);
            match round % 2 {
                0 => drop(cache.remove(&1)),
                _ => cache.invalidate_all(),
            }
            invalidated.store(round, Ordering::SeqCst);
        }
    });
}

/// Neither for a grace period nor beyond the cache.
#[test]
fn a_load_keeps_no_value_beside_the_entry() {
    let (cache, value) = (Cache::with_entries(1000), Arc::new(()));
    let count = || Arc::strong_count(&value) - 1;
    let section = stillpoint::read_lock();
    for key in 0..100 {
        drop(cache.get_with(&key, || Arc::clone(&value)));
    }
    assert_eq!(count(), 100);
    // One that others have waited for.
    let mut leader = Box::pin(cache.get_with_async(&200, async {
        pend().await;
        Arc::clone(&value)
    }));
    let mut waiter = Box::pin(cache.get_with_async(&200, async { unreachable!() }));
    assert!(poll(&mut leader.as_mut()).is_pending() && poll(&mut waiter.as_mut()).is_pending());
    assert!(poll(&mut leader.as_mut()).is_ready() && poll(&mut waiter.as_mut()).is_ready());
    drop((leader, waiter));
    assert_eq!(count(), 101);
    drop(section);
    drop(cache);
    assert_eq!(count(), 0);
}

/// Once for the caller, and not for others if there are none.
#[test]
fn a_loaded_value_is_cloned_once_where_no_other_waits() {
    struct Cloned(Arc<AtomicUsize>);
    impl Clone for Cloned {
        fn clone(&self) -> Self {
            self.0.fetch_add(1, Ordering::Relaxed);
            Self(Arc::clone(&self.0))
        }
    }
    let (cache, clones) = (Cache::with_entries(1000), Arc::<AtomicUsize>::default());
    drop(cache.get_with(&1, || Cloned(Arc::clone(&clones))));
    assert_eq!(clones.load(Ordering::Relaxed), 1);
    let mut load = pin!(cache.get_with_async(&2, async { Cloned(Arc::clone(&clones)) }));
    assert!(poll(&mut load.as_mut()).is_ready());
    assert_eq!(clones.load(Ordering::Relaxed), 2);
}
