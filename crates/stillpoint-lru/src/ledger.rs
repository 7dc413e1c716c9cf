//! What a tenant remembers of each shrinker: whether there may be anything for it to shrink, and the work that it put off.
//!
//! A bit for each (node, shrinker) says that the lists behind the shrinker may have something of this tenant's. A pass skips those
//! whose bit is clear, which with thousands of tenants and tens of shrinkers is nearly all of them.
//!
//! ```text
//!   who adds the first item             who finds nothing
//!   count = 1        [B1]               bit = 0          [B3]
//!   bit = 1          [B2]               count again      [B4]; if there is something after all: bit = 1
//! ```
//!
//! [B2] and [B3] are read-modify-writes of one word, so one comes first. If that is [B3], the bit stays set. If it is [B2] (release),
//! [B3] (acquire) reads from it or from a later one, and [B4] sees what came before: the count of [B1]. So no item stays behind a clear bit.

use std::ptr;
use stillpoint_platform::sync::{AtomicPtr, AtomicU64, Ordering};

/// Shrinkers in a unit.
const UNIT: usize = 64;

/// Units that a node may have.
const UNITS: usize = 16;

/// Shrinkers that a hierarchy may have.
pub(super) const MOST_SHRINKERS: usize = UNIT * UNITS;

#[derive(Debug)]
struct Unit {
    bits: AtomicU64,
    deferred: [AtomicU64; UNIT],
}

/// Made unit by unit: a tenant that nobody shrinks has only the empty places.
#[derive(Debug)]
pub(super) struct Ledger(Box<[AtomicPtr<Unit>]>);

/// Where a shrinker's entry for a node is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    unit: usize,
    bit: usize,
}

impl Entry {
    pub(super) fn of(node: usize, shrinker: usize) -> Self {
        assert!(shrinker < MOST_SHRINKERS);
        Self { unit: node * UNITS + shrinker / UNIT, bit: shrinker % UNIT }
    }

    fn mask(self) -> u64 {
        1 << self.bit
    }
}

impl Ledger {
    pub(super) fn new(nodes: usize) -> Self {
        Self((0..nodes * UNITS).map(|_| AtomicPtr::new(ptr::null_mut())).collect())
    }

    fn unit(&self, entry: Entry) -> Option<&Unit> {
        // SAFETY: null, or from `unit_or_make`, and freed with this.
        // Acquire, pairs with `make`: a unit that is found is complete.
        unsafe { self.0[entry.unit].load(Ordering::Acquire).as_ref() }
    }

    fn unit_or_make(&self, entry: Entry) -> &Unit {
        self.unit(entry).unwrap_or_else(|| self.make(entry))
    }

    #[cold]
    fn make(&self, entry: Entry) -> &Unit {
        let unit = Box::new(Unit { bits: AtomicU64::new(0), deferred: std::array::from_fn(|_| AtomicU64::new(0)) });
        let unit = Box::into_raw(unit);
        // Release, pairs with `unit`: the unit is complete before it is found. Acquire: so is the faster thread's.
        match self.0[entry.unit].compare_exchange(ptr::null_mut(), unit, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: freed with this.
            Ok(_) => unsafe { &*unit },
            Err(faster) => {
                // SAFETY: it came out of a box just now, and nobody has seen it.
                drop(unsafe { Box::from_raw(unit) });
                // SAFETY: as in `unit`.
                unsafe { &*faster }
            }
        }
    }

    /// [B2] There may be something, which the caller has counted before. Whether this is news.
    pub(super) fn mark(&self, entry: Entry) -> bool {
        self.unit_or_make(entry).bits.fetch_or(entry.mask(), Ordering::AcqRel) & entry.mask() == 0
    }

    /// As [`Ledger::mark`], without allocating: if the shrinker has an entry here at all.
    #[cfg(not(stillpoint_loom))]
    pub(super) fn remind(&self, entry: Entry) {
        if let Some(unit) = self.unit(entry) {
            unit.bits.fetch_or(entry.mask(), Ordering::Relaxed);
        }
    }

    /// [B3] Nothing was found; the caller looks once more after this.
    pub(super) fn clear(&self, entry: Entry) {
        if let Some(unit) = self.unit(entry) {
            unit.bits.fetch_and(!entry.mask(), Ordering::AcqRel);
        }
    }

    pub(super) fn is_marked(&self, entry: Entry) -> bool {
        self.unit(entry).is_some_and(|unit| unit.bits.load(Ordering::Relaxed) & entry.mask() != 0)
    }

    /// Takes the work that was put off.
    pub(super) fn take_deferred(&self, entry: Entry) -> u64 {
        self.unit(entry).map_or(0, |unit| {
            let deferred = &unit.deferred[entry.bit];
            // Without a write where there is nothing, which is usual.
            if deferred.load(Ordering::Relaxed) == 0 { 0 } else { deferred.swap(0, Ordering::Relaxed) }
        })
    }

    /// Puts work off.
    pub(super) fn defer(&self, entry: Entry, objects: u64) {
        if objects > 0 {
            let deferred = &self.unit_or_make(entry).deferred[entry.bit];
            // At most 2^62 each, and taken as a whole: see `shrinker::plan`. Wrapping would lose a hint, nothing else.
            deferred.fetch_add(objects, Ordering::Relaxed);
        }
    }

    /// Forgets what is known about a shrinker that has left.
    pub(super) fn forget(&self, entry: Entry) {
        self.clear(entry);
        self.take_deferred(entry);
    }

    /// Gives all work that was put off to `heir`.
    pub(super) fn bequeath(&self, heir: &Ledger) {
        for index in 0..self.0.len() {
            for bit in 0..UNIT {
                let entry = Entry { unit: index, bit };
                if self.unit(entry).is_none() {
                    break;
                }
                heir.defer(entry, self.take_deferred(entry));
            }
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        for unit in &self.0 {
            let unit = unit.load(Ordering::Relaxed);
            if !unit.is_null() {
                // SAFETY: it came out of a box, and nobody can use it any more.
                drop(unsafe { Box::from_raw(unit) });
            }
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn bits_and_deferred_work_are_kept_apart() {
        let ledger = Ledger::new(2);
        let (first, last) = (Entry::of(0, 0), Entry::of(1, MOST_SHRINKERS - 1));
        assert!(!ledger.is_marked(first));
        assert!(ledger.mark(first));
        assert!(!ledger.mark(first), "no news");
        assert!(!ledger.is_marked(last));
        ledger.defer(last, 7);
        ledger.defer(last, 5);
        let heir = Ledger::new(2);
        ledger.bequeath(&heir);
        assert_eq!((ledger.take_deferred(last), heir.take_deferred(last), heir.take_deferred(last)), (0, 12, 0));
        ledger.forget(first);
        assert!(!ledger.is_marked(first));
    }
}
