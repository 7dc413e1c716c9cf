//! Look-ups and walks, while a thread changes the tree.

use super::{World, both, leaf, model, write};
use crate::tree::node::{Item, Kind, Offer};
use stillpoint_platform::sync::Arc;

#[test]
fn loom_tree_find_and_insert() {
    model(|| {
        let world = World::new(&[1], &[2]);
        both(
            &world,
            |world| assert!(matches!(world.find(2), None | Some(2))),
            |world| assert!(world.complete_and_insert(1, 2)),
        );
        world.has(&[1, 2]);
    });
}

/// The entry is in its leaf before it is complete.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_tree_an_entry_completed_after_its_insert_is_caught() {
    model(|| {
        let world = World::new(&[1], &[2]);
        both(
            &world,
            |world| assert!(matches!(world.find(2), None | Some(2))),
            |world| {
                world.insert(1);
                write(&world.entries[1].value, 2);
            },
        );
    });
}

/// Readers and walks, while a writer changes the tree.
struct Case {
    /// What is inserted before.
    keys: &'static [u32],
    /// And removed of it.
    removed: &'static [u32],
    /// What the writer inserts.
    comes: &'static [u32],
    /// What it removes before.
    goes: &'static [u32],
    /// Inner nodes above a leaf, before and behind.
    depth: (usize, usize),
}

impl Case {
    fn world(&self) -> Arc<World> {
        let world = World::new(self.keys, self.comes);
        for key in self.removed {
            assert!(world.remove(*key));
        }
        assert_eq!(world.depth(), self.depth.0);
        world
    }

    fn change(&self, world: &World) {
        for key in self.goes {
            assert!(world.remove(*key));
        }
        for (index, key) in self.comes.iter().enumerate() {
            assert!(world.complete_and_insert(self.keys.len() + index, *key));
        }
        assert_eq!(world.depth(), self.depth.1);
    }

    fn stay(&self) -> Vec<u32> {
        let goes = |key: &&u32| self.removed.contains(key) || self.goes.contains(key);
        self.keys.iter().filter(|key| !goes(key)).copied().collect()
    }

    fn check(&'static self, read: impl Fn(&World) + Send + Sync + Copy + 'static) {
        model(move || {
            let world = self.world();
            both(&world, read, |world| self.change(world));
            let mut end = self.stay();
            end.extend(self.comes);
            end.sort_unstable();
            assert_eq!(world.keys(false), end);
            assert_eq!(world.keys(true), end);
        });
    }

    fn run(&'static self) {
        self.check(|world| world.has(&self.stay()));
        self.check(|world| world.visits(&self.stay(), false));
        self.check(|world| world.visits(&self.stay(), true));
        self.check(|world| {
            for key in self.comes {
                if world.find(*key).is_some() {
                    assert!(world.find(*key).is_some(), "seen, and not seen");
                }
            }
        });
        self.check(|world| {
            for key in self.goes {
                if world.find(*key).is_none() {
                    assert!(world.find(*key).is_none(), "gone, and there");
                }
            }
        });
    }
}

/// A leaf that is the root is divided, and another root is above the two.
#[test]
fn loom_tree_read_while_a_leaf_is_divided() {
    static CASE: Case = Case {
        keys: &[1, 2, 4],
        removed: &[],
        comes: &[3],
        goes: &[],
        depth: (0, 1),
    };
    CASE.run();
}

/// A leaf below a root is divided; the root is replaced.
#[test]
fn loom_tree_read_while_a_leaf_below_is_divided() {
    static CASE: Case = Case {
        keys: &[1, 5, 6, 7, 2],
        removed: &[],
        comes: &[3],
        goes: &[],
        depth: (1, 1),
    };
    CASE.run();
}

/// A leaf whose slots are used up is copied: below a root, which stays.
#[test]
fn loom_tree_read_while_a_leaf_is_copied() {
    static CASE: Case = Case {
        keys: &[1, 2, 3, 4, 5, 6],
        removed: &[5],
        comes: &[7],
        goes: &[6],
        depth: (1, 1),
    };
    CASE.run();
}

/// Leaves are merged, and their root gives way.
#[test]
fn loom_tree_read_while_leaves_are_merged() {
    static CASE: Case = Case {
        keys: &[1, 2, 3, 4],
        removed: &[2],
        comes: &[],
        goes: &[3],
        depth: (1, 0),
    };
    CASE.run();
}

/// A root with three children gets a fourth: it is divided.
#[test]
fn loom_tree_read_while_a_root_is_divided() {
    static CASE: Case = Case {
        keys: &[1, 2, 3, 4, 5, 6, 7, 8, 9],
        removed: &[],
        comes: &[10],
        goes: &[],
        depth: (1, 2),
    };
    CASE.run();
}

/// Leaves are merged, then inner nodes, and their root gives way.
#[test]
fn loom_tree_read_while_inner_nodes_are_merged() {
    static CASE: Case = Case {
        keys: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        removed: &[2, 3, 5, 6, 8],
        comes: &[],
        goes: &[9, 7],
        depth: (2, 1),
    };
    CASE.run();
}

/// An entry is replaced: look-ups and walks find one of the two, complete.
#[test]
fn loom_tree_read_while_an_entry_is_replaced() {
    fn check(read: impl Fn(&World) -> u32 + Send + Sync + Copy + 'static) {
        model(move || {
            let world = World::new(&[1, 2], &[2]);
            both(
                &world,
                move |world| assert!(matches!(read(world), 2 | 102)),
                |world| assert!(world.complete_and_replace(2, 102)),
            );
            assert_eq!(world.keys(false), [1, 102]);
        });
    }
    check(|world| world.find(2).unwrap_or_default());
    check(|world| world.keys(false)[1]);
    check(|world| world.keys(true)[1]);
}

/// A node is in the tree before its entries are in it.
#[test]
#[should_panic(expected = "the key is there throughout")]
fn loom_tree_a_node_before_its_entries_is_caught() {
    model(|| {
        let world = World::new(&[1, 2, 3], &[]);
        both(
            &world,
            |world| world.has(&[2]),
            |world| {
                let old = world.tree().root();
                let new = leaf(&[]);
                // SAFETY: the model keeps nodes. Broken on purpose: it is not complete.
                unsafe { world.tree.root.set(new.link()) };
                if let Kind::Leaf(leaf) = new.kind() {
                    for index in 0..3 {
                        let entry = world.entries[index].head();
                        // SAFETY: the model keeps entries.
                        let offer = unsafe { Offer::of(Item { hint: 0, entry }) };
                        leaf.get().lock().unwrap().put(index, offer);
                    }
                }
                world.bury(old);
            },
        );
    });
}
