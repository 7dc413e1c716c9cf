//! Leaves and inner nodes that have become small are merged: see [`super::change`].

use super::{
    change::{Draft, Held, New, ROOMY},
    core::{Reclaim, Tree},
    node::{Fence, Item, KEYS, Kind, Leaf, Node},
    order::SLOTS,
    search::{DEPTH, Path, Sought},
    spare::Spares,
};
use std::{
    cmp::Ordering as Is,
    ptr::{self, NonNull},
};
use stillpoint_platform::fork;

/// A leaf with so few entries is merged, if the two fit into one with slots left.
pub const FEW: usize = SLOTS.div_ceil(5);
/// An inner node with so few children is merged.
const FEW_CHILDREN: usize = (KEYS + 1).div_ceil(4);

impl Tree {
    /// Merges nodes on the way to a key that have become small, as long as there are some and no
    /// other thread is in the way: what it leaves is merged by a later removal.
    ///
    /// # Safety
    ///
    /// Inside a section of the tree's domain.
    #[cold]
    pub unsafe fn shrink<F: FnMut(Fence) -> Is>(
        &self,
        sought: &mut Sought<F>,
        reclaim: &impl Reclaim,
    ) {
        let mut spares = Spares::new();
        for _ in 0..2 * DEPTH {
            let generation = fork::process().generation();
            let root = self.root();
            let mut path = Path::new();
            // SAFETY: the caller's promise.
            let leaf = unsafe { sought.descend_by(root, &mut path) };
            // SAFETY: the same.
            let Some((level, at)) = (unsafe { Self::small(&leaf, &path) }) else {
                return;
            };
            // What is merged, and its parent.
            if !spares.provide(1, 2, self.node_arenas()) {
                return;
            }
            if generation != fork::process().generation() {
                continue;
            }
            // SAFETY: the same.
            let merged = unsafe { self.merge(&path, level, at, &mut spares, reclaim) };
            if !merged {
                spares.take_back();
            }
        }
    }

    /// The level above two nodes on the path that are to be merged, and the number of the first.
    ///
    /// # Safety
    ///
    /// The path was found in a section that lasts.
    unsafe fn small(leaf: &Leaf, path: &Path<'_>) -> Option<(usize, usize)> {
        let mut is_small = leaf.order().len() <= FEW;
        for level in (0..path.len()).rev() {
            let step = path.step(level);
            if is_small {
                // With the neighbour behind or with the one before: that may be what an earlier removal
                // has left, and no later one passes there if keys only move on.
                let firsts = [Some(step.at), step.at.checked_sub(1)];
                let first = firsts.into_iter().flatten().find(|at| {
                    // SAFETY: children of a node of the path.
                    let fit =
                        |at| unsafe { Self::fit(step.node.child(at), step.node.child(at + 1)) };
                    *at < step.node.len() && fit(*at)
                });
                if let Some(at) = first {
                    return Some((level, at));
                }
            }
            is_small = step.node.len() < FEW_CHILDREN;
        }
        None
    }

    /// Whether two neighbours are to be merged.
    ///
    /// # Safety
    ///
    /// They were found in a section that lasts.
    unsafe fn fit(low: Node, high: Node) -> bool {
        // SAFETY: the caller's promise.
        match unsafe { (low.kind(), high.kind()) } {
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

    /// Replaces two children of a step by one. Returns whether it has.
    ///
    /// # Safety
    ///
    /// Inside the section in which the path was found.
    unsafe fn merge(
        &self,
        path: &Path<'_>,
        level: usize,
        at: usize,
        spares: &mut Spares,
        reclaim: &impl Reclaim,
    ) -> bool {
        let parent = path.step(level).node;
        let (low, high) = (parent.child(at), parent.child(at + 1));
        let mut held = Held::new();
        // SAFETY: the caller's promise, here and below.
        let is_fit =
            unsafe { held.lock(low.gate()) && held.lock(high.gate()) && Self::fit(low, high) };
        if !is_fit {
            return false;
        }
        let mut old_fence = ptr::null_mut();
        // SAFETY: the same.
        let made = match unsafe { (low.kind(), high.kind()) } {
            (Kind::Leaf(low), Kind::Leaf(high)) => {
                low.freeze_all();
                high.freeze_all();
                let mut items = [None; SLOTS];
                let all = low.items().chain(high.items());
                let count = all
                    .zip(&mut items)
                    .map(|(item, to)| *to = Some(item))
                    .count();
                if high.has_old_fence() {
                    old_fence = high.lower;
                }
                let items = items.map(|item| item.unwrap_or(Item::NONE));
                let leaf = spares.leaf(Leaf::new(low.lower, &items[..count]));
                leaf.map(Node::leaf)
            }
            (Kind::Inner(low), Kind::Inner(high)) => {
                let mut draft = Draft::new();
                draft.first(low.child(0));
                draft.append(&low);
                draft.push(parent.fence(at), high.child(0));
                draft.append(&high);
                match draft.make(spares, false) {
                    Some(New::One(node)) => Some(node),
                    _ => None,
                }
            }
            _ => None,
        };
        let Some(made) = made else {
            return false;
        };
        [low, high].into_iter().for_each(|node| held.dies(node));
        let new = New::One(made);
        // SAFETY: the same.
        let grafted = unsafe {
            self.graft(
                path,
                level + 1,
                Some(at),
                &[low, high],
                new,
                &mut held,
                spares,
            )
        };
        if grafted.is_err() {
            return false;
        }
        spares.keep();
        // SAFETY: the same.
        unsafe { held.bury(reclaim) };
        if let Some(fence) = NonNull::new(old_fence) {
            reclaim.old_fence(fence);
        }
        true
    }
}
