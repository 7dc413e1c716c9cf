//! What a user sees of a cache: entries, limits, listeners, expiry.

mod helpers;

use helpers::weighed;
use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use stillpoint_cache::{Cache, Cause, InsertError, ManualClock};

fn counted(max: u64) -> Cache<u64, u64> {
    Cache::builder().max_entries(max).name("counted").build()
}

#[test]
fn entries_come_and_go() {
    let cache = counted(10);
    assert_eq!(cache.get(&1), None);
    cache.insert(1, 10);
    cache.insert(1, 11);
    assert_eq!(cache.get(&1), Some(11));
    let reference = cache.get_ref(&1).unwrap();
    assert_eq!((*reference.key(), *reference), (1, 11));
    assert_eq!(cache.take(&1), Some(11));
    assert_eq!(*reference, 11, "the section keeps it");
    drop(reference);
    assert_eq!(cache.take(&1), None);
    assert!(!cache.contains_key(&1) && !cache.remove(&1));
    let statistics = cache.statistics();
    assert_eq!(
        (statistics.hits, statistics.misses, statistics.inserts),
        (2, 1, 2)
    );
    assert_eq!((statistics.replaced, statistics.removed), (1, 1));
    assert_eq!((statistics.entries, statistics.bytes), (0, 0));
}

#[test]
fn no_insert_takes_it_above_its_limit() {
    let cache = counted(100);
    for key in 0..10_000 {
        cache.insert(key, key);
        assert!(cache.weighted_bytes() <= 100);
    }
    assert_eq!(cache.entry_count(), 100);
    assert_eq!(cache.iter().count(), 100);
    assert_eq!(cache.statistics().evicted, 9_900);
    cache.set_max_bytes(10);
    assert_eq!((cache.entry_count(), cache.max_bytes()), (10, 10));
    cache.set_max_bytes(0);
    assert!(matches!(
        cache.try_insert(1, 1),
        Err(InsertError::TooLarge { limit: 0, .. })
    ));
    assert_eq!(cache.statistics().refused, 1);
}

/// With its part of map, ghosts and counts, what it owns, blocks of the allocator, and a timer.
#[test]
fn entries_are_charged_for_what_they_take() {
    let cache: Cache<u64, u64> = Cache::with_bytes(1280);
    (0..100).for_each(|key| cache.insert(key, key));
    assert_eq!((cache.entry_count(), cache.weighted_bytes()), (10, 1280));
    cache.invalidate_all();
    cache.insert_with_ttl(1, 1, Duration::from_secs(3600));
    assert_eq!(cache.weighted_bytes(), 128 + 32);

    let cache: Cache<String, Option<Vec<u8>>> = Cache::with_bytes(1 << 20);
    cache.insert(String::with_capacity(30), Some(vec![0; 1000]));
    assert_eq!(cache.weighted_bytes(), 112 + 24 + 24 + 30 + 1000 + 2 * 16);
    // Two words of a type that says nothing, which a weigher knows.
    struct Page(Box<[u8; 500]>);
    let cache = Cache::builder().max_bytes(1 << 20);
    let cache = cache.weigher(|_: &u64, page: &Page| size_of_val(&*page.0) as u64);
    let cache = cache.build();
    cache.insert(1, Page(Box::new([0; 500])));
    assert_eq!(cache.weighted_bytes(), 112 + 8 + 8 + 500 + 16);
    // A value that a caller shares.
    let cache: Cache<u64, Arc<[u8]>> = Cache::with_bytes(1 << 20);
    let page: Arc<[u8]> = Arc::from([0; 500]);
    cache.insert(1, Arc::clone(&page));
    assert_eq!(cache.weighted_bytes(), 112 + 8 + 16 + 516 + 16);
}

/// It is used by its replacements alone, and more seldom than a scan goes through what is on
/// probation; and so if it changes its weight.
#[test]
fn an_entry_that_is_replaced_keeps_its_standing() {
    let weights: [fn(u64) -> u64; 3] = [|_| 1, |round| 1 + round, |round| 30 - round];
    for weight in weights {
        let cache = weighed(200);
        // All that is used is in the main queue after that.
        for key in (0..1).chain(10_000..10_050) {
            cache.insert(key, if key == 0 { weight(0) } else { 1 });
            (0..3).for_each(|_| assert!(cache.get(&key).is_some()));
        }
        for key in 20_000..20_200 {
            cache.insert(key, 1);
            assert!(cache.get(&0).is_some());
        }
        for round in 0..20_u64 {
            cache.insert(0, weight(round));
            (0..180).for_each(|scanned| cache.insert(1 + round * 180 + scanned, 1));
            assert!(cache.contains_key(&0), "{round}");
            assert!(cache.weighted_bytes() <= 200);
        }
        let statistics = cache.statistics();
        assert_eq!((statistics.replaced, statistics.inserts), (20, 3871));
        let bytes: u64 = cache.iter().map(|(_, weight)| weight).sum();
        assert_eq!(statistics.bytes, bytes);
    }
}

