//! What is known of an object that waits to be freed: where it is and how to free it, in two words.

use std::{
    alloc::{self, Layout},
    mem,
    ptr::{self, NonNull},
    sync::Arc,
};

/// How [`Domain::retire_with`](crate::Domain::retire_with) frees an object, and how large that is.
#[derive(Debug)]
pub struct Destructor {
    run: unsafe fn(*mut u8),
    bytes: usize,
}

impl Destructor {
    /// `run` is called with the object, once. `bytes` is what that frees, in bytes, as the budget
    /// counts it: an estimate will do.
    ///
    /// A panic of `run` is caught and counted in [`Statistics::panics`](crate::Statistics::panics).
    #[must_use]
    pub const fn new(run: unsafe fn(*mut u8), bytes: usize) -> Self {
        Self { run, bytes }
    }

    #[inline(always)]
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// An object that waits. Either a block of memory of a known layout, or an object with a
/// destructor.
///
/// The layout lies in the address bits of `how`, marked by an odd address; a `Destructor` is
/// aligned and never odd.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    object: *mut u8,
    how: *const Destructor,
}

// SAFETY: the retiring caller promises that the object may be freed on any thread.
unsafe impl Send for Slot {}

const LAYOUT_TAG: usize = 1;
const ALIGN_BITS: u32 = 6;
const SIZE_SHIFT: u32 = 1 + ALIGN_BITS;

/// The destructor that turns a pointer back into a `Box<T>` and drops that.
struct Boxed<T>(T);

impl<T> Boxed<T> {
    const DESTRUCTOR: &'static Destructor = &Destructor::new(Self::free, size_of::<T>());

    /// # Safety
    ///
    /// `object` came from `Box::<T>::into_raw` and is freed once.
    unsafe fn free(object: *mut u8) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(object.cast::<T>()) });
    }
}

/// The destructor that drops one reference of an `Arc<T>`.
struct Shared<T>(T);

impl<T> Shared<T> {
    const DESTRUCTOR: &'static Destructor = &Destructor::new(Self::free, size_of::<T>());

    /// # Safety
    ///
    /// `object` came from `Arc::<T>::into_raw`, and the reference is dropped once.
    unsafe fn free(object: *mut u8) {
        // SAFETY: the caller's promise.
        drop(unsafe { Arc::from_raw(object.cast::<T>()) });
    }
}

/// Instead of a layout's alignment: the block came from `malloc()`.
const MALLOCED: usize = (1 << ALIGN_BITS) - 1;

impl Slot {
    /// A block of `bytes` bytes from the C library's `malloc()`.
    #[cfg(unix)]
    #[inline(always)]
    pub(crate) fn malloced(object: NonNull<u8>, bytes: usize) -> Self {
        let how = bytes << SIZE_SHIFT | MALLOCED << 1 | LAYOUT_TAG;
        Self {
            object: object.as_ptr(),
            how: ptr::without_provenance(how),
        }
    }

    /// Whatever `how` frees; to all others `object` is a word of no meaning.
    #[inline(always)]
    pub(crate) fn with(object: *mut u8, how: &'static Destructor) -> Self {
        Self { object, how }
    }

    /// A block from the global allocator.
    #[inline(always)]
    pub(crate) fn memory(object: NonNull<u8>, layout: Layout) -> Self {
        let how = layout.size() << SIZE_SHIFT
            | (layout.align().trailing_zeros() as usize) << 1
            | LAYOUT_TAG;
        Self {
            object: object.as_ptr(),
            how: ptr::without_provenance(how),
        }
    }

    /// A boxed object. Where nothing needs dropping it is plain memory.
    #[inline(always)]
    pub(crate) fn boxed<T>(object: NonNull<T>) -> Self {
        if mem::needs_drop::<T>() || mem::size_of::<T>() == 0 {
            Self {
                object: object.as_ptr().cast(),
                how: Boxed::<T>::DESTRUCTOR,
            }
        } else {
            Self::memory(object.cast(), Layout::new::<T>())
        }
    }

