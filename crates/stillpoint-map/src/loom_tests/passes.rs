//! Moves that pass what was not used, beside threads that use it. Stretches are two buckets here.

use super::{moves::assert_all_visited, *};
use crate::word::Word;

/// Two entries of one key in the first stretch of a table of two stretches, and one of the other.
fn unused() -> Arc<World> {
    let entry = |bucket, value| Entry::new(hash(bucket, 0, KEY), value);
    let entries = vec![entry(0, 0), entry(0, 1), entry(1, 2)];
    World::of_table(NewTable::large(2).unwrap(), entries)
}

impl World {
    /// Starts a move, and ends it.
    fn move_to(&self, bits: u32) {
        assert_eq!(move_all(self.start_move(bits)), Progress::Finished);
    }

    /// As a thread does that finds the new table, once the move has ended.
    fn is_in_next(&self, index: usize) -> bool {
        let hash = self.hash(index);
        let next = self.table.next().expect("it has moved");
        next.find(hash, |head| head.hash() == hash).is_some()
    }
}

/// To one of half the size, of twice the size, and to more.
const SIZES: [u32; 3] = [1, 3, 4];

/// The table that the move begins with is found by a thread that comes too late.
#[test]
fn loom_an_insert_beside_a_pass() {
    for bits in SIZES {
        for at_once in [false, true] {
            model(move || {
                let world = unused();
                both(
                    &world,
                    move |world| {
                        if !(at_once && world.add_at_once(0)) {
                            world.insert(0);
                        }
                        assert_eq!(world.find(0), Some(0));
                    },
                    |world| world.move_to(bits),
                );
                assert_eq!(world.find(0), Some(0));
                assert!(world.is_in_next(0), "an insert is lost");
            });
        }
    }
}

/// An insert that does not claim the stretch stays behind in the old table.
#[test]
#[should_panic(expected = "an insert is lost")]
fn loom_an_insert_without_a_claim_is_caught() {
    model(|| {
        let world = unused();
        both(
            &world,
            |world| {
                let mut locked = world.table.at(0).lock(Word::EMPTY).expect("it is empty");
                locked.add(world.slot(0, 2), tag(world.hash(0))).unwrap();
            },
            |world| world.move_to(1),
        );
        assert!(world.is_in_next(0), "an insert is lost");
    });
}

/// A reader finds an entry again wherever it was put.
#[test]
fn loom_what_was_seen_stays_seen_beside_a_pass() {
    for bits in SIZES {
        model(move || {
            let world = unused();
            let to_move = world.start_move(bits);
            let [moves, inserts] = [0, 1].map(|_| Arc::clone(&world));
            let moves = thread::spawn(move || _ = (move_all(to_move), moves));
            let inserts = thread::spawn(move || inserts.insert(0));
            let first = world.find(0);
            let second = world.find(0);
            assert!(first.is_none() || second.is_some(), "seen, and not seen");
            moves.join().unwrap();
            inserts.join().unwrap();
        });
    }
}

/// An entry of a stretch that is used, and one that was put in before the walk, while the table moves.
#[test]
fn loom_a_walk_beside_a_pass() {
    for bits in [1, 3] {
        model(move || {
            let world = unused();
            world.insert(2);
            both(
                &world,
                move |world| {
                    world.insert(0);
                    assert_all_visited(&world.core, &[0, 2]);
                },
                |world| world.move_to(bits),
            );
        });
    }
}
