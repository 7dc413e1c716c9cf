//! A pointer that threads share.

#[expect(deprecated, reason = "the original has them still")]
use crate::{CompareAndSetError, CompareAndSetOrdering};
use crate::{Guard, Owned, Pointable, Pointer, Shared, tag};
use crossbeam_utils::atomic::AtomicConsume;
use std::{
    fmt,
    marker::PhantomData,
    mem, ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

/// What a failed exchange gives back.
pub struct CompareExchangeError<'g, T: ?Sized + Pointable, P: Pointer<T>> {
    /// What the [`Atomic`] had in place of what was expected.
    pub current: Shared<'g, T>,

    /// The pointer that was not stored.
    pub new: P,
}

impl<T, P: Pointer<T> + fmt::Debug> fmt::Debug for CompareExchangeError<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { current, new } = self;
        f.debug_struct("CompareExchangeError")
            .field("current", current)
            .field("new", new)
            .finish()
    }
}

/// A pointer, with a tag in its unused low bits, that threads load and exchange.
///
/// What it points to is found through a [`Guard`] and stays at least until that ends. It does not
/// own it: dropping an `Atomic` leaves the object alone. All bytes 0 is a valid one, and null.
///
/// ```
/// use crossbeam_epoch::{self as epoch, Atomic, Owned};
/// use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
///
/// let shared = Atomic::new(1);
/// let guard = &epoch::pin();
/// let old = shared.load(Acquire, guard);
/// if shared.compare_exchange(old, Owned::new(2), AcqRel, Relaxed, guard).is_ok() {
///     // SAFETY: no thread finds the old object any more.
///     unsafe { guard.defer_destroy(old) };
/// }
/// // SAFETY: the pointer is not null, and the object stays until the guard ends.
/// assert_eq!(unsafe { shared.load(Acquire, guard).deref() }, &2);
/// # // SAFETY: no other thread knows it.
/// # drop(unsafe { shared.into_owned() });
/// ```
pub struct Atomic<T: ?Sized + Pointable> {
    data: AtomicUsize,
    _marker: PhantomData<*mut T>,
}

// SAFETY: it hands out references to `T`, and `T` itself, to any thread.
unsafe impl<T: ?Sized + Pointable + Send + Sync> Send for Atomic<T> {}
// SAFETY: as for Send.
unsafe impl<T: ?Sized + Pointable + Send + Sync> Sync for Atomic<T> {}

impl<T> Atomic<T> {
    /// Allocates `init` and points to it.
    pub fn new(init: T) -> Atomic<T> {
        Self::init(init)
    }
}

impl<T: ?Sized + Pointable> Atomic<T> {
    /// Makes an object of `init` and points to it.
    pub fn init(init: T::Init) -> Atomic<T> {
        Self::from(Owned::init(init))
    }

    fn of(word: usize) -> Self {
        Self {
            data: AtomicUsize::new(word),
            _marker: PhantomData,
        }
    }

    /// A null pointer.
    pub const fn null() -> Atomic<T> {
        Self {
            data: AtomicUsize::new(0),
            _marker: PhantomData,
        }
    }

