//! The map's word for a page: which area the page belongs to.
//!
//! ```text
//!   63          38 37                           0
//!   | back (26)   | left (38)                   |
//! ```
//!
//! `back` is the number of the area's pages before this one, `left` the number of the area's bytes
//! from this page's first byte on. Bytes beyond the size that was asked for are not part of the
//! area, so in its last page `left` may be less than a page. It is never 0, so a word of 0 says that
//! there is no area. A check compares only with `left`; a look-up computes both ends of the area.

/// Bytes of a page. The map counts in pages, and an arena on a system with another size is refused.
pub(crate) const PAGE: usize = 1 << PAGE_BITS;
pub(crate) const PAGE_BITS: u32 = 12;

const PAGES_BITS: u32 = 26;
const LEFT_BITS: u32 = PAGES_BITS + PAGE_BITS;

/// The longest area, in pages: 256 GiB less one page.
pub(crate) const MAX_PAGES: u32 = (1 << PAGES_BITS) - 1;

/// A live area: where it begins, in bytes from the arena's start, and its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Extent {
    /// Returns its first page, and the number of its pages.
    pub(crate) fn pages(self) -> (u32, u32) {
        (
            (self.start >> PAGE_BITS) as u32,
            self.len.div_ceil(PAGE) as u32,
        )
    }

    pub(crate) fn end(self) -> usize {
        self.start + self.len
    }
}

/// A map entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(u64);

impl Span {
    pub(crate) const NONE: u64 = 0;

    /// Creates the entry of page number `back` of an area.
    pub(crate) const fn new(pages: u32, back: u32, slack: u32) -> Self {
        debug_assert!(0 < pages && pages <= MAX_PAGES && back < pages && slack < PAGE as u32);
        let left = ((pages - back) as u64) << PAGE_BITS;
        Self((back as u64) << LEFT_BITS | (left - slack as u64))
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the entry with these bits, unless they say that there is no area.
    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64) -> Option<Self> {
        if bits == Self::NONE {
            None
        } else {
            Some(Self(bits))
        }
    }

    /// Returns the number of an area's bytes from the page's first byte on; 0 if the bits say that
    /// there is no area.
    #[inline(always)]
    pub(crate) const fn left(bits: u64) -> usize {
        (bits << PAGES_BITS >> PAGES_BITS) as usize
    }

    /// Returns the area, for the entry of the page that begins `at` bytes from the arena's start.
    #[inline(always)]
    pub(crate) const fn extent(self, at: usize) -> Extent {
        let before = (self.0 >> LEFT_BITS << PAGE_BITS) as usize;
        Extent {
            start: at.wrapping_sub(before),
            len: before + Self::left(self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn span_round_trip(pages in 1..=MAX_PAGES, back in any::<u32>(), slack in 0..PAGE as u32, start in 0..1_u32 << 30) {
            let back = back % pages;
            let at = (start as usize + back as usize) << PAGE_BITS;
            let span = Span::new(pages, back, slack);
            prop_assert_ne!(span.bits(), Span::NONE);
            prop_assert_eq!(Span::left(span.bits()), ((pages - back) as usize * PAGE) - slack as usize);
            let extent = span.extent(at);
            prop_assert_eq!(extent, Extent { start: (start as usize) << PAGE_BITS, len: ((pages as usize) << PAGE_BITS) - slack as usize });
            prop_assert_eq!(extent.pages(), (start, pages));
        }
    }
}
