//! The layout of a statistics page, for its writer and its reader.
//!
//! A page is an array of 64-bit words in the machine's byte order:
//!
//! | part | holds |
//! |---|---|
//! | head | magic, version, length, process, times, how much of each part is used |
//! | fields | for each field of a domain its name, unit, kind, and place in the block |
//! | slots | for each domain a sequence count, its state, block, numbers, name |
//! | blocks | the values |
//!
//! Texts are bytes in words, filled up with zeros. Of the head, the first two words are the same in
//! all versions.

/// The name of the memory file, which `/proc/PID/fd` shows as `/memfd:stillpoint-stats (deleted)`.
pub const NAME: &str = "stillpoint-stats";

/// The first word.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"stillpnt");

/// The second word. Another version has another layout.
pub const VERSION: u64 = 2;

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
    /// [`BYTES`](super::BYTES).
    pub const BYTES: usize = 2;
    /// The process id, as the process itself sees it: in a container it may differ from the id
    /// outside.
    pub const PID: usize = 3;
    /// When the page was made, by the monotonic clock, in nanoseconds.
    pub const MADE: usize = 4;
    /// Number of words of each block.
    pub const BLOCK: usize = 5;
    /// Number of fields of a block; 0 before the first domain.
    pub const FIELDS: usize = 6;
    /// Number of slots that have ever been used.
    pub const SLOTS: usize = 7;
    /// The first word behind all blocks.
    pub const END: usize = 8;
    /// Number of domains that there was no space for.
    pub const REFUSED: usize = 9;
    /// Number of words of the head.
    pub const WORDS: usize = 16;
}

/// Words of a field.
pub mod field {
    /// Its name.
    pub const NAME: usize = 0;
    /// The words of its name.
    pub const NAME_WORDS: usize = 4;
    /// What it is: a number of [`FieldKind`](super::FieldKind).
    pub const KIND: usize = 4;
    /// Its unit: a number of [`Unit`](super::Unit).
    pub const UNIT: usize = 5;
    /// Its first word in the block.
    pub const AT: usize = 6;
    /// Its words.
    pub const LEN: usize = 7;
    /// Number of words of a field.
    pub const WORDS: usize = 8;
}

/// Words of a slot.
pub mod slot {
    /// Odd while the slot, or a text in its block, is being changed.
    pub const SEQUENCE: usize = 0;
    /// [`USED`], [`ENDED`] or [`FREE`]; any other number counts as [`FREE`].
    pub const STATE: usize = 1;
    /// The first word of its block.
    pub const BLOCK: usize = 2;
    /// The number of the domain.
    pub const NUMBER: usize = 3;
    /// When it was registered, by the monotonic clock, in nanoseconds.
    pub const MADE: usize = 4;
    /// Its name.
    pub const NAME: usize = 5;
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

/// Largest number of fields of a block.
pub const MOST_FIELDS: usize = 512;
/// Largest number of domains at a time.
pub const MOST_SLOTS: usize = 1024;
/// Largest number of words of a block.
pub const MOST_BLOCK_WORDS: usize = 1024;

/// Largest number of values of a page.
pub const MOST_VALUES: usize = 64 * MOST_SLOTS;

/// Number of words of a text in a block.
pub const TEXT_WORDS: usize = 32;

/// The first word of the fields.
pub const FIELDS_AT: usize = head::WORDS;
/// The first word of the slots.
pub const SLOTS_AT: usize = FIELDS_AT + MOST_FIELDS * field::WORDS;
/// The first word of the blocks.
pub const BLOCKS_AT: usize = SLOTS_AT + MOST_SLOTS * slot::WORDS;
/// Number of words of a page.
pub const WORDS: usize = BYTES / WORD;

const _: () = assert!(BLOCKS_AT < WORDS && MOST_FIELDS <= MOST_VALUES);

/// What a field is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum FieldKind {
    /// Only grows, and wraps.
    Counter = 1,
    /// Goes up and down. Read as a signed number: it may be below 0 for a moment, and then counts
    /// as 0.
    Gauge = 2,
    /// A sum, then buckets, four for each power of two (`stillpoint::Histogram`).
    Histogram = 3,
    /// A moment of the monotonic clock, in nanoseconds; 0 for none.
    Time = 4,
    /// UTF-8, up to the first zero.
    Text = 5,
}

