//! Packs a deferred function, or an object to be freed, into two words.

use crate::{Pointable, Shared, tag};
use std::{
    alloc::Layout,
    marker::PhantomData,
    mem::{self, MaybeUninit},
    ptr::{self, NonNull},
};
use stillpoint::{Destructor, Domain, internal::epoch::Reader};

/// Assumed number of bytes that a function frees, which is unknown: a node of a data structure, or
/// a small table.
const UNKNOWN: usize = 1024;

/// How an object of a type is freed.
#[derive(Debug, Clone, Copy)]
pub enum Frees {
    /// Unknown.
    Unknown,
    /// Frees a block, and runs no code.
    Block(Layout),
    /// Runs a destructor, and frees about this many bytes.
    Bytes(usize),
}

impl Frees {
    pub(crate) const fn boxed<T>() -> Self {
        match size_of::<T>() {
            0 => Self::Bytes(0),
            _ if !mem::needs_drop::<T>() => Self::Block(Layout::new::<T>()),
            bytes if bytes < UNKNOWN => Self::Unknown,
            bytes => Self::Bytes(bytes),
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Unknown => UNKNOWN,
            Self::Block(layout) => layout.size(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Calls `f` after a grace period. Returns whether frees are due soon.
///
/// # Safety
///
/// `reader` is the calling thread's, of `domain`, a collector's; `f` may be called on any thread.
#[inline]
pub(crate) unsafe fn call<F: FnOnce() -> R, R>(reader: &Reader, domain: &Domain, f: F) -> bool {
    let (object, how) = if Call::<F, R>::FITS {
        (Call::<F, R>::into_word(f), Call::<F, R>::OF_WORD)
    } else {
        (Box::into_raw(Box::new(f)).cast(), Call::<F, R>::OF_BOX)
    };
    // SAFETY: the caller's promise; `how` calls what `object` has, once.
    unsafe { reader.retire(domain, object, how, true) }
}

/// Frees the object at `ptr` after a grace period. Returns whether frees are due soon.
///
/// # Safety
///
/// `reader` is the calling thread's, of `domain`, a collector's; the object is not null, no thread
/// will find it, nothing else frees it, and it may be freed on any thread.
#[inline]
pub(crate) unsafe fn destroy<T: ?Sized + Pointable>(
    reader: &Reader,
    domain: &Domain,
    ptr: Shared<'_, T>,
) -> bool {
    let address = tag::address::<T>(crate::Pointer::into_usize(ptr));
    let object: *mut u8 = ptr::with_exposed_provenance_mut(address);
    match T::FREES {
        Frees::Block(layout) => {
            debug_assert!(!object.is_null(), "a null pointer to be destroyed");
            // SAFETY: the caller's promise; a box of this layout.
            unsafe { reader.retire_memory(domain, NonNull::new_unchecked(object), layout) }
        }
        frees => {
            let is_guess = matches!(frees, Frees::Unknown);
            // SAFETY: the caller's promise.
            unsafe { reader.retire(domain, object, Destroy::<T>::HOW, is_guess) }
        }
    }
}

struct Destroy<T: ?Sized + Pointable>(PhantomData<T>);

impl<T: ?Sized + Pointable> Destroy<T> {
    const HOW: &'static Destructor = &Destructor::new(Self::run, T::FREES.bytes());

    /// # Safety
    ///
    /// As for [`Pointable::drop`].
    unsafe fn run(object: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { T::drop(object.expose_provenance()) };
    }
}

struct Call<F, R>(PhantomData<(F, R)>);

impl<F: FnOnce() -> R, R> Call<F, R> {
    /// Whether the captures are stored in the word itself instead of a box. Not under Miri, which
    /// has no way to make a word of uninitialised bytes, such as the captures' padding.
    const FITS: bool = size_of::<F>() <= size_of::<*mut u8>()
        && align_of::<F>() <= align_of::<*mut u8>()
        && !cfg!(miri);

    const OF_WORD: &'static Destructor = &Destructor::new(Self::run_word, UNKNOWN);
    const OF_BOX: &'static Destructor = &Destructor::new(Self::run_box, UNKNOWN);

    #[inline(always)]
    fn into_word(f: F) -> *mut u8 {
        let mut word = MaybeUninit::new(ptr::null_mut::<u8>());
        // SAFETY: it fits.
        unsafe { word.as_mut_ptr().cast::<F>().write(f) };
        written(&mut word);
        // SAFETY: initialised, by `written`.
        unsafe { word.assume_init() }
    }

    /// # Safety
    ///
    /// `word` came from `into_word`, and is called once.
    unsafe fn run_word(word: *mut u8) {
        // SAFETY: the caller's promise.
        let f = unsafe { (&raw const word).cast::<F>().read() };
        drop(f());
    }

    /// # Safety
    ///
    /// `object` is a box of an `F`, which is called once.
    unsafe fn run_box(object: *mut u8) {
        // SAFETY: the caller's promise.
        let f = unsafe { Box::from_raw(object.cast::<F>()) };
        drop(f());
    }
}

/// Makes the compiler assume that all bytes of `word` are initialised, including a value's padding.
#[inline(always)]
fn written(word: &mut MaybeUninit<*mut u8>) {
    #[cfg(not(miri))]
    // SAFETY: an empty block, which does less than the compiler must assume.
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) word.as_mut_ptr(), options(nostack, preserves_flags));
    }
    #[cfg(miri)]
    let _ = word;
}
