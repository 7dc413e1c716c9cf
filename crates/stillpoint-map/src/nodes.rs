//! A map of nodes that callers embed in objects of their own, and free: what C programs have.
//!
//! It has no types and no comparison of its own. It never frees a node, and after a removal it does
//! not touch it outside of sections that had begun before.

use crate::{
    adding::Added,
    chain::Duplicates,
    core::Core,
    driver::Shared,
    reclaim::To,
    slot::{Head, fits, spread},
    walk::Walk,
};
use std::{mem::ManuallyDrop, ptr::NonNull};
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

/// A map of nodes. Dropping it leaves the nodes alone.
///
/// # Safety
///
/// Of the methods that say "as [`find`](Self::find)": the caller is inside a section of the map's
/// domain for as long as it uses what they return, and a node that was in the map stays as it is
/// until a grace period after its removal.
#[derive(Debug)]
#[repr(transparent)]
pub struct Nodes(NonNull<Shared>);

// SAFETY: nodes are their owner's business; the rest is shared state that threads may use.
unsafe impl Send for Nodes {}
// SAFETY: the same.
unsafe impl Sync for Nodes {}

impl Nodes {
    /// Makes one of the domain (`None`: the global one), with a table for so many nodes, which is
    /// the smallest that it will have if it `stays`.
    ///
    /// # Errors
    ///
    /// Without memory.
    pub fn new(domain: Option<&Domain>, nodes: usize, stays: bool) -> Result<Self, Exhausted> {
        let made = Shared::try_new(domain.map(Kept::from), nodes, stays);
        made.map(Self).ok_or(Exhausted)
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

    #[inline(always)]
    pub(crate) fn core(&self) -> &Core {
        // SAFETY: `Shared::try_new`'s, which this owns.
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

    #[inline]
    fn to(&self) -> To<'_> {
        To(Some(self.domain()))
    }

    /// How many nodes there are; exact while no thread changes the map.
    #[allow(clippy::len_without_is_empty, reason = "C asks for the number")]
    pub fn len(&self) -> usize {
        self.core().count.get()
    }

    /// How many nodes the table has room for before it grows.
    ///
    /// # Safety
    ///
    /// As [`find`](Self::find).
    pub unsafe fn capacity(&self) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.core().capacity() }
    }

    /// A node with that hash which `is_it` accepts. Takes no lock, and writes nothing.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain for as long as the result is used; nodes stay as they
    /// are until a grace period after their removal.
    #[inline(always)]
    pub unsafe fn find(
        &self,
        hash: u64,
        mut is_it: impl FnMut(NonNull<Node>) -> bool,
    ) -> Option<NonNull<Node>> {
        let hash = spread(hash);
        // SAFETY: the caller's promise.
        let found = unsafe { self.core().table() }.find(hash, |head| {
            // SAFETY: the caller's promise.
            unsafe { head.as_ref() }.hash == hash && is_it(head.cast())
        });
        found.map(NonNull::cast)
    }

    /// Returns whether a node is in the map.
    ///
    /// # Safety
    ///
    /// As [`find`](Self::find), also for `node`, which has been in a map.
    pub unsafe fn has(&self, node: NonNull<Node>) -> bool {
        // SAFETY: the caller's promise.
        let hash = unsafe { node.as_ref() }.0.hash;
        // SAFETY: the same.
        let found = unsafe { self.core().table() }.find(hash, |head| head == node.cast());
        found.is_some()
    }

    /// The nodes with that hash.
    ///
    /// # Safety
    ///
    /// As [`find`](Self::find), for as long as `'g`.
    pub unsafe fn with_hash<'g>(&'g self, hash: u64) -> NodeIter<'g> {
        let hash = spread(hash);
        // SAFETY: the caller's promise.
        let (table, index, word) = unsafe { self.core().table() }.home(hash);
        NodeIter::WithHash(Duplicates::of(table.at(index), word, hash))
    }

    /// All nodes.
    ///
    /// # Safety
    ///
    /// As [`find`](Self::find), for as long as `'g`.
    pub unsafe fn iter<'g>(&'g self) -> NodeIter<'g> {
        // SAFETY: the caller's promise.
        NodeIter::All(unsafe { Walk::from(Some(NonNull::from(self.core())), Some(0)) })
    }

    /// # Safety
    ///
    /// The node is the caller's, and in no map.
    #[inline]
    unsafe fn prepare(node: NonNull<Node>, hash: u64) -> (NonNull<Head>, u64) {
        let hash = spread(hash);
        // SAFETY: the caller's promise.
        unsafe { node.cast::<Head>().write(Head { hash }) };
        (node.cast(), hash)
    }

    /// # Safety
    ///
    /// Inside a section of the map's domain.
    #[inline]
    unsafe fn queue_driver(&self) {
        // SAFETY: the one that this owns; the caller's promise.
        unsafe { Shared::queue_driver(self.0, || self.domain()) };
    }

    /// Puts a node in, whatever is there.
    ///
    /// # Safety
    ///
    /// As [`find`](Self::find). The node [fits](Node::fits), is in no map and has been in none for a
    /// grace period, and is the map's from now on.
    pub unsafe fn add(&self, hash: u64, node: NonNull<Node>) {
        // SAFETY: the caller's promise.
        let (head, _) = unsafe { Self::prepare(node, hash) };
        // SAFETY: the caller's promises.
        unsafe {
            self.core().insert(head, None, &self.to());
            self.queue_driver();
        }
    }

    /// Puts a node in, unless there is one with that hash which `is_same` accepts: it is returned.
    ///
    /// # Safety
    ///
    /// As [`add`](Self::add), but that `node` may be in this map with the same hash: it is then
    /// returned.
    pub unsafe fn add_unique(
        &self,
        hash: u64,
        node: NonNull<Node>,
        mut is_same: impl FnMut(NonNull<Node>) -> bool,
    ) -> Option<NonNull<Node>> {
        // SAFETY: the caller's promise.
        let (head, hash) = unsafe { Self::prepare(node, hash) };
        let mut is_same = |other: NonNull<Head>| {
            // SAFETY: the caller's promise.
            let has_hash = unsafe { other.as_ref() }.hash == hash;
            has_hash && (other == head || is_same(other.cast()))
        };
        let core = self.core();
        // SAFETY: the caller's promise.
        match unsafe { core.add_unless(head, hash, &self.to(), &mut is_same) } {
            Added::Done => {
                // SAFETY: the caller's promise.
                unsafe { self.queue_driver() };
                None
            }
            Added::Found(other) => Some(other.cast()),
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
        unsafe {
            let hash = old.as_ref().0.hash;
            new.cast::<Head>().write(Head { hash });
            self.core().replace(old.cast(), new.cast())
        }
    }

    /// Takes a node out, which is the caller's after a grace period. Returns false if it is not in the
    /// map, or no longer.
    ///
    /// # Safety
    ///
    /// As [`find`](Self::find), also for `node`, which has been in a map.
    pub unsafe fn remove(&self, node: NonNull<Node>) -> bool {
        // SAFETY: the caller's promise.
        let removed = unsafe { self.core().remove(node.cast(), &self.to()) };
        if removed {
            // SAFETY: the same.
            unsafe { self.queue_driver() };
        }
        removed
    }

    /// Makes room for so many more nodes, and keeps it. Does not wait for that.
    ///
    /// # Errors
    ///
    /// Without memory, or if no table can be so large.
    ///
    /// # Safety
    ///
    /// As [`find`](Self::find).
    pub unsafe fn reserve(&self, nodes: usize) -> Result<(), Exhausted> {
        // SAFETY: the caller's promise.
        let reserved = unsafe { self.core().reserve(nodes) };
        // SAFETY: the caller's promise.
        unsafe { self.queue_driver() };
        reserved.then_some(()).ok_or(Exhausted)
    }

    /// Lets the table shrink to what its nodes need.
    ///
    /// # Safety
    ///
    /// As [`find`](Self::find).
    pub unsafe fn shrink_to_fit(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.core().shrink_to_fit();
            self.queue_driver();
        }
    }

    /// Ends the map, and hands all its nodes to `each`, which may free them. Waits for a slice of the
    /// service thread's work, a millisecond or two, if that moves the table.
    ///
    /// If `each` panics, the map's memory is never freed.
    pub fn end(self, mut each: impl FnMut(NonNull<Node>)) {
        // It must not be closed twice.
        let this = ManuallyDrop::new(self);
        this.core().driving.close();
        // SAFETY: no other thread has the map, and the service thread does not drive any more. The
        // walk does not come back to a node.
        unsafe {
            let mut walk = Walk::from(Some(NonNull::from(this.core())), Some(0));
            while walk.step_to_used().is_some() {
                while let Some(node) = walk.next_here() {
                    each(node.cast());
                }
            }
            Shared::end(this.0);
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.core().driving.close();
        // SAFETY: closed, and no other thread has the map.
        unsafe { Shared::end(self.0) };
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
        // SAFETY: there is no core that it would visit.
        Self::All(unsafe { Walk::from(None, None) })
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
        next.map(NonNull::cast)
    }
}

// Detects an insert that does not look what has changed, and buckets that leave a chain and are not
// retired or still counted.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;
