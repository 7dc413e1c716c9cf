//! Leaves and inner nodes that have become small are merged: see [`super::change`].

use super::{
    change::{Draft, Held, New, ROOMY},
    core::{Reclaim, Tree},
    node::{Fence, Head, Item, KEYS, Kind, Leaf, Node},
    order::SLOTS,
    search::{DEPTH, Path, Sought},
    spare::Spares,
};
use crate::section::Writer;
use std::{cmp::Ordering as Is, ptr::NonNull};
use stillpoint_platform::fork;

/// A leaf with so few entries is merged, if the two fit into one with slots left.
pub const FEW: usize = SLOTS.div_ceil(5);
/// An inner node with so few children is merged.
const FEW_CHILDREN: usize = (KEYS + 1).div_ceil(4);

/// The key of an entry whose value its taker retires, in a section that is still open. It is no fence any more.
#[derive(Debug)]
pub struct OldFence(NonNull<Head>);

impl OldFence {
    pub fn entry(self) -> NonNull<Head> {
        self.0
    }
}

impl<'t, R: Reclaim> Writer<'t, Tree, &R> {
    /// Merges nodes on the way to a key that have become small, as long as there are some and no
    /// other thread is in the way: what it leaves is merged by a later removal.
    #[cold]
    pub fn shrink<F: FnMut(Fence) -> Is>(self, sought: &mut Sought<F>) {
        let mut spares = Spares::new();
        for _ in 0..2 * DEPTH {
            if !self.merge(sought, &mut spares) {
                return;
            }
        }
    }

    /// Replaces two nodes on the way to a key by one. Returns false if there are none to be merged, or if there
    /// is no memory.
    fn merge<F: FnMut(Fence) -> Is>(self, sought: &mut Sought<F>, spares: &mut Spares) -> bool {
        let tree = self.core();
        let generation = fork::process().generation();
        let mut path = Path::new();
        let leaf = sought.descend_by(tree.root(), &mut path);
        let Some((level, at)) = small(&leaf, &path) else {
            return false;
        };
        spares.take_back();
        // What is merged, and its parent.
        if !spares.provide(1, 2, self.node_arenas()) {
            return false;
        }
        if generation != fork::process().generation() {
            return true;
        }
        let parent = path.step(level).node;
        let (low, high) = (parent.child(at), parent.child(at + 1));
        let mut held = Held::new();
        if !held.lock(low) || !held.lock(high) || !fit(low, high) {
            return true;
        }
        let mut old_fence = None;
        let made = match (low.kind(), high.kind()) {
            (Kind::Leaf(low), Kind::Leaf(high)) => {
                low.freeze_all();
                high.freeze_all();
                let mut items = [Item::NONE; SLOTS];
                let all = low.items().chain(high.items());
                let count = all.zip(&mut items).map(|(item, to)| *to = item).count();
                if high.has_old_fence() {
                    old_fence = NonNull::new(high.lower);
                }
                spares.leaf(Leaf::new(low.lower, &items[..count]))
            }
            (Kind::Inner(low), Kind::Inner(high)) => {
                let mut draft = Draft::new();
                draft.first(low.hook(0).link());
                draft.append(&low);
                draft.push(parent.fence(at), high.hook(0).link());
                draft.append(&high);
                // SAFETY: children and fences of two nodes of the tree.
                match unsafe { draft.make(spares, false) } {
                    Some(New::One(node)) => Some(node),
                    _ => None,
                }
            }
            _ => None,
        };
        let Some(made) = made else {
            return true;
        };
        let new = New::One(made);
        // SAFETY: made just now of all that the two have; the path was found in this tree.
        let grafted = unsafe { tree.graft(&path, level + 1, Some(at), new, held, spares) };
        if let Ok(dead) = grafted {
            dead.for_each(|node| self.world().node(node));
            if let Some(fence) = old_fence {
                self.world().old_fence(OldFence(fence));
            }
        }
        true
    }
}

/// The level above two nodes on the path that are to be merged, and the number of the first.
fn small(leaf: &Leaf, path: &Path<'_>) -> Option<(usize, usize)> {
    let mut is_small = leaf.order().len() <= FEW;
    for level in (0..path.len()).rev() {
        let step = path.step(level);
        if is_small {
            // With the neighbour behind it, or with the one before it. An earlier removal may have left the
            // one before small, and where keys only increase no later removal comes there.
            let firsts = [Some(step.at), step.at.checked_sub(1)];
            let fit = |at| fit(step.node.child(at), step.node.child(at + 1));
            let is_first = |at: &usize| *at < step.node.len() && fit(*at);
            if let Some(at) = firsts.into_iter().flatten().find(is_first) {
                return Some((level, at));
            }
        }
        is_small = step.node.len() < FEW_CHILDREN;
    }
    None
}

/// Whether two neighbours are to be merged.
fn fit(low: Node<'_>, high: Node<'_>) -> bool {
    match (low.kind(), high.kind()) {
        (Kind::Leaf(low), Kind::Leaf(high)) => {
            let (low, high) = (low.order().len(), high.order().len());
            low + high <= ROOMY || low == 0 || high == 0
        }
        (Kind::Inner(low), Kind::Inner(high)) => {
            // A child without neighbours could not be merged itself.
            let is_only = low.len() == 0 || high.len() == 0;
            low.len() + high.len() < if is_only { KEYS } else { KEYS * 3 / 4 }
        }
        _ => unreachable!("neighbours are as far from the root"),
    }
}
