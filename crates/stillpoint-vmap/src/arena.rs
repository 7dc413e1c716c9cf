//! The arena: allocates areas and frees them.
//!
//! | file | subject | imports |
//! |---|---|---|
//! | `error.rs` | [`Error`] | |
//! | `lazy_queue.rs` | freed ranges that wait for a drain | |
//! | `state.rs` | what all handles and areas of an arena share | `lazy_queue` |
//! | `free.rs`, `drain.rs`, `alloc.rs` | how ranges come back, lose their memory, are handed out | `state`, `lazy_queue` |
//! | `area.rs` | [`Area`] | `state` |
//! | `builder.rs` | [`Builder`] | `state` |
//! | `check.rs` | finding areas, checking ranges, copying | `state` |
//! | `read.rs` | reading over areas and holes alike | `check` |
//! | `reclaim.rs` | draining and shrinking on request | `drain` |
//! | `statistics.rs`, `diagnostics.rs` | numbers; what an address is, and a list of all areas | `check` |

mod alloc;
mod area;
mod builder;
mod check;
mod diagnostics;
mod drain;
mod error;
mod free;
mod lazy_queue;
mod read;
mod reclaim;
mod state;
mod statistics;

pub use {
    area::Area,
    builder::Builder,
    check::Checked,
    diagnostics::{Description, Dump, DumpedArea},
    error::Error,
    read::Reader,
    reclaim::drain_without_grace_period,
    statistics::ArenaStatistics,
};

use crate::{
    node::{CLASSES, Home},
    space::Range,
    span::{PAGE, PAGE_BITS},
};
use error::NO_MEMORY;
use state::ArenaState;
use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd},
    panic::Location,
};
use stillpoint::{Domain, Guard};
use stillpoint_platform::sync::{Arc, Ordering};

/// A stretch of address space out of which areas are allocated, and in which they are found by any
/// address, without a lock. The kernel's vmalloc.
///
/// This is a handle; cloning it names the same arena, which ends with its last handle and its last
/// area. See the [module](crate) for what it is for and how memory comes and goes, and [`Builder`]
/// for its settings.
///
/// ```
/// use stillpoint_vmap::Arena;
///
/// let arena = Arena::new()?;
/// let area = arena.alloc(64 << 10, 1)?;
/// let guard = arena.read_lock();
/// // Any address inside will do. What is checked stays until the guard is dropped, even if the area is freed.
/// let checked = arena.check(area.addr() + 1000, 5, &guard)?;
/// drop(area);
/// checked.copy_from(b"bytes");
/// assert!(arena.check(checked.addr(), 5, &guard).is_err());
/// # Ok::<(), stillpoint_vmap::Error>(())
/// ```
#[derive(Clone)]
pub struct Arena {
    pub(crate) state: Arc<ArenaState>,
}

impl Arena {
    /// Allocates an area of `size` bytes at a multiple of `align`, which reads zero. The kernel's
    /// `vmalloc()`.
    ///
    /// The area has whole pages, and a guard page behind it (see [`Builder::guards`]). Takes some
    /// hundred nanoseconds if the pool of that size has a range, and some microseconds if the pool
    /// has to be filled, which takes a system call for some tens of areas; above 1 MiB there are no
    /// pools. If the address space is exhausted, the caller drains; outside sections of the arena's
    /// domain it also waits for readers, for at most a second. Not async-signal-safe.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`], [`Error::BadAlign`], [`Error::TooLarge`]; [`Error::AddressSpace`] if no
    /// range is left, [`Error::System`] if the system refuses memory, [`Error::Forked`] in the
    /// child of a fork if the arena stands over a memory file.
    #[track_caller]
    pub fn alloc(&self, size: usize, align: usize) -> Result<Area, Error> {
        let (start, home) = self.state.alloc(size, align)?;
        let pages = size.div_ceil(PAGE) as u32;
        if let Some(callers) = &self.state.callers {
            callers[start as usize].store(
                std::ptr::from_ref(Location::caller()).cast_mut(),
                Ordering::Relaxed,
            );
        }
        self.state
            .map
            .publish(start, pages, (pages as usize * PAGE - size) as u32);
        Ok(Area::new(Arc::clone(&self.state), start, home, size))
    }

    /// Frees the area whose first byte is at `start`. The kernel's `vfree()`, by address.
    ///
    /// # Errors
    ///
    /// [`Error::NotLive`] if no area of this arena begins there, or it has been freed already.
    /// [`Error::NotAStart`] if the address is inside an area. [`Error::System`] without memory to
    /// record the freed range. Nothing is freed then.
    ///
    /// # Safety
    ///
    /// `start` came from [`Area::into_raw`] of an area of this arena, which no other thread frees
    /// during this call or has freed since its address may have been reused. (Freeing twice in a
    /// row is detected; so is any other address where no area begins.)
    pub unsafe fn free_raw(&self, start: *const u8) -> Result<(), Error> {
        let state = &*self.state;
        let addr = start.addr();
        let offset = addr.wrapping_sub(state.base());
        let around = state.map.find(offset).ok_or(Error::NotLive { addr })?;
        if around.start != offset {
            return Err(Error::NotAStart {
                addr,
                start: state.base() + around.start,
            });
        }
        let (first, pages) = around.pages();
        let (index, shard) = state.this_node();
        let home = if pages <= CLASSES {
            Home::of(index)
        } else {
            Home::NONE
        };
        // Held across the claim, so that the room for the record is still there then.
        let mut node = shard.node.lock();
        if !node.has_room() && !state.belongs_to_parent() {
            return Err(NO_MEMORY.into());
        }
        state.map.claim(first).ok_or(Error::NotLive { addr })?;
        state.free_in(index, node, Range::new(first, pages), home);
        // SAFETY: `into_raw` left one count behind for the area, and this call is the one that has
        // claimed it.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&self.state)) };
        Ok(())
    }

    /// Returns the domain whose sections keep areas in place.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.state.domain
    }

    /// Begins a read-side critical section of the arena's domain: see [`Domain::read_lock`].
    #[inline]
    pub fn read_lock(&self) -> Guard<'_> {
        self.state.domain.read_lock()
    }

    /// Returns the addresses that areas can have.
    #[must_use]
    pub fn addresses(&self) -> std::ops::Range<usize> {
        let base = self.state.base();
        base..base + ((self.state.pages as usize) << PAGE_BITS)
    }

    /// Returns the file behind the arena, if it was built with [`Builder::memory_file`]: a process
    /// that maps it finds an area at its [`Area::offset`].
    ///
    /// The file's length is the arena's capacity and is sealed against changes, so accesses to a
    /// mapping of it cannot fault.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.state.file.as_ref().map(AsFd::as_fd)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("addresses", &self.addresses())
            .field("statistics", &self.statistics())
            .finish()
    }
}

impl PartialEq for Arena {
    /// Returns true if both are handles of the same arena.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

impl Eq for Arena {}
