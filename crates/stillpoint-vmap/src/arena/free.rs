//! Freeing: an area leaves the map, and its range waits for a drain.

use super::state::{ArenaState, add};
use crate::{
    node::{Freed, Home, Node},
    space::{Range, has_memory_for},
};
use stillpoint_platform::{
    mmap::Advice,
    sync::{MutexGuard, Ordering},
    user_code,
};

impl ArenaState {
    /// Returns ranges, guard pages included, to the free space. If the guards cannot be removed, the
    /// ranges wait for a later drain.
    pub(crate) fn release(&self, ranges: Vec<Range>) {
        let mut done = ranges.len();
        if self.settings.guard > 0 || self.settings.poison {
            (done, _) = self.advise(ranges.iter().copied(), Advice::RemoveGuards);
        }
        let mut space = self.space.lock();
        ranges[..done].iter().for_each(|&range| space.give(range));
        drop(space);
        if done < ranges.len() {
            let (_, shard) = self.this_node();
            let mut node = shard.node.lock();
            for &range in &ranges[done..] {
                let home = Home::NONE;
                // A range that cannot be recorded is leaked.
                let _ = self.add_lazy(&mut node, Freed { range, home });
            }
        }
    }

    /// Frees an area: look-ups no longer find it, and its range waits for a drain.
    pub(crate) fn free(&self, range: Range, home: Home) {
        self.map.clear(range.start, range.pages);
        if self.is_lost.load(Ordering::Relaxed) {
            return;
        }
        self.free_unpublished(range, home);
    }

    /// The second half of a free, for an area that is no longer in the map.
    pub(crate) fn free_unpublished(&self, range: Range, home: Home) {
        let (index, shard) = self.this_node();
        self.free_in(index, shard.node.lock(), range, home);
    }

    /// Like [`ArenaState::free_unpublished`], on node `index`, which is locked.
    pub(crate) fn free_in(
        &self,
        index: usize,
        mut node: MutexGuard<'_, Node>,
        range: Range,
        home: Home,
    ) {
        let whole = Range::new(range.start, range.pages + self.settings.guard);
        let shard = &self.shards[index];
        add(&shard.areas_freed, 1);
        add(&shard.pages_freed, u64::from(range.pages));
        if self.belongs_to_parent() {
            return;
        }
        let much = self.add_lazy(&mut node, Freed { range: whole, home });
        drop(node);
        match much {
            Some(true) => self.try_drain(),
            Some(false) => {}
            None => self.drain_now(whole),
        }
    }

    /// Leaves a range to a later drain. Returns whether the caller should drain once it has
    /// released the node's lock; `None` if there is no memory to record the range. No thread waits
    /// for memory under that lock.
    #[inline]
    pub(crate) fn add_lazy(&self, node: &mut Node, freed: Freed) -> Option<bool> {
        node.has_room().then_some(())?;
        node.push_freed(freed);
        let pages = u64::from(freed.range.pages);
        // Under the node's lock, so that no gatherer subtracts it first.
        Some(
            self.drain.unbatched.fetch_add(pages, Ordering::Relaxed) + pages
                > self.settings.lazy_pages / 2,
        )
    }

    /// Purges a range that has left the map but cannot be recorded, after a grace period. If the
    /// caller may not wait, the system refuses, or there is still no memory, the range is leaked.
    #[cold]
    #[inline(never)]
    fn drain_now(&self, range: Range) {
        if self.domain.is_reading() || user_code::runs_for(self.domain_id) {
            return;
        }
        self.domain.synchronize();
        let (_, purged) = self.advise([range].into_iter(), self.settings.purge);
        if purged.is_ok() && has_memory_for(1) {
            self.release(vec![range]);
        }
    }
}
