//! Changes of a tree: entries in leaves, and leaves and inner nodes that are divided. [`super::merge`]
//! has those that are merged.
//!
//! An entry is put in or taken out by one store to its leaf, under the leaf's lock, if nothing has
//! changed there since the key was sought. User code compares keys before that, with nothing locked.
//!
//! An entry is replaced by one exchange of its slot's pointer, with nothing locked: a slot is filled
//! once, so a pointer that is still the same is still the entry of that key. Before an entry is taken
//! out, and before a leaf is copied, its slots are frozen, and so refuse exchanges: the thread that
//! replaces waits for the leaf's lock, and looks again.
//!
//! A leaf whose slots are used up is replaced by a copy or by two; leaves that have become small are
//! replaced by one. Then the parent gets another child; or it is itself replaced by a copy, or by
//! two, under the grandparent's lock, and so on upwards ([`graft`](Pinned::graft)). However many nodes are
//! replaced, one store publishes them. They are marked as dead before they are unlocked: threads that
//! wait for them look again. All of that is allocated before.
//!
//! If a fork removes a thread in the middle of this, its locks are taken away from it. If it had
//! published its change, the dead nodes may lack the mark; but threads of the child that begin at the
//! root do not find them, and one that had found them before the fork looks again, as it sees that
//! the process is another one.

use super::{
    core::{Reclaim, Tree},
    gate::Locked,
    node::{Fence, Head, Inner, Item, KEYS, Leaf, Link, LockedLeaf, Node, Offer},
    order::SLOTS,
    search::{DEPTH, Path, Place},
    spare::Spares,
};
use crate::{
    core::fence_change,
    section::{Pinned, Writer},
};
use std::ptr::{self, NonNull};
use stillpoint_platform::fork;

/// Why a change was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The place has changed: look again.
    Changed,
    /// The leaf's slots are used up: it is to be replaced.
    Full,
    /// There are too few spares.
    Spares { leaves: usize, inners: usize },
    /// The tree is as deep as it can be.
    TooDeep,
}

/// Copies with so many entries have slots left.
pub(super) const ROOMY: usize = SLOTS * 3 / 4;

/// What takes the place of one child or two.
pub(super) enum New {
    One(Link),
    Two(Link, Fence, Link),
}

/// A node that the thread has taken out of the tree.
#[derive(Debug)]
pub struct OldNode<'t>(Node<'t>);

impl<'t> OldNode<'t> {
    pub fn node(&self) -> Node<'t> {
        self.0
    }
}

/// Locked nodes, in the order of locking. All die, except perhaps the last.
pub(super) struct Held<'t> {
    nodes: [Option<(Locked<'t>, Node<'t>)>; DEPTH + 3],
    held: usize,
}

impl<'t> Held<'t> {
    pub(super) fn new() -> Self {
        Self {
            nodes: [const { None }; DEPTH + 3],
            held: 0,
        }
    }

    /// Locks a node. Returns whether it is alive.
    pub(super) fn lock(&mut self, node: Node<'t>) -> bool {
        self.nodes[self.held] = Some((node.gate().lock(), node));
        self.held += 1;
        !node.gate().is_dead()
    }

    /// Marks the first `dying` nodes as dead, before it unlocks all. Returns them.
    fn end(mut self, dying: usize) -> impl Iterator<Item = OldNode<'t>> + use<'t> {
        let dead = self.nodes.iter().flatten().take(dying);
        dead.for_each(|(lock, _)| lock.kill());
        let mut nodes = [None; DEPTH + 3];
        for (node, held) in nodes.iter_mut().zip(&mut self.nodes[..self.held]) {
            *node = held.take().map(|(_, node)| node);
        }
        nodes.into_iter().take(dying).flatten().map(OldNode)
    }
}

/// The children and fences of an inner node that is being made.
pub(super) struct Draft {
    fences: [Fence; KEYS + 1],
    children: [Link; KEYS + 2],
    /// Of the fences.
    len: usize,
}

