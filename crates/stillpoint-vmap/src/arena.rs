//! The arena: handing out areas, and taking them back.

use super::{
    Area, Builder,
    drain::{ALLOC_PATIENCE, Drain},
    error::Error,
    map::{Map, SLOT_PAGES},
    node::{CLASSES, Freed, Home, Node},
    space::{Range, Space},
    span::{MOST_PAGES, PAGE, PAGE_BITS},
};
use crossbeam_utils::CachePadded;
use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    panic::Location,
    ptr::NonNull,
};
use stillpoint::{Domain, Guard, internal::Kept};
use stillpoint_platform::{
    clock, cpu,
    fork::{AtForkHandle, ForkReset, Process, process},
    mmap::{Advice, Mapping, Pages, Refused, Table, advise},
    sync::{Arc, AtomicPtr, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, lock},
};

/// Pages that a pool is filled up with at a time, about.
const BATCH_PAGES: u32 = 128;

/// The most ranges of them.
const BATCH: u32 = 32;

/// How often an allocation makes room, which others may take before it comes to it.
const ATTEMPTS: usize = 3;

/// Ranges on which advice is given at a time.
const ADVISED: usize = 500;

/// The least that is made accessible at a time, in pages; and the most, unless more is needed at once.
pub(super) const CHUNK: u32 = SLOT_PAGES;
const LARGEST_CHUNK: u32 = 32 * CHUNK;

/// A stretch of address space out of which areas are allocated, and in which they are found by any address, without a lock. The kernel's vmalloc.
///
/// This is a handle; cloning it names the same arena, which ends with its last handle and its last area. See the
/// [module](crate) for what it is for and how memory comes and goes, and [`Builder`] for its settings.
///
/// ```
/// use stillpoint_vmap::Arena;
///
/// let arena = Arena::new()?;
/// let area = arena.alloc(64 << 10, 1)?;
/// let guard = arena.read_lock();
/// // Any address inside will do. What is checked stays until the guard is dropped, also if the area is freed meanwhile.
/// let checked = arena.check(area.addr() + 1000, 5, &guard)?;
/// drop(area);
/// checked.copy_from(b"bytes");
/// assert!(arena.check(checked.addr(), 5, &guard).is_err());
/// # Ok::<(), stillpoint_vmap::Error>(())
/// ```
#[derive(Clone)]
pub struct Arena {
    pub(super) inner: Arc<Inner>,
}

/// How an arena was built.
#[derive(Debug)]
pub(super) struct Settings {
    /// Pages behind an area that nobody may touch: 1 or, where there are no guards, 0.
    pub(super) guard: u32,
    /// Whether freed ranges are guarded until they are used again.
    pub(super) poison: bool,
    /// Whether areas of 2 MiB and more begin at a multiple of that.
    pub(super) huge: bool,
    /// Whether the kernel takes many ranges in one call.
    pub(super) vectored: bool,
    /// What takes the memory out of pages.
    pub(super) purge: Advice,
    /// Pages that may wait for a drain.
    pub(super) lazy_pages: u64,
}

/// The nodes' part of the state.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) node: Mutex<Node>,
    /// What has been handed out and taken back here; written under the lock.
    pub(super) areas: AtomicU64,
    pub(super) areas_freed: AtomicU64,
    pub(super) pages: AtomicU64,
    pub(super) pages_freed: AtomicU64,
}

impl Shard {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { node: Mutex::new(Node::new()), areas: zero(), areas_freed: zero(), pages: zero(), pages_freed: zero() }
    }
}

/// Adds to a count that only the holder of a lock writes.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

pub(super) struct Inner {
    /// First, because fields are dropped in order: no fork finds the others half dropped.
    pub(super) place: AtForkHandle,
    pub(super) domain_id: u64,
    pub(super) map: Map,
    pub(super) memory: Mapping,
    pub(super) domain: Kept,
    pub(super) file: Option<OwnedFd>,
    pub(super) settings: Settings,
    pub(super) pages: u32,
    pub(super) space: Mutex<Space>,
    /// The end of what is accessible; written under the lock of `space`.
    pub(super) frontier: AtomicU32,
    pub(super) shards: Box<[CachePadded<Shard>]>,
    pub(super) drain: Drain,
    /// Who allocated the area that begins at a page, where that is kept.
    pub(super) callers: Option<Table<AtomicPtr<Location<'static>>>>,
    /// The process that made the arena.
    pub(super) process: Process,
    /// In the child of a fork, until what is free has been found again: the frontier at the fork. Else 0.
    pub(super) lost: AtomicU32,
}

