//! Nodes: what threads on some CPUs share, which is pools of ranges that are ready for use, and the
//! ranges that these threads have freed.
//!
//! A pool holds ranges of one exact size, up to 256 pages, the one freed last on top (the kernel's
//! size-class pools). A range in a pool reads zero, and keeps its guard page from one area to the
//! next. Each range belongs to a node, and returns to that node's pool after a drain, whichever
//! thread frees it.

use super::space::{Range, has_memory_for};

/// Largest size in pages of which there is a pool; there is one of each size below.
pub(crate) const CLASSES: u32 = 256;

/// Number of ranges at the top of a pool that are searched for one with the wanted alignment.
const ALIGNED_LOOKS: usize = 8;

/// The number of a node, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home(u16);

impl Home {
    /// The home of ranges that go to the free space.
    pub(crate) const NONE: Self = Self(u16::MAX);

    pub(crate) fn of(index: usize) -> Self {
        Self(u16::try_from(index).expect("fewer nodes than that"))
    }

    pub(crate) fn index(self) -> Option<usize> {
        (self != Self::NONE).then_some(self.0.into())
    }
}

/// A range that was freed, with its guard page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Freed {
    pub(crate) range: Range,
    pub(crate) home: Home,
}

#[derive(Debug)]
struct Pool {
    starts: Vec<u32>,
    /// Smallest number of ranges since the last decay: that many were not needed.
    spare: usize,
}

#[derive(Debug)]
pub(crate) struct Node {
    pools: [Pool; CLASSES as usize],
    /// Ranges that were freed on this node's CPUs and wait for a drain.
    freed: Vec<Freed>,
    /// Number of pages in the pools, guard pages not included.
    pooled: u64,
}

impl Node {
    /// Allocates nothing.
    pub(crate) const fn new() -> Self {
        Self {
            pools: [const {
                Pool {
                    starts: Vec::new(),
                    spare: 0,
                }
            }; CLASSES as usize],
            freed: Vec::new(),
            pooled: 0,
        }
    }

    pub(crate) fn pooled(&self) -> u64 {
        self.pooled
    }

    /// Takes a range of exactly `pages` from a multiple of `align`.
    pub(crate) fn take(&mut self, pages: u32, align: u32) -> Option<u32> {
        let pool = &mut self.pools[pages as usize - 1];
        let start = if align == 1 {
            pool.starts.pop()?
        } else {
            let top = pool.starts.iter().enumerate().rev().take(ALIGNED_LOOKS);
            let at = top
                .into_iter()
                .find(|(_, start)| start.is_multiple_of(align))?
                .0;
            pool.starts.remove(at)
        };
        pool.spare = pool.spare.min(pool.starts.len());
        self.pooled -= u64::from(pages);
        Some(start)
    }

    /// Puts a range into its pool. Returns false if there is no memory for that.
    pub(crate) fn give(&mut self, range: Range) -> bool {
        let starts = &mut self.pools[range.pages as usize - 1].starts;
        let room = starts.try_reserve(1).is_ok();
        if room {
            starts.push(range.start);
            self.pooled += u64::from(range.pages);
        }
        room
    }

    /// Returns the ranges that were freed and wait for a drain.
    pub(crate) fn freed(&self) -> &[Freed] {
        &self.freed
    }

    /// Records a freed range, for which there is [room](Self::has_room).
    pub(crate) fn push_freed(&mut self, freed: Freed) {
        self.freed.push(freed);
    }

    /// Moves the freed ranges to the end of `all`. Returns false if there is no memory for that.
    pub(crate) fn take_freed(&mut self, all: &mut Vec<Freed>) -> bool {
        let room = all.try_reserve(self.freed.len()).is_ok();
        if room {
            all.append(&mut self.freed);
        }
        room
    }

    /// Returns true if another freed range can be recorded, under the same lock.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        self.freed.len() < self.freed.capacity() || self.freed.try_reserve(1).is_ok()
    }

    /// Takes out a quarter of the ranges that were not needed since the last decay, or `all` ranges,
    /// the oldest first. Each includes its `guard` guard pages. Ranges for which there is no memory,
    /// in `out` or in the free space, stay.
    pub(crate) fn decay(&mut self, all: bool, guard: u32, out: &mut Vec<Range>) {
        for (pages, pool) in (1..).zip(&mut self.pools) {
            let count = if all {
                pool.starts.len()
            } else {
                pool.spare.div_ceil(4)
            };
            if count > 0 && (!has_memory_for(out.len() + count) || out.try_reserve(count).is_err())
            {
                continue;
            }
            out.extend(
                pool.starts
                    .drain(..count)
                    .map(|start| Range::new(start, pages + guard)),
            );
            self.pooled -= count as u64 * u64::from(pages);
            pool.spare = pool.starts.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_is_lifo_and_decays() {
        let mut node = Node::new();
        (0..10).for_each(|number| assert!(node.give(Range::new(number * 5, 4))));
        assert_eq!(
            (node.take(4, 1), node.take(3, 1), node.take(4, 4)),
            (Some(45), None, Some(40))
        );
        assert_eq!(node.pooled(), 8 * 4);
        let mut gone = Vec::new();
        // Nothing is known to be spare before the first decay.
        node.decay(false, 0, &mut gone);
        assert!(gone.is_empty());
        assert_eq!(node.take(4, 1), Some(35));
        node.decay(false, 0, &mut gone);
        assert_eq!(gone, [Range::new(0, 4), Range::new(5, 4)]);
        node.decay(true, 0, &mut gone);
        assert_eq!((gone.len(), node.pooled()), (7, 0));
    }
}
