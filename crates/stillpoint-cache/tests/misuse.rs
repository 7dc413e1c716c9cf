//! What programs do that a cache must survive: stale views, calls from inside of user code, panics,
//! limits that cannot all be kept.

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;
mod helpers;

use common::{eventually, returns};
use helpers::{Weighed, poll, press, weighed, with_listener};
use std::{
    cell::Cell,
    future::{Future, pending},
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
};
use stillpoint_cache::{Cache, InsertError, Op};

#[test]
fn a_view_of_a_deleted_tenant_sets_no_limits_and_invalidates_nothing() {
    let cache = weighed(100);
    (0..50).for_each(|key| cache.insert(key, 1));
    let tenant = cache.tenant("tenant");
    assert!(tenant.delete());
    tenant.set_max(10);
    tenant.set_min(1);
    tenant.set_low(2);
    tenant.set_high(3);
    tenant.invalidate_all();
    assert_eq!(tenant.invalidate_entries_if(|_, _| true), 0);
    let (min, low, high, max) = (cache.min(), cache.low(), cache.high(), cache.max());
    assert_eq!((min, low, high, max), (0, 0, u64::MAX, 100));
    press(&tenant);
    assert_eq!(cache.entry_count(), 50);
    tenant.insert(60, 1);
    assert_eq!((cache.entry_count(), tenant.get(&1)), (51, Some(1)));
}

#[test]
fn invalidating_a_tenant_leaves_alone_the_one_that_got_its_childs_number() {
    let cache = with_listener(100, |cache| {
        assert!(cache.tenant("p").tenant("c").delete());
        let other = cache.tenant("z");
        (10..19).for_each(|key| other.insert(key, 1));
    });
    let parent = cache.tenant("p");
    let _ = parent.tenant("c");
    parent.insert(1, 1);
    parent.invalidate_all();
    assert_eq!(
        (parent.weighted_bytes(), cache.tenant("z").weighted_bytes()),
        (0, 9)
    );
}

#[test]
fn a_refusal_names_the_limit_that_it_met_although_its_tenant_has_gone() {
    let cache = with_listener(100, |cache| assert!(cache.tenant("t").delete()));
    let tenant = cache.tenant("t");
    tenant.set_max(10);
    tenant.insert(1, 1);
    let error = tenant.try_insert(1, 11).unwrap_err();
    assert!(
        matches!(&error, InsertError::TooLarge { tenant, limit: 10, .. } if &**tenant == "t"),
        "{error}"
    );
}

#[test]
fn user_code_that_a_load_calls_may_ask_for_its_key() {
    let value = returns(|| {
        let slot: Arc<OnceLock<Weighed>> = Arc::default();
        let (own, asked) = (Arc::clone(&slot), AtomicBool::new(false));
        let cache = Cache::builder()
            .max_weight(100, move |&key: &u64, _: &u64| {
                if !asked.swap(true, Ordering::Relaxed) {
                    assert_eq!(own.get().unwrap().get_with(&key, || 5), 5);
                }
                1
            })
            .build();
        assert!(slot.set(cache.clone()).is_ok());
        cache.get_with(&1, || 4)
    });
    assert_eq!(value, 4);
    // A listener, which is told of the entry itself: it is refused.
    let value = returns(|| {
        let cache = with_listener(10, |cache| {
            assert_eq!(cache.get_with(&1, || 20), 20, "refused as well");
        });
        cache.insert(2, 10);
        poll(&mut pin!(cache.get_with_async(&1, async { 10 })))
    });
    assert_eq!(value, Poll::Ready(10));
}

#[test]
fn a_tenant_below_its_min_takes_from_others_before_itself() {
    let cache = weighed(1000);
    let (a, b) = (cache.tenant("a"), cache.tenant("b"));
    a.set_min(500);
    for _ in 0..2 {
        for key in 0..1500 {
            if b.get(&key).is_none() {
                b.insert(key, 1);
            }
        }
    }
    for _ in 0..10 {
        for key in 10_000..10_300 {
            if a.get(&key).is_none() {
                a.insert(key, 1);
            }
        }
    }
    assert_eq!(a.weighted_bytes(), 300);
    assert_eq!(a.statistics().evicted, 0);
}

