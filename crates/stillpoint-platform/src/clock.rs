//! The monotonic clock, in nanoseconds since a point that is fixed for the life of the process.

use std::time::Duration;

/// A moment on the monotonic clock, in nanoseconds. 0 is never returned by [`now`] and can mean "not yet".
pub type Nanos = u64;

/// The present moment. About 20 ns, no system call where the kernel has a vDSO. Async-signal-safe on Linux.
#[cfg(all(target_os = "linux", not(any(stillpoint_loom, miri))))]
#[inline]
pub fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The monotonic clock counts up from boot, so neither field is negative.
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// The same, as of the last tick: up to some milliseconds late, for a quarter of the price.
#[cfg(all(target_os = "linux", not(any(stillpoint_loom, miri))))]
#[inline]
pub fn coarse() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(not(all(target_os = "linux", not(any(stillpoint_loom, miri)))))]
/// As [`now`], where the system has nothing cheaper.
pub fn coarse() -> Nanos {
    now()
}

#[cfg(all(not(all(target_os = "linux", not(miri))), not(stillpoint_loom)))]
pub fn now() -> Nanos {
    use std::{sync::OnceLock, time::Instant};
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    nanos(ORIGIN.get_or_init(Instant::now).elapsed()).saturating_add(1)
}

/// Time stands still in the model: no wait ends because its bound has passed, so a lost wake-up is a deadlock there.
#[cfg(stillpoint_loom)]
pub fn now() -> Nanos {
    1
}

/// `duration` in nanoseconds; anything past 584 years is as good as for ever.
#[inline]
pub fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
