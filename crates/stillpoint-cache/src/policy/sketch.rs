//! How often keys were asked for lately: a count-min sketch (Cormode and Muthukrishnan) with
//! conservative updates, of two rows in one table of four-bit counters, whose counts are halved as
//! time passes (TinyLFU; Einziger, Friedman and Manes).
//!
//! Halving is not done at once for all, but for sixteen counters at a time: no insert pays for the
//! whole table.

use super::{ROOM, SPARE};
use stillpoint_platform::memory;

/// Counters of an entry, at least. They take half a byte each.
const COUNTERS: usize = 8;

/// Counters of a word.
const IN_WORD: usize = 16;

/// The largest count.
const MOST: u64 = 15;

/// All counts are halved once in so many counted uses for each entry. Chosen by replays: with 4
/// the trace P6 loses what it had learnt, with 10 OLTP and larger caches of P3 and P6 keep it too long.
const HALF_LIFE: usize = 5;

/// The sketch of one policy.
#[derive(Debug, Default)]
pub struct Sketch {
    /// A power of two of words; none at first.
    words: Box<[u64]>,
    /// Which word is halved next.
    next: usize,
    /// How much of a word is to be halved: words times counted uses.
    due: usize,
}

impl Sketch {
    /// Where the counters of a fingerprint are: word and shift, in both rows.
    fn places(&self, fingerprint: u32) -> [(usize, usize); 2] {
        let hash = u64::from(fingerprint).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mask = self.words.len() * IN_WORD - 1;
        [hash >> 32, hash.wrapping_mul(0xd134_2543_de82_ef95) >> 24].map(|hash| {
            let counter = hash as usize & mask;
            (counter / IN_WORD, counter % IN_WORD * 4)
        })
    }

    /// How often the key was counted, at most 15; 0 without memory for counts.
    pub fn get(&self, fingerprint: u32) -> u64 {
        if self.words.is_empty() {
            return 0;
        }
        let count = |(word, shift): (usize, usize)| self.words[word] >> shift & MOST;
        let [first, second] = self.places(fingerprint);
        count(first).min(count(second))
    }

    /// Counts some uses of a key. `entries` is how many there are.
    pub fn add(&mut self, fingerprint: u32, uses: u8, entries: usize) {
        if self.words.len() * IN_WORD < entries.max(IN_WORD) * COUNTERS {
            self.grow(entries.max(IN_WORD) * COUNTERS / IN_WORD);
        }
        if self.words.is_empty() {
            return;
        }
        let count = (self.get(fingerprint) + u64::from(uses)).min(MOST);
        for (word, shift) in self.places(fingerprint) {
            let old = self.words[word] >> shift & MOST;
            if old < count {
                self.words[word] ^= (old ^ count) << shift;
            }
        }
        self.age(uses, entries);
    }

    /// For how many entries there are counters.
    pub fn room(&self) -> usize {
        self.words.len() * (IN_WORD / COUNTERS)
    }

    fn age(&mut self, uses: u8, entries: usize) {
        self.due += usize::from(uses) * self.words.len();
        // A table that is far too large is halved more slowly: at most a word for each use.
        let each = HALF_LIFE * entries.max(self.room() / SPARE).max(IN_WORD);
        while self.due >= each {
            self.due -= each;
            let word = &mut self.words[self.next];
            *word = *word >> 1 & 0x7777_7777_7777_7777;
            self.next = (self.next + 1) % self.words.len();
        }
    }

    /// Makes the table as small as so many entries need it, and some more, if it is larger. Counters
    /// that become one have the larger count.
    pub fn shrink(&mut self, entries: usize) {
        let entries = (entries + entries / ROOM).max(IN_WORD);
        let len = (entries * COUNTERS / IN_WORD).next_power_of_two();
        if self.words.len() <= len {
            return;
        }
        let Some(mut words) = memory::try_several(len, || 0) else {
            return;
        };
        for part in self.words.chunks_exact(len) {
            for (word, &other) in words.iter_mut().zip(part) {
                *word = larger_of_each(*word, other);
            }
        }
        // What was due was measured by a table and by entries that are no longer there.
        (self.words, self.next, self.due) = (words, 0, 0);
    }

