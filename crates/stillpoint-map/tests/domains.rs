//! Guards and domains; many threads, and many maps.
//!
//! Detects guards of other domains that are not checked.

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{Tally, Tracked, eventually, panic_message, quietly};
use std::thread;
use stillpoint::{
    Domain, Weigh,
    tasks_trace::{self, TraceDomain},
};
use stillpoint_map::{BTreeMap, CopyMap, HashMap, HashSet};

const REFUSED: &str = "the guard is of another domain";

fn assert_refused(with_guard: impl Fn()) {
    let message = quietly(|| panic_message(with_guard));
    assert!(message.contains(REFUSED), "{message}");
}

/// Of maps in the global domain, in one that readers of threads have, and in one of tasks.
macro_rules! guards_of_other_domains_are_refused {
    ($($name:ident: $map:ty,)+) => {$(
        #[test]
        fn $name() {
            let (domain, trace) = (Domain::with_fences(), TraceDomain::new());
            let [global, ours, traced] = [
                <$map>::new(),
                <$map>::new_in(&domain),
                <$map>::new_in(&trace),
            ];
            let guard = domain.read_lock();
            assert_refused(|| _ = global.with_guard(&guard));
            assert_refused(|| _ = traced.with_guard(&guard));
            assert!(ours.with_guard(&guard).is_empty());
            drop(guard);
            let guard = stillpoint::read_lock();
            assert_refused(|| _ = ours.with_guard(&guard));
            assert_refused(|| _ = ours.with_guard(&&guard));
            assert_refused(|| _ = traced.with_guard(&guard));
            assert!(global.with_guard(&guard).is_empty());
            drop(guard);
            let owned = trace.read_lock_owned();
            assert_refused(|| _ = global.with_guard(&owned));
            assert_refused(|| _ = ours.with_guard(&owned));
            assert!(traced.with_guard(&owned).is_empty());
            drop(owned);
            // Only domains of tasks have sections that belong to no thread.
            for map in [&global, &ours] {
                let message = quietly(|| panic_message(|| _ = map.pin_owned()));
                assert!(message.contains("no owned guards"), "{message}");
            }
            assert!(traced.pin_owned().is_empty());
            assert!(<$map>::new_in(tasks_trace::global()).pin_owned().is_empty());
            drop((domain, trace));
            assert!(traced.pin_owned().is_empty(), "the map keeps its domain");
        }
    )+};
}

guards_of_other_domains_are_refused! {
    hash_maps_refuse_guards_of_other_domains: HashMap<u64, u64>,
    hash_sets_refuse_guards_of_other_domains: HashSet<u64>,
    maps_of_copies_refuse_guards_of_other_domains: CopyMap<u64, u64>,
    ordered_maps_refuse_guards_of_other_domains: BTreeMap<u64, u64>,
}

#[test]
fn offline_readers_are_refused() {
    let domain = Domain::with_fences();
    let map = HashMap::new_in(&domain);
    let mut reader = domain.qsbr_reader();
    assert_eq!(map.with_guard(&reader).insert(1, 1), None);
    assert_eq!(map.with_guard(&reader).get(&1), Some(&1));
    // Leaked, it stays offline.
    std::mem::forget(reader.offline());
    assert_refused(|| _ = map.with_guard(&reader));
}

#[test]
fn owned_guards_cross_threads() {
    let trace = TraceDomain::new();
    let tally = Tally::new();
    let map = HashMap::new_in(&trace);
    for key in 0..50 {
        map.pin().insert(key, tally.value(key));
    }
    let owned = map.pin_owned();
    let seven = owned.get(&7).expect("it is there");
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(
                owned.iter().map(|(_, value)| value.get()).sum::<u64>(),
                49 * 25
            );
            map.pin().clear();
            (100..400).for_each(|key| _ = map.pin().insert(key, tally.value(key)));
        });
    });
    assert_eq!(
        (seven.get(), tally.dropped()),
        (7, 0),
        "the guard holds them"
    );
    let moved = thread::scope(|scope| scope.spawn(move || drop(owned)).join());
    moved.unwrap();
    eventually(|| tally.dropped() == 50);
}

#[test]
fn maps_of_two_domains_do_not_wait_for_each_other() {
    let (one, other) = (Domain::new(), Domain::new());
    let tally = Tally::new();
    let (map, blocked) = (HashMap::new_in(&one), HashMap::new_in(&other));
    blocked.pin().insert(1, tally.value(1));
    let section = blocked.pin();
    let value = section.remove(&1).expect("it is there");
    map.pin().insert(1, tally.value(2));
    map.pin().remove(&1);
    eventually(|| tally.dropped() == 1);
    assert_eq!(value.get(), 1);
    drop(section);
    eventually(|| tally.dropped() == 2);
    // A map keeps its domain.
    drop((one, other));
    map.pin().insert(2, tally.value(3));
    assert_eq!(map.pin().get(&2).map(Tracked::get), Some(3));
}

#[test]
#[cfg_attr(miri, ignore = "too many threads")]
fn a_thousand_threads() {
    let map = HashMap::new();
    thread::scope(|scope| {
        for number in 0..1000_u64 {
            let map = &map;
            let work = move || {
                for key in 0..20 {
                    assert_eq!(map.pin().insert(number * 20 + key, key), None);
                }
                for key in 0..10 {
                    assert_eq!(map.pin().remove(&(number * 20 + key)), Some(&key));
                }
            };
            thread::Builder::new()
                .stack_size(128 << 10)
                .spawn_scoped(scope, work)
                .expect("a thread");
        }
    });
    assert_eq!((map.len(), map.pin().iter().count()), (10_000, 10_000));
}

