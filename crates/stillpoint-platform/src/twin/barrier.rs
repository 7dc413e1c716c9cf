//! The pair of barriers: fences, because loom cannot put a barrier into another thread.

use super::checker::{
    lazy_static,
    sync::atomic::{AtomicU32, Ordering, fence},
};

lazy_static! {
    /// Touched by every fence, because loom tries both orders of two operations only if they touch
    /// the same thing: without this it would not see what happens when another thread runs between
    /// a store and the fence behind it. Orders nothing.
    static ref FENCES: AtomicU32 = AtomicU32::new(0);
}

/// Returns true: loom cannot put a barrier into another thread.
pub fn readers_fence() -> bool {
    true
}

/// Issues a full fence.
pub fn full_fence() {
    FENCES.fetch_add(0, Ordering::Relaxed);
    // Pairs with `full_fence` of all other threads.
    fence(Ordering::SeqCst);
}

/// Issues a full fence after a read-modify-write.
pub fn fence_after_rmw() {
    full_fence();
}

/// Issues the reader's side.
pub fn light() {
    full_fence();
}

/// Issues the updater's side.
pub fn heavy() {
    full_fence();
}
