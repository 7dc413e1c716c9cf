//! An arena's block in the statistics page: `docs/design/027-statistics-page.md`.
//!
//! What is counted under a node's lock has a word for each node, written under that lock. Bytes that
//! wait for a drain have one more, for those that have been gathered.

use super::state::{ArenaState, Shard};
use crate::{node::Node, span::PAGE_BITS};
use std::fmt;
use stillpoint_platform::{
    stats::{
        Subject,
        layout::{Field, Kind, MOST_OF_A_KIND},
    },
    sync::{AtomicU64, MutexGuard, Ordering, lock},
};

/// No arena has more nodes: the kernel's bound.
pub(crate) const MAX_NODES: usize = 128;

const LIVE: usize = 0;
const AREAS: usize = LIVE + MAX_NODES;
const ALLOCATIONS: usize = AREAS + MAX_NODES;
const LAZY: usize = ALLOCATIONS + MAX_NODES;
const PENDING: usize = LAZY + MAX_NODES;
const CAPACITY: usize = PENDING + 1;
const PURGES: usize = CAPACITY + 1;
const PURGED: usize = PURGES + 1;
const FAILED_PURGES: usize = PURGED + 1;

static ARENA: Kind = Kind {
    name: "arena",
    most: MOST_OF_A_KIND,
    fields: &[
        Field::bytes("live_bytes").in_parts(MAX_NODES),
        Field::gauge("areas").in_parts(MAX_NODES),
        Field::counter("allocations").in_parts(MAX_NODES),
        Field::bytes("lazy_bytes").in_parts(MAX_NODES + 1),
        Field::bytes("capacity_bytes"),
        Field::counter("purges"),
        Field::byte_counter("purged_bytes"),
        Field::counter("failed_purges"),
    ],
};

impl Subject for ArenaState {
    fn publish(&self) {
        if self.published.open(&ARENA, self.number, Name(self)) {
            self.publish_all();
        }
    }
}

/// An arena as the statistics page calls it.
struct Name<'a>(&'a ArenaState);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.name {
            Some(name) => f.write_str(name),
            None => write!(f, "arena {}", self.0.number),
        }
    }
}

impl ArenaState {
    /// Copies all that has been counted: a count that is made meanwhile is copied by who makes it.
    pub(crate) fn publish_all(&self) {
        let capacity = u64::from(self.pages) << PAGE_BITS;
        self.published.tap().set(CAPACITY, capacity);
        for (index, shard) in self.shards.iter().enumerate() {
            self.show_node(index, shard, &lock(&shard.node));
        }
        self.show_pending();
        self.show_drains();
    }

    /// After something was counted at a node, under its lock.
    #[inline]
    pub(crate) fn show_node(&self, index: usize, shard: &Shard, node: &MutexGuard<'_, Node>) {
        let tap = self.published.tap();
        if tap.is_open() {
            let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let (allocated, freed) = (of(&shard.areas), of(&shard.areas_freed));
            // Of one node they may be below 0: an area may be freed at another one.
            let pages = of(&shard.pages).wrapping_sub(of(&shard.pages_freed));
            tap.set(LIVE + index, pages << PAGE_BITS);
            tap.set(AREAS + index, allocated.wrapping_sub(freed));
            tap.set(ALLOCATIONS + index, allocated);
            tap.set(LAZY + index, node.lazy() << PAGE_BITS);
        }
    }

    /// After batches have come or gone.
    pub(crate) fn show_pending(&self) {
        let pending = || self.drain.pending.load(Ordering::Relaxed) << PAGE_BITS;
        self.published.tap().follow(PENDING, pending);
    }

    /// After a batch was given back, or refused.
    pub(crate) fn show_drains(&self) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let tap = self.published.tap();
        tap.raise(PURGES, of(&self.drain.drains));
        tap.raise(PURGED, of(&self.drain.pages) << PAGE_BITS);
        tap.raise(FAILED_PURGES, of(&self.drain.failures));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_that_of_its_field() {
        let numbers = [
            ("live_bytes", LIVE),
            ("areas", AREAS),
            ("allocations", ALLOCATIONS),
            ("lazy_bytes", LAZY),
            ("capacity_bytes", CAPACITY),
            ("purges", PURGES),
            ("purged_bytes", PURGED),
            ("failed_purges", FAILED_PURGES),
        ];
        assert_eq!(numbers.len(), ARENA.fields.len());
        for (name, at) in numbers {
            assert_eq!(ARENA.place_of(name), Some(at), "{name}");
        }
    }
}
