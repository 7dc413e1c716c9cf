//! Giving freed memory back: gather, sort, merge, wait out a grace period, one call for all of it.
//!
//! A **batch** is what had been freed when it was gathered. It gets a cookie, named after all of
//! its areas had left the map (the nodes' locks order that: `Map::clear`, the lock, W1), and waits
//! in a queue. The first thread that finds the cookie's grace period ended takes the batch out,
//! gives the memory of its merged ranges back to the kernel, and only then returns the ranges to
//! the pools or the free space (the purge in `map.rs`).
//!
//! The queue's lock is held from taking a batch out until its ranges are where they belong, system
//! calls included, so that a drain which holds the lock knows that no other is half done. No thread
//! waits for a grace period under it, and an ordinary free does not wait for the lock.

use super::{
    error::{Error, NO_MEMORY},
    lazy_queue::{Batch, Queue},
    state::ArenaState,
};
use crate::{
    node::{CLASSES, Freed, Home, Node},
    space::{Range, has_memory_for, merge},
};
use stillpoint::{Cookie, Domain, internal::wait_until};
use stillpoint_platform::{
    clock::{self, Nanos},
    mmap::{Advice, Refused},
    sync::{MutexGuard, Ordering},
};

/// Longest time, in nanoseconds, that a free outside sections waits for readers if too much is
/// unreclaimed (back-pressure).
const PATIENCE: u64 = 10_000_000;

/// Longest time, in nanoseconds, that an allocation outside sections waits for readers if the address
/// space is exhausted. The wait has an end because those readers may wait for the caller, which may be in
/// a section of another domain or hold an owned guard.
pub(crate) const ALLOC_PATIENCE: u64 = 1_000_000_000;

impl ArenaState {
    /// Purges batches that are ready, for a free, unless another thread is draining.
    #[cold]
    #[inline(never)]
    pub(crate) fn try_drain(&self) {
        let Some(mut queue) = self.drain.queue.try_lock() else {
            return;
        };
        // If memory runs out, another drain does the rest.
        let _ = self.gather(&mut queue);
        let _ = self.purge_ready(&mut queue);
        let Some(oldest) = queue.front().map(|batch| batch.cookie) else {
            return;
        };
        drop(queue);
        // Readers hold the oldest batch up (or the system refused: then the wait ends at once).
        if self.drain.waiting() > self.settings.lazy_pages
            && !self.domain.is_reading()
            && wait_until(&self.domain, oldest, clock::now() + PATIENCE)
            && let Some(mut queue) = self.drain.queue.try_lock()
        {
            let _ = self.purge_ready(&mut queue);
        }
    }

    /// Makes a batch of all that has been freed, as far as there is memory for it. Returns an error
    /// if some of it is left. The cookie is that of the range freed last.
    pub(crate) fn gather(&self, queue: &mut Queue) -> Result<(), Refused> {
        queue.try_reserve(1).map_err(|_| NO_MEMORY)?;
        let mut ranges = Vec::new();
        let mut result = Ok(());
        for shard in &self.shards {
            let mut node = shard.node.lock();
            if !node.take_freed(&mut ranges) {
                result = Err(NO_MEMORY);
                break;
            }
        }
        let pages: u64 = ranges
            .iter()
            .map(|freed| u64::from(freed.range.pages))
            .sum();
        self.enqueue(queue, ranges);
        self.drain.unbatched.fetch_sub(pages, Ordering::Relaxed);
        result
    }

    pub(crate) fn enqueue(&self, queue: &mut Queue, mut ranges: Vec<Freed>) {
        if ranges.is_empty() {
            return;
        }
        ranges.sort_unstable_by_key(|freed| freed.range.start);
        // After `clear` of each of them: it came before the node's lock.
        let batch = Batch {
            cookie: self.domain.get_state(),
            ranges,
        };
        self.drain
            .pending
            .fetch_add(batch.pages(), Ordering::Relaxed);
        queue.push_back(batch);
    }

    /// Purges the batches whose grace periods have ended, or can be ended by one attempt.
    pub(crate) fn purge_ready(&self, queue: &mut Queue) -> Result<(), Refused> {
        self.purge_while(queue, |batch| self.domain.poll(batch.cookie))
    }

