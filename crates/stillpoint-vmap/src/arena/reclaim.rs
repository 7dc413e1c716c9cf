//! Gives memory back when the program asks for it.

use super::{Arena, error::Error};
use crate::span::PAGE_BITS;
use stillpoint_platform::sync::Ordering;

impl Arena {
    /// Gives the memory of all that has been freed before back to the system. The kernel's
    /// `vm_unmap_aliases()`, or a purge of the lazy list.
    ///
    /// Waits for a grace period of the arena's domain. Afterwards those addresses read zero (see
    /// [`Builder::poison`](super::Builder::poison)) and may be used again. Not async-signal-safe.
    ///
    /// # Errors
    ///
    /// [`Error::InSection`] inside a section of the domain, if anything waits; [`Error::System`] if
    /// the system refuses, or has no memory for the lists that this takes. What is left waits for
    /// the next drain, and none of it is reused before.
    pub fn drain(&self) -> Result<(), Error> {
        if self.state.belongs_to_parent() {
            return Ok(());
        }
        self.state.drain_all()
    }

    /// Returns the bytes that [`Arena::shrink`] could give back: the count callback of a shrinker.
    /// Exact at rest. Takes one lock per node.
    #[must_use]
    pub fn reclaimable(&self) -> u64 {
        let statistics = self.statistics();
        statistics.lazy_bytes + statistics.pooled_bytes
    }

    /// Gives back what needs no wait: freed memory that readers do not hold up, and the pools'
    /// address space. Returns the number of bytes. The scan callback of a shrinker (the kernel's
    /// `vmap-node`).
    ///
    /// May be called inside sections. Takes a membarrier at most, and the system calls of
    /// [`Arena::drain`]. Not async-signal-safe.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use stillpoint_lru::{Hierarchy, Scope, Shrink};
    /// use stillpoint_vmap::Arena;
    ///
    /// struct Freed(Arena);
    /// impl Shrink for Freed {
    ///     fn count(&self, _scope: &Scope<'_>) -> usize {
    ///         (self.0.reclaimable() >> 12) as usize
    ///     }
    ///     fn scan(&self, _scope: &Scope<'_>, _pages: usize) -> Option<usize> {
    ///         Some((self.0.shrink() >> 12) as usize)
    ///     }
    ///     fn seeks(&self) -> u32 {
    ///         0 // nothing is lost with it
    ///     }
    ///     fn per_tenant(&self) -> bool {
    ///         false
    ///     }
    /// }
    ///
    /// let (arena, hierarchy) = (Arena::new()?, Hierarchy::new());
    /// let _registered = hierarchy.register(Arc::new(Freed(arena.clone())))?;
    /// drop(arena.alloc(1 << 20, 1)?);
    /// assert!(arena.reclaimable() >= 1 << 20);
    /// let _ = hierarchy.reclaim(); // what a `PressureWatch` does when memory is short
    /// assert_eq!(arena.reclaimable(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shrink(&self) -> u64 {
        let state = &*self.state;
        if state.belongs_to_parent() {
            return 0;
        }
        let mut queue = state.drain.queue.lock();
        let _ = state.gather(&mut queue);
        let before = state.drain.pending.load(Ordering::Relaxed);
        let _ = state.purge_ready(&mut queue);
        let purged = before - state.drain.pending.load(Ordering::Relaxed);
        let pages = purged + state.empty_pools(&mut queue);
        drop(queue);
        pages << PAGE_BITS
    }
}

/// Drains without waiting for readers: a fault that torture must detect.
///
/// # Safety
///
/// Readers access what they find in the arena by checked copies only, and accept any bytes: the
/// memory of an area that is found in a section may be purged, and belong to another area, before
/// the section ends.
pub unsafe fn drain_without_grace_period(arena: &Arena) {
    if arena.state.belongs_to_parent() {
        return;
    }
    let mut queue = arena.state.drain.queue.lock();
    let _ = arena.state.gather(&mut queue);
    let _ = arena.state.purge_while(&mut queue, |_| true);
}
