//! Checks that an address, or a range of them, lies in one live area, and copies what was checked.
//!
//! [`Arena::find`] takes any address and returns the area around it; [`Arena::check`] also compares
//! a length with the area's end. Both need a section of the arena's domain, because that is what
//! keeps a freed area's memory: a section of another domain, or an offline reader, panics. Neither
//! knows whose area it is, or whether its bytes make sense: any live area will do. The answer is a
//! [`Checked`] range, which borrows the section, so its memory stays until the section ends. Copies
//! check nothing again but their lengths. The decision is one word of the page map (`map.rs`): a
//! mask, a subtraction and a comparison; `check_slow` is for areas of 2 MiB and more, and for
//! errors.

use super::{Arena, error::Error};
use crate::{
    copy::{copy, copy_in, copy_overlapping},
    span::PAGE_BITS,
};
use std::{fmt, marker::PhantomData, ops::Range, ptr::NonNull};
use stillpoint::Section;
use stillpoint_platform::sync::Ordering;

/// A range that lies inside one live area, and stays there as long as the section lasts in which it
/// was checked.
///
/// Its bytes may be written by others at any time, also by other processes: there are copies of
/// them, and no references.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Checked<'g> {
    at: NonNull<u8>,
    len: usize,
    section: PhantomData<&'g ()>,
}

impl<'g> Checked<'g> {
    /// Returns the bytes `range` of it, counted from its first; `None` if the range is empty or goes
    /// past the end.
    ///
    /// Takes two comparisons: code that works on one area in one section finds it once, and checks
    /// each copy with this. The area's memory stays until the section ends, even if another thread
    /// frees the area; [`Arena::check`] would then refuse the same range. Async-signal-safe.
    ///
    /// ```
    /// # let arena = stillpoint_vmap::Arena::new()?;
    /// let ring = arena.alloc(8192, 1)?;
    /// let guard = arena.read_lock();
    /// let whole = arena.find(ring.addr(), &guard).expect("it lives");
    /// let message = whole.get(100..105).expect("it lies inside");
    /// message.copy_from(b"bytes");
    /// assert_eq!(message.addr(), ring.addr() + 100);
    /// assert!(whole.get(8190..8193).is_none());
    /// # Ok::<(), stillpoint_vmap::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn get(&self, range: Range<usize>) -> Option<Checked<'g>> {
        if range.start < range.end && range.end <= self.len {
            Some(Checked {
                // SAFETY: inside the checked range.
                at: unsafe { self.at.add(range.start) },
                len: range.end - range.start,
                section: PhantomData,
            })
        } else {
            None
        }
    }

    /// Returns its first address.
    #[must_use]
    pub fn addr(&self) -> usize {
        self.at.addr().get()
    }

    /// Returns its addresses.
    #[must_use]
    pub fn addresses(&self) -> Range<usize> {
        self.addr()..self.addr() + self.len
    }

    /// Returns a pointer to its first byte, good for [`Checked::len`] bytes until the section ends,
    /// or the last handle of the arena is gone. See [`Area::as_ptr`](super::Area::as_ptr).
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Returns its length in bytes, 1 at least. If [`Arena::find`] returned it, this is the length
    /// that the area was allocated with.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no checked range is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies its bytes to `to`. Async-signal-safe.
    ///
    /// # Panics
    ///
    /// If `to` is not as long.
    #[inline]
    #[track_caller]
    pub fn copy_to(&self, to: &mut [u8]) {
        self.assert_len(to.len());
        // SAFETY: the area lives, by `'g`; `to` is the caller's alone.
        unsafe { copy(to.as_mut_ptr(), self.as_ptr(), to.len()) }
    }

    /// Copies `from` to its bytes. Async-signal-safe.
    ///
    /// # Panics
    ///
    /// If `from` is not as long.
    #[inline]
    #[track_caller]
    pub fn copy_from(&self, from: &[u8]) {
        self.assert_len(from.len());
        // SAFETY: the area lives, by `'g`; `from` is borrowed, so no thread writes it.
        unsafe { copy_in(self.as_ptr(), from) }
    }

    /// Copies the bytes of `from` to its own. The two may overlap: the copy is made as if by way of
    /// a buffer. Async-signal-safe.
    ///
    /// # Panics
    ///
    /// If `from` is not as long.
    #[track_caller]
    pub fn copy_between(&self, from: &Checked<'_>) {
        self.assert_len(from.len);
        // SAFETY: both areas live.
        unsafe { copy_overlapping(self.as_ptr(), from.as_ptr(), self.len) }
    }

    #[inline]
    #[track_caller]
    fn assert_len(&self, other: usize) {
        if other != self.len {
            wrong_length(self.len, other);
        }
    }
}

