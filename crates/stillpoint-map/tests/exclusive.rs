//! What the maps' methods do that take `&mut self`, beside std's maps: also while the service thread moves
//! the table, with leaked iterators and guards, and with user code that panics.
//!
//! Detects an entry that is visited twice or not at all, a change of a value that is lost in a move, a value
//! that is dropped twice or leaked, and references to one entry at a time.

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;
#[path = "models/hashers.rs"]
mod hashers;

use common::{Random, Tally, Tracked, eventually, expected_panic, quietly};
use hashers::{Hashers, KINDS};
use std::{
    cell::Cell,
    collections::BTreeMap as Std,
    mem::forget,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use stillpoint::{Domain, tasks_trace::TraceDomain};
use stillpoint_map::{BTreeMap, CopyMap, HashMap, HashSet};

/// A value that is a number. Those of maps that own them are boxes, so that Miri sees one that is used after
/// its drop.
trait Number {
    fn of(number: u64) -> Self;
    fn number(&mut self) -> &mut u64;
}

impl Number for u64 {
    fn of(number: u64) -> Self {
        number
    }

    fn number(&mut self) -> &mut u64 {
        self
    }
}

impl Number for Box<u64> {
    fn of(number: u64) -> Self {
        Box::new(number)
    }

    fn number(&mut self) -> &mut u64 {
        self
    }
}

const STEPS: usize = if cfg!(miri) { 40 } else { 500 };
const KEYS: u64 = if cfg!(miri) { 40 } else { 600 };

/// Runs random steps of a map whose keys `$key` makes, and the same of a model; `$more` does other steps, of
/// these numbers on.
macro_rules! program {
    (
        $run:ident: $map:ty, $key:expr,
        |$one:ident, $model:ident, $random:ident, $step:ident| $more:expr
    ) => {
        fn $run(mut map: $map, seed: u64) {
            let (mut random, mut model) = (Random(seed), Std::new());
            let key = $key;
            for _ in 0..STEPS {
                let number = random.below(KEYS);
                match random.below(16) {
                    // Runs of keys, so that tables grow and shrink.
                    step @ 0..=4 => {
                        for number in number..(number + random.below(KEYS / 2)).min(KEYS) {
                            if step > 2 {
                                assert_eq!(
                                    map.pin().remove(&key(number)).is_some(),
                                    model.remove(&key(number)).is_some()
                                );
                            } else {
                                map.pin().insert(key(number), Number::of(number));
                                model.insert(key(number), number);
                            }
                        }
                    }
                    5 => {
                        let found = map.get_mut(&key(number)).map(|value| {
                            *value.number() += 1;
                            *value.number()
                        });
                        let expected = model.get_mut(&key(number)).map(|value| {
                            *value += 1;
                            *value
                        });
                        assert_eq!(found, expected);
                    }
                    6 => {
                        // All at a time: no two refer to the same value.
                        let mut all: Vec<_> = map.iter_mut().collect();
                        assert_eq!(all.len(), model.len());
                        for (key, value) in &mut all {
                            *value.number() += 3;
                            *model.get_mut(&**key).expect("it has the key") += 3;
                        }
                    }
                    7 => {
                        map.values_mut().for_each(|value| *value.number() *= 2);
                        model.values_mut().for_each(|value| *value *= 2);
                        // They must not overflow.
                        map.values_mut().for_each(|value| *value.number() %= 1000);
                        model.values_mut().for_each(|value| *value %= 1000);
                    }
                    8 => {
                        let divisor = random.below(4) + 2;
                        map.retain(|_, value| {
                            *value.number() += 1;
                            value.number().is_multiple_of(divisor)
                        });
                        model.retain(|_, value| {
                            *value += 1;
                            value.is_multiple_of(divisor)
                        });
                    }
                    9 => {
                        let taken = map.drain();
                        assert_eq!(map.len(), 0);
                        let taken: Std<_, _> = taken
                            .map(|(key, mut value)| (key, *value.number()))
                            .collect();
                        assert_eq!(taken, std::mem::take(&mut model));
                    }
                    $step => {
                        let ($one, $model, $random) = (&mut map, &mut model, &mut random);
                        let _ = (&$one, &$model, &$random, $step);
                        $more;
                    }
                }
                assert_eq!(map.len(), model.len());
            }
            let left: Std<_, _> = map
                .into_iter()
                .map(|(key, mut value)| (key, *value.number()))
                .collect();
            assert_eq!(left, model);
        }
    };
}

program! {
    hashed: HashMap<u64, Box<u64>, Hashers>, |number: u64| number,
    |map, model, random, step| {
        let key = random.below(KEYS);
        if step % 2 == 0 {
            assert_eq!(map.remove(&key).map(|value| *value), model.remove(&key));
        } else {
            let entry = map.remove_entry(&key).map(|(key, value)| (key, *value));
            assert_eq!(entry, model.remove_entry(&key));
        }
    }
}

#[test]
fn random_programs_of_a_hash_map() {
    for kind in KINDS {
        hashed(
            HashMap::with_hasher(Hashers::of(kind)),
            0x2545_f491_4f6c_dd1d,
        );
    }
    hashed(
        HashMap::with_hasher_in(Hashers::of(KINDS[0]), &TraceDomain::new()),
        0x9e37_79b9_7f4a_7c15,
    );
}

program! {
    copied: CopyMap<u64, u64, Hashers>, |number: u64| number,
    |map, model, random, step| {}
}

#[test]
fn random_programs_of_a_copy_map() {
    for kind in KINDS {
        copied(
            CopyMap::with_hasher(Hashers::of(kind)),
            0x2545_f491_4f6c_dd1d,
        );
    }
    copied(
        CopyMap::with_hasher_in(Hashers::of(KINDS[0]), &TraceDomain::new()),
        0x9e37_79b9_7f4a_7c15,
    );
}

/// The service thread moves the table to smaller ones meanwhile, which takes entries along.
#[test]
fn copies_are_changed_while_the_table_moves() {
    for _ in 0..if cfg!(miri) { 2 } else { 10 } {
        let mut map: CopyMap<u64, u64> = (0..MANY).map(|key| (key, 0)).collect();
        for key in MANY / 16..MANY {
            map.pin().remove(&key);
        }
        map.pin().shrink_to_fit();
        for round in 0..4 {
            for (key, value) in &mut map {
                assert_eq!(*value, round * (key + 3));
                *value += 1;
            }
            map.values_mut().for_each(|value| *value += 1);
            for key in 0..MANY / 16 {
                *map.get_mut(&key).expect("it is there") += key;
            }
            map.retain(|key, value| {
                *value += 1;
                *value == (round + 1) * (key + 3)
            });
            assert_eq!(map.len() as u64, MANY / 16);
        }
        // Without another change the service thread goes on with the next move.
        for key in 8..MANY / 16 {
            map.pin().remove(&key);
        }
        eventually(|| map.pin().capacity() < 100);
        assert_eq!(map.drain().count(), 8);
    }
}

/// The callback that moves the table waits for a section: the borrower ends the move.
#[test]
fn a_move_is_ended_before_copies_are_changed() {
    let domain = TraceDomain::new();
    let mut map: CopyMap<u64, u64> = CopyMap::with_capacity_in(MANY as usize, &domain);
    map.extend((0..4).map(|key| (key, key)));
    let section = domain.read_lock();
    map.pin().shrink_to_fit();
    assert!(map.pin().capacity() > 40);
    assert_eq!(map.iter_mut().count(), 4);
    assert!(map.pin().capacity() < 40, "{}", map.pin().capacity());
    *map.get_mut(&3).expect("it is there") += 1;
    assert_eq!(map.pin().get(&3), Some(4));
    drop(section);
}

/// A key that the tree's hints say nothing of, so that fences are entries.
type Opaque = (u64, String);

fn opaque(number: u64) -> Opaque {
    (number, number.to_string())
}

/// A step that maps in order have besides, of keys that `key` makes.
macro_rules! in_order {
    ($map:ident, $model:ident, $random:ident, $step:ident, $key:expr) => {{
        let (key, entry) = ($key, |(key, value): (_, Box<u64>)| (key, *value));
        let number = $random.below(KEYS);
        match $step {
            10 => {
                let end = number + $random.below(KEYS);
                let mut mutable: Vec<_> = $map.range_mut(key(number)..key(end)).rev().collect();
                mutable.iter_mut().for_each(|(_, value)| ***value += 1);
                let mut expected: Vec<_> = $model.range_mut(key(number)..key(end)).rev().collect();
                expected.iter_mut().for_each(|(_, value)| **value += 1);
                assert!(
                    mutable
                        .iter()
                        .map(|(key, value)| (*key, &***value))
                        .eq(expected.iter().map(|(key, value)| (*key, &**value)))
                );
            }
            11 => {
                // From both ends, in turn.
                let mut all = $map.iter_mut();
                let mut found = Vec::new();
                while let Some(entry) = if $random.below(2) == 0 {
                    all.next()
                } else {
                    all.next_back()
                } {
                    found.push(entry);
                }
                assert!(all.next().is_none() && all.next_back().is_none());
                found.iter_mut().for_each(|(_, value)| ***value += 1);
                $model.values_mut().for_each(|value| *value += 1);
                assert_eq!(found.len(), $model.len());
            }
            12 => {
                for _ in 0..$random.below(KEYS / 3) {
                    match $random.below(3) {
                        0 => assert_eq!($map.pop_first().map(entry), $model.pop_first()),
                        1 => assert_eq!($map.pop_last().map(entry), $model.pop_last()),
                        _ => {
                            let key = key($random.below(KEYS));
                            assert_eq!($map.remove(&key).map(|value| *value), $model.remove(&key));
                        }
                    }
                }
            }
            13 => {
                // Leaves, one after the other, in part or whole.
                for number in number..number + $random.below(KEYS / 2) {
                    let key = key(number);
                    assert_eq!(
                        $map.remove_entry(&key).map(entry),
                        $model.remove_entry(&key)
                    );
                }
            }
            14 => {
                let (first, expected) = ($map.first_entry(), $model.first_entry());
                assert_eq!(first.is_some(), expected.is_some());
                if let (Some(mut first), Some(mut expected)) = (first, expected) {
                    assert_eq!(
                        (first.key(), &**first.get()),
                        (expected.key(), expected.get())
                    );
                    assert_eq!(*first.insert(Box::new(number)), expected.insert(number));
                    **first.get_mut() += 1;
                    *expected.get_mut() += 1;
                    **first.into_mut() += 1;
                    *expected.into_mut() += 1;
                }
            }
            _ => {
                let last = $map.last_entry().map(|last| *last.remove());
                assert_eq!(last, $model.last_entry().map(|last| last.remove()));
            }
        }
    }};
}

program! {
    ordered: BTreeMap<Opaque, Box<u64>>, opaque,
    |map, model, random, step| in_order!(map, model, random, step, opaque)
}

program! {
    ordered_by_hints: BTreeMap<u64, Box<u64>>, |number: u64| number,
    |map, model, random, step| in_order!(map, model, random, step, |number: u64| number)
}

#[test]
fn random_programs_of_an_ordered_map() {
    let seeds = if cfg!(miri) { 1 } else { 3 };
    for seed in 1..=seeds {
        ordered(
            BTreeMap::new(),
            0x2545_f491_4f6c_dd1d_u64.wrapping_mul(seed),
        );
        ordered_by_hints(
            BTreeMap::new(),
            0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed),
        );
    }
}

