//! The settings of an arena.

use super::{
    Arena,
    error::{Error, NO_MEMORY},
    lazy_queue::LazyQueue,
    state::{ArenaState, CHUNK, Settings, Shard},
};
use crate::{
    map::{Map, SLOT_PAGES},
    space::Space,
    span::{PAGE, PAGE_BITS},
};
use crossbeam_utils::CachePadded;
use std::os::fd::AsFd;
use stillpoint::{
    Domain,
    internal::{self, Kept},
};
use stillpoint_platform::{
    cpu,
    fork::{AtForkHandle, process},
    fork_mutex::ForkMutex,
    memory,
    mmap::{Advice, Backing, Mapping, Table, advise, has_vectored_advice, memory_file, page_size},
    sync::{Arc, AtomicBool, AtomicU32},
};

/// Largest number of nodes: the kernel's bound.
const MAX_NODES: usize = 128;

/// Largest capacity in bytes, which is 2^30 pages: no sum of page numbers overflows.
const MAX_BYTES: usize = 1 << 42;

/// Builds an [`Arena`].
///
/// ```
/// let arena = stillpoint_vmap::Arena::builder().capacity(1 << 30).lazy_limit(16 << 20).build()?;
/// assert_eq!(arena.addresses().len(), 1 << 30);
/// # Ok::<(), stillpoint_vmap::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `build`"]
pub struct Builder {
    capacity: usize,
    lazy_limit: usize,
    guards: bool,
    poison: bool,
    huge: bool,
    callers: bool,
    file: bool,
    domain: Option<Kept>,
}

impl Arena {
    /// Makes an arena with the defaults of [`Builder`]: 64 GiB of addresses, private memory, guard
    /// pages, a separate domain.
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Makes a builder with the default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Sets the size of the address space in bytes, rounded up to a multiple of 2 MiB. 64 GiB by
    /// default; 4 TiB at most.
    ///
    /// Addresses cost no memory. The page map takes 8 bytes for a page that has been used.
    pub fn capacity(mut self, bytes: usize) -> Self {
        self.capacity = bytes;
        self
    }

    /// Sets how much memory may be freed but not yet given back, in bytes, guard pages included;
    /// the free that reaches half of it drains. The default is 32 MiB times the bits of the number
    /// of CPUs, the kernel's `lazy_max_pages()`.
    ///
    /// A drain costs one grace period and one or two system calls. Long sections can delay the
    /// memory beyond this limit: a free outside sections then waits, at most 10 ms, for each
    /// further half of it.
    pub fn lazy_limit(mut self, bytes: usize) -> Self {
        self.lazy_limit = bytes;
        self
    }

    /// Sets whether an inaccessible guard page follows each area. The default is yes. It needs
    /// Linux 6.13 (6.15 for a memory file); older kernels go without:
    /// [`ArenaStatistics::guards`](super::ArenaStatistics::guards).
    pub fn guards(mut self, guards: bool) -> Self {
        self.guards = guards;
        self
    }

    /// Sets whether freed memory faults, from its drain until its reuse, instead of reading zero:
    /// for finding bugs. Costs a system call for each allocation. The default is no;
    /// [`Builder::build`] fails where there are no guard pages.
    pub fn poison(mut self, poison: bool) -> Self {
        self.poison = poison;
        self
    }

    /// Sets whether the kernel is advised to use huge pages, and areas of 2 MiB and more are
    /// aligned to 2 MiB. The default is no.
    pub fn huge_pages(mut self, huge: bool) -> Self {
        self.huge = huge;
        self
    }

    /// Sets whether the arena records the caller that allocated each area, for [`Arena::describe`]
    /// and [`Arena::dump`]. Costs 8 bytes a page. The default is no.
    pub fn track_callers(mut self, track: bool) -> Self {
        self.callers = track;
        self
    }

    /// Sets whether the memory is that of an unnamed file ([`Arena::file`]), which other processes
    /// may map. The default is no.
    ///
    /// The children of a fork share it with their parent, and do not allocate from it.
    pub fn memory_file(mut self, file: bool) -> Self {
        self.file = file;
        self
    }

