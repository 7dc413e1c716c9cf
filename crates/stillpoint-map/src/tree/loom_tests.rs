//! Model-checked tests of the tree: look-ups, walks and changes while nodes are divided, copied and
//! merged, with grace periods under them. Nodes are small: three slots, three children.

use super::{
    change::Refused,
    core::{Reclaim, Tree},
    merge::FEW,
    node::{Fence, Head, Item, Kind, Leaf, Node, Shared, room},
    search::{Hints, Place, Sought},
    spare::Spares,
    walk::Walk,
};
use std::{cmp::Ordering as Is, ptr, ptr::NonNull, sync::Mutex};
use stillpoint::internal::{GracePeriods, Policy, Sound};
use stillpoint_platform::{
    model::{self as loom, thread},
    sync::{Arc, UnsafeCell},
};

enum NoWait {}
// SAFETY: broken on purpose; the model's memory outlives its readers.
unsafe impl Policy for NoWait {
    const WAITS_FOR_READERS: bool = false;
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 20_000;
    builder.check(test);
}

/// An entry whose contents loom watches.
#[repr(C)]
struct Entry {
    head: Head,
    key: UnsafeCell<u32>,
    value: UnsafeCell<u32>,
}

impl Entry {
    fn new(key: u32, value: u32) -> Box<Self> {
        Box::new(Self {
            head: Head { state: 0.into() },
            key: UnsafeCell::new(key),
            value: UnsafeCell::new(value),
        })
    }

    fn head(&self) -> NonNull<Head> {
        NonNull::from(self).cast()
    }
}

/// The entry that was found.
fn entry<'a>(head: NonNull<Head>) -> &'a Entry {
    // SAFETY: made from an `Entry`, which the model keeps until its end.
    unsafe { head.cast::<Entry>().as_ref() }
}

/// Its key. Loom fails if it is being written, or was not made known.
fn key(head: NonNull<Head>) -> u32 {
    // SAFETY: whether no thread writes it is what loom checks.
    entry(head).key.with(|key| unsafe { *key })
}

/// Its value; likewise.
fn read(head: NonNull<Head>) -> u32 {
    // SAFETY: whether no thread writes it is what loom checks.
    entry(head).value.with(|value| unsafe { *value })
}

fn write(cell: &UnsafeCell<u32>, number: u32) {
    // SAFETY: whether it is ours is what loom checks.
    cell.with_mut(|at| unsafe { *at = number });
}

/// What a thread finds in what was freed.
const FREED: u32 = 666;

/// A tree that the model ends with, and entries, of values that are their keys.
struct World {
    tree: Tree,
    entries: Vec<Box<Entry>>,
    freed: Box<Entry>,
    /// Nodes that no longer are in the tree.
    graves: Mutex<Vec<Node>>,
    /// Has nodes and keys overwritten when they are freed.
    free: Box<dyn Fn() -> bool>,
}

// SAFETY: loom checks each access to an entry; the rest is atomics.
unsafe impl Send for World {}
// SAFETY: the same.
unsafe impl Sync for World {}

impl Reclaim for World {
    fn node(&self, node: Node) {
        self.graves.lock().unwrap().push(node);
        if !(self.free)() {
            return;
        }
        let freed = self.freed.head();
        // SAFETY: the model frees it at its end.
        match unsafe { node.kind() } {
            Kind::Leaf(leaf) => leaf
                .order()
                .slots()
                .for_each(|slot| leaf.replace(slot, freed)),
            Kind::Inner(inner) => {
                let place = room::<Leaf>().unwrap();
                let item = Item {
                    hint: 0,
                    entry: freed,
                };
                // SAFETY: room for one.
                unsafe { place.write(Leaf::new(ptr::null_mut(), &[item])) };
                let leaf = Node::leaf(place);
                self.graves.lock().unwrap().push(leaf);
                (0..=inner.len()).for_each(|at| inner.set_child(at, leaf));
            }
        }
    }

    fn old_fence(&self, fence: NonNull<Head>) {
        if (self.free)() {
            write(&entry(fence).key, FREED);
        }
    }
}

impl World {
    /// A tree of the entries of these keys, put in one after the other, and others.
    fn new(keys: &[u32], others: &[u32]) -> Arc<Self> {
        Self::freeing(keys, others, Box::new(|| false))
    }