#[test]
fn a_tenant_whose_next_entry_is_too_large_to_take_is_passed_over() {
    let cache = weighed(1000);
    let (a, b, c) = (cache.tenant("a"), cache.tenant("b"), cache.tenant("c"));
    a.set_min(100);
    a.insert(0, 600);
    (1..401).for_each(|key| b.insert(key, 1));
    c.try_insert(1000, 1).unwrap();
    c.try_insert(1001, 1).unwrap();
    assert_eq!(
        (a.weighted_bytes(), b.weighted_bytes(), c.weighted_bytes()),
        (600, 398, 2)
    );
    press(&cache);
    assert_eq!((a.weighted_bytes(), cache.weighted_bytes()), (600, 600));
}

#[test]
fn many_tenants_whose_next_entries_are_too_large_hide_none_that_gives_way() {
    let cache = weighed(10_000);
    for number in 0..90 {
        let tenant = cache.tenant(&number.to_string());
        tenant.set_min(50);
        // Chosen before others.
        tenant.set_high(10);
        tenant.insert(number, 100);
    }
    let (b, c) = (cache.tenant("b"), cache.tenant("c"));
    (1000..2000).for_each(|key| b.insert(key, 1));
    (2000..2500).for_each(|key| c.try_insert(key, 1).unwrap());
    assert_eq!(cache.weighted_bytes(), 10_000);
    assert_eq!(b.weighted_bytes() + c.weighted_bytes(), 1000);
}

#[test]
fn what_is_refused_evicts_nothing() {
    let cache = weighed(1000);
    let (a, b) = (cache.tenant("a"), cache.tenant("b"));
    a.set_min(300);
    (0..300).for_each(|key| a.insert(key, 1));
    (300..1000).for_each(|key| b.insert(key, 1));
    assert!(matches!(
        cache.try_insert(5000, 800),
        Err(InsertError::Full { limit: 1000, .. })
    ));
    assert_eq!((a.weighted_bytes(), b.weighted_bytes()), (300, 700));
    cache.try_insert(5000, 700).unwrap();
    assert_eq!((a.weighted_bytes(), b.weighted_bytes()), (300, 0));

    let cache = weighed(1000);
    let above = cache.tenant("above");
    let below = above.tenant("below");
    above.set_max(100);
    below.set_max(200);
    (0..100).for_each(|key| below.insert(key, 1));
    assert!(matches!(
        below.try_insert(5000, 150),
        Err(InsertError::TooLarge { limit: 100, .. })
    ));
    assert_eq!(below.weighted_bytes(), 100);
}

#[test]
fn the_min_of_a_tenant_is_spared_by_its_own_shrinker() {
    let cache = weighed(1000);
    let tenant = cache.tenant("tenant");
    tenant.set_min(200);
    (0..500).for_each(|key| tenant.insert(key, 1));
    press(&tenant);
    assert_eq!(tenant.weighted_bytes(), 200);
}

#[test]
fn an_entry_that_another_tenant_replaces_stays_in_its_account() {
    let cache = weighed(1000);
    let (a, b) = (cache.tenant("a"), cache.tenant("b"));
    a.set_min(100);
    (0..100).for_each(|key| a.insert(key, 1));
    (0..100).for_each(|key| b.insert(key, 2));
    assert_eq!((a.weighted_bytes(), b.weighted_bytes()), (200, 0));
    a.set_max(10);
    a.remove(&99);
    b.insert(99, 2);
    assert_eq!(b.weighted_bytes(), 2, "it was there no longer");
}

/// A waker that counts.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn poll_with<F: Future>(future: std::pin::Pin<&mut F>, wakes: &Arc<Wakes>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(wakes))))
}

