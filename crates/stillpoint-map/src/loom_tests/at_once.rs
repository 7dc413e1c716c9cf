//! Adding and removing at once: the lock is taken with the change of the word, and what they rely on
//! is the word alone.

use super::*;
use crate::table::Seen;
use stillpoint_platform::sync::{AtomicU64, Ordering};

impl World {
    pub fn add_at_once(&self, index: usize) -> bool {
        self.table.add_at_once(InModel(self.entry(index))).is_ok()
    }

    fn remove_at_once(&self, index: usize) -> Option<bool> {
        let entry = self.live(index);
        self.table.remove_at_once(entry, self.hash(index))
    }
}

/// Where an entry was seen, for a removal.
fn see(world: &World, index: usize) -> Option<Seen<'_>> {
    let is_it = |head: Live<'_, Head>| head.pointer() == world.entry(index);
    world.table.look(world.hash(index), is_it)?.1
}

fn two_of_one_key() -> Arc<World> {
    World::new(vec![
        Entry::new(hash(0, 0, KEY), 1),
        Entry::new(hash(0, 0, KEY), 2),
    ])
}

#[test]
fn loom_what_is_added_at_once_is_complete() {
    model(|| {
        let world = World::new(vec![Entry::new(hash(0, 0, KEY), 1)]);
        both(
            &world,
            |world| assert!(matches!(world.find(0), None | Some(1))),
            |world| {
                // SAFETY: whether it is ours is what loom checks.
                world.entries[0]
                    .value
                    .with_mut(|value| unsafe { *value = 1 });
                assert!(world.add_at_once(0));
            },
        );
        assert_eq!(world.find(0), Some(1));
    });
}

#[test]
fn loom_what_was_seen_stays_seen_at_once() {
    model(|| {
        let world = two_of_one_key();
        assert!(world.add_at_once(0));
        both(
            &world,
            |world| {
                let first = world.find(0);
                let second = world.find(0);
                assert!(first != Some(2) || second == Some(2), "seen, and not seen");
            },
            |world| {
                assert_eq!(world.remove_at_once(0), Some(true));
                assert!(world.add_at_once(1));
            },
        );
        assert_eq!(world.find(0), Some(2));
    });
}

/// A slot that one thread has emptied is another's, which is the one that begins: the other way round
/// loom looks at no order of the two in which that matters.
#[test]
fn loom_a_slot_is_empty_before_it_is_filled_at_once() {
    model(|| {
        let world = two_of_one_key();
        world.insert(0);
        let theirs = Arc::clone(&world);
        let other = thread::spawn(move || theirs.add_at_once(1));
        if world.remove_at_once(0).is_none() {
            world.remove(0);
        }
        let added = other.join().unwrap();
        assert_eq!(world.find(1), added.then_some(2), "an insert is lost");
    });
}

/// A removal leaves the slot alone once the word says that it is free.
#[test]
fn loom_a_slot_is_empty_before_its_word_says_so() {
    model(|| {
        let world = World::new(vec![
            Entry::new(hash(0, 0, KEY), 1),
            Entry::new(hash(0, 0, KEY + 1), 2),
        ]);
        world.insert(0);
        both(
            &world,
            |world| {
                if world.remove_at_once(0).is_none() {
                    world.remove(0);
                }
            },
            |world| {
                // In the slot behind the other's, or in that if it is free.
                if !world.add_at_once(1) {
                    world.insert(1);
                }
                assert_eq!(world.find(1), Some(2), "an insert is lost");
            },
        );
        assert_eq!(world.find(1), Some(2), "an insert is lost");
    });
}

/// A word that is as it was may have been another meanwhile: what that left is to be seen.
#[test]
fn loom_a_word_that_came_back_says_that_its_slots_are_empty() {
    model(|| {
        let world = two_of_one_key();
        let theirs = Arc::clone(&world);
        let other = thread::spawn(move || {
            if theirs.add_at_once(1) {
                theirs.remove(1);
            }
        });
        let added = world.add_at_once(0);
        other.join().unwrap();
        assert_eq!(world.find(0), added.then_some(1), "an insert is lost");
    });
}

/// Of two threads with one key, one adds it, at once or under a lock.
#[test]
fn loom_one_of_two_adds_a_key() {
    model(|| {
        let world = two_of_one_key();
        let added = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&added);
        let add = |world: &World, index, added: &AtomicU64| {
            if world.add_at_once(index) || world.try_insert(index) {
                added.fetch_add(1, Ordering::Relaxed);
            }
        };
        both(
            &world,
            move |world| add(world, 1, &theirs),
            |world| add(world, 0, &added),
        );
        let added = added.load(Ordering::Relaxed);
        assert_eq!(added, 1, "a key is there twice");
    });
}

/// Of a thread that replaces an entry and one that removes it, one does.
#[test]
fn loom_an_entry_is_replaced_or_removed() {
    model(|| {
        let world = two_of_one_key();
        world.insert(0);
        let theirs = Arc::clone(&world);
        let replaces = thread::spawn(move || {
            let world = &*theirs;
            let (table, mut locked) = world.table.lock(world.hash(0));
            locked.replace(
                world.live(0),
                world.slot(1, table.bits()),
                tag(world.hash(0)),
            )
        });
        let removed = world.remove_at_once(0).is_some();
        let replaced = replaces.join().unwrap();
        // Neither, if the lock was held.
        assert!(!(removed && replaced), "both have it");
        let left = if replaced { Some(2) } else { Some(1) };
        assert_eq!(world.find(0), left.filter(|_| !removed));
    });
}

