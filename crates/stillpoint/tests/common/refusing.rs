//! An allocator that refuses a thread everything while it is told to.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
};

/// The system's allocator, but for [`without_memory`].
pub struct Refusing;

thread_local! {
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: all is done by the system's allocator; a null pointer is always a permitted answer.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if REFUSES.get() {
            return ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; the block came from `System`.
        unsafe { System.dealloc(block, layout) };
    }
}

/// Returns the result of `work`, during which this thread can allocate nothing.
pub fn without_memory<R>(work: impl FnOnce() -> R) -> R {
    REFUSES.set(true);
    let result = work();
    REFUSES.set(false);
    result
}
