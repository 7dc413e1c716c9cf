//! The table of domains: the slot and the block of each. It is kept twice, in the page for its readers and
//! in private memory. The process reads only the private copy: a fork copies it as it is at that moment,
//! while the parent goes on changing the page, which both share until the child has its own.
//!
//! All changes are made under one lock, that of `write`.

use super::file;
use super::layout::{
    BLOCKS_AT, FIELDS_AT, Fields, MOST_SLOTS, SLOTS_AT, WORDS, field, head, slot, text_words,
};
use super::{Words, sequence};
use std::sync::atomic::{AtomicU64, Ordering};

/// The page, and the private copy of its table.
#[derive(Clone, Copy)]
pub(super) struct Table {
    /// All words of the page.
    pub(super) page: &'static [AtomicU64],
    /// The words before the blocks, as the process knows them.
    pub(super) own: &'static [AtomicU64],
}

pub(super) fn store(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

pub(super) fn store_all(words: &[AtomicU64], values: &[u64]) {
    for (word, &value) in words.iter().zip(values) {
        store(word, value);
    }
}

impl Table {
    fn get(&self, at: usize) -> u64 {
        self.own[at].load(Ordering::Relaxed)
    }

    fn number(&self, at: usize) -> usize {
        self.get(at) as usize
    }

    pub(super) fn put(&self, at: usize, value: u64) {
        store(&self.own[at], value);
        store(&self.page[at], value);
    }

    pub(super) fn put_all(&self, at: usize, values: &[u64]) {
        for (at, &value) in (at..).zip(values) {
            self.put(at, value);
        }
    }

    /// Puts a value like [`Table::put`]. A reader that finds it finds what was written before.
    fn show(&self, at: usize, value: u64) {
        store(&self.own[at], value);
        // Release [Q6], for Q5 of the reader, in its process.
        self.page[at].store(value, Ordering::Release);
    }

    /// Changes a slot, or a text of its domain.
    pub(super) fn change(&self, slot: usize, how: impl FnOnce()) {
        sequence::change(&self.page[slot + slot::SEQUENCE], how);
    }

    /// Changes the owner of a slot.
    pub(super) fn change_owner(&self, slot: usize, how: impl FnOnce()) {
        let own = &self.own[slot + slot::SEQUENCE];
        sequence::change(own, || self.change(slot, how));
    }

    /// Counts a domain that was refused.
    pub(super) fn refuse(&self) {
        self.put(head::REFUSED, self.get(head::REFUSED) + 1);
    }

    /// Reserves a slot and a block with these fields for a domain. The first call describes the fields.
    pub(super) fn find(&self, of: &'static Fields) -> Option<Words> {
        if self.get(head::FIELDS) == 0 {
            self.describe(of);
        }
        debug_assert_eq!(
            self.number(head::BLOCK),
            of.block_words(),
            "a page has one layout"
        );
        self.find_slot(of.block_words())
    }

    fn describe(&self, of: &'static Fields) {
        for (number, field) in of.0.iter().enumerate() {
            let at_field = FIELDS_AT + number * field::WORDS;
            let name: [u64; field::NAME_WORDS] = text_words(field.name);
            self.put_all(at_field + field::NAME, &name);
            self.put(at_field + field::KIND, field.kind as u64);
            self.put(at_field + field::UNIT, field.unit as u64);
            self.put(at_field + field::AT, of.at(number) as u64);
            self.put(at_field + field::LEN, field.words as u64);
        }
        self.put(head::BLOCK, of.block_words() as u64);
        self.show(head::FIELDS, of.0.len() as u64);
    }

    /// Returns a free slot with its block, or a new one.
    fn find_slot(&self, len: usize) -> Option<Words> {
        let at = |number: usize| SLOTS_AT + number * slot::WORDS;
        let words = |slot: usize| Words {
            words: &self.page[self.number(slot + slot::BLOCK)..][..len],
            slot,
        };
        let slots = self.number(head::SLOTS);
        let is_free = |&slot: &usize| self.get(slot + slot::STATE) == slot::FREE;
        if let Some(slot) = (0..slots).map(at).find(is_free) {
            return Some(words(slot));
        }
        let end = self.number(head::END);
        if slots == MOST_SLOTS || end + len > WORDS {
            return None;
        }
        let new = at(slots);
        file::take_memory(&self.page[new..][..slot::WORDS]).ok()?;
        file::take_memory(&self.page[end..][..len]).ok()?;
        self.put(new + slot::BLOCK, end as u64);
        self.put(new + slot::STATE, slot::FREE);
        self.put(head::END, (end + len) as u64);
        self.show(head::SLOTS, slots as u64 + 1);
        Some(words(new))
    }

    /// Writes the table of the child of a fork into `words`, a new page. The owner of a slot that a lost
    /// thread was changing is not known, so no domain gets that slot.
    ///
    /// # Errors
    ///
    /// If the system has no memory for it.
    pub(super) fn copy_in_child(&self, words: &[AtomicU64]) -> Result<(), crate::mmap::Refused> {
        let slots_end = SLOTS_AT + self.number(head::SLOTS) * slot::WORDS;
        file::take_memory(&words[..slots_end])?;
        file::take_memory(&words[BLOCKS_AT..self.number(head::END)])?;
        for slot in (SLOTS_AT..slots_end).step_by(slot::WORDS) {
            let own = &self.own[slot + slot::SEQUENCE];
            if !own.load(Ordering::Relaxed).is_multiple_of(2) {
                store(&self.own[slot + slot::STATE], slot::ENDED);
            }
            store(own, 0);
        }
        for (word, own) in words[..slots_end].iter().zip(self.own) {
            let value = own.load(Ordering::Relaxed);
            // Holes stay holes.
            if value != 0 {
                store(word, value);
            }
        }
        Ok(())
    }
}
