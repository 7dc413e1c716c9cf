//! The word of a run: which of its slots are free, and whether a thread allocates from it.
//!
//! ```text
//!   55 .. 40   39 .. 33   32      31 .. 16   15 .. 0
//! +----------+----------+-------+----------+-------------------+
//! | used     | stripe   | owned | count    | first, of a list  |
//! +----------+----------+-------+----------+-------------------+
//! ```
//!
//! Of an owned run it says which stripe has it, and how many of its slots were in use when that
//! took those that were free: before so many were freed there is no need to look whether all are.
//!
//! Free slots are a list: each names the next one. Any thread pushes; only the run's owner takes,
//! and it takes the whole list. So a push that compares nothing but the word is right even if the
//! same word has come back meanwhile.

use stillpoint_platform::sync::UnsafeCell;

/// What positions count in.
pub const GRAIN: usize = 8;

const OWNED: u64 = 1 << 32;
const STRIPE_SHIFT: u32 = 33;
const USED_SHIFT: u32 = 40;

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run(u64);

impl Run {
    /// No slot is free, and no thread allocates from it.
    pub const FULL: Self = Self(0);

    /// A stripe allocates from it, and has taken all that were free; so many were in use.
    #[inline]
    pub const fn owned_by(stripe: usize, used: usize) -> Self {
        Self(OWNED | (stripe as u64) << STRIPE_SHIFT | (used as u64) << USED_SHIFT)
    }

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

    /// The stripe of an owned one.
    #[inline]
    pub fn stripe(self) -> usize {
        (self.0 >> STRIPE_SHIFT) as usize & 0x7f
    }

    /// How many slots of an owned one were in use when its stripe took the others.
    #[inline]
    pub fn used(self) -> usize {
        usize::from((self.0 >> USED_SHIFT) as u16)
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
        Self((self.0 & (OWNED - 1)) + ((slots as u64) << 16))
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
    #[inline]
    pub fn to(next: Option<Position>) -> Self {
        Self(UnsafeCell::new(next.map_or(0, |position| position.0)))
    }

    /// Returns the position of the next free slot.
    #[inline]
    pub fn next(&mut self) -> Option<Position> {
        // SAFETY: borrowed mutably.
        Position::of(self.0.with(|next| unsafe { *next }))
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn pushes_and_owners_leave_each_other_alone() {
        let (first, second) = (Position::of_offset(0), Position::of_offset(32 << 10));
        assert_eq!((first.offset(), second.offset()), (0, 32 << 10));
        let owned = Run::owned_by(63, 1364);
        for run in [Run::FULL, owned] {
            let one = run.pushed(first);
            assert_eq!((one.first(), one.count()), (Some(first), 1));
            let two = one.pushed(second);
            assert_eq!((two.first(), two.count()), (Some(second), 2));
            assert_eq!(two.is_owned(), run.is_owned());
            assert_eq!((two.stripe(), two.used()), (run.stripe(), run.used()));
            let rest = two.given_up(1300);
            assert_eq!((rest.is_owned(), rest.count()), (false, 1302));
            assert_eq!((rest.stripe(), rest.used()), (0, 0));
        }
        assert_eq!((owned.first(), owned.count()), (None, 0));
        assert_eq!((owned.stripe(), owned.used()), (63, 1364));
    }
}
