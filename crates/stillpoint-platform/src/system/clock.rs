//! The system's clock, or where that has none for us (Miri, other systems) std's.

#[cfg(all(target_os = "linux", not(miri)))]
pub use linux::{coarse, now};
#[cfg(not(all(target_os = "linux", not(miri))))]
pub use other::{coarse, now};

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use crate::clock::Nanos;
    use rustix::time::{ClockId, clock_gettime};

    /// Returns the present moment. About 20 ns, no system call where the kernel has a vDSO.
    /// Async-signal-safe on Linux.
    #[inline]
    pub fn now() -> Nanos {
        read(ClockId::Monotonic)
    }

    /// Returns the time of the last tick: up to some milliseconds late, for a quarter of the price.
    #[inline]
    pub fn coarse() -> Nanos {
        read(ClockId::MonotonicCoarse)
    }

    #[inline]
    fn read(clock: ClockId) -> Nanos {
        let time = clock_gettime(clock);
        // The monotonic clock counts up from boot, so neither field is negative.
        (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod other {
    use crate::clock::{Nanos, nanos};
    use std::{sync::OnceLock, time::Instant};

    /// Returns the present moment.
    pub fn now() -> Nanos {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        nanos(ORIGIN.get_or_init(Instant::now).elapsed()).saturating_add(1)
    }

    /// Returns the present moment: there is nothing cheaper.
    pub fn coarse() -> Nanos {
        now()
    }
}
