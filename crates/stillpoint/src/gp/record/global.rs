//! The fast path into a section of a global domain, whose `started` is a static.

use super::{Flavour, NESTING, Record};
use crate::{
    gp::seq::global::enter_global,
    platform::sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering},
};
use std::{mem::offset_of, ptr};

const _: () = assert!(
    offset_of!(Record, word) == 0 && offset_of!(Record, flags) == 8 && size_of::<Record>() == 64
);

impl Record {
    /// Makes the sentinel for threads without a record. Its nesting is at the maximum, so that
    /// [`Record::lock_global_outermost`] refuses it.
    pub(crate) const fn unregistered() -> Self {
        Self {
            word: AtomicU64::new(NESTING),
            flags: AtomicU32::new(0),
            flavour: AtomicU8::new(Flavour::Thread as u8),
            fences: false,
            fences_at_end: false,
            owner: AtomicU64::new(0),
            domain: 0,
            shared: ptr::null(),
            entry: ptr::null(),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Enters a section of the global domain `GLOBAL`, unless the owner is in one or this is the
    /// sentinel. Owner (or a signal handler in its thread) only, and only where readers need no
    /// fence.
    #[inline(always)]
    pub(crate) fn lock_global_outermost<const GLOBAL: usize>(&self) -> bool {
        debug_assert!(!self.fences);
        let outermost = self.word.load(Ordering::Relaxed) & NESTING == 0;
        if outermost {
            // R1 is in `enter_global`, R2 and R3 in `begin`.
            self.begin(enter_global::<GLOBAL>());
        }
        outermost
    }
}
