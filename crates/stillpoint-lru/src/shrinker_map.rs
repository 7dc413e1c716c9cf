//! A tenant's shrinker map: for each shrinker, whether there may be anything to shrink, and its
//! deferred work. The kernel's `struct shrinker_info`.
//!
//! A bit for each (node, shrinker) says that the lists behind the shrinker may have something of
//! this tenant's. A pass skips those whose bit is clear, which with thousands of tenants and tens
//! of shrinkers is nearly all of them.
//!
//! ```text
//!   adds the first item             finds nothing
//!     count = 1                       clear_bit
//!     set_bit                         count again; if there is something after all: set_bit
//! ```
//!
//! `set_bit` and `clear_bit` are read-modify-writes of one word, so one comes first. If that is
//! `clear_bit`, the bit stays set. If it is `set_bit` (release), `clear_bit` (acquire) reads from
//! it or from a later one, and the second look sees what came before: the count. So no item stays
//! behind a clear bit.

use stillpoint_platform::{
    memory,
    race::RaceCell,
    sync::{AtomicU64, Ordering},
};

/// Number of shrinkers in a unit.
const UNIT: usize = 64;

/// Number of units that a node may have.
const UNITS: usize = 16;

/// Number of shrinkers that a hierarchy may have.
pub(crate) const MAX_SHRINKERS: usize = UNIT * UNITS;

#[derive(Debug)]
struct Unit {
    bits: AtomicU64,
    deferred: [AtomicU64; UNIT],
}

/// Units are allocated when they are first used: without shrinkers a tenant has only null pointers.
#[derive(Debug)]
pub(crate) struct ShrinkerMap(Box<[RaceCell<Box<Unit>>]>);

/// The place of a shrinker's entry for a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Index {
    unit: usize,
    bit: usize,
}

impl Index {
    pub(crate) fn of(node: usize, shrinker: usize) -> Self {
        assert!(shrinker < MAX_SHRINKERS);
        Self {
            unit: node * UNITS + shrinker / UNIT,
            bit: shrinker % UNIT,
        }
    }

    fn mask(self) -> u64 {
        1 << self.bit
    }
}

impl ShrinkerMap {
    pub(crate) fn new(nodes: usize) -> Self {
        Self((0..nodes * UNITS).map(|_| RaceCell::new()).collect())
    }

    fn unit(&self, index: Index) -> Option<&Unit> {
        self.0[index.unit].get()
    }

    fn unit_or_make(&self, index: Index) -> &Unit {
        self.unit(index).unwrap_or_else(|| self.make(index))
    }

    #[cold]
    fn make(&self, index: Index) -> &Unit {
        self.0[index.unit].put(Box::new(Unit {
            bits: AtomicU64::new(0),
            deferred: std::array::from_fn(|_| AtomicU64::new(0)),
        }))
    }

    /// Sets the bit; the caller has counted the item before. Returns true if the bit was clear.
    ///
    /// Release, pairs with `clear_bit`: the look that follows it sees the count. Acquire: only the
    /// other half of the read-modify-write.
    pub(crate) fn set_bit(&self, index: Index) -> bool {
        self.unit_or_make(index)
            .bits
            .fetch_or(index.mask(), Ordering::AcqRel)
            & index.mask()
            == 0
    }

    /// Clears the bit after nothing was found; the caller looks once more after this.
    ///
    /// Acquire, pairs with `set_bit`: the look that follows sees what was counted before the bit
    /// was set. Release: only the other half of the read-modify-write.
    pub(crate) fn clear_bit(&self, index: Index) {
        if let Some(unit) = self.unit(index) {
            unit.bits.fetch_and(!index.mask(), Ordering::AcqRel);
        }
    }

    pub(crate) fn is_set(&self, index: Index) -> bool {
        self.unit(index)
            .is_some_and(|unit| unit.bits.load(Ordering::Relaxed) & index.mask() != 0)
    }

    /// Takes the deferred work, in objects.
    pub(crate) fn take_deferred(&self, index: Index) -> u64 {
        self.unit(index).map_or(0, |unit| {
            let deferred = &unit.deferred[index.bit];
            // No write in the usual case, that there is none.
            if deferred.load(Ordering::Relaxed) == 0 {
                0
            } else {
                deferred.swap(0, Ordering::Relaxed)
            }
        })
    }

    /// Defers work, in objects. Without memory the work, which is a hint, is lost.
    pub(crate) fn defer(&self, index: Index, objects: u64) {
        if objects == 0 || self.unit(index).is_none() && !memory::is_there_for(size_of::<Unit>()) {
            return;
        }
        // At most 2^62 each, and taken as a whole: see `scan_plan.rs`. Wrapping would only lose a
        // hint.
        self.unit_or_make(index).deferred[index.bit].fetch_add(objects, Ordering::Relaxed);
    }

    /// Clears the entries of an unregistered shrinker.
    pub(crate) fn forget(&self, index: Index) {
        self.clear_bit(index);
        self.take_deferred(index);
    }

    /// Gives all deferred work to the parent. The kernel's `reparent_shrinker_deferred()`.
    pub(crate) fn reparent_deferred(&self, parent_map: &ShrinkerMap) {
        for unit in 0..self.0.len() {
            for bit in 0..UNIT {
                let index = Index { unit, bit };
                if self.unit(index).is_none() {
                    break;
                }
                parent_map.defer(index, self.take_deferred(index));
            }
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn bits_and_deferred_work_are_per_shrinker() {
        let shrinker_map = ShrinkerMap::new(2);
        let (first, last) = (Index::of(0, 0), Index::of(1, MAX_SHRINKERS - 1));
        assert!(!shrinker_map.is_set(first));
        assert!(shrinker_map.set_bit(first));
        assert!(!shrinker_map.set_bit(first), "no news");
        assert!(!shrinker_map.is_set(last));
        shrinker_map.defer(last, 7);
        shrinker_map.defer(last, 5);
        let parent_map = ShrinkerMap::new(2);
        shrinker_map.reparent_deferred(&parent_map);
        assert_eq!(
            (
                shrinker_map.take_deferred(last),
                parent_map.take_deferred(last),
                parent_map.take_deferred(last)
            ),
            (0, 12, 0)
        );
        shrinker_map.forget(first);
        assert!(!shrinker_map.is_set(first));
    }
}
