//! The global domains' `started`, at an address that a reader knows without loading it from
//! somewhere.

use super::{NESTED_ONCE, Seq, Sequence};
use crate::platform::sync::{AtomicU64, Ordering};

/// Number of domains that a process has from the start. A constant, `GLOBAL`, tells them apart.
pub(crate) const GLOBALS: usize = 2;

/// A `started` alone on its cache line, at a place in the array that a C header can know.
#[repr(C, align(128))]
struct GlobalStarted(AtomicU64);

#[cfg_attr(feature = "c-symbols", unsafe(export_name = "stillpoint_started"))]
static GLOBAL_STARTED: [GlobalStarted; GLOBALS] =
    [const { GlobalStarted(AtomicU64::new(NESTED_ONCE)) }; GLOBALS];

/// Like [`Sequence::enter`], for a reader of a global domain.
#[inline(always)]
pub(crate) fn enter_global<const GLOBAL: usize>() -> u64 {
    // Acquire [R1]: the section's loads cannot find what was unlinked before a cookie for this
    // number or less was taken (W1, W2).
    GLOBAL_STARTED[GLOBAL].0.load(Ordering::Acquire)
}

impl Sequence {
    /// Makes the counters of a global domain.
    pub(crate) fn of_global(global: usize) -> Self {
        let mut sequence = Self::new(Seq(0));
        sequence.started.global = Some(&GLOBAL_STARTED[global].0);
        sequence
    }
}
