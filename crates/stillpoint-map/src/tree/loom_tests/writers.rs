//! Threads that change the tree at a time.

use super::{World, both, leaf, model};
use crate::tree::{
    change::Refused,
    gate::Locked,
    node::{Item, Kind, Offer},
    spare::Spares,
};
use stillpoint_platform::{model::thread, sync::Arc};

/// Replaces the root, a leaf, by a copy: marked as dead or not, under its lock or not.
fn copy_the_root(is_locked: bool, is_killed: bool) {
    model(move || {
        let world = World::new(&[1, 2], &[3]);
        both(
            &world,
            |world| assert!(world.insert(2)),
            |world| {
                let old = world.tree().root();
                let gate = old.gate();
                let locked = is_locked.then(|| gate.lock());
                if is_locked && world.tree().root() != old {
                    return;
                }
                let items: Vec<_> = match old.kind() {
                    Kind::Leaf(leaf) => leaf.items().collect(),
                    Kind::Inner(_) => unreachable!("three entries"),
                };
                // SAFETY: the model keeps nodes.
                unsafe { world.tree.root.set(leaf(&items).link()) };
                if is_killed {
                    // Locked, unless the model is broken on purpose.
                    Locked::unlocked(gate).kill();
                }
                drop(locked);
                world.bury(old);
            },
        );
        assert_eq!(world.find(3), Some(3), "an insert is lost");
    });
}

#[test]
fn loom_tree_insert_while_a_root_is_copied() {
    copy_the_root(true, true);
}

#[test]
#[should_panic(expected = "an insert is lost")]
fn loom_tree_a_copy_that_leaves_the_old_one_alive_is_caught() {
    copy_the_root(true, false);
}

#[test]
#[should_panic(expected = "an insert is lost")]
fn loom_tree_a_copy_without_the_lock_is_caught() {
    copy_the_root(false, true);
}

/// Of two threads that take the first entry out each gets another one.
#[test]
fn loom_tree_two_pops() {
    model(|| {
        let world = World::new(&[1, 2, 3, 4], &[]);
        assert!(world.remove(2));
        let theirs = Arc::clone(&world);
        let other = thread::spawn(move || theirs.pop());
        let ours = world.pop();
        let mut popped = [ours, other.join().unwrap()];
        popped.sort_unstable();
        assert_eq!(popped, [1, 3]);
        assert_eq!(world.keys(false), [4]);
    });
}

/// Two threads insert the same key: one of them finds the other's, also in a leaf that is divided.
#[test]
fn loom_tree_two_inserts_of_a_key() {
    for keys in [&[1][..], &[1, 2, 4][..]] {
        model(move || {
            let world = World::new(keys, &[3, 3]);
            let theirs = Arc::clone(&world);
            let first = keys.len();
            let other = thread::spawn(move || theirs.insert(first));
            let ours = world.insert(first + 1);
            assert!(ours != other.join().unwrap(), "one of them inserts");
            assert_eq!(world.find(3), Some(3));
        });
    }
}

/// A thread inserts into a leaf that another one divides.
#[test]
fn loom_tree_insert_while_a_leaf_is_divided() {
    model(|| {
        let world = World::new(&[1, 2, 5], &[3, 4]);
        both(
            &world,
            |world| assert!(world.insert(3)),
            |world| assert!(world.insert(4)),
        );
        assert_eq!(world.keys(false), [1, 2, 3, 4, 5]);
    });
}

/// A thread inserts into a leaf that another one merges with its neighbour.
#[test]
fn loom_tree_insert_while_leaves_are_merged() {
    model(|| {
        let world = World::new(&[1, 2, 3, 4], &[5]);
        world.remove(2);
        both(
            &world,
            |world| assert!(world.insert(4)),
            |world| assert!(world.remove(3)),
        );
        assert_eq!(world.keys(false), [1, 4, 5]);
    });
}