#[test]
#[cfg_attr(miri, ignore = "too many maps")]
fn a_million_maps() {
    assert!(size_of::<HashMap<u64, u64>>() <= 64);
    let maps: Vec<HashMap<u64, u64>> = (0..1_000_000).map(|_| HashMap::new()).collect();
    for number in (0..maps.len()).step_by(1000) {
        maps[number].pin().insert(number as u64, 1);
    }
    assert_eq!(maps.iter().map(HashMap::len).sum::<usize>(), 1000);
    assert!(maps.iter().all(|map| map.pin().get(&1).is_none()));
}

/// What a value owns counts from its retire until it is freed, in a small map and in a large one.
#[test]
fn values_count_with_what_they_own() {
    const OWNED: u64 = 10_000;
    for entries in [1, 5000_u64] {
        let domain = Domain::new();
        let map = HashMap::with_capacity_in(entries as usize, &domain)
            .weighing(|_, value: &Vec<u8>| value.heap_bytes());
        let value = || vec![1; OWNED as usize];
        let copy = map.clone();
        for map in [map, copy] {
            let map = map.pin();
            for key in 0..entries {
                map.insert(key, Vec::new());
            }
            map.insert(0, value());
            let before = domain.statistics().bytes_pending;
            map.insert(0, value());
            map.remove(&0);
            let pending = domain.statistics().bytes_pending - before;
            assert!((2 * OWNED..3 * OWNED).contains(&pending), "{pending}");
        }
        domain.kvfree_barrier();
        assert_eq!(domain.statistics().bytes_pending, 0);
    }
}

/// What such an entry owns is not known: a kibibyte at least, as for any object.
#[test]
fn entries_with_a_destructor_that_are_not_weighed_count_for_a_kibibyte() {
    const CHANGES: u64 = 100;
    fn bytes_each(change: impl Fn(&Domain)) -> u64 {
        let domain = Domain::new();
        change(&domain);
        let bytes = domain.statistics().bytes_pending / CHANGES;
        domain.kvfree_barrier();
        bytes
    }
    // One by one, and in slabs.
    for entries in [CHANGES, 5000] {
        let hash = bytes_each(|domain| {
            let map = HashMap::with_capacity_in(entries as usize, domain);
            let map = map.pin();
            (0..entries).for_each(|key| _ = map.insert(key, vec![key]));
            (0..CHANGES / 2).for_each(|key| _ = map.insert(key, Vec::new()));
            (0..CHANGES / 2).for_each(|key| _ = map.remove(&key));
        });
        assert!((1024..2048).contains(&hash), "{hash}");
        let plain = bytes_each(|domain| {
            let map = HashMap::with_capacity_in(entries as usize, domain);
            let map = map.pin();
            (0..entries).for_each(|key| _ = map.insert(key, key));
            (0..CHANGES).for_each(|key| _ = map.remove(&key));
        });
        assert!(plain < 512, "{plain}");
    }
    for entries in [CHANGES, 5000] {
        let tree = bytes_each(|domain| {
            let map = BTreeMap::new_in(domain);
            let map = map.pin();
            (0..entries).for_each(|key| _ = map.insert(key, vec![key]));
            let before = domain.statistics().bytes_pending;
            (0..CHANGES / 2).for_each(|key| _ = map.insert(key, Vec::new()));
            (0..CHANGES / 2).for_each(|key| _ = map.remove(&key));
            let bytes = domain.statistics().bytes_pending - before;
            assert!(bytes / CHANGES >= 1024, "{bytes}");
        });
        assert!(tree >= 1024, "{tree}");
    }
}

/// A weigher is user code: it may panic, or use the map.
#[test]
fn weighers_may_panic_and_use_the_map() {
    static MAP: std::sync::OnceLock<HashMap<u64, Box<u64>>> = std::sync::OnceLock::new();
    let domain = Domain::new();
    let map = HashMap::new_in(&domain).weighing(|key, _| {
        let map = MAP.get().unwrap();
        assert!(*key != 1, "expected");
        map.pin().remove(&(key + 1));
        map.pin().insert(key + 100, Box::new(0));
        usize::MAX
    });
    let map = MAP.get_or_init(|| map);
    (0..20).for_each(|key| _ = map.pin().insert(key, Box::new(key)));
    quietly(|| {
        assert_eq!(map.pin().remove(&1), Some(&Box::new(1)));
        assert_eq!(map.pin().remove(&10), Some(&Box::new(10)));
    });
    assert_eq!(domain.statistics().panics, 1);
    assert!(!map.pin().contains_key(&11) && map.pin().contains_key(&110));
    assert_eq!(map.len(), 18);
    domain.kvfree_barrier();
}

/// What has nothing to drop owns nothing.
#[test]
fn entries_with_nothing_to_drop_are_not_weighed() {
    let domain = Domain::new();
    let map = HashMap::new_in(&domain).weighing(|_: &u64, _: &u64| panic!("it is not called"));
    map.pin().insert(1, 1);
    quietly(|| _ = map.pin().insert(1, 2));
    assert_eq!(domain.statistics().panics, 0);
}
