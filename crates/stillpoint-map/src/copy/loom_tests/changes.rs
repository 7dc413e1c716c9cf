//! Inserts, updates and removals beside readers: of entries in slots, and of those behind them.

use super::{BOTH_WAYS, By, KEY, Map, OTHERS, Sound, both, full, key, model};
use crate::word::SLOTS;
use std::sync::{
    Arc as StdArc,
    atomic::{AtomicBool, Ordering},
};

/// What one look-up sees is there for the next: values only grow.
fn assert_grows(map: &Map<Sound>, key: u64) {
    let (first, second) = (map.get(key), map.get(key));
    assert!(first <= second, "seen, and not seen");
}

#[test]
fn loom_copies_find_and_insert() {
    model(|| {
        let map = Map::<Sound>::new([]);
        both(&map, |map| assert_grows(map, KEY), |map| map.put(KEY, 1));
        assert_eq!(map.get(KEY), Some(1));
    });
}

/// The tag is published before the entry is in its slot.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_copies_a_tag_before_its_entry_is_caught() {
    model(|| {
        let map = Map::<Sound>::new([]);
        both(
            &map,
            |map| assert_grows(map, KEY),
            |map| {
                let bucket = map.table().at(0);
                // SAFETY: broken on purpose.
                unsafe {
                    let word = bucket.word();
                    bucket.set_word(word.with(0, KEY as u8));
                    bucket.write(0, (KEY, 1));
                }
            },
        );
    });
}

#[test]
fn loom_copies_find_and_update() {
    model(|| {
        let map = Map::<Sound>::new([KEY]);
        both(
            &map,
            |map| {
                assert!(map.get(KEY).is_some(), "the key is there throughout");
                assert_grows(map, KEY);
            },
            |map| map.put(KEY, 1),
        );
        assert_eq!(map.get(KEY), Some(1));
    });
}

#[test]
fn loom_copies_find_and_remove() {
    model(|| {
        let map = Map::<Sound>::new([KEY, KEY + 1]);
        both(
            &map,
            |map| {
                assert!(matches!(map.get(KEY), None | Some(0)));
                assert_eq!(map.get(KEY + 1), Some(0));
            },
            |map| map.remove(KEY),
        );
        assert_eq!(map.get(KEY), None);
    });
}

/// An update that finds no clean slot takes its key from a slot to the spill.
#[test]
fn loom_copies_find_and_spill() {
    model(|| {
        let map = full::<Sound>();
        both(
            &map,
            |map| {
                let (first, second) = (map.get(KEY), map.get(KEY));
                assert!(first.is_some(), "the key is there throughout");
                assert!(first <= second, "seen, and not seen");
            },
            |map| map.put(KEY, 1),
        );
        assert_eq!(map.get(KEY), Some(1));
    });
}

/// And then its node is replaced.
#[test]
fn loom_copies_find_and_replace_a_spill() {
    model(|| {
        let map = full::<Sound>();
        map.put(KEY, 1);
        both(
            &map,
            |map| {
                assert!(map.get(KEY).is_some(), "the key is there throughout");
                assert_grows(map, KEY);
            },
            |map| map.put(KEY, 2),
        );
        assert_eq!(map.get(KEY), Some(2));
    });
}

/// A bucket with a spill and one clean slot, which an insert takes, and whose update then spills.
fn spill_of_a_new_key(get: fn(&Map<Sound>) -> Option<u64>) {
    model(move || {
        let map = full::<Sound>();
        map.put(OTHERS + SLOTS as u64, 0);
        map.remove(KEY);
        (0..3).for_each(|_| map.advance());
        both(
            &map,
            move |map| {
                let first = get(map);
                assert!(first <= map.get(KEY), "seen, and not seen");
            },
            |map| {
                map.put(KEY, 1);
                map.put(KEY, 2);
            },
        );
        assert_eq!(map.get(KEY), Some(2));
    });
}

#[test]
fn loom_copies_what_was_seen_stays_seen() {
    spill_of_a_new_key(|map| map.get(KEY));
}

/// Also by a change that leaves the entry as it is.
#[test]
fn loom_copies_what_a_change_has_seen_stays_seen() {
    spill_of_a_new_key(|map| Some(map.look(KEY).pair()?.1));
}

/// A reader that finds a key in the spill does not look at the word once more.
#[test]
#[should_panic(expected = "seen, and not seen")]
fn loom_copies_a_spill_seen_before_its_update_is_caught() {
    spill_of_a_new_key(|map| {
        let bucket = map.table().at(0);
        // SAFETY: the word is the bucket's.
        let seen = unsafe { bucket.seen(bucket.word()) };
        let (_, pair) = seen.place(KEY as u8, |key| *key == KEY)?;
        Some(pair.1)
    });
}

#[test]
fn loom_copies_walk_and_spill() {
    for by in BOTH_WAYS {
        model(move || {
            let map = full::<Sound>();
            // The word says already that there is something behind the bucket.
            map.put(OTHERS + SLOTS as u64, 0);
            both(
                &map,
                move |map| map.assert_visits_once(&[KEY, OTHERS], by),
                |map| map.put(KEY, 1),
            );
        });
    }
}