/// The same in the first of the two.
#[test]
fn loom_tree_insert_while_a_leaf_is_merged_with_the_next() {
    model(|| {
        let world = World::new(&[1, 2, 4, 3], &[0]);
        world.remove(3);
        both(
            &world,
            |world| assert!(world.insert(4)),
            |world| assert!(world.remove(4)),
        );
        assert_eq!(world.keys(false), [0, 1, 2]);
    });
}

/// Leaves that are to be merged get so many entries that one leaf does not hold them.
#[test]
fn loom_tree_leaves_fill_up_before_they_are_merged() {
    model(|| {
        let world = World::new(&[1, 2, 4, 3], &[0, 5]);
        world.remove(2);
        both(
            &world,
            |world| assert!(world.insert(4) && world.insert(5)),
            |world| assert!(world.remove(3)),
        );
        assert_eq!(world.keys(false), [0, 1, 4, 5]);
    });
}

/// Of two neighbours one is divided, so that their parent is replaced, and the other one is copied.
#[test]
fn loom_tree_copy_while_the_parent_is_replaced() {
    model(|| {
        let world = World::new(&[1, 2, 3, 4, 5, 6], &[7, 0]);
        world.remove(5);
        world.remove(6);
        assert_eq!(world.depth(), 1);
        both(
            &world,
            |world| assert!(world.insert(6)),
            |world| assert!(world.insert(7)),
        );
        assert_eq!(world.keys(false), [0, 1, 2, 3, 4, 7]);
    });
}

/// An entry is replaced in a leaf that another thread divides.
#[test]
fn loom_tree_replace_while_a_leaf_is_divided() {
    model(|| {
        let world = World::new(&[1, 2, 4], &[3, 2]);
        both(
            &world,
            |world| assert!(world.insert(3)),
            |world| assert!(world.complete_and_replace(4, 102)),
        );
        assert_eq!(world.keys(false), [1, 102, 3, 4]);
    });
}

/// A thread freezes a leaf for a copy that it then does not publish: entries are replaced all the same,
/// and taken out.
#[test]
fn loom_tree_replace_in_a_leaf_that_stays_frozen() {
    model(|| {
        let world = World::new(&[1, 2], &[1]);
        both(
            &world,
            |world| {
                assert!(world.complete_and_replace(2, 101));
                assert!(world.remove(2));
            },
            |world| {
                let Kind::Leaf(leaf) = world.tree().root().kind() else {
                    unreachable!("two entries");
                };
                let _locked = leaf.get().gate.lock();
                leaf.freeze_all();
            },
        );
        assert_eq!(world.keys(false), [101]);
    });
}

/// Two threads replace an entry, or one does and the other takes it out: each takes out another entry.
#[test]
fn loom_tree_replace_what_another_thread_takes() {
    model(|| {
        let world = World::new(&[1, 2], &[2, 2]);
        both(
            &world,
            |world| assert!(world.complete_and_replace(2, 102)),
            |world| assert!(world.complete_and_replace(3, 202)),
        );
        assert!(matches!(world.find(2), Some(102 | 202)));
    });
    model(|| {
        let world = World::new(&[1, 2], &[2]);
        both(
            &world,
            |world| {
                world.complete_and_replace(2, 102);
            },
            |world| assert!(world.remove(2)),
        );
        assert_eq!(world.keys(false), [1]);
    });
}

/// An entry whose key is a fence is replaced, or taken out, in a leaf that another thread merges with
/// the one before: its key is given back once.
#[test]
fn loom_tree_a_fence_goes_while_its_leaf_is_merged() {
    let changes: [fn(&World); 2] = [
        |world| assert!(world.complete_and_replace(4, 104)),
        |world| assert!(world.remove(4)),
    ];
    for (change, left) in changes.into_iter().zip([&[1_u32, 104][..], &[1]]) {
        model(move || {
            let world = World::new(&[1, 2, 3, 4], &[4]);
            world.remove(2);
            both(&world, change, |world| assert!(world.remove(3)));
            assert_eq!(world.keys(false), left);
        });
    }
}

