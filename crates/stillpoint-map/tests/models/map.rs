//! The hash maps beside std's, in one thread.

use super::{
    hashers::{Hashers, KINDS},
    models::Steps,
};
use std::collections::HashMap as Std;
use stillpoint_map::{
    Compute, CopyCompute, CopyMap, Cursor, HashMap, OccupiedError, Operation, PinnedCopyMap,
    PinnedHashMap,
};

/// Keys are below this.
const KEYS: u64 = 2048;

type Model = Std<u64, u64>;

/// A value of a map that stands for a number.
trait Number {
    fn number(&self) -> u64;
}

impl Number for u64 {
    fn number(&self) -> u64 {
        *self
    }
}

impl Number for Box<u64> {
    fn number(&self) -> u64 {
        **self
    }
}

impl<N: Number> Number for &N {
    fn number(&self) -> u64 {
        (**self).number()
    }
}

impl Number for OccupiedError<'_, Box<u64>> {
    fn number(&self) -> u64 {
        self.current.number()
    }
}

fn pair((key, value): (impl Number, impl Number)) -> (u64, u64) {
    (key.number(), value.number())
}

/// Runs a random program with each hash map.
///
/// # Panics
///
/// If a map does not do as the model.
pub fn run(program: &[u8]) {
    entries::run(program);
    copies::run(program);
}

