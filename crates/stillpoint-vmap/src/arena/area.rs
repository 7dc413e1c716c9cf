//! An area: pages with one owner, until it is dropped.

use super::{error::Error, state::ArenaState};
use crate::{
    copy,
    node::Home,
    space::Range,
    span::{Extent, PAGE, PAGE_BITS},
};
use std::{fmt, mem, ptr::NonNull};
use stillpoint::Domain;
use stillpoint_platform::sync::Arc;

/// Memory from an [`Arena`](super::Arena): whole pages, zero at first. The kernel's `vmalloc()`
/// area.
///
/// Dropping it frees it lazily (the kernel's `vfree()`): from then on
/// [`Arena::find`](super::Arena::find) does not find it, while readers that have checked it can
/// finish. A later drain, after a grace period, gives its memory back and lets its address be
/// reused. Drop costs some tens of nanoseconds; once in every few megabytes it drains for all
/// threads. May be dropped on any thread, and inside sections. Not async-signal-safe.
///
/// Every thread that knows the address can access the memory: there is no `&[u8]` of it, only
/// copies and a raw pointer.
///
/// ```
/// let arena = stillpoint_vmap::Arena::new()?;
/// let area = arena.alloc(10_000, 1)?;
/// area.copy_from(9_990, b"ten bytes.")?;
/// let mut bytes = [0; 4];
/// area.copy_to(9_994, &mut bytes)?;
/// assert_eq!(&bytes, b"byte");
/// # Ok::<(), stillpoint_vmap::Error>(())
/// ```
pub struct Area {
    state: Arc<ArenaState>,
    start: u32,
    home: Home,
    len: usize,
}

impl Area {
    pub(crate) fn new(state: Arc<ArenaState>, start: u32, home: Home, len: usize) -> Self {
        Self {
            state,
            start,
            home,
            len,
        }
    }

    fn extent(&self) -> Extent {
        Extent {
            start: (self.start as usize) << PAGE_BITS,
            len: self.len,
        }
    }

    /// Returns its first address.
    #[must_use]
    pub fn addr(&self) -> usize {
        self.as_ptr().addr()
    }

    /// Returns a pointer to its first byte, valid for [`Area::len`] bytes until the area is dropped. For a reader that
    /// has checked the area it stays valid until that section ends or the last handle of the arena
    /// is dropped.
    ///
    /// Accesses through it race with copies by other threads, unless no other thread has a handle
    /// of the arena: a handle suffices to walk the arena and to read and write every area. Make
    /// references to the memory only where you can rule that out.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.state.at(self.extent().start).as_ptr()
    }

    /// Returns its length in bytes, as it was asked for.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no area is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns where it begins in the arena and, if the arena stands over a memory file
    /// ([`Arena::file`](super::Arena::file)), in that file, where another process finds it.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.extent().start as u64
    }

    /// Copies from the area, beginning at its byte number `from`.
    ///
    /// Async-signal-safe. Bytes that are written concurrently arrive in some mixture of old and
    /// new.
    ///
    /// # Errors
    ///
    /// [`Error::CrossesEnd`] or [`Error::Overflow`] if the area does not have that many bytes.
    pub fn copy_to(&self, from: usize, to: &mut [u8]) -> Result<(), Error> {
        let at = self.part(from, to.len())?;
        // SAFETY: inside the area, which is accessible while `self` lives; `to` is the caller's
        // alone.
        unsafe { copy::copy(to.as_mut_ptr(), at, to.len()) };
        Ok(())
    }

    /// Copies into the area, beginning at its byte number `to`.
    ///
    /// Async-signal-safe. Others may see the bytes arrive in any order.
    ///
    /// # Errors
    ///
    /// See [`Area::copy_to`].
    pub fn copy_from(&self, to: usize, from: &[u8]) -> Result<(), Error> {
        let at = self.part(to, from.len())?;
        // SAFETY: inside the area, which is accessible while `self` lives; `from` is borrowed, so
        // no thread writes it.
        unsafe { copy::copy_in(at, from) };
        Ok(())
    }

    fn part(&self, at: usize, len: usize) -> Result<*mut u8, Error> {
        let addr = self.addr().wrapping_add(at);
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.as_ptr().wrapping_add(at)),
            Some(end) if self.addr().checked_add(end).is_some() => Err(Error::CrossesEnd {
                addr,
                len,
                end: self.addr() + self.len,
            }),
            _ => Err(Error::Overflow { addr, len }),
        }
    }

    /// Frees the area after a grace period of the arena's domain; until then it is found as before.
    /// The kernel's `vfree_rcu()`, or `kvfree_rcu()` of such memory.
    ///
    /// For areas whose address readers take from an RCU-protected structure: a reader that has the
    /// address can still check it. (Dropping an area that has just been unlinked also keeps its
    /// memory for such readers, but they could no longer find it.) May be called inside sections;
    /// the domain's service thread does the rest. Until then its pages count against the domain's
    /// budget, so it may wait as [`Domain::retire`] does. Allocates. Not async-signal-safe.
    pub fn free_rcu(self) {
        let domain = self.state.domain.clone();
        self.free_rcu_in(&domain);
    }

    /// Like [`Area::free_rcu`], for readers of `domain`.
    pub fn free_rcu_in(self, domain: &Domain) {
        let bytes = self.len.next_multiple_of(PAGE);
        let area = NonNull::from(Box::leak(Box::new(self)));
        // SAFETY: it came out of a box just now and no other thread knows it.
        unsafe { domain.retire_weighed(area, bytes) };
    }

    /// Gives the area up for its address. It stays until
    /// [`Arena::free_raw`](super::Arena::free_raw), and keeps the arena.
    #[must_use = "the address is the only way to free the area"]
    pub fn into_raw(self) -> NonNull<u8> {
        let area = mem::ManuallyDrop::new(self);
        let at = area.state.at(area.extent().start);
        // SAFETY: the field is not used again: `area` is never dropped.
        mem::forget(unsafe { std::ptr::read(&raw const area.state) });
        at
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        let (_, pages) = self.extent().pages();
        self.state.free(Range::new(self.start, pages), self.home);
    }
}

impl fmt::Debug for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Area")
            .field("addr", &self.as_ptr())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