/// An entry is replaced in the first of two leaves that another thread merges, or in the second.
#[test]
fn loom_tree_replace_while_leaves_are_merged() {
    for (index, left) in [(4, [101, 4]), (5, [1, 101])] {
        model(move || {
            let world = World::new(&[1, 2, 3, 4], &[1, 4]);
            world.remove(2);
            both(
                &world,
                move |world| assert!(world.complete_and_replace(index, 101)),
                |world| assert!(world.remove(3)),
            );
            assert_eq!(world.keys(false), left);
        });
    }
}

/// An entry is replaced twice in a leaf that another thread divides: that thread finds another entry
/// than it is about to freeze, and freezes this one.
#[test]
fn loom_tree_replace_twice_while_a_leaf_is_divided() {
    model(|| {
        let world = World::new(&[1, 2, 4], &[3, 2, 2]);
        both(
            &world,
            |world| {
                assert!(world.complete_and_replace(4, 102));
                assert!(world.complete_and_replace(5, 202));
            },
            |world| assert!(world.insert(3)),
        );
        assert_eq!(world.keys(false), [1, 202, 3, 4]);
    });
}

/// A copy that is refused because there is no room for it freezes nothing.
#[test]
fn loom_tree_a_copy_without_room_freezes_nothing() {
    model(|| {
        let world = World::new(&[1, 2, 4], &[3, 2]);
        let mut spares = Spares::new();
        // SAFETY: the model keeps entries.
        let [first, second] = [3, 4].map(|index| unsafe {
            let entry = world.entries[index].head();
            Offer::of(Item { hint: 0, entry })
        });
        let (path, place) = world.tree().locate_by(&mut World::sought(3));
        let writer = world.writer();
        // SAFETY: the path was found just now.
        let refused = unsafe { writer.insert_in_copy(&path, &place, first, &mut spares) };
        assert!(matches!(refused, Err(Refused::Spares { .. })));
        let place = world.locate(2);
        let (old, slot) = (place.entry.unwrap(), place.order.slot(place.at));
        let replaced = place.leaf.replace(slot, old, second);
        assert!(replaced.is_ok(), "with nothing locked");
    });
}

/// Two threads take the last entries of neighbours out, and both merge.
#[test]
fn loom_tree_two_merges() {
    model(|| {
        let world = World::new(&[1, 2, 3, 4], &[]);
        world.remove(2);
        both(
            &world,
            |world| assert!(world.remove(4)),
            |world| assert!(world.remove(1)),
        );
        assert_eq!(world.keys(false), [3]);
    });
}

/// Of two threads that each change another leaf, and then look for what the other has done, one sees it.
fn one_of_two_is_seen(
    keys: &'static [u32],
    others: &'static [u32],
    changes: [fn(&World); 2],
    is_seen: [fn(&World) -> bool; 2],
) {
    model(move || {
        let world = World::new(keys, others);
        let theirs = Arc::clone(&world);
        let other = thread::spawn(move || {
            changes[1](&theirs);
            is_seen[0](&theirs)
        });
        changes[0](&world);
        let ours = is_seen[1](&world);
        assert!(other.join().unwrap() || ours, "both are unseen");
    });
}

#[test]
fn loom_tree_one_of_two_changes_is_seen() {
    let leaves = &[1, 2, 4, 3];
    one_of_two_is_seen(
        leaves,
        &[0, 5],
        [
            |world| assert!(world.insert(4)),
            |world| assert!(world.insert(5)),
        ],
        [
            |world| world.find(0).is_some(),
            |world| world.find(5).is_some(),
        ],
    );
    one_of_two_is_seen(
        leaves,
        &[1, 4],
        [
            |world| assert!(world.complete_and_replace(4, 101)),
            |world| assert!(world.complete_and_replace(5, 104)),
        ],
        [
            |world| world.find(1) == Some(101),
            |world| world.find(4) == Some(104),
        ],
    );
    one_of_two_is_seen(
        &[1, 2, 3, 4, 5, 6],
        &[],
        [
            |world| assert!(world.remove(1)),
            |world| assert!(world.remove(6)),
        ],
        [
            |world| world.find(1).is_none(),
            |world| world.find(6).is_none(),
        ],
    );
}
