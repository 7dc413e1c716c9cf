//! A map of nodes that callers embed in objects of their own, and free: what C programs have.
//!
//! It has no types and no comparison of its own. It never frees a node, and after a removal it does
//! not touch it outside of sections that had begun before.

use crate::{
    chain::Duplicates,
    core::{Core, New},
    driver::{Shared, Taken},
    reclaim::InDomain,
    section::{Live, Pinned, Writer},
    slot::{Head, fits, spread},
    walk::Walk,
};
use std::{
    mem::ManuallyDrop,
    ops::Deref,
    ptr::{self, NonNull},
    sync::Arc,
};
use stillpoint::{Domain, global, internal::Kept};

/// What a caller embeds.
#[derive(Debug)]
#[repr(transparent)]
pub struct Node(Head);

impl Node {
    /// Returns whether a map can have a node there: a multiple of 8, of 48 bits.
    #[inline]
    pub fn fits(node: NonNull<Self>) -> bool {
        fits(node)
    }
}

/// There is no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

/// A map of nodes. Dropping it leaves the nodes alone. Its `PinnedNodes` has what needs a section of its
/// domain.
#[derive(Debug)]
#[repr(transparent)]
pub struct Nodes(NonNull<Shared>);

/// A map of nodes in a section of its domain.
#[derive(Debug)]
#[repr(transparent)]
pub struct PinnedNodes(Nodes);

impl Deref for PinnedNodes {
    type Target = Nodes;

    #[inline(always)]
    fn deref(&self) -> &Nodes {
        &self.0
    }
}

// SAFETY: nodes are their owner's business; the rest is shared state that threads may use.
unsafe impl Send for Nodes {}
// SAFETY: the same.
unsafe impl Sync for Nodes {}

/// A node of the caller's, for a map.
struct NewNode(NonNull<Node>);

impl NewNode {
    /// # Safety
    ///
    /// That of [`PinnedNodes::add`].
    #[inline]
    unsafe fn of(node: NonNull<Node>, hash: u64) -> Self {
        // SAFETY: the caller's promise.
        unsafe { node.cast::<Head>().write(Head::new(hash)) };
        Self(node)
    }
}

// SAFETY: that of `NewNode::of`.
unsafe impl New for NewNode {
    #[inline]
    fn head(&self) -> NonNull<Head> {
        self.0.cast()
    }
}

impl Nodes {
    /// Creates one in `domain` (`None`: the global one) whose table has room for `nodes`. If `stays`, it
    /// never shrinks below that.
    ///
    /// # Errors
    ///
    /// Without memory.
    pub fn new(domain: Option<&Domain>, nodes: usize, stays: bool) -> Result<Self, Exhausted> {
        Shared::of(domain.map(Kept::from), nodes, stays)
            .and_then(|made| NonNull::new(Arc::into_raw(made).cast_mut()))
            .map(Self)
            .ok_or(Exhausted)
    }

    /// As a pointer, which owns it.
    pub fn into_raw(self) -> *mut () {
        ManuallyDrop::new(self).0.as_ptr().cast()
    }

    /// Of such a pointer.
    ///
    /// # Safety
    ///
    /// From [`into_raw`](Self::into_raw), and the map is dropped once.
    #[inline(always)]
    pub unsafe fn from_raw(map: NonNull<()>) -> Self {
        Self(map.cast())
    }

    /// Returns the map in a section that is open already.
    ///
    /// # Safety
    ///
    /// A section of the map's domain is open while the reference is used.
    #[inline(always)]
    pub unsafe fn pinned(&self) -> &PinnedNodes {
        // SAFETY: the caller's promise; it is nothing but the map, by `repr(transparent)`.
        unsafe { &*ptr::from_ref(self).cast() }
    }

    #[inline(always)]
    fn core(&self) -> &Core {
        // SAFETY: from an `Arc`, which this owns.
        unsafe { &self.0.as_ref().core }
    }

    /// The domain that the map was made in.
    #[inline]
    pub fn domain(&self) -> &Domain {
        // SAFETY: it changes only when the map ends.
        match unsafe { &*self.0.as_ref().domain.get() } {
            Some(domain) => domain,
            None => global(),
        }
    }

