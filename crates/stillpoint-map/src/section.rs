//! Proof types. A function that needs an open section, or an entry that is not freed, takes one of these and
//! can be safe.

use std::{fmt, marker::PhantomData, ops::Deref, ptr::NonNull};

/// A map, or a part of one, in a section of the map's domain.
///
/// While there is a reference to it, such a section is open, or the caller is alone with the map. So what
/// was found through the reference is not freed before the reference ends.
#[repr(transparent)]
pub struct Pinned<T>(T);

impl<T> Pinned<T> {
    /// # Safety
    ///
    /// While the result is used, a section of the map's domain is open, or the caller is alone with the map.
    #[inline(always)]
    pub unsafe fn of(part: &T) -> &Self {
        // SAFETY: it is nothing but the part, by `repr(transparent)`.
        unsafe { &*std::ptr::from_ref(part).cast() }
    }

    /// Returns this for walks, which free nothing of it.
    #[inline(always)]
    pub(crate) fn live(&self) -> Live<'_, Self> {
        Live {
            pointer: self.into(),
            stays: PhantomData,
        }
    }
}

impl<T> Deref for Pinned<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The core of a map in a section of its domain, and the world, which frees what changes leave behind. Changes
/// are methods of this: so none frees into another domain.
pub struct Writer<'g, C, W> {
    core: &'g Pinned<C>,
    world: W,
}

impl<C, W: Copy> Clone for Writer<'_, C, W> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<C, W: Copy> Copy for Writer<'_, C, W> {}

impl<'g, C, W: Copy> Writer<'g, C, W> {
    /// # Safety
    ///
    /// The world is that of the map: it frees what it gets after a grace period of the map's domain.
    #[inline(always)]
    pub unsafe fn of(core: &'g Pinned<C>, world: W) -> Self {
        Self { core, world }
    }

    #[inline(always)]
    pub fn core(self) -> &'g Pinned<C> {
        self.core
    }

    #[inline(always)]
    pub fn world(self) -> W {
        self.world
    }
}

impl<C, W> Deref for Writer<'_, C, W> {
    type Target = Pinned<C>;

    #[inline(always)]
    fn deref(&self) -> &Pinned<C> {
        self.core
    }
}

/// A bucket that no other thread of this process reaches: of a table that is being made, or is at its end.
#[derive(Clone, Copy, Debug)]
pub struct Unshared<B>(B);

impl<B: Copy> Unshared<B> {
    /// # Safety
    ///
    /// No other thread of this process reaches it as long as the result is used.
    #[inline(always)]
    pub unsafe fn of(bucket: B) -> Self {
        Self(bucket)
    }

    #[inline(always)]
    pub fn get(self) -> B {
        self.0
    }
}

/// A pointer to memory that stays until `'g` ends, and in which only atomics change. But an exclusive borrower of
/// the map may change it while no reference made of this is used, and free it; it is not used after the free. Not a
/// reference: memory must be freed through the pointer it was allocated with.
#[derive(Debug)]
#[repr(transparent)]
pub struct Live<'g, T> {
    pointer: NonNull<T>,
    stays: PhantomData<&'g T>,
}

impl<T> Clone for Live<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Live<'_, T> {}

impl<T> PartialEq for Live<'_, T> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.pointer == other.pointer
    }
}

impl<T> Eq for Live<'_, T> {}

impl<'g, T> Live<'g, T> {
    /// # Safety
    ///
    /// It stays for as long as `'g`, and is changed by atomics alone. But an exclusive borrower of the map may
    /// change it while no reference made of the result is used, and free it; the result is not used after the
    /// free.
    #[inline(always)]
    pub unsafe fn of(pointer: NonNull<T>) -> Self {
        Self {
            pointer,
            stays: PhantomData,
        }
    }

    /// Returns the pointer, as it was allocated.
    #[inline(always)]
    pub fn pointer(self) -> NonNull<T> {
        self.pointer
    }

    /// Returns what it points to.
    #[inline(always)]
    pub fn get(self) -> &'g T {
        // SAFETY: that of `of`.
        unsafe { self.pointer.as_ref() }
    }
}

impl<T> Deref for Live<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.get()
    }
}
