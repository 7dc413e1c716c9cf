//! Sections that only tests have, each with an order left out.

use super::{Record, WAKE};
use crate::{
    gp::seq::Seq,
    platform::{barrier, sync::Ordering},
};

impl Record {
    /// Begins a section without a fence, as in membarrier mode, which the model lacks. For tests of
    /// pairs that need no fence.
    pub(in crate::gp) fn begin_without_fence(&self) -> Seq {
        let word = self.shared().seq.enter(); // [R1]
        self.begin(word);
        Seq::from_bits(word)
    }

    /// Ends such a section.
    pub(in crate::gp) fn end_without_fence(&self) {
        self.word.store(0, Ordering::Release); // [R4]
    }

    /// Ends a section with the kernel's old race: between the look and the end, a waiter can flag
    /// it.
    pub(in crate::gp) fn unlock_looking_first(&self) {
        let flags = self.flags.load(Ordering::Relaxed);
        self.word.store(0, Ordering::Release);
        barrier::light();
        if flags & WAKE != 0 {
            self.take_flags();
        }
    }
}
