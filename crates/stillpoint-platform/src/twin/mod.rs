//! The model's side of the seam: the same names as in `system`, answered by a checker.

pub mod barrier;
pub mod fork;
pub mod sync;
pub mod thread;

/// Loom tries all schedules of a small program, on weak memory.
#[cfg(not(stillpoint_shuttle))]
pub use loom as checker;
/// Shuttle tries many schedules of a larger one, on strong memory.
#[cfg(stillpoint_shuttle)]
pub use shuttle as checker;

pub(crate) use crate::simple::condvar::Signals;
pub use crate::simple::{one_cpu as cpu, table};

/// Time stands still: no wait ends because its bound has passed, so a lost wake-up is a deadlock.
pub mod clock {
    use crate::clock::Nanos;

    /// Returns the one moment.
    pub fn now() -> Nanos {
        1
    }

    /// Returns the one moment.
    pub fn coarse() -> Nanos {
        now()
    }
}
