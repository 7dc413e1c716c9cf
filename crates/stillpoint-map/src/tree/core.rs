//! A tree without the types of its entries, and without their drops.

use super::{
    change::OldNode,
    gate::Gate,
    merge::OldFence,
    node::{Fence, Head, Hook, Inner, KEYS, Kind, Leaf, Link, Node},
    order::SLOTS,
    search::{DEPTH, Path, Place, Sought},
    spare::Arenas,
};
use crate::{
    count::Count,
    section::{Live, Pinned},
    slab::{Arena, OwnedArena},
};
use std::{
    alloc::Layout,
    cmp::Ordering as Is,
    ptr::{self, NonNull},
};
use stillpoint_platform::{fork, race::RaceCell};

/// Where what is no longer used goes until readers have left.
///
/// # Safety
///
/// It frees after a grace period of the tree's domain.
pub unsafe trait Reclaim {
    /// Frees a node after a grace period.
    fn node(&self, node: OldNode<'_>);
    /// Frees the rest of an entry after a grace period.
    fn old_fence(&self, fence: OldFence);
}

/// From so many entries on they lie in slabs, and their number is in many places.
const MANY: usize = if cfg!(miri) { 64 } else { 1024 };

/// From so many entries on new nodes lie in slabs, too. Two arenas more take a page or two each, and
/// one for each thread; and pages of fewer nodes are looked up fast.
const MANY_FOR_NODES: usize = if cfg!(miri) { MANY } else { 16 * MANY };

/// A tree.
#[derive(Debug)]
pub struct Tree {
    pub(super) root: Hook,
    /// About the root.
    pub(super) gate: Gate,
    /// Whether hints tell keys, so that fences have no entries.
    pub(super) hints_tell_keys: bool,
    pub count: Count,
    /// Where entries lie, once there are many, and where nodes do.
    arena: RaceCell<OwnedArena>,
    leaves: RaceCell<OwnedArena>,
    inners: RaceCell<OwnedArena>,
}

impl Tree {
    /// Makes an empty one.
    pub fn new(hints_tell_keys: bool) -> Self {
        let leaf = Box::new(Leaf::new(ptr::null_mut(), &[]));
        let leaf = NonNull::from(Box::leak(leaf));
        Self {
            // SAFETY: a leaf that is the tree's.
            root: unsafe { Hook::of(Link::leaf(leaf)) },
            gate: Gate::new(0),
            hints_tell_keys,
            count: Count::new(),
            arena: RaceCell::new(),
            leaves: RaceCell::new(),
            inners: RaceCell::new(),
        }
    }

    /// Where new entries, which are of this layout, are to lie; `None` for boxes: while there are
    /// few, and without memory.
    #[inline]
    pub fn arena(&self, entry: Layout) -> Option<&Arena> {
        self.arena_of(&self.arena, |entries| Arena::for_entries(entry, entries))
    }

    /// Where new nodes are to lie: likewise.
    pub fn node_arenas(&self) -> Arenas<'_> {
        if self.leaves.get().is_none() && self.count.get() < MANY_FOR_NODES {
            return Arenas::default();
        }
        Arenas {
            leaves: self.arena_of(&self.leaves, |entries| {
                Arena::for_nodes(Layout::new::<Leaf>(), entries / SLOTS)
            }),
            inners: self.arena_of(&self.inners, |entries| {
                Arena::for_nodes(Layout::new::<Inner>(), entries / SLOTS / KEYS)
            }),
        }
    }

