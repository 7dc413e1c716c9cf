//! The monotonic clock, in nanoseconds since a point that is fixed for the life of the process.

use std::time::Duration;

pub use crate::seam::clock::{coarse, now};

/// A moment on the monotonic clock, in nanoseconds. 0 is never returned by [`now`] and can mean
/// "not yet".
pub type Nanos = u64;

/// Returns `duration` in nanoseconds; a duration of more than 584 years counts as for ever.
#[inline]
pub fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
