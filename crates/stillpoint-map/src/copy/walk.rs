//! All entries of a map, in the order of their hashes: as [`crate::walk`], which says why each key
//! that stays is visited once, whatever the table does.
//!
//! A step loads the word of a bucket, and then the spill. A key that an update takes from a slot to
//! the spill in between is in both, and the second time it is passed over. Slots have no hashes
//! with them: where a bucket begins below the walk's position, because the table has shrunk, their
//! keys are hashed.

use super::{
    bucket::{InSlot, InSlots, Pairs, Seen},
    core::Core,
    spill::Spill,
};
use crate::{
    section::{Live, Pinned},
    used::STRETCH,
    word::{SLOTS, Word},
};

/// Number of buckets whose slots are visited together.
const TOGETHER: usize = if cfg!(stillpoint_loom) { 2 } else { 8 };
const _: () = assert!(TOGETHER * SLOTS <= u64::BITS as usize);

/// A walk over a map, inside a section of its domain.
pub struct Walk<'g, K, V, C> {
    core: Option<Live<'g, Pinned<Core<K, V, C>>>>,
    /// The lowest hash whose bucket has not been visited; `None` behind the last.
    position: Option<u64>,
    /// The bucket that is being visited.
    seen: Option<Seen<'g, K, V>>,
    /// Its slots that are left.
    slots: Option<InSlots<'g, K, V>>,
    /// The next node of the spill.
    spilled: Option<Spill<'g, K, V>>,
    /// Entries with lower hashes have been visited; 0 if the bucket begins here.
    from: u64,
}

// SAFETY: it leads to a core and its buckets, which threads may share; through them it copies keys and values.
unsafe impl<K: Send + Sync, V: Send + Sync, C> Send for Walk<'_, K, V, C> {}
// SAFETY: a reference to it gives access to nothing but copies of it.
unsafe impl<K: Send + Sync, V: Send + Sync, C> Sync for Walk<'_, K, V, C> {}