/// Large enough for three levels, emptied by removals whose keys are fences: from both ends, from the middle,
/// and all but the first entries of leaves.
#[test]
fn keys_that_are_fences_are_taken_out() {
    const ENTRIES: u64 = if cfg!(miri) { 470 } else { 9000 };
    let middle = (ENTRIES / 2..ENTRIES).chain(0..ENTRIES / 2);
    let sparse = |rest: u64| (0..ENTRIES).filter(move |number| number % 7 == rest);
    let orders: [Box<dyn Iterator<Item = u64>>; 4] = [
        Box::new(0..ENTRIES),
        Box::new((0..ENTRIES).rev()),
        Box::new(middle),
        Box::new((0..7).flat_map(sparse)),
    ];
    // From the middle on, leaves that are first children go, too.
    let chosen = if cfg!(miri) { 2..3 } else { 0..4 };
    for (order, numbers) in orders.into_iter().enumerate() {
        if !chosen.contains(&order) {
            continue;
        }
        let tally = Tally::new();
        let mut map: BTreeMap<Opaque, Tracked> = BTreeMap::new();
        for number in 0..ENTRIES {
            map.pin().insert(opaque(number), tally.value(number));
        }
        for (removed, number) in numbers.enumerate() {
            let (key, value) = match order {
                0 => map.pop_first().expect("it is there"),
                1 => map.pop_last().expect("it is there"),
                _ => map.remove_entry(&opaque(number)).expect("it is there"),
            };
            assert_eq!((key, value.get()), (opaque(number), number));
            drop(value);
            assert_eq!(tally.dropped(), removed + 1);
        }
        assert!(map.is_empty() && map.first_entry().is_none() && map.iter_mut().next().is_none());
        map.pin().insert(opaque(1), tally.value(1));
        assert_eq!(map.drain().count(), 1);
    }
}

