//! The asymmetric pair of barriers: nothing on the read side, `membarrier(2)` on the updater's.
//!
//! The pair's guarantee, which is all that the modules above rely on:
//!
//! > Let one thread run `A; light(); B` and another `C; heavy(); D`. Then D sees A, or B sees C (or
//! > both).
//!
//! * **Membarrier mode.** [`light`] keeps the compiler from reordering and costs no instruction.
//!   [`heavy`] returns after every running thread of the process has passed a full memory barrier
//!   somewhere between its call and its return: the point in the other thread lies after A (then D,
//!   which follows the return, sees A) or before B (then B sees C).
//! * **Fence mode**, where the kernel has no membarrier or forbids it: both are `fence(SeqCst)`,
//!   which gives the same promise by the total order of such fences.
//! * **ThreadSanitizer** (`--cfg stillpoint_tsan`, which `scripts/sanitize thread` sets): fence
//!   mode, and each fence is a read-modify-write of one word, because this tool understands neither
//!   fences nor membarrier. Every fence then happens before every later one, which is more than a
//!   fence promises: it hides an order that is missing between two fences, and shows one that is
//!   missing elsewhere.
//! * **loom**: fence mode, because loom cannot put a barrier into another thread. The model in
//!   `models/` has store buffers and a membarrier that drains them, and so checks the asymmetric
//!   form.
//!
//! The mode is found once, before any reader exists ([`readers_fence`]). Until then `light` is the
//! full fence; a thread that still sees the state before therefore does too much, never too little.
//! Several threads may look for it at the same time: the first to publish decides, and no thread
//! waits for another, which a fork may have removed.
//!
//! A fork copies the process's membarrier registration first and its memory after that. A child may
//! therefore have the mode that another thread was publishing, but not the registration; so a
//! refused call registers and tries again.

pub use crate::seam::barrier::{fence_after_rmw, full_fence, heavy, light, readers_fence};

/// Issues the light barrier of membarrier mode, which binds the compiler alone. In fence mode the caller
/// also fences. Pairs with `heavy`.
#[inline(always)]
pub fn light_asymmetric() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}