    /// Loads the pointer.
    ///
    /// # Panics
    ///
    /// If `ord` is `Release` or `AcqRel`.
    #[inline]
    pub fn load<'g>(&self, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        Shared::of(self.data.load(ord))
    }

    /// Loads the pointer, and orders what is read through it after the load, which on most
    /// processors costs less than `Acquire`.
    #[inline]
    pub fn load_consume<'g>(&self, _: &'g Guard) -> Shared<'g, T> {
        Shared::of(self.data.load_consume())
    }

    /// Stores a pointer.
    ///
    /// # Panics
    ///
    /// If `ord` is `Acquire` or `AcqRel`.
    #[inline]
    pub fn store<P: Pointer<T>>(&self, new: P, ord: Ordering) {
        self.data.store(new.into_usize(), ord);
    }

    /// Stores a pointer and returns the one before.
    #[inline]
    pub fn swap<'g, P: Pointer<T>>(&self, new: P, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        Shared::of(self.data.swap(new.into_usize(), ord))
    }

    /// Stores `new` if the pointer is `current`, tag included, and returns what was stored.
    ///
    /// # Errors
    ///
    /// If it is another, which is returned with `new`.
    ///
    /// # Panics
    ///
    /// If `failure` is `Release` or `AcqRel`.
    #[inline]
    pub fn compare_exchange<'g, P>(
        &self,
        current: Shared<'_, T>,
        new: P,
        success: Ordering,
        failure: Ordering,
        _: &'g Guard,
    ) -> Result<Shared<'g, T>, CompareExchangeError<'g, T, P>>
    where
        P: Pointer<T>,
    {
        let new = new.into_usize();
        let exchange = self
            .data
            .compare_exchange(current.into_usize(), new, success, failure);
        // SAFETY: `new` is a word of such a pointer, which was not stored.
        exchanged(exchange, new, || unsafe { P::from_usize(new) })
    }

    /// As [`Atomic::compare_exchange`], but it may fail where the pointer is `current`.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Panics
    ///
    /// As there.
    #[inline]
    pub fn compare_exchange_weak<'g, P>(
        &self,
        current: Shared<'_, T>,
        new: P,
        success: Ordering,
        failure: Ordering,
        _: &'g Guard,
    ) -> Result<Shared<'g, T>, CompareExchangeError<'g, T, P>>
    where
        P: Pointer<T>,
    {
        let new = new.into_usize();
        let exchange = self
            .data
            .compare_exchange_weak(current.into_usize(), new, success, failure);
        // SAFETY: as in `compare_exchange`.
        exchanged(exchange, new, || unsafe { P::from_usize(new) })
    }

    /// Stores what `func` makes of the pointer, and calls it again while other threads are faster.
    /// Returns the pointer before.
    ///
    /// # Errors
    ///
    /// The pointer for which `func` returned `None`.
    ///
    /// # Panics
    ///
    /// If `fail_order` is `Release` or `AcqRel`.
    pub fn fetch_update<'g, F>(
        &self,
        set_order: Ordering,
        fail_order: Ordering,
        guard: &'g Guard,
        mut func: F,
    ) -> Result<Shared<'g, T>, Shared<'g, T>>
    where
        F: FnMut(Shared<'g, T>) -> Option<Shared<'g, T>>,
    {
        let mut seen = self.load(fail_order, guard);
        loop {
            let Some(new) = func(seen) else {
                return Err(seen);
            };
            match self.compare_exchange_weak(seen, new, set_order, fail_order, guard) {
                Ok(_) => return Ok(seen),
                Err(error) => seen = error.current,
            }
        }
    }

    /// [`Atomic::compare_exchange`] with one ordering or a pair.
    ///
    /// # Errors
    ///
    /// As there.
    #[expect(deprecated, reason = "it is deprecated itself")]
    #[deprecated(note = "`compare_exchange` takes two orderings")]
    pub fn compare_and_set<'g, O, P>(
        &self,
        current: Shared<'_, T>,
        new: P,
        ord: O,
        guard: &'g Guard,
    ) -> Result<Shared<'g, T>, CompareAndSetError<'g, T, P>>
    where
        O: CompareAndSetOrdering,
        P: Pointer<T>,
    {
        self.compare_exchange(current, new, ord.success(), ord.failure(), guard)
    }

    /// [`Atomic::compare_exchange_weak`] with one ordering or a pair.
    ///
    /// # Errors
    ///
    /// As there.
    #[expect(deprecated, reason = "it is deprecated itself")]
    #[deprecated(note = "`compare_exchange_weak` takes two orderings")]
    pub fn compare_and_set_weak<'g, O, P>(
        &self,
        current: Shared<'_, T>,
        new: P,
        ord: O,
        guard: &'g Guard,
    ) -> Result<Shared<'g, T>, CompareAndSetError<'g, T, P>>
    where
        O: CompareAndSetOrdering,
        P: Pointer<T>,
    {
        self.compare_exchange_weak(current, new, ord.success(), ord.failure(), guard)
    }

    /// Clears the bits of the tag that `val` does not have. Returns the pointer before.
    #[inline]
    pub fn fetch_and<'g>(&self, val: usize, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        Shared::of(self.data.fetch_and(val | !tag::mask::<T>(), ord))
    }

    /// Sets the bits of the tag that `val` has. Returns the pointer before.
    #[inline]
    pub fn fetch_or<'g>(&self, val: usize, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        Shared::of(self.data.fetch_or(tag::tag::<T>(val), ord))
    }

    /// Flips the bits of the tag that `val` has. Returns the pointer before.
    #[inline]
    pub fn fetch_xor<'g>(&self, val: usize, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        Shared::of(self.data.fetch_xor(tag::tag::<T>(val), ord))
    }

    /// Takes the object.
    ///
    /// # Safety
    ///
    /// The pointer is not null, and no thread uses the object any more.
    pub unsafe fn into_owned(self) -> Owned<T> {
        // SAFETY: the caller's promise.
        unsafe { Owned::from_usize(self.data.into_inner()) }
    }

    /// Takes the object, if there is one.
    ///
    /// # Safety
    ///
    /// No thread uses the object any more.
    pub unsafe fn try_into_owned(self) -> Option<Owned<T>> {
        // SAFETY: the caller's promise.
        unsafe { Shared::of(self.data.into_inner()).try_into_owned() }
    }

    /// For people to look at.
    fn snapshot(&self) -> usize {
        // Needs no partner: nothing is read through it.
        self.data.load(Ordering::SeqCst)
    }
}

