//! How often keys were asked for lately: a count-min sketch (Cormode and Muthukrishnan) with
//! conservative updates, of two rows in one table of four-bit counters, whose counts are halved as
//! time passes (TinyLFU; Einziger, Friedman and Manes).
//!
//! Halving is not done at once for all, but for sixteen counters at a time: no insert pays for the
//! whole table. Nor is a table made smaller at once: until all of it has been folded, a key is counted
//! in the old one or in the new one, as the words of the old one come in turn.

use super::{Freed, PART, ROOM, SPARE, Trimmed};
use stillpoint_map::internal::prefetch;

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
    /// Index of the word that is halved next.
    next: usize,
    /// Part of a word that is due to be halved: words times counted uses.
    due: usize,
    /// The larger table that is being folded into `words`; none at other times.
    old: Box<[u64]>,
    /// Number of its words that have been folded.
    folded: usize,
}

impl Sketch {
    /// Returns the places of a fingerprint's counters in a table of `words` words: word and shift, in both rows.
    #[inline(always)]
    fn places(fingerprint: u32, words: usize) -> [(usize, usize); 2] {
        let hash = u64::from(fingerprint).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [hash >> 32, hash.wrapping_mul(0xd134_2543_de82_ef95) >> 24].map(|hash| {
            let counter = hash as usize & (words * IN_WORD - 1);
            (counter / IN_WORD, counter % IN_WORD * 4)
        })
    }

    /// Fetches what [`add`](Self::add) uses of the table.
    #[inline]
    pub fn fetch(&self, fingerprint: u32) {
        if !self.words.is_empty() {
            for (word, _) in Self::places(fingerprint, self.words.len()) {
                prefetch(self.words.as_ptr().wrapping_add(word));
            }
        }
    }

    /// Returns the word that has the counters of a place now. `place` is one of the larger table.
    fn word(&self, place: usize) -> u64 {
        match self.old.get(place) {
            Some(&word) if place >= self.folded => word,
            _ => self.words[place & (self.words.len() - 1)],
        }
    }

    fn word_mut(&mut self, place: usize) -> &mut u64 {
        match self.old.get_mut(place) {
            Some(word) if place >= self.folded => word,
            _ => &mut self.words[place & (self.words.len() - 1)],
        }
    }

    /// Returns the count of a key, at most 15.
    pub fn get(&self, fingerprint: u32) -> u64 {
        if self.words.is_empty() {
            return 0;
        }
        let words = self.words.len().max(self.old.len());
        let places = Self::places(fingerprint, words);
        let [first, second] = places.map(|(word, shift)| self.word(word) >> shift & MOST);
        first.min(second)
    }

    /// Counts some uses of a key. `entries` is how many there are.
    #[inline(always)]
    pub fn add(&mut self, fingerprint: u32, uses: u8, entries: usize) {
        if self.words.len() * IN_WORD < entries.max(IN_WORD) * COUNTERS {
            self.grow(entries.max(IN_WORD) * COUNTERS / IN_WORD);
        }
        if self.is_shrinking() {
            return self.add_while_shrinking(fingerprint, uses);
        }
        let words = &mut *self.words;
        let places = Self::places(fingerprint, words.len());
        let [first, second] = places.map(|(word, shift)| words[word] >> shift & MOST);
        let count = (first.min(second) + u64::from(uses)).min(MOST);
        for (word, shift) in places {
            // Both may be one counter.
            words[word] += count.saturating_sub(words[word] >> shift & MOST) << shift;
        }
        self.age(uses, entries);
    }

    /// As [`add`](Self::add), for a short time, in which words are in two tables. No count is halved.
    #[cold]
    fn add_while_shrinking(&mut self, fingerprint: u32, uses: u8) {
        let count = (self.get(fingerprint) + u64::from(uses)).min(MOST);
        for (word, shift) in Self::places(fingerprint, self.old.len()) {
            let word = self.word_mut(word);
            *word += count.saturating_sub(*word >> shift & MOST) << shift;
        }
    }

    /// Returns the number of entries that there are counters for.
    pub fn room(&self) -> usize {
        self.words.len() * (IN_WORD / COUNTERS)
    }

    /// Halves the counters that are due after some uses.
    #[inline(always)]
    fn age(&mut self, uses: u8, entries: usize) {
        self.due += usize::from(uses) * self.words.len();
        // A table that is far too large is halved more slowly: at most a word for each use.
        let each = HALF_LIFE * entries.max(self.room() / SPARE).max(IN_WORD);
        while self.due >= each {
            self.due -= each;
            let word = &mut self.words[self.next];
            *word = *word >> 1 & 0x7777_7777_7777_7777;
            self.next = (self.next + 1) & (self.words.len() - 1);
        }
    }

