//! Giving memory back when the program asks for it.

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
    /// the system refuses, or has no memory for the lists that this takes: what is left waits for
    /// the next drain, and none of it is used again before.
    pub fn drain(&self) -> Result<(), Error> {
        if self.state.belongs_to_parent() {
            return Ok(());
        }
        self.state.drain_all()
    }

    /// What [`Arena::shrink`] could give back, in bytes: the count callback of a shrinker. Exact at
    /// rest. Takes a lock a node.
    #[must_use]
    pub fn reclaimable(&self) -> u64 {
        let statistics = self.statistics();
        statistics.lazy_bytes + statistics.pooled_bytes
    }

    /// Gives back what can be had without waiting: the memory of what was freed, unless readers
    /// hold it up, and the pools' address space. The scan callback of a shrinker (the kernel's
    /// `vmap-node`). How many bytes that were.
    ///
    /// May be called inside sections. A membarrier at most, and system calls as of
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

/// Like [`Arena::drain`], without waiting for readers: a fault that torture must detect.
///
/// # Safety
///
/// Readers use what they find in the arena by checked copies alone, and take any bytes for what
/// they are: the memory of an area that is found in a section may be purged, and be another area's,
/// before the section ends.
pub unsafe fn drain_without_grace_period(arena: &Arena) {
    if arena.state.belongs_to_parent() {
        return;
    }
    let mut queue = arena.state.drain.queue.lock();
    let _ = arena.state.gather(&mut queue);
    let _ = arena.state.purge_while(&mut queue, |_| true);
}