macro_rules! program {
    ($module:ident: $map:ident<$value:ty> as $pinned:ident, $compute:ident, $make:expr) => {
        mod $module {
            use super::*;

            type Pinned = $pinned<u64, $value, Hashers>;

            fn value(number: u64) -> $value {
                ($make)(number)
            }

            pub fn run(program: &[u8]) {
                let mut steps = Steps(program);
                let kind = KINDS[usize::from(steps.byte().unwrap_or(0)) % KINDS.len()];
                let map: $map<u64, $value, Hashers> = $map::with_hasher(Hashers::of(kind));
                let (mut model, mut new) = (Model::new(), 0);
                let mut more = true;
                while more {
                    let pinned = map.pin();
                    // What a section has found stays as it is until the section ends.
                    let (mut held, mut end) = (Vec::new(), None);
                    while let (Some(step), Some(low), Some(high)) =
                        (steps.byte(), steps.byte(), steps.byte())
                    {
                        new += 1;
                        let key = u64::from(low) | u64::from(high % 8) << 8;
                        match step % 21 {
                            7 => {
                                let found = pinned.get(&key);
                                let number = found.map(|value| value.number());
                                assert_eq!(number, model.get(&key).copied());
                                assert_eq!(pinned.contains_key(&key), found.is_some());
                                let entry = pinned.get_key_value(&key).map(pair);
                                assert_eq!(entry, number.map(|number| (key, number)));
                                held.extend(found.map(|value| (value, value.number())));
                            }
                            20 => {
                                end = Some(low);
                                break;
                            }
                            step => take(&pinned, &mut model, step, key, [low, high], new),
                        }
                    }
                    for (value, expected) in held {
                        assert_eq!(
                            value.number(),
                            expected,
                            "it changed while it was referred to"
                        );
                    }
                    drop(pinned);
                    assert_eq!(map.len(), model.len());
                    if end.is_some_and(|end| end.is_multiple_of(2)) {
                        // Slots that were emptied come free: two epochs end with two of these.
                        map.domain().synchronize();
                    }
                    more = end.is_some();
                }
                assert_same(&map.pin(), &model);
                assert_eq!(map.clone(), map);
                assert_eq!(map.into_iter().map(pair).collect::<Model>(), model);
            }

            fn take(
                map: &Pinned,
                model: &mut Model,
                step: u8,
                key: u64,
                [low, high]: [u8; 2],
                new: u64,
            ) {
                let number = |value: Option<_>| value.map(|value| Number::number(&value));
                let keys = key..(key + u64::from(high) * 2).min(KEYS);
                match step {
                    0..=2 => {
                        assert_eq!(number(map.insert(key, value(new))), model.insert(key, new))
                    }
                    3 => assert_eq!(number(map.remove(&key)), model.remove(&key)),
                    4 => {
                        // Often enough for a list behind the bucket.
                        for _ in 0..low % 16 {
                            let expected = model.get_mut(&key).map(|value| {
                                *value += 1;
                                *value
                            });
                            let updated = map.update(&key, |old| value(old.number() + 1));
                            assert_eq!(number(updated), expected);
                        }
                    }
                    5 => match map.try_insert(key, value(new)) {
                        Ok(value) => {
                            assert_eq!(value.number(), new);
                            assert_eq!(model.insert(key, new), None);
                        }
                        Err(occupied) => assert_eq!(model.get(&key), Some(&occupied.number())),
                    },
                    6 => compute(map, model, key, new),
                    8 | 9 => {
                        for key in keys {
                            assert_eq!(number(map.insert(key, value(new))), model.insert(key, new));
                        }
                    }
                    10 | 11 => {
                        for key in keys {
                            assert_eq!(number(map.remove(&key)), model.remove(&key));
                        }
                    }
                    12 => {
                        let divisor = u64::from(low % 5) + 2;
                        map.retain(|key, value| !(key + value.number()).is_multiple_of(divisor));
                        model.retain(|key, value| !(*key + *value).is_multiple_of(divisor));
                    }
                    13 => {
                        map.clear();
                        model.clear();
                    }
                    14 => {
                        map.reserve(usize::from(low) * 8);
                        assert_same(map, model);
                    }
                    15 => map.shrink_to_fit(),
                    16 => assert_same(map, model),
                    17 => {
                        let is_even = |value: u64| value.is_multiple_of(2);
                        let expected = model.get(&key).map(|value| (key, *value));
                        match map.remove_if(&key, |_, value| is_even(value.number())) {
                            Ok(entry) => {
                                assert_eq!(entry.map(pair), expected);
                                model.remove(&key);
                            }
                            Err(kept) => {
                                assert!(!is_even(pair(kept).1));
                                assert_eq!(Some(pair(kept)), expected);
                            }
                        }
                    }
                    18 => {
                        let updated = map.update_or_insert_with(
                            key,
                            |old| value(old.number() ^ 1),
                            || value(new),
                        );
                        let expected = model.entry(key).and_modify(|old| *old ^= 1).or_insert(new);
                        assert_eq!(updated.number(), *expected);
                    }
                    _ => change_while_walking(map, model, low, keys, new),
                }
            }

            /// A walk stands in the middle while keys are removed, or come and are replaced, or some of each: so
            /// the table may shrink or grow. It visits those that stay as they are once, and the others with no
            /// value that they never had.
            fn change_while_walking(
                map: &Pinned,
                model: &mut Model,
                first: u8,
                keys: std::ops::Range<u64>,
                new: u64,
            ) {
                let before = model.clone();
                let mut walk = map.iter();
                let mut visits: Vec<_> = walk.by_ref().take(first.into()).collect();
                if first.is_multiple_of(2) {
                    map.shrink_to_fit();
                }
                for key in keys {
                    if key % 3 < new % 4 {
                        assert_eq!(map.remove(&key).is_some(), model.remove(&key).is_some());
                    } else {
                        map.insert(key, value(new));
                        model.insert(key, new);
                    }
                }
                visits.extend(walk);
                let mut visited = Model::new();
                for (key, value) in visits.into_iter().map(pair) {
                    assert_eq!(visited.insert(key, value), None, "{key} is visited twice");
                    let had = [before.get(&key), model.get(&key)];
                    assert!(had.contains(&Some(&value)), "{key} never was {value}");
                }
                for (key, value) in before {
                    if model.get(&key) == Some(&value) {
                        assert_eq!(visited.get(&key), Some(&value), "{key} stays");
                    }
                }
            }

            fn compute(map: &Pinned, model: &mut Model, key: u64, new: u64) {
                let present = model.get(&key).map(|value| (key, *value));
                let done = map.compute(&key, |entry| {
                    assert_eq!(entry.map(pair), present);
                    match (entry, new % 3) {
                        (_, 0) => Operation::Abort(new),
                        (Some(_), 1) => Operation::Remove,
                        _ => Operation::Insert(value(new)),
                    }
                });
                match done {
                    $compute::Aborted(with) => assert_eq!((with, new % 3), (new, 0)),
                    $compute::Removed(found, value) => {
                        assert_eq!(Some(pair((found, value))), present);
                        model.remove(&key);
                    }
                    $compute::Inserted(found, value) => {
                        assert_eq!(pair((found, value)), (key, new));
                        assert_eq!(model.insert(key, new), None);
                    }
                    $compute::Updated { old, new: now } => {
                        assert_eq!((Some(pair(old)), pair(now)), (present, (key, new)));
                        model.insert(key, new);
                    }
                }
            }

            /// All entries, by a walk, by a cursor and by look-ups.
            fn assert_same(map: &Pinned, model: &Model) {
                let mut visited = Model::new();
                for (key, value) in map.iter().map(pair) {
                    assert_eq!(visited.insert(key, value), None, "{key} is visited twice");
                }
                assert_eq!(&visited, model);
                let (mut cursor, mut scanned) = (Cursor::start(), Model::new());
                while map.scan(&mut cursor, 5, |key, value| {
                    let (key, value) = pair((key, value));
                    assert_eq!(scanned.insert(key, value), None, "{key} is scanned twice");
                }) {}
                assert_eq!(&scanned, model);
                for (key, value) in model {
                    assert_eq!(map.get(key).map(|value| value.number()), Some(*value));
                }
            }
        }
    };
}

// Values are boxes, so that Miri and sanitizers see a value that is used after its drop.
program! { entries: HashMap<Box<u64>> as PinnedHashMap, Compute, Box::new }
program! { copies: CopyMap<u64> as PinnedCopyMap, CopyCompute, |number: u64| number }
