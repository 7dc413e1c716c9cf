//! The state that all handles and areas of an arena share.

use super::lazy_queue::LazyQueue;
use crate::{
    map::{Map, SLOT_PAGES},
    node::Node,
    space::{Range, Space},
    span::PAGE_BITS,
};
use crossbeam_utils::CachePadded;
use std::{fmt, os::fd::OwnedFd, panic::Location, ptr::NonNull, slice};
use stillpoint::internal::Kept;
use stillpoint_platform::{
    cpu,
    fork::{AtForkHandle, ForkReset, Process, process},
    fork_mutex::ForkMutex,
    mmap::{Advice, Mapping, Pages, Refused, Table, advise},
    sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

/// Number of ranges on which advice is given at a time.
const ADVISED: usize = 500;

/// Pages that are made accessible at a time: the least, and the most unless an area is larger.
pub(crate) const CHUNK: u32 = SLOT_PAGES;
pub(crate) const LARGEST_CHUNK: u32 = 32 * CHUNK;

/// How an arena was built.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Guard pages behind each area: 1, or 0 without guards.
    pub(crate) guard: u32,
    /// True if freed ranges are guarded until they are used again.
    pub(crate) poison: bool,
    /// True if areas of 2 MiB and more begin at a multiple of that.
    pub(crate) huge: bool,
    /// True if the kernel takes many ranges in one call.
    pub(crate) vectored: bool,
    /// The advice that takes the memory out of pages.
    pub(crate) purge: Advice,
    /// Pages that may wait for a drain.
    pub(crate) lazy_pages: u64,
}

/// The part of the state that threads on some CPUs share.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) node: ForkMutex<Node>,
    /// Areas and pages that have been handed out and freed here; written under the lock.
    pub(crate) areas: AtomicU64,
    pub(crate) areas_freed: AtomicU64,
    pub(crate) pages: AtomicU64,
    pub(crate) pages_freed: AtomicU64,
}

impl Shard {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            node: ForkMutex::new(Node::new()),
            areas: zero(),
            areas_freed: zero(),
            pages: zero(),
            pages_freed: zero(),
        }
    }
}

/// Adds to a count that only the holder of a lock writes.
#[inline]
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

pub(crate) struct ArenaState {
    /// First, because fields are dropped in order: no fork finds the others half dropped.
    pub(crate) place: AtForkHandle,
    pub(crate) domain_id: u64,
    pub(crate) map: Map,
    pub(crate) memory: Mapping,
    pub(crate) domain: Kept,
    pub(crate) file: Option<OwnedFd>,
    pub(crate) settings: Settings,
    pub(crate) pages: u32,
    pub(crate) space: ForkMutex<Space>,
    /// The end of what is accessible; written under the lock of `space`.
    pub(crate) frontier: AtomicU32,
    pub(crate) shards: Box<[CachePadded<Shard>]>,
    pub(crate) drain: LazyQueue,
    /// The caller that allocated the area that begins at a page, where that is recorded.
    pub(crate) callers: Option<Table<AtomicPtr<Location<'static>>>>,
    /// The process that made the arena.
    pub(crate) process: Process,
    /// In the child of a fork: whether another thread held a lock of the arena. Drops of areas then
    /// leak their ranges.
    pub(crate) is_lost: AtomicBool,
}

impl ArenaState {
    /// Returns a pointer to the byte `offset` of the arena.
    #[inline(always)]
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: the callers' offsets are of pages that the map or an area knows, all inside the
        // mapping.
        unsafe { self.memory.start().add(offset) }
    }

    pub(crate) fn base(&self) -> usize {
        self.memory.start().addr().get()
    }

    /// Returns whether this process must leave allocation to its parent.
    #[inline]
    pub(crate) fn belongs_to_parent(&self) -> bool {
        self.file.is_some() && process() != self.process
    }

    pub(crate) fn pages_of(&self, range: Range) -> Pages {
        self.memory.pages(
            (range.start as usize) << PAGE_BITS,
            (range.pages as usize) << PAGE_BITS,
        )
    }

    /// Gives `advice` on ranges, as [`advise`] does.
    pub(crate) fn advise(
        &self,
        ranges: impl ExactSizeIterator<Item = Range>,
        advice: Advice,
    ) -> (usize, Result<(), Refused>) {
        let mut ranges = ranges.map(|range| self.pages_of(range));
        let mut all = 0;
        while let Some(first) = ranges.next() {
            // In pieces: large blocks are hard to get. Without memory, one at a time.
            let more = ranges.len().min(ADVISED - 1);
            let mut several = Vec::new();
            let piece = if several.try_reserve_exact(1 + more).is_ok() {
                several.push(first);
                several.extend(ranges.by_ref().take(more));
                several.as_slice()
            } else {
                slice::from_ref(&first)
            };
            // SAFETY: the callers give advice only on ranges that they own.
            let (done, result) = unsafe { advise(piece, advice, self.settings.vectored) };
            all += done;
            if done < piece.len() || result.is_err() {
                return (all, result);
            }
        }
        (all, Ok(()))
    }

    #[inline]
    pub(crate) fn this_node(&self) -> (usize, &Shard) {
        let index = cpu::current() % self.shards.len();
        (index, &self.shards[index])
    }
}

impl ForkReset for ArenaState {
    unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise, for all of them; no user code runs under these locks.
        let is_lost = unsafe {
            let mut is_lost = self.space.reset_in_child();
            is_lost |= self.drain.queue.reset_in_child();
            for shard in &self.shards {
                is_lost |= shard.node.reset_in_child();
            }
            is_lost
        };
        self.is_lost.fetch_or(is_lost, Ordering::Relaxed);
    }
}

impl fmt::Debug for ArenaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArenaState")
            .field("memory", &self.memory)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
