//! Keys: all distinct, and at no regular distance, as random ones.

/// The key of a number, another one for each number (the finalizer of splitmix64, which can be
/// inverted).
#[inline]
pub fn key(number: u64) -> u64 {
    let mut key = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

/// Numbers at random, each found in a nanosecond and without memory.
pub struct Numbers(u64);

impl Numbers {
    /// The numbers of a seed.
    pub fn of(seed: u64) -> Self {
        Self(key(seed))
    }

    /// The next one below `bound`, which fits in 32 bits.
    #[inline]
    pub fn below(&mut self, bound: usize) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        ((self.0 >> 32) * bound as u64) >> 32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_distinct_and_numbers_cover_their_range() {
        let keys: HashSet<u64> = (0..10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
        let mut numbers = Numbers::of(1);
        let found: HashSet<u64> = (0..1_000).map(|_| numbers.below(10)).collect();
        assert_eq!(found, (0..10).collect());
    }
}
