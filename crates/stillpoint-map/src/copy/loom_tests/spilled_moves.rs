//! Moves of buckets that have a list behind them, or need one then; and nodes that are freed.

use super::{
    BOTH_WAYS, By, KEY, Leaves, Map, NoWait, OTHERS, Sound, both, full, full_of_capacity, key,
    model,
};
use crate::word::SLOTS;
use stillpoint_platform::sync::Arc;

/// The tag of the key for which there is no slot.
const EIGHTH: u64 = OTHERS + SLOTS as u64;

/// A table that moves to one of so many bits.
#[derive(Clone, Copy)]
struct Case {
    /// For so many entries.
    capacity: usize,
    to: u32,
    /// Whose key finds no slot: the half of the first bucket of two that it is in.
    half: u64,
}

/// A bucket with a list becomes two, of which one has a list.
const GROWS: Case = Case {
    capacity: 0,
    to: 2,
    half: 0,
};
/// Or none.
const GROWS_APART: Case = Case { half: 1, ..GROWS };
/// One becomes four.
const SPREADS: Case = Case { to: 3, ..GROWS };
/// One becomes another.
const STAYS: Case = Case { to: 1, ..GROWS };
/// Two become one: with a list that the first one had.
const SHRINKS: Case = Case {
    capacity: 20,
    to: 1,
    half: 0,
};
/// Or with a first one, because they have eight entries together.
const SHRINKS_TOGETHER: Case = Case { half: 1, ..SHRINKS };

impl Case {
    fn eighth(self) -> u64 {
        key(self.half, EIGHTH)
    }

    /// A map whose table moves.
    fn map<P: Leaves>(self) -> Arc<Map<P>> {
        let map = full_of_capacity(self.capacity);
        map.put(self.eighth(), 0);
        map.start_move(self.to);
        map
    }
}

/// What a reader finds is not freed before its section ends.
fn find_while_moving<P: Leaves + Send + Sync + 'static>(from: Case) {
    model(move || {
        let map = from.map::<P>();
        both(
            &map,
            move |map| {
                let _section = map.periods.enter(1);
                assert_eq!(map.get(from.eighth()), Some(0));
                assert_eq!(map.get(KEY), Some(0));
            },
            |map| {
                map.help_all();
                map.end_retired();
            },
        );
        map.assert_visits_once(&[KEY, OTHERS, from.eighth()], By::Next);
    });
}

#[test]
fn loom_copies_find_a_spilled_key_while_a_unit_grows() {
    find_while_moving::<Sound>(GROWS);
    find_while_moving::<Sound>(GROWS_APART);
    find_while_moving::<Sound>(SPREADS);
}

#[test]
fn loom_copies_find_a_spilled_key_while_a_unit_shrinks() {
    find_while_moving::<Sound>(SHRINKS);
    find_while_moving::<Sound>(SHRINKS_TOGETHER);
}