/// How a key is changed: at once where that does ([`crate::copy::fast`]), or after a look.
type Put = fn(&Map<Sound>, u64, u64);
type Remove = fn(&Map<Sound>, u64);
const PUTS: [[Put; 2]; 3] = [
    [Map::put, Map::put],
    [Map::put, Map::put_by_look],
    [Map::put_by_look, Map::put_by_look],
];
const REMOVALS: [[Remove; 2]; 3] = [
    [Map::remove, Map::remove],
    [Map::remove, Map::remove_by_look],
    [Map::remove_by_look, Map::remove_by_look],
];

/// Two threads insert the same key: one of them finds the other's.
#[test]
fn loom_copies_two_inserts_of_a_key() {
    for [one, other] in PUTS {
        model(move || {
            let map = Map::<Sound>::new([]);
            both(
                &map,
                move |map| one(map, KEY, 1),
                move |map| other(map, KEY, 2),
            );
            map.assert_visits_once(&[KEY], By::Next);
            assert_eq!(map.core.count.get(), 1);
        });
    }
}

/// Two threads insert keys of one bucket, and a slot each.
#[test]
fn loom_copies_two_inserts_into_a_bucket() {
    for [one, other] in PUTS {
        model(move || {
            let map = Map::<Sound>::new([]);
            both(
                &map,
                move |map| one(map, KEY, 1),
                move |map| other(map, OTHERS, 2),
            );
            assert_eq!((map.get(KEY), map.get(OTHERS)), (Some(1), Some(2)));
            assert_eq!(map.core.count.get(), 2);
        });
    }
}

/// Two threads remove the same key, and other ones of its bucket stay.
#[test]
fn loom_copies_two_removals_of_a_key() {
    for [one, other] in REMOVALS {
        model(move || {
            let map = Map::<Sound>::new([KEY, OTHERS]);
            both(&map, move |map| one(map, KEY), move |map| other(map, KEY));
            assert_eq!((map.get(KEY), map.get(OTHERS)), (None, Some(0)));
            assert_eq!(map.core.count.get(), 1, "one has removed it");
        });
    }
}

/// A key is behind its bucket, and comes into no slot as well.
#[test]
fn loom_copies_a_spilled_key_is_put_once() {
    model(|| {
        let map = full::<Sound>();
        let spilled = OTHERS + SLOTS as u64;
        map.put(spilled, 0);
        both(
            &map,
            |map| map.remove(KEY),
            move |map| {
                map.advance();
                map.advance();
                map.put(spilled, 1);
            },
        );
        map.advance();
        map.advance();
        map.put(spilled, 2);
        map.assert_visits_once(&[spilled], By::Next);
        map.remove(spilled);
        assert_eq!(map.get(spilled), None, "it was removed");
    });
}

/// Of two threads that each change a key, and then look the other's up, one sees the other's change.
fn each_sees_the_other(
    before: fn(&[u64; 2]) -> &[u64],
    change: fn(&Map<Sound>, u64),
    is_changed: fn(Option<u64>) -> bool,
) {
    model(move || {
        let keys = [key(0, KEY), key(2, KEY)];
        let map = Map::<Sound>::new(before(&keys).iter().copied());
        let seen = StdArc::new(AtomicBool::new(false));
        let theirs = StdArc::clone(&seen);
        let look = move |map: &Map<Sound>, [own, other]: [u64; 2], seen: &AtomicBool| {
            change(map, own);
            seen.fetch_or(is_changed(map.get(other)), Ordering::Relaxed);
        };
        both(
            &map,
            move |map| look(map, keys, &theirs),
            |map| look(map, [keys[1], keys[0]], &seen),
        );
        assert!(seen.load(Ordering::Relaxed), "neither sees the other's");
    });
}

#[test]
fn loom_copies_changes_have_an_order() {
    let is_put = |value: Option<u64>| value == Some(1);
    each_sees_the_other(|_| &[], |map, key| map.put(key, 1), is_put);
    each_sees_the_other(|keys| keys, |map, key| map.put(key, 1), is_put);
    let is_removed = |value: Option<u64>| value.is_none();
    each_sees_the_other(|keys| keys, |map, key| map.remove(key), is_removed);
}

/// Two threads change a list: no change is lost.
#[test]
fn loom_copies_two_updates_of_a_list() {
    const SPILLED: [u64; 2] = [OTHERS + SLOTS as u64, OTHERS + SLOTS as u64 + 1];
    model(|| {
        let map = full::<Sound>();
        SPILLED.iter().for_each(|key| map.put(*key, 0));
        both(
            &map,
            |map| map.put(SPILLED[0], 1),
            |map| map.put(SPILLED[1], 1),
        );
        assert!(
            SPILLED.iter().all(|key| map.get(*key) == Some(1)),
            "an update is lost"
        );
    });
}
