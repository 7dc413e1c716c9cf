//! User code that panics, lies, or uses the map that calls it.
#![allow(
    dropping_copy_types,
    dropping_references,
    clippy::drop_non_drop,
    reason = "the call counts, and not what it returns"
)]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{Tally, Tracked, eventually, quietly, returns};
use std::{
    cell::{Cell, RefCell},
    hash::{BuildHasherDefault, Hash, Hasher},
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
use stillpoint_map::{Compute, HashMap, Operation};

thread_local! {
    static FAILING: Cell<&'static str> = const { Cell::new("") };
}

fn may_fail(what: &str) {
    assert!(FAILING.get() != what, "as told");
}

/// Returns whether the call panicked, with `what` failing meanwhile.
fn fails<R>(what: &'static str, call: impl FnOnce() -> R) -> bool {
    FAILING.set(what);
    let result = quietly(|| panic::catch_unwind(AssertUnwindSafe(|| drop(call()))));
    FAILING.set("");
    result.is_err()
}

#[derive(Clone, Debug)]
struct Key(u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        may_fail("hash");
        // All collide, so that all are compared.
        state.write_u64(0);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        may_fail("eq");
        self.0 == other.0
    }
}

impl Eq for Key {}

#[test]
fn panics_leave_the_map_usable() {
    let tally = Tally::new();
    let map = HashMap::new();
    for key in 0..20 {
        map.pin().insert(Key(key), tally.value(key));
    }
    for what in ["hash", "eq"] {
        assert!(fails(what, || map.pin().get(&Key(3)).map(Tracked::get)));
        assert!(fails(what, || map
            .pin()
            .insert(Key(3), tally.value(0))
            .is_some()));
        assert!(fails(what, || map
            .pin()
            .insert(Key(99), tally.value(0))
            .is_some()));
        assert!(fails(what, || map
            .pin()
            .try_insert(Key(3), tally.value(0))
            .is_ok()));
        assert!(fails(what, || map.pin().remove(&Key(3)).is_some()));
        assert!(fails(what, || map
            .pin()
            .update(&Key(3), |_| tally.value(0))
            .is_some()));
    }
    let fail = || -> Tracked { panic!("as told") };
    assert!(fails("", || map
        .pin()
        .update(&Key(3), |_| fail())
        .is_some()));
    assert!(fails("", || map
        .pin()
        .get_or_insert_with(Key(77), fail)
        .get()));
    assert!(fails("", || map.pin().retain(|key, _| {
        assert!(key.0 != 7, "as told");
        true
    })));
    assert!(fails("", || map
        .pin()
        .remove_if(&Key(3), |_, _| panic!("as told"))
        .is_ok()));
    let compute = |_: Option<(&Key, &Tracked)>| -> Operation<Tracked, ()> { panic!("as told") };
    assert!(fails("", || {
        map.pin().compute(&Key(3), compute);
    }));
    // An operation that makes no sense is a panic too.
    let remove = |_: Option<(&Key, &Tracked)>| Operation::<Tracked, ()>::Remove;
    assert!(fails("", || {
        map.pin().compute(&Key(88), remove);
    }));

    // No lock is held, nothing is lost, and what was not inserted has been dropped.
    assert_eq!(map.len(), 20);
    eventually(|| tally.made() - tally.dropped() == 20);
    for key in 0..20 {
        assert_eq!(map.pin().get(&Key(key)).map(Tracked::get), Some(key));
        assert!(map.pin().remove(&Key(key)).is_some());
    }
    assert_eq!(map.pin().iter().count(), 0);
}

/// Equality that is never true, or always, or changes its mind; a hash that changes.
#[test]
fn eq_and_hash_that_lie() {
    static TICK: AtomicU64 = AtomicU64::new(0);
    #[derive(Clone)]
    struct Liar(u64);
    impl Hash for Liar {
        fn hash<H: Hasher>(&self, state: &mut H) {
            let tick = TICK.fetch_add(1, Ordering::Relaxed);
            state.write_u64(if self.0 == 3 { tick % 4 } else { self.0 / 100 });
        }
    }
    impl PartialEq for Liar {
        fn eq(&self, _: &Self) -> bool {
            match self.0 {
                0 => false,
                1 => true,
                _ => TICK.fetch_add(1, Ordering::Relaxed).is_multiple_of(3),
            }
        }
    }
    impl Eq for Liar {}
    for how in 0..4 {
        let tally = Tally::new();
        let map = HashMap::new();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for number in 0..if cfg!(miri) { 20 } else { 300 } {
                        let map = map.pin();
                        map.insert(Liar(how), tally.value(number));
                        drop(map.update(&Liar(how), |old| tally.value(old.get())));
                        drop(map.try_insert(Liar(how), tally.value(number)));
                        drop(map.get(&Liar(how)).map(Tracked::get));
                        if number % 3 == 0 {
                            drop(map.remove(&Liar(how)).map(Tracked::get));
                        }
                    }
                });
            }
        });
        let left = map.len();
        assert_eq!(
            map.pin()
                .iter()
                .inspect(|(_, value)| drop(value.get()))
                .count(),
            left
        );
        drop(map);
        eventually(|| tally.all_dropped());
    }
}

