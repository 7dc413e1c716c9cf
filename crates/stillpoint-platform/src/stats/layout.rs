//! The layout of a statistics page, for its writer and its reader.
//!
//! A page is an array of 64-bit words in the machine's byte order:
//!
//! | part | holds |
//! |---|---|
//! | head | magic, version, process, times, how many slots are used |
//! | slots | for each domain a sequence count, its state, numbers, name |
//! | blocks | for each slot the values: [`fields`](super::fields) |
//!
//! Texts are bytes in words, filled up with zeros. Of the head, the first two words are the same in
//! all versions.

use super::fields::BLOCK_WORDS;

/// The name of the memory file, which `/proc/PID/fd` shows as `/memfd:stillpoint-stats (deleted)`.
pub const NAME: &str = "stillpoint-stats";

/// The first word.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"stillpnt");

/// The second word. Another version has another layout.
pub const VERSION: u64 = 3;

/// Size of a page in bytes. It is sparse: only values take memory.
pub const BYTES: usize = 8 << 20;

/// Size of a word in bytes.
pub const WORD: usize = 8;

/// Words of the head.
pub mod head {
    /// [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// [`VERSION`](super::VERSION).
    pub const VERSION: usize = 1;
    /// The process id, as the process itself sees it: in a container it may differ from the id
    /// outside.
    pub const PID: usize = 2;
    /// When the page was made, by the monotonic clock, in nanoseconds.
    pub const MADE: usize = 3;
    /// Number of slots that have ever been used.
    pub const SLOTS: usize = 4;
    /// Number of domains that there was no space for.
    pub const REFUSED: usize = 5;
    /// Number of words of the head.
    pub const WORDS: usize = 8;
}

/// Words of a slot.
pub mod slot {
    /// Odd while the slot, or a text in its block, is being changed.
    pub const SEQUENCE: usize = 0;
    /// [`USED`], [`ENDED`] or [`FREE`]; any other number counts as [`FREE`].
    pub const STATE: usize = 1;
    /// The number of the domain.
    pub const NUMBER: usize = 2;
    /// When it was registered, by the monotonic clock, in nanoseconds.
    pub const MADE: usize = 3;
    /// Its name.
    pub const NAME: usize = 4;
    /// The words of its name.
    pub const NAME_WORDS: usize = 10;
    /// Number of words of a slot.
    pub const WORDS: usize = 16;

    /// The domain exists.
    pub const USED: u64 = 1;
    /// The domain has ended, and is not shown; some thread still counts in its block.
    pub const ENDED: u64 = 3;
    /// Another domain may take the slot.
    pub const FREE: u64 = 2;
}

/// Largest number of domains at a time.
pub const MOST_SLOTS: usize = 1024;

/// The first word of the blocks.
pub const BLOCKS_AT: usize = slot_at(MOST_SLOTS);
/// Number of words of a page.
pub const WORDS: usize = BYTES / WORD;

const _: () = assert!(block_at(MOST_SLOTS) <= WORDS);
const _: () = assert!(
    VERSION == 3 && BLOCK_WORDS == 678,
    "other fields are another version"
);

/// Returns the first word of the slot with this number.
#[must_use]
pub const fn slot_at(number: usize) -> usize {
    head::WORDS + number * slot::WORDS
}

/// Returns the first word of the block of the slot with this number.
#[must_use]
pub const fn block_at(number: usize) -> usize {
    BLOCKS_AT + number * BLOCK_WORDS
}
