//! The word of a leaf: how many entries it has, and in which slots they lie, in the keys' order.
//!
//! ```text
//!   63 .. 60          7 .. 4            3 .. 0
//! +---------+-----+----------------+---------------+
//! | entries | ... | slot of entry 1 | slot of entry 0 |
//! +---------+-----+----------------+---------------+
//! ```
//!
//! One store of it puts an entry in, or takes one out, for all readers at once (Masstree, Mao,
//! Kohler and Morris, EuroSys 2012).

/// Slots of a leaf. With 14 a leaf has four cache lines.
pub const SLOTS: usize = if cfg!(stillpoint_loom) { 3 } else { 14 };

const COUNT_SHIFT: u32 = 60;
const COUNT: u64 = 0xf << COUNT_SHIFT;

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order(u64);

impl Order {
    pub const EMPTY: Self = Self(0);

    #[inline(always)]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// How many entries there are.
    #[inline(always)]
    pub fn len(self) -> usize {
        (self.0 >> COUNT_SHIFT) as usize
    }

    /// The slot of an entry, by its place in the order.
    #[inline(always)]
    pub fn slot(self, at: usize) -> usize {
        debug_assert!(at < SLOTS);
        (self.0 >> (4 * at)) as usize & 0xf
    }

    /// The slots in their order.
    pub fn slots(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.len()).map(move |at| self.slot(at))
    }

    /// With another entry, before the one that is at that place.
    #[must_use]
    pub fn with(self, at: usize, slot: usize) -> Self {
        let below = (1 << (4 * at)) - 1;
        let low = self.0 & below;
        let high = (self.0 & !COUNT & !below) << 4;
        Self(Self::count(self.len() + 1) | high | (slot as u64) << (4 * at) | low)
    }

    /// Without the entry at that place.
    #[must_use]
    pub fn without(self, at: usize) -> Self {
        let below = (1 << (4 * at)) - 1;
        let low = self.0 & below;
        let high = ((self.0 & !COUNT) >> 4) & !below;
        Self(Self::count(self.len() - 1) | high | low)
    }

    /// The first slots, in their order.
    pub fn first(count: usize) -> Self {
        let nibbles = 0x0fed_cba9_8765_4321_u64 << 4 & ((1 << (4 * count)) - 1);
        Self(Self::count(count) | nibbles)
    }

    fn count(count: usize) -> u64 {
        (count as u64) << COUNT_SHIFT
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn is_a_list_of_slots() {
        let mut model: Vec<usize> = Vec::new();
        let mut order = Order::EMPTY;
        for slot in 0..SLOTS {
            let at = slot * 7 % (slot + 1);
            model.insert(at, slot);
            order = order.with(at, slot);
            assert_eq!(order.slots().collect::<Vec<_>>(), model);
        }
        while !model.is_empty() {
            let at = model.len() * 5 % model.len().max(3) % model.len();
            model.remove(at);
            order = order.without(at);
            assert_eq!(order.slots().collect::<Vec<_>>(), model);
        }
        assert_eq!(order, Order::EMPTY);
        for count in 0..=SLOTS {
            let first = Order::first(count);
            assert!(first.slots().eq(0..count), "{first:?}");
            assert_eq!(Order::from_bits(first.bits()).len(), count);
        }
    }
}
