//! Entries for which their bucket has no slot: a list behind it.
//!
//! Only an exclusive borrower of the map, who has no readers beside it, changes the entry of a node. A change
//! of the list takes two new nodes at most, however long it is. It puts a node before the first one, or
//! another one in the place of one, or takes one out; and whatever it does, the list begins with a new node
//! after it, a copy if there is no other. So as long as a bucket has the same first node, the list is the
//! same, for a thread whose section has begun before: no node is freed in it. What has left the list is freed
//! after a grace period. A reader that is there goes on to the nodes that were behind it.
//!
//! A change behind the first node is visible before the new first node is. A fork may remove the thread in
//! between: so a node that was found before a fork is searched for again in the child ([`Found`]).

use super::bucket::tag;
use crate::{section::Live, slot::fits, table::Old};
use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    iter,
    mem::forget,
    ptr::{NonNull, null_mut},
};
use stillpoint_platform::{
    fork,
    sync::{AtomicPtr, AtomicU64, Ordering, UnsafeCell},
};

/// The hash of a key, or its tag alone: a slot has no more of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownHash(u64);

/// The lowest bit of a hash, which no tag and no index has: set if all of the hash is known.
const IS_KNOWN: u64 = 1;

impl KnownHash {
    pub fn of(hash: u64) -> Self {
        Self(hash | IS_KNOWN)
    }

    pub fn of_tag(tag: u8) -> Self {
        Self(u64::from(tag) << 1)
    }

    #[inline]
    pub fn tag(self) -> u8 {
        tag(self.0)
    }

    /// Returns the hash, if it is known, but for its lowest bit.
    #[inline]
    pub fn hash(self) -> Option<u64> {
        (self.0 & IS_KNOWN != 0).then_some(self.0)
    }
}

/// An entry, and its hash or tag.
#[derive(Clone, Copy, Debug)]
pub struct Hashed<K, V> {
    pub key: K,
    pub value: V,
    pub hash: KnownHash,
}

/// An entry of a list.
pub struct Node<K, V> {
    next: AtomicPtr<Node<K, V>>,
    /// A [`KnownHash`].
    hash: AtomicU64,
    /// In a cell, so that models see whether a reader may be at the node when it is freed.
    pair: UnsafeCell<(K, V)>,
}

/// A node, and the list that begins with it, inside a section of the map's domain.
pub struct Spill<'t, K, V>(Live<'t, Node<K, V>>);

impl<K, V> Clone for Spill<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Spill<'_, K, V> {}

impl<K, V> PartialEq for Spill<'_, K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K, V> Eq for Spill<'_, K, V> {}

#[cfg(all(test, not(stillpoint_loom)))]
thread_local! {
    /// How often this thread has gone from a node to the next one.
    pub static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl<'t, K, V> Spill<'t, K, V> {
    /// # Safety
    ///
    /// It comes from a bucket or a node that stays for as long as `'t`: so does this node.
    pub unsafe fn from_pointer(pointer: *mut Node<K, V>) -> Option<Self> {
        // SAFETY: the caller's promise.
        NonNull::new(pointer).map(|node| Self(unsafe { Live::of(node) }))
    }

    pub fn into_pointer(self) -> *mut Node<K, V> {
        self.0.pointer().as_ptr()
    }

    /// The node behind this one.
    pub fn next(self) -> Option<Self> {
        #[cfg(all(test, not(stillpoint_loom)))]
        STEPS.set(STEPS.get() + 1);
        // Acquire, pairs with `set_next`: the node is complete.
        let next = self.0.get().next.load(Ordering::Acquire);
        // SAFETY: from a node that stays.
        unsafe { Self::from_pointer(next) }
    }

    /// Makes another node the next one.
    ///
    /// # Safety
    ///
    /// The caller has the bucket's lock. The node is of the bucket's list, and those that are left out leave it.
    pub unsafe fn set_next(self, next: Option<Self>) {
        // Release, pairs with `next`: the node is complete.
        self.0.get().next.store(
            next.map_or(null_mut(), Self::into_pointer),
            Ordering::Release,
        );
    }

    /// Returns the hash of the node's key, or its tag.
    #[inline]
    pub fn hash(self) -> KnownHash {
        // Relaxed: with the node came its tag, and more of the hash tells of nothing else.
        KnownHash(self.0.get().hash.load(Ordering::Relaxed))
    }

    /// Keeps the hash of the node's key, which `make` returns if it is not known yet.
    pub fn hash_or(self, make: impl FnOnce() -> u64) -> u64 {
        self.hash().hash().unwrap_or_else(|| {
            let hash = make();
            // Relaxed: as in `hash`.
            let known = KnownHash::of(hash);
            self.0.get().hash.store(known.0, Ordering::Relaxed);
            hash
        })
    }

    /// The nodes from this one on. Each is left before it is returned: so the caller may free it.
    pub fn nodes(self) -> impl Iterator<Item = Self> {
        let mut rest = Some(self);
        iter::from_fn(move || {
            let node = rest?;
            rest = node.next();
            Some(node)
        })
    }

    /// The node, to be freed when no reader is at it any more.
    ///
    /// # Safety
    ///
    /// No reader from now on finds it, and this is called once.
    pub unsafe fn unlinked(self) -> OldNode<K, V> {
        OldNode(self.0.pointer())
    }
}

/// A node that no reader from now on finds.
pub struct OldNode<K, V>(NonNull<Node<K, V>>);

// SAFETY: it is used by its owner alone, but for readers that came before.
unsafe impl<K: Send, V: Send> Send for OldNode<K, V> {}

// SAFETY: of `NewNode`; its entry needs no drop.
unsafe impl<K, V> Old for OldNode<K, V> {
    type Target = Node<K, V>;

    fn pointer(&self) -> NonNull<Node<K, V>> {
        self.0
    }

    fn overwrite(&self) {
        // SAFETY: there is memory of it until it is freed.
        unsafe { (*self.0.as_ptr()).pair.with_mut(|_| ()) };
    }
}

/// A node of a list, and the one before it unless it is the first. In the process that has found it, that is
/// so for as long as the list begins with the same node.
pub struct Found<'t, K, V> {
    /// The first node of the list.
    first: Spill<'t, K, V>,
    node: Spill<'t, K, V>,
    before: Option<Spill<'t, K, V>>,
    /// The generation of that process.
    process: u64,
}