#[test]
fn an_entry_as_large_as_the_cache_is_let_in() {
    let cache = weighed(1000);
    for key in 0..1000 {
        cache.insert(key, 1);
    }
    cache.try_insert(5000, 500).unwrap();
    assert_eq!(cache.entry_count(), 501);
    cache.try_insert(5001, 1000).unwrap();
    assert_eq!(cache.entry_count(), 1);
    let error = cache.try_insert(5002, 1001).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the limit of the cache, 1000 bytes")
    );
}

#[test]
fn all_are_invalidated_or_some() {
    let cache = counted(1000);
    (0..1000).for_each(|key| cache.insert(key, key));
    assert_eq!(cache.invalidate_entries_if(|key, _| key % 2 == 0), 500);
    assert_eq!(cache.entry_count(), 500);
    assert!(
        cache
            .iter()
            .all(|(key, value)| key % 2 == 1 && key == value)
    );
    cache.invalidate_all();
    assert_eq!((cache.entry_count(), cache.iter().count()), (0, 0));
}

#[test]
fn a_listener_hears_each_entry_once_and_may_use_the_cache() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let slot: Arc<Mutex<Option<Cache<u64, u64>>>> = Arc::default();
    let (tell, own) = (Arc::clone(&heard), Arc::clone(&slot));
    let cache = Cache::builder()
        .max_entries(10)
        .eviction_listener(move |&key: &u64, &value: &u64, cause| {
            tell.lock().unwrap().push((key, value, cause));
            let cache = own.lock().unwrap().clone().unwrap();
            if key < 1000 {
                cache.insert(key + 1000, 0);
            }
        })
        .build();
    *slot.lock().unwrap() = Some(cache.clone());
    cache.insert(1, 10);
    cache.insert(1, 11);
    cache.take(&1);
    let of_one = heard.lock().unwrap().clone();
    let of_one: Vec<_> = of_one.into_iter().filter(|heard| heard.0 == 1).collect();
    assert_eq!(of_one, [(1, 10, Cause::Replaced), (1, 11, Cause::Removed)]);
    assert_eq!(cache.get(&1001), Some(0));
    *slot.lock().unwrap() = None;
}

/// Here it inserts again whatever is evicted, which evicts another entry: each insert would have it
/// called for ever.
#[test]
fn a_listener_that_inserts_what_was_evicted_is_called_a_bounded_number_of_times() {
    thread_local!(static DEPTH: Cell<usize> = const { Cell::new(0) });
    let heard = Arc::new(AtomicUsize::new(0));
    let live = Arc::new(());
    let clones = Arc::clone(&live);
    type Shared = Cache<u64, Arc<()>>;
    let slot: Arc<Mutex<Weak<Shared>>> = Arc::default();
    let (hear, own) = (Arc::clone(&heard), Arc::clone(&slot));
    let cache = Cache::builder()
        .max_entries(100)
        .eviction_listener(move |&key: &u64, value: &Arc<()>, cause| {
            assert_eq!(cause, Cause::Evicted);
            assert_eq!(DEPTH.replace(1), 0, "inside of itself");
            hear.fetch_add(1, Ordering::Relaxed);
            let cache = own.lock().unwrap().upgrade();
            if let Some(cache) = cache {
                cache.insert(key, Arc::clone(value));
            }
            DEPTH.set(0);
        })
        .build();
    let cache = Arc::new(cache);
    *slot.lock().unwrap() = Arc::downgrade(&cache);
    (0..100).for_each(|key| cache.insert(key, Arc::clone(&clones)));
    for key in 100..200 {
        let before = heard.load(Ordering::Relaxed);
        cache.insert(key, Arc::clone(&clones));
        // The eviction, what that one's insert evicts, and 128 more.
        assert_eq!(heard.load(Ordering::Relaxed) - before, 2 + 128);
    }
    stillpoint::global().kvfree_barrier();
    // No clone waits for the listener.
    assert_eq!(Arc::strong_count(&live), 2 + 100);
}

