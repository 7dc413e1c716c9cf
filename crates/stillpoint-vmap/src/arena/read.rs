//! Reads over areas and holes alike.

use super::Arena;
use crate::copy::copy;
use std::{fmt, io, ops::Range};

/// Bytes that are copied in one section, at most, so that a long read does not delay a grace period.
const PIECE: usize = 1 << 20;

impl Arena {
    /// Copies the bytes from `addr` on to `to`, with zeroes where there is no live area. Returns the
    /// number of bytes that came from areas. The kernel's `vread_iter()`.
    ///
    /// For debuggers and dumps. Reads in several sections, one after the other: an area that is
    /// freed meanwhile may be read in part. `addr` may be any address; all outside the arena is a
    /// hole.
    pub fn read(&self, addr: usize, to: &mut [u8]) -> usize {
        let mut from_areas = 0;
        let mut addr = addr;
        let mut rest = to;
        while !rest.is_empty() {
            let guard = self.read_lock();
            let next = self
                .find_or_next(addr, &guard)
                .map(|found| found.addresses());
            let hole = next.as_ref().map_or(rest.len(), |next| {
                next.start.saturating_sub(addr).min(rest.len())
            });
            rest[..hole].fill(0);
            rest = &mut rest[hole..];
            // Only a hole goes up to the last address.
            addr = addr.wrapping_add(hole);
            let piece = next.map_or(0, |next| {
                (next.end - addr.min(next.end)).min(rest.len()).min(PIECE)
            });
            if piece > 0 {
                let at = self.state.at(addr - self.state.base());
                // SAFETY: inside an area that was found in this section; `rest` is the caller's
                // alone.
                unsafe { copy(rest.as_mut_ptr(), at.as_ptr(), piece) };
            }
            rest = &mut rest[piece..];
            addr += piece;
            from_areas += piece;
        }
        from_areas
    }

    /// Returns a reader of all bytes in a range of addresses, holes as zeroes: [`Arena::read`] as an
    /// [`io::Read`].
    ///
    /// ```
    /// # let arena = stillpoint_vmap::Arena::new()?;
    /// use std::io::Read;
    /// let area = arena.alloc(3, 1)?;
    /// area.copy_from(0, b"abc")?;
    /// let mut bytes = Vec::new();
    /// arena.reader(area.addr()..area.addr() + 5).read_to_end(&mut bytes).expect("it never fails");
    /// assert_eq!(bytes, b"abc\0\0");
    /// # Ok::<(), stillpoint_vmap::Error>(())
    /// ```
    #[must_use]
    pub fn reader(&self, addresses: Range<usize>) -> Reader<'_> {
        Reader {
            arena: self,
            addresses,
        }
    }
}

/// Reads a range of addresses; made by [`Arena::reader`].
pub struct Reader<'a> {
    arena: &'a Arena,
    addresses: Range<usize>,
}

impl io::Read for Reader<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let len = to.len().min(self.addresses.len());
        self.arena.read(self.addresses.start, &mut to[..len]);
        self.addresses.start += len;
        Ok(len)
    }
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}
