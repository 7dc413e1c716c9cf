//! What a child of a fork resets, and how it rebuilds the free space.

use super::{
    lazy::{LazyQueue, Queue},
    state::ArenaState,
};
use crate::{
    node::{Freed, Home, Node},
    space::{Range, Space, merged},
    span::PAGE,
};
use stillpoint_platform::{
    fork::ForkReset,
    sync::{Ordering, lock},
};

impl ForkReset for ArenaState {
    unsafe fn reset_in_child(&self) {
        let frontier = self.frontier.load(Ordering::Relaxed);
        // SAFETY: the caller's promise, for all of them; no user code runs under these locks.
        unsafe {
            self.space.reinit(Space::new(frontier, self.pages));
            self.shards
                .iter()
                .for_each(|shard| shard.node.reinit(Node::new()));
            self.drain.reset_in_child();
        }
        self.rebuild_below.store(frontier, Ordering::Relaxed);
    }
}

impl LazyQueue {
    /// # Safety
    ///
    /// See [`ForkReset::reset_in_child`].
    pub(crate) unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise; no user code runs under the lock.
        unsafe { self.queue.reinit(Queue::new()) };
        self.unbatched.store(0, Ordering::Relaxed);
        self.pending.store(0, Ordering::Relaxed);
    }
}

impl ArenaState {
    /// In the child of a fork, before the first area is freed there: rebuilds the free space.
    #[inline]
    pub(crate) fn ensure_rebuilt(&self) {
        // Acquire, pairs with `rebuild_free_space`: where nothing is lost any more, the free space
        // is as it was found.
        if self.rebuild_below.load(Ordering::Acquire) > 0 && !self.belongs_to_parent() {
            self.rebuild_free_space();
        }
    }

    /// In the child of a fork, collects all addresses that no area has: they are free, or were
    /// about to be. They get a separate batch.
    #[cold]
    pub(crate) fn rebuild_free_space(&self) {
        let mut queue = lock(&self.drain.queue);
        let frontier = self.rebuild_below.load(Ordering::Relaxed);
        // An area that another thread had published or cleared in part at the fork counts as whole.
        let mut live = Vec::new();
        let mut at = 0;
        while let Some(extent) = self.map.find_or_next(at, frontier) {
            let (start, pages) = extent.pages();
            live.push(Range::new(start, pages + self.settings.guard));
            at = at.max(extent.end().next_multiple_of(PAGE));
        }
        live.sort_unstable();
        let mut gaps = Vec::new();
        let mut free = 0;
        for range in merged(live)
            .into_iter()
            .chain((frontier > 0).then_some(Range::new(frontier, 0)))
        {
            if range.start > free {
                gaps.push(Freed {
                    range: Range::new(free, range.start - free),
                    home: Home::NONE,
                });
            }
            free = range.end();
        }
        self.enqueue(&mut queue, gaps);
        // Release, pairs with `ensure_rebuilt`: a thread that finds 0 there finds the free space as
        // we have left it.
        self.rebuild_below.store(0, Ordering::Release);
    }
}
