//! Stores that are slow to become visible.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// Cache lines to be flushed.
#[derive(Debug, Default)]
pub struct StoreBufferStress(
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "nothing to flush")
    )]
    [CachePadded<AtomicUsize>; 8],
);

impl StoreBufferStress {
    /// Makes the next stores of this thread wait for their turn: on x86-64 they become visible in
    /// order, behind flushes of some 100 ns each, while loads go ahead. Other processors reorder
    /// without being asked.
    #[inline(always)]
    pub fn delay_later_stores(&self) {
        #[cfg(target_arch = "x86_64")]
        for line in &self.0 {
            line.store(1, Ordering::Relaxed);
            // SAFETY: an address that is ours; every x86-64 has the instruction.
            unsafe { std::arch::x86_64::_mm_clflush(line.as_ptr().cast::<u8>()) };
        }
    }
}
