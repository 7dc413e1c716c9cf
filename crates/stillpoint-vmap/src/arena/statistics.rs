//! Counts and sizes of an arena.

use super::{Arena, state::Shard};
use crate::span::PAGE_BITS;
use stillpoint_platform::sync::Ordering;

/// An arena's present sizes, and counts since it was built.
// C's `struct stillpoint_arena_statistics` is this struct, and its comments are these. C programs
// pass the size that they know: a new field is a u64 at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[repr(C)]
pub struct ArenaStatistics {
    /// Live areas.
    pub areas: u64,
    /// Size of their pages in bytes.
    pub live_bytes: u64,
    /// Bytes freed but not given back yet, including guard pages.
    pub lazy_bytes: u64,
    /// Bytes of addresses (not memory) ready for use in the pools, without guard pages.
    pub pooled_bytes: u64,
    /// Bytes of addresses (not memory) that are accessible and in no pool.
    pub free_bytes: u64,
    /// Bytes of accessible addresses; the rest of the capacity has never been used.
    pub accessible_bytes: u64,
    /// Bytes of all addresses.
    pub capacity_bytes: u64,
    /// True if there are guard pages behind areas.
    pub guards: bool,
    /// True if the kernel takes several ranges in one call.
    pub vectored: bool,
    /// Areas allocated since the arena was built.
    pub allocated: u64,
    /// Batches given back.
    pub drains: u64,
    /// Size in bytes of those batches, guard pages included.
    pub drained_bytes: u64,
    /// Drains that the system refused in part.
    pub failed_drains: u64,
}

impl Arena {
    /// Returns counts and sizes of the arena. Takes one lock per node. Exact at rest; otherwise a
    /// racy snapshot.
    #[must_use]
    pub fn statistics(&self) -> ArenaStatistics {
        let state = &*self.state;
        let sum = |of: fn(&Shard) -> u64| state.shards.iter().map(|shard| of(shard)).sum::<u64>();
        // What has been freed first: an area that is allocated and freed meanwhile must not make
        // the difference negative. Acquire, for that order of the loads. Needs no partner: the
        // counts are written under the nodes' locks, and this is a racy snapshot.
        let (areas_freed, pages_freed) = (
            sum(|shard| shard.areas_freed.load(Ordering::Acquire)),
            sum(|shard| shard.pages_freed.load(Ordering::Acquire)),
        );
        // Acquire needs no partner: as above.
        let (areas, pages) = (
            sum(|shard| shard.areas.load(Ordering::Acquire)),
            sum(|shard| shard.pages.load(Ordering::Acquire)),
        );
        let (free, frontier) = {
            let space = state.space.lock();
            (space.free_pages(), u64::from(space.frontier()))
        };
        ArenaStatistics {
            areas: areas.saturating_sub(areas_freed),
            live_bytes: pages.saturating_sub(pages_freed) << PAGE_BITS,
            lazy_bytes: state.drain.waiting() << PAGE_BITS,
            pooled_bytes: sum(|shard| shard.node.lock().pooled()) << PAGE_BITS,
            free_bytes: free << PAGE_BITS,
            accessible_bytes: frontier << PAGE_BITS,
            capacity_bytes: u64::from(state.pages) << PAGE_BITS,
            guards: state.settings.guard > 0,
            vectored: state.settings.vectored,
            allocated: areas,
            drains: state.drain.drains.load(Ordering::Relaxed),
            drained_bytes: state.drain.pages.load(Ordering::Relaxed) << PAGE_BITS,
            failed_drains: state.drain.failures.load(Ordering::Relaxed),
        }
    }
}
