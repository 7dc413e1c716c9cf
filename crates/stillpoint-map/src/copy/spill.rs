//! Entries for which their bucket has no slot: an array behind it, which is never changed, only
//! replaced by another one. The old one is freed after a grace period.

use crate::slot::fits;
use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    mem::forget,
    ptr::NonNull,
    slice,
};
use stillpoint_platform::sync::UnsafeCell;

/// An entry with its tag.
#[derive(Clone, Copy, Debug)]
pub struct Tagged<K, V> {
    pub key: K,
    pub value: V,
    pub tag: u8,
}

/// What stands before the entries.
#[repr(C)]
pub struct Node<K, V> {
    /// In a cell, so that models see whether a reader may be at the array when it is freed.
    len: UnsafeCell<usize>,
    entries: [Tagged<K, V>; 0],
}

/// An array of a bucket.
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

impl<K, V> Spill<K, V> {
    pub fn from_pointer(pointer: *mut Node<K, V>) -> Option<Self> {
        NonNull::new(pointer).map(Self)
    }

    pub fn into_pointer(self) -> *mut Node<K, V> {
        self.0.as_ptr()
    }

    fn layout_of(len: usize) -> Option<Layout> {
        let entries = Layout::array::<Tagged<K, V>>(len).ok()?;
        Some(Layout::new::<Node<K, V>>().extend(entries).ok()?.0)
    }

    /// How many entries there are.
    ///
    /// # Safety
    ///
    /// As for [`Spill::entries`].
    unsafe fn len(self) -> usize {
        // SAFETY: the caller's promise; written by `new`, and not changed after that.
        unsafe { (*self.0.as_ptr()).len.with(|len| *len) }
    }

    /// The entries.
    ///
    /// # Safety
    ///
    /// For as long as `'t` it is not freed: found in a section that is still open, or with no other
    /// thread at the map.
    pub unsafe fn entries<'t>(self) -> &'t [Tagged<K, V>] {
        let node = self.0.as_ptr();
        // SAFETY: the caller's promise; `new` has written so many behind the head.
        unsafe {
            let first = (&raw const (*node).entries).cast::<Tagged<K, V>>();
            slice::from_raw_parts(first, self.len())
        }
    }

    /// The block that it is.
    ///
    /// # Safety
    ///
    /// As for [`Spill::entries`].
    pub unsafe fn block(self) -> (NonNull<u8>, Layout) {
        // SAFETY: the caller's promise.
        let len = unsafe { self.len() };
        let layout = Self::layout_of(len).expect("it was allocated with that");
        (self.0.cast(), layout)
    }

    /// The caller alone has it from now on: for a model, that is a write.
    ///
    /// # Safety
    ///
    /// As for [`Spill::free`].
    pub unsafe fn end(self) {
        // SAFETY: the caller's promise.
        unsafe { (*self.0.as_ptr()).len.with_mut(|_| ()) };
    }

    /// Frees it.
    ///
    /// # Safety
    ///
    /// No other thread uses it, nor the caller any more.
    pub unsafe fn free(self) {
        // SAFETY: the caller's promise; allocated with that layout. Entries need no drop.
        unsafe {
            let (block, layout) = self.block();
            self.end();
            dealloc(block.as_ptr(), layout);
        }
    }
}

/// An array that no bucket has yet.
#[derive(Debug)]
pub struct NewSpill<K, V>(Spill<K, V>);

impl<K: Copy, V: Copy> NewSpill<K, V> {
    /// Makes one of `len` entries, the first ones of `entries`. Ends the process without memory at
    /// addresses of 48 bits.
    pub fn new(len: usize, entries: impl Iterator<Item = Tagged<K, V>>) -> Self {
        let layout = Spill::<K, V>::layout_of(len).expect("as many as a map has");
        // SAFETY: not of size 0: there is the length.
        let node = NonNull::new(unsafe { alloc(layout) }).map(NonNull::cast::<Node<K, V>>);
        let Some(node) = node.filter(|&node| fits(node)) else {
            handle_alloc_error(layout);
        };
        let first = node.as_ptr();
        let mut written = 0;
        // SAFETY: room for the length and so many entries.
        unsafe {
            let slots = (&raw mut (*first).entries).cast::<Tagged<K, V>>();
            for entry in entries.take(len) {
                slots.add(written).write(entry);
                written += 1;
            }
            assert_eq!(written, len, "there are as many as were counted");
            (&raw mut (*first).len).write(UnsafeCell::new(len));
        }
        Self(Spill(node))
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
        // SAFETY: no other thread knows it.
        unsafe { self.0.free() };
    }
}