/// A thread-local with a destructor is destroyed before or after one of the library, by the order in which
/// a thread first used the two.
#[test]
fn a_listener_is_not_called_inside_of_itself_from_destructors_of_thread_locals() {
    static DEPTH: AtomicUsize = AtomicUsize::new(0);
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    static CACHE: OnceLock<Cache<u64, u64>> = OnceLock::new();
    struct AtExit;
    impl Drop for AtExit {
        fn drop(&mut self) {
            (100..110).for_each(|key| CACHE.get().unwrap().insert(key, 0));
        }
    }
    thread_local! {
        static FIRST: AtExit = const { AtExit };
        static LAST: AtExit = const { AtExit };
    }
    let builder = Cache::builder().max_entries(3);
    let cache = builder.eviction_listener(|&key: &u64, _: &u64, _| {
        assert_eq!(DEPTH.fetch_add(1, Ordering::Relaxed), 0);
        CALLS.fetch_add(1, Ordering::Relaxed);
        CACHE.get().unwrap().insert(key, 1);
        DEPTH.fetch_sub(1, Ordering::Relaxed);
    });
    let cache = CACHE.get_or_init(|| cache.build());
    let thread = thread::spawn(|| {
        FIRST.with(|_| ());
        (0..4).for_each(|key| cache.insert(key, 0));
        LAST.with(|_| ());
    });
    thread.join().unwrap();
    // A panic of the listener is contained, and leaves the depth as it was.
    assert_eq!(DEPTH.load(Ordering::Relaxed), 0);
    // For each eviction by an insert of the thread: that one, its answer's, and 128 more.
    assert_eq!(CALLS.load(Ordering::Relaxed), (1 + 2 * 10) * (2 + 128));
}

/// It is told of them after it has returned, before the call that it was called from returns.
#[test]
fn a_listener_is_told_of_all_that_its_own_call_removes() {
    let heard = Arc::new(AtomicUsize::new(0));
    let slot: Arc<Mutex<Weak<Cache<u64, u64>>>> = Arc::default();
    let (hear, own) = (Arc::clone(&heard), Arc::clone(&slot));
    let cache = Cache::builder()
        .max_entries(1000)
        .eviction_listener(move |_: &u64, _: &u64, _| {
            let cache = own.lock().unwrap().upgrade();
            if hear.fetch_add(1, Ordering::Relaxed) == 0
                && let Some(cache) = cache
            {
                cache.invalidate_all();
            }
        })
        .build();
    let cache = Arc::new(cache);
    *slot.lock().unwrap() = Arc::downgrade(&cache);
    (0..1000).for_each(|key| cache.insert(key, key));
    cache.remove(&0);
    assert_eq!(heard.load(Ordering::Relaxed), 1000);
}

#[test]
fn an_expired_entry_is_never_found() {
    let clock = ManualClock::default();
    let cache = Cache::builder()
        .max_entries(100)
        .time_to_live(Duration::from_secs(10))
        .clock(clock.clone())
        .build();
    cache.insert(1, 1);
    cache.insert_with_ttl(2, 2, Duration::from_secs(20));
    clock.advance(Duration::from_millis(9_999));
    assert_eq!((cache.get(&1), cache.get(&2)), (Some(1), Some(2)));
    clock.advance(Duration::from_millis(1));
    assert_eq!((cache.get(&1), cache.get(&2)), (None, Some(2)));
    assert!(!cache.contains_key(&1));
    clock.advance(Duration::from_millis(17));
    cache.run_pending();
    assert_eq!((cache.entry_count(), cache.statistics().expired), (1, 1));
    clock.advance(Duration::from_secs(11));
    cache.insert(3, 3);
    assert_eq!((cache.entry_count(), cache.statistics().expired), (1, 2));
}

