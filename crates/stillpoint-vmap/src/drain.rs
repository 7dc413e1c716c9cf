//! Giving freed memory back: gather, sort, merge, wait out a grace period, one call for all of it.
//!
//! A **batch** is what had been freed when somebody gathered it. It gets a cookie, named after all of its areas had left the map (the nodes' locks
//! order that: V3, the lock, W1), and waits in a queue. Whoever finds the cookie's grace period ended takes the batch out, has the kernel take
//! the memory of its ranges, merged, and only then gives the ranges to the pools or the free space (V4 in `map.rs`).
//!
//! The queue's lock is held from taking a batch out until its ranges are where they belong, system calls included, so that a drain
//! which has got the lock knows that no other is half done. Nobody waits for a grace period under it, or for the lock in an ordinary free.

use super::{
    arena::{Arena, Inner},
    error::Error,
    node::{CLASSES, Freed, Home, Node},
    space::{Range, merge, merged},
};
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use stillpoint::{
    Cookie, Domain,
    internal::{is_reading, wait_until},
};
use stillpoint_platform::{
    clock::{self, Nanos},
    memory,
    mmap::{Advice, Refused},
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock, try_lock},
    user_code,
};

/// How long who frees waits for readers, outside sections, when too much waits for them already.
const PATIENCE: u64 = 10_000_000;

/// How long an allocation that finds the address space used up waits for readers, outside sections: a hundred times as long as a free does.
/// Not for ever: a section of another domain that the caller is in, or an owned guard that it holds, may be what those readers wait for.
pub(super) const ALLOC_PATIENCE: u64 = 1_000_000_000;

/// What the purge of a batch allocates by the way for each of its ranges, at most.
const PURGE_BYTES: usize = 64;

const NO_MEMORY: Refused = Refused { call: "malloc", errno: libc::ENOMEM };

/// Freed ranges that wait for their grace period, sorted.
#[derive(Debug)]
pub(super) struct Batch {
    cookie: Cookie,
    pub(super) ranges: Vec<Freed>,
}

impl Batch {
    fn pages(&self) -> u64 {
        self.ranges.iter().map(|freed| u64::from(freed.range.pages)).sum()
    }
}

type Queue = VecDeque<Batch>;

#[derive(Debug)]
pub(super) struct Drain {
    pub(super) queue: Mutex<Queue>,
    /// Pages that were freed and not gathered.
    fresh: CachePadded<AtomicU64>,
    /// Pages in the queue; written under its lock.
    pending: AtomicU64,
    pub(super) drains: AtomicU64,
    pub(super) pages: AtomicU64,
    pub(super) failures: AtomicU64,
}

impl Drain {
    pub(super) const fn new() -> Self {
        Self {
            queue: Mutex::new(Queue::new()),
            fresh: CachePadded::new(AtomicU64::new(0)),
            pending: AtomicU64::new(0),
            drains: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// Pages that are freed and still have their memory.
    pub(super) fn waiting(&self) -> u64 {
        self.fresh.load(Ordering::Relaxed) + self.pending.load(Ordering::Relaxed)
    }

    /// # Safety
    ///
    /// As for [`ForkReset::reset_in_child`](stillpoint_platform::fork::ForkReset::reset_in_child).
    pub(super) unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise; no user code runs under the lock.
        unsafe { self.queue.reinit(Queue::new()) };
        self.fresh.store(0, Ordering::Relaxed);
        self.pending.store(0, Ordering::Relaxed);
    }
}

impl Inner {
    /// Leaves a range to a later drain. Whether there should be one now: the caller sees to it when it has let go of the node.
    ///
    /// Nobody waits for memory under that lock: `None` if there is none to remember the range by.
    #[inline]
    pub(super) fn leave(&self, node: &mut Node, freed: Freed) -> Option<bool> {
        node.has_room().then_some(())?;
        node.freed.push(freed);
        let pages = u64::from(freed.range.pages);
        // Under the node's lock, so that no gatherer subtracts it first.
        Some(self.drain.fresh.fetch_add(pages, Ordering::Relaxed) + pages > self.settings.lazy_pages / 2)
    }

