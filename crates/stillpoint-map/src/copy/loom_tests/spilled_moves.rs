//! Moves of buckets that have an array behind them, or need one then; and arrays that are freed.

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

/// A bucket with an array becomes two, of which one has an array.
const GROWS: Case = Case {
    capacity: 0,
    to: 2,
    half: 0,
};
/// Or none.
const GROWS_APART: Case = Case { half: 1, ..GROWS };
/// One becomes another.
const STAYS: Case = Case { to: 1, ..GROWS };
/// Two become one: with an array that the first one had.
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
}

#[test]
fn loom_copies_change_a_spilled_key_while_a_unit_shrinks() {
    change_while_moving(SHRINKS_TOGETHER);
}

#[test]
fn loom_copies_change_a_spilled_key_while_a_unit_moves() {
    change_while_moving(STAYS);
}

/// An update that takes its key from a slot to an array, while the bucket moves.
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

/// An array that was replaced is freed after a grace period.
fn replace_a_spill<P: Leaves + Send + Sync + 'static>() {
    model(|| {
        let map = STAYS.map::<P>();
        map.move_all(map.under_way());
        both(
            &map,
            |map| {
                let _section = map.periods.enter(1);
                assert!(map.get(STAYS.eighth()).is_some());
            },
            |map| {
                map.put(STAYS.eighth(), 1);
                map.end_retired();
            },
        );
    });
}

#[test]
fn loom_copies_a_spill_is_freed() {
    replace_a_spill::<Sound>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_copies_a_spill_freed_at_once_is_caught() {
    replace_a_spill::<NoWait>();
}