    /// Makes the table as small as so many entries need it, and some more, if it is larger: a part of
    /// that. Counters that become one have the larger count.
    pub fn shrink(&mut self, entries: usize) -> Trimmed {
        if !self.is_shrinking() {
            let entries = (entries + entries / ROOM).max(IN_WORD);
            let len = (entries * COUNTERS / IN_WORD).next_power_of_two();
            if self.words.len() <= len {
                return Trimmed::Done;
            }
            self.old = std::mem::replace(&mut self.words, zeros(len));
            // What was due was measured by a table and by entries that are no longer there.
            (self.folded, self.next, self.due) = (0, 0, 0);
        }
        Trimmed::Part(self.fold(PART).map(Freed::Counts))
    }

    /// Returns whether a part of the table is still to be folded into a smaller one.
    pub fn is_shrinking(&self) -> bool {
        !self.old.is_empty()
    }

    /// Folds so many words of the old table, at most. Returns that once all have been.
    fn fold(&mut self, most: usize) -> Option<Box<[u64]>> {
        let end = self.old.len().min(self.folded.saturating_add(most));
        let mask = self.words.len() - 1;
        for place in self.folded..end {
            let word = &mut self.words[place & mask];
            *word = larger_of_each(*word, self.old[place]);
        }
        self.folded = end;
        (end == self.old.len()).then(|| std::mem::take(&mut self.old))
    }

    /// Makes a table of at least `wanted` words, in which all counts are as they were.
    #[cold]
    fn grow(&mut self, wanted: usize) {
        if self.is_shrinking() {
            // All at once: seldom is a table to be larger again before it has become smaller.
            self.fold(usize::MAX);
        }
        let len = wanted.next_power_of_two();
        let mut words = zeros(len);
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

/// Returns a table of `len` words.
fn zeros(len: usize) -> Box<[u64]> {
    vec![0; len].into_boxed_slice()
}

/// Returns the larger counter of each pair in two words. It has no loop, as it runs under the lock for each
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

    fn shrink(sketch: &mut Sketch, entries: usize) {
        while !matches!(sketch.shrink(entries), Trimmed::Done) {}
    }

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
        shrink(&mut sketch, 10);
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
        shrink(&mut sketch, 4000);
        assert_eq!(sketch.words.len(), len, "that is what it needs");
        shrink(&mut sketch, 2000);
        assert_eq!(sketch.words.len(), len, "with room for some more");
        shrink(&mut sketch, 960);
        assert_eq!(sketch.words.len(), len / 4);
        for (key, before) in (0..).zip(before) {
            assert!(sketch.get(key) >= before, "{key}");
        }
        // And grows again.
        sketch.add(1, 1, 4000);
        assert_eq!(sketch.words.len(), len);
    }

    #[test]
    #[cfg_attr(miri, ignore = "long, and without unsafe code")]
    fn while_a_table_becomes_smaller_keys_are_counted_in_both() {
        let entries = 4 * PART * IN_WORD / COUNTERS;
        let keys = 0..PART as u32;
        let fill = || {
            let mut sketch = Sketch::default();
            keys.clone()
                .for_each(|key| sketch.add(key, (key % 8) as u8, entries));
            assert_eq!(sketch.words.len(), 4 * PART);
            sketch
        };
        let mut sketch = fill();
        let before: Vec<_> = keys.clone().map(|key| sketch.get(key)).collect();
        for _ in 0..2 {
            assert!(matches!(sketch.shrink(entries / 9), Trimmed::Part(None)));
        }
        assert_eq!((sketch.folded, sketch.old.len()), (2 * PART, 4 * PART));
        for (key, before) in keys.clone().zip(&before) {
            assert!(sketch.get(key) >= *before, "{key}");
            let now = sketch.get(key);
            sketch.add(key, 1, entries / 9);
            assert!(sketch.get(key) > now.min(MOST - 1), "{key}");
        }
        assert_eq!(sketch.next, 0, "words of two tables are halved");
        while sketch.is_shrinking() {
            let _ = sketch.shrink(entries / 9);
        }
        assert_eq!(sketch.words.len(), PART / 2);
        for (key, before) in keys.clone().zip(&before) {
            assert!(sketch.get(key) > *before.min(&(MOST - 1)), "{key}");
        }
        // In parts as at once, if nothing is counted meanwhile.
        let [mut in_parts, mut at_once] = [fill(), fill()];
        shrink(&mut in_parts, entries / 9);
        let _ = at_once.shrink(entries / 9);
        at_once.fold(usize::MAX);
        assert_eq!(in_parts.words, at_once.words);
        // One that grows meanwhile counts no key less often.
        let mut sketch = fill();
        let _ = sketch.shrink(entries / 9);
        sketch.add(1, 1, entries);
        assert!(!sketch.is_shrinking() && sketch.words.len() == 4 * PART);
        for (key, before) in keys.zip(&before) {
            assert!(sketch.get(key) >= *before, "{key}");
        }
    }
}