/// What a field counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Unit {
    /// Things.
    Count = 1,
    /// Bytes; all ones means no limit.
    Bytes = 2,
    /// Nanoseconds.
    Nanoseconds = 3,
    /// Nothing: it is a text.
    Text = 4,
}

/// A field of a block.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name: lower case and underscores, at most 32 bytes.
    pub name: &'static str,
    /// What it is.
    pub kind: FieldKind,
    /// Its unit.
    pub unit: Unit,
    /// Its words.
    pub words: usize,
}

impl Field {
    const fn new(name: &'static str, kind: FieldKind, unit: Unit, words: usize) -> Self {
        assert!(name.len() <= field::NAME_WORDS * WORD);
        Self {
            name,
            kind,
            unit,
            words,
        }
    }

    /// Makes a counter of events.
    #[must_use]
    pub const fn counter(name: &'static str) -> Self {
        Self::new(name, FieldKind::Counter, Unit::Count, 1)
    }

    /// Makes a gauge of things that exist.
    #[must_use]
    pub const fn gauge(name: &'static str) -> Self {
        Self::new(name, FieldKind::Gauge, Unit::Count, 1)
    }

    /// Makes a gauge of bytes.
    #[must_use]
    pub const fn bytes(name: &'static str) -> Self {
        Self::new(name, FieldKind::Gauge, Unit::Bytes, 1)
    }

    /// Makes a moment.
    #[must_use]
    pub const fn time(name: &'static str) -> Self {
        Self::new(name, FieldKind::Time, Unit::Nanoseconds, 1)
    }

    /// Makes a histogram of durations: their sum, then `buckets` buckets.
    #[must_use]
    pub const fn histogram(name: &'static str, buckets: usize) -> Self {
        Self::new(name, FieldKind::Histogram, Unit::Nanoseconds, 1 + buckets)
    }

    /// Makes a text.
    #[must_use]
    pub const fn text(name: &'static str) -> Self {
        Self::new(name, FieldKind::Text, Unit::Text, TEXT_WORDS)
    }
}

/// The fields of a block, in their order.
#[derive(Debug)]
pub struct Fields(pub(super) &'static [Field]);

impl Fields {
    /// Makes the fields of a block, for a constant or a static.
    ///
    /// # Panics
    ///
    /// If there are more than [`MOST_FIELDS`], or more than [`MOST_BLOCK_WORDS`] words: the page has
    /// no room for them, or no reader takes them.
    #[must_use]
    pub const fn new(fields: &'static [Field]) -> Self {
        let new = Self(fields);
        assert!(fields.len() <= MOST_FIELDS && new.block_words() <= MOST_BLOCK_WORDS);
        new
    }

    /// Returns the index of the first word of the field with this number.
    #[must_use]
    pub const fn at(&self, number: usize) -> usize {
        let (mut at, mut field) = (0, 0);
        while field < number {
            at += self.0[field].words;
            field += 1;
        }
        at
    }

    /// Returns the index of the first word of the field with this name.
    #[must_use]
    pub fn place_of(&self, name: &str) -> Option<usize> {
        let number = self.0.iter().position(|field| field.name == name)?;
        Some(self.at(number))
    }

    /// Returns the number of words of a block.
    #[must_use]
    pub const fn block_words(&self) -> usize {
        self.at(self.0.len())
    }
}

/// Returns `N` words with as many whole characters of `text` as fit.
#[must_use]
pub fn text_words<const N: usize>(text: &str) -> [u64; N] {
    let mut words = [0; N];
    let mut end = text.len().min(N * WORD);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (word, bytes) in words.iter_mut().zip(text.as_bytes()[..end].chunks(WORD)) {
        let mut padded = [0; WORD];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(padded);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "MOST_BLOCK_WORDS")]
    fn a_block_longer_than_readers_take_is_no_block() {
        const TEXTS: [Field; MOST_BLOCK_WORDS / TEXT_WORDS + 1] =
            [Field::text("t"); MOST_BLOCK_WORDS / TEXT_WORDS + 1];
        let _ = Fields::new(&TEXTS);
    }
}