    /// Sets the domain whose sections keep areas in place; by default the arena makes one.
    pub fn domain(mut self, domain: &Domain) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Makes the arena, with some ten system calls.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`] or [`Error::TooLarge`] for such a capacity; [`Error::System`] if the
    /// system refuses the address space, the first memory, or the guards that poison needs;
    /// [`Error::PageSize`] if its pages are not of 4 KiB.
    pub fn build(self) -> Result<Arena, Error> {
        let pages = self.pages()?;
        let capacity = (pages as usize) << PAGE_BITS;
        let file = self
            .file
            .then(|| memory_file("stillpoint", capacity as u64))
            .transpose()?;
        let backing = file
            .as_ref()
            .map_or(Backing::Anonymous, |file| Backing::File(file.as_fd()));
        // With this alignment, page numbers are aligned as the addresses are, whatever alignment an
        // area asks for.
        let memory = Mapping::reserve(capacity, capacity.next_power_of_two(), backing)?;
        // The accessible part is one mapping from the start, which grows without a second one.
        memory.allow(0, (CHUNK as usize) << PAGE_BITS)?;
        let mut space = Space::new(0, pages);
        space.advance(CHUNK);
        let settings = self.settings(&memory)?;
        let domain = self.domain.unwrap_or_else(|| Kept::from(&Domain::new()));
        let nodes = cpu::count().clamp(1, MAX_NODES);
        let shards =
            memory::try_several(nodes, || CachePadded::new(Shard::new())).ok_or(NO_MEMORY)?;
        let state = Arc::new(ArenaState {
            place: AtForkHandle::reserve(),
            domain_id: internal::domain_id(&domain),
            map: Map::new(pages)?,
            memory,
            domain,
            file,
            settings,
            pages,
            space: ForkMutex::new(space),
            frontier: AtomicU32::new(CHUNK),
            shards,
            drain: LazyQueue::new(),
            callers: self
                .callers
                .then(|| Table::new(pages as usize))
                .transpose()?,
            process: process(),
            is_lost: AtomicBool::new(false),
        });
        // SAFETY: complete, and in its place for as long as it lives; `place` is the first of its
        // fields to be dropped.
        unsafe { state.place.occupy(&*state) };
        Ok(Arena { state })
    }

    fn pages(&self) -> Result<u32, Error> {
        let size = page_size();
        if size != PAGE {
            return Err(Error::PageSize { size });
        }
        if self.capacity == 0 {
            return Err(Error::ZeroSize);
        }
        if self.capacity > MAX_BYTES {
            let (size, most) = (self.capacity, MAX_BYTES);
            return Err(Error::TooLarge { size, most });
        }
        let pages = self.capacity.div_ceil(PAGE);
        Ok(pages.next_multiple_of(SLOT_PAGES as usize) as u32)
    }

    /// Finds out what the kernel offers for this kind of memory, by trying it on the first page.
    fn settings(&self, memory: &Mapping) -> Result<Settings, Error> {
        let first = memory.pages(0, PAGE);
        let try_out = |advice| {
            // SAFETY: the page is not published yet.
            unsafe { advise(&[first], advice, false) }.1
        };
        let purge = if self.file {
            Advice::Remove
        } else {
            Advice::DontNeed
        };
        // SAFETY: the same.
        let vectored = unsafe { has_vectored_advice(first, purge) };
        try_out(purge)?;
        let guards = match self.guards || self.poison {
            true => try_out(Advice::InstallGuards).and_then(|()| try_out(Advice::RemoveGuards)),
            false => Ok(()),
        };
        if self.poison {
            guards?;
        }
        if self.huge {
            let all = memory.pages(0, (self.pages()? as usize) << PAGE_BITS);
            // A kernel without huge pages refuses this advice, and the arena has small ones.
            // SAFETY: it changes no bytes.
            let _ = unsafe { advise(&[all], Advice::HugePages, false) };
        }
        Ok(Settings {
            guard: u32::from(self.guards && guards.is_ok()),
            poison: self.poison,
            huge: self.huge,
            vectored,
            purge,
            lazy_pages: (self.lazy_limit >> PAGE_BITS) as u64,
        })
    }
}

impl Default for Builder {
    fn default() -> Self {
        let cpu_bits = (usize::BITS - cpu::count().leading_zeros()) as usize;
        Self {
            capacity: 64 << 30,
            // The kernel's lazy_max_pages().
            lazy_limit: cpu_bits * (32 << 20),
            guards: true,
            poison: false,
            huge: false,
            callers: false,
            file: false,
            domain: None,
        }
    }
}
