//! The memory of a key space's index. The tenant is charged for it before the index grows, as for its
//! segments; the background gives it back after the index has shrunk.

use super::{
    common::Owner,
    index::{Index, JOINS},
    layout::RawItem,
    word::Word,
};
use crate::lock::lock;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use stillpoint::read_lock;
use stillpoint_lru::Charge;

/// Part of the whole charge that is charged at once, so that charges are few and little is unused.
const STEP_PART: u64 = 16;

/// Least bytes of a charge. (A page would be as much as a small tenant's items.)
const LEAST_STEP: u64 = 256;

/// Most bytes of a charge, as it may evict as much.
const MOST_STEP: u64 = 1 << 20;

/// Number of buckets that are joined in a pass of the background.
const JOINED: usize = 1 << 20;

/// The index of a key space, with what is charged for it.
#[derive(Debug)]
pub struct Table {
    pub index: Index,
    owner: Arc<Owner>,
    /// Locked while the index grows, so that no other thread gives back meanwhile what it grows for.
    /// Eviction may run under the lock, which takes no lock of this kind.
    held: Mutex<Vec<Charge>>,
    /// The sum of `held`, as of the last change, for threads that must not wait for the lock. Relaxed,
    /// needs no partner: a figure.
    sum: AtomicU64,
    /// Whether the last charge failed. It is tried again after the next pass.
    is_refused: AtomicBool,
}

fn sum(held: &[Charge]) -> u64 {
    held.iter().map(|charge| charge.bytes() as u64).sum()
}

impl Table {
    pub fn new(owner: &Arc<Owner>) -> Self {
        Self {
            index: Index::new(Arc::clone(&owner.common.pool)),
            owner: Arc::clone(owner),
            held: Mutex::default(),
            sum: AtomicU64::new(0),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Returns the hash of an item's key. The item is in the index, whose bucket is locked, in a section.
    fn hash_of(&self, word: Word) -> u64 {
        // SAFETY: the closures that this is for are called with such words.
        let item = unsafe { RawItem::at(word.address()) };
        self.owner.common.hash(item.key())
    }

    /// Charges what is missing for an index of `needed` bytes. May evict. Returns false if that fails.
    fn charge(&self, held: &mut Vec<Charge>, needed: u64) -> bool {
        let charged = sum(held);
        if needed <= charged {
            return true;
        }
        let ahead = (charged / STEP_PART).min(MOST_STEP);
        let step = (needed - charged).max(ahead);
        let step = step.next_multiple_of(LEAST_STEP);
        match self.owner.charge_if_possible(step as usize) {
            Ok(charge) => held.push(charge),
            Err(_) => return false,
        }
        self.note_charged(held);
        true
    }

    /// Makes the index grow by some buckets, if it is small for its `items` and the tenant can be charged
    /// for them. Called after an item was stored, outside of its section: it may evict.
    #[cold]
    pub fn grow(&self, items: u64) {
        if !self.index.is_small(items) || self.is_refused.load(Ordering::Relaxed) {
            return;
        }
        // Another thread that has it does this, or tidies up.
        let Ok(mut held) = self.held.try_lock() else {
            return;
        };
        if !self.charge(&mut held, self.index.bytes_grown()) {
            // Where nothing is evicted, compaction has been in vain, too.
            let stays = !self.owner.common.config.evict;
            self.is_refused.store(stays, Ordering::Relaxed);
            return;
        }
        let section = read_lock();
        self.index.grow(items, &section, |word| self.hash_of(word));
    }

    /// Makes the index shrink to what its `items` need: if that is far less than it has, or `tightly`.
    /// Calls `rest` between some buckets and the next. The memory comes back by [`Table::settle`], behind a
    /// grace period.
    pub fn shrink(&self, items: u64, tightly: bool, rest: impl Fn()) {
        let mut left = JOINED;
        if let Some(enough) = self.index.enough(items, tightly) {
            while left > 0 && self.join(enough) {
                left = left.saturating_sub(JOINS);
                rest();
            }
        }
    }

    /// Frees memory of a shrunk index that readers have left, and adjusts the charge to the rest. Waits for
    /// no reader. If `tightly`, charges nothing ahead, and never more than before.
    pub fn settle(&self, tightly: bool) {
        self.index.release();
        let mut held = lock(&self.held);
        // Lines behind buckets are charged here alone.
        let needed = self.index.bytes();
        let is_charged = tightly || self.charge(&mut held, needed);
        while let Some(last) = held.last().map(|last| last.bytes() as u64)
            && is_charged
            && sum(&held) - last >= needed
        {
            held.pop();
        }
        let ahead = sum(&held).saturating_sub(needed.next_multiple_of(LEAST_STEP));
        if tightly && let Some(last) = held.last_mut() {
            let less = (last.bytes() as u64).saturating_sub(ahead);
            // Giving back does not fail.
            let _ = last.resize(less as usize);
        }
        self.note_charged(&held);
        self.is_refused.store(false, Ordering::Relaxed);
    }

    fn note_charged(&self, held: &[Charge]) {
        self.sum.store(sum(held), Ordering::Relaxed);
    }

    /// Returns the bytes of the index that are not charged yet.
    pub fn uncharged(&self) -> u64 {
        let charged = self.sum.load(Ordering::Relaxed);
        self.index.bytes().saturating_sub(charged)
    }

    /// Returns the charged bytes of the index that are given back once readers have left.
    pub fn excess(&self) -> u64 {
        self.charged().saturating_sub(self.index.bytes_released())
    }

    /// Returns the bytes that are charged for the index.
    pub fn charged(&self) -> u64 {
        sum(&lock(&self.held))
    }

    /// Joins some buckets. Returns whether there is more to do.
    fn join(&self, enough: u64) -> bool {
        let section = read_lock();
        self.index
            .shrink(enough, &section, |word| self.hash_of(word))
    }
}
