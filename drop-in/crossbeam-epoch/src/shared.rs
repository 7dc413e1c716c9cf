//! A pointer that was found through a guard.

use crate::{Owned, Pointable, Pointer, tag};
use std::{cmp, fmt, marker::PhantomData, ptr};

/// A pointer that was loaded through a [`Guard`](crate::Guard), valid until the guard ends.
/// Comparisons include the tag.
pub struct Shared<'g, T: 'g + ?Sized + Pointable> {
    data: usize,
    _marker: PhantomData<(&'g (), *const T)>,
}

impl<T: ?Sized + Pointable> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized + Pointable> Copy for Shared<'_, T> {}

impl<T: ?Sized + Pointable> Pointer<T> for Shared<'_, T> {
    #[inline]
    fn into_usize(self) -> usize {
        self.data
    }

    #[inline]
    unsafe fn from_usize(data: usize) -> Self {
        Self::of(data)
    }
}

impl<'g, T> Shared<'g, T> {
    /// Returns the address without the tag.
    pub fn as_raw(&self) -> *const T {
        ptr::with_exposed_provenance(self.address())
    }
}

impl<'g, T: ?Sized + Pointable> Shared<'g, T> {
    #[inline(always)]
    pub(crate) const fn of(data: usize) -> Self {
        Shared {
            data,
            _marker: PhantomData,
        }
    }

    /// Returns a null pointer.
    pub const fn null() -> Shared<'g, T> {
        Self::of(0)
    }

    /// Returns whether the address is null, whatever the tag.
    pub fn is_null(&self) -> bool {
        self.address() == 0
    }

    /// Lends the object.
    ///
    /// # Safety
    ///
    /// The pointer is not null, the object was published before it was loaded, by release and
    /// acquire, and is not lent mutably meanwhile.
    pub unsafe fn deref(&self) -> &'g T {
        // SAFETY: the caller's promise; a guard keeps the object.
        unsafe { T::deref(self.address()) }
    }

    /// Lends the object mutably.
    ///
    /// # Safety
    ///
    /// As for [`Shared::deref`], and no thread, nor another reference of this one, uses the object
    /// meanwhile.
    pub unsafe fn deref_mut(&mut self) -> &'g mut T {
        // SAFETY: the caller's promise; a guard keeps the object.
        unsafe { T::deref_mut(self.address()) }
    }

    /// Lends the object, if the pointer is not null.
    ///
    /// # Safety
    ///
    /// The conditions of [`Shared::deref`] hold, but the pointer may be null.
    pub unsafe fn as_ref(&self) -> Option<&'g T> {
        // SAFETY: the caller's promise.
        (!self.is_null()).then(|| unsafe { self.deref() })
    }

    /// Takes the object.
    ///
    /// # Safety
    ///
    /// The pointer is not null, and no thread uses the object any more.
    pub unsafe fn into_owned(self) -> Owned<T> {
        debug_assert!(!self.is_null(), "an `Owned` is not null");
        // SAFETY: the caller's promise.
        unsafe { Owned::from_usize(self.data) }
    }

    /// Takes the object, if the pointer is not null.
    ///
    /// # Safety
    ///
    /// No thread uses the object any more.
    pub unsafe fn try_into_owned(self) -> Option<Owned<T>> {
        // SAFETY: the caller's promise.
        (!self.is_null()).then(|| unsafe { self.into_owned() })
    }

    /// Returns the tag.
    pub fn tag(&self) -> usize {
        tag::tag::<T>(self.data)
    }

    /// Returns the same address with another tag, cut to the bits that fit.
    pub fn with_tag(&self, tag: usize) -> Shared<'g, T> {
        Self::of(tag::with_tag::<T>(self.data, tag))
    }

    fn address(&self) -> usize {
        tag::address::<T>(self.data)
    }
}

impl<T> From<*const T> for Shared<'_, T> {
    /// # Panics
    ///
    /// If the pointer is not aligned.
    fn from(raw: *const T) -> Self {
        Self::of(tag::aligned::<T>(raw.expose_provenance()))
    }
}

impl<'g, T: ?Sized + Pointable> PartialEq<Shared<'g, T>> for Shared<'g, T> {
    fn eq(&self, other: &Self) -> bool {
        self.data == other.data
    }
}

impl<T: ?Sized + Pointable> Eq for Shared<'_, T> {}

impl<'g, T: ?Sized + Pointable> PartialOrd<Shared<'g, T>> for Shared<'g, T> {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: ?Sized + Pointable> Ord for Shared<'_, T> {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.data.cmp(&other.data)
    }
}

impl<T: ?Sized + Pointable> fmt::Debug for Shared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        tag::fmt::<T>("Shared", self.data, f)
    }
}

impl<T: ?Sized + Pointable> fmt::Pointer for Shared<'_, T> {
    /// Prints the address without the tag. Does not read the object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&ptr::without_provenance::<()>(self.address()), f)
    }
}

impl<T: ?Sized + Pointable> Default for Shared<'_, T> {
    fn default() -> Self {
        Shared::null()
    }
}
