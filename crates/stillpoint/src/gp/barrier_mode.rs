//! Who pays for the order between readers and updaters.

use crate::platform::barrier;

/// How readers and updaters come to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierMode {
    /// Readers go without fences where the kernel has `membarrier(2)`; a grace period pays for it.
    Membarrier,
    /// Both sides fence: grace periods without a system call, and no reader is ever interrupted.
    Fence,
}

impl BarrierMode {
    /// Returns true if readers fence, by the mode or because there is no membarrier.
    pub(super) fn readers_fence(self) -> bool {
        self == Self::Fence || barrier::readers_fence()
    }

    /// The partner of the readers' light barriers.
    pub(super) fn heavy(self) {
        match self {
            Self::Membarrier => barrier::heavy(), // Heavy [W3, S2]: a light barrier (R3, R5) is wholly before or wholly after it.
            Self::Fence => barrier::full_fence(), // Fence [W3, S2]: the reader's fence (R3, R5) is before or after it in one order.
        }
    }
}
