//! What a key space's index takes: charged to the tenant, as its segments are, before it grows; given
//! back in the background after it has shrunk.

use super::{index::JOINS, shared::lock, space::Space, write::Found};
use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};
use stillpoint::read_lock;
use stillpoint_lru::Charge;

/// A charge is that part of all charges, so that few are held and little is charged in vain.
const STEP_PART: u64 = 16;

/// Less is not charged at a time. (A page would be as much as a small tenant's items.)
const LEAST_STEP: u64 = 256;

/// How many buckets are joined in a pass of the background.
const JOINED: usize = 1 << 20;

/// What is charged for an index.
#[derive(Debug, Default)]
pub struct TableCharges {
    held: Mutex<Vec<Charge>>,
    bytes: AtomicU64,
}

impl TableCharges {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn add(&self, charge: Charge) {
        let mut held = lock(&self.held);
        self.bytes
            .fetch_add(charge.bytes() as u64, Ordering::Relaxed);
        held.push(charge);
    }

    /// Gives back what is not needed for so many bytes.
    fn give_back(&self, needed: u64) {
        let mut held = lock(&self.held);
        let mut bytes = self.bytes();
        while let Some(last) = held.last().map(|last| last.bytes() as u64)
            && bytes - last >= needed
        {
            bytes -= last;
            held.pop();
        }
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

impl Space {
    /// Charges what is missing for an index of so many bytes. May evict. Returns whether it could.
    fn charge_table(&self, needed: u64) -> bool {
        let charged = self.table_charges.bytes();
        if needed <= charged {
            return true;
        }
        let step = (needed - charged).max(charged / STEP_PART);
        let step = step.next_multiple_of(LEAST_STEP);
        match self.owner.charge_if_possible(step as usize) {
            Ok(charge) => self.table_charges.add(charge),
            Err(_) => return false,
        }
        true
    }

    /// Has the index grow by some buckets, if it is small for its items and the tenant can be charged
    /// for them. Called after an item was stored, outside of its section: it may evict.
    #[cold]
    pub fn grow_table(&self) {
        let items = self.counts().items;
        if self.index.is_small(items) && self.charge_table(self.index.bytes_grown()) {
            let section = read_lock();
            self.index.grow(items, &section, |word| {
                // SAFETY: in the index, whose bucket is locked, in a section.
                let found = unsafe { Found::of(word) };
                self.owner.shared.hash(found.item.key())
            });
        }
    }

    /// Has the index shrink to what its items need, and charges what it takes then. For the
    /// background.
    pub fn tidy_table(&self) {
        let mut left = JOINED;
        while let Some(enough) = self.index.enough(self.counts().items)
            && left > 0
        {
            let section = read_lock();
            let goes_on = self.index.shrink(enough, &section, |word| {
                // SAFETY: as above.
                let found = unsafe { Found::of(word) };
                self.owner.shared.hash(found.item.key())
            });
            if !goes_on {
                break;
            }
            left = left.saturating_sub(JOINS);
        }
        self.index.release();
        // Lines behind buckets are charged here alone.
        let needed = self.index.bytes();
        if self.charge_table(needed) {
            self.table_charges.give_back(needed);
        }
    }
}
