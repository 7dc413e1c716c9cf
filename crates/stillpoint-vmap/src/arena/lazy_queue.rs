//! The queue of ranges that have been freed and still have their memory: the kernel's lazily purged
//! areas.

use crate::node::Freed;
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use stillpoint::Cookie;
use stillpoint_platform::{
    fork_mutex::ForkMutex,
    sync::{AtomicU64, Ordering},
};

/// Freed ranges that wait for their grace period, sorted.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) cookie: Cookie,
    pub(crate) ranges: Vec<Freed>,
}

impl Batch {
    pub(crate) fn pages(&self) -> u64 {
        self.ranges
            .iter()
            .map(|freed| u64::from(freed.range.pages))
            .sum()
    }
}

pub(crate) type Queue = VecDeque<Batch>;

#[derive(Debug)]
pub(crate) struct LazyQueue {
    pub(crate) queue: ForkMutex<Queue>,
    /// Pages that were freed and are not in the queue yet.
    pub(crate) unbatched: CachePadded<AtomicU64>,
    /// Pages in the queue; written under its lock.
    pub(crate) pending: AtomicU64,
    /// Batches purged, their pages, and batches that the system refused in part.
    pub(crate) drains: AtomicU64,
    pub(crate) pages: AtomicU64,
    pub(crate) failures: AtomicU64,
}

impl LazyQueue {
    pub(crate) fn new() -> Self {
        Self {
            queue: ForkMutex::new(Queue::new()),
            unbatched: CachePadded::new(AtomicU64::new(0)),
            pending: AtomicU64::new(0),
            drains: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// Returns the number of pages that are freed and still have their memory.
    pub(crate) fn waiting(&self) -> u64 {
        self.unbatched.load(Ordering::Relaxed) + self.pending.load(Ordering::Relaxed)
    }
}