    /// A table of at least so many words, in which all counts are as they were. Without memory the
    /// old one stays.
    fn grow(&mut self, wanted: usize) {
        let len = wanted.next_power_of_two();
        let Some(mut words) = memory::try_several(len, || 0) else {
            return;
        };
        // The low bits choose a word in the old table, so each part of the new one is a copy of it.
        let old = self.words.len();
        if old > 0 {
            words
                .chunks_exact_mut(old)
                .for_each(|part| part.copy_from_slice(&self.words));
        }
        self.words = words;
    }
}

/// The larger ones of the counters of two words. Without a loop: under the lock, it is asked of each
/// word of a table.
fn larger_of_each(a: u64, b: u64) -> u64 {
    const HIGH: u64 = 0x8888_8888_8888_8888;
    // The high bit of each counter: whether the other bits of `a` are no less, which borrows nothing.
    let low = (a | HIGH) - (b & !HIGH);
    let is_no_less = (a & !b | !(a ^ b) & low) & HIGH;
    let mask = (is_no_less >> 3) * MOST;
    a & mask | b & !mask
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn of_two_words_each_counter_is_the_larger_one() {
        let all = u64::MAX / MOST;
        for (a, b) in (0..=MOST).flat_map(|a| (0..=MOST).map(move |b| (a, b))) {
            for shift in (0..u64::BITS).step_by(4) {
                // Among counters of which one word has the smallest, and the other the largest.
                for (around_a, around_b) in [(0, all * MOST), (all * MOST, 0), (all * a, all * b)] {
                    let own = MOST << shift;
                    let words = [(around_a, a), (around_b, b)];
                    let [a_word, b_word] = words.map(|(word, count)| word & !own | count << shift);
                    let larger = around_a.max(around_b) & !own | a.max(b) << shift;
                    assert_eq!(larger_of_each(a_word, b_word), larger, "{a} and {b}");
                }
            }
        }
    }

    #[test]
    fn a_table_that_is_far_too_large_is_halved_a_word_at_a_time() {
        let mut sketch = Sketch::default();
        sketch.add(1, 1, 1 << 12);
        for key in 0..100 {
            let before = sketch.next;
            sketch.add(key, 1, 10);
            assert!(sketch.next <= before + 1);
        }
        assert!(sketch.next > 0);
    }

    /// What had been counted beside a large table would be due at once.
    #[test]
    fn a_table_that_has_become_smaller_is_halved_as_slowly() {
        let mut sketch = Sketch::default();
        // The next word is due when each of so many entries has been used once more.
        (0..4).for_each(|_| sketch.add(7, 3, 1 << 16));
        assert_eq!((sketch.get(7), sketch.next), (12, 1));
        sketch.add(7, 3, 1 << 16);
        sketch.shrink(10);
        sketch.add(1, 1, 10);
        assert!(sketch.next <= 1 && sketch.get(7) >= 15, "{}", sketch.get(7));
    }

    #[test]
    #[cfg_attr(miri, ignore = "long, and without unsafe code")]
    fn a_smaller_table_counts_no_key_less_often() {
        let mut sketch = Sketch::default();
        for key in 0..4000 {
            sketch.add(key, (key % 8) as u8, 4000);
        }
        let (before, len) = ((0..4000).map(|key| sketch.get(key)), sketch.words.len());
        let before: Vec<_> = before.collect();
        sketch.shrink(4000);
        assert_eq!(sketch.words.len(), len, "that is what it needs");
        sketch.shrink(2000);
        assert_eq!(sketch.words.len(), len, "with room for some more");
        sketch.shrink(960);
        assert_eq!(sketch.words.len(), len / 4);
        for (key, before) in (0..).zip(before) {
            assert!(sketch.get(key) >= before, "{key}");
        }
        // And grows again.
        sketch.add(1, 1, 4000);
        assert_eq!(sketch.words.len(), len);
    }
}
