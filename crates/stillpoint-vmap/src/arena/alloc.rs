//! Allocation: a range from a pool, else from the free space, else after a drain.

use super::{
    drain::ALLOC_PATIENCE,
    error::{Error, NO_MEMORY},
    state::{ArenaState, CHUNK, LARGEST_CHUNK, add},
};
use crate::{
    map::SLOT_PAGES,
    node::{CLASSES, Home},
    space::Range,
    span::{MAX_PAGES, PAGE, PAGE_BITS},
};
use stillpoint_platform::{clock, memory, mmap::Advice, sync::Ordering};

/// Approximate number of pages by which a pool is filled at a time.
const BATCH_PAGES: u32 = 128;

/// Largest number of ranges by which a pool is filled at a time.
const BATCH: u32 = 32;

/// Number of times that an allocation drains: other threads may be faster to take what it drained.
const ATTEMPTS: usize = 3;

/// Upper bound on the bytes that [`ArenaState::take_from_space`] allocates: nodes of the free space's sets, and a list of ranges.
const SPACE_BYTES: usize = 8 << 10;

impl ArenaState {
    #[inline]
    pub(crate) fn alloc(&self, size: usize, align: usize) -> Result<(u32, Home), Error> {
        if size == 0 {
            return Err(Error::ZeroSize);
        }
        if !align.is_power_of_two() {
            return Err(Error::BadAlign { align });
        }
        let most = (MAX_PAGES.min(self.pages - self.settings.guard) as usize) << PAGE_BITS;
        if size > most || align > most {
            return Err(Error::TooLarge {
                size: size.max(align),
                most,
            });
        }
        if self.belongs_to_parent() {
            return Err(Error::Forked);
        }
        let pages = size.div_ceil(PAGE) as u32;
        let least = if self.settings.huge && pages >= SLOT_PAGES {
            SLOT_PAGES
        } else {
            1
        };
        let align = ((align >> PAGE_BITS) as u32).max(least);
        self.take(pages, align, size)
    }

    /// Takes a range for an area of `pages`: from a pool, else from the free space, else after a
    /// drain.
    #[inline]
    fn take(&self, pages: u32, align: u32, size: usize) -> Result<(u32, Home), Error> {
        let (index, shard) = self.this_node();
        if pages <= CLASSES {
            let mut node = shard.node.lock();
            if let Some(start) = node.take(pages, align) {
                add(&shard.areas, 1);
                add(&shard.pages, u64::from(pages));
                drop(node);
                return self.unpoison(Range::new(start, pages), Home::of(index));
            }
        }
        let mut taken = self.take_from_space(pages, align, index);
        let mut deadline = None;
        for _ in 0..ATTEMPTS {
            if !matches!(taken, Err(Error::AddressSpace { .. })) {
                break;
            }
            self.drain_for_alloc(*deadline.get_or_insert_with(|| clock::now() + ALLOC_PATIENCE));
            taken = self.take_from_space(pages, align, index);
        }
        if let Err(Error::AddressSpace { size: asked, .. }) = &mut taken {
            *asked = size;
        }
        let (start, home) = taken?;
        let _node = shard.node.lock();
        add(&shard.areas, 1);
        add(&shard.pages, u64::from(pages));
        Ok((start, home))
    }

    /// Makes a range from a pool accessible again where freed ones are not.
    fn unpoison(&self, range: Range, home: Home) -> Result<(u32, Home), Error> {
        if self.settings.poison
            && let (_, Err(error)) = self.advise([range].into_iter(), Advice::RemoveGuards)
        {
            self.free_unpublished(range, home);
            return Err(error.into());
        }
        Ok((range.start, home))
    }

    /// Cuts a range out of the free space, and some more for the pool. Each gets its guard.
    fn take_from_space(&self, pages: u32, align: u32, index: usize) -> Result<(u32, Home), Error> {
        if !memory::is_there_for(SPACE_BYTES) {
            return Err(NO_MEMORY.into());
        }
        let pooled = pages <= CLASSES;
        let whole = pages + self.settings.guard;
        let many = if pooled && align == 1 {
            (BATCH_PAGES / whole).clamp(1, BATCH)
        } else {
            1
        };
        let (start, many) = match self.take_range(whole * many, align) {
            Err(Error::AddressSpace { .. }) if many > 1 => (self.take_range(whole, align)?, 1),
            taken => (taken?, many),
        };
        let ranges = (0..many).map(|number| Range::new(start + number * whole, whole));
        if self.settings.guard > 0 {
            let guards = ranges.clone().map(|range| Range::new(range.end() - 1, 1));
            if let (_, Err(error)) = self.advise(guards, Advice::InstallGuards) {
                self.release(ranges.collect());
                return Err(error.into());
            }
        }
        if many > 1 {
            let mut node = self.shards[index].node.lock();
            // The lowest is the next to be taken.
            let left: Vec<Range> = ranges
                .skip(1)
                .rev()
                .filter(|range| !node.give(Range::new(range.start, pages)))
                .collect();
            drop(node);
            if !left.is_empty() {
                self.release(left);
            }
        }
        Ok((start, if pooled { Home::of(index) } else { Home::NONE }))
    }

    /// Takes pages out of the free space, and makes more accessible if need be.
    fn take_range(&self, pages: u32, align: u32) -> Result<u32, Error> {
        let mut space = self.space.lock();
        if let Some(start) = space.take(pages, align) {
            return Ok(start);
        }
        let frontier = space.frontier();
        let Some(needed) = space.needed_frontier(pages, align) else {
            return Err(Error::AddressSpace {
                size: (pages as usize) << PAGE_BITS,
                capacity: (self.pages as usize) << PAGE_BITS,
                waiting: (self.drain.waiting() as usize) << PAGE_BITS,
            });
        };
        let chunk = (frontier / 8)
            .next_multiple_of(CHUNK)
            .clamp(CHUNK, LARGEST_CHUNK);
        let goal = needed
            .max(frontier.saturating_add(chunk))
            .next_multiple_of(CHUNK)
            .min(self.pages);
        self.memory.allow(
            (frontier as usize) << PAGE_BITS,
            ((goal - frontier) as usize) << PAGE_BITS,
        )?;
        // Release, pairs with `find_or_next`: the addresses below are accessible for a walk that
        // comes that far.
        self.frontier.store(goal, Ordering::Release);
        space.advance(goal);
        Ok(space
            .take(pages, align)
            .expect("the frontier has gone as far as it takes"))
    }
}