    /// How many nodes there are; exact while no thread changes the map.
    #[allow(clippy::len_without_is_empty, reason = "C asks for the number")]
    pub fn len(&self) -> usize {
        self.core().count.get()
    }

    /// Ends the map, and hands all its nodes to `each`, which may free them. Waits for a slice of the
    /// service thread's work, a millisecond or two, if that moves the table.
    ///
    /// If `each` panics, the map's memory is never freed.
    pub fn end(self, mut each: impl FnMut(NonNull<Node>)) {
        // SAFETY: this is the end of it, and it is not dropped.
        let taken = ManuallyDrop::new(unsafe { ManuallyDrop::new(self).take() });
        // The walk does not come back to a node.
        let mut walk = Walk::from(Some(taken.pinned().live()), Some(0));
        while walk.step_to_used().is_some() {
            while let Some(node) = walk.next_here() {
                each(node.pointer().cast());
            }
        }
        drop(ManuallyDrop::into_inner(taken));
    }

    /// Takes the map apart.
    ///
    /// # Safety
    ///
    /// It is not used after that, nor dropped.
    unsafe fn take(&mut self) -> Taken {
        // SAFETY: from an `Arc`, which this owns; no other thread has the map, by the borrow.
        unsafe { Taken::of(Arc::from_raw(self.0.as_ptr().cast_const())) }
    }
}

// SAFETY: both are the map's.
unsafe impl InDomain for PinnedNodes {
    type Core = Core;

    fn domain(&self) -> &Domain {
        self.0.domain()
    }

    fn shared(&self) -> Option<NonNull<Shared>> {
        Some(self.0.0)
    }
}

impl PinnedNodes {
    #[inline(always)]
    fn core(&self) -> &Pinned<Core> {
        // SAFETY: inside a section of the map's domain while this is borrowed.
        unsafe { Pinned::of(self.0.core()) }
    }

