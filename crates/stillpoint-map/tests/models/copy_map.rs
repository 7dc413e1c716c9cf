//! The concurrent map of copies beside std's, in one thread.

use super::{
    hashers::{Hashers, KINDS},
    models::Steps,
};
use std::{collections::HashMap as Std, ops::Range};
use stillpoint_map::{CopyCompute, CopyMap, Cursor, Operation, PinnedCopyMap};

/// Keys are below this.
const KEYS: u64 = 2048;

type Map = CopyMap<u64, u64, Hashers>;
type Model = Std<u64, u64>;

/// # Panics
///
/// If the map does not do as the model.
pub fn run(program: &[u8]) {
    let mut steps = Steps(program);
    let kind = KINDS[usize::from(steps.byte().unwrap_or(0)) % KINDS.len()];
    let map = Map::with_hasher(Hashers::of(kind));
    let mut model = Model::new();
    let mut next_value = 0;
    loop {
        let Some(end) = section(&map.pin(), &mut model, &mut steps, &mut next_value) else {
            break;
        };
        assert_eq!(map.len(), model.len());
        if end.is_multiple_of(2) {
            // Slots that were emptied come free: two epochs end with two of these.
            map.domain().synchronize();
        }
    }
    assert_same(&map.pin(), &model);
    assert_eq!(map.clone(), map);
    let mut entries: Vec<_> = map.into_iter().collect();
    entries.sort_unstable();
    let mut expected: Vec<_> = model.into_iter().collect();
    expected.sort_unstable();
    assert_eq!(entries, expected);
}

/// Takes steps until one of them ends the section. Returns a byte of that one; `None` at the
/// program's end.
fn section(
    map: &PinnedCopyMap<u64, u64, Hashers>,
    model: &mut Model,
    steps: &mut Steps<'_>,
    next_value: &mut u64,
) -> Option<u8> {
    while let Some(step) = steps.byte() {
        let (Some(low), Some(high)) = (steps.byte(), steps.byte()) else {
            break;
        };
        let key = u64::from(low) | u64::from(high % 8) << 8;
        let many = u64::from(high) * 2;
        *next_value += 1;
        let new = *next_value;
        match step % 21 {
            0..=2 => assert_eq!(map.insert(key, new), model.insert(key, new)),
            3 => assert_eq!(map.remove(&key), model.remove(&key)),
            4 => {
                // Often enough for an array behind the bucket.
                for _ in 0..low % 16 {
                    let expected = model.get_mut(&key).map(|value| {
                        *value += 1;
                        *value
                    });
                    assert_eq!(map.update(&key, |old| old + 1), expected);
                }
            }
            5 => match map.try_insert(key, new) {
                Ok(value) => {
                    assert_eq!(value, new);
                    assert_eq!(model.insert(key, new), None);
                }
                Err(current) => assert_eq!(model.get(&key), Some(&current)),
            },
            6 => compute(map, model, key, new),
            7 => {
                let found = map.get(&key);
                assert_eq!(found, model.get(&key).copied());
                assert_eq!(map.contains_key(&key), found.is_some());
                assert_eq!(map.get_key_value(&key), found.map(|value| (key, value)));
            }
            8 | 9 => {
                for key in key..(key + many).min(KEYS) {
                    assert_eq!(map.insert(key, new), model.insert(key, new));
                }
            }
            10 | 11 => {
                for key in key..(key + many).min(KEYS) {
                    assert_eq!(map.remove(&key), model.remove(&key));
                }
            }
            12 => {
                let divisor = u64::from(low % 5) + 2;
                map.retain(|key, value| !(key + value).is_multiple_of(divisor));
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
                let expected = model.get(&key).copied();
                match map.remove_if(&key, |_, value| is_even(*value)) {
                    Ok(entry) => {
                        assert_eq!(entry.map(|(_, value)| value), expected);
                        model.remove(&key);
                    }
                    Err((_, value)) => {
                        assert!(!is_even(value));
                        assert_eq!(Some(value), expected);
                    }
                }
            }
            18 => {
                let value = map.update_or_insert_with(key, |old| old ^ 1, || new);
                let expected = model.entry(key).and_modify(|old| *old ^= 1).or_insert(new);
                assert_eq!(value, *expected);
            }
            19 => change_while_walking(map, model, low, key..(key + many).min(KEYS), new),
            _ => return Some(low),
        }
    }
    None
}

/// A walk stands in the middle while keys are removed, or come and are replaced, or some of each: so
/// the table may shrink or grow. It visits those that stay as they are once, and the others with no
/// value that they never had.
fn change_while_walking(
    map: &PinnedCopyMap<u64, u64, Hashers>,
    model: &mut Model,
    first: u8,
    keys: Range<u64>,
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
            assert_eq!(map.remove(&key), model.remove(&key));
        } else {
            assert_eq!(map.insert(key, new), model.insert(key, new));
        }
    }
    visits.extend(walk);
    let mut visited = Model::new();
    for (key, value) in visits {
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

fn compute(map: &PinnedCopyMap<u64, u64, Hashers>, model: &mut Model, key: u64, new: u64) {
    let present = model.get(&key).copied();
    let done = map.compute(&key, |entry| {
        assert_eq!(entry, present.map(|value| (key, value)));
        match (entry, new % 3) {
            (_, 0) => Operation::Abort(new),
            (Some(_), 1) => Operation::Remove,
            _ => Operation::Insert(new),
        }
    });
    match done {
        CopyCompute::Aborted(with) => assert_eq!((with, new % 3), (new, 0)),
        CopyCompute::Removed(found, value) => {
            assert_eq!((found, Some(value)), (key, model.remove(&key)));
        }
        CopyCompute::Inserted(found, value) => {
            assert_eq!((found, value), (key, new));
            assert_eq!(model.insert(key, new), None);
        }
        CopyCompute::Updated {
            old,
            new: (_, value),
        } => {
            assert_eq!(value, new);
            assert_eq!(model.insert(key, new), Some(old.1));
        }
    }
}

/// All entries, by a walk, by a cursor and by look-ups.
fn assert_same(map: &PinnedCopyMap<u64, u64, Hashers>, model: &Model) {
    let mut visited = Model::new();
    for (key, value) in map {
        assert_eq!(visited.insert(key, value), None, "{key} is visited twice");
    }
    assert_eq!(&visited, model);
    let mut cursor = Cursor::start();
    let mut scanned = Model::new();
    let mut visit = |key: u64, value: u64| {
        assert_eq!(scanned.insert(key, value), None, "{key} is scanned twice");
    };
    while map.scan(&mut cursor, 5, &mut visit) {}
    assert_eq!(&scanned, model);
    for (key, value) in model {
        assert_eq!(map.get(key), Some(*value));
    }
}