impl Draft {
    pub(super) fn new() -> Self {
        let nothing = Fence {
            hint: 0,
            entry: ptr::null_mut(),
        };
        Self {
            fences: [nothing; KEYS + 1],
            children: [Link::NONE; KEYS + 2],
            len: 0,
        }
    }

    pub(super) fn first(&mut self, child: Link) {
        self.children[0] = child;
    }

    pub(super) fn push(&mut self, fence: Fence, child: Link) {
        self.fences[self.len] = fence;
        self.len += 1;
        self.children[self.len] = child;
    }

    pub(super) fn append(&mut self, node: &Inner) {
        for at in 0..node.len() {
            self.push(node.fence(at), node.hook(at + 1).link());
        }
    }

    /// One inner node of it, or two: divided in the middle, or behind all others if more come there.
    ///
    /// # Safety
    ///
    /// Its children and fences are as [`Inner::new`] says.
    pub(super) unsafe fn make(&self, spares: &mut Spares, at_the_end: bool) -> Option<New> {
        let make = |spares: &mut Spares, from: usize, to: usize| {
            // SAFETY: the caller's promise.
            let inner = unsafe { Inner::new(&self.fences[from..to], &self.children[from..=to]) };
            spares.inner(inner)
        };
        if self.len <= KEYS {
            return Some(New::One(make(spares, 0, self.len)?));
        }
        let before = if at_the_end { 1 } else { self.len.div_ceil(2) };
        let middle = self.len - before;
        Some(New::Two(
            make(spares, 0, middle)?,
            self.fences[middle],
            make(spares, middle + 1, self.len)?,
        ))
    }
}

impl Tree {
    /// The tree has so many entries more, as a change has published, whose locks are free.
    #[inline]
    pub(super) fn note(&self, more: u64) {
        self.count.add(more);
        fence_change();
    }

    /// The place of a new entry in its leaf: behind the one whose key is the leaf's fence, also if
    /// `Ord` says otherwise. So that one is the leaf's first for as long as it is in the map, and no
    /// other leaf gets it while its key is the fence.
    fn behind_fence(place: &Place<'_>) -> usize {
        let order = place.order;
        let is_fence = |at| place.leaf.entry(order.slot(at)).as_ptr() == place.leaf.lower;
        if place.at == 0 && order.len() > 0 && is_fence(0) {
            1
        } else {
            place.at
        }
    }

    pub(super) fn too_few(path: &Path<'_>) -> Refused {
        // Nodes above that are full are divided, too.
        let is_full = |level: &usize| path.step(*level).node.len() == KEYS;
        let full = (0..path.len()).rev().take_while(is_full).count();
        Refused::Spares {
            leaves: 2,
            inners: 2 * full + 1,
        }
    }

    /// The fence before an entry.
    pub(super) fn fence_of(&self, item: Item) -> Fence {
        Fence {
            hint: item.hint,
            entry: if self.hints_tell_keys {
                ptr::null_mut()
            } else {
                item.entry.as_ptr()
            },
        }
    }

    pub(super) fn is_fence(place: &Place<'_>) -> bool {
        place
            .entry
            .is_some_and(|entry| entry.as_ptr() == place.leaf.lower)
    }

    fn is_unchanged(place: &Place<'_>) -> bool {
        // Slots are filled once, so the same order is the same keys, also if others came and went between.
        place.leaf.order() == place.order && place.generation == fork::process().generation()
    }

    /// Locks the leaf of a place. Returns `None` if that has changed.
    fn lock<'t>(place: &Place<'t>) -> Option<LockedLeaf<'t>> {
        let locked = place.leaf.get().lock();
        locked.filter(|_| Self::is_unchanged(place))
    }
}

