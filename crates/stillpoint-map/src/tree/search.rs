//! The way from the root to a key.

use super::{
    node::{Fence, Head, Inner, Kind, Leaf, Node, prefetch_all},
    order::Order,
};
use crate::section::Live;
use std::{cmp::Ordering as Is, ptr::NonNull};

/// What hints tell of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hints {
    /// Nothing: all are 0, or the sought key has none.
    Nothing,
    /// The order, where they differ.
    Order,
    /// The key.
    Key,
}

/// A key that is sought. `compare` tells how the key of a fence or an entry compares with it; where
/// hints tell keys, it is not asked.
#[derive(Debug)]
pub struct Sought<F> {
    pub hint: u64,
    pub hints: Hints,
    pub compare: F,
}

impl<F: FnMut(Fence) -> Is> Sought<F> {
    #[inline(always)]
    fn compare(&mut self, other: Fence) -> Is {
        match self.hints {
            Hints::Nothing => (self.compare)(other),
            Hints::Key => other.hint.cmp(&self.hint),
            Hints::Order => match other.hint.cmp(&self.hint) {
                Is::Equal => (self.compare)(other),
                is => is,
            },
        }
    }

    /// The number of the child of an inner node whose range has the key.
    #[inline(always)]
    fn route(&mut self, node: &Inner) -> usize {
        if self.hints == Hints::Key {
            let hint = self.hint;
            return below(node.len(), |at| node.hints()[at] <= hint);
        }
        let (mut low, mut high) = (0, node.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.compare(node.fence(middle)) == Is::Greater {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// The place of the first entry that is not less than the key, and whether it is equal.
    #[inline(always)]
    pub fn locate(&mut self, leaf: &Leaf, order: Order) -> (usize, bool) {
        if self.hints == Hints::Key {
            let hint = self.hint;
            let at = below(order.len(), |at| leaf.hint(order.slot(at)) < hint);
            let is_it = at < order.len() && leaf.hint(order.slot(at)) == hint;
            return (at, is_it);
        }
        let (mut low, mut high) = (0, order.len());
        while low < high {
            let middle = low.midpoint(high);
            let slot = order.slot(middle);
            let item = Fence {
                hint: leaf.hint(slot),
                entry: leaf.entry(slot).as_ptr(),
            };
            match self.compare(item) {
                Is::Less => low = middle + 1,
                Is::Equal => return (middle, true),
                Is::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// The leaf below `root` whose range has the key.
    #[inline(always)]
    pub fn descend<'t>(&mut self, root: Node<'t>) -> Live<'t, Leaf> {
        let mut node = root;
        loop {
            match node.kind() {
                Kind::Leaf(leaf) => {
                    prefetch_all(leaf.get());
                    return leaf;
                }
                Kind::Inner(inner) => {
                    inner.prefetch(self.hints);
                    node = inner.child(self.route(&inner));
                }
            }
        }
    }

    /// The same, with the way.
    pub fn descend_by<'t>(&mut self, root: Node<'t>, path: &mut Path<'t>) -> Live<'t, Leaf> {
        let mut node = root;
        loop {
            match node.kind() {
                Kind::Leaf(leaf) => return leaf,
                Kind::Inner(inner) => {
                    inner.prefetch(self.hints);
                    let at = self.route(&inner);
                    path.push(inner, at);
                    node = inner.child(at);
                }
            }
        }
    }
}

/// How many of the first `count` places `is_below` accepts, if it accepts those below some place.
#[inline(always)]
fn below(count: usize, is_below: impl Fn(usize) -> bool) -> usize {
    // Without a branch that the processor would have to guess.
    let (mut base, mut size) = (0, count);
    if size == 0 {
        return 0;
    }
    while size > 1 {
        let half = size / 2;
        base = std::hint::select_unpredictable(is_below(base + half), base + half, base);
        size -= half;
    }
    base + usize::from(is_below(base))
}

/// Inner nodes between the root and a leaf, at most: a root is divided when it has all its children,
/// and so has those of more entries than memory holds long before.
pub const DEPTH: usize = 16;

/// A step: an inner node, and the number of the child that was gone to.
#[derive(Clone, Copy, Debug)]
pub struct Step<'t> {
    pub node: Live<'t, Inner>,
    pub at: usize,
}

/// The way from the root to a leaf.
#[derive(Clone, Debug)]
pub struct Path<'t> {
    steps: [Option<Step<'t>>; DEPTH],
    len: usize,
}

impl<'t> Path<'t> {
    pub fn new() -> Self {
        Self {
            steps: [None; DEPTH],
            len: 0,
        }
    }

    fn push(&mut self, node: Live<'t, Inner>, at: usize) {
        self.steps[self.len] = Some(Step { node, at });
        self.len += 1;
    }

    /// How many inner nodes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The step of that number; 0 is the root's.
    pub fn step(&self, level: usize) -> Step<'t> {
        self.steps[..self.len][level].expect("a step that was pushed")
    }

    /// Whether each step before that level goes to the last child.
    pub fn is_last(&self, level: usize) -> bool {
        (0..level).all(|level| self.step(level).at == self.step(level).node.len())
    }

    /// Goes to the leaf behind the one that it leads to, or before it; `None` if there is none.
    pub fn beside(&mut self, is_behind: bool) -> Option<Live<'t, Leaf>> {
        while self.len > 0 {
            let Step { node, at } = self.step(self.len - 1);
            let next = if is_behind {
                Some(at + 1).filter(|at| *at <= node.len())
            } else {
                at.checked_sub(1)
            };
            if let Some(at) = next {
                self.len -= 1;
                self.push(node, at);
                return Some(self.outermost(node.child(at), !is_behind));
            }
            self.len -= 1;
        }
        None
    }

    /// Goes from a node to its first leaf, or to its last one.
    pub fn outermost(&mut self, mut node: Node<'t>, is_last: bool) -> Live<'t, Leaf> {
        loop {
            match node.kind() {
                Kind::Leaf(leaf) => return leaf,
                Kind::Inner(inner) => {
                    let at = if is_last { inner.len() } else { 0 };
                    self.push(inner, at);
                    node = inner.child(at);
                }
            }
        }
    }

    /// The way to a leaf about halfway to another one, which is behind this one. `None` if there are
    /// few leaves between them, or the ways have no node in which they part.
    #[cfg(feature = "rayon")]
    pub fn halfway_to(&self, other: &Self) -> Option<(Self, Live<'t, Leaf>)> {
        /// So few leaves are not worth a thread.
        const FEW: usize = 8;
        for level in 0..self.len.min(other.len) {
            let (one, other) = (self.step(level), other.step(level));
            if one.node.pointer() != other.node.pointer() {
                return None;
            }
            if one.at == other.at {
                continue;
            }
            let least = if level + 1 == self.len { FEW } else { 1 };
            let apart = other
                .at
                .checked_sub(one.at)
                .filter(|apart| *apart >= least)?;
            let at = one.at + apart.div_ceil(2);
            let mut path = Self {
                len: level,
                ..self.clone()
            };
            path.push(one.node, at);
            let leaf = path.outermost(one.node.child(at), false);
            return Some((path, leaf));
        }
        None
    }

    /// The leaf so many behind the one that it leads to, or before it, if they have the same parent.
    pub fn neighbour(&self, is_behind: bool, distance: usize) -> Option<&'t Leaf> {
        let Step { node, at } = self.step(self.len.checked_sub(1)?);
        let at = if is_behind {
            at + distance
        } else {
            at.checked_sub(distance)?
        };
        if at > node.len() {
            return None;
        }
        match node.child(at).kind() {
            Kind::Leaf(leaf) => Some(leaf.get()),
            Kind::Inner(_) => None,
        }
    }
}

/// Where an entry is, or would be: what a change needs that replaces no node.
#[derive(Clone, Copy, Debug)]
pub struct Place<'t> {
    pub(super) leaf: Live<'t, Leaf>,
    pub(super) order: Order,
    pub(super) at: usize,
    /// The entry, if it is there.
    pub(super) entry: Option<NonNull<Head>>,
    /// The process's generation at the time: see [`super::gate::Gate::lock`].
    pub(super) generation: u64,
}

impl Place<'_> {
    /// Returns the place behind the entry, or this one if there is none.
    pub fn behind(self) -> Self {
        Self {
            at: self.at + usize::from(self.entry.is_some()),
            entry: None,
            ..self
        }
    }
}