#[test]
fn the_tasks_that_wait_are_woken_and_those_that_were_dropped_are_forgotten() {
    let cache = weighed(100);
    let (end, ended) = mpsc::channel::<()>();
    let (began, begin) = mpsc::channel();
    let tasks: Vec<_> = (0..3).map(|_| Arc::<Wakes>::default()).collect();
    thread::scope(|scope| {
        let cache = &cache;
        scope.spawn(move || {
            cache.get_with(&1, || {
                began.send(()).unwrap();
                ended.recv().unwrap();
                7
            })
        });
        begin.recv().unwrap();
        let mut waiters: Vec<_> = tasks
            .iter()
            .map(|_| Box::pin(cache.get_with_async(&1, async { 8 })))
            .collect();
        for (waiter, wakes) in waiters.iter_mut().zip(&tasks) {
            assert!(poll_with(waiter.as_mut(), wakes).is_pending());
            assert!(poll_with(waiter.as_mut(), wakes).is_pending());
        }
        drop(waiters.remove(1));
        assert_eq!(
            Arc::strong_count(&tasks[1]),
            1,
            "its waker is dropped with it"
        );
        // Moved to another task meanwhile.
        let other = Arc::<Wakes>::default();
        assert!(poll_with(waiters[1].as_mut(), &other).is_pending());
        end.send(()).unwrap();
        eventually(|| tasks[0].count() > 0 && other.count() > 0);
        assert_eq!((tasks[1].count(), tasks[2].count()), (0, 0));
        for waiter in &mut waiters {
            assert_eq!(poll_with(waiter.as_mut(), &tasks[0]), Poll::Ready(7));
        }
    });
}

#[test]
fn a_cancelled_or_panicking_load_wakes_those_that_wait() {
    let cache = weighed(100);
    for panics in [false, true] {
        let wakes = Arc::<Wakes>::default();
        let mut first = Box::pin(cache.get_with_async(&1, async move {
            let mut polled = false;
            std::future::poll_fn(|_| {
                if std::mem::replace(&mut polled, true) && panics {
                    std::panic::resume_unwind(Box::new("expected"));
                }
                Poll::<u64>::Pending
            })
            .await
        }));
        assert!(poll_with(first.as_mut(), &wakes).is_pending());
        let second_wakes = Arc::<Wakes>::default();
        let mut second = Box::pin(cache.get_with_async(&1, async { 9 }));
        assert!(poll_with(second.as_mut(), &second_wakes).is_pending());
        if panics {
            let polled = catch_unwind(AssertUnwindSafe(|| poll_with(first.as_mut(), &wakes)));
            assert!(polled.is_err());
        }
        drop(first);
        assert_eq!(second_wakes.count(), 1);
        assert_eq!(poll_with(second.as_mut(), &second_wakes), Poll::Ready(9));
        cache.invalidate_all();
    }
}

/// As in a loader that asks for its own key: that load is not kept.
#[test]
fn destructors_in_a_future_that_is_dropped_may_ask_for_its_key() {
    struct Asks<'a>(&'a Weighed, &'a AtomicU64);
    impl Drop for Asks<'_> {
        fn drop(&mut self) {
            self.1.store(self.0.get_with(&1, || 9), Ordering::Relaxed);
        }
    }
    fn drop_pending<F: Future>(future: F) {
        assert!(poll(&mut pin!(future)).is_pending());
    }
    for compute in [false, true] {
        let answer = returns(move || {
            let (cache, answer) = (weighed(100), AtomicU64::new(0));
            let work = async || {
                let _asks = Asks(&cache, &answer);
                pending().await
            };
            if compute {
                drop_pending(cache.entry(&1).and_upsert_with_async(|_| work()));
            } else {
                drop_pending(cache.get_with_async(&1, work()));
            }
            assert_eq!(cache.get(&1), None);
            answer.into_inner()
        });
        assert_eq!(answer, 9);
    }
}

/// A key or a value: of its calls of `Hash`, `Eq` and `Clone` on a thread one panics, if the test says which. All
/// have one hash. Also what they panic with.
#[derive(Debug)]
struct Fragile(u64);

thread_local!(static CALLS_LEFT: Cell<Option<usize>> = const { Cell::new(None) });

/// Destructors that have run in a section.
static DROPPED_INSIDE: AtomicUsize = AtomicUsize::new(0);

fn call() {
    let left = CALLS_LEFT.get();
    CALLS_LEFT.set(left.and_then(|left| left.checked_sub(1)));
    if left == Some(0) {
        std::panic::resume_unwind(Box::new(Fragile(0)));
    }
}

impl Hash for Fragile {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        call();
        hasher.write_u8(0);
    }
}