    /// A range that is found no more, and cannot be remembered: its memory is taken after a grace period of its own. Where there is no waiting,
    /// or the system refuses, it stays what it is, and nobody's.
    #[cold]
    #[inline(never)]
    pub(super) fn drain_alone(&self, range: Range) {
        if is_reading(&self.domain) || user_code::runs_for(self.domain_id) {
            return;
        }
        self.domain.synchronize();
        if self.advise([range].into_iter(), self.settings.purge).1.is_ok() {
            self.release(vec![range]);
        }
    }

    /// A drain by one who frees: of what has ripened, unless somebody else is at it.
    #[cold]
    #[inline(never)]
    pub(super) fn relieve(&self) {
        let Some(mut queue) = try_lock(&self.drain.queue) else { return };
        // What stays for want of memory is another drain's.
        let _ = self.gather(&mut queue);
        let _ = self.purge_ripe(&mut queue);
        let Some(oldest) = queue.front().map(|batch| batch.cookie) else { return };
        drop(queue);
        // Readers hold it up (or the system refuses: then there is nothing to wait for).
        if self.drain.waiting() > self.settings.lazy_pages
            && !is_reading(&self.domain)
            && wait_until(&self.domain, oldest, clock::now() + PATIENCE)
            && let Some(mut queue) = try_lock(&self.drain.queue)
        {
            let _ = self.purge_ripe(&mut queue);
        }
    }

    /// Makes a batch of all that has been freed, as far as there is memory for it; an error if that was not all. Its cookie is that of the newest.
    fn gather(&self, queue: &mut Queue) -> Result<(), Refused> {
        memory::refusable(|| queue.try_reserve(1)).map_err(|_| NO_MEMORY)?;
        let mut ranges = Vec::new();
        let mut result = Ok(());
        for shard in &self.shards {
            let freed = &mut lock(&shard.node).freed;
            if memory::refusable(|| ranges.try_reserve(freed.len())).is_err() {
                result = Err(NO_MEMORY);
                break;
            }
            ranges.append(freed);
        }
        let pages: u64 = ranges.iter().map(|freed| u64::from(freed.range.pages)).sum();
        self.enqueue(queue, ranges);
        self.drain.fresh.fetch_sub(pages, Ordering::Relaxed);
        result
    }

    fn enqueue(&self, queue: &mut Queue, mut ranges: Vec<Freed>) {
        if ranges.is_empty() {
            return;
        }
        ranges.sort_unstable_by_key(|freed| freed.range.start);
        // After V3 of each of them: it came before the node's lock.
        let batch = Batch { cookie: self.domain.get_state(), ranges };
        self.drain.pending.fetch_add(batch.pages(), Ordering::Relaxed);
        queue.push_back(batch);
    }

    /// Purges the batches whose grace periods have ended, or end by one attempt.
    fn purge_ripe(&self, queue: &mut Queue) -> Result<(), Refused> {
        self.purge_while(queue, |batch| self.domain.poll(batch.cookie))
    }

    /// The same with another idea of which batches are due, oldest first.
    fn purge_while(&self, queue: &mut Queue, is_due: impl Fn(&Batch) -> bool) -> Result<(), Refused> {
        let mut result = Ok(());
        let mut refused = Vec::new();
        while let Some(oldest) = queue.front()
            && is_due(oldest)
        {
            if !memory::is_there_for(oldest.ranges.len() * PURGE_BYTES) {
                result = result.and(Err(NO_MEMORY));
                break;
            }
            let Some(batch) = queue.pop_front() else { break };
            let before = batch.pages();
            let (left, outcome) = self.purge(batch);
            let done = before - left.as_ref().map_or(0, Batch::pages);
            self.drain.pending.fetch_sub(done, Ordering::Relaxed);
            self.drain.pages.fetch_add(done, Ordering::Relaxed);
            refused.extend(left);
            let count = if outcome.is_ok() { &self.drain.drains } else { &self.drain.failures };
            count.fetch_add(1, Ordering::Relaxed);
            result = result.and(outcome);
        }
        // For the next drain; what is behind them has not waited for them.
        refused.into_iter().rev().for_each(|left| queue.push_front(left));
        result
    }