/// At the nanosecond, wherever that is in a tick of the wheel.
#[test]
fn all_that_has_expired_goes_when_a_caller_says_so() {
    let spans = [
        1,
        1000,
        999_999,
        16_000_000,
        1 << 24,
        17_000_000,
        1 << 30,
        1 << 55,
    ];
    let clock = ManualClock::default();
    let cache: Cache<u64, u64> = Cache::builder()
        .max_entries(1000)
        .clock(clock.clone())
        .build();
    for (round, before) in [0, 1, 7_654_321, (1 << 24) - 2, 12_345_678_901]
        .into_iter()
        .enumerate()
    {
        clock.advance(Duration::from_nanos(before));
        for (key, &span) in spans.iter().enumerate() {
            cache.insert_with_ttl(key as u64, 0, Duration::from_nanos(span));
        }
        let mut passed = 0;
        for (key, &span) in spans.iter().enumerate() {
            let left = (spans.len() - key) as u64;
            clock.advance(Duration::from_nanos(span - passed - 1));
            cache.run_pending();
            assert_eq!(cache.entry_count(), left, "{round}: before {span} ns");
            clock.advance(Duration::from_nanos(1));
            cache.run_pending();
            assert_eq!(cache.entry_count(), left - 1, "{round}: after {span} ns");
            passed = span;
        }
    }
    assert_eq!(cache.statistics().expired, 5 * spans.len() as u64);
}

/// Also after years of uptime.
#[test]
fn a_use_lets_an_entry_last_longer_but_not_for_ever() {
    for days in [0, 835, 10_000] {
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(days * 86_400));
        let cache = Cache::builder()
            .max_bytes(1000)
            .time_to_live(Duration::from_secs(100))
            .time_to_idle(Duration::from_secs(16))
            .clock(clock.clone())
            .build();
        cache.insert(1, 1);
        cache.insert(2, 2);
        for round in 0..6 {
            clock.advance(Duration::from_secs(15));
            cache.run_pending();
            assert_eq!(cache.get(&1), Some(1), "{round} after {days} days");
        }
        assert_eq!(cache.entry_count(), 1, "what was not used has gone");
        clock.advance(Duration::from_secs(11));
        assert_eq!(cache.get(&1), None, "{days} days");
    }
}

/// Whatever the queues note of its uses: where it is passed over, moves to the main queue, or has
/// turns there.
#[test]
fn an_entry_expires_however_often_it_is_passed_over() {
    let mut passed_over = 0;
    for (uses, inserts) in (0..5).flat_map(|uses| (0..40).map(move |inserts| (uses, inserts))) {
        let clock = ManualClock::default();
        let cache = Cache::builder()
            .max_entries(10)
            .time_to_live(Duration::from_secs(10))
            .clock(clock.clone())
            .build();
        (0..10).for_each(|key| cache.insert(key, key));
        let hits = |keys: u64| (0..keys).filter(|key| cache.get(key).is_some()).count();
        (0..uses).for_each(|_| assert_eq!(hits(10), 10));
        (10..10 + inserts).for_each(|key| cache.insert(key, key));
        if inserts > 10 {
            passed_over += (0..10).filter(|key| cache.contains_key(key)).count();
        }
        (0..uses).for_each(|_| assert_eq!(hits(50), 10));
        clock.advance(Duration::from_secs(10));
        assert_eq!(hits(50), 0, "{uses} uses, {inserts} inserts");
    }
    assert!(passed_over > 0);
}

/// What replaces another one has the uses of that, but a time of its own. It takes the place if it is
/// no heavier.
#[test]
fn an_entry_that_replaces_another_one_expires_if_it_does_itself() {
    let expires = [false, true];
    let both = expires.map(|old| expires.map(|new| (old, new)));
    for ((old_expires, new_expires), uses) in both
        .into_iter()
        .flatten()
        .flat_map(|both| (0..5).map(move |uses| (both, uses)))
    {
        for weight in 1..4 {
            let clock = ManualClock::default();
            let cache = Cache::builder()
                .max_weight(10, |_: &u64, weight: &u64| *weight)
                .clock(clock.clone())
                .build();
            let insert = |weight, expires| match expires {
                true => cache.insert_with_ttl(1, weight, Duration::from_secs(10)),
                false => cache.insert(1, weight),
            };
            insert(2, old_expires);
            (0..uses).for_each(|_| assert_eq!(cache.get(&1), Some(2)));
            insert(weight, new_expires);
            (0..uses).for_each(|_| assert_eq!(cache.get(&1), Some(weight)));
            clock.advance(Duration::from_secs(10));
            let there = (!new_expires).then_some(weight);
            assert_eq!(cache.get(&1), there, "{old_expires}, {uses}, {weight}");
        }
    }
}

