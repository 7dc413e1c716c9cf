//! The arena's free address space: what neither an area, a pool nor a drain has. All of it reads
//! zero and has no guards.
//!
//! Two trees of the same ranges, by address and by size, under one lock. Below the frontier
//! addresses are accessible; above it they have never been used. Pools stand before this
//! (`node.rs`), so it is asked for some tens of ranges at a time.

use std::collections::{BTreeMap, BTreeSet};
use stillpoint_platform::memory;

/// Returns whether there is memory to purge `count` ranges, and to give them to the free space.
pub(crate) fn has_memory_for(count: usize) -> bool {
    // One range may split a node on each level of both trees, and add a root. Each further one may
    // split a leaf of both, and has its place in lists.
    memory::is_there_for((8 << 10) + count * 512)
}

/// A range of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) start: u32,
    pub(crate) pages: u32,
}

impl Range {
    pub(crate) const fn new(start: u32, pages: u32) -> Self {
        Self { start, pages }
    }

    pub(crate) const fn end(self) -> u32 {
        self.start + self.pages
    }
}

/// Makes one range of sorted ranges that touch or overlap.
pub(crate) fn merge(sorted: &mut Vec<Range>) {
    sorted.dedup_by(|next, last| {
        let touches = last.end() >= next.start;
        if touches {
            last.pages = last.end().max(next.end()) - last.start;
        }
        touches
    });
}

/// Number of ranges that are looked at, from the smallest that holds the pages, before a range is
/// taken that has room for any alignment.
const ALIGNED_LOOKS: usize = 16;

#[derive(Debug)]
pub(crate) struct Space {
    by_start: BTreeMap<u32, u32>,
    by_size: BTreeSet<(u32, u32)>,
    /// Pages free below the frontier.
    free: u64,
    frontier: u32,
    end: u32,
}

impl Space {
    /// Creates a space of `end` pages, accessible up to `frontier`, of which none is free.
    /// Allocates nothing.
    pub(crate) const fn new(frontier: u32, end: u32) -> Self {
        Self {
            by_start: BTreeMap::new(),
            by_size: BTreeSet::new(),
            free: 0,
            frontier,
            end,
        }
    }

    pub(crate) fn free_pages(&self) -> u64 {
        self.free
    }

    pub(crate) fn frontier(&self) -> u32 {
        self.frontier
    }

    /// Takes `pages` from a multiple of `align`, out of the smallest range that holds them, the
    /// lowest of several. The rest of it stays free.
    pub(crate) fn take(&mut self, pages: u32, align: u32) -> Option<u32> {
        let fit = |&(size, start): &(u32, u32)| {
            let aligned = start.checked_next_multiple_of(align)?;
            (aligned.checked_add(pages)? <= start + size)
                .then_some((Range::new(start, size), aligned))
        };
        let close = self
            .by_size
            .range((pages, 0)..)
            .take(ALIGNED_LOOKS)
            .find_map(fit);
        let sure = || {
            self.by_size
                .range((pages.checked_add(align - 1)?, 0)..)
                .next()
                .and_then(fit)
        };
        // A range that happens to fit may stand behind any number that do not. The last one, which
        // ends at the frontier, has to be found.
        let any = || {
            self.by_size
                .range((pages, 0)..)
                .skip(ALIGNED_LOOKS)
                .find_map(fit)
        };
        let (range, at) = close.or_else(sure).or_else(any)?;
        self.remove(range);
        self.insert(Range::new(range.start, at - range.start));
        self.insert(Range::new(at + pages, range.end() - (at + pages)));
        Some(at)
    }

    /// Returns the nearest frontier at which [`Space::take`] succeeds; `None` if the arena ends
    /// before.
    pub(crate) fn needed_frontier(&self, pages: u32, align: u32) -> Option<u32> {
        let last = self
            .by_start
            .last_key_value()
            .map(|(&start, &pages)| Range::new(start, pages));
        let from = last
            .filter(|last| last.end() == self.frontier)
            .map_or(self.frontier, |last| last.start);
        let needed = from.checked_next_multiple_of(align)?.checked_add(pages)?;
        (needed <= self.end).then_some(needed)
    }

