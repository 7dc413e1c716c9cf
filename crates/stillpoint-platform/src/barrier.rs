//! The asymmetric pair of barriers: nothing on the read side, `membarrier(2)` on the updater's.
//!
//! What the pair promises, and all that the rooms above rely on:
//!
//! > Let one thread run `A; light(); B` and another `C; heavy(); D`. Then D sees A, or B sees C (or both).
//!
//! * **Membarrier mode.** [`light`] keeps the compiler from reordering and costs no instruction. [`heavy`] returns after
//!   every running thread of the process has passed a full memory barrier somewhere between its call and its return: the
//!   point in the other thread lies after A (then D, which follows the return, sees A) or before B (then B sees C).
//! * **Fence mode**, where the kernel has no membarrier or forbids it: both are `fence(SeqCst)`, which gives the same
//!   promise by the total order of such fences.
//! * **ThreadSanitizer** (`--cfg stillpoint_tsan`, which `scripts/sanitize thread` sets): fence mode, and each fence is a read-modify-write of one
//!   word, because this tool understands neither fences nor membarrier. Every fence then happens before every later one, which is more than
//!   a fence promises: it hides what is missing between two fences, and shows what is missing elsewhere.
//! * **loom**: fence mode, because loom cannot put a barrier into another thread. The model in `models/` has store buffers
//!   and a membarrier that drains them, and so checks the asymmetric form.
//!
//! The mode is found once, before any reader exists ([`readers_fence`]). Until then `light` is the full fence; a thread that
//! still sees the state before therefore does too much, never too little. Several threads may look for it at the same time: the
//! first to publish decides, and nobody waits for another, who may have vanished in a fork.
//!
//! A fork copies the process's registration for membarrier, and then its memory: a child may have the mode that another thread was
//! finding and not the registration, so a refused call registers and tries again.

#[cfg(not(stillpoint_loom))]
pub use real::{full_fence, heavy, light, readers_fence};

#[cfg(stillpoint_loom)]
pub use model::{full_fence, heavy, light, readers_fence};

/// The light barrier of a thread that knows the mode to be membarrier: it binds the compiler alone. Pairs with `heavy`.
#[inline(always)]
pub fn light_asymmetric() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

#[cfg(not(stillpoint_loom))]
mod real {
    #[cfg(stillpoint_tsan)]
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

    const UNKNOWN: u8 = 0;
    const FENCES: u8 = 1;
    /// The light barrier may be left to the compiler.
    const ASYMMETRIC: u8 = 2;

    /// The mode. Leaves UNKNOWN once.
    static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// The mode, which is found at the first call.
    #[inline]
    fn mode() -> u8 {
        match MODE.load(Ordering::Relaxed) {
            UNKNOWN => find(),
            known => known,
        }
    }

    #[cold]
    fn find() -> u8 {
        let wanted = std::env::var_os("STILLPOINT_MEMBARRIER").is_none_or(|value| value != "off");
        let found = if wanted && kernel::probe() { ASYMMETRIC } else { FENCES };
        // Needs no partner: the mode is one word, and the kernel knows of the registration by itself. It is loaded Relaxed.
        MODE.compare_exchange(UNKNOWN, found, Ordering::SeqCst, Ordering::SeqCst).err().unwrap_or(found)
    }

    /// Whether readers have to fence, because `membarrier(2)` does not work here.
    #[inline]
    pub fn readers_fence() -> bool {
        mode() == FENCES
    }

    /// The reader's side. Async-signal-safe.
    #[inline(always)]
    pub fn light() {
        if MODE.load(Ordering::Relaxed) == ASYMMETRIC {
            compiler_fence(Ordering::SeqCst); // Pairs with `heavy`.
        } else {
            full_fence();
        }
    }

    /// A full fence. On x86-64 a locked instruction that leaves the stack as it is: it orders as much as MFENCE, in half the time.
    #[inline]
    pub fn full_fence() {
        #[cfg(all(target_arch = "x86_64", not(any(miri, stillpoint_tsan))))]
        // SAFETY: the word on top of the stack is readable and writable, and keeps its value. The compiler takes the block for one
        // that may read and write any memory, so it moves no access across.
        unsafe {
            std::arch::asm!("lock or dword ptr [rsp], 0");
        }
        #[cfg(stillpoint_tsan)]
        {
            static FENCES: AtomicU32 = AtomicU32::new(0);
            // Pairs with `full_fence` of all other threads: each reads from the one before.
            FENCES.fetch_add(1, Ordering::SeqCst);
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, stillpoint_tsan)))))]
        // Pairs with `full_fence` of all other threads.
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The updater's side. A system call of 0.1 to 20 microseconds in membarrier mode.
    ///
    /// # Aborts
    ///
    /// If the kernel refuses a membarrier that it granted when the mode was found (a seccomp filter that was installed
    /// later): readers already run without fences, so no grace period could ever be known to have ended again.
    #[inline]
    pub fn heavy() {
        if mode() == ASYMMETRIC {
            kernel::membarrier();
        } else {
            full_fence();
        }
    }

    #[cfg(all(target_os = "linux", not(any(miri, stillpoint_tsan))))]
    mod kernel {
        use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier as call, membarrier_query};

        /// Query, register, one real call: a filter may let the first two through and refuse the third.
        pub(super) fn probe() -> bool {
            let needed = MembarrierQuery::PRIVATE_EXPEDITED | MembarrierQuery::REGISTER_PRIVATE_EXPEDITED;
            membarrier_query().contains(needed)
                && call(MembarrierCommand::RegisterPrivateExpedited).is_ok()
                && call(MembarrierCommand::PrivateExpedited).is_ok()
        }

        pub(super) fn membarrier() {
            let Err(error) = call(MembarrierCommand::PrivateExpedited) else {
                return;
            };
            // The child of a fork that came while another thread found the mode has the mode, but may not have the registration.
            if call(MembarrierCommand::RegisterPrivateExpedited).is_ok() && call(MembarrierCommand::PrivateExpedited).is_ok() {
                return;
            }
            eprintln!(
                "stillpoint: membarrier(2) worked when this process started to use it and now fails: {error}. \
                 Readers run without fences, so no grace period can be known to have ended; aborting. If a seccomp filter is \
                 installed later on, start the program with STILLPOINT_MEMBARRIER=off."
            );
            std::process::abort();
        }
    }

    #[cfg(not(all(target_os = "linux", not(any(miri, stillpoint_tsan)))))]
    mod kernel {
        pub(super) fn probe() -> bool {
            false
        }

        pub(super) fn membarrier() {
            unreachable!("without membarrier the mode is fences");
        }
    }
}

#[cfg(stillpoint_loom)]
mod model {
    use crate::model::{
        lazy_static,
        sync::atomic::{AtomicU32, Ordering, fence},
    };

    lazy_static! {
        /// Touched by every fence, because loom tries both orders of two operations only if they touch the same thing: without this it
        /// would not see what happens when another thread runs between a store and the fence behind it. Orders nothing.
        static ref FENCES: AtomicU32 = AtomicU32::new(0);
    }

    /// Always: loom cannot put a barrier into another thread.
    pub fn readers_fence() -> bool {
        true
    }

    /// A full fence.
    pub fn full_fence() {
        FENCES.fetch_add(0, Ordering::Relaxed);
        // Pairs with `full_fence` of all other threads.
        fence(Ordering::SeqCst);
    }

    /// The reader's side.
    pub fn light() {
        full_fence();
    }

    /// The updater's side.
    pub fn heavy() {
        full_fence();
    }
}