/// A cache whose function has an entry last for as many seconds as its value says; 0 for what the cache
/// says: 100 seconds, and those of `idle` after its last use.
fn says_itself(idle: Option<u64>) -> (Cache<u64, u64>, ManualClock, Arc<AtomicUsize>) {
    let (clock, calls) = (ManualClock::default(), Arc::<AtomicUsize>::default());
    let asked = Arc::clone(&calls);
    let mut builder = Cache::builder()
        .max_entries(100)
        .clock(clock.clone())
        .time_to_live(Duration::from_secs(100))
        .expire_after(move |_, &seconds| {
            asked.fetch_add(1, Ordering::Relaxed);
            (seconds > 0).then(|| Duration::from_secs(seconds))
        });
    if let Some(idle) = idle {
        builder = builder.time_to_idle(Duration::from_secs(idle));
    }
    (builder.build(), clock, calls)
}

/// Checks that an entry is there for as many seconds from now on, and goes then.
fn lasts(cache: &Cache<u64, u64>, clock: &ManualClock, key: u64, seconds: u64) {
    clock.advance(Duration::from_secs(seconds) - Duration::from_nanos(1));
    cache.run_pending();
    assert!(cache.contains_key(&key), "{key} for {seconds} s");
    clock.advance(Duration::from_nanos(1));
    assert!(!cache.contains_key(&key), "{key} after {seconds} s");
    let entries = cache.entry_count();
    cache.run_pending();
    assert_eq!(cache.entry_count(), entries - 1);
}

#[test]
fn a_function_says_how_long_a_new_entry_lasts() {
    let (cache, clock, calls) = says_itself(None);
    for (key, seconds) in [(1, 10), (2, 1000), (3, 0)] {
        cache.insert(key, seconds);
        lasts(
            &cache,
            &clock,
            key,
            if seconds == 0 { 100 } else { seconds },
        );
    }
    assert_eq!(cache.get_with(&4, || 7), 7);
    lasts(&cache, &clock, 4, 7);
    assert_eq!(calls.load(Ordering::Relaxed), 4, "once for each insert");
    // The caller's own word counts.
    cache.insert_with_ttl(5, 10, Duration::from_secs(20));
    lasts(&cache, &clock, 5, 20);
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}

#[test]
fn an_entry_that_is_replaced_lasts_as_long_as_the_function_says_of_the_new_one() {
    let (cache, clock, calls) = says_itself(None);
    for (old, new) in [(10, 1000), (1000, 10), (0, 10), (10, 0), (20, 20)] {
        cache.insert(1, old);
        clock.advance(Duration::from_secs(5));
        cache.insert(1, new);
        lasts(&cache, &clock, 1, if new == 0 { 100 } else { new });
    }
    assert_eq!(calls.load(Ordering::Relaxed), 10);
    assert_eq!(cache.statistics().replaced, 5);
}

#[test]
fn a_use_asks_the_function_nothing_and_does_not_go_beyond_what_it_has_said() {
    let (cache, clock, calls) = says_itself(None);
    cache.insert(1, 10);
    clock.advance(Duration::from_secs(5));
    assert_eq!(cache.get(&1), Some(10));
    lasts(&cache, &clock, 1, 5);

    let (idle, clock, asked) = says_itself(Some(16));
    idle.insert(1, 40);
    for _ in 0..2 {
        clock.advance(Duration::from_secs(15));
        assert_eq!(idle.get(&1), Some(40), "it is used");
    }
    // Of an entry that is used, the end is rounded down to a tick.
    let tick = Duration::from_nanos(1 << 24);
    clock.advance(Duration::from_secs(10) - tick);
    assert!(idle.contains_key(&1));
    clock.advance(tick);
    assert!(!idle.contains_key(&1));
    // Unused, it goes before.
    idle.insert(2, 40);
    lasts(&idle, &clock, 2, 16);
    idle.insert(3, 5);
    lasts(&idle, &clock, 3, 5);
    assert_eq!(
        [calls, asked].map(|calls| calls.load(Ordering::Relaxed)),
        [1, 3]
    );
}

#[test]
fn a_function_that_panics_inserts_nothing() {
    let cache: Cache<u64, u64> = Cache::builder()
        .max_entries(100)
        .expire_after(|_, &value| match value {
            7 => std::panic::resume_unwind(Box::new("expected")),
            _ => Some(Duration::MAX),
        })
        .build();
    cache.insert(1, 1);
    let insert = std::panic::AssertUnwindSafe(|| cache.insert(1, 7));
    assert!(std::panic::catch_unwind(insert).is_err());
    cache.run_pending();
    assert_eq!((cache.get(&1), cache.entry_count()), (Some(1), 1));
}
