//! A pointer that owns its object.

use crate::{Guard, Pointable, Pointer, Shared, tag};
use std::{
    borrow::{Borrow, BorrowMut},
    fmt,
    marker::PhantomData,
    mem,
    ops::{Deref, DerefMut},
    ptr,
};

/// A box with a tag: it owns its object, and frees it when it is dropped.
pub struct Owned<T: ?Sized + Pointable> {
    /// The address, never null, and the tag.
    data: usize,
    _marker: PhantomData<Box<T>>,
}

impl<T: ?Sized + Pointable> Pointer<T> for Owned<T> {
    #[inline]
    fn into_usize(self) -> usize {
        let data = self.data;
        mem::forget(self);
        data
    }

    #[inline]
    unsafe fn from_usize(data: usize) -> Self {
        debug_assert_ne!(data, 0, "an `Owned` is not null");
        Owned {
            data,
            _marker: PhantomData,
        }
    }
}

impl<T> Owned<T> {
    /// Takes over the box at `raw`.
    ///
    /// # Panics
    ///
    /// If the pointer is not aligned.
    ///
    /// # Safety
    ///
    /// `raw` came from [`Box::into_raw`], and is used by nothing else.
    pub unsafe fn from_raw(raw: *mut T) -> Owned<T> {
        // SAFETY: the caller's promise.
        unsafe { Self::from_usize(tag::aligned::<T>(raw.expose_provenance())) }
    }

    /// Returns the box without the tag.
    pub fn into_box(self) -> Box<T> {
        let address = tag::address::<T>(self.into_usize());
        // SAFETY: of a box, which we owned.
        unsafe { Box::from_raw(ptr::with_exposed_provenance_mut(address)) }
    }

    /// Allocates `init`.
    pub fn new(init: T) -> Owned<T> {
        Self::init(init)
    }
}

impl<T: ?Sized + Pointable> Owned<T> {
    /// Creates an object from `init`.
    pub fn init(init: T::Init) -> Owned<T> {
        // SAFETY: a new object, which is ours.
        unsafe { Self::from_usize(T::init(init)) }
    }

    /// Gives up the object: other threads may find it, and the one that unlinks it frees it.
    pub fn into_shared<'g>(self, _: &'g Guard) -> Shared<'g, T> {
        Shared::of(self.into_usize())
    }

    /// Returns the tag.
    pub fn tag(&self) -> usize {
        tag::tag::<T>(self.data)
    }

    /// Returns the same box with another tag, cut to the bits that fit.
    pub fn with_tag(self, tag: usize) -> Owned<T> {
        let word = tag::with_tag::<T>(self.into_usize(), tag);
        // SAFETY: the same address.
        unsafe { Self::from_usize(word) }
    }

    fn address(&self) -> usize {
        tag::address::<T>(self.data)
    }
}

impl<T: ?Sized + Pointable> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: ours, and not used afterwards.
        unsafe { T::drop(self.address()) };
    }
}

impl<T: ?Sized + Pointable> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        tag::fmt::<T>("Owned", self.data, f)
    }
}

impl<T: Clone> Clone for Owned<T> {
    fn clone(&self) -> Self {
        Owned::new((**self).clone()).with_tag(self.tag())
    }
}

impl<T: ?Sized + Pointable> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the object is ours, and is borrowed no longer than `self`.
        unsafe { T::deref(self.address()) }
    }
}

impl<T: ?Sized + Pointable> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { T::deref_mut(self.address()) }
    }
}

impl<T> From<T> for Owned<T> {
    fn from(t: T) -> Self {
        Owned::new(t)
    }
}

impl<T> From<Box<T>> for Owned<T> {
    fn from(b: Box<T>) -> Self {
        // SAFETY: of a box, which is ours.
        unsafe { Self::from_raw(Box::into_raw(b)) }
    }
}

impl<T: ?Sized + Pointable> Borrow<T> for Owned<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: ?Sized + Pointable> BorrowMut<T> for Owned<T> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized + Pointable> AsRef<T> for Owned<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized + Pointable> AsMut<T> for Owned<T> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}
