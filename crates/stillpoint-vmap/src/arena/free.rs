//! Taking back: an area leaves the map, and its range waits for a drain.

use super::state::{ArenaState, Shard, add};
use crate::{
    node::{Freed, Home, Node},
    space::Range,
};
use stillpoint::internal::is_reading;
use stillpoint_platform::{
    mmap::Advice,
    sync::{MutexGuard, Ordering, lock},
    user_code,
};

impl ArenaState {
    /// Gives ranges, guard pages included, to the free space. If the guards cannot be removed they
    /// wait for a later drain.
    pub(crate) fn release(&self, ranges: Vec<Range>) {
        let (done, _) = match self.settings.guard > 0 || self.settings.poison {
            true => self.advise(ranges.iter().copied(), Advice::RemoveGuards),
            false => (ranges.len(), Ok(())),
        };
        let mut space = lock(&self.space);
        ranges[..done].iter().for_each(|&range| space.give(range));
        drop(space);
        if done < ranges.len() {
            let mut node = lock(&self.this_node().1.node);
            for &range in &ranges[done..] {
                // What cannot be remembered either is lost from now on.
                let _ = self.add_lazy(
                    &mut node,
                    Freed {
                        range,
                        home: Home::NONE,
                    },
                );
            }
        }
    }

    /// Takes an area's range back: it is found no more, and waits for a drain.
    pub(crate) fn free(&self, range: Range, home: Home) {
        self.ensure_rebuilt();
        self.map.clear(range.start, range.pages);
        self.free_unpublished(range, home);
    }

    /// The rest of it, for an area that is not in the map (any more).
    pub(crate) fn free_unpublished(&self, range: Range, home: Home) {
        let (_, shard) = self.this_node();
        self.free_in(shard, lock(&shard.node), range, home);
    }

    /// The same on that node.
    pub(crate) fn free_in(
        &self,
        shard: &Shard,
        mut node: MutexGuard<'_, Node>,
        range: Range,
        home: Home,
    ) {
        let whole = Range::new(range.start, range.pages + self.settings.guard);
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

    /// Leaves a range to a later drain. Whether there should be one now: the caller sees to it when
    /// it has let go of the node.
    ///
    /// No thread waits for memory under that lock: `None` if there is none to remember the range
    /// by.
    #[inline]
    pub(crate) fn add_lazy(&self, node: &mut Node, freed: Freed) -> Option<bool> {
        node.has_room().then_some(())?;
        node.freed.push(freed);
        let pages = u64::from(freed.range.pages);
        // Under the node's lock, so that no gatherer subtracts it first.
        Some(
            self.drain.unbatched.fetch_add(pages, Ordering::Relaxed) + pages
                > self.settings.lazy_pages / 2,
        )
    }

    /// A range that is found no more, and cannot be remembered: its memory is taken after a grace
    /// period of its own. Where there is no waiting, or the system refuses, it is lost.
    #[cold]
    #[inline(never)]
    pub(crate) fn drain_now(&self, range: Range) {
        if is_reading(&self.domain) || user_code::runs_for(self.domain_id) {
            return;
        }
        self.domain.synchronize();
        if self
            .advise([range].into_iter(), self.settings.purge)
            .1
            .is_ok()
        {
            self.release(vec![range]);
        }
    }
}