impl Pinned<Tree> {
    /// Replaces the `held` nodes, the children from `first` on of the step before `level`, by `new`, and
    /// unlocks them. If `first` is `None`, it is the child on the path.
    ///
    /// # Errors
    ///
    /// If the tree stays as it was.
    ///
    /// # Safety
    ///
    /// The path was found in this tree; what is held are nodes of it, or beside it, and alive. What is new was made of
    /// `spares`, and leads to all that is to stay of what they lead to.
    pub(super) unsafe fn graft<'t>(
        &'t self,
        path: &Path<'t>,
        mut level: usize,
        mut first: Option<usize>,
        mut new: New,
        mut held: Held<'t>,
        spares: &mut Spares,
    ) -> Result<impl Iterator<Item = OldNode<'t>> + use<'t>, Refused> {
        let (mut count, mut dying) = (held.held, held.held);
        let mut old = [0, count - 1].map(|at| held.nodes[at].as_ref().map(|(_, node)| *node));
        let root = loop {
            if level == 0 {
                break Some(match new {
                    New::One(node) => node,
                    New::Two(..) if path.len() == DEPTH => return Err(Refused::TooDeep),
                    New::Two(low, fence, high) => {
                        // SAFETY: the caller's promise.
                        let inner = unsafe { Inner::new(&[fence], &[low, high]) };
                        spares.inner(inner).ok_or_else(|| Tree::too_few(path))?
                    }
                });
            }
            level -= 1;
            let step = path.step(level);
            let (parent, at) = (step.node, first.take().unwrap_or(step.at));
            let itself = Node::inner(parent);
            if !held.lock(itself) {
                return Err(Refused::Changed);
            }
            // All of them are locked and alive, so they are where the path has found them: what replaces a
            // child marks it as dead before it is unlocked, and what moves one replaces its parent. (A
            // thread that a fork has removed may not have marked it: `is_unchanged` and `shrink` have
            // compared the process.)
            if cfg!(any(debug_assertions, stillpoint_loom)) {
                let olds = [at, at + count - 1].map(|at| Some(parent.child(at)));
                assert_eq!(olds, old, "a child has moved");
            }
            if count == 1
                && let New::One(node) = new
            {
                // SAFETY: the caller's promise.
                unsafe { parent.hook(at).set(node) };
                break None;
            }
            let mut draft = Draft::new();
            let mut add = |fence: Option<Fence>, child| match fence {
                Some(fence) => draft.push(fence, child),
                None => draft.first(child),
            };
            for number in 0..=parent.len() {
                let fence = number.checked_sub(1).map(|at| parent.fence(at));
                if number == at {
                    match new {
                        New::One(node) => add(fence, node),
                        New::Two(low, between, high) => {
                            add(fence, low);
                            add(Some(between), high);
                        }
                    }
                } else if number < at || number >= at + count {
                    add(fence, parent.hook(number).link());
                }
            }
            dying += 1;
            new = if level == 0 && draft.len == 0 {
                // A root with one child gives way to it.
                New::One(draft.children[0])
            } else {
                let at_the_end = path.is_last(level + 1);
                // SAFETY: children and fences of a node of the tree, and what is new.
                let made = unsafe { draft.make(spares, at_the_end) };
                made.ok_or_else(|| Tree::too_few(path))?
            };
            (old, count) = ([Some(itself); 2], 1);
        };
        let locked = root.map(|root| {
            let locked = self.gate.lock();
            if cfg!(any(debug_assertions, stillpoint_loom)) {
                assert_eq!(Some(self.root()), old[0], "the root has moved");
            }
            // SAFETY: the caller's promise.
            unsafe { self.root.set(root) };
            locked
        });
        spares.keep();
        let dead = held.end(dying);
        drop(locked);
        Ok(dead)
    }

    /// Puts an entry in at a place that has none.
    ///
    /// # Errors
    ///
    /// If it was not put in.
    pub fn insert(&self, place: &Place<'_>, new: Offer) -> Result<(), Refused> {
        let locked = Tree::lock(place).ok_or(Refused::Changed)?;
        if place.leaf.gate.used() == SLOTS {
            return Err(Refused::Full);
        }
        locked.put(Tree::behind_fence(place), new);
        drop(locked);
        self.note(1);
        Ok(())
    }

    /// Replaces the entry of a place, with nothing locked, and returns whether the old one's key is a
    /// fence, and so stays.
    ///
    /// # Errors
    ///
    /// If it was not replaced.
    #[inline]
    pub fn replace(&self, place: &Place<'_>, new: Offer) -> Result<bool, Refused> {
        let (leaf, slot) = (place.leaf, place.order.slot(place.at));
        let old = place.entry.ok_or(Refused::Changed)?;
        let replaced = leaf.replace(slot, old, new);
        replaced.or_else(|new| Self::replace_frozen(place, old, new))?;
        fence_change();
        Ok(Tree::is_fence(place))
    }

    /// Replaces it if the slot is frozen, by a thread that then published nothing.
    #[cold]
    fn replace_frozen(place: &Place<'_>, old: NonNull<Head>, new: Offer) -> Result<(), Refused> {
        let slot = place.order.slot(place.at);
        if place.leaf.entry(slot) != old {
            return Err(Refused::Changed);
        }
        let locked = Tree::lock(place).ok_or(Refused::Changed)?;
        locked.replace(slot, old, new).map_err(|_| Refused::Changed)
    }

    /// Takes the entry of a place out, and returns whether its key is a fence, and so stays.
    /// [`Writer::shrink`] comes after it.
    ///
    /// # Errors
    ///
    /// If it was not taken out.
    pub fn remove(&self, place: &Place<'_>) -> Result<bool, Refused> {
        let entry = place.entry.ok_or(Refused::Changed)?;
        let locked = Tree::lock(place).ok_or(Refused::Changed)?;
        if !place.leaf.freeze(place.order.slot(place.at), entry) {
            return Err(Refused::Changed);
        }
        locked.take(place.at);
        drop(locked);
        self.note(1_u64.wrapping_neg());
        Ok(Tree::is_fence(place))
    }
}

