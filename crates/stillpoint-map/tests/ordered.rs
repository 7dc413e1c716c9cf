//! The ordered map beside std's, in one thread and in several.
//!
//! Detects empty leaves that stay, changes without their second look, and first entries that are
//! passed over.

#[path = "models/ordered.rs"]
mod model;

use proptest::prelude::*;
use std::{
    cmp::Ordering as Is,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};
use stillpoint::Domain;
use stillpoint_map::BTreeMap;

/// Of a random program.
const STEPS: usize = if cfg!(miri) { 30 } else { 200 };

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 96 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs(program in prop::collection::vec((any::<u8>(), 0..2000_u16, 0..2000_u16), 0..STEPS)) {
        model::run_all(&program);
    }
}

/// Counts what is there of it.
struct Counted(Arc<AtomicUsize>, u64);

impl Counted {
    fn new(count: &Arc<AtomicUsize>, number: u64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count), number)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1
    }
}
impl Eq for Counted {}
impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Is> {
        Some(self.cmp(other))
    }
}
impl Ord for Counted {
    fn cmp(&self, other: &Self) -> Is {
        self.1.cmp(&other.1)
    }
}

/// Keys that stay are found, and visited once and in order, while others come and go. In the end each
/// key and value has been dropped once.
fn churn<K: Ord + Clone + Send + Sync + 'static>(
    key: impl Fn(u64) -> K + Sync,
    number: impl Fn(&K) -> u64 + Sync,
) {
    const KEYS: u64 = if cfg!(miri) { 100 } else { 3000 };
    let rounds = if cfg!(miri) { 1 } else { 12 };
    let values = Arc::new(AtomicUsize::new(0));
    let domain = Domain::new();
    let map = BTreeMap::new_in(&domain);
    // Nodes of a map that was large lie in slabs.
    let many = if cfg!(miri) { 0 } else { 20_000 };
    for place in 0..many {
        map.pin().insert(key(place), Counted::new(&values, place));
    }
    map.pin().clear();
    for staying in (0..KEYS).step_by(10) {
        map.pin()
            .insert(key(staying), Counted::new(&values, staying));
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let (map, over, key, number) = (&map, &over, &key, &number);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let map = map.pin();
                        let mut seen: Vec<u64> = if reader == 0 {
                            map.keys().map(number).collect()
                        } else {
                            map.keys().rev().map(number).collect()
                        };
                        if reader == 1 {
                            seen.reverse();
                        }
                        assert!(seen.is_sorted_by(|one, other| one < other), "{seen:?}");
                        let staying: Vec<u64> =
                            seen.into_iter().filter(|key| key % 10 == 0).collect();
                        assert!(staying.into_iter().eq((0..KEYS).step_by(10)));
                        for staying in (0..KEYS).step_by(10) {
                            assert_eq!(map.get(&key(staying)).map(|value| value.1), Some(staying));
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (1..3_u64)
            .map(|writer| {
                let (map, values, key) = (&map, &values, &key);
                scope.spawn(move || {
                    for _ in 0..rounds {
                        for place in
                            (0..KEYS).filter(|place| place % 10 != 0 && place % 2 == writer % 2)
                        {
                            let map = map.pin();
                            assert!(
                                map.insert(key(place), Counted::new(values, place))
                                    .is_none()
                            );
                            map.insert(key(place / 10 * 10), Counted::new(values, place / 10 * 10));
                        }
                        for place in
                            (0..KEYS).filter(|place| place % 10 != 0 && place % 2 == writer % 2)
                        {
                            assert!(map.pin().remove(&key(place)).is_some());
                        }
                    }
                })
            })
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        over.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
    });
    assert_eq!(map.len() as u64, KEYS.div_ceil(10));
    domain.kvfree_barrier();
    assert_eq!(
        values.load(Ordering::Relaxed) as u64,
        KEYS.div_ceil(10),
        "values are dropped"
    );
    map.pin().clear();
    domain.kvfree_barrier();
    assert_eq!((map.len(), values.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn churn_of_numbers() {
    churn(|number| number, |key| *key);
}

#[test]
fn churn_of_other_keys() {
    let keys = Arc::new(AtomicUsize::new(0));
    let made = Arc::clone(&keys);
    churn(
        move |number| Arc::new(Counted::new(&made, number)),
        |key| key.1,
    );
    assert_eq!(
        keys.load(Ordering::Relaxed),
        0,
        "keys are dropped with the map, at the latest"
    );
}

/// An order that changes its mind, and panics: nothing worse than entries that are not found.
#[test]
fn lying_order() {
    static STATE: AtomicUsize = AtomicUsize::new(1);
    #[derive(PartialEq, Eq)]
    struct Liar(Box<u32>);
    impl PartialOrd for Liar {
        fn partial_cmp(&self, other: &Self) -> Option<Is> {
            Some(self.cmp(other))
        }
    }
    impl Ord for Liar {
        fn cmp(&self, other: &Self) -> Is {
            let state = STATE
                .load(Ordering::Relaxed)
                .wrapping_mul(6_364_136_223_846_793_005)
                + 1;
            STATE.store(state, Ordering::Relaxed);
            match state >> 40 {
                lie if lie % 5 == 0 => Is::Less,
                lie if lie % 5 == 1 => Is::Greater,
                lie if lie % 997 == 2 => std::panic::resume_unwind(Box::new(())),
                _ => self.0.cmp(&other.0),
            }
        }
    }
    let map = BTreeMap::new();
    let steps = if cfg!(miri) { 200 } else { 30_000_u32 };
    for step in 0..steps {
        let key = Liar(Box::new(step.wrapping_mul(2_654_435_761) % 2000));
        let lied = std::panic::catch_unwind(|| {
            let map = map.pin();
            match step % 5 {
                0..=2 => drop(map.insert(key, Box::new(step)).map(|value| **value)),
                3 => drop(map.remove(&key).map(|value| **value)),
                _ => drop(map.pop_first().map(|(key, _)| *key.0)),
            }
            if step % 500 == 0 {
                assert!(map.iter().count() <= steps as usize);
                assert!(map.iter().rev().count() <= steps as usize);
            }
        });
        // The liar's panic, and no assertion.
        if let Err(payload) = lied
            && !payload.is::<()>()
        {
            std::panic::resume_unwind(payload);
        }
    }
}

/// The back finds another order in the leaf of the front, which may go on to what was its end.
#[test]
fn ends_that_have_seen_one_leaf_at_two_times_visit_each_entry_once() {
    let map: BTreeMap<u32, ()> = [10, 20, 30].map(|key| (key, ())).into();
    let map = map.pin();
    let mut entries = map.iter();
    assert_eq!(entries.next(), Some((&10, &())));
    map.insert(25, ());
    assert_eq!(entries.next_back(), Some((&30, &())));
    let others = entries.map(|(key, ())| *key).filter(|key| *key != 25);
    assert_eq!(others.collect::<Vec<_>>(), [20]);
}
