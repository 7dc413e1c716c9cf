//! The types that an [`Atomic`](crate::Atomic) can point to.

use crate::deferred::Frees;
use std::{
    alloc::{self, Layout},
    mem::MaybeUninit,
    ptr, slice,
};

/// Types behind a pointer of one word, which has room for a tag.
///
/// Each `Sized` type is one, behind the pointer of a box; and `[MaybeUninit<T>]`, which stores its
/// length in its allocation, so that one word suffices. An implementation creates, lends and frees
/// objects of its type by that word.
pub trait Pointable {
    /// Alignment of the pointers. The bits below hold the tag.
    const ALIGN: usize;

    /// The value that an object is created from.
    type Init;

    /// What is known of freeing one. Not the original's, and not to be named.
    #[doc(hidden)]
    const FREES: Frees = Frees::Unknown;

    /// Creates an object from `init` and returns its pointer.
    ///
    /// # Safety
    ///
    /// The result is a multiple of [`Pointable::ALIGN`].
    unsafe fn init(init: Self::Init) -> usize;

    /// Lends an object.
    ///
    /// # Safety
    ///
    /// `ptr` came from [`Pointable::init`], the object has not been [dropped](Pointable::drop), and
    /// is not lent mutably meanwhile.
    unsafe fn deref<'a>(ptr: usize) -> &'a Self;

    /// Lends an object mutably.
    ///
    /// # Safety
    ///
    /// As for [`Pointable::deref`], and it is not lent otherwise meanwhile.
    unsafe fn deref_mut<'a>(ptr: usize) -> &'a mut Self;

    /// Frees an object.
    ///
    /// # Safety
    ///
    /// As for [`Pointable::deref_mut`], and it is not lent nor freed afterwards.
    unsafe fn drop(ptr: usize);
}

impl<T> Pointable for T {
    const ALIGN: usize = align_of::<T>();

    type Init = T;

    const FREES: Frees = Frees::boxed::<T>();

    #[inline]
    unsafe fn init(init: Self::Init) -> usize {
        Box::into_raw(Box::new(init)).expose_provenance()
    }

    #[inline]
    unsafe fn deref<'a>(ptr: usize) -> &'a Self {
        // SAFETY: the caller's promise; the pointer is that of a box.
        unsafe { &*ptr::with_exposed_provenance(ptr) }
    }

    #[inline]
    unsafe fn deref_mut<'a>(ptr: usize) -> &'a mut Self {
        // SAFETY: as in `deref`.
        unsafe { &mut *ptr::with_exposed_provenance_mut(ptr) }
    }

    #[inline]
    unsafe fn drop(ptr: usize) {
        // SAFETY: as in `deref`.
        drop(unsafe { Box::from_raw(ptr::with_exposed_provenance_mut::<T>(ptr)) });
    }
}

/// The header before the elements.
#[repr(C)]
struct Header<T> {
    len: usize,
    elements: [MaybeUninit<T>; 0],
}

/// Returns the layout of a header with `len` elements, or `None` if it exceeds the address space.
fn layout<T>(len: usize) -> Option<Layout> {
    let elements = Layout::array::<MaybeUninit<T>>(len).ok()?;
    let (both, _) = Layout::new::<Header<T>>().extend(elements).ok()?;
    Some(both.pad_to_align())
}

/// Returns the elements behind the header at `ptr`.
///
/// # Safety
///
/// As for [`Pointable::deref`].
unsafe fn elements<T>(ptr: usize) -> *mut [MaybeUninit<T>] {
    let header: *mut Header<T> = ptr::with_exposed_provenance_mut(ptr);
    // SAFETY: the caller's promise: `init` has written the header.
    unsafe { ptr::slice_from_raw_parts_mut((&raw mut (*header).elements).cast(), (*header).len) }
}

impl<T> Pointable for [MaybeUninit<T>] {
    const ALIGN: usize = align_of::<Header<T>>();

    type Init = usize;

    unsafe fn init(len: Self::Init) -> usize {
        let layout = layout::<T>(len).expect("an array that fits the address space");
        // SAFETY: the layout has the header's length at least.
        let header = unsafe { alloc::alloc(layout) }.cast::<Header<T>>();
        if header.is_null() {
            alloc::handle_alloc_error(layout);
        }
        // SAFETY: the memory is ours and of that layout.
        unsafe { (&raw mut (*header).len).write(len) };
        header.expose_provenance()
    }

    unsafe fn deref<'a>(ptr: usize) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe {
            let elements = elements::<T>(ptr);
            slice::from_raw_parts(elements.cast(), elements.len())
        }
    }

    unsafe fn deref_mut<'a>(ptr: usize) -> &'a mut Self {
        // SAFETY: the caller's promise.
        unsafe { &mut *elements::<T>(ptr) }
    }

    unsafe fn drop(ptr: usize) {
        // SAFETY: the caller's promise.
        let len = unsafe { elements::<T>(ptr) }.len();
        let layout = layout::<T>(len).expect("`init` has made it");
        // SAFETY: `init` has allocated it with this layout.
        unsafe { alloc::dealloc(ptr::with_exposed_provenance_mut(ptr), layout) };
    }
}

/// An [`Owned`](crate::Owned) or a [`Shared`](crate::Shared): a word with an address and a tag.
pub trait Pointer<T: ?Sized + Pointable> {
    /// Returns the word.
    fn into_usize(self) -> usize;

    /// Returns the pointer of a word.
    ///
    /// # Safety
    ///
    /// `data` came from [`Pointer::into_usize`], and an owned pointer is made of it once.
    unsafe fn from_usize(data: usize) -> Self;
}
