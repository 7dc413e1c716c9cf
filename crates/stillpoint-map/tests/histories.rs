//! Operations on one key are linearizable: histories of threads, checked by a search (Wing and
//! Gong, with states remembered, as Lowe does), while the table grows and shrinks, and nodes of the
//! ordered map are divided and merged.
//!
//! Detects no look under the lock, updates of what has gone, and a removal of an entry that a
//! closure has replaced.

use std::{
    cmp::Reverse,
    collections::HashSet,
    convert::identity,
    iter,
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};
use stillpoint_map::{BTreeMap, Compute, CopyCompute, CopyMap, HashMap, Operation};

#[derive(Clone, Copy, Debug)]
enum Kind {
    Get,
    Insert(u64),
    TryInsert(u64),
    Update(u64),
    Remove,
    Compute(u64),
}

/// An operation, from before it began until after it ended, and the value that it has found.
#[derive(Clone, Copy, Debug)]
struct Event {
    began: u64,
    ended: u64,
    kind: Kind,
    found: Option<u64>,
}

/// The value of the key after an operation that has found `state`.
fn after(kind: Kind, state: Option<u64>) -> Option<u64> {
    match kind {
        Kind::Get => state,
        Kind::Insert(value) => Some(value),
        Kind::TryInsert(value) => state.or(Some(value)),
        Kind::Update(value) => state.map(|_| value),
        Kind::Remove => None,
        // Removes what is there, or inserts.
        Kind::Compute(value) => state.is_none().then_some(value),
    }
}

/// Returns whether there is an order of the events that explains what they have found.
fn is_linearizable(events: &[Event], first: Option<u64>) -> bool {
    assert!(events.len() < 64);
    let all = (1_u64 << events.len()) - 1;
    let mut seen = HashSet::new();
    let mut stack = vec![(0_u64, first)];
    while let Some((done, state)) = stack.pop() {
        if done == all {
            return true;
        }
        if !seen.insert((done, state)) {
            continue;
        }
        let left = || (0..events.len()).filter(move |index| done & (1 << index) == 0);
        let first_end = left().map(|index| events[index].ended).min();
        for index in left() {
            let event = events[index];
            if Some(event.began) < first_end && event.found == state {
                stack.push((done | 1 << index, after(event.kind, state)));
            }
        }
    }
    false
}

#[test]
fn the_checker_refuses_what_is_not_linearizable() {
    let event = |began, ended, kind, found| Event {
        began,
        ended,
        kind,
        found,
    };
    let insert = event(0, 1, Kind::Insert(1), None);
    assert!(is_linearizable(
        &[insert, event(2, 3, Kind::Get, Some(1))],
        None
    ));
    assert!(!is_linearizable(
        &[insert, event(2, 3, Kind::Get, None)],
        None
    ));
    let slow = event(0, 9, Kind::Insert(1), None);
    let (seen, unseen) = (
        event(1, 2, Kind::Get, Some(1)),
        event(3, 4, Kind::Get, None),
    );
    assert!(is_linearizable(&[slow, seen], None));
    assert!(is_linearizable(&[slow, unseen], None));
    assert!(!is_linearizable(&[slow, seen, unseen], None));
    let removals = [
        event(0, 5, Kind::Remove, Some(1)),
        event(1, 6, Kind::Remove, Some(1)),
    ];
    assert!(!is_linearizable(&removals, Some(1)));
}

const KEYS: u64 = 2;
const THREADS: usize = 3;
const EACH: usize = 18;
const ROUNDS: usize = if cfg!(miri) { 3 } else { 8000 };
/// What other threads insert and remove.
const OTHERS: u64 = if cfg!(miri) { 20 } else { 200 };

/// What histories are of.
trait Map: Sync {
    /// Whether there is an [`end`](Self::end).
    const IS_ORDERED: bool = false;

    fn act(&self, key: u64, kind: Kind) -> Option<u64>;

    /// The entry at the end where the keys of the histories are, which is taken out or not.
    fn end(&self, _takes: bool) -> Option<(u64, u64)> {
        unreachable!("there is no order")
    }
}

/// Removes what is there, or inserts.
fn flip<T>(is_there: bool, value: u64) -> Operation<u64, T> {
    if is_there {
        Operation::Remove
    } else {
        Operation::Insert(value)
    }
}

/// What the maps of entries do, with keys that are made of numbers.
macro_rules! act {
    ($map:expr, $make:expr, $key:expr, $kind:expr) => {{
        let (map, key, mut seen) = ($map.pin(), $make($key), None);
        match $kind {
            Kind::Get => map.get(&key).copied(),
            Kind::Insert(value) => map.insert(key, value).copied(),
            Kind::TryInsert(value) => map.try_insert(key, value).err().map(|error| *error.current),
            Kind::Update(value) => {
                map.update(&key, |old| {
                    seen = Some(*old);
                    value
                })?;
                seen
            }
            Kind::Remove => map.remove(&key).copied(),
            Kind::Compute(value) => {
                match map.compute(&key, |entry| flip::<()>(entry.is_some(), value)) {
                    Compute::Removed(_, old) => Some(*old),
                    _ => None,
                }
            }
        }
    }};
}

impl Map for HashMap<u64, u64> {
    fn act(&self, key: u64, kind: Kind) -> Option<u64> {
        act!(self, identity, key, kind)
    }
}