/// A key that counts its drops, and whose order no hint tells.
struct Counted(u64, Arc<AtomicU64>);

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// No key waits for a grace period, which no budget would count. Leaves lose all of their entries, their first
/// ones, or all but those.
#[test]
fn keys_that_are_fences_are_dropped_by_a_retain() {
    const ENTRIES: u64 = if cfg!(miri) { 470 } else { 9000 };
    let kept: [fn(u64) -> bool; 5] = [
        |_| false,
        |number| number % 7 == 0,
        |number| number % 200 == 199,
        |number| number > ENTRIES / 3,
        |number| number < ENTRIES / 2 && number % 2 == 1,
    ];
    for is_kept in kept {
        let dropped = Arc::new(AtomicU64::new(0));
        let key = |number| Counted(number, Arc::clone(&dropped));
        let mut map: BTreeMap<Counted, u64> = BTreeMap::new();
        for number in 0..ENTRIES {
            map.pin().insert(key(number), number);
        }
        let mut visited = 0;
        map.retain(|key, value| {
            assert_eq!((key.0, *value), (visited, visited));
            visited += 1;
            is_kept(key.0)
        });
        assert_eq!(visited, ENTRIES);
        let left: Vec<_> = (0..ENTRIES).filter(|number| is_kept(*number)).collect();
        let removed = ENTRIES - left.len() as u64;
        assert_eq!(dropped.load(Ordering::Relaxed), removed);
        assert!(
            map.iter_mut()
                .map(|(_, value)| *value)
                .eq(left.iter().copied())
        );
        assert!(
            left.iter()
                .all(|number| map.get_mut(&key(*number)).is_some())
        );
        assert!(map.into_values().eq(left));
    }
}