    fn freeing(keys: &[u32], others: &[u32], free: Box<dyn Fn() -> bool>) -> Arc<Self> {
        let all = keys.iter().chain(others);
        let world = Self {
            tree: Tree::new(false).unwrap(),
            entries: all.map(|key| Entry::new(*key, *key)).collect(),
            freed: Entry::new(FREED, FREED),
            graves: Mutex::default(),
            free,
        };
        (0..keys.len()).for_each(|index| assert!(world.insert(index)));
        Arc::new(world)
    }

    fn sought(key: u32) -> Sought<impl FnMut(Fence) -> Is> {
        Sought {
            hint: 0,
            hints: Hints::Nothing,
            compare: move |other: Fence| self::key(NonNull::new(other.entry).unwrap()).cmp(&key),
        }
    }

    fn locate(&self, key: u32) -> Place<'_> {
        // SAFETY: the model keeps nodes.
        unsafe { self.tree.locate(&mut Self::sought(key)) }
    }

    /// Puts the entry of that number in, unless one with its key is there. Returns whether it has.
    fn insert(&self, index: usize) -> bool {
        let entry = self.entries[index].head();
        let mut spares = None;
        loop {
            let place = self.locate(key(entry));
            if place.entry.is_some() {
                return false;
            }
            let item = Item { hint: 0, entry };
            // SAFETY: the model keeps nodes and entries.
            let inserted = unsafe { self.tree.insert(&place, item, spares.as_mut(), self) };
            match inserted {
                Ok(()) => return true,
                Err(Refused::Changed) => {}
                Err(Refused::Spares { leaves, inners }) => {
                    let spares = spares.get_or_insert_with(Spares::new);
                    assert!(spares.provide(leaves, inners));
                }
                Err(Refused::TooDeep) => unreachable!("there are few entries"),
            }
        }
    }

    /// Takes the entry of a key out, and merges. Returns whether it was there.
    fn remove(&self, key: u32) -> bool {
        loop {
            let place = self.locate(key);
            if place.entry.is_none() {
                return false;
            }
            // SAFETY: the model keeps nodes and entries.
            unsafe {
                if self.tree.remove(&place).is_ok() {
                    if place.order.len() <= FEW + 1 {
                        self.tree.shrink(&mut Self::sought(key), self);
                    }
                    return true;
                }
            }
        }
    }

    /// Takes the first entry out.
    fn pop(&self) -> u32 {
        loop {
            // SAFETY: the model keeps nodes and entries.
            unsafe {
                let place = self.tree.outermost(false).expect("there are enough");
                let key = key(place.entry.unwrap());
                if self.tree.remove(&place).is_ok() {
                    self.tree.shrink(&mut Self::sought(key), self);
                    return key;
                }
            }
        }
    }

    fn find(&self, key: u32) -> Option<u32> {
        // SAFETY: the model keeps nodes.
        unsafe { self.tree.find(&mut Self::sought(key)) }.map(read)
    }

    fn has(&self, keys: &[u32]) {
        for key in keys {
            assert_eq!(self.find(*key), Some(*key), "the key is there throughout");
        }
    }

    /// The keys that a walk visits.
    fn keys(&self, is_backwards: bool) -> Vec<u32> {
        // SAFETY: the model keeps nodes.
        let mut walk = unsafe { Walk::of(Some(Shared::of(NonNull::from(&self.tree)))) };
        let next = || {
            let item = if is_backwards {
                walk.next_back()
            } else {
                walk.next()
            };
            item.map(|item| read(item.entry))
        };
        let mut keys: Vec<_> = std::iter::from_fn(next).collect();
        if is_backwards {
            keys.reverse();
        }
        keys
    }

    /// Walks visit these keys, which stay, once, and all in order.
    fn visits(&self, stay: &[u32], is_backwards: bool) {
        let keys = self.keys(is_backwards);
        assert!(keys.is_sorted_by(|one, other| one < other), "{keys:?}");
        assert!(stay.iter().all(|key| keys.contains(key)), "{keys:?}");
    }

    /// How many inner nodes are above each leaf.
    fn depth(&self) -> usize {
        self.locate(0).path.len()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // There is no model any more.
            return;
        }
        // SAFETY: the model's threads have ended.
        unsafe {
            self.tree.free_nodes(|_| ());
            self.graves
                .lock()
                .unwrap()
                .iter()
                .for_each(|node| node.free());
        }
    }
}

/// Runs `other` on a thread, and `here` on this one.
fn both(
    world: &Arc<World>,
    other: impl FnOnce(&World) + Send + 'static,
    here: impl FnOnce(&World),
) {
    let theirs = Arc::clone(world);
    let thread = thread::spawn(move || other(&theirs));
    here(world);
    thread.join().unwrap();
}

