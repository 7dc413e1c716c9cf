//! The reader of statistics pages, on pages that are not honest.
#![no_main]

use std::sync::atomic::{AtomicUsize, Ordering};
use stillpoint_platform::stats::{
    fields::FIELDS,
    layout::{self, BLOCKS_AT, MAGIC, MOST_SLOTS, VERSION, WORD, head, slot, slot_at},
    read::{self, ReadAt},
};

/// A page that may change under its reader: the parts in use are words of the input, one after the
/// other, and the input goes on from where it was in each further call.
struct Hostile<'a> {
    input: &'a [u8],
    at: AtomicUsize,
}

impl Hostile<'_> {
    fn next(&self) -> u8 {
        let at = self.at.fetch_add(1, Ordering::Relaxed);
        self.input[at % self.input.len()]
    }

    /// A word: small, at a limit, somewhere in the page, or anything.
    fn word(&self) -> u64 {
        let limits = [0, 1, 2, 8, MOST_SLOTS, BLOCKS_AT, layout::WORDS, usize::MAX];
        match self.next() % 8 {
            0..3 => u64::from(self.next() % 8),
            3 => limits[usize::from(self.next()) % limits.len()] as u64,
            4 => (BLOCKS_AT + usize::from(self.next())) as u64,
            5 => u64::from_ne_bytes([(); WORD].map(|()| self.next())),
            6 => 1,
            _ => 0,
        }
    }

    /// Mostly what an honest page has here.
    fn word_at(&self, at: usize) -> u64 {
        if self.next() == 0 {
            return self.word();
        }
        match at {
            head::MAGIC => MAGIC,
            head::VERSION => VERSION,
            head::WORDS..BLOCKS_AT => match (at - slot_at(0)) % slot::WORDS {
                slot::SEQUENCE => 2 * u64::from(self.next() % 2),
                slot::STATE => slot::USED,
                _ => self.word(),
            },
            _ => self.word(),
        }
    }
}

impl ReadAt for Hostile<'_> {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        let first = usize::try_from(offset).expect("it is in the page") / WORD;
        assert!(first + bytes.len() / WORD <= layout::WORDS, "read behind the end");
        for (at, bytes) in (first..).zip(bytes.chunks_exact_mut(WORD)) {
            bytes.copy_from_slice(&self.word_at(at).to_ne_bytes());
        }
        Ok(())
    }
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if input.is_empty() {
        return;
    }
    let hostile = Hostile { input, at: AtomicUsize::new(0) };
    let Ok(page) = read::read(&hostile) else { return };
    assert!(page.things.len() + page.changing <= MOST_SLOTS);
    for thing in &page.things {
        assert!(thing.name.len() <= 3 * 80 && !thing.name.contains(char::is_control));
        for (name, _) in FIELDS {
            let (_, text) = (thing.number_of(name), thing.text_of(name));
            assert!(!text.contains(char::is_control));
        }
    }
});
