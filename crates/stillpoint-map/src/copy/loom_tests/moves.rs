//! Moves of tables beside what else threads do.

use super::{
    super::{
        bucket::Filler,
        spill::{Hashed, KnownHash},
    },
    BOTH_WAYS, By, KEY, Map, Sound, both, key, model,
};
use crate::{section::Unshared, table::AnyLocked};
use stillpoint_platform::sync::Arc;

/// Keys of both halves of the first bucket of two, or of the first two of four.
pub(super) fn halves(capacity: usize) -> Arc<Map<Sound>> {
    Map::of_capacity(capacity, [key(0, KEY), key(1, KEY + 1)])
}

fn find_while_moving(capacity: usize, to: u32) {
    model(move || {
        let map = halves(capacity);
        both(
            &map,
            |map| {
                assert_eq!(map.get(key(0, KEY)), Some(0));
                assert_eq!(map.get(key(1, KEY + 1)), Some(0));
            },
            |map| map.move_all(map.start_move(to)),
        );
        map.assert_visits_once(&[key(0, KEY), key(1, KEY + 1)], By::Next);
    });
    model(move || {
        let map = halves(capacity);
        map.start_move(to);
        both(
            &map,
            |map| {
                map.put(key(0, KEY), 1);
                assert_eq!(map.get(key(0, KEY)), Some(1));
            },
            |map| map.move_all(map.under_way()),
        );
        assert_eq!(map.get(key(0, KEY)), Some(1));
        assert_eq!(map.get(key(1, KEY + 1)), Some(0));
    });
}

#[test]
fn loom_copies_find_while_a_unit_grows() {
    find_while_moving(0, 2);
}

#[test]
fn loom_copies_find_while_a_unit_becomes_sparse() {
    find_while_moving(0, 3);
}

#[test]
fn loom_copies_find_while_a_unit_shrinks() {
    find_while_moving(20, 1);
}

fn walk_while_moving(capacity: usize, to: u32) {
    for by in BOTH_WAYS {
        model(move || {
            let map = halves(capacity);
            both(
                &map,
                move |map| map.assert_visits_once(&[key(0, KEY), key(1, KEY + 1)], by),
                |map| map.move_all(map.start_move(to)),
            );
        });
    }
}

#[test]
fn loom_copies_walk_while_a_unit_grows() {
    walk_while_moving(0, 2);
}

#[test]
fn loom_copies_walk_while_a_unit_becomes_sparse() {
    walk_while_moving(0, 3);
}

#[test]
fn loom_copies_walk_while_a_unit_shrinks() {
    walk_while_moving(20, 1);
}

/// What came into a bucket after it has moved is visited, though the table still moves.
#[test]
fn loom_copies_a_walk_goes_on_in_the_next_table() {
    for by in BOTH_WAYS {
        model(move || {
            let map = halves(20);
            map.start_move(3);
            map.help();
            map.put(key(0, KEY + 2), 1);
            assert!(map.under_way().grows(), "it still moves");
            map.assert_visits_once(&[key(0, KEY), key(0, KEY + 2), key(1, KEY + 1)], by);
        });
    }
}

/// The old bucket says that it has moved before the new ones are filled.
#[test]
#[should_panic(expected = "the key is there throughout")]
fn loom_copies_a_mark_before_the_fill_is_caught() {
    model(|| {
        let map = halves(0);
        both(
            &map,
            |map| {
                assert!(
                    map.get(key(0, KEY)).is_some(),
                    "the key is there throughout"
                )
            },
            |map| {
                let (from, to) = map.start_move(2).tables();
                let mut locked = from.lock_at(0, || map.writer().stamp()).unwrap();
                locked.set_moved();
                drop(locked);
                let entry = Hashed {
                    key: key(0, KEY),
                    value: 0,
                    hash: KnownHash::of_tag(KEY as u8),
                };
                // SAFETY: broken on purpose.
                let mut filler = Filler::of(unsafe { Unshared::of(to.at(0)) });
                filler.push(entry);
                filler.finish();
            },
        );
    });
}

/// A key that is inserted while its bucket moves is in the new table, once.
fn insert_while_moving(capacity: usize, to: u32) {
    model(move || {
        let map = halves(capacity);
        map.start_move(to);
        both(
            &map,
            |map| map.put(key(1, KEY + 2), 1),
            |map| map.move_all(map.under_way()),
        );
        assert_eq!(map.get(key(1, KEY + 2)), Some(1), "the key was inserted");
        map.assert_visits_once(&[key(0, KEY), key(1, KEY + 1), key(1, KEY + 2)], By::Next);
        assert_eq!(map.core.count.get(), 3);
    });
}

#[test]
fn loom_copies_insert_while_a_unit_grows() {
    insert_while_moving(0, 2);
}

#[test]
fn loom_copies_insert_while_a_unit_becomes_sparse() {
    insert_while_moving(0, 3);
}

#[test]
fn loom_copies_insert_while_a_unit_shrinks() {
    insert_while_moving(20, 1);
}

/// A key that was removed does not come back, and one that never was is not found.
fn miss_while_moving(capacity: usize, to: u32) {
    model(move || {
        let map = halves(capacity);
        map.start_move(to);
        both(
            &map,
            |map| {
                assert_eq!(map.get(key(0, KEY + 1)), None, "it is the other half's");
                map.remove(key(1, KEY + 1));
                assert_eq!(map.get(key(1, KEY + 1)), None, "it was removed");
            },
            |map| map.move_all(map.under_way()),
        );
        assert_eq!(map.get(key(1, KEY + 1)), None, "it was removed");
        map.assert_visits_once(&[key(0, KEY)], By::Next);
    });
}

#[test]
fn loom_copies_miss_while_a_unit_grows() {
    miss_while_moving(0, 2);
}

#[test]
fn loom_copies_miss_while_a_unit_becomes_sparse() {
    miss_while_moving(0, 3);
}

#[test]
fn loom_copies_miss_while_a_unit_shrinks() {
    miss_while_moving(20, 1);
}

/// A key in each bucket of a table of four: so it does not shrink again.
fn quarters() -> Arc<Map<Sound>> {
    Map::new((0..4).map(|half| key(half, KEY)))
}

fn assert_has_quarters(map: &Map<Sound>) {
    (0..4).for_each(|half| assert_eq!(map.get(key(half, KEY)), Some(0)));
}

/// Two threads move a unit each. The one that ends the last has all of the other's.
#[test]
fn loom_copies_two_helpers() {
    model(|| {
        let map = quarters();
        map.start_move(2);
        let help = |map: &Map<Sound>| {
            map.help_all();
            assert_has_quarters(map);
        };
        both(&map, help, help);
        let table = map.table();
        assert!(table.bits() == 2 && table.next().is_none(), "it has moved");
        assert_eq!(map.retired.lock().unwrap().len(), 1);
    });
}

/// A reader finds a table that has replaced another one complete.
#[test]
fn loom_copies_find_in_a_new_table() {
    model(|| {
        let map = quarters();
        both(
            &map,
            |map| {
                let _section = map.periods.enter(1);
                assert_eq!(map.get(key(0, KEY)), Some(0));
                assert_eq!(map.get(key(3, KEY)), Some(0));
            },
            |map| {
                map.start_move(2);
                map.help_all();
                map.end_retired();
            },
        );
    });
}
