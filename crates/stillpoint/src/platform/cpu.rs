//! Which CPU the calling thread runs on: a hint for choosing among shards, never what anything is proved by.

/// The CPU that the calling thread ran on a moment ago; less than [`count`] or not. Async-signal-safe.
#[cfg(all(target_os = "linux", not(any(stillpoint_loom, miri))))]
#[inline]
pub(crate) fn current() -> usize {
    // SAFETY: no arguments; where the kernel has no such call it gives -1.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

#[cfg(not(all(target_os = "linux", not(any(stillpoint_loom, miri)))))]
pub(crate) fn current() -> usize {
    0
}

/// How many CPUs the machine may have, 1 at least.
#[cfg(all(target_os = "linux", not(any(stillpoint_loom, miri))))]
pub(crate) fn count() -> usize {
    // SAFETY: a plain question.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).map_or(1, |count| count.max(1))
}

#[cfg(not(all(target_os = "linux", not(any(stillpoint_loom, miri)))))]
pub(crate) fn count() -> usize {
    1
}
