//! The processor that runs the calling thread; always the same one where the system does not tell.

#[cfg(not(all(target_os = "linux", not(miri))))]
pub use crate::simple::one_cpu::{count, current};
#[cfg(all(target_os = "linux", not(miri)))]
pub use linux::{count, current};

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Returns the processor that runs the calling thread at this moment; the thread may be moved
    /// to another before this returns. Below [`count`], unless the system adds processors later. A
    /// nanosecond or two where the C library reads it from the restartable sequence's area, some
    /// ten where it asks the vDSO.
    #[inline]
    pub fn current() -> usize {
        // SAFETY: takes nothing and touches nothing.
        usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
    }

    /// Returns how many processors the system may have, at least 1. Asked once.
    #[inline]
    pub fn count() -> usize {
        // Not a `OnceLock`: a fork during the call would leave it locked in the child.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let known = COUNT.load(Ordering::Relaxed);
        if known > 0 {
            return known;
        }
        // SAFETY: takes a number and touches nothing of ours.
        let asked = usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) })
            .unwrap_or(1)
            .max(1);
        COUNT.store(asked, Ordering::Relaxed);
        asked
    }
}
