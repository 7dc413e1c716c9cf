//! The table of domains: the slot and the block of each. It is kept twice, in the page for its readers and
//! in private memory. The process reads only the private copy: a fork copies it as it is at that moment,
//! while the parent goes on changing the page, which both share until the child has its own.
//!
//! All changes are made under one lock, that of `page`.

use super::file;
use crate::stats::{
    Words,
    fields::BLOCK_WORDS,
    layout::{BLOCKS_AT, MOST_SLOTS, block_at, head, slot, slot_at},
    sequence,
};
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

    /// Returns how many slots have ever been used.
    fn slots(&self) -> usize {
        self.get(head::SLOTS) as usize
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

    /// Returns a free slot with its block, or a new one.
    pub(super) fn find(&self) -> Option<Words> {
        let words = |number| Words {
            words: &self.page[block_at(number)..][..BLOCK_WORDS],
            slot: slot_at(number),
        };
        let slots = self.slots();
        let is_free = |&number: &usize| self.get(slot_at(number) + slot::STATE) == slot::FREE;
        if let Some(free) = (0..slots).find(is_free) {
            return Some(words(free));
        }
        if slots == MOST_SLOTS {
            return None;
        }
        let new = words(slots);
        file::take_memory(&self.page[new.slot..][..slot::WORDS]).ok()?;
        file::take_memory(new.words).ok()?;
        self.put(new.slot + slot::STATE, slot::FREE);
        self.put(head::SLOTS, slots as u64 + 1);
        Some(new)
    }

    /// Writes the table of the child of a fork into `words`, a new page. The owner of a slot that a lost
    /// thread was changing is not known, so no domain gets that slot.
    ///
    /// # Errors
    ///
    /// If the system has no memory for it.
    pub(super) fn copy_in_child(&self, words: &[AtomicU64]) -> Result<(), crate::mmap::Refused> {
        let slots = self.slots();
        file::take_memory(&words[..slot_at(slots)])?;
        file::take_memory(&words[BLOCKS_AT..block_at(slots)])?;
        for slot in (0..slots).map(slot_at) {
            let own = &self.own[slot + slot::SEQUENCE];
            if !own.load(Ordering::Relaxed).is_multiple_of(2) {
                store(&self.own[slot + slot::STATE], slot::ENDED);
            }
            store(own, 0);
        }
        for (word, own) in words[..slot_at(slots)].iter().zip(self.own) {
            let value = own.load(Ordering::Relaxed);
            // Holes stay holes.
            if value != 0 {
                store(word, value);
            }
        }
        Ok(())
    }
}
