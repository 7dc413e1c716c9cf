//! Model-checked tests of the tree: look-ups, walks and changes while nodes are divided, copied and
//! merged, with grace periods under them. Nodes are small: three slots, three children.
//!
//! Detects a node published before its entries, leaves and fences freed at once, merges under one
//! of two locks, slots not frozen, and each acquire and release weakened.

mod frees;
mod reads;
mod writers;

use super::{
    change::{OldNode, Refused},
    core::{Reclaim, Tree},
    merge::{FEW, OldFence},
    node::{Fence, Head, Item, Kind, Leaf, Link, Node, Offer},
    search::{Hints, Path, Place, Sought},
    spare::{Arenas, Spares},
    walk::Walk,
};
use crate::section::{Pinned, Writer};
use std::{
    cmp::Ordering as Is,
    collections::HashSet,
    mem::ManuallyDrop,
    ptr::{self, NonNull},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use stillpoint_platform::{
    model::{self as loom, thread},
    sync::{Arc, UnsafeCell},
};

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

/// A leaf that no tree has.
fn leaf<'a>(items: &[Item]) -> Node<'a> {
    let leaf = Box::leak(Box::new(Leaf::new(ptr::null_mut(), items)));
    // SAFETY: the model keeps it until its end.
    unsafe { Node::of(Link::leaf(leaf.into())) }
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
    tree: ManuallyDrop<Tree>,
    entries: Vec<Box<Entry>>,
    freed: Box<Entry>,
    /// Nodes that no longer are in the tree.
    graves: Mutex<Vec<Link>>,
    /// Entries that were taken out.
    taken: Mutex<HashSet<NonNull<Head>>>,
    /// How many of them had keys that stayed as fences; and of those that were given back.
    kept: AtomicUsize,
    ended: AtomicUsize,
    /// Has nodes and keys overwritten when they are freed.
    free: Box<dyn Fn() -> bool>,
}

// SAFETY: loom checks each access to an entry; the rest is atomics.
unsafe impl Send for World {}
// SAFETY: the same.
unsafe impl Sync for World {}

// SAFETY: the model frees at its end. What it overwrites before is what it checks.
unsafe impl Reclaim for World {
    fn node(&self, node: OldNode<'_>) {
        let node = node.node();
        self.bury(node);
        if !(self.free)() {
            return;
        }
        let freed = self.freed.head();
        match node.kind() {
            Kind::Leaf(leaf) => leaf
                .order()
                .slots()
                .for_each(|slot| leaf.overwrite(slot, freed)),
            Kind::Inner(inner) => {
                let item = Item {
                    hint: 0,
                    entry: freed,
                };
                let leaf = leaf(&[item]);
                self.bury(leaf);
                // SAFETY: the model frees it at its end.
                (0..=inner.len()).for_each(|at| unsafe { inner.hook(at).set(leaf.link()) });
            }
        }
    }

    fn old_fence(&self, fence: OldFence) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        if (self.free)() {
            write(&entry(fence.entry()).key, FREED);
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
            tree: ManuallyDrop::new(Tree::new(false)),
            entries: all.map(|key| Entry::new(*key, *key)).collect(),
            freed: Entry::new(FREED, FREED),
            graves: Mutex::default(),
            taken: Mutex::default(),
            kept: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
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

    fn tree(&self) -> &Pinned<Tree> {
        // SAFETY: the model keeps nodes.
        unsafe { Pinned::of(&self.tree) }
    }

    fn writer(&self) -> Writer<'_, Tree, &Self> {
        // SAFETY: the model keeps what leaves its tree.
        unsafe { Writer::of(self.tree(), self) }
    }

    /// Keeps a node until the model's end.
    fn bury(&self, node: Node<'_>) {
        self.graves.lock().unwrap().push(node.link());
    }

    fn locate(&self, key: u32) -> Place<'_> {
        self.tree().locate(&mut Self::sought(key))
    }

    /// Puts the entry of that number in, unless one with its key is there. Returns whether it has.
    fn insert(&self, index: usize) -> bool {
        let entry = self.entries[index].head();
        let item = Item { hint: 0, entry };
        loop {
            let place = self.locate(key(entry));
            if place.entry.is_some() {
                return false;
            }
            // SAFETY: the model keeps entries.
            let inserted = match self.tree().insert(&place, unsafe { Offer::of(item) }) {
                Err(Refused::Full) => self.insert_in_copy(item),
                inserted => inserted,
            };
            match inserted {
                Ok(()) => return true,
                Err(Refused::Changed) => {}
                Err(refused) => unreachable!("{refused:?}"),
            }
        }
    }

    fn insert_in_copy(&self, item: Item) -> Result<(), Refused> {
        let mut spares = Spares::new();
        loop {
            let mut sought = Self::sought(key(item.entry));
            let (path, place) = self.tree().locate_by(&mut sought);
            if place.entry.is_some() {
                return Err(Refused::Changed);
            }
            let writer = self.writer();
            // SAFETY: the model keeps entries; the path was found just now.
            match unsafe { writer.insert_in_copy(&path, &place, Offer::of(item), &mut spares) } {
                Err(Refused::Spares { leaves, inners }) => {
                    assert!(spares.provide(leaves, inners, Arenas::default()));
                }
                inserted => return inserted,
            }
        }
    }

    /// Notes that the entry of a place was taken out, and whether its key stays.
    fn take(&self, place: &Place<'_>, stays: bool) {
        let entry = place.entry.expect("one that was taken out");
        let is_first = self.taken.lock().unwrap().insert(entry);
        assert!(is_first, "an entry is taken out once");
        self.kept.fetch_add(stays.into(), Ordering::Relaxed);
    }

    /// Completes the entry of that number, whose value is told, and then puts it in: a thread that finds
    /// it finds all of it. Loom sees a write that is not ordered before the read.
    fn complete_and_insert(&self, index: usize, value: u32) -> bool {
        write(&self.entries[index].value, value);
        self.insert(index)
    }

    /// Replaces the entry of the same key by that of that number, which is completed before. Returns
    /// whether there was one.
    fn complete_and_replace(&self, index: usize, value: u32) -> bool {
        write(&self.entries[index].value, value);
        let new = self.entries[index].head();
        loop {
            let place = self.locate(key(new));
            if place.entry.is_none() {
                return false;
            }
            let (hint, entry) = (0, new);
            // SAFETY: the model keeps entries.
            let offer = unsafe { Offer::of(Item { hint, entry }) };
            if let Ok(stays) = self.tree().replace(&place, offer) {
                self.take(&place, stays);
                return true;
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
            if let Ok(stays) = self.tree().remove(&place) {
                self.take(&place, stays);
                if place.order.len() <= FEW + 1 {
                    self.writer().shrink(&mut Self::sought(key));
                }
                return true;
            }
        }
    }

    /// Takes the first entry out.
    fn pop(&self) -> u32 {
        loop {
            let place = self.tree().outermost(false, &mut Path::new());
            let place = place.expect("there are enough");
            let key = key(place.entry.unwrap());
            if let Ok(stays) = self.tree().remove(&place) {
                self.take(&place, stays);
                self.writer().shrink(&mut Self::sought(key));
                return key;
            }
        }
    }

    fn find(&self, key: u32) -> Option<u32> {
        self.tree().find(&mut Self::sought(key)).map(read)
    }

    fn has(&self, keys: &[u32]) {
        for key in keys {
            assert_eq!(self.find(*key), Some(*key), "the key is there throughout");
        }
    }

    /// The keys that a walk visits.
    fn keys(&self, is_backwards: bool) -> Vec<u32> {
        let mut walk = Walk::of(Some(self.tree().live()));
        let next = || walk.next(is_backwards).map(read);
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
        self.tree().locate_by(&mut Self::sought(0)).0.len()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // There is no model any more.
            return;
        }
        let mut left = 0;
        // SAFETY: the model's threads have ended.
        unsafe {
            ManuallyDrop::take(&mut self.tree).end(|_| left += 1);
            let graves = self.graves.lock().unwrap();
            graves.iter().for_each(|link| Node::of(*link).free());
        }
        let (kept, ended) = (self.kept.get_mut(), self.ended.get_mut());
        assert_eq!(*kept, *ended + left, "each kept key is given back once");
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
