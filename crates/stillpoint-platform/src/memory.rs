//! Checks for memory before a sequence of allocations, and arrays that can be refused.

use std::alloc::{self, Layout};

/// Returns whether `bytes` can be allocated at this moment. To be called before a sequence of
/// allocations that may not fail.
pub fn is_there_for(bytes: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), 16) else {
        return false;
    };
    // SAFETY: the size is not 0; given back as it was taken. `black_box`, because a compiler may
    // remove an allocation whose block is never used.
    unsafe {
        let block = std::hint::black_box(alloc::alloc(layout));
        if !block.is_null() {
            alloc::dealloc(block, layout);
        }
        !block.is_null()
    }
}

/// Returns `count` values made by `make`, or `None` if out of memory.
pub fn try_several<T>(count: usize, make: impl Fn() -> T) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).ok()?;
    all.extend((0..count).map(|_| make()));
    Some(all.into_boxed_slice())
}

/// Allocates like [`try_several`], for values whose bytes are all zero. A large array takes memory only
/// where it is written.
///
/// # Safety
///
/// All zero bytes are a valid `T`.
pub unsafe fn try_zeroed<T>(count: usize) -> Option<Box<[T]>> {
    let layout = Layout::array::<T>(count).ok()?;
    assert!(layout.size() > 0, "nothing is to be allocated");
    // SAFETY: not of size 0.
    let block = unsafe { alloc::alloc_zeroed(layout) };
    if block.is_null() {
        return None;
    }
    let all = std::ptr::slice_from_raw_parts_mut(block.cast::<T>(), count);
    // SAFETY: allocated with the layout of that box; zeros are `count` values, as the caller promises.
    Some(unsafe { Box::from_raw(all) })
}