/// Takes an entry out where it was seen. Returns whether that was done.
fn remove_seen(world: &World, index: usize) -> bool {
    let entry = world.live(index);
    let removed = see(world, index).and_then(|seen| seen.remove_at_once(entry));
    removed.is_some()
}

/// What was seen in a bucket is taken out of that, and nothing else: not what another thread has put
/// there since, with a word that is as it was; nor while another thread has the lock. That one begins,
/// as in `loom_a_slot_is_empty_before_it_is_filled_at_once`.
#[test]
fn loom_what_was_seen_is_removed_and_nothing_else() {
    model(|| {
        let world = two_of_one_key();
        world.insert(0);
        let theirs = Arc::clone(&world);
        let other = thread::spawn(move || remove_seen(&theirs, 0));
        let removed = world.remove_at_once(0).is_some();
        let added = removed && world.add_at_once(1);
        let removed_there = other.join().unwrap();
        assert!(!(removed && removed_there), "both have it");
        let left = match (removed || removed_there, added) {
            (_, true) => Some(2),
            (true, false) => None,
            (false, false) => Some(1),
        };
        assert_eq!(world.find(0), left);
    });
}

/// What was seen in a bucket is not taken out of that once the bucket has moved.
#[test]
fn loom_what_was_seen_has_moved() {
    model(|| {
        let world = World::new(vec![Entry::new(hash(0, 0, KEY), 1)]);
        world.insert(0);
        both(
            &world,
            |world| {
                move_all(world.start_move(2));
            },
            |world| {
                if !remove_seen(world, 0) {
                    world.remove(0);
                }
            },
        );
        assert_eq!(world.find(0), None, "a removal is lost");
    });
}

/// An entry that is added, and one that is removed, while the bucket moves.
#[test]
fn loom_a_bucket_moves_or_is_changed_at_once() {
    model(|| {
        let world = World::new(vec![
            Entry::new(hash(0, 0, KEY), 1),
            Entry::new(hash(0, 1, KEY + 1), 2),
        ]);
        world.insert(1);
        both(
            &world,
            |world| {
                move_all(world.start_move(2));
            },
            |world| {
                if !world.add_at_once(0) {
                    world.insert(0);
                }
                if world.remove_at_once(1).is_none() {
                    world.remove(1);
                }
            },
        );
        assert_eq!(world.find(0), Some(1), "an insert is lost");
        assert_eq!(world.find(1), None, "a removal is lost");
    });
}

/// An exclusive borrower takes an entry out, beside the service thread, which moves the table and reads hashes.
fn take_while_moving(take: fn(&World)) {
    model(move || {
        let world = moves::halves(1);
        // A table of three bits: for two, the bits in the slots would do, and no hash would be read.
        let to_move = world.start_move(3);
        both(&world, take, |_| {
            assert_eq!(move_all(to_move), Progress::Finished);
        });
        assert_eq!((world.find(0), world.find(1)), (None, Some(1)));
    });
}

fn take(world: &World) {
    if world.remove_at_once(0).is_none() {
        world.remove(0);
    }
}

/// The borrower may free the entry at once: it has had the lock of the bucket after the service thread.
#[test]
fn loom_an_entry_taken_out_is_freed_beside_a_move() {
    take_while_moving(|world| {
        take(world);
        world.entries[0].head.end();
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_an_entry_freed_before_it_is_taken_out_is_caught() {
    take_while_moving(|world| {
        world.entries[0].head.end();
        take(world);
    });
}

/// An insert at once, into a unit that moves meanwhile: into the bucket that it is in, or the one
/// where it has gone.
fn add_at_once_while_moving(bits: u32, to: u32) {
    model(move || {
        let world = moves::halves(bits);
        let to_move = world.start_move(to);
        both(
            &world,
            |world| {
                if !world.add_at_once(2) {
                    world.insert(2);
                }
                assert_eq!(world.find(2), Some(2), "an insert is lost");
            },
            |_| assert_eq!(move_all(to_move), Progress::Finished),
        );
        let found: Vec<_> = (0..3).map(|index| world.find(index)).collect();
        assert_eq!(found, [Some(0), Some(1), Some(2)], "an insert is lost");
        // A look-up that begins in the old table would find it there, too.
        let (entry, hash) = (world.entry(2), world.hash(2));
        let (_, to) = to_move.tables();
        let found = to.find(hash, |head| head.pointer() == entry);
        assert!(found.is_some(), "an insert is lost");
    });
}

#[test]
fn loom_add_at_once_while_a_unit_grows() {
    add_at_once_while_moving(1, 2);
}

#[test]
fn loom_add_at_once_while_a_unit_shrinks() {
    add_at_once_while_moving(2, 1);
}

/// What has moved is in the next table, and inserts at once go there: into the half where a look-up
/// looks for them, and with the bits that the table's own move needs.
#[test]
fn loom_add_at_once_where_a_unit_has_moved() {
    model(|| {
        let world = moves::halves(1);
        let to_move = world.start_move(2);
        assert_eq!(move_all(to_move), Progress::Finished);
        both(
            &world,
            |world| assert!(world.add_at_once(3)),
            |world| assert!(matches!(world.find(3), None | Some(3))),
        );
        assert_eq!(world.find(3), Some(3), "an insert is lost");
        let (hash, (_, to)) = (world.hash(3), to_move.tables());
        let (home, expected) = (to.home_of(hash), world.slot(3, 2));
        assert!((0..SLOTS).any(|slot| home.slot(slot) == expected));
    });
}
