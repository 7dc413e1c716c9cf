//! A tree without the types of its entries, and without their drops.

use super::{
    gate::Gate,
    node::{Fence, Head, Inner, KEYS, Kind, Leaf, Node},
    order::SLOTS,
    search::{Path, Place, Sought},
    spare::Arenas,
};
use crate::{count::Count, section::Live, slab::Arena};
use std::{
    alloc::Layout,
    cmp::Ordering as Is,
    ptr::{self, NonNull},
};
use stillpoint_platform::{
    fork,
    sync::{AtomicPtr, Ordering},
};

/// Where what is no longer used goes until readers have left.
///
/// # Safety
///
/// It frees after a grace period of the tree's domain.
pub unsafe trait Reclaim {
    /// Frees a node after a grace period.
    fn node(&self, node: Node);
    /// Frees the rest of an entry, which was taken out before, and whose key is no fence any more.
    fn old_fence(&self, entry: NonNull<Head>);
}

/// From so many entries on they lie in slabs, and their number is in many places.
const MANY: usize = if cfg!(miri) { 64 } else { 1024 };

/// From so many entries on new nodes lie in slabs, too. Two arenas more take a page or two each, and
/// one for each thread; and pages of fewer nodes are looked up fast.
const MANY_FOR_NODES: usize = if cfg!(miri) { MANY } else { 16 * MANY };

/// A tree.
#[derive(Debug)]
pub struct Tree {
    root: AtomicPtr<()>,
    /// About the root.
    pub(super) gate: Gate,
    /// Whether hints tell keys, so that fences have no entries.
    pub(super) hints_tell_keys: bool,
    pub count: Count,
    /// Where entries lie, once there are many, and where nodes do; null before.
    pub(crate) arena: AtomicPtr<Arena>,
    leaves: AtomicPtr<Arena>,
    inners: AtomicPtr<Arena>,
}

