//! Entries for which their bucket has no slot: a list behind it.
//!
//! The entry of a node is never changed, and a change of the list takes two new nodes at most, however long
//! it is. It puts a node before the first one, or another one in the place of one, or takes one out; and
//! whatever it does, the list begins with a new node after it, a copy if there is no other. So as long as
//! a bucket has the same first node, the list is the same, for a thread whose section has begun before: no
//! node is freed in it. What has left the list is freed after a grace period. A reader that is there goes on
//! to the nodes that were behind it.
//!
//! A change behind the first node is visible before the new first node is. A fork may remove the thread in
//! between: so a node that was found before a fork is searched for again in the child ([`Found`]).

use crate::slot::fits;
use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    iter,
    mem::forget,
    ptr::{NonNull, null_mut},
};
use stillpoint_platform::{
    fork,
    sync::{AtomicPtr, Ordering, UnsafeCell},
};

/// An entry with its tag.
#[derive(Clone, Copy, Debug)]
pub struct Tagged<K, V> {
    pub key: K,
    pub value: V,
    pub tag: u8,
}

/// An entry of a list.
pub struct Node<K, V> {
    next: AtomicPtr<Node<K, V>>,
    /// In a cell, so that models see whether a reader may be at the node when it is freed.
    entry: UnsafeCell<Tagged<K, V>>,
}

/// A node, and the list that begins with it.
#[derive(Debug)]
pub struct Spill<K, V>(NonNull<Node<K, V>>);

impl<K, V> Clone for Spill<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Spill<K, V> {}

impl<K, V> PartialEq for Spill<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K, V> Eq for Spill<K, V> {}