    /// Purges batches, oldest first, while `is_due` says that they are due.
    pub(crate) fn purge_while(
        &self,
        queue: &mut Queue,
        is_due: impl Fn(&Batch) -> bool,
    ) -> Result<(), Refused> {
        let mut result = Ok(());
        let mut refused = Vec::new();
        while let Some(oldest) = queue.front()
            && is_due(oldest)
        {
            if !has_memory_for(oldest.ranges.len()) {
                result = result.and(Err(NO_MEMORY));
                break;
            }
            let Some(batch) = queue.pop_front() else {
                break;
            };
            let before = batch.pages();
            let (left, outcome) = self.purge(batch);
            let done = before - left.as_ref().map_or(0, Batch::pages);
            self.drain.pending.fetch_sub(done, Ordering::Relaxed);
            self.drain.pages.fetch_add(done, Ordering::Relaxed);
            refused.extend(left);
            let count = if outcome.is_ok() {
                &self.drain.drains
            } else {
                &self.drain.failures
            };
            count.fetch_add(1, Ordering::Relaxed);
            result = result.and(outcome);
        }
        // For the next drain; the batches behind them have not waited.
        refused
            .into_iter()
            .rev()
            .for_each(|left| queue.push_front(left));
        result
    }

    /// Takes the memory out of a batch's ranges, and lets the ranges be used again. Returns the
    /// ranges that the system refuses, and the first reason.
    fn purge(&self, batch: Batch) -> (Option<Batch>, Result<(), Refused>) {
        let mut ranges: Vec<_> = batch.ranges.iter().map(|freed| freed.range).collect();
        merge(&mut ranges);
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
        let Batch {
            cookie,
            ranges: freed,
        } = batch;
        let is_refused = |freed: &Freed| {
            let next = refused.partition_point(|range| range.end() <= freed.range.start);
            refused
                .get(next)
                .is_some_and(|range| range.start <= freed.range.start)
        };
        let (left, purged): (Vec<_>, Vec<_>) = freed.into_iter().partition(is_refused);
        self.return_ranges(&purged);
        (
            (!left.is_empty()).then_some(Batch {
                cookie,
                ranges: left,
            }),
            result,
        )
    }

    /// Returns purged ranges to the pools that they came from, or else to the free space, and moves
    /// ranges that the pools do not need to the free space.
    fn return_ranges(&self, purged: &[Freed]) {
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
                at = Some((freed.home, self.shards[index].node.lock()));
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
            shard.node.lock().decay(all, guard, released);
        }
        released.sort_unstable();
        merge(released);
    }

    /// Empties the pools into the free space, under the queue's lock, so that later allocations
    /// find their ranges there. Returns the number of pages.
    pub(crate) fn empty_pools(&self, _queue: &mut Queue) -> u64 {
        let mut released = Vec::new();
        self.decay(true, &mut released);
        let pages = released.iter().map(|range| u64::from(range.pages)).sum();
        self.release(released);
        pages
    }

    /// Reclaims everything, for an allocation that finds the address space exhausted. Outside
    /// sections it waits for a grace period, until `deadline`.
    pub(crate) fn drain_for_alloc(&self, deadline: Nanos) {
        // In a section, or after the deadline, this reclaims what needs no wait. Refusals show in
        // the statistics.
        let _ = self.drain_until(|domain, cookie| {
            wait_until(domain, cookie, deadline);
        });
        let mut queue = self.drain.queue.lock();
        let _ = self.purge_ready(&mut queue);
        self.empty_pools(&mut queue);
    }

    pub(crate) fn drain_all(&self) -> Result<(), Error> {
        self.drain_until(|domain, cookie| domain.cond_synchronize(cookie))
    }

    /// Drains, with `wait` as the way of waiting for the grace period.
    fn drain_until(&self, wait: impl FnOnce(&Domain, Cookie)) -> Result<(), Error> {
        let (gathered, cookie) = {
            let mut queue = self.drain.queue.lock();
            (
                self.gather(&mut queue),
                queue.back().map(|batch| batch.cookie),
            )
        };
        if let Some(cookie) = cookie {
            if self.domain.is_reading() {
                return Err(Error::InSection);
            }
            wait(&self.domain, cookie);
        }
        let purged = self.purge_ready(&mut self.drain.queue.lock());
        Ok(gathered.and(purged)?)
    }
}