/// Keys in no order: each entry is visited once all the same, and taken once.
#[test]
fn an_order_that_lies() {
    #[derive(Debug)]
    struct Liar(u64);
    impl PartialEq for Liar {
        fn eq(&self, _: &Self) -> bool {
            false
        }
    }
    impl Eq for Liar {}
    impl PartialOrd for Liar {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }
    impl Ord for Liar {
        fn cmp(&self, _: &Self) -> std::cmp::Ordering {
            let mut random = Random(CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
            [std::cmp::Ordering::Less, std::cmp::Ordering::Greater][random.below(2) as usize]
        }
    }
    static CALLS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    for _ in 0..if cfg!(miri) { 1 } else { 20 } {
        let tally = Tally::new();
        let mut map = BTreeMap::new();
        for number in 0..if cfg!(miri) { 60 } else { 200 } {
            map.pin().insert(Liar(number), tally.value(number));
        }
        let entries = map.len();
        let ranges = [
            map.range_mut(Liar(1)..).count(),
            map.range_mut(..Liar(1)).count(),
        ];
        assert!(ranges.iter().all(|count| *count <= entries));
        let mut range = map.iter_mut();
        let mut found = std::collections::HashSet::new();
        while let Some((_, value)) = range.next() {
            assert!(found.insert(std::ptr::from_mut(value)));
            found.extend(
                range
                    .next_back()
                    .map(|(_, value)| std::ptr::from_mut(value)),
            );
        }
        assert_eq!(found.len(), entries);
        map.retain(|key, _| key.0 % 3 > 0);
        map.pop_first();
        map.last_entry().map(|last| last.remove());
        let mut left = map.into_iter();
        while left.next().is_some() {
            left.next_back();
        }
        drop(left);
        assert!(tally.all_dropped());
    }
}

#[test]
fn an_ordered_map_is_taken_apart_from_both_ends() {
    let tally = Tally::new();
    let map: BTreeMap<Opaque, Tracked> = (0..100)
        .map(|number| (opaque(number), tally.value(number)))
        .collect();
    let mut entries = map.into_iter();
    assert_eq!(entries.next_back().expect("it has some").0, opaque(99));
    assert_eq!(entries.next().expect("it has some").0, opaque(0));
    assert_eq!(
        (
            entries.len(),
            format!("{entries:?}").matches("Tracked").count()
        ),
        (98, 98)
    );
    assert!(
        entries
            .by_ref()
            .rev()
            .take(50)
            .map(|(key, _)| key.0)
            .eq((49..99).rev())
    );
    assert!(entries.by_ref().take(40).map(|(key, _)| key.0).eq(1..41));
    drop(entries);
    assert!(tally.all_dropped());
}

/// What stands for a mutable borrow goes to another thread though values are not shared.
#[test]
fn borrowed_entries_go_to_other_threads() {
    let mut map: BTreeMap<u32, Cell<u32>> = (0..100).map(|key| (key, Cell::new(key))).collect();
    let mut first = map.first_entry().expect("it has some");
    std::thread::scope(|scope| {
        scope.spawn(|| first.get_mut().set(7));
    });
    let removed = std::thread::scope(|scope| scope.spawn(move || first.remove()).join());
    assert_eq!(removed.expect("it does not panic").get(), 7);
    assert_eq!(map.len(), 99);
}

/// An iterator knows how many entries are left.
#[test]
fn mutable_iterators_know_how_many_entries_are_left() {
    let mut map: HashMap<u64, u64> = (0..MANY).map(|key| (key, 0)).collect();
    let mut copies: CopyMap<u64, u64> = (0..MANY).map(|key| (key, 0)).collect();
    assert_eq!(map.values_mut().len(), MANY as usize);
    let (mut entries, mut copies) = (map.iter_mut(), copies.iter_mut());
    for left in (0..MANY as usize).rev() {
        assert!(entries.next().is_some() && copies.next().is_some());
        assert_eq!((entries.len(), copies.len()), (left, left));
    }
    assert!(entries.next().is_none() && copies.next().is_none());
}

#[test]
fn a_set_that_is_borrowed_mutably() {
    let mut set: HashSet<String> = (0..100).map(|number| number.to_string()).collect();
    assert_eq!(set.take("7"), Some("7".to_owned()));
    assert_eq!(set.take("7"), None);
    set.retain(|value| value.len() == 1);
    let mut left: Vec<_> = set.drain().collect();
    left.sort();
    assert_eq!(left, ["0", "1", "2", "3", "4", "5", "6", "8", "9"]);
    assert!(set.is_empty() && set.pin().insert("7".to_owned()));
}

const MANY: u64 = if cfg!(miri) { 200 } else { 6_000 };

/// The service thread moves the table to a larger one, and to a smaller one.
#[test]
fn values_are_changed_while_the_table_moves() {
    let mut map: HashMap<u64, u64> = (0..MANY).map(|key| (key, 0)).collect();
    for round in 0..4_u64 {
        if round % 2 == 0 {
            map.pin().reserve(16 * MANY as usize);
        } else {
            map.pin().shrink_to_fit();
        }
        for (key, value) in &mut map {
            assert_eq!(*value, round * (key + 2));
            *value += 1;
        }
        for key in 0..MANY {
            *map.get_mut(&key).expect("it is there") += key;
        }
        map.values_mut().for_each(|value| *value += 1);
        map.retain(|key, value| *value == (round + 1) * (key + 2));
        assert_eq!(map.len(), MANY as usize);
    }
    map.pin().reserve(64 * MANY as usize);
    for key in 0..MANY / 2 {
        assert_eq!(map.remove(&key), Some(4 * (key + 2)));
    }
    map.retain(|key, _| key % 2 == 1);
    assert_eq!(map.drain().map(|(key, _)| key % 2).sum::<u64>(), MANY / 4);
}

#[test]
fn leaked_iterators_and_guards() {
    let tally = Tally::new();
    let mut map: HashMap<u64, Tracked> = (0..200).map(|key| (key, tally.value(key))).collect();
    let mut entries = map.iter_mut();
    assert!(entries.next().is_some());
    forget(entries);
    assert_eq!(map.len(), 200);
    let mut copies: CopyMap<u64, u64> = (0..200).map(|key| (key, key)).collect();
    forget(copies.drain());
    assert!(copies.is_empty() && copies.pin().insert(1, 1).is_none());
    let mut ordered: BTreeMap<u64, String> = (0..200).map(|key| (key, key.to_string())).collect();
    forget(ordered.drain());
    assert!(ordered.is_empty() && ordered.pin().insert(1, String::new()).is_none());
    let mut entries = map.drain();
    assert!(entries.next().is_some());
    assert_eq!(tally.dropped(), 1);
    forget(entries);
    assert!(map.is_empty());
    map.pin().insert(1, tally.value(1));
    assert_eq!(map.get_mut(&1).map(|value| value.get()), Some(1));
    drop(map);
    assert_eq!(tally.dropped(), 2);
    // In its domain nothing waits for the section that stays open.
    let mut map = HashMap::new_in(&TraceDomain::new());
    map.pin().insert(1, tally.value(1));
    forget(map.pin_owned());
    assert_eq!(map.get_mut(&1).map(|value| value.get()), Some(1));
    assert_eq!(map.remove(&1).map(|value| value.get()), Some(1));
    assert_eq!(tally.dropped(), 3);
}

/// A section that stays open keeps what was removed before it from being freed; what is removed by `&mut`
/// is the caller's all the same.
#[test]
fn entries_are_owned_while_sections_are_open() {
    let domain = TraceDomain::new();
    let mut map = HashMap::new_in(&domain);
    let tally = Tally::new();
    for key in 0..100 {
        map.pin().insert(key, tally.value(key));
    }
    let (section, owned) = (domain.read_lock(), domain.read_lock_owned());
    map.pin().remove(&99);
    map.pin().insert(98, tally.value(98));
    let value = map.remove(&7).expect("it is there");
    assert_eq!((value.get(), tally.dropped()), (7, 0));
    drop(value);
    map.retain(|key, _| *key >= 50);
    assert_eq!(tally.dropped(), 50);
    assert_eq!(
        map.drain().map(|(_, value)| value.get()).sum::<u64>(),
        (50..99).sum()
    );
    assert_eq!(tally.dropped(), 99);
    drop((section, owned));
    drop(map);
    domain.kvfree_barrier_nested();
    assert!(tally.all_dropped());
}

/// A value whose drop panics, if it says so.
struct Fails {
    fails: bool,
    _counted: Tracked,
}

impl Fails {
    fn new(tally: &Tally, key: u64, fails: bool) -> Self {
        Self {
            fails,
            _counted: tally.value(key),
        }
    }
}

impl Drop for Fails {
    fn drop(&mut self) {
        if self.fails {
            expected_panic();
        }
    }
}

#[test]
fn user_code_that_panics() {
    let tally = Tally::new();
    let mut map: HashMap<u64, Fails> = (0..100)
        .map(|key| (key, Fails::new(&tally, key, key == 50)))
        .collect();
    // What the closure had refused before is gone, and the rest is there.
    let mut visited = 0;
    let stopped = quietly(|| {
        catch_unwind(AssertUnwindSafe(|| {
            map.retain(|key, _| {
                visited += 1;
                if visited == 40 {
                    expected_panic();
                }
                *key == 50
            });
        }))
    });
    assert!(stopped.is_err());
    assert!((61..=62).contains(&map.len()));
    assert_eq!(tally.dropped() + map.len(), 100);
    // One whose drop panics is removed.
    let stopped = quietly(|| catch_unwind(AssertUnwindSafe(|| map.retain(|key, _| *key != 50))));
    assert!(stopped.is_err() && map.get_mut(&50).is_none());
    assert_eq!(tally.dropped() + map.len(), 100);
    // The others of a drain are dropped all the same.
    map.pin().insert(50, Fails::new(&tally, 50, true));
    let stopped = quietly(|| catch_unwind(AssertUnwindSafe(|| drop(map.drain()))));
    assert!(stopped.is_err() && map.is_empty() && tally.all_dropped());
}

#[test]
fn user_code_that_panics_in_the_other_maps() {
    let tally = Tally::new();
    let mut ordered: BTreeMap<u64, Fails> = (0..100)
        .map(|key| (key, Fails::new(&tally, key, key == 50)))
        .collect();
    let stopped = quietly(|| {
        catch_unwind(AssertUnwindSafe(|| {
            ordered.retain(|key, _| *key != 50 && (*key != 60 || expected_panic()));
        }))
    });
    assert!(stopped.is_err() && ordered.get_mut(&50).is_none());
    assert_eq!((ordered.len(), tally.dropped()), (99, 1));
    ordered.retain(|_, _| false);
    assert_eq!(tally.dropped(), 100);
    let mut copies: CopyMap<u64, u64> = (0..100).map(|key| (key, key)).collect();
    let mut visited = 0;
    let stopped = quietly(|| {
        catch_unwind(AssertUnwindSafe(|| {
            copies.retain(|_, value| {
                *value += 1000;
                visited += 1;
                visited != 40 || expected_panic()
            });
        }))
    });
    assert!(stopped.is_err());
    assert_eq!(
        (
            copies.len(),
            copies.pin().values().filter(|value| *value >= 1000).count()
        ),
        (100, 40)
    );
}

/// A drain leaves the capacity that was asked for.
#[test]
fn a_drained_map_keeps_its_capacity() {
    const CAPACITY: u32 = if cfg!(miri) { 50 } else { 1000 };
    let mut map: HashMap<u32, u32> = HashMap::with_capacity_in(CAPACITY as usize, &Domain::new());
    let capacity = map.pin().capacity();
    map.pin().insert(1, 1);
    assert_eq!(map.drain().count(), 1);
    assert_eq!(map.pin().capacity(), capacity);
    let mut copies: CopyMap<u32, u32> =
        CopyMap::with_capacity_in(CAPACITY as usize, &Domain::new());
    let capacity = copies.pin().capacity();
    copies.pin().insert(1, 1);
    assert_eq!(copies.drain().count(), 1);
    assert_eq!(copies.pin().capacity(), capacity);
    let mut grown: HashMap<u32, u32> = (0..CAPACITY).map(|key| (key, key)).collect();
    assert_eq!(grown.drain().count(), CAPACITY as usize);
    assert!(grown.pin().capacity() < 50);
}
