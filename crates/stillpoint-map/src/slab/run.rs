//! The word of a run: which of its slots are free, and whether a thread allocates from it.
//!
//! ```text
//!   32      31 .. 16   15 .. 0
//! +-------+----------+-------------------+
//! | owned | count    | first, of a list  |
//! +-------+----------+-------------------+
//! ```
//!
//! Free slots are a list: each names the next one. Any thread pushes; only the run's owner takes,
//! and it takes the whole list. So a push that compares nothing but the word is right even if the
//! same word has come back meanwhile.

use std::ptr::NonNull;
use stillpoint_platform::sync::UnsafeCell;

/// What positions count in.
pub const GRAIN: usize = 8;

const OWNED: u64 = 1 << 32;

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run(u64);

impl Run {
    /// No slot is free, and no thread allocates from it.
    pub const FULL: Self = Self(0);
    /// A thread allocates from it, and has taken all that were free.
    pub const OWNED: Self = Self(OWNED);

    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub fn is_owned(self) -> bool {
        self.0 & OWNED != 0
    }

    /// The position of the list's first slot.
    #[inline]
    pub fn first(self) -> Option<Position> {
        Position::of(self.0 as u16)
    }

    /// How many slots are free.
    #[inline]
    pub fn count(self) -> usize {
        usize::from((self.0 >> 16) as u16)
    }

    /// One more slot, before all others.
    #[inline]
    pub fn pushed(self, position: Position) -> Self {
        Self((self.0 & !0xffff) + 0x1_0000 + u64::from(position.0))
    }

    /// So many more slots, which are in no list, and no owner: for a run that is not allocated from
    /// any more.
    pub fn given_up(self, slots: usize) -> Self {
        Self((self.0 & !OWNED) + ((slots as u64) << 16))
    }
}

/// Where in its run a slot is; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position(u16);

impl Position {
    #[inline]
    fn of(position: u16) -> Option<Self> {
        (position != 0).then_some(Self(position))
    }

    #[inline]
    pub fn of_offset(offset: usize) -> Self {
        Self((offset / GRAIN + 1) as u16)
    }

    #[inline]
    pub fn offset(self) -> usize {
        (usize::from(self.0) - 1) * GRAIN
    }
}

/// What a free slot holds: the position of the next.
#[derive(Debug)]
#[repr(transparent)]
pub struct Link(UnsafeCell<u16>);

impl Link {
    /// Makes it of a slot.
    ///
    /// # Safety
    ///
    /// The slot has space for it, and is the caller's.
    #[inline]
    pub unsafe fn write(slot: NonNull<u8>, next: Option<Position>) {
        let next = next.map_or(0, |position| position.0);
        // SAFETY: the caller's promise.
        unsafe { slot.cast().write(Self(UnsafeCell::new(next))) };
    }

    /// Reads that of a slot.
    ///
    /// # Safety
    ///
    /// It holds one, and is the caller's.
    #[inline]
    pub unsafe fn read(slot: NonNull<u8>) -> Option<Position> {
        // SAFETY: the caller's promise.
        let link = unsafe { slot.cast::<Self>().as_ref() };
        // SAFETY: the same.
        Position::of(link.0.with(|next| unsafe { *next }))
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn pushes_and_owners_leave_each_other_alone() {
        let (first, second) = (Position::of_offset(0), Position::of_offset(32 << 10));
        assert_eq!((first.offset(), second.offset()), (0, 32 << 10));
        for run in [Run::FULL, Run::OWNED] {
            let one = run.pushed(first);
            assert_eq!((one.first(), one.count()), (Some(first), 1));
            let two = one.pushed(second);
            assert_eq!((two.first(), two.count()), (Some(second), 2));
            assert_eq!(two.is_owned(), run.is_owned());
            let rest = two.given_up(1300);
            assert_eq!((rest.is_owned(), rest.count()), (false, 1302));
        }
        assert_eq!((Run::OWNED.first(), Run::OWNED.count()), (None, 0));
    }
}
