//! The concurrent map beside std's, in one thread.

use super::{
    hashers::{Hashers, KINDS},
    models::Steps,
};
use std::collections::HashMap as Std;
use stillpoint_map::{Compute, Cursor, HashMap, Operation, PinnedHashMap};

/// Keys are below this.
const KEYS: u64 = 2048;

/// Values are boxes, so that Miri and sanitizers see a value that is used after its drop.
type Map = HashMap<u64, Box<u64>, Hashers>;
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
    let mut more = true;
    while more {
        let pinned = map.pin();
        // What a section has found stays as it is until the section ends.
        let mut held: Vec<(&Box<u64>, u64)> = Vec::new();
        more = section(&pinned, &mut model, &mut steps, &mut next_value, &mut held);
        for (value, expected) in held {
            assert_eq!(
                **value, expected,
                "a value changed while it was referred to"
            );
        }
        assert_eq!(map.len(), model.len());
    }
    assert_same(&map.pin(), &model);
    let mut entries: Vec<_> = map.into_iter().map(|(key, value)| (key, *value)).collect();
    entries.sort_unstable();
    let mut expected: Vec<_> = model.into_iter().collect();
    expected.sort_unstable();
    assert_eq!(entries, expected);
}

/// Takes steps until one of them ends the section. Returns whether there are more.
fn section<'g>(
    map: &'g PinnedHashMap<u64, Box<u64>, Hashers>,
    model: &mut Model,
    steps: &mut Steps<'_>,
    next_value: &mut u64,
    held: &mut Vec<(&'g Box<u64>, u64)>,
) -> bool {
    while let Some(step) = steps.byte() {
        let (Some(low), Some(high)) = (steps.byte(), steps.byte()) else {
            break;
        };
        let key = u64::from(low) | u64::from(high % 8) << 8;
        let many = u64::from(high) * 2;
        *next_value += 1;
        let new = *next_value;
        match step % 20 {
            0..=2 => assert_eq!(
                map.insert(key, Box::new(new)).map(|old| **old),
                model.insert(key, new)
            ),
            3 => assert_eq!(map.remove(&key).map(|old| **old), model.remove(&key)),
            4 => {
                let updated = map.update(&key, |old| Box::new(**old + 1)).map(|new| **new);
                let expected = model.get_mut(&key).map(|value| {
                    *value += 1;
                    *value
                });
                assert_eq!(updated, expected);
            }
            5 => match map.try_insert(key, Box::new(new)) {
                Ok(value) => {
                    assert_eq!(**value, new);
                    assert_eq!(model.insert(key, new), None);
                }
                Err(occupied) => {
                    assert_eq!(model.get(&key), Some(&**occupied.current));
                    assert_eq!(*occupied.not_inserted, new);
                }
            },
            6 => compute(map, model, key, new),
            7 => {
                let found = map.get(&key);
                assert_eq!(found.map(|value| **value), model.get(&key).copied());
                assert_eq!(map.contains_key(&key), found.is_some());
                held.extend(found.map(|value| (value, **value)));
            }
            8 | 9 => {
                for key in key..(key + many).min(KEYS) {
                    let old = map.insert(key, Box::new(new));
                    assert_eq!(old.map(|old| **old), model.insert(key, new));
                }
            }
            10 | 11 => {
                for key in key..(key + many).min(KEYS) {
                    let old = map.remove(&key).map(|old| **old);
                    assert_eq!(old, model.remove(&key));
                }
            }
            12 => {
                let divisor = u64::from(low % 5) + 2;
                map.retain(|key, value| !(key + **value).is_multiple_of(divisor));
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
                let removed = map.remove_if(&key, |_, value| is_even(**value));
                let expected = model.get(&key).copied();
                match removed {
                    Ok(entry) => {
                        assert_eq!(entry.map(|(_, value)| **value), expected);
                        model.remove(&key);
                    }
                    Err((_, value)) => {
                        assert!(!is_even(**value));
                        assert_eq!(Some(**value), expected);
                    }
                }
            }
            18 => {
                let value =
                    map.update_or_insert_with(key, |old| Box::new(**old * 3), || Box::new(new));
                let expected = model.entry(key).and_modify(|old| *old *= 3).or_insert(new);
                assert_eq!(**value, *expected);
                // It must not overflow.
                *expected = new;
                map.insert(key, Box::new(new));
            }
            _ => return true,
        }
    }
    false
}

fn compute(map: &PinnedHashMap<u64, Box<u64>, Hashers>, model: &mut Model, key: u64, new: u64) {
    let present = model.get(&key).copied();
    let done = map.compute(&key, |entry| {
        assert_eq!(
            entry.map(|(key, value)| (*key, **value)),
            present.map(|value| (key, value))
        );
        match (entry, new % 3) {
            (_, 0) => Operation::Abort(new),
            (Some(_), 1) => Operation::Remove,
            _ => Operation::Insert(Box::new(new)),
        }
    });
    match done {
        Compute::Aborted(with) => assert_eq!((with, new % 3), (new, 0)),
        Compute::Removed(found, value) => {
            assert_eq!((*found, Some(**value)), (key, model.remove(&key)));
        }
        Compute::Inserted(found, value) => {
            assert_eq!((*found, **value), (key, new));
            assert_eq!(model.insert(key, new), None);
        }
        Compute::Updated {
            old,
            new: (_, value),
        } => {
            assert_eq!(**value, new);
            assert_eq!(model.insert(key, new), Some(**old.1));
        }
    }
}

/// All entries, by a walk, by a cursor and by look-ups.
fn assert_same(map: &PinnedHashMap<u64, Box<u64>, Hashers>, model: &Model) {
    let mut visited = Model::new();
    for (key, value) in map {
        assert_eq!(
            visited.insert(*key, **value),
            None,
            "{key} is visited twice"
        );
    }
    assert_eq!(&visited, model);
    let mut cursor = Cursor::start();
    let mut scanned = Model::new();
    let visit = |key: &u64, value: &Box<u64>| {
        assert_eq!(
            scanned.insert(*key, **value),
            None,
            "{key} is scanned twice"
        );
    };
    let mut visit = visit;
    while map.scan(&mut cursor, 5, &mut visit) {}
    assert_eq!(&scanned, model);
    for (key, value) in model {
        assert_eq!(map.get(key).map(|value| **value), Some(*value));
    }
}
