//! Moves that pass what was not used, beside threads that use it. Stretches are two buckets here.

use super::{BOTH_WAYS, KEY, Map, Sound, both, model};
use crate::{floor::Floor, growth::Tables, resize::Progress, table::NewTable};
use stillpoint_platform::{model::thread, sync::Arc};

/// An empty table of two stretches, which moves to one of `bits` bits and no further.
fn unused(bits: u32) -> Arc<Map<Sound>> {
    let map = Map::of_tables(Tables::of(
        NewTable::large(2).unwrap(),
        Floor::new(bits, true),
    ));
    map.start_move(bits);
    map
}

/// To a table of half the size, of twice the size, and of more.
const SIZES: [u32; 3] = [1, 3, 4];

/// Ends the move: what was left in the old table is not found any more.
fn end_move(map: &Map<Sound>) {
    while map.help() != Progress::NothingToTake {}
}

/// The table that the move begins with is found by a thread that comes too late.
#[test]
fn loom_copies_changes_beside_a_pass() {
    for bits in SIZES {
        for by_look in [false, true] {
            model(move || {
                let map = unused(bits);
                both(
                    &map,
                    move |map| {
                        if by_look {
                            map.put_by_look(KEY, 1);
                        } else {
                            map.put(KEY, 1);
                        }
                        assert_eq!(map.get(KEY), Some(1));
                    },
                    Map::help_all,
                );
                end_move(&map);
                assert_eq!(map.get(KEY), Some(1), "an insert is lost");
            });
        }
        model(move || {
            let map = unused(bits);
            both(
                &map,
                |map| {
                    map.put(KEY, 1);
                    map.remove(KEY);
                    assert_eq!(map.get(KEY), None);
                },
                Map::help_all,
            );
            end_move(&map);
            assert_eq!(map.get(KEY), None, "a removal is lost");
        });
    }
}

/// A reader finds an entry again wherever it was put.
#[test]
fn loom_copies_what_was_seen_stays_seen_beside_a_pass() {
    for bits in SIZES {
        model(move || {
            let map = unused(bits);
            let [moves, inserts] = [0, 1].map(|_| Arc::clone(&map));
            let moves = thread::spawn(move || moves.help_all());
            let inserts = thread::spawn(move || inserts.put(KEY, 1));
            let first = map.get(KEY);
            let second = map.get(KEY);
            assert!(first.is_none() || second.is_some(), "seen, and not seen");
            moves.join().unwrap();
            inserts.join().unwrap();
        });
    }
}

/// Of an entry that was put in before, while the move is under way.
#[test]
fn loom_copies_a_walk_beside_a_pass() {
    for by in BOTH_WAYS {
        model(move || {
            let map = unused(1);
            both(
                &map,
                move |map| {
                    map.put(KEY, 0);
                    map.assert_visits_once(&[KEY], by);
                },
                Map::help_all,
            );
        });
    }
}