impl<K, V> Clone for Found<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Found<'_, K, V> {}

impl<'t, K, V> Found<'t, K, V> {
    /// Returns whether `first` is still the first node of the list in which it was found, in the same process.
    pub fn is_in(self, first: Option<Spill<'t, K, V>>) -> bool {
        first == Some(self.first) && self.process == fork::process().generation()
    }

    /// Returns this as if a process of that generation had found it.
    #[cfg(all(test, not(stillpoint_loom)))]
    pub fn of_process(self, process: u64) -> Self {
        Self { process, ..self }
    }

    /// Returns the node.
    pub fn node(self) -> Spill<'t, K, V> {
        self.node
    }

    /// Returns the node before it, unless it is the first.
    pub fn before(self) -> Option<Spill<'t, K, V>> {
        self.before
    }

    /// Returns whether the new first node is a copy of a node that stays, once this one is replaced, or taken
    /// out.
    pub fn needs_copy(self, is_replaced: bool) -> bool {
        self.before.is_some() || !is_replaced && self.node.next().is_some()
    }
}

impl<'t, K: Copy, V: Copy> Spill<'t, K, V> {
    /// A copy of the node's entry.
    #[inline]
    pub fn entry(self) -> Hashed<K, V> {
        // SAFETY: written before another thread could find it, and after that by an exclusive borrower alone.
        let (key, value) = self.0.get().pair.with(|pair| unsafe { *pair });
        let hash = self.hash();
        Hashed { key, value, hash }
    }

    /// The key of the node's entry.
    #[inline]
    pub fn key(self) -> K {
        // SAFETY: as in `entry`.
        self.0.get().pair.with(|pair| unsafe { (*pair).0 })
    }

    /// Where the key and the value of the node's entry are.
    #[cfg(not(stillpoint_loom))]
    pub fn halves(self) -> (*const K, *mut V) {
        // SAFETY: the node stays; no reference to the entry is made.
        unsafe {
            (*self.0.pointer().as_ptr())
                .pair
                .with_mut(|pair| (&raw const (*pair).0, &raw mut (*pair).1))
        }
    }

    /// Returns whether its entry has that tag and a key that `is_it` accepts.
    #[inline]
    fn is(self, tag: u8, is_it: impl FnOnce(&K) -> bool) -> bool {
        // The key in any case: so models see that a reader is at the node.
        let (hash, key) = (self.hash(), self.key());
        hash.tag() == tag && is_it(&key)
    }

    /// The first node whose entry has that tag and a key that `is_it` accepts.
    pub fn find(self, tag: u8, mut is_it: impl FnMut(&K) -> bool) -> Option<Self> {
        self.nodes().find(|node| node.is(tag, &mut is_it))
    }

    /// As [`Spill::find`], for a change of the list that begins with this node.
    pub fn find_to_change(
        self,
        tag: u8,
        mut is_it: impl FnMut(&K) -> bool,
    ) -> Option<Found<'t, K, V>> {
        let (process, mut before) = (fork::process().generation(), None);
        let node = self.nodes().find(|node| {
            let found = node.is(tag, &mut is_it);
            if !found {
                before = Some(*node);
            }
            found
        })?;
        Some(Found {
            first: self,
            node,
            before,
            process,
        })
    }
}

/// A node without an entry, which no list has.
#[derive(Debug)]
pub struct NewNode<K, V>(NonNull<Node<K, V>>);

impl<K: Copy, V: Copy> NewNode<K, V> {
    /// Allocates one. Ends the process without memory at addresses of 48 bits.
    pub fn new() -> Self {
        let layout = Layout::new::<Node<K, V>>();
        // SAFETY: not of size 0.
        let node = NonNull::new(unsafe { alloc(layout) }).map(NonNull::cast::<Node<K, V>>);
        let Some(node) = node.filter(|&node| fits(node)) else {
            handle_alloc_error(layout);
        };
        Self(node)
    }

    /// Makes it a node with this entry, before `next`.
    ///
    /// # Safety
    ///
    /// A list that lasts for `'t` gets it, or the caller frees it later than that.
    pub unsafe fn fill<'t>(
        self,
        Hashed { key, value, hash }: Hashed<K, V>,
        next: Option<Spill<'t, K, V>>,
    ) -> Spill<'t, K, V> {
        let node = self.0;
        forget(self);
        let next = AtomicPtr::new(next.map_or(null_mut(), Spill::into_pointer));
        let (hash, pair) = (AtomicU64::new(hash.0), UnsafeCell::new((key, value)));
        // SAFETY: allocated for one, and no other thread knows it. It stays until it is unlinked.
        unsafe {
            node.write(Node { next, hash, pair });
            Spill(Live::of(node))
        }
    }
}

impl<K, V> Drop for NewNode<K, V> {
    fn drop(&mut self) {
        // SAFETY: allocated with that layout, and no list has it.
        unsafe { dealloc(self.0.as_ptr().cast(), Layout::new::<Node<K, V>>()) };
    }
}