#[cfg(all(test, not(stillpoint_loom)))]
thread_local! {
    /// How often this thread has gone from a node to the next one.
    pub static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl<K, V> Spill<K, V> {
    pub fn from_pointer(pointer: *mut Node<K, V>) -> Option<Self> {
        NonNull::new(pointer).map(Self)
    }

    pub fn into_pointer(self) -> *mut Node<K, V> {
        self.0.as_ptr()
    }

    /// The node behind this one.
    ///
    /// # Safety
    ///
    /// The node is not freed: it was found in a section that is still open, or no other thread is at the
    /// map.
    pub unsafe fn next(self) -> Option<Self> {
        #[cfg(all(test, not(stillpoint_loom)))]
        STEPS.set(STEPS.get() + 1);
        // SAFETY: the caller's promise.
        let next = unsafe { &(*self.0.as_ptr()).next };
        // Acquire, pairs with `set_next`: the node is complete.
        Self::from_pointer(next.load(Ordering::Acquire))
    }

    /// Makes another node the next one.
    ///
    /// # Safety
    ///
    /// As for [`Spill::next`], and the caller has the bucket's lock.
    pub unsafe fn set_next(self, next: Option<Self>) {
        // SAFETY: the caller's promise.
        let place = unsafe { &(*self.0.as_ptr()).next };
        // Release, pairs with `next`: the node is complete.
        place.store(
            next.map_or(null_mut(), Self::into_pointer),
            Ordering::Release,
        );
    }

    /// The nodes from this one on. Each is left before it is returned: so the caller may free it.
    ///
    /// # Safety
    ///
    /// As for [`Spill::next`], as long as the iterator is used.
    pub unsafe fn nodes(self) -> impl Iterator<Item = Self> {
        let mut rest = Some(self);
        iter::from_fn(move || {
            let node = rest?;
            // SAFETY: the caller's promise.
            rest = unsafe { node.next() };
            Some(node)
        })
    }

    /// The block that the node is.
    pub fn block(self) -> (NonNull<u8>, Layout) {
        (self.0.cast(), Layout::new::<Node<K, V>>())
    }

    /// The caller alone has the node from now on: for a model, that is a write.
    ///
    /// # Safety
    ///
    /// As for [`Spill::free`].
    pub unsafe fn end(self) {
        // SAFETY: the caller's promise.
        unsafe { (*self.0.as_ptr()).entry.with_mut(|_| ()) };
    }

    /// Frees the node, and not those behind it.
    ///
    /// # Safety
    ///
    /// No other thread uses it, nor the caller any more.
    pub unsafe fn free(self) {
        // SAFETY: the caller's promise; allocated with that layout. The entry needs no drop; what the
        // model's atomics own does.
        unsafe {
            self.end();
            if cfg!(stillpoint_loom) {
                self.0.drop_in_place();
            }
            let (block, layout) = self.block();
            dealloc(block.as_ptr(), layout);
        }
    }
}

/// A node of a list, and the one before it unless it is the first. In the process that has found it, that is
/// so for as long as the list begins with the same node.
#[derive(Debug)]
pub struct Found<K, V> {
    pub node: Spill<K, V>,
    pub before: Option<Spill<K, V>>,
    /// The generation of that process.
    pub process: u64,
}

impl<K, V> Clone for Found<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Found<K, V> {}

impl<K, V> Found<K, V> {
    /// Returns whether another process has found it, whose child this one is.
    pub fn is_inherited(self) -> bool {
        self.process != fork::process().generation()
    }

    /// Returns whether the new first node is a copy of a node that stays, once this one is replaced, or taken
    /// out.
    ///
    /// # Safety
    ///
    /// As for [`Spill::next`].
    pub unsafe fn needs_copy(self, is_replaced: bool) -> bool {
        // SAFETY: the caller's promise.
        self.before.is_some() || !is_replaced && unsafe { self.node.next() }.is_some()
    }
}

impl<K: Copy, V: Copy> Spill<K, V> {
    /// A copy of the node's entry.
    ///
    /// # Safety
    ///
    /// As for [`Spill::next`].
    #[inline]
    pub unsafe fn entry(self) -> Tagged<K, V> {
        // SAFETY: the caller's promise; written before another thread could find it, and not after that.
        unsafe { (*self.0.as_ptr()).entry.with(|entry| *entry) }
    }

    /// The key of the node's entry, and its tag.
    ///
    /// # Safety
    ///
    /// As for [`Spill::next`].
    #[inline]
    pub unsafe fn key(self) -> (K, u8) {
        // SAFETY: as in `entry`.
        unsafe {
            (*self.0.as_ptr())
                .entry
                .with(|entry| ((*entry).key, (*entry).tag))
        }
    }

    /// Where the key and the value of the node's entry are.
    ///
    /// # Safety
    ///
    /// As for [`Spill::next`].
    #[cfg(not(stillpoint_loom))]
    pub unsafe fn halves(self) -> (*const K, *mut V) {
        // SAFETY: the caller's promise; no reference to the entry is made.
        unsafe {
            (*self.0.as_ptr())
                .entry
                .with_mut(|entry| (&raw const (*entry).key, &raw mut (*entry).value))
        }
    }

    /// The first node whose entry has that tag and a key that `is_it` accepts.
    ///
    /// # Safety
    ///
    /// As for [`Spill::next`].
    pub unsafe fn find(self, tag: u8, mut is_it: impl FnMut(&K) -> bool) -> Option<Self> {
        // SAFETY: the caller's promise.
        unsafe { self.nodes() }.find(|node| {
            // SAFETY: the same.
            let entry = unsafe { node.entry() };
            entry.tag == tag && is_it(&entry.key)
        })
    }

    /// As [`Spill::find`], for a change.
    ///
    /// # Safety
    ///
    /// As for [`Spill::next`].
    pub unsafe fn find_to_change(
        self,
        tag: u8,
        mut is_it: impl FnMut(&K) -> bool,
    ) -> Option<Found<K, V>> {
        let (process, mut before) = (fork::process().generation(), None);
        // SAFETY: the caller's promise.
        let node = unsafe { self.nodes() }.find(|node| {
            // SAFETY: the same.
            let entry = unsafe { node.entry() };
            let found = entry.tag == tag && is_it(&entry.key);
            if !found {
                before = Some(*node);
            }
            found
        })?;
        Some(Found {
            node,
            before,
            process,
        })
    }
}

/// The entries of a list.
///
/// # Safety
///
/// As for [`Spill::next`], as long as the iterator is used.
pub unsafe fn entries<K: Copy, V: Copy>(
    list: Option<Spill<K, V>>,
) -> impl Iterator<Item = Tagged<K, V>> {
    // SAFETY: the caller's promise.
    let nodes = list.into_iter().flat_map(|first| unsafe { first.nodes() });
    // SAFETY: the same.
    nodes.map(|node| unsafe { node.entry() })
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
    pub fn fill(self, entry: Tagged<K, V>, next: Option<Spill<K, V>>) -> Spill<K, V> {
        let node = self.0;
        forget(self);
        let next = AtomicPtr::new(next.map_or(null_mut(), Spill::into_pointer));
        let entry = UnsafeCell::new(entry);
        // SAFETY: allocated for one, and no other thread knows it.
        unsafe { node.write(Node { next, entry }) };
        Spill(node)
    }
}

impl<K, V> Drop for NewNode<K, V> {
    fn drop(&mut self) {
        // SAFETY: allocated with that layout, and no list has it.
        unsafe { dealloc(self.0.as_ptr().cast(), Layout::new::<Node<K, V>>()) };
    }
}

/// A list that no bucket has yet.
#[derive(Debug)]
pub struct NewSpill<K, V>(Spill<K, V>);

impl<K: Copy, V: Copy> NewSpill<K, V> {
    /// Makes a list of these entries; `None` if there are none. Ends the process without memory.
    pub fn new(entries: impl Iterator<Item = Tagged<K, V>>) -> Option<Self> {
        entries.fold(None, |list: Option<Self>, entry| {
            let node = NewNode::new();
            Some(Self(node.fill(entry, list.map(Self::publish))))
        })
    }

    /// A bucket has it now.
    pub fn publish(self) -> Spill<K, V> {
        let spill = self.0;
        forget(self);
        spill
    }
}

impl<K, V> Drop for NewSpill<K, V> {
    fn drop(&mut self) {
        // SAFETY: no other thread knows the nodes.
        unsafe { self.0.nodes().for_each(|node| node.free()) };
    }
}
