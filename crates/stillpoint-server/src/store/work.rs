//! A count of the work that a thread has done, so that a server can give others their turns: bytes of
//! items that were written, copied or taken out, bytes of lines for clients that watch, and a constant
//! for each item that was only looked at.

use std::cell::Cell;

/// Work of looking at an item in a walk, in bytes.
pub const LOOK: usize = 256;

thread_local! {
    static DONE: Cell<u64> = const { Cell::new(0) };
}

/// Adds `bytes` to the work of the calling thread.
#[inline]
pub fn add(bytes: usize) {
    DONE.set(DONE.get().wrapping_add(bytes as u64));
}

/// Returns the work of the calling thread since its start, in bytes.
#[inline]
pub fn done() -> u64 {
    DONE.get()
}