impl Map for BTreeMap<u64, u64> {
    const IS_ORDERED: bool = true;

    fn act(&self, key: u64, kind: Kind) -> Option<u64> {
        act!(self, identity, key, kind)
    }

    fn end(&self, takes: bool) -> Option<(u64, u64)> {
        let map = self.pin();
        let end = if takes {
            map.pop_first()
        } else {
            map.first_key_value()
        };
        end.map(|(key, value)| (*key, *value))
    }
}

/// The other way round, and of keys that the map knows nothing of but their order.
impl Map for BTreeMap<Reverse<u64>, u64> {
    const IS_ORDERED: bool = true;

    fn act(&self, key: u64, kind: Kind) -> Option<u64> {
        act!(self, Reverse, key, kind)
    }

    fn end(&self, takes: bool) -> Option<(u64, u64)> {
        let map = self.pin();
        let end = if takes {
            map.pop_last()
        } else {
            map.last_key_value()
        };
        end.map(|(key, value)| (key.0, *value))
    }
}

impl Map for CopyMap<u64, u64> {
    fn act(&self, key: u64, kind: Kind) -> Option<u64> {
        let map = self.pin();
        let mut seen = None;
        match kind {
            Kind::Get => map.get(&key),
            Kind::Insert(value) => map.insert(key, value),
            Kind::TryInsert(value) => map.try_insert(key, value).err(),
            Kind::Update(value) => {
                map.update(&key, |old| {
                    seen = Some(old);
                    value
                })?;
                seen
            }
            Kind::Remove => map.remove(&key),
            Kind::Compute(value) => {
                match map.compute(&key, |entry| flip::<()>(entry.is_some(), value)) {
                    CopyCompute::Removed(_, old) => Some(old),
                    _ => None,
                }
            }
        }
    }
}

#[test]
fn histories_of_single_keys_are_linearizable() {
    check_histories(&HashMap::new());
}

#[test]
fn histories_of_copies_are_linearizable() {
    check_histories(&CopyMap::new());
}

#[test]
fn histories_of_an_ordered_map_are_linearizable() {
    check_histories(&BTreeMap::<u64, u64>::new());
    check_histories(&BTreeMap::<Reverse<u64>, u64>::new());
}

/// What the end of a map, where the keys of the histories are, tells of each of them: it was there, or
/// was not at some moment.
fn told_by(end: Option<(u64, u64)>, takes: bool) -> impl Iterator<Item = (u64, Kind, Option<u64>)> {
    let key_there = end.map_or(KEYS, |(key, _)| key);
    let absent = (0..KEYS.min(key_there)).map(|key| (key, Kind::Get, None));
    let there = end.filter(|(key, _)| *key < KEYS).map(|(key, value)| {
        let kind = if takes { Kind::Remove } else { Kind::Get };
        (key, kind, Some(value))
    });
    absent.chain(there)
}

fn check_histories<M: Map>(map: &M) {
    let (clock, over) = (AtomicU64::new(1), AtomicBool::new(false));
    let barrier = Barrier::new(THREADS + 1);
    let histories: [Mutex<Vec<Event>>; KEYS as usize] = Default::default();
    let (clock, over, barrier, histories) = (&clock, &over, &barrier, &histories);
    thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            scope.spawn(move || {
                let mut random = thread + 1;
                for _ in 0..ROUNDS {
                    barrier.wait();
                    for _ in 0..EACH / KEYS as usize {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let key = random >> 40 & (KEYS - 1);
                        let began = clock.fetch_add(1, Ordering::SeqCst);
                        let note = |told: &mut dyn Iterator<Item = (u64, Kind, Option<u64>)>| {
                            let ended = clock.fetch_add(1, Ordering::SeqCst);
                            for (key, kind, found) in told {
                                histories[key as usize].lock().unwrap().push(Event {
                                    began,
                                    ended,
                                    kind,
                                    found,
                                });
                            }
                        };
                        let kind = match (random >> 48) % if M::IS_ORDERED { 10 } else { 8 } {
                            0 | 1 => Kind::Get,
                            2 | 3 => Kind::Insert(began),
                            4 => Kind::TryInsert(began),
                            5 => Kind::Update(began),
                            6 => Kind::Remove,
                            7 => Kind::Compute(began),
                            end => {
                                let takes = end == 9;
                                note(&mut told_by(map.end(takes), takes));
                                continue;
                            }
                        };
                        note(&mut iter::once((key, kind, map.act(key, kind))));
                    }
                    barrier.wait();
                }
            });
        }
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for key in KEYS..OTHERS {
                    map.act(key, Kind::Insert(key));
                }
                for key in KEYS..OTHERS {
                    map.act(key, Kind::Remove);
                }
            }
        });
        for _ in 0..ROUNDS {
            let first: Vec<_> = (0..KEYS).map(|key| map.act(key, Kind::Get)).collect();
            barrier.wait();
            barrier.wait();
            for (history, first) in histories.iter().zip(first) {
                let events = std::mem::take(&mut *history.lock().unwrap());
                if !is_linearizable(&events, first) {
                    over.store(true, Ordering::Relaxed);
                    eprintln!("from {first:?}: {events:#?}");
                    std::process::abort();
                }
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}