    #[inline]
    fn writer(&self) -> Writer<'_, Core, &Self> {
        // SAFETY: the domain is the map's.
        unsafe { Writer::of(self.core(), self) }
    }

    /// How many nodes the table has room for before it grows.
    pub fn capacity(&self) -> usize {
        self.core().capacity()
    }

    /// Returns a node with that hash which `is_it` accepts, valid for the section. Takes no lock, and writes
    /// nothing.
    #[inline(always)]
    pub fn find(
        &self,
        hash: u64,
        mut is_it: impl FnMut(NonNull<Node>) -> bool,
    ) -> Option<NonNull<Node>> {
        let hash = spread(hash);
        let is_it = |head: Live<'_, Head>| head.hash() == hash && is_it(head.pointer().cast());
        Some(self.core().table().find(hash, is_it)?.pointer().cast())
    }

    /// Returns whether a node is in the map.
    ///
    /// # Safety
    ///
    /// The node is there until the section ends, and has been in a map.
    pub unsafe fn has(&self, node: NonNull<Node>) -> bool {
        // SAFETY: the caller's promise.
        let node = unsafe { Live::<Head>::of(node.cast()) };
        let found = self.core().table().find(node.hash(), |head| head == node);
        found.is_some()
    }

    /// The nodes with that hash, valid for the section.
    pub fn with_hash(&self, hash: u64) -> NodeIter<'_> {
        let hash = spread(hash);
        let (table, index, word) = self.core().table().home(hash);
        NodeIter::WithHash(Duplicates::of(table.at(index), word, hash))
    }

    /// All nodes, valid for the section.
    pub fn iter(&self) -> NodeIter<'_> {
        NodeIter::All(Walk::from(Some(self.core().live()), Some(0)))
    }

    /// Puts a node in, whatever is there.
    ///
    /// # Safety
    ///
    /// The node [fits](Node::fits), is in no map and has been in none for a grace period, and is the map's
    /// from now on: it stays as it is until a grace period after its removal.
    pub unsafe fn add(&self, hash: u64, node: NonNull<Node>) {
        // SAFETY: the caller's promise.
        let new = unsafe { NewNode::of(node, spread(hash)) };
        let added = self.writer().insert(new, None);
        debug_assert!(added.is_ok(), "it is put in whatever is there");
    }

    /// Puts a node in, unless there is one with that hash which `is_same` accepts: it is returned.
    ///
    /// # Safety
    ///
    /// As [`add`](Self::add).
    pub unsafe fn add_unique(
        &self,
        hash: u64,
        node: NonNull<Node>,
        mut is_same: impl FnMut(NonNull<Node>) -> bool,
    ) -> Option<NonNull<Node>> {
        let hash = spread(hash);
        // SAFETY: the caller's promise.
        let new = unsafe { NewNode::of(node, hash) };
        let is_same = |new: &NewNode, other: Live<'_, Head>| {
            let other_node = other.pointer().cast();
            other.hash() == hash && (other_node == new.0 || is_same(other_node))
        };
        match self.writer().add_unless(new, is_same) {
            Ok(_) => None,
            Err((other, _)) => Some(other.pointer().cast()),
        }
    }

    /// Puts a node in, in the place of one with that hash which `is_same` accepts, if there is one: it
    /// is returned, and is the caller's after a grace period.
    ///
    /// # Safety
    ///
    /// As [`add_unique`](Self::add_unique).
    pub unsafe fn add_or_replace(
        &self,
        hash: u64,
        node: NonNull<Node>,
        mut is_same: impl FnMut(NonNull<Node>) -> bool,
    ) -> Option<NonNull<Node>> {
        loop {
            // SAFETY: the caller's promise.
            let old = unsafe { self.add_unique(hash, node, &mut is_same) }?;
            // SAFETY: found in the caller's section, with that hash.
            if old == node || unsafe { self.replace(old, node) } {
                return Some(old);
            }
        }
    }

    /// Puts `new`, whose key is equal, in the place of `old`, which is the caller's after a grace
    /// period. Returns false if `old` is not in the map, or no longer.
    ///
    /// # Safety
    ///
    /// As [`add`](Self::add), for `new`; `old` was found in the caller's section.
    pub unsafe fn replace(&self, old: NonNull<Node>, new: NonNull<Node>) -> bool {
        // SAFETY: the caller's promises.
        let (old, new) = unsafe {
            let old = Live::<Head>::of(old.cast());
            (old, NewNode::of(new, old.hash()))
        };
        self.core().replace(old, new).is_ok()
    }

    /// Takes a node out, which is the caller's after a grace period. Returns false if it is not in the
    /// map, or no longer.
    ///
    /// # Safety
    ///
    /// As [`has`](Self::has).
    pub unsafe fn remove(&self, node: NonNull<Node>) -> bool {
        // SAFETY: the caller's promise.
        self.writer().remove(unsafe { Live::of(node.cast()) })
    }

    /// Makes room for `nodes` more nodes, and keeps it. Does not wait for that.
    ///
    /// # Errors
    ///
    /// Without memory, or if no table can be so large.
    pub fn reserve(&self, nodes: usize) -> Result<(), Exhausted> {
        let reserved = self.writer().reserve(nodes);
        reserved.then_some(()).ok_or(Exhausted)
    }

    /// Lets the table shrink to what its nodes need.
    pub fn shrink_to_fit(&self) {
        self.writer().shrink_to_fit();
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // SAFETY: this is the end of it.
        drop(unsafe { self.take() });
    }
}

/// Some nodes, one after the other, inside the section in which it was made.
#[derive(Clone, Debug)]
pub enum NodeIter<'g> {
    /// All.
    All(Walk<'g>),
    /// Those with one hash.
    WithHash(Duplicates<'g>),
}

impl NodeIter<'_> {
    /// None.
    pub fn ended() -> Self {
        Self::All(Walk::from(None, None))
    }
}

impl Iterator for NodeIter<'_> {
    type Item = NonNull<Node>;

    #[inline]
    fn next(&mut self) -> Option<NonNull<Node>> {
        let next = match self {
            Self::All(walk) => walk.next(),
            Self::WithHash(nodes) => nodes.next(),
        };
        next.map(|head| head.pointer().cast())
    }
}

// Detects an insert that does not look what has changed, and buckets that leave a chain and are not
// retired or still counted.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;
