//! Memory that the caller can do without.
//!
//! An allocation that fails ends the process, as in any Rust program; but for those that are made
//! in here, whose callers know what to do. The C face has an allocator of its own, which has a last
//! resort for the former and must not waste it on the latter; so they can be told apart (`need`,
//! for the C face).

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
    /// Something is lost without; but it must not wait, because somebody may be waiting for it.
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

/// As [`alloc::alloc`], for who must not wait, and loses something if there is none.
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

/// Whether there is memory for so many bytes, at this moment: asked by who is about to take it in
/// pieces that it cannot be refused any more.
pub fn is_there_for(bytes: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), 16) else {
        return false;
    };
    // SAFETY: the size is not 0; given back as it was taken. Compilers know that a block which
    // nobody uses need not be allocated.
    unsafe {
        let block = std::hint::black_box(try_alloc(layout));
        if !block.is_null() {
            alloc::dealloc(block, layout);
        }
        !block.is_null()
    }
}

/// So many of what `make` makes; `None` if there is no memory for them: for arrays whose size is
/// the machine's.
pub fn try_several<T>(count: usize, make: impl Fn() -> T) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    refusable(|| all.try_reserve_exact(count)).ok()?;
    all.extend((0..count).map(|_| make()));
    Some(all.into_boxed_slice())
}
