//! Memory that the caller can do without.
//!
//! An allocation that fails ends the process, as in any Rust program; but for those that are made in here, whose callers know what to do.
//! The C face has an allocator of its own, which has a last resort for the former and must not waste it on the latter; so they can be told
//! apart ([`can_be_refused`]).

use std::alloc::{self, Layout};
#[cfg(feature = "c-symbols")]
use std::cell::Cell;

#[cfg(feature = "c-symbols")]
thread_local!(static REFUSABLE: Cell<bool> = const { Cell::new(false) });

/// Whether the calling thread allocates what it can do without, at this moment. Neither allocates nor unwinds.
#[cfg(feature = "c-symbols")]
pub(crate) fn can_be_refused() -> bool {
    REFUSABLE.get()
}

/// Allocates in `ask`, which has a way out.
pub(crate) fn refusable<R>(ask: impl FnOnce() -> R) -> R {
    #[cfg(feature = "c-symbols")]
    let _restore = {
        struct Restore(bool);
        impl Drop for Restore {
            fn drop(&mut self) {
                REFUSABLE.set(self.0);
            }
        }
        Restore(REFUSABLE.replace(true))
    };
    ask()
}

/// As [`alloc::alloc`].
///
/// # Safety
///
/// The layout is not of size 0.
pub(crate) unsafe fn try_alloc(layout: Layout) -> *mut u8 {
    // SAFETY: the caller's promise.
    refusable(|| unsafe { alloc::alloc(layout) })
}

/// So many of what `make` makes; `None` if there is no memory for them: for arrays whose size is the machine's.
pub(crate) fn try_several<T>(count: usize, make: impl Fn() -> T) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    refusable(|| all.try_reserve_exact(count)).ok()?;
    all.extend((0..count).map(|_| make()));
    Some(all.into_boxed_slice())
}