/// What an exchange for the word `new` came to; `back` is the pointer of that.
#[inline(always)]
fn exchanged<'g, T: ?Sized + Pointable, P: Pointer<T>>(
    exchange: Result<usize, usize>,
    new: usize,
    back: impl FnOnce() -> P,
) -> Result<Shared<'g, T>, CompareExchangeError<'g, T, P>> {
    match exchange {
        Ok(_) => Ok(Shared::of(new)),
        Err(current) => Err(CompareExchangeError {
            current: Shared::of(current),
            new: back(),
        }),
    }
}

impl<T: ?Sized + Pointable> fmt::Debug for Atomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        tag::fmt::<T>("Atomic", self.snapshot(), f)
    }
}

impl<T: ?Sized + Pointable> fmt::Pointer for Atomic<T> {
    /// The address without the tag. It is not looked at what is there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = tag::address::<T>(self.snapshot());
        fmt::Pointer::fmt(&ptr::without_provenance::<()>(address), f)
    }
}

impl<T: ?Sized + Pointable> Clone for Atomic<T> {
    /// Another pointer to the same object, loaded Relaxed: to follow it takes an order from
    /// elsewhere.
    fn clone(&self) -> Self {
        Self::of(self.data.load(Ordering::Relaxed))
    }
}

impl<T: ?Sized + Pointable> Default for Atomic<T> {
    fn default() -> Self {
        Atomic::null()
    }
}

impl<T: ?Sized + Pointable> From<Owned<T>> for Atomic<T> {
    fn from(owned: Owned<T>) -> Self {
        Self::of(owned.into_usize())
    }
}

impl<T> From<Box<T>> for Atomic<T> {
    fn from(b: Box<T>) -> Self {
        Self::from(Owned::from(b))
    }
}

impl<T> From<T> for Atomic<T> {
    fn from(t: T) -> Self {
        Self::new(t)
    }
}

impl<'g, T: ?Sized + Pointable> From<Shared<'g, T>> for Atomic<T> {
    fn from(ptr: Shared<'g, T>) -> Self {
        Self::of(ptr.into_usize())
    }
}

impl<T> From<*const T> for Atomic<T> {
    fn from(raw: *const T) -> Self {
        Self::of(raw.expose_provenance())
    }
}

const _: () = assert!(mem::size_of::<Atomic<u8>>() == mem::size_of::<usize>());