    /// A reference to a shared object.
    pub(crate) fn shared<T>(object: Arc<T>) -> Self {
        Self {
            object: Arc::into_raw(object).cast_mut().cast(),
            how: Shared::<T>::DESTRUCTOR,
        }
    }

    /// Returns whether freeing it runs user code.
    #[inline(always)]
    pub(crate) fn has_destructor(self) -> bool {
        self.how.addr() & LAYOUT_TAG == 0
    }

    /// The layout of a block.
    ///
    /// # Safety
    ///
    /// The slot is one of [`Slot::memory`].
    unsafe fn layout(self) -> Layout {
        let how = self.how.addr();
        let align = 1 << (how >> 1 & ((1 << ALIGN_BITS) - 1));
        // SAFETY: `memory` made it from a valid layout.
        unsafe { Layout::from_size_align_unchecked(how >> SIZE_SHIFT, align) }
    }

    /// Prefetches the object's memory, which is about to be freed.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // A word that small is most often a number that a deferred function has captured. It has no
        // page, and the search for one costs more than the free.
        if self.object.addr() >> 32 != 0 {
            // SAFETY: every x86-64 processor has SSE, and a prefetch of any address is no access to
            // it.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(self.object.cast());
            }
        }
    }

    /// Frees the object.
    ///
    /// # Safety
    ///
    /// Called once, on a thread that the object may be on, when it has no readers any more.
    #[inline]
    pub(crate) unsafe fn free(self) {
        if self.has_destructor() {
            // SAFETY: an even `how` was made from a `&'static Destructor` that suits the object;
            // the rest is the caller's.
            return unsafe { ((*self.how).run)(self.object) };
        }
        #[cfg(unix)]
        if self.how.addr() >> 1 & MALLOCED == MALLOCED {
            // SAFETY: the maker of the slot promised that the block came from `malloc()`.
            return unsafe { libc::free(self.object.cast()) };
        }
        // SAFETY: the maker of the slot promised that the block came from the global allocator with
        // this layout.
        unsafe { alloc::dealloc(self.object, self.layout()) }
    }
}

/// What a block of `size` bytes takes up: the size class of a general-purpose allocator (glibc's: 8
/// bytes of header, classes 16 apart, 32 at least). The estimate is good for other allocators, too.
#[inline(always)]
pub(crate) const fn footprint(size: usize) -> usize {
    let class = size.saturating_add(8 + 15) & !15;
    if class < 32 { 32 } else { class }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    proptest! {
        #[test]
        fn a_layout_survives(size in 0usize..1 << 40, log in 0u32..20) {
            let layout = Layout::from_size_align(size, 1 << log).unwrap();
            let slot = Slot::memory(NonNull::dangling(), layout);
            // SAFETY: it is one of `memory`.
            prop_assert_eq!(unsafe { slot.layout() }, layout);
        }

        #[test]
        fn a_footprint_holds_the_block(size in 0usize..1 << 40) {
            let bytes = footprint(size);
            prop_assert!(bytes >= size + 8 && bytes <= size + 32 && bytes.is_multiple_of(16));
        }
    }

    #[test]
    fn a_destructor_runs_once() {
        static DROPS: AtomicUsize = AtomicUsize::new(0);
        struct Loud([u64; 9]);
        impl Drop for Loud {
            fn drop(&mut self) {
                DROPS.fetch_add(self.0[8] as usize, Ordering::Relaxed);
            }
        }
        let slot = Slot::boxed(NonNull::from(Box::leak(Box::new(Loud([1; 9])))));
        // SAFETY: no other thread knows the object.
        unsafe { slot.free() };
        assert_eq!(DROPS.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_reference_is_dropped() {
        let object = Arc::new([0_u64; 9]);
        let slot = Slot::shared(Arc::clone(&object));
        assert_eq!(
            (Arc::strong_count(&object), slot.has_destructor()),
            (2, true)
        );
        // SAFETY: the slot's own reference.
        unsafe { slot.free() };
        assert_eq!(Arc::strong_count(&object), 1);
    }
}
