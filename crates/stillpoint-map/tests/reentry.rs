//! User code that changes the map between its look and its change, or in the middle of a walk.

use std::{
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
};
use stillpoint_map::{CopyMap, HashMap};

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::quietly;

/// Keys that have one hash: those of a bucket are in it in the order in which they came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key(u32);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(0);
    }
}

const KEY: Key = Key(1);

/// What happens between the look at `KEY`, whose value is 1, and its removal; with the value that is
/// removed then.
type Between<M> = (&'static str, fn(&M), Option<u32>);

fn between() -> [Between<HashMap<Key, u32>>; 6] {
    [
        ("nothing", |_| {}, Some(1)),
        (
            "it is replaced",
            |map| _ = map.pin().insert(KEY, 2),
            Some(2),
        ),
        (
            "it comes back",
            |map| {
                assert_eq!(map.pin().remove(&KEY), Some(&1));
                map.pin().insert(KEY, 3);
            },
            Some(3),
        ),
        (
            "another comes into its slot",
            |map| {
                assert_eq!(map.pin().remove(&KEY), Some(&1));
                map.pin().insert(Key(2), 2);
            },
            None,
        ),
        (
            "its bucket gets a chain",
            |map| (2..20).for_each(|key| _ = map.pin().insert(Key(key), key)),
            Some(1),
        ),
        ("its table is left", |map| leave_table(map), Some(1)),
    ]
}

/// Has a map move to a larger table, to the end.
fn leave_table(map: &HashMap<Key, u32>) {
    let before = map.pin().capacity();
    map.pin().reserve(before + 1);
    // Each change moves a few buckets.
    while map.pin().capacity() == before {
        map.pin().insert(Key(9), 9);
        map.pin().remove(&Key(9));
    }
}

#[test]
fn what_is_removed_is_what_was_agreed_to() {
    for (what, change, removed) in between() {
        let map = HashMap::new();
        let pinned = map.pin();
        pinned.insert(KEY, 1);
        let mut agreed = None;
        let result = pinned.remove_if(&KEY, |_, value| {
            if agreed.is_none() {
                change(&map);
            }
            agreed = Some(*value);
            true
        });
        let result = result.expect("it was agreed to").map(|(_, value)| *value);
        assert_eq!(result, removed, "{what}");
        assert_eq!(agreed, removed.or(Some(1)), "{what}");
        assert_eq!(pinned.get(&KEY), None, "{what}");
        let left: Vec<_> = pinned.iter().map(|(key, value)| (*key, *value)).collect();
        assert_eq!(left.len(), map.len(), "{what}");
        if removed.is_none() {
            assert_eq!(left, [(Key(2), 2)], "{what}");
        }
    }
}

fn between_copies() -> [Between<CopyMap<Key, u32>>; 5] {
    [
        ("nothing", |_| {}, Some(1)),
        (
            "it is replaced",
            |map| _ = map.pin().insert(KEY, 2),
            Some(2),
        ),
        (
            "it comes back",
            |map| {
                assert_eq!(map.pin().remove(&KEY), Some(1));
                map.pin().insert(KEY, 3);
            },
            Some(3),
        ),
        (
            "others come, and a node behind its bucket",
            |map| {
                (2..20).for_each(|key| _ = map.pin().insert(Key(key), key));
                map.pin().insert(KEY, 4);
            },
            Some(4),
        ),
        (
            "its table is left",
            |map| {
                let before = map.pin().capacity();
                map.pin().reserve(before + 1);
                while map.pin().capacity() == before {
                    map.pin().insert(Key(9), 9);
                    map.pin().remove(&Key(9));
                }
            },
            Some(1),
        ),
    ]
}

#[test]
fn what_is_removed_of_copies_is_what_was_agreed_to() {
    for (what, change, removed) in between_copies() {
        let map = CopyMap::new();
        let pinned = map.pin();
        pinned.insert(KEY, 1);
        let mut agreed = None;
        let result = pinned.remove_if(&KEY, |_, value| {
            if agreed.is_none() {
                change(&map);
            }
            agreed = Some(*value);
            true
        });
        assert_eq!(
            result.expect("it was agreed to").map(|(_, value)| value),
            removed,
            "{what}"
        );
        assert_eq!(agreed, removed, "{what}");
        assert_eq!(pinned.get(&KEY), None, "{what}");
        assert_eq!(pinned.iter().count(), map.len(), "{what}");

        // An update puts its entry where the other one is at that time.
        pinned.insert(KEY, 1);
        let mut is_first = true;
        let updated = pinned.update(&KEY, |value| {
            if std::mem::take(&mut is_first) {
                change(&map);
            }
            value + 100
        });
        assert_eq!(updated, removed.map(|value| value + 100), "{what}");
        assert_eq!(
            pinned.iter().filter(|(key, _)| *key == KEY).count(),
            1,
            "{what}"
        );
    }
}

/// A test of a map's walk by `fold`.
macro_rules! walk_by_fold {
    ($(#[$attribute:meta])* $name:ident, $Map:ident) => {
    $(#[$attribute])*
    #[test]
    fn $name() {
    const STAYING: usize = if cfg!(miri) { 60 } else { 6000 };
    const AT_ONCE: usize = STAYING / 6;
    let map: $Map<usize, usize> = (0..STAYING).map(|key| (key, key)).collect();
    let pinned = map.pin();
    let mut visits = vec![0; STAYING];
    let (mut visited, mut others, mut capacities) = (0, STAYING, vec![pinned.capacity()]);
    pinned.iter().for_each(|(key, _)| {
        let key = usize::clone(&key);
        if key >= STAYING {
            return;
        }
        visits[key] += 1;
        assert_eq!(visits[key], 1, "{key} is visited twice");
        visited += 1;
        // Some entries at a time, so that moves begin and end between any two buckets.
        if (visited / AT_ONCE).is_multiple_of(2) {
            (others..others + 20).for_each(|other| _ = pinned.insert(other, other));
            others += 20;
        } else {
            others = others.saturating_sub(20).max(STAYING);
            (others..others + 20).for_each(|other| _ = pinned.remove(&other));
            pinned.shrink_to_fit();
        }
        if capacities.last() != Some(&pinned.capacity()) {
            capacities.push(pinned.capacity());
        }
    });
    assert_eq!(visited, STAYING, "one is left out");
    let grew = capacities.windows(2).filter(|two| two[0] < two[1]).count();
    let shrank = capacities.len() - 1 - grew;
    assert!(grew >= 2 && shrank >= 2, "{capacities:?}");

    let panics = AssertUnwindSafe(|| {
        pinned.iter().for_each(|(key, _)| {
            pinned.remove(&usize::clone(&key));
            assert_ne!(map.len(), STAYING / 2, "as told");
        });
    });
    assert!(quietly(|| catch_unwind(panics)).is_err());
    assert_eq!(
        (map.len(), pinned.iter().count()),
        (STAYING / 2, STAYING / 2)
    );
}
    };
}

walk_by_fold! {
    /// The closure has the table grow and shrink again and again, and at last panics.
    a_walk_whose_closure_moves_the_table_visits_what_stays_once, HashMap
}

walk_by_fold! {
    /// The same, of copies.
    a_walk_of_copies_whose_closure_moves_the_table_visits_what_stays_once, CopyMap
}

/// A walk has visited some entries, and goes on by `fold` when the table has become smaller: in the
/// middle of one of its buckets.
macro_rules! walk_goes_on_by_fold {
    ($name:ident, $Map:ident) => {
        #[test]
        #[cfg_attr(miri, ignore = "slow")]
        fn $name() {
            const STAYING: usize = 150;
            for visited in [1, 20, 50, 100] {
                let map: $Map<usize, usize> = $Map::new();
                let pinned = map.pin();
                pinned.reserve(2000);
                (0..STAYING).for_each(|key| _ = pinned.insert(key, key));
                let mut visits = [0; STAYING + 1];
                let mut walk = pinned.iter();
                for _ in 0..visited {
                    let (key, _) = walk.next().expect("there are more");
                    visits[usize::clone(&key)] += 1;
                }
                let large = pinned.capacity();
                pinned.shrink_to_fit();
                // Each change moves a part of the table.
                for _ in 0..large {
                    pinned.insert(STAYING, 0);
                    pinned.remove(&STAYING);
                }
                assert!(pinned.capacity() <= large / 4, "{}", pinned.capacity());
                walk.for_each(|(key, _)| visits[usize::clone(&key)] += 1);
                assert_eq!(visits[..STAYING], [1; STAYING], "after {visited}");
            }
        }
    };
}

walk_goes_on_by_fold!(a_walk_goes_on_by_fold_in_a_smaller_table, HashMap);
walk_goes_on_by_fold!(a_walk_of_copies_goes_on_by_fold_in_a_smaller_table, CopyMap);
