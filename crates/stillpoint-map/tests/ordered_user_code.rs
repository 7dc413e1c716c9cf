//! The ordered map, and user code that panics, waits, or uses the map that calls it.
//!
//! Detects closures called again for a leaf's sake, and keys lost behind a drop that panics.

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{Tally, Tracked, eventually, expected_panic, quietly, returns};
use std::{
    any::Any,
    borrow::Borrow,
    cell::{Cell, RefCell},
    cmp::Ordering as Is,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use stillpoint::{Domain, tasks_trace::TraceDomain};
use stillpoint_map::{BTreeMap, Compute, Operation};

/// A key that calls a closure of its thread whenever it is compared.
#[derive(Clone, Debug)]
struct Key(u64);

type Hook = Box<dyn FnMut()>;

thread_local! {
    static COMPARED: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

fn with_hook<R>(hook: impl FnMut() + 'static, call: impl FnOnce() -> R) -> R {
    COMPARED.set(Some(Box::new(hook)));
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    COMPARED.set(None);
    result.unwrap_or_else(|payload| panic::resume_unwind(payload))
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Is {
        // Not again inside.
        if let Some(mut hook) = COMPARED.take() {
            hook();
            COMPARED.set(Some(hook));
        }
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Is> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

const MANY: u64 = if cfg!(miri) { 32 } else { 1000 };

fn filled<V: Send + 'static>(value: impl Fn(u64) -> V) -> BTreeMap<Key, V> {
    (0..MANY).map(|key| (Key(key), value(key))).collect()
}

/// Goes on with a panic that is not the one that was asked for.
fn told(payload: Box<dyn Any + Send>) {
    if payload.downcast_ref() != Some(&"as told") {
        panic::resume_unwind(payload);
    }
}

/// Whether the call panicked, with the comparison of that number failing.
fn fails<R>(comparison: usize, call: impl FnOnce() -> R) -> bool {
    let mut count = 0;
    let hook = move || {
        count += 1;
        assert!(count != comparison, "as told");
    };
    let called = quietly(|| panic::catch_unwind(AssertUnwindSafe(|| with_hook(hook, call))));
    called.map_err(told).is_err()
}

/// Whichever comparison panics: no lock is held, what was not inserted is dropped, and what was
/// removed is dropped once.
#[test]
fn panics_leave_the_map_usable() {
    let tally = Tally::new();
    let map = filled(|key| tally.value(key));
    let mut length = MANY as usize;
    let mut panics = 0;
    for key in 0..MANY {
        for comparison in 1..8 {
            let new = Key(MANY + key * 8 + comparison as u64);
            panics += usize::from(fails(comparison, || {
                map.pin().insert(new, tally.value(0));
            }));
            panics += usize::from(fails(comparison, || {
                map.pin().insert(Key(key), tally.value(key));
            }));
            panics += usize::from(fails(comparison, || {
                map.pin().update(&Key(key), |_| tally.value(key));
            }));
        }
        length = map.len();
        // The removal, or what is merged behind it.
        panics += usize::from(fails(5 + key as usize % 20, || {
            map.pin().remove(&Key(key));
        }));
        assert!(length - map.len() <= 1);
    }
    assert!(panics > MANY as usize, "{panics}");
    for key in 0..MANY {
        map.pin().remove(&Key(key));
        assert!(map.pin().get(&Key(key)).is_none());
    }
    assert!(length >= map.len());
    let left = map
        .pin()
        .values()
        .filter(|value| value.get() < MANY)
        .count();
    assert_eq!(left, map.len());
    eventually(|| tally.made() - tally.dropped() == left);
    drop(map);
    eventually(|| tally.all_dropped());
}

/// A closure that takes its time is called once, whatever happens beside its entry; and again if the
/// entry itself has changed.
#[test]
fn closures_are_called_again_for_their_entry_alone() {
    let beside = |map: &BTreeMap<Key, u64>, calls: &Cell<u64>| {
        let call = calls.replace(calls.get() + 1);
        // The leaf changes, and is divided.
        for key in 0..20 {
            map.pin().insert(Key(MANY * 2 + call * 20 + key), 0);
        }
        // And merged.
        for key in 0..MANY / 2 {
            map.pin().remove(&Key(key + call));
        }
    };
    let last = MANY - 1;
    for replaces in [false, true] {
        let expected = if replaces { 2 } else { 1 };
        let map = filled(|key| key);
        let change = |calls: &Cell<u64>| {
            beside(&map, calls);
            if replaces && calls.get() == 1 {
                map.pin().insert(Key(last), last);
            }
        };

        let calls = Cell::new(0);
        let update = |value: &u64| {
            change(&calls);
            value + 1
        };
        assert_eq!(map.pin().update(&Key(last), update), Some(&MANY));
        assert_eq!(calls.get(), expected);

        let calls = Cell::new(0);
        let condition = |_: &Key, _: &u64| {
            change(&calls);
            true
        };
        assert!(matches!(
            map.pin().remove_if(&Key(last), condition),
            Ok(Some(_))
        ));
        assert_eq!(calls.get(), expected);

        map.pin().insert(Key(last), last);
        let calls = Cell::new(0);
        let compute = |entry: Option<(&Key, &u64)>| {
            assert!(entry.is_some());
            change(&calls);
            Operation::<u64, ()>::Remove
        };
        assert!(matches!(
            map.pin().compute(&Key(last), compute),
            Compute::Removed(_, _)
        ));
        assert_eq!(calls.get(), expected);
    }
}

/// `Ord` may use the map, also to change the leaf that is looked at.
#[test]
fn an_order_that_uses_the_map() {
    let (keys, most) = if cfg!(miri) { (4, 12) } else { (MANY, 40) };
    let map = Arc::new(filled(|key| key));
    for key in 0..keys {
        let (inner, mut step) = (Arc::clone(&map), 0);
        let hook = move || {
            step += 1;
            // An order that changes the leaf at each comparison has the caller look again for ever.
            if step > most {
                return;
            }
            let map = inner.pin();
            let beside = Key(MANY + key * 100 + step);
            map.insert(beside, 0);
            map.remove(&Key(key + 1));
            map.insert(Key(key + 1), key + 1);
        };
        with_hook(hook, || {
            let map = map.pin();
            assert_eq!(map.insert(Key(key), key), Some(&key));
            assert_eq!(map.remove(&Key(key)), Some(&key));
            assert_eq!(map.get(&Key(key)), None);
        });
    }
    assert!(map.pin().iter().all(|(key, _)| key.0 >= keys));
    assert!(map.pin().keys().is_sorted());
}

/// No lock is held while `Ord` runs: another thread changes what is looked at.
#[test]
fn an_order_that_waits() {
    let map = Arc::new(filled(|key| key));
    returns(move || {
        let (before, after) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        thread::scope(|scope| {
            let (map, there, back) = (&map, &before, &after);
            scope.spawn(move || {
                there.wait();
                let map = map.pin();
                for key in 0..MANY {
                    map.insert(Key(key), key);
                }
                assert_eq!(map.remove(&Key(3)), Some(&3));
                back.wait();
            });
            let (before, after, mut is_first) = (Arc::clone(&before), Arc::clone(&after), true);
            let hook = move || {
                if std::mem::take(&mut is_first) {
                    before.wait();
                    after.wait();
                }
            };
            with_hook(hook, || assert_eq!(map.pin().remove(&Key(2)), Some(&2)));
        });
        assert_eq!(map.len() as u64, MANY - 2);
    });
}

/// Keys that were kept as fences are dropped with the map, all of them, also if one panics.
#[test]
fn keys_whose_drop_panics() {
    static KEYS: AtomicUsize = AtomicUsize::new(0);
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    struct Panics(u64);
    impl Borrow<u64> for Panics {
        fn borrow(&self) -> &u64 {
            &self.0
        }
    }
    impl Drop for Panics {
        fn drop(&mut self) {
            KEYS.fetch_sub(1, Ordering::Relaxed);
            if !thread::panicking() {
                expected_panic();
            }
        }
    }
    let key = |number: u64| {
        KEYS.fetch_add(1, Ordering::Relaxed);
        Panics(number)
    };
    let domain = Domain::new();
    let map = BTreeMap::new_in(&domain);
    for number in 0..MANY {
        map.pin().insert(key(number), number);
    }
    // Leaves begin with some of them: all have 14 slots. Drops that panic on the service thread are
    // contained.
    for number in (0..MANY).filter(|number| number % 2 == 0) {
        assert!(map.pin().remove(&number).is_some());
    }
    quietly(|| domain.kvfree_barrier());
    let kept = KEYS.load(Ordering::Relaxed) as u64 - MANY / 2;
    assert!(kept > MANY / 60, "{kept} keys are kept as fences");
    let mut entries = map.into_iter();
    // By hand, as two panics at once end the process.
    for (key, _) in entries.by_ref() {
        std::mem::forget(key);
        KEYS.fetch_sub(1, Ordering::Relaxed);
    }
    assert_eq!(KEYS.load(Ordering::Relaxed) as u64, kept);
    let dropped = quietly(|| panic::catch_unwind(AssertUnwindSafe(|| drop(entries))));
    assert!(dropped.is_err(), "a panic is told");
    assert_eq!(KEYS.load(Ordering::Relaxed), 0);
}

/// Values stay where they are while their leaves are divided and merged.
#[test]
fn values_stay_where_they_are() {
    let tally = Tally::new();
    let map = BTreeMap::new();
    let pinned = map.pin();
    pinned.insert(Key(MANY / 2), tally.value(7));
    let value: &Tracked = pinned.get(&Key(MANY / 2)).expect("inserted");
    for _ in 0..3 {
        for key in (0..MANY).filter(|key| *key != MANY / 2) {
            pinned.insert(Key(key), tally.value(key));
        }
        for key in (0..MANY).filter(|key| *key != MANY / 2) {
            pinned.remove(&Key(key));
        }
        let now = pinned.get(&Key(MANY / 2)).expect("not removed");
        assert!(std::ptr::eq(value, now) && value.get() == 7);
    }
}

/// Maps with owned guards and their iterators may be sent to other threads.
#[test]
fn a_map_of_tasks_takes_owned_guards() {
    let domain = TraceDomain::new();
    let map = BTreeMap::new_in(&domain);
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let pinned = is_send(map.pin_owned());
    for key in 0..100 {
        pinned.insert(key, key);
    }
    let mut range = is_send(pinned.range(10..90));
    let mut entries = is_send(pinned.iter());
    thread::scope(|scope| {
        scope.spawn(move || {
            assert_eq!(range.next(), Some((&10, &10)));
            assert_eq!(entries.next_back(), Some((&99, &99)));
        });
    });
}

/// Entries of all sizes and alignments, and of none.
#[test]
fn entries_of_any_layout() {
    #[derive(PartialEq, Debug)]
    #[repr(align(256))]
    struct Aligned(u16);
    const ENTRIES: u16 = if cfg!(miri) { 100 } else { 3000 };

    let nothing: BTreeMap<u16, ()> = BTreeMap::new();
    let aligned: BTreeMap<(u16, u16), Aligned> = BTreeMap::new();
    let large: BTreeMap<u16, [u64; 80]> = BTreeMap::new();
    for key in 0..ENTRIES {
        nothing.pin().insert(key, ());
        aligned.pin().insert((key, 0), Aligned(key));
        large.pin().insert(key, [key.into(); 80]);
    }
    for key in 0..ENTRIES {
        assert!(nothing.pin().contains_key(&key));
        assert_eq!(aligned.pin().get(&(key, 0)), Some(&Aligned(key)));
        assert_eq!(large.pin().get(&key), Some(&[key.into(); 80]));
        assert!(aligned.pin().remove(&(key, 0)).is_some());
    }
    let unit: BTreeMap<(), ()> = BTreeMap::new();
    unit.pin().insert((), ());
    assert_eq!(unit.pin().insert((), ()), Some(&()));
    assert_eq!(unit.len(), 1);
}