    /// Moves the frontier; what it passes is free.
    pub(crate) fn advance(&mut self, frontier: u32) {
        debug_assert!(self.frontier <= frontier && frontier <= self.end);
        let passed = Range::new(self.frontier, frontier - self.frontier);
        self.frontier = frontier;
        self.give(passed);
    }

    /// Frees a range, and joins it to its neighbours.
    pub(crate) fn give(&mut self, range: Range) {
        if range.pages == 0 {
            return;
        }
        let mut range = range;
        if let Some((&start, &pages)) = self.by_start.range(..range.start).next_back() {
            debug_assert!(start + pages <= range.start, "given twice");
            if start + pages == range.start {
                self.remove(Range::new(start, pages));
                range = Range::new(start, pages + range.pages);
            }
        }
        if let Some((&start, &pages)) = self.by_start.range(range.start..).next() {
            debug_assert!(range.end() <= start, "given twice");
            if start == range.end() {
                self.remove(Range::new(start, pages));
                range.pages += pages;
            }
        }
        self.insert(range);
    }

    fn insert(&mut self, range: Range) {
        if range.pages > 0 {
            self.by_start.insert(range.start, range.pages);
            self.by_size.insert((range.pages, range.start));
            self.free += u64::from(range.pages);
        }
    }

    fn remove(&mut self, range: Range) {
        self.by_start.remove(&range.start);
        self.by_size.remove(&(range.pages, range.start));
        self.free -= u64::from(range.pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const END: u32 = 512;

    #[test]
    fn merge_adjacent_ranges() {
        let mut ranges = [(1, 2), (3, 1), (5, 1), (5, 3), (6, 1)]
            .map(|(start, pages)| Range::new(start, pages))
            .to_vec();
        merge(&mut ranges);
        assert_eq!(ranges, [Range::new(1, 3), Range::new(5, 3)]);
    }

    proptest! {
        /// Against an array of pages: nothing is handed out twice, everything comes back as one
        /// range, alignment holds.
        #[test]
    #[cfg_attr(miri, ignore = "safe code only, and minutes of it")]
        fn free_space_matches_the_model(steps in prop::collection::vec((1..40_u32, 0..5_u32, any::<prop::sample::Index>(), any::<bool>()), 1..120)) {
            let mut space = Space::new(0, END);
            let mut taken = vec![false; END as usize];
            let mut held: Vec<Range> = Vec::new();
            for (pages, align, which, give) in steps {
                if give && !held.is_empty() {
                    let range = held.swap_remove(which.index(held.len()));
                    (range.start..range.end()).for_each(|page| taken[page as usize] = false);
                    space.give(range);
                    continue;
                }
                let align = 1 << align;
                let mut at = space.take(pages, align);
                if at.is_none() && let Some(frontier) = space.needed_frontier(pages, align) {
                    space.advance(frontier.next_multiple_of(64));
                    at = space.take(pages, align);
                    prop_assert!(at.is_some());
                }
                let fits = |start: u32| start.is_multiple_of(align) && (start..start + pages).all(|page| !taken[page as usize]);
                match at {
                    Some(at) => {
                        prop_assert!(fits(at));
                        (at..at + pages).for_each(|page| taken[page as usize] = true);
                        held.push(Range::new(at, pages));
                    }
                    None => prop_assert!(!(0..=END - pages).any(fits)),
                }
                let free = taken[..space.frontier() as usize].iter().filter(|taken| !**taken).count();
                prop_assert_eq!(space.free_pages(), free as u64);
            }
            held.drain(..).for_each(|range| space.give(range));
            prop_assert_eq!(space.by_start.len(), usize::from(space.frontier() > 0));
        }
    }
}
