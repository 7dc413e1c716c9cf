//! An allocator that can limit how much a thread allocates.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
};

/// The system's allocator, but for [`with_memory`].
pub struct Refusing;

thread_local! {
    /// Number of bytes that the thread can still allocate.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

// SAFETY: all is done by the system's allocator; a null pointer is always a permitted answer.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(left) = LEFT.get() {
            if left < layout.size() {
                return ptr::null_mut();
            }
            LEFT.set(Some(left - layout.size()));
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LEFT.set(LEFT.get().map(|left| left + layout.size()));
        // SAFETY: the caller's promise; the block came from `System`.
        unsafe { System.dealloc(block, layout) };
    }
}

/// Runs `work`, during which this thread may allocate `bytes` bytes, plus what it frees.
pub fn with_memory<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    LEFT.set(Some(bytes));
    let result = work();
    LEFT.set(None);
    result
}

/// Runs `work`, during which this thread can allocate nothing.
pub fn without_memory<R>(work: impl FnOnce() -> R) -> R {
    with_memory(0, work)
}