impl ForkReset for Inner {
    unsafe fn reset_in_child(&self) {
        let frontier = self.frontier.load(Ordering::Relaxed);
        // SAFETY: the caller's promise, for all of them; no user code runs under these locks.
        unsafe {
            self.space.reinit(Space::new(frontier, self.pages));
            self.shards.iter().for_each(|shard| shard.node.reinit(Node::new()));
            self.drain.reset_in_child();
        }
        self.lost.store(frontier, Ordering::Relaxed);
    }
}

impl Inner {
    /// The byte `offset` of the arena.
    #[inline(always)]
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: the callers' offsets are of pages that the map or an area knows, all inside the mapping.
        unsafe { self.memory.start().add(offset) }
    }

    pub(super) fn base(&self) -> usize {
        self.memory.start().addr().get()
    }

    /// Whether this process must leave allocation to its parent.
    pub(super) fn is_foreign(&self) -> bool {
        self.file.is_some() && process() != self.process
    }

    pub(super) fn pages_of(&self, range: Range) -> Pages {
        self.memory.pages((range.start as usize) << PAGE_BITS, (range.pages as usize) << PAGE_BITS)
    }

    /// Gives `advice` on ranges, as [`advise`] does.
    pub(super) fn advise(&self, ranges: impl Iterator<Item = Range>, advice: Advice) -> (usize, Result<(), Refused>) {
        let mut ranges = ranges.map(|range| self.pages_of(range)).peekable();
        let mut all = 0;
        while ranges.peek().is_some() {
            // In pieces: large blocks are hard to get, and this cannot be refused any.
            let piece: Vec<Pages> = ranges.by_ref().take(ADVISED).collect();
            // SAFETY: the callers give advice on ranges that are in nobody's hands but their own.
            let (done, result) = unsafe { advise(&piece, advice, self.settings.vectored) };
            all += done;
            if done < piece.len() || result.is_err() {
                return (all, result);
            }
        }
        (all, Ok(()))
    }

    fn here(&self) -> (usize, &Shard) {
        let index = cpu::current() % self.shards.len();
        (index, &self.shards[index])
    }

    fn alloc(&self, size: usize, align: usize) -> Result<(u32, Home), Error> {
        if size == 0 {
            return Err(Error::ZeroSize);
        }
        if !align.is_power_of_two() {
            return Err(Error::BadAlign { align });
        }
        let most = (MOST_PAGES.min(self.pages - self.settings.guard) as usize) << PAGE_BITS;
        if size > most || align > most {
            return Err(Error::TooLarge { size: size.max(align), most });
        }
        if self.is_foreign() {
            return Err(Error::Forked);
        }
        let pages = size.div_ceil(PAGE) as u32;
        let least = if self.settings.huge && pages >= SLOT_PAGES { SLOT_PAGES } else { 1 };
        let align = ((align >> PAGE_BITS) as u32).max(least);
        self.take(pages, align, size)
    }

    /// A range for an area of `pages`: from a pool, else carved out of the free space, else after a drain.
    fn take(&self, pages: u32, align: u32, size: usize) -> Result<(u32, Home), Error> {
        let (index, shard) = self.here();
        if pages <= CLASSES {
            let mut node = lock(&shard.node);
            if let Some(start) = node.take(pages, align) {
                add(&shard.areas, 1);
                add(&shard.pages, u64::from(pages));
                drop(node);
                return self.unpoison(Range::new(start, pages), Home::of(index));
            }
        }
        let mut taken = self.carve(pages, align, index);
        let mut deadline = None;
        for _ in 0..ATTEMPTS {
            if !matches!(taken, Err(Error::AddressSpace { .. })) {
                break;
            }
            self.make_room(*deadline.get_or_insert_with(|| clock::now() + ALLOC_PATIENCE));
            taken = self.carve(pages, align, index);
        }
        let (start, home) = taken.map_err(|error| self.explain(error, size))?;
        let _node = lock(&shard.node);
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

    fn explain(&self, error: Error, size: usize) -> Error {
        match error {
            Error::AddressSpace { capacity, .. } => {
                Error::AddressSpace { size, capacity, waiting: (self.drain.waiting() as usize) << PAGE_BITS }
            }
            other => other,
        }
    }

    /// Cuts a range out of the free space, and some more for the pool; each gets its guard.
    fn carve(&self, pages: u32, align: u32, index: usize) -> Result<(u32, Home), Error> {
        let pooled = pages <= CLASSES;
        let whole = pages + self.settings.guard;
        let many = if pooled && align == 1 { (BATCH_PAGES / whole).clamp(1, BATCH) } else { 1 };
        let (start, many) = self.cut(whole * many, align).map(|start| (start, many)).or_else(|error| match error {
            Error::AddressSpace { .. } if many > 1 => self.cut(whole, align).map(|start| (start, 1)),
            other => Err(other),
        })?;
        let ranges = (0..many).map(|number| Range::new(start + number * whole, whole));
        if self.settings.guard > 0 {
            let guards = ranges.clone().map(|range| Range::new(range.end() - 1, 1));
            if let (_, Err(error)) = self.advise(guards, Advice::InstallGuards) {
                self.release(ranges.collect());
                return Err(error.into());
            }
        }
        if many > 1 {
            let mut node = lock(&self.shards[index].node);
            // The lowest is the next to be taken.
            let left: Vec<Range> = ranges.skip(1).rev().filter(|range| !node.give(Range::new(range.start, pages))).collect();
            drop(node);
            if !left.is_empty() {
                self.release(left);
            }
        }
        Ok((start, if pooled { Home::of(index) } else { Home::NONE }))
    }

    /// Takes pages out of the free space, and makes more accessible if need be.
    fn cut(&self, pages: u32, align: u32) -> Result<u32, Error> {
        let mut space = lock(&self.space);
        if let Some(start) = space.take(pages, align) {
            return Ok(start);
        }
        let frontier = space.frontier();
        let Some(needed) = space.needed_frontier(pages, align) else {
            let capacity = (self.pages as usize) << PAGE_BITS;
            return Err(Error::AddressSpace { size: (pages as usize) << PAGE_BITS, capacity, waiting: 0 });
        };
        let chunk = (frontier / 8).next_multiple_of(CHUNK).clamp(CHUNK, LARGEST_CHUNK);
        let goal = needed.max(frontier.saturating_add(chunk)).next_multiple_of(CHUNK).min(self.pages);
        self.memory.allow((frontier as usize) << PAGE_BITS, ((goal - frontier) as usize) << PAGE_BITS)?;
        // Release, pairs with `find_or_next`: the addresses below are accessible for who walks that far.
        self.frontier.store(goal, Ordering::Release);
        space.advance(goal);
        Ok(space.take(pages, align).expect("the frontier has gone as far as it takes"))
    }

    /// Gives ranges, guard pages included, to the free space. If the guards cannot be removed they wait for a later drain.
    pub(super) fn release(&self, ranges: Vec<Range>) {
        let (done, _) = match self.settings.guard > 0 || self.settings.poison {
            true => self.advise(ranges.iter().copied(), Advice::RemoveGuards),
            false => (ranges.len(), Ok(())),
        };
        let mut space = lock(&self.space);
        ranges[..done].iter().for_each(|&range| space.give(range));
        drop(space);
        if done < ranges.len() {
            let mut node = lock(&self.here().1.node);
            for &range in &ranges[done..] {
                // What cannot be remembered either is nobody's from now on.
                let _ = self.leave(&mut node, Freed { range, home: Home::NONE });
            }
        }
    }

    /// Takes an area's range back: it is found no more, and waits for a drain.
    pub(super) fn free(&self, range: Range, home: Home) {
        self.settle();
        self.map.clear(range.start, range.pages); // [V3]
        self.free_unpublished(range, home);
    }

    /// The rest of it, for an area that is not in the map (any more).
    pub(super) fn free_unpublished(&self, range: Range, home: Home) {
        let (_, shard) = self.here();
        self.free_in(shard, lock(&shard.node), range, home);
    }

    /// The same on that node.
    fn free_in(&self, shard: &Shard, mut node: MutexGuard<'_, Node>, range: Range, home: Home) {
        let whole = Range::new(range.start, range.pages + self.settings.guard);
        add(&shard.areas_freed, 1);
        add(&shard.pages_freed, u64::from(range.pages));
        if self.is_foreign() {
            return;
        }
        let much = self.leave(&mut node, Freed { range: whole, home });
        drop(node);
        match much {
            Some(true) => self.relieve(),
            Some(false) => {}
            None => self.drain_alone(whole),
        }
    }

    /// In the child of a fork, before the first area is freed there: finds what is free.
    #[inline]
    pub(super) fn settle(&self) {
        // Acquire, pairs with `find_lost`: where nothing is lost any more, the free space is as it was found.
        if self.lost.load(Ordering::Acquire) > 0 && !self.is_foreign() {
            self.find_lost();
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("memory", &self.memory).field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Arena {
    /// An arena with the defaults of [`Builder`]: 64 GiB of addresses, private memory, guard pages, a domain of its own.
    ///
    /// # Errors
    ///
    /// As for [`Builder::build`].
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// The settings of an arena that is to be.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// An area of `size` bytes from a multiple of `align`, which reads zero. The kernel's `vmalloc()`.
    ///
    /// It gets whole pages, behind which there is a guard page (see [`Builder::guards`]). Some hundred nanoseconds where the pool of that size has a
    /// range, some microseconds where it has to be filled, which takes a system call for some tens of areas; above 1 MiB there are no
    /// pools. If the address space is used up, the caller drains, and outside sections of the arena's domain waits for readers, for a second at
    /// most. Not async-signal-safe.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`], [`Error::BadAlign`], [`Error::TooLarge`]; [`Error::AddressSpace`] if no range is left, [`Error::System`]
    /// if the system refuses memory, [`Error::Forked`] in the child of a fork if the arena stands over a memory file.
    #[track_caller]
    pub fn alloc(&self, size: usize, align: usize) -> Result<Area, Error> {
        let (start, home) = self.inner.alloc(size, align)?;
        let pages = size.div_ceil(PAGE) as u32;
        if let Some(callers) = &self.inner.callers {
            callers[start as usize].store(std::ptr::from_ref(Location::caller()).cast_mut(), Ordering::Relaxed);
        }
        self.inner.map.publish(start, pages, (pages as usize * PAGE - size) as u32); // [V1]
        Ok(Area::new(Arc::clone(&self.inner), start, home, size))
    }

    /// Frees the area whose first byte is at `start`. The kernel's `vfree()`, by address.
    ///
    /// # Errors
    ///
    /// [`Error::NotLive`] if there is none: it has been freed already, or is none of this arena's. [`Error::NotAStart`] if the address is
    /// inside one. [`Error::System`] if there is no memory to remember it by until readers are done. Nothing is freed then.
    ///
    /// # Safety
    ///
    /// `start` came from [`Area::into_raw`] of an area of this arena, which nobody else frees as well while this call runs, nor has since its
    /// address may have come to be used again. (A second free in a row is an error that is found; so is any other address
    /// where no area begins.)
    pub unsafe fn free_raw(&self, start: *const u8) -> Result<(), Error> {
        let inner = &*self.inner;
        let addr = start.addr();
        let offset = addr.wrapping_sub(inner.base());
        inner.settle();
        let around = inner.map.find(offset).ok_or(Error::NotLive { addr })?;
        if around.start != offset {
            return Err(Error::NotAStart { addr, start: inner.base() + around.start });
        }
        let (first, pages) = around.pages();
        let (index, shard) = inner.here();
        let home = if pages <= CLASSES { Home::of(index) } else { Home::NONE };
        // Held across the claim, so that what there is room for now can be remembered then.
        let mut node = lock(&shard.node);
        if !node.has_room() && !inner.is_foreign() {
            return Err(Error::System { call: "malloc", errno: libc::ENOMEM });
        }
        inner.map.claim(first).ok_or(Error::NotLive { addr })?; // [V3]
        inner.free_in(shard, node, Range::new(first, pages), home);
        // SAFETY: `into_raw` left one count behind for the area, and this call is the one that has claimed it.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&self.inner)) };
        Ok(())
    }

    /// The domain whose sections keep areas in place.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.inner.domain
    }

    /// Begins a read-side critical section of the arena's domain. As [`Domain::read_lock`].
    #[inline]
    pub fn read_lock(&self) -> Guard<'_> {
        self.inner.domain.read_lock()
    }

    /// The addresses that areas can have.
    #[must_use]
    pub fn addresses(&self) -> std::ops::Range<usize> {
        let base = self.inner.base();
        base..base + ((self.inner.pages as usize) << PAGE_BITS)
    }

    /// The file behind the arena, if it was built with [`Builder::memory_file`]: whoever maps it finds an area at its [`Area::offset`].
    ///
    /// The file's length is the arena's capacity and sealed: nobody can change it, so no mapping of it can come to fault.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.inner.file.as_ref().map(AsFd::as_fd)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("addresses", &self.addresses()).field("statistics", &self.statistics()).finish()
    }
}

impl PartialEq for Arena {
    /// Whether both are handles of the same arena.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Arena {}