    /// Takes the memory out of a batch's ranges, and hands them on to be used again [V4]. What the system refuses comes back, with the
    /// first reason.
    fn purge(&self, batch: Batch) -> (Option<Batch>, Result<(), Refused>) {
        let ranges = merged(batch.ranges.iter().map(|freed| freed.range));
        let mut refused: Vec<Range> = Vec::new();
        let mut result = Ok(());
        let mut rest = &ranges[..];
        while !rest.is_empty() {
            let (mut done, mut outcome) = self.advise(rest.iter().copied(), self.settings.purge);
            if self.settings.poison && done > 0 {
                let poisoned = self.advise(rest[..done].iter().copied(), Advice::InstallGuards);
                if poisoned.1.is_err() {
                    (done, outcome) = poisoned;
                }
            }
            if outcome.is_err() {
                refused.push(rest[done]);
                done += 1;
            }
            rest = &rest[done..];
            result = result.and(outcome);
        }
        let Batch { cookie, ranges: freed } = batch;
        let is_refused = |freed: &Freed| {
            let next = refused.partition_point(|range| range.end() <= freed.range.start);
            refused.get(next).is_some_and(|range| range.start <= freed.range.start)
        };
        let (left, purged): (Vec<_>, Vec<_>) = freed.into_iter().partition(is_refused);
        self.hand_on(&purged);
        ((!left.is_empty()).then_some(Batch { cookie, ranges: left }), result)
    }

