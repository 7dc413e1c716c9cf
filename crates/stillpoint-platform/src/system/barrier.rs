//! The pair of barriers, by `membarrier(2)` or by fences: see [`barrier`](crate::barrier).

use crate::environment;
#[cfg(stillpoint_tsan)]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

const UNKNOWN: u8 = 0;
const FENCES: u8 = 1;
/// The light barrier may be left to the compiler.
const ASYMMETRIC: u8 = 2;

/// The mode. Leaves UNKNOWN once.
static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Returns the mode, which is found at the first call.
#[inline]
fn mode() -> u8 {
    match MODE.load(Ordering::Relaxed) {
        UNKNOWN => find(),
        known => known,
    }
}

#[cold]
fn find() -> u8 {
    let found = if environment::membarrier() && kernel::probe() {
        ASYMMETRIC
    } else {
        FENCES
    };
    // Needs no partner: the mode is one word, and the kernel knows of the registration by itself.
    // It is loaded Relaxed.
    MODE.compare_exchange(UNKNOWN, found, Ordering::SeqCst, Ordering::SeqCst)
        .err()
        .unwrap_or(found)
}

/// Returns whether readers have to fence, because `membarrier(2)` does not work here.
#[inline]
pub fn readers_fence() -> bool {
    mode() == FENCES
}

/// Issues the reader's side. Async-signal-safe.
#[inline(always)]
pub fn light() {
    if MODE.load(Ordering::Relaxed) == ASYMMETRIC {
        compiler_fence(Ordering::SeqCst); // Pairs with `heavy`.
    } else {
        full_fence();
    }
}

/// Issues a full fence. On x86-64 a locked instruction that leaves the stack as it is: it orders as much
/// as MFENCE, in half the time.
#[inline]
pub fn full_fence() {
    #[cfg(all(target_arch = "x86_64", not(any(miri, stillpoint_tsan))))]
    // SAFETY: the word on top of the stack is readable and writable, and keeps its value. The
    // compiler takes the block for one that may read and write any memory, so it moves no access
    // across.
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

/// Issues a full fence after a read-modify-write. On x86-64 the read-modify-write is one, so this
/// binds the compiler alone.
#[inline]
pub fn fence_after_rmw() {
    if cfg!(all(target_arch = "x86_64", not(any(stillpoint_tsan, miri)))) {
        compiler_fence(Ordering::SeqCst); // Pairs with `full_fence` of all other threads.
    } else {
        full_fence();
    }
}

/// Issues the updater's side. A system call of 0.1 to 20 microseconds in membarrier mode.
///
/// # Aborts
///
/// If the kernel refuses a membarrier that it granted when the mode was found (a seccomp filter
/// that was installed later): readers already run without fences, so no grace period could ever be
/// known to have ended again.
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
    use crate::stderr;
    use rustix::thread::{
        MembarrierCommand, MembarrierQuery, membarrier as call, membarrier_query,
    };

    /// Queries, registers, and makes one real call: a filter may permit the first two and refuse the third.
    pub(super) fn probe() -> bool {
        let needed =
            MembarrierQuery::PRIVATE_EXPEDITED | MembarrierQuery::REGISTER_PRIVATE_EXPEDITED;
        membarrier_query().contains(needed)
            && call(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && call(MembarrierCommand::PrivateExpedited).is_ok()
    }

    pub(super) fn membarrier() {
        let Err(error) = call(MembarrierCommand::PrivateExpedited) else {
            return;
        };
        // The child of a fork that came while another thread found the mode has the mode, but may
        // not have the registration.
        if call(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && call(MembarrierCommand::PrivateExpedited).is_ok()
        {
            return;
        }
        // Not through std: another thread may hold its lock of stderr, and this one locks of the
        // program.
        stderr::line(format_args!(
            "membarrier(2) worked when this process started to use it and now fails with errno {}. \
             Readers run without fences, so no grace period can be known to have ended; aborting. If a seccomp filter is \
             installed later on, start the program with STILLPOINT_MEMBARRIER=off.",
            error.raw_os_error()
        ));
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