impl Tree {
    /// Makes an empty one.
    pub fn new(hints_tell_keys: bool) -> Self {
        let leaf = Box::new(Leaf::new(ptr::null_mut(), &[]));
        let leaf = NonNull::from(Box::leak(leaf));
        Self {
            root: AtomicPtr::new(Node::leaf(leaf).0),
            gate: Gate::new(0),
            hints_tell_keys,
            count: Count::new(),
            arena: AtomicPtr::new(ptr::null_mut()),
            leaves: AtomicPtr::new(ptr::null_mut()),
            inners: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline(always)]
    pub fn root(&self) -> Node {
        // Acquire, pairs with `set_root`: it is complete.
        Node(self.root.load(Ordering::Acquire))
    }

    /// Under the lock.
    pub(super) fn set_root(&self, root: Node) {
        // Release, pairs with `root`: it is complete.
        self.root.store(root.0, Ordering::Release);
    }

    /// The entry of a key.
    ///
    /// # Safety
    ///
    /// Inside a section of the tree's domain.
    #[inline(always)]
    pub unsafe fn find<F: FnMut(Fence) -> Is>(
        &self,
        sought: &mut Sought<F>,
    ) -> Option<NonNull<Head>> {
        // SAFETY: the caller's promise.
        let leaf = unsafe { sought.descend(self.root()) };
        let order = leaf.order();
        let (at, is_there) = sought.locate(&leaf, order);
        is_there.then(|| leaf.entry(order.slot(at)))
    }

    /// Where the entry of a key is, or would be, or the first one behind it.
    ///
    /// # Safety
    ///
    /// Inside a section of the tree's domain, which lasts for `'t`.
    pub unsafe fn locate<'t, F: FnMut(Fence) -> Is>(&'t self, sought: &mut Sought<F>) -> Place<'t> {
        let generation = fork::process().generation();
        // SAFETY: the caller's promise.
        let leaf = unsafe { sought.descend(self.root()) };
        Self::place(sought, leaf, generation)
    }

    /// The same, and the way there.
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn locate_by<'t, F: FnMut(Fence) -> Is>(
        &'t self,
        sought: &mut Sought<F>,
    ) -> (Path<'t>, Place<'t>) {
        let generation = fork::process().generation();
        let root = self.root();
        let mut path = Path::new();
        // SAFETY: the caller's promise.
        let leaf = unsafe { sought.descend_by(root, &mut path) };
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
        self.root() == Node::leaf(leaf.pointer())
    }

    /// The place of the first entry, or of the last one. `None` if there is none. The path, which is
    /// empty, then leads there.
    ///
    /// # Safety
    ///
    /// As for `locate`.
    pub unsafe fn outermost<'t>(&'t self, is_last: bool, path: &mut Path<'t>) -> Option<Place<'t>> {
        let generation = fork::process().generation();
        let root = self.root();
        // SAFETY: the caller's promise, here and below.
        let mut leaf = unsafe { path.outermost(root, is_last) };
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
            // SAFETY: the same.
            leaf = unsafe { path.beside(!is_last) }?;
        }
    }

    /// Where new entries, which are of this layout, are to lie; `None` for boxes: while there are
    /// few, and without memory.
    #[inline]
    pub fn arena(&self, entry: Layout) -> Option<&Arena> {
        self.arena_of(&self.arena, |entries| Arena::new(entry, entries))
    }

    /// Where new nodes are to lie: likewise.
    pub fn node_arenas(&self) -> Arenas<'_> {
        // Relaxed: null or not; `arena_of` looks again.
        let has_some = !self.leaves.load(Ordering::Relaxed).is_null();
        if !has_some && self.count.get() < MANY_FOR_NODES {
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
        place: &'t AtomicPtr<Arena>,
        make: impl FnOnce(usize) -> Option<NonNull<Arena>>,
    ) -> Option<&'t Arena> {
        // Acquire, pairs with `publish_arena`: it is complete.
        let arena = NonNull::new(place.load(Ordering::Acquire));
        match arena {
            // SAFETY: it is there until `close_arenas`.
            Some(arena) => Some(unsafe { arena.as_ref() }),
            None if self.count.is_spread_out() => {
                Self::publish_arena(place, make(self.count.get())?)
            }
            None => {
                if self.count.get() >= MANY {
                    self.count.spread_out();
                }
                None
            }
        }
    }

    #[cold]
    fn publish_arena(place: &AtomicPtr<Arena>, made: NonNull<Arena>) -> Option<&Arena> {
        // Release, pairs with `arena_of`: it is complete. Acquire: so is the faster thread's.
        let set = place.compare_exchange(
            ptr::null_mut(),
            made.as_ptr(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        let arena = match set {
            Ok(_) => made,
            Err(faster) => {
                // SAFETY: no other thread knows it.
                unsafe { Arena::close(made) };
                NonNull::new(faster)?
            }
        };
        // SAFETY: it is there until `close_arenas`.
        Some(unsafe { arena.as_ref() })
    }

    /// Ends the arenas, each when its last slot is free.
    ///
    /// # Safety
    ///
    /// No other thread uses the tree; nor does the caller any more.
    pub unsafe fn close_arenas(&self) {
        for place in [&self.arena, &self.leaves, &self.inners] {
            let arena = place.swap(ptr::null_mut(), Ordering::Relaxed);
            if let Some(arena) = NonNull::new(arena) {
                // SAFETY: the caller's promise.
                unsafe { Arena::close(arena) };
            }
        }
    }

    /// Frees all nodes. `old_fence` gets the entries whose keys were kept as fences.
    ///
    /// # Safety
    ///
    /// No other thread uses the tree; nor does the caller any more, but for its entries.
    pub unsafe fn free_nodes(&self, mut old_fence: impl FnMut(NonNull<Head>)) {
        let mut path: [Option<(Live<'_, Inner>, usize)>; super::search::DEPTH + 1] =
            Default::default();
        let mut depth = 0;
        let mut node = self.root();
        loop {
            // SAFETY: the caller's promise: it has not been freed yet, being the last one that is.
            match unsafe { node.kind() } {
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
                    return;
                };
                if at < inner.len() {
                    path[depth - 1] = Some((inner, at + 1));
                    break inner.child(at + 1);
                }
                depth -= 1;
                path[depth] = None;
                // SAFETY: the same, of a node whose children have been freed.
                unsafe { Node::inner(inner.pointer()).free() };
            };
        }
    }
}