/// Closures, comparisons and drops that use the map which calls them.
#[test]
fn user_code_re_enters() {
    returns(|| {
        let map: Arc<HashMap<u64, u64>> = Arc::new(HashMap::new());
        map.pin().insert(1, 1);
        let inner = &*map;
        let pinned = map.pin();
        let mut rounds = 0;
        let done = pinned.compute(&1, |entry| {
            let value = *entry.expect("it is there").1;
            rounds += 1;
            if rounds < 4 {
                // Changes the entry itself, so that this is called again.
                inner.pin().insert(1, value + 10);
            }
            (100..200).for_each(|key| drop(inner.pin().insert(key, key)));
            Operation::<_, ()>::Insert(value + 1)
        });
        assert!(matches!(done, Compute::Updated { new: (1, 32), .. }));
        assert_eq!(rounds, 4);
        assert_eq!(
            *pinned.get_or_insert_with(2, || {
                inner.pin().insert(2, 20);
                21
            }),
            20
        );
        pinned.retain(|key, _| {
            inner.pin().remove(&(key + 1));
            inner.pin().insert(key + 1000, 0);
            key % 2 == 0
        });
        assert_eq!(pinned.iter().count(), map.len());
    });
}

#[test]
fn drops_on_the_service_thread_use_the_map() {
    static MAP: OnceLock<HashMap<u64, Reenters>> = OnceLock::new();
    static LEFT: AtomicU64 = AtomicU64::new(60);
    struct Reenters(u64);
    impl Drop for Reenters {
        fn drop(&mut self) {
            if LEFT
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok()
            {
                let map = MAP.get().expect("it is set").pin();
                map.insert(self.0 + 1, Reenters(self.0 + 1));
                map.remove(&(self.0 + 1));
            }
        }
    }
    let map = MAP.get_or_init(HashMap::new);
    map.pin().insert(0, Reenters(0));
    map.pin().remove(&0);
    eventually(|| LEFT.load(Ordering::SeqCst) == 0);
}

/// Thread-local destructors that use a map, whatever else of the thread is gone.
#[test]
fn destructors_of_threads_use_the_map() {
    struct AtExit(Option<Arc<HashMap<u64, Tracked>>>, Tally, u64);
    impl Drop for AtExit {
        fn drop(&mut self) {
            let (map, number) = (self.0.take().expect("dropped once"), self.2);
            for key in 0..20 {
                map.pin().insert(100 * number + key, self.1.value(key));
            }
            assert_eq!(
                map.pin().get(&(100 * number + 7)).map(Tracked::get),
                Some(7)
            );
            assert!(map.pin().remove(&(100 * number)).is_some());
        }
    }
    thread_local!(static FIRST: RefCell<Vec<AtExit>> = const { RefCell::new(Vec::new()) });
    thread_local!(static SECOND: RefCell<Vec<AtExit>> = const { RefCell::new(Vec::new()) });
    let (map, tally) = (Arc::new(HashMap::new()), Tally::new());
    for number in 0..10 {
        let (map, tally) = (Arc::clone(&map), tally.clone());
        let work = move || {
            let at_exit = |number| AtExit(Some(Arc::clone(&map)), tally.clone(), number);
            // One registered before the thread's first section, one after it.
            FIRST.with_borrow_mut(|first| first.push(at_exit(2 * number)));
            map.pin().insert(10_000 + number, tally.value(1));
            SECOND.with_borrow_mut(|second| second.push(at_exit(2 * number + 1)));
        };
        thread::spawn(work).join().unwrap();
    }
    assert_eq!(map.len(), 10 * (2 * 19 + 1));
    eventually(|| Arc::strong_count(&map) == 1);
    drop(map);
    eventually(|| tally.all_dropped());
}

thread_local! {
    static SALT: Cell<u64> = const { Cell::new(0) };
}

/// A key whose hash is what the test says at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fickle(u64);

impl Hash for Fickle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(SALT.get());
    }
}

/// Returns the number that it was given.
#[derive(Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// With another hash it is another key, also where the buckets and the tags of both are the same:
/// else its entry would be sought where it is not, once the table has grown.
#[test]
fn a_key_with_two_hashes_is_two_keys() {
    let hash = |salt| stillpoint_map::internal::spread(salt);
    let is_alike = |other: &u64| {
        let differ = hash(1) ^ hash(*other);
        differ >> 62 == 1 && differ >> 1 & 0xff == 0
    };
    let other = (2..).find(is_alike).unwrap();
    let map = HashMap::<_, _, BuildHasherDefault<Plain>>::default();
    let map = map.pin();
    for (salt, value) in [(1, 1), (other, 2)] {
        SALT.set(salt);
        assert_eq!(map.insert(Fickle(7), value), None);
    }
    for number in 100..200 {
        SALT.set(hash(number));
        map.insert(Fickle(number), 0);
    }
    for (salt, value) in [(1, 1), (other, 2)] {
        SALT.set(salt);
        assert_eq!(
            map.update(&Fickle(7), |value| value + 2),
            Some(&(value + 2))
        );
        assert_eq!(map.remove(&Fickle(7)), Some(&(value + 2)));
    }
    assert_eq!(map.len(), 100);
}