    #[inline]
    fn arena_of<'t>(
        &'t self,
        cell: &'t RaceCell<OwnedArena>,
        make: impl FnOnce(usize) -> Option<OwnedArena>,
    ) -> Option<&'t Arena> {
        if let Some(arena) = cell.get() {
            return Some(arena);
        }
        if self.count.is_spread_out() {
            return Some(cell.put(make(self.count.get())?));
        }
        if self.count.get() >= MANY {
            self.count.spread_out();
        }
        None
    }

    /// Frees all nodes. `old_fence` gets the entries whose keys were kept as fences.
    pub fn end(&mut self, mut old_fence: impl FnMut(NonNull<Head>)) {
        let root = self.root.link();
        if root == Link::NONE {
            return;
        }
        // SAFETY: no thread has a reference to the tree any more.
        unsafe { self.root.set(Link::NONE) };
        let mut path: [Option<(Live<'_, Inner>, usize)>; DEPTH + 1] = Default::default();
        let mut depth = 0;
        // SAFETY: of the tree, until this frees it.
        let mut node = unsafe { Node::of(root) };
        'nodes: loop {
            match node.kind() {
                Kind::Inner(inner) => {
                    path[depth] = Some((inner, 0));
                    depth += 1;
                    node = inner.child(0);
                    continue;
                }
                Kind::Leaf(leaf) => {
                    if leaf.has_old_fence() {
                        NonNull::new(leaf.lower)
                            .into_iter()
                            .for_each(&mut old_fence);
                    }
                    // SAFETY: the same; it is not come back to.
                    unsafe { node.free() };
                }
            }
            node = loop {
                let Some((inner, at)) = depth.checked_sub(1).and_then(|depth| path[depth]) else {
                    break 'nodes;
                };
                if at < inner.len() {
                    path[depth - 1] = Some((inner, at + 1));
                    break inner.child(at + 1);
                }
                depth -= 1;
                path[depth] = None;
                // SAFETY: the same, of a node whose children have been freed.
                unsafe { Node::inner(inner).free() };
            };
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.end(|_| ());
    }
}

impl Pinned<Tree> {
    #[inline(always)]
    pub fn root(&self) -> Node<'_> {
        // SAFETY: found in a section that lasts; the rest is the promise of `Hook::set`.
        unsafe { Node::of(self.root.link()) }
    }

    /// The entry of a key.
    #[inline(always)]
    pub fn find<F: FnMut(Fence) -> Is>(&self, sought: &mut Sought<F>) -> Option<NonNull<Head>> {
        let leaf = sought.descend(self.root());
        let order = leaf.order();
        let (at, is_there) = sought.locate(&leaf, order);
        is_there.then(|| leaf.entry(order.slot(at)))
    }

    /// Where the entry of a key is, or would be, or the first one behind it.
    pub fn locate<F: FnMut(Fence) -> Is>(&self, sought: &mut Sought<F>) -> Place<'_> {
        let generation = fork::process().generation();
        let leaf = sought.descend(self.root());
        Self::place(sought, leaf, generation)
    }

    /// The same, and the way there.
    pub fn locate_by<F: FnMut(Fence) -> Is>(
        &self,
        sought: &mut Sought<F>,
    ) -> (Path<'_>, Place<'_>) {
        let generation = fork::process().generation();
        let mut path = Path::new();
        let leaf = sought.descend_by(self.root(), &mut path);
        (path, Self::place(sought, leaf, generation))
    }

    #[inline(always)]
    fn place<'t, F: FnMut(Fence) -> Is>(
        sought: &mut Sought<F>,
        leaf: Live<'t, Leaf>,
        generation: u64,
    ) -> Place<'t> {
        let order = leaf.order();
        let (at, is_there) = sought.locate(&leaf, order);
        Place {
            entry: is_there.then(|| leaf.entry(order.slot(at))),
            leaf,
            order,
            at,
            generation,
        }
    }

    /// Whether a leaf is all of the tree.
    pub fn is_root(&self, leaf: Live<'_, Leaf>) -> bool {
        self.root() == Node::leaf(leaf)
    }

    /// The place of the first entry, or of the last one. `None` if there is none. The path, which is
    /// empty, then leads there.
    pub fn outermost<'t>(&'t self, is_last: bool, path: &mut Path<'t>) -> Option<Place<'t>> {
        let generation = fork::process().generation();
        let mut leaf = path.outermost(self.root(), is_last);
        loop {
            let order = leaf.order();
            if order.len() > 0 {
                let at = if is_last { order.len() - 1 } else { 0 };
                return Some(Place {
                    entry: Some(leaf.entry(order.slot(at))),
                    leaf,
                    order,
                    at,
                    generation,
                });
            }
            leaf = path.beside(!is_last)?;
        }
    }
}