impl PartialEq for Fragile {
    fn eq(&self, other: &Self) -> bool {
        call();
        self.0 == other.0
    }
}

impl Eq for Fragile {}

impl Clone for Fragile {
    fn clone(&self) -> Self {
        call();
        Self(self.0)
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        let is_inside = stillpoint::global().is_reading();
        DROPPED_INSIDE.fetch_add(usize::from(is_inside), Ordering::Relaxed);
    }
}

type Fragiles = Cache<Fragile, Fragile>;

/// Calls of a cache that has an entry of key 1, and none of key 9.
const CALLS: [fn(&Fragiles); 12] = [
    |cache| cache.insert(Fragile(1), Fragile(2)),
    |cache| cache.insert(Fragile(9), Fragile(2)),
    |cache| _ = cache.replace(Fragile(1), Fragile(2)),
    |cache| _ = cache.insert_if_absent(Fragile(9), Fragile(2)),
    |cache| _ = cache.insert_if_absent(Fragile(1), Fragile(2)),
    |cache| _ = cache.get_with(&Fragile(9), || Fragile(2)),
    |cache| {
        let key = Fragile(9);
        let mut load = Box::pin(cache.get_with_async(&key, pending()));
        assert!(poll(&mut load.as_mut()).is_pending());
    },
    |cache| _ = cache.entry(&Fragile(1)).and_upsert_with(|_| Fragile(3)),
    |cache| {
        _ = cache
            .entry(&Fragile(9))
            .and_compute_with(|_| Op::Put(Fragile(3)))
    },
    |cache| _ = cache.take(&Fragile(1)),
    |cache| _ = cache.iter().count(),
    |cache| cache.invalidate_all(),
];

/// Beside a load of another key, so that the new load's key is compared.
#[test]
fn wherever_user_code_panics_no_destructor_runs_in_a_section_and_no_load_stays() {
    let panics = |call: fn(&Fragiles), after: usize| {
        let told = |_: &Fragile, _: &Fragile, _| ();
        let cache = Fragiles::builder().max_entries(3).eviction_listener(told);
        let cache = cache.build();
        (1..4).for_each(|key| cache.insert(Fragile(key), Fragile(key)));
        let other = Fragile(7);
        let mut beside = Box::pin(cache.get_with_async(&other, pending()));
        assert!(poll(&mut beside.as_mut()).is_pending());
        CALLS_LEFT.set(Some(after));
        let result = catch_unwind(AssertUnwindSafe(|| call(&cache)));
        let panics = CALLS_LEFT.replace(None).is_none();
        drop(result);
        cache.remove(&Fragile(9));
        assert_eq!(cache.get_with(&Fragile(9), || Fragile(5)).0, 5);
        assert_eq!(cache.get(&Fragile(9)).map(|value| value.0), Some(5));
        panics
    };
    for (number, call) in CALLS.into_iter().enumerate() {
        let all = returns(move || (0..).take_while(|&after| panics(call, after)).count());
        assert!((2..100).contains(&all), "{all} calls");
        let inside = DROPPED_INSIDE.load(Ordering::Relaxed);
        assert_eq!(inside, 0, "call {number}");
    }
}

/// A clone that replaces what it is cloned from: what the call has cloned first is dropped, too.
#[test]
fn what_a_replacement_has_cloned_for_nothing_is_dropped_outside_of_sections() {
    static CACHE: OnceLock<Cache<u64, Value>> = OnceLock::new();
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    struct Value(u64);
    impl Clone for Value {
        fn clone(&self) -> Self {
            if self.0 == 0 {
                CACHE.get().unwrap().insert(1, Self(1));
            }
            Self(self.0)
        }
    }
    impl Drop for Value {
        fn drop(&mut self) {
            let is_inside = stillpoint::global().is_reading();
            INSIDE.fetch_add(usize::from(is_inside), Ordering::Relaxed);
        }
    }
    let cache = CACHE.get_or_init(|| Cache::with_entries(10));
    cache.insert(1, Value(0));
    assert_eq!(cache.replace(1, Value(2)).map(|old| old.0), Some(1));
    assert_eq!(INSIDE.load(Ordering::Relaxed), 0);
}