    /// Gives purged ranges to the pools that they come from, or else to the free space; and from the pools what nobody needs.
    fn hand_on(&self, purged: &[Freed]) {
        let guard = self.settings.guard;
        let mut released = Vec::new();
        let mut at: Option<(Home, MutexGuard<'_, Node>)> = None;
        for freed in purged {
            let pages = freed.range.pages - guard;
            let Some(index) = freed.home.index().filter(|_| pages <= CLASSES) else {
                released.push(freed.range);
                continue;
            };
            if at.as_ref().is_none_or(|(home, _)| *home != freed.home) {
                drop(at.take());
                at = Some((freed.home, lock(&self.shards[index].node)));
            }
            let (_, node) = at.as_mut().expect("set above");
            if !node.give(Range::new(freed.range.start, pages)) {
                released.push(freed.range);
            }
        }
        drop(at);
        self.decay(false, &mut released);
        self.release(released);
    }

    fn decay(&self, all: bool, released: &mut Vec<Range>) {
        let guard = self.settings.guard;
        for shard in &self.shards {
            lock(&shard.node).decay(all, guard, released);
        }
        released.sort_unstable();
        merge(released);
    }

    /// Empties the pools into the free space, under the queue's lock: whoever comes after finds what was in them there. How many pages that were.
    fn empty_pools(&self, _queue: &mut Queue) -> u64 {
        let mut released = Vec::new();
        self.decay(true, &mut released);
        let pages = released.iter().map(|range| u64::from(range.pages)).sum();
        self.release(released);
        pages
    }

    /// For an allocation that finds the address space used up: brings back all there is. Waits for a grace period outside sections, until
    /// `deadline`.
    pub(super) fn make_room(&self, deadline: Nanos) {
        // In a section, and after the deadline, it is what can be had without waiting; what is refused shows in the statistics.
        let _ = self.drain_until(|domain, cookie| {
            wait_until(domain, cookie, deadline);
        });
        let mut queue = lock(&self.drain.queue);
        let _ = self.purge_ripe(&mut queue);
        self.empty_pools(&mut queue);
    }

    fn drain_all(&self) -> Result<(), Error> {
        self.drain_until(|domain, cookie| domain.cond_synchronize(cookie))
    }

    /// The same with another way of waiting for the grace period.
    fn drain_until(&self, wait: impl FnOnce(&Domain, Cookie)) -> Result<(), Error> {
        self.settle();
        let (gathered, cookie) = {
            let mut queue = lock(&self.drain.queue);
            (self.gather(&mut queue), queue.back().map(|batch| batch.cookie))
        };
        if let Some(cookie) = cookie {
            if is_reading(&self.domain) {
                return Err(Error::InSection);
            }
            wait(&self.domain, cookie);
        }
        let purged = self.purge_ripe(&mut lock(&self.drain.queue));
        Ok(gathered.and(purged)?)
    }

    /// In the child of a fork: what no area has is free, or was about to be. It gets a batch of its own.
    #[cold]
    pub(super) fn find_lost(&self) {
        let mut queue = lock(&self.drain.queue);
        let frontier = self.lost.load(Ordering::Relaxed);
        // An area that a vanished thread had published or cleared in part counts whole.
        let mut live = Vec::new();
        let mut at = 0;
        while let Some(extent) = self.map.find_or_next(at, frontier) {
            let (start, pages) = extent.pages();
            live.push(Range::new(start, pages + self.settings.guard));
            at = at.max(extent.end().next_multiple_of(super::span::PAGE));
        }
        live.sort_unstable();
        let mut gaps = Vec::new();
        let mut free = 0;
        for range in merged(live).into_iter().chain((frontier > 0).then_some(Range::new(frontier, 0))) {
            if range.start > free {
                gaps.push(Freed { range: Range::new(free, range.start - free), home: Home::NONE });
            }
            free = range.end();
        }
        self.enqueue(&mut queue, gaps);
        // Release, pairs with `settle`: who finds nothing lost there finds the free space as we have left it.
        self.lost.store(0, Ordering::Release);
    }
}

/// As [`Arena::drain`], without waiting for readers: what a torture must catch.
///
/// # Safety
///
/// Readers use what they find in the arena by checked copies alone, and take any bytes for what they are: the memory of an area that is
/// found in a section may be purged, and be another area's, before the section ends.
#[doc(hidden)]
pub unsafe fn drain_without_grace_period(arena: &Arena) {
    if arena.inner.is_foreign() {
        return;
    }
    let mut queue = lock(&arena.inner.drain.queue);
    let _ = arena.inner.gather(&mut queue);
    let _ = arena.inner.purge_while(&mut queue, |_| true);
}

impl Arena {
    /// Gives the memory of all that has been freed before back to the system. The kernel's `vm_unmap_aliases()`, or a purge of the lazy list.
    ///
    /// Waits for a grace period of the arena's domain. Afterwards those addresses read zero (see [`Builder::poison`](super::Builder::poison)) and may be used again. Not
    /// async-signal-safe.
    ///
    /// # Errors
    ///
    /// [`Error::InSection`] inside a section of the domain, if anything waits; [`Error::System`] if the system refuses, or has no memory for
    /// the lists that this takes: what is left waits for the next drain, and none of it is used again before.
    pub fn drain(&self) -> Result<(), Error> {
        if self.inner.is_foreign() {
            return Ok(());
        }
        self.inner.drain_all()
    }

    /// What [`Arena::shrink`] could give back, in bytes: the count callback of a shrinker. Exact at rest. Takes a lock a node.
    #[must_use]
    pub fn reclaimable(&self) -> u64 {
        let statistics = self.statistics();
        statistics.lazy_bytes + statistics.pooled_bytes
    }

    /// Gives back what can be had without waiting: the memory of what was freed, unless readers hold it up, and the pools' address
    /// space. The scan callback of a shrinker (the kernel's `vmap-node`). How many bytes that were.
    ///
    /// May be called inside sections. A membarrier at most, and system calls as of [`Arena::drain`]. Not async-signal-safe.
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
    /// let _ = hierarchy.relieve(); // what a `PressureWatch` does when memory is short
    /// assert_eq!(arena.reclaimable(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shrink(&self) -> u64 {
        let inner = &*self.inner;
        if inner.is_foreign() {
            return 0;
        }
        inner.settle();
        let mut queue = lock(&inner.drain.queue);
        let _ = inner.gather(&mut queue);
        let before = inner.drain.pending.load(Ordering::Relaxed);
        let _ = inner.purge_ripe(&mut queue);
        let purged = before - inner.drain.pending.load(Ordering::Relaxed);
        (purged + inner.empty_pools(&mut queue)) << super::span::PAGE_BITS
    }
}
