//! Values that are arriving, and the memory that they may take.
//!
//! They cannot be evicted, so they may take a part of the tenant's memory and a part of the store's.
//! A value that needs more ends others of its tenant: first the one that has waited longest for its
//! client. So clients that announce values and send nothing keep no other client from storing one.
//! Values that threads are writing to at that moment are not ended: beyond the parts there may be one
//! for each tenant and one for each thread.

use super::{
    class::Class, error::Refused, segment::SegmentRef, shared::Owner, shared::lock, space::Space,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// The part of its memory that a tenant's unfinished values may take, and the part of the limit that
/// those of all tenants may take.
const CHARGED_OWN: u64 = 4;
const CHARGED_ALL: u64 = 2;

/// The part of the store's address space that a tenant's unfinished values may reserve, and the part
/// that those of all tenants may reserve.
const ANNOUNCED_OWN: u64 = 8;
const ANNOUNCED_ALL: u64 = 4;

/// Bytes of unfinished values: of a tenant, or of all. Relaxed, needs no partner: sums.
#[derive(Debug, Default)]
pub struct Sums {
    announced: AtomicU64,
    charged: AtomicU64,
}

#[cfg(test)]
impl Sums {
    pub fn announced(&self) -> u64 {
        self.announced.load(Ordering::Relaxed)
    }
}

/// A tenant's unfinished values that no thread is writing to.
#[derive(Debug, Default)]
pub struct Waiting(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// Number of the next value.
    next: u64,
    /// Values that are announced, in that order, and charged for nothing.
    announced: BTreeMap<u64, Arriving>,
    /// Values that are charged for what has arrived, by the order in which the last bytes of each did.
    charged: BTreeMap<u64, Arriving>,
}

impl Waiting {
    /// Adds a value behind the others. Returns its number.
    fn push(&self, value: Arriving) -> u64 {
        let mut queue = lock(&self.0);
        let number = queue.next;
        queue.next += 1;
        let values = match value.taken.charged {
            0 => &mut queue.announced,
            _ => &mut queue.charged,
        };
        values.insert(number, value);
        number
    }

    fn take(&self, number: u64) -> Option<Arriving> {
        let mut queue = lock(&self.0);
        let charged = queue.charged.remove(&number);
        charged.or_else(|| queue.announced.remove(&number))
    }

    /// Ends values that wait, first the one that has waited longest, until `is_over` returns false or
    /// none is left. Values that are only announced go before the others, and stay if `only_charged`.
    fn end_while(&self, only_charged: bool, is_over: impl Fn() -> bool) {
        while is_over() {
            let longest = {
                let mut queue = lock(&self.0);
                let announced = match only_charged {
                    true => None,
                    false => queue.announced.pop_first(),
                };
                announced.or_else(|| queue.charged.pop_first())
            };
            // It is dropped here, without the lock.
            if longest.is_none() {
                return;
            }
        }
    }
}

/// An unfinished value. Dropping it gives its memory back.
#[derive(Debug)]
pub struct Unfinished {
    owner: Arc<Owner>,
    /// Its number in [`Owner::waiting`], where it is gone once another value has ended it.
    number: u64,
}

impl Unfinished {
    /// Reserves a segment for an item of `size` bytes. Nothing is charged or evicted.
    pub fn announce(space: &Arc<Space>, size: usize) -> Result<Self, Refused> {
        let (owner, shared) = (&space.owner, &space.owner.shared);
        let bytes = Class::OWN.bytes(size) as u64;
        for (is_own, limit) in [(true, &owner.ceiling), (false, &shared.ceiling)] {
            if bytes > limit.asked() {
                owner.events.refused.fetch_add(1, Ordering::Relaxed);
                return Err(owner.over(is_own));
            }
        }
        let mut taken = Taken::new(owner, bytes);
        let space_of_all = shared.pool.address_space();
        let is_over = || {
            let own = owner.unfinished.announced.load(Ordering::Relaxed);
            let all = shared.unfinished.announced.load(Ordering::Relaxed);
            let most = (space_of_all / ANNOUNCED_OWN, space_of_all / ANNOUNCED_ALL);
            own > bytes && (own > most.0 || all > most.1)
        };
        owner.waiting.end_while(false, is_over);
        let (segment, lent) = space.lend_segment(size)?;
        taken.lent = lent;
        let number = owner.waiting.push(Arriving { taken, segment });
        Ok(Self {
            owner: Arc::clone(owner),
            number,
        })
    }

    /// Calls `work` with the value's memory, which no other value can end meanwhile. Returns `None` if
    /// another value has ended this one.
    pub fn with<R>(&mut self, work: impl FnOnce(&mut Arriving) -> R) -> Option<R> {
        let mut arriving = self.owner.waiting.take(self.number)?;
        let result = work(&mut arriving);
        self.number = self.owner.waiting.push(arriving);
        Some(result)
    }

    /// Takes the value's memory out, to store it. Returns `None` if another value has ended this one.
    pub fn take(&self) -> Option<Arriving> {
        self.owner.waiting.take(self.number)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// The memory of an unfinished value.
#[derive(Debug)]
pub struct Arriving {
    // Before the segment: the pool counts its memory as spare when that is dropped.
    taken: Taken,
    pub segment: SegmentRef,
}

impl Arriving {
    /// Charges the segment for `bytes` in all. May evict, and end other unfinished values.
    pub fn charge(&mut self, bytes: usize) -> Result<(), Refused> {
        let more = (bytes as u64).saturating_sub(self.taken.charged);
        if more == 0 {
            return Ok(());
        }
        self.taken.add_charged(more);
        let charged = self.taken.charged;
        let (owner, shared) = (&self.taken.owner, &self.taken.owner.shared);
        let (max, limit) = (owner.ceiling.asked(), shared.limit());
        let is_over = || {
            let own = owner.unfinished.charged.load(Ordering::Relaxed);
            let all = shared.unfinished.charged.load(Ordering::Relaxed);
            // One value can always be stored, even one that is larger than these parts.
            own > charged && (own > limit.min(max) / CHARGED_OWN || all > limit / CHARGED_ALL)
        };
        owner.waiting.end_while(true, is_over);
        let mut charge = self.segment.take_charge();
        let result = owner.charging(more as usize, || match &mut charge {
            Some(charge) => charge.resize(bytes),
            None => owner.memcg.charge(bytes).map(|first| charge = Some(first)),
        });
        self.segment.set_charge(charge);
        result.map_err(|error| owner.refused(error, more as usize))?;
        self.taken.settle(more);
        Ok(())
    }
}

/// The part of an unfinished value in the sums. Dropping it takes that back.
#[derive(Debug)]
struct Taken {
    owner: Arc<Owner>,
    announced: u64,
    /// Bytes that the segment is charged for.
    charged: u64,
    /// Bytes of the segment that were spare memory and are not charged yet.
    lent: u64,
}

impl Taken {
    fn new(owner: &Arc<Owner>, announced: u64) -> Self {
        for sums in [&owner.unfinished, &owner.shared.unfinished] {
            sums.announced.fetch_add(announced, Ordering::Relaxed);
        }
        Self {
            owner: Arc::clone(owner),
            announced,
            charged: 0,
            lent: 0,
        }
    }

    fn add_charged(&mut self, more: u64) {
        for sums in [&self.owner.unfinished, &self.owner.shared.unfinished] {
            sums.charged.fetch_add(more, Ordering::Relaxed);
        }
        self.charged += more;
    }

    /// Moves up to `bytes` of lent memory to the tenant's charge.
    fn settle(&mut self, bytes: u64) {
        let settled = bytes.min(self.lent);
        self.lent -= settled;
        self.owner.shared.pool.settle(settled);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.settle(u64::MAX);
        for sums in [&self.owner.unfinished, &self.owner.shared.unfinished] {
            sums.announced.fetch_sub(self.announced, Ordering::Relaxed);
            sums.charged.fetch_sub(self.charged, Ordering::Relaxed);
        }
    }
}