// SAFETY: the bytes are accessed by copies that may race. The section may belong to another thread,
// and outlives `'g`.
unsafe impl Send for Checked<'_> {}
// SAFETY: the same.
unsafe impl Sync for Checked<'_> {}

impl fmt::Debug for Checked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checked")
            .field("at", &self.at)
            .field("len", &self.len)
            .finish()
    }
}

impl Arena {
    /// Returns a range that the caller has found in a live area, in a section that `'g` borrows.
    #[inline(always)]
    fn checked<'g>(&'g self, offset: usize, len: usize) -> Checked<'g> {
        Checked {
            at: self.state.at(offset),
            len,
            section: PhantomData,
        }
    }

    /// Returns all of the live area that `addr` lies in. The kernel's `find_vmap_area()`, without its
    /// lock.
    ///
    /// Takes one load of the page map, or two for an area of 2 MiB and more. Never blocks;
    /// async-signal-safe. The bytes of an area's last page behind the size that was asked for are
    /// not part of it.
    ///
    /// # Panics
    ///
    /// If `section` is of another domain than the arena, or an offline
    /// [`QsbrReader`](stillpoint::QsbrReader): it would keep nothing in place.
    ///
    /// ```
    /// # let arena = stillpoint_vmap::Arena::new()?;
    /// let area = arena.alloc(5000, 1)?;
    /// let guard = arena.read_lock();
    /// let found = arena.find(area.addr() + 4999, &guard).expect("it lives");
    /// assert_eq!((found.addr(), found.len()), (area.addr(), 5000));
    /// assert!(arena.find(area.addr() + 5000, &guard).is_none());
    /// # Ok::<(), stillpoint_vmap::Error>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn find<'g>(&'g self, addr: usize, section: &'g impl Section) -> Option<Checked<'g>> {
        self.assert_section(section);
        let offset = addr.wrapping_sub(self.state.base());
        let extent = self.state.map.find_byte(offset)?;
        Some(self.checked(extent.start, extent.len))
    }

    /// Returns the live area that `addr` lies in, or else the next one above. The kernel's
    /// `find_vmap_area_exceed_addr_lock()`.
    ///
    /// Passes over 2 MiB without areas in one load; otherwise like [`Arena::find`].
    ///
    /// # Panics
    ///
    /// See [`Arena::find`].
    #[track_caller]
    pub fn find_or_next<'g>(
        &'g self,
        addr: usize,
        section: &'g impl Section,
    ) -> Option<Checked<'g>> {
        self.assert_section(section);
        let mut offset = addr.saturating_sub(self.state.base());
        loop {
            // Acquire, pairs with `take_range`: what lies below has been made accessible.
            let end = self.state.frontier.load(Ordering::Acquire);
            let extent = self.state.map.find_or_next(offset, end)?;
            if extent.end() > offset {
                return Some(self.checked(extent.start, extent.len));
            }
            // Behind the area's size, in its last page.
            offset = extent.end().next_multiple_of(1 << PAGE_BITS);
        }
    }

    /// Returns the live areas from `addr` on, by address.
    ///
    /// Each step is a [`Arena::find_or_next`]: an area that lives throughout is met once; one that
    /// is made or freed meanwhile, perhaps.
    ///
    /// # Panics
    ///
    /// See [`Arena::find`].
    #[track_caller]
    pub fn areas_from<'g>(
        &'g self,
        addr: usize,
        section: &'g impl Section,
    ) -> impl Iterator<Item = Checked<'g>> {
        // Here, where the caller's line is known.
        self.assert_section(section);
        let mut at = Some(addr);
        std::iter::from_fn(move || {
            let found = self.find_or_next(at?, section);
            at = found.map(|found| found.addresses().end);
            found
        })
    }

    /// Returns the live areas, by address: see [`Arena::areas_from`].
    ///
    /// # Panics
    ///
    /// See [`Arena::find`].
    #[track_caller]
    pub fn areas<'g>(&'g self, section: &'g impl Section) -> impl Iterator<Item = Checked<'g>> {
        self.areas_from(0, section)
    }

    /// Checks that `len` bytes from `addr` lie inside one live area, whose memory then stays until
    /// the section ends. The kernel's `check_object_size()`, which drops its lock before the copy,
    /// while here the section covers the copy.
    ///
    /// Takes a find and two comparisons. Never blocks; async-signal-safe.
    ///
    /// # Errors
    ///
    /// [`Error::NotLive`], [`Error::CrossesEnd`]; [`Error::ZeroSize`] and [`Error::Overflow`] for
    /// lengths that no range has.
    ///
    /// # Panics
    ///
    /// See [`Arena::find`].
    #[inline]
    #[track_caller]
    pub fn check<'g>(
        &'g self,
        addr: usize,
        len: usize,
        section: &'g impl Section,
    ) -> Result<Checked<'g>, Error> {
        self.assert_section(section);
        self.check_in(addr, len, section)
    }

    /// Checks in a section that is known to be of the arena's domain.
    #[inline(always)]
    fn check_in<'g>(
        &'g self,
        addr: usize,
        len: usize,
        _section: &'g impl Section,
    ) -> Result<Checked<'g>, Error> {
        let offset = addr.wrapping_sub(self.state.base());
        // For 0 bytes the left side wraps to the largest number.
        if len.wrapping_sub(1) < self.state.map.left(offset) {
            return Ok(self.checked(offset, len));
        }
        self.check_slow(addr, len)
    }

    /// The slow path of [`Arena::check`]: areas of 2 MiB and more, and errors.
    #[inline(never)]
    fn check_slow(&self, addr: usize, len: usize) -> Result<Checked<'_>, Error> {
        let offset = addr.wrapping_sub(self.state.base());
        match self.state.map.find_byte(offset) {
            Some(extent) if len.wrapping_sub(1) < extent.end() - offset => {
                Ok(self.checked(offset, len))
            }
            _ => Err(self.why_not(addr, len)),
        }
    }

    #[cold]
    fn why_not(&self, addr: usize, len: usize) -> Error {
        let base = self.state.base();
        if len == 0 {
            return Error::ZeroSize;
        }
        if addr.checked_add(len).is_none() {
            return Error::Overflow { addr, len };
        }
        match self.state.map.find(addr.wrapping_sub(base)) {
            // Not if an area has been made there since the check.
            Some(extent) if addr < base + extent.end() && addr + len > base + extent.end() => {
                Error::CrossesEnd {
                    addr,
                    len,
                    end: base + extent.end(),
                }
            }
            _ => Error::NotLive { addr },
        }
    }

    /// Copies bytes from `from`, an address in a live area, to `to`, in a separate section. The
    /// kernel's `copy_to_user()` with a hardened usercopy.
    ///
    /// Calls [`Arena::check`] and [`Checked::copy_to`]. Async-signal-safe in threads that have read
    /// in the domain before. If `to` is empty, `from` may be any address.
    ///
    /// # Errors
    ///
    /// See [`Arena::check`]; nothing has been copied then.
    #[inline]
    pub fn copy_to(&self, from: usize, to: &mut [u8]) -> Result<(), Error> {
        if to.is_empty() {
            return Ok(());
        }
        let guard = self.read_lock();
        self.check_in(from, to.len(), &guard)?.copy_to(to);
        Ok(())
    }

    /// Copies `from` to `to`, an address in a live area, in a separate section. The kernel's
    /// `copy_from_user()` with a hardened usercopy.
    ///
    /// # Errors
    ///
    /// See [`Arena::copy_to`].
    #[inline]
    pub fn copy_from(&self, to: usize, from: &[u8]) -> Result<(), Error> {
        if from.is_empty() {
            return Ok(());
        }
        let guard = self.read_lock();
        self.check_in(to, from.len(), &guard)?.copy_from(from);
        Ok(())
    }

    /// Copies `len` bytes from the address `from` to the address `to`, each in a live area; they
    /// may overlap.
    ///
    /// # Errors
    ///
    /// See [`Arena::copy_to`].
    pub fn copy_between(&self, to: usize, from: usize, len: usize) -> Result<(), Error> {
        if len == 0 {
            return Ok(());
        }
        let guard = self.read_lock();
        let from = self.check_in(from, len, &guard)?;
        self.check_in(to, len, &guard)?.copy_between(&from);
        Ok(())
    }

    #[inline(always)]
    #[track_caller]
    fn assert_section(&self, section: &impl Section) {
        if section.domain_id() != self.state.domain_id {
            wrong_domain(section.domain_id(), self.state.domain_id);
        }
    }
}

#[cold]
#[track_caller]
fn wrong_length(own: usize, other: usize) -> ! {
    panic!(
        "stillpoint: a checked range of {own} bytes is copied to or from {other}: make them equal"
    );
}

#[cold]
#[track_caller]
fn wrong_domain(section: u64, own: u64) -> ! {
    panic!(
        "stillpoint: an arena of domain {own} is searched in a section of domain {section} (0: of none, an offline QSBR reader), \
         which keeps none of its areas in place. Use Arena::read_lock, or build the arena with the readers' domain"
    );
}