#[test]
fn loom_tree_find_and_insert() {
    model(|| {
        let world = World::new(&[1], &[2]);
        both(
            &world,
            |world| assert!(matches!(world.find(2), None | Some(2))),
            |world| {
                // The entry is complete when it is found: loom sees a write that is not ordered.
                write(&world.entries[1].value, 2);
                world.insert(1);
            },
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
        for index in 0..self.comes.len() {
            assert!(world.insert(self.keys.len() + index));
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

/// A leaf that no tree has.
fn leaf(world: &World, items: &[usize], lower: *mut Head) -> Node {
    let item = |index: &usize| Item {
        hint: 0,
        entry: world.entries[*index].head(),
    };
    let items: Vec<_> = items.iter().map(item).collect();
    let place = room::<Leaf>().unwrap();
    // SAFETY: room for one.
    unsafe { place.write(Leaf::new(lower, &items)) };
    Node::leaf(place)
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
                let old = world.tree.root();
                let new = leaf(world, &[], ptr::null_mut());
                world.tree.set_root(new);
                // SAFETY: the model keeps nodes.
                if let Kind::Leaf(leaf) = unsafe { new.kind() } {
                    for index in 0..3 {
                        let entry = world.entries[index].head();
                        leaf.put(index, Item { hint: 0, entry });
                    }
                }
                world.node(old);
            },
        );
    });
}

/// Replaces the root, a leaf, by a copy: marked as dead or not, under its lock or not.
fn copy_the_root(is_locked: bool, is_killed: bool) {
    model(move || {
        let world = World::new(&[1, 2], &[3]);
        both(
            &world,
            |world| assert!(world.insert(2)),
            |world| {
                let old = world.tree.root();
                // SAFETY: the model keeps nodes.
                let gate = unsafe { old.gate() };
                if is_locked {
                    gate.lock();
                    if world.tree.root() != old {
                        return gate.unlock();
                    }
                }
                // SAFETY: the same.
                let items: Vec<_> = match unsafe { old.kind() } {
                    Kind::Leaf(leaf) => leaf.items().collect(),
                    Kind::Inner(_) => unreachable!("three entries"),
                };
                let place = room::<Leaf>().unwrap();
                // SAFETY: room for one.
                unsafe { place.write(Leaf::new(ptr::null_mut(), &items)) };
                world.tree.set_root(Node::leaf(place));
                if is_killed {
                    gate.kill();
                }
                if is_locked {
                    gate.unlock();
                }
                world.node(old);
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

/// Nodes, and the keys of fences, are overwritten after a grace period: no reader has them then.
fn free_what_was_replaced<P: Policy>(
    keys: &'static [u32],
    comes: &'static [u32],
    goes: &'static [u32],
) {
    model(move || {
        let grace_periods = Arc::new(GracePeriods::<P>::new());
        let ended = Arc::clone(&grace_periods);
        let is_shared = Arc::new(stillpoint_platform::sync::AtomicU32::new(0));
        let shared = Arc::clone(&is_shared);
        let free = move || {
            // Not before the reader is there.
            shared.load(stillpoint_platform::sync::Ordering::Relaxed) > 0
                && ended.try_complete(ended.get_state(), 2)
        };
        let world = World::freeing(keys, comes, Box::new(free));
        is_shared.store(1, stillpoint_platform::sync::Ordering::Relaxed);
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || {
            let section = grace_periods.enter(1);
            let keys = theirs.keys(false);
            assert!(!keys.contains(&FREED), "freed");
            assert!(
                matches!(theirs.find(keys[0]), None | Some(1..FREED)),
                "freed"
            );
            drop(section);
        });
        for key in goes {
            world.remove(*key);
        }
        for index in 0..comes.len() {
            world.insert(keys.len() + index);
        }
        reader.join().unwrap();
    });
}

#[test]
fn loom_tree_read_and_free() {
    free_what_was_replaced::<Sound>(&[1, 2, 4], &[3], &[]);
    free_what_was_replaced::<Sound>(&[1, 2, 3, 4], &[], &[4, 3]);
}

#[test]
#[should_panic(expected = "freed")]
fn loom_tree_a_leaf_freed_at_once_is_caught() {
    free_what_was_replaced::<NoWait>(&[1, 2, 4], &[3], &[]);
}

/// An entry that was removed stays as a fence, until its leaf is merged with the one before.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_tree_a_fence_freed_at_once_is_caught() {
    free_what_was_replaced::<NoWait>(&[1, 2, 3, 4], &[], &[4, 3]);
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