#[test]
fn loom_copies_find_a_spilled_key_while_a_unit_moves() {
    find_while_moving::<Sound>(STAYS);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_copies_a_moved_spill_freed_at_once_is_caught() {
    find_while_moving::<NoWait>(STAYS);
}

/// A key behind its bucket is updated while the bucket moves, and another one removed.
fn change_while_moving(from: Case) {
    model(move || {
        let map = from.map::<Sound>();
        both(
            &map,
            move |map| {
                map.put(from.eighth(), 1);
                assert_eq!(map.get(from.eighth()), Some(1));
            },
            |map| map.move_all(map.under_way()),
        );
        assert_eq!(map.get(from.eighth()), Some(1), "the update is lost");
        map.assert_visits_once(&[KEY, OTHERS, from.eighth()], By::Next);
    });
    model(move || {
        let map = from.map::<Sound>();
        both(
            &map,
            move |map| {
                map.remove(from.eighth());
                assert_eq!(map.get(from.eighth()), None);
            },
            |map| map.move_all(map.under_way()),
        );
        assert_eq!(map.get(from.eighth()), None, "it came back");
        assert_eq!(map.core.count.get(), SLOTS);
    });
}

#[test]
fn loom_copies_change_a_spilled_key_while_a_unit_grows() {
    change_while_moving(GROWS);
    change_while_moving(GROWS_APART);
    change_while_moving(SPREADS);
}

#[test]
fn loom_copies_change_a_spilled_key_while_a_unit_shrinks() {
    change_while_moving(SHRINKS_TOGETHER);
}

#[test]
fn loom_copies_change_a_spilled_key_while_a_unit_moves() {
    change_while_moving(STAYS);
}

/// The list gets more nodes while the bucket moves, and so more than the move has made at first.
fn insert_while_moving(from: Case) {
    model(move || {
        let map = from.map::<Sound>();
        let new = [1, 2].map(|more| from.eighth() + more);
        both(
            &map,
            move |map| new.iter().for_each(|key| map.put(*key, 1)),
            |map| map.move_all(map.under_way()),
        );
        assert_eq!(
            new.map(|key| map.get(key)),
            [Some(1); 2],
            "an insert is lost"
        );
        map.assert_visits_once(&[KEY, OTHERS, from.eighth(), new[0], new[1]], By::Next);
        assert_eq!(map.core.count.get(), SLOTS + 3);
    });
}

#[test]
fn loom_copies_insert_behind_a_unit_that_grows() {
    insert_while_moving(GROWS);
    insert_while_moving(SPREADS);
}

#[test]
fn loom_copies_insert_behind_a_unit_that_shrinks() {
    insert_while_moving(SHRINKS_TOGETHER);
}

#[test]
fn loom_copies_insert_behind_a_unit_that_moves() {
    insert_while_moving(STAYS);
}

/// An update that takes its key from a slot to a list, while the bucket moves.
#[test]
fn loom_copies_spill_while_a_unit_moves() {
    for to in [1, 2] {
        model(move || {
            let map = full::<Sound>();
            map.start_move(to);
            both(
                &map,
                |map| map.put(KEY, 1),
                |map| map.move_all(map.under_way()),
            );
            assert_eq!(map.get(KEY), Some(1), "the update is lost");
            map.assert_visits_once(&[KEY, OTHERS], By::Next);
            assert_eq!(map.core.count.get(), SLOTS);
        });
    }
}

#[test]
fn loom_copies_walk_while_a_spill_moves() {
    for (from, by) in [GROWS, STAYS, SHRINKS_TOGETHER]
        .into_iter()
        .flat_map(|from| BOTH_WAYS.map(|by| (from, by)))
    {
        model(move || {
            let map = from.map::<Sound>();
            both(
                &map,
                move |map| map.assert_visits_once(&[KEY, OTHERS, from.eighth()], by),
                |map| map.move_all(map.under_way()),
            );
        });
    }
}

/// The keys behind a full bucket, the first one of the list last.
const SPILLED: [u64; 3] = [EIGHTH, EIGHTH + 1, EIGHTH + 2];

/// How the list changes: in its middle, at its beginning, and at its end.
const CHANGES: [fn(&Map<Sound>); 5] = [
    |map| map.remove(SPILLED[1]),
    |map| map.put(SPILLED[1], 1),
    |map| map.remove(SPILLED[2]),
    |map| map.put(SPILLED[2], 1),
    |map| map.put(SPILLED[0], 1),
];

fn with_a_list<P: Leaves>() -> Arc<Map<P>> {
    let map = full_of_capacity(0);
    SPILLED.iter().for_each(|key| map.put(*key, 0));
    map
}

/// A key that is in a list throughout is found, and values only grow. What has left is freed.
#[test]
fn loom_copies_find_in_a_list_that_changes() {
    for change in CHANGES {
        model(move || {
            let map = with_a_list::<Sound>();
            both(
                &map,
                |map| {
                    let _section = map.periods.enter(1);
                    let (first, second) = (map.get(SPILLED[0]), map.get(SPILLED[0]));
                    assert!(first.is_some(), "the key is there throughout");
                    assert!(first <= second, "seen, and not seen");
                },
                |map| {
                    change(map);
                    map.end_retired();
                },
            );
        });
    }
}

#[test]
fn loom_copies_walk_over_a_list_that_changes() {
    for (change, by) in CHANGES
        .into_iter()
        .flat_map(|change| BOTH_WAYS.map(|by| (change, by)))
    {
        model(move || {
            let map = with_a_list::<Sound>();
            both(
                &map,
                move |map| map.assert_visits_once(&[KEY, SPILLED[0]], by),
                change,
            );
        });
    }
}

/// Two threads take neighbours out of a list: neither comes back.
#[test]
fn loom_copies_two_removals_from_a_list() {
    model(|| {
        let map = with_a_list::<Sound>();
        both(
            &map,
            |map| map.remove(SPILLED[1]),
            |map| map.remove(SPILLED[2]),
        );
        assert_eq!(SPILLED.map(|key| map.get(key)), [Some(0), None, None]);
    });
}

/// A node that was taken out is freed after a grace period.
fn free_a_node<P: Leaves + Send + Sync + 'static>(change: fn(&Map<P>)) {
    model(move || {
        let map = with_a_list::<P>();
        both(
            &map,
            |map| {
                let _section = map.periods.enter(1);
                assert!(map.get(SPILLED[0]).is_some());
            },
            |map| {
                change(map);
                map.end_retired();
            },
        );
    });
}

#[test]
fn loom_copies_a_node_is_freed() {
    free_a_node::<Sound>(|map| map.remove(SPILLED[1]));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_copies_a_node_freed_at_once_is_caught() {
    free_a_node::<NoWait>(|map| map.remove(SPILLED[1]));
}
