//! How full a table is before it grows.
//!
//! Of seven slots, an entry more for each bucket is memory saved, and entries behind links: of random
//! hashes 3.4 % are there at four entries a bucket, 7.8 % at five, 17 % at six and a half. Such an
//! entry is a cache line more for its look-ups, and an insert into its chain takes the longer way.

use crate::table::{FEWEST_BITS, MOST_BITS};

fn bits_for(entries: usize, capacity: impl Fn(u32) -> usize) -> Option<u32> {
    (FEWEST_BITS..=MOST_BITS).find(|bits| capacity(*bits) >= entries)
}

/// Of tables that refer to entries: a bucket is a cache line.
pub mod references {
    /// How many entries a table of so many bits has before it grows.
    pub fn capacity(bits: u32) -> usize {
        (1 << bits) * 4
    }

    /// The fewest bits for so many entries.
    pub fn bits_for(entries: usize) -> Option<u32> {
        super::bits_for(entries, capacity)
    }
}

/// Of tables that entries lie in: there a bucket is more memory.
pub mod copies {
    /// How many entries a table of so many bits has before it grows.
    pub fn capacity(bits: u32) -> usize {
        (1 << bits) * 5
    }

    /// The fewest bits for so many entries.
    pub fn bits_for(entries: usize) -> Option<u32> {
        super::bits_for(entries, capacity)
    }
}
