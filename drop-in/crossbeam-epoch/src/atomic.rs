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

/// The error of a failed exchange.
pub struct CompareExchangeError<'g, T: ?Sized + Pointable, P: Pointer<T>> {
    /// The pointer found in the [`Atomic`] instead of the expected one.
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
/// Threads find the object through a [`Guard`], and it stays at least until the guard ends. An
/// `Atomic` does not own the object: dropping it does not free that. All zero bytes are a valid
/// `Atomic`, a null pointer.
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
    /// Creates an object from `init` and points to it.
    pub fn init(init: T::Init) -> Atomic<T> {
        Self::from(Owned::init(init))
    }

    fn of(word: usize) -> Self {
        Self {
            data: AtomicUsize::new(word),
            _marker: PhantomData,
        }
    }

    /// Returns a null pointer.
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

    /// Loads the pointer, and orders reads through it after the load. Cheaper than `Acquire` on
    /// most processors.
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

    /// Stores a pointer and returns the previous one.
    #[inline]
    pub fn swap<'g, P: Pointer<T>>(&self, new: P, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        Shared::of(self.data.swap(new.into_usize(), ord))
    }

    /// Stores `new` if the pointer equals `current`, including the tag, and returns the stored
    /// pointer.
    ///
    /// # Errors
    ///
    /// If it is another pointer. Returns that with `new`.
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
        // SAFETY: `new` is the word of a pointer of that type, which was not stored.
        exchanged(exchange, new, || unsafe { P::from_usize(new) })
    }

    /// Like [`Atomic::compare_exchange`], but may fail even if the pointer equals `current`.
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

    /// Stores the result of `func` for the pointer; calls it again if another thread stores first.
    /// Returns the previous pointer.
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

    /// Clears the tag bits that are not set in `val`. Returns the previous pointer.
    #[inline]
    pub fn fetch_and<'g>(&self, val: usize, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        Shared::of(self.data.fetch_and(val | !tag::mask::<T>(), ord))
    }

    /// Sets the tag bits that are set in `val`. Returns the previous pointer.
    #[inline]
    pub fn fetch_or<'g>(&self, val: usize, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        Shared::of(self.data.fetch_or(tag::tag::<T>(val), ord))
    }

    /// Flips the tag bits that are set in `val`. Returns the previous pointer.
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

    /// Loads the word for printing.
    fn snapshot(&self) -> usize {
        // Needs no partner: nothing is read through it.
        self.data.load(Ordering::SeqCst)
    }
}

/// Returns the result of an exchange for the word `new`; `back` is its pointer.
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
    /// Prints the address without the tag. Does not read the object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = tag::address::<T>(self.snapshot());
        fmt::Pointer::fmt(&ptr::without_provenance::<()>(address), f)
    }
}

impl<T: ?Sized + Pointable> Clone for Atomic<T> {
    /// Copies the pointer with a Relaxed load: following it needs an ordering from elsewhere.
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
