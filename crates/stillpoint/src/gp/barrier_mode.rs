//! Who pays for the order between readers and updaters.

use crate::platform::barrier;

/// The barriers that order readers and updaters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierMode {
    /// Readers go without fences where the kernel has `membarrier(2)`; a grace period pays for it.
    Membarrier,
    /// Both sides fence: grace periods make no system call, and no reader is ever interrupted.
    Fence,
    /// A section begins with a fence, and ends without one where the kernel has `membarrier(2)`.
    /// Grace periods make no system call, except for a waiter that is about to sleep.
    EntryFence,
}

impl BarrierMode {
    /// Returns true if readers fence where a section begins, by the mode or because there is no
    /// membarrier.
    pub(super) fn readers_fence(self) -> bool {
        self != Self::Membarrier || barrier::readers_fence()
    }

    /// Returns true if readers fence where a section ends.
    pub(super) fn readers_fence_at_end(self) -> bool {
        self == Self::Fence || barrier::readers_fence()
    }

    /// Issues the partner of the light barrier at a section's beginning.
    pub(super) fn heavy(self) {
        match self {
            Self::Membarrier => barrier::heavy(), // Heavy [W3]: the light barrier R3 is wholly before or wholly after it.
            Self::Fence | Self::EntryFence => barrier::full_fence(), // Fence [W3]: the reader's fence R3 is before or after it in one order.
        }
    }

    /// Issues the partner of the light barrier at a section's end.
    pub(super) fn heavy_for_flag(self) {
        match self {
            Self::Membarrier | Self::EntryFence => barrier::heavy(), // Heavy [S2]: the light barrier R5 is wholly before or wholly after it.
            Self::Fence => barrier::full_fence(), // Fence [S2]: the reader's fence R5 is before or after it in one order.
        }
    }
}