/// Where a walk has found an entry.
enum At<'g, K, V> {
    Slot(InSlot<'g, K, V>),
    Node(Spill<'g, K, V>),
}

impl<K, V, C> Clone for Walk<'_, K, V, C> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<'g, K: Copy + Eq, V: Copy, C: Copy> Walk<'g, K, V, C> {
    /// A walk that begins at a hash.
    pub fn from(core: Option<Live<'g, Pinned<Core<K, V, C>>>>, position: Option<u64>) -> Self {
        Self {
            core,
            // A map without a core has nothing to visit.
            position: core.and(position),
            seen: None,
            slots: None,
            spilled: None,
            from: 0,
        }
    }

    /// Another walk, from a hash on, in the same section.
    #[cfg(feature = "rayon")]
    pub fn at(&self, first: u64) -> Self {
        Self::from(self.core, Some(first))
    }

    /// Where another walk would go on, once this one is through with the bucket.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// Visits the next bucket, if there is one.
    pub fn step(&mut self) -> Option<()> {
        let from = self.position?;
        let current = self.core?.get().table();
        let (table, index, word) = current.home(from);
        // SAFETY: the word was loaded from it, in the section.
        let seen = unsafe { table.at(index).seen(word) };
        let first = index
            .checked_sub(1)
            .map_or(0, |last| table.last_hash(last) + 1);
        self.from = if first == from { 0 } else { from };
        self.position = current.hash_behind((table, index, word));
        self.slots = Some(seen.taken());
        self.spilled = seen.spill();
        self.seen = Some(seen);
        Some(())
    }

    /// The next entry of the bucket that is being visited.
    pub fn next_here(&mut self, hash_of: &impl Fn(&K) -> u64) -> Option<(K, V)> {
        match self.find_next(hash_of)? {
            At::Slot(slot) => Some(slot.pair()),
            At::Node(node) => {
                let entry = node.entry();
                Some((entry.key, entry.value))
            }
        }
    }

    /// Where the key and the value of the next entry are.
    #[cfg(not(stillpoint_loom))]
    pub fn next_place(&mut self, hash_of: &impl Fn(&K) -> u64) -> Option<(*const K, *mut V)> {
        loop {
            match self.find_next(hash_of) {
                Some(At::Slot(slot)) => return Some(slot.halves()),
                Some(At::Node(node)) => return Some(node.halves()),
                None => self.step()?,
            }
        }
    }

    /// The next entry of the bucket that is being visited. Reads keys, and no values.
    #[inline]
    fn find_next(&mut self, hash_of: &impl Fn(&K) -> u64) -> Option<At<'g, K, V>> {
        let from = self.from;
        for slot in self.slots.iter_mut().flatten() {
            if from == 0 || hash_of(&slot.key()) >= from {
                return Some(At::Slot(slot));
            }
        }
        while let Some(node) = self.spilled {
            self.spilled = node.next();
            let (key, tag) = (node.key(), node.hash().tag());
            let is_in_slot = self.seen?.with_tag(tag).any(|slot| slot.key() == key);
            if !is_in_slot && (from == 0 || hash_of(&key) >= from) {
                return Some(At::Node(node));
            }
        }
        None
    }

    /// Visits buckets in their order, from the next one on, as long as they are in the table where that
    /// is, with nothing behind them: as most are. Then there is nothing to ask of an entry, and no
    /// place to keep.
    ///
    /// How many entries a bucket has cannot be foretold. So the slots of several are gone through
    /// together, by a bit for each: the loop ends less often.
    #[inline]
    fn visit_plain<B>(&mut self, init: B, visit: &mut impl FnMut(B, (K, V)) -> B) -> B {
        let mut folded = init;
        let (Some(from), Some(core)) = (self.position, self.core) else {
            return folded;
        };
        // If it is replaced meanwhile, all of its buckets have moved.
        let table = core.get().table();
        let first = table.index(from);
        // There are two buckets at least, so the first one begins behind the last.
        if table.index(from.wrapping_sub(1)) == first {
            return folded;
        }
        let (buckets, mut index) = (table.buckets(), first);
        // An entry that stays in the map is in no bucket that a move has passed, or will pass.
        let moves = table.next().is_some();
        while index + TOGETHER <= buckets {
            let (mut slots, mut plain) = (0_u64, 0);
            while plain < TOGETHER {
                // SAFETY: there are `buckets`.
                let word = unsafe { table.at_unchecked(index + plain) }.word();
                // The step that follows may pass stretches without entries.
                let at = index + plain;
                let is_passed = word == Word::EMPTY && (moves || at.is_multiple_of(STRETCH));
                if word.is_moved() || word.has_link() || is_passed {
                    break;
                }
                slots |= u64::from(word.taken().bits()) << (plain * SLOTS);
                plain += 1;
            }
            while slots != 0 {
                // SAFETY: it has a tag in the word, which was loaded in the section. The slots of buckets
                // follow each other.
                let pair =
                    unsafe { Pairs::pair(table.behind(index), slots.trailing_zeros() as usize) };
                slots &= slots - 1;
                folded = visit(folded, pair);
            }
            index += plain;
            if plain < TOGETHER {
                break;
            }
        }
        if index > first {
            self.position = table.last_hash(index - 1).checked_add(1);
        }
        folded
    }

    /// Visits all entries that are left.
    #[inline]
    pub fn fold<B>(
        mut self,
        init: B,
        hash_of: &impl Fn(&K) -> u64,
        mut visit: impl FnMut(B, (K, V)) -> B,
    ) -> B {
        let mut folded = init;
        loop {
            while let Some(pair) = self.next_here(hash_of) {
                folded = visit(folded, pair);
            }
            folded = self.visit_plain(folded, &mut visit);
            if self.step().is_none() {
                return folded;
            }
        }
    }

    /// The next entry.
    pub fn next(&mut self, hash_of: &impl Fn(&K) -> u64) -> Option<(K, V)> {
        loop {
            if let Some(pair) = self.next_here(hash_of) {
                return Some(pair);
            }
            self.step()?;
        }
    }
}