impl<'t, R: Reclaim> Writer<'t, Tree, &R> {
    /// As [`insert`](Pinned::insert), in a leaf whose slots are used up: it is replaced, by one or by two.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// The path was found in this tree, and leads to the place.
    #[cold]
    pub unsafe fn insert_in_copy(
        self,
        path: &Path<'t>,
        place: &Place<'t>,
        new: Offer,
        spares: &mut Spares,
    ) -> Result<(), Refused> {
        spares.take_back();
        let mut held = Held::new();
        let leaf = place.leaf;
        let is_alive = held.lock(Node::leaf(leaf));
        if !is_alive || !Tree::is_unchanged(place) || leaf.gate.used() < SLOTS {
            return Err(Refused::Changed);
        }
        if !spares.has_leaves() {
            // Before slots are frozen for a copy that cannot be made.
            return Err(Tree::too_few(path));
        }
        leaf.freeze_all();
        let mut items = [new.item(); SLOTS + 1];
        let old = place.order.len();
        let new_at = Tree::behind_fence(place);
        for (at, item) in leaf.items().enumerate() {
            items[if at < new_at { at } else { at + 1 }] = item;
        }
        let items = &items[..=old];
        let too_few = || Tree::too_few(path);
        let new = if items.len() <= ROOMY {
            let copy = spares.leaf(Leaf::new(leaf.lower, items));
            New::One(copy.ok_or_else(too_few)?)
        } else {
            // Keys that come in their order fill the leaves.
            let middle = if new_at == old && path.is_last(path.len()) {
                old
            } else {
                items.len() / 2
            };
            let fence = self.fence_of(items[middle]);
            let low = spares.leaf(Leaf::new(leaf.lower, &items[..middle]));
            let high = spares.leaf(Leaf::new(fence.entry, &items[middle..]));
            let (low, high) = low.zip(high).ok_or_else(too_few)?;
            New::Two(low, fence, high)
        };
        // SAFETY: made just now of the leaf's entries and the new one; the rest is the caller's promise.
        let dead = unsafe { self.core().graft(path, path.len(), None, new, held, spares) }?;
        self.note(1);
        dead.for_each(|node| self.world().node(node));
        Ok(())
    }
}
