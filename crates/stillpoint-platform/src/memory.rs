//! Fallible allocation: memory that the caller can do without.
//!
//! A failed allocation ends the process, as in any Rust program, except for those made through this
//! module, whose callers handle the failure. The C library has its own allocator with an emergency
//! reserve for the former, which the latter must not consume; `need` tells the two apart.

use std::alloc::{self, Layout};
#[cfg(feature = "c-symbols")]
use std::cell::Cell;

#[cfg(feature = "c-symbols")]
thread_local!(static NEED: Cell<Need> = const { Cell::new(Need::Must) });

/// How badly a thread needs what it allocates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It cannot go on without.
    #[cfg(feature = "c-symbols")]
    Must,
    /// Something is lost without it; but the thread must not block, because another may be waiting
    /// for it.
    Now,
    /// It can do without.
    Refusable,
}

/// That of the calling thread, at this moment. Neither allocates nor unwinds.
#[cfg(feature = "c-symbols")]
pub fn need() -> Need {
    NEED.get()
}

fn needing<R>(need: Need, ask: impl FnOnce() -> R) -> R {
    #[cfg(feature = "c-symbols")]
    let _restore = {
        struct Restore(Need);
        impl Drop for Restore {
            fn drop(&mut self) {
                NEED.set(self.0);
            }
        }
        Restore(NEED.replace(need))
    };
    let _ = need;
    ask()
}

/// Allocates in `ask`, which has a way out.
pub fn refusable<R>(ask: impl FnOnce() -> R) -> R {
    needing(Need::Refusable, ask)
}

/// As [`alloc::alloc`], without blocking. The C library's allocator may use its reserve, because
/// something is lost on failure.
///
/// # Safety
///
/// The layout is not of size 0.
pub unsafe fn alloc_now(layout: Layout) -> *mut u8 {
    // SAFETY: the caller's promise.
    needing(Need::Now, || unsafe { alloc::alloc(layout) })
}

/// As [`alloc::alloc`].
///
/// # Safety
///
/// The layout is not of size 0.
pub unsafe fn try_alloc(layout: Layout) -> *mut u8 {
    // SAFETY: the caller's promise.
    refusable(|| unsafe { alloc::alloc(layout) })
}

/// Checks that `bytes` can be allocated at this moment, before a sequence of allocations that may
/// not fail.
pub fn is_there_for(bytes: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), 16) else {
        return false;
    };
    // SAFETY: the size is not 0; given back as it was taken. `black_box`, because a compiler may
    // remove an allocation whose block is never used.
    unsafe {
        let block = std::hint::black_box(try_alloc(layout));
        if !block.is_null() {
            alloc::dealloc(block, layout);
        }
        !block.is_null()
    }
}

/// `len` values made by `make`, or `None` without memory for them: for arrays whose size depends on
/// the machine.
pub fn try_several<T>(count: usize, make: impl Fn() -> T) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    refusable(|| all.try_reserve_exact(count)).ok()?;
    all.extend((0..count).map(|_| make()));
    Some(all.into_boxed_slice())
}

/// As [`try_several`], of values that are zeros: large ones take memory when they are first written.
///
/// # Safety
///
/// Zeros are a `T`.
pub unsafe fn try_zeroed<T>(count: usize) -> Option<Box<[T]>> {
    let layout = Layout::array::<T>(count).ok()?;
    assert!(layout.size() > 0, "nothing is to be allocated");
    // SAFETY: not of size 0.
    let block = refusable(|| unsafe { alloc::alloc_zeroed(layout) });
    if block.is_null() {
        return None;
    }
    let all = std::ptr::slice_from_raw_parts_mut(block.cast::<T>(), count);
    // SAFETY: allocated as a box of so many is; zeros are so many, as the caller promises.
    Some(unsafe { Box::from_raw(all) })
}
