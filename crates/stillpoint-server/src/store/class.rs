//! Sizes of segments: they follow what the tenant uses, so that a small tenant's open segments do
//! not take more than its items.

/// Bytes before the first item of a segment: where its description is, and the length of a single
/// value.
pub const SEGMENT_HEADER: usize = 16;

/// Pages, to which own segments are aligned.
pub const PAGE: usize = 4096;

/// Least size in bytes of an item that is alone in a segment. The rest of its last page is then a
/// sixteenth on average, and a pin keeps no other item.
const OWN: usize = 32 << 10;

/// Number of segments that a tenant has about: their size is the largest that allows as many.
const SEGMENTS: u64 = 128;

/// Sizes in bytes of segments for several items.
pub const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// What kind of segment: one of five sizes, or one of whole pages for a single item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class(u8);

impl Class {
    /// A segment for a single item.
    pub const OWN: Class = Class(SIZES.len() as u8);

    #[cfg(test)]
    pub fn all() -> impl Iterator<Item = Class> {
        (0..=SIZES.len() as u8).map(Class)
    }

    #[inline]
    pub fn number(self) -> u8 {
        self.0
    }

    #[inline]
    pub fn from_number(number: u8) -> Self {
        debug_assert!(usize::from(number) <= SIZES.len());
        Self(number)
    }

    /// Whether an item of `size` bytes has a segment of its own.
    #[inline]
    pub fn is_large(size: usize) -> bool {
        size >= OWN
    }

    /// Returns the class for an item of `size` bytes of a tenant that uses `usage` bytes.
    pub fn choose(size: usize, usage: u64) -> Self {
        if Self::is_large(size) {
            return Self::OWN;
        }
        let goal = (usage / SEGMENTS) as usize;
        let by_usage = SIZES.iter().rposition(|&size| size <= goal).unwrap_or(0);
        let least = SIZES.iter().position(|&room| room >= size * 4);
        Self(by_usage.max(least.unwrap_or(SIZES.len() - 1)) as u8)
    }

    /// Returns the next smaller class if its segments have room for several items of `size` bytes.
    pub fn smaller(self, size: usize) -> Option<Self> {
        let below = usize::from(self.0).checked_sub(1)?;
        let is_enough = self != Self::OWN && SIZES[below] >= size * 4;
        is_enough.then_some(Self(below as u8))
    }

    /// This one, or a smaller one that has so many bytes and suits a tenant that uses `usage` bytes.
    /// Not for one of its own.
    pub fn limit(self, bytes: usize, usage: u64) -> Self {
        let fits = SIZES.iter().position(|&room| room >= bytes);
        let wanted = Self::choose(0, usage)
            .0
            .max(fits.unwrap_or(SIZES.len()) as u8);
        Self(self.0.min(wanted))
    }

    /// The bytes of a segment; for one of its own, those that an item of `item` bytes takes.
    pub fn bytes(self, item: usize) -> usize {
        match SIZES.get(usize::from(self.0)) {
            Some(&bytes) => bytes,
            None => (SEGMENT_HEADER + item).next_multiple_of(PAGE),
        }
    }

    /// Returns the alignment of segments of this class. An item's address, rounded down to it, is that of
    /// its segment: a single item begins in the first page.
    #[inline]
    pub fn alignment(self) -> usize {
        match SIZES.get(usize::from(self.0)) {
            Some(&bytes) => bytes,
            None => PAGE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_follows_usage_and_item() {
        let bytes = |size, usage| Class::choose(size, usage).bytes(size);
        assert_eq!(bytes(100, 0), 4 << 10);
        assert_eq!(bytes(100, 64 << 20), 256 << 10);
        assert_eq!(bytes(100, 1 << 40), 1 << 20);
        assert_eq!(bytes(2000, 0), 16 << 10);
        assert_eq!(bytes(31 << 10, 0), 256 << 10);
        assert_eq!(bytes(40 << 10, 0), 44 << 10);
        assert_eq!(Class::choose(200 << 10, 1 << 40), Class::OWN);
        assert_eq!(Class(4).smaller(64 << 10), Some(Class(3)));
        assert_eq!(Class(4).smaller(65 << 10), None);
        assert_eq!((Class(0).smaller(1), Class::OWN.smaller(1)), (None, None));
        let limit = |class: u8, bytes, usage| Class(class).limit(bytes, usage).bytes(0);
        assert_eq!(limit(4, 100, 0), 4 << 10);
        assert_eq!(limit(4, 5000, 0), 16 << 10);
        assert_eq!(limit(4, 100, 64 << 20), 256 << 10);
        assert_eq!(limit(1, 100, 1 << 40), 16 << 10);
        assert_eq!(limit(4, 1 << 20, 0), 1 << 20);
    }
}
