//! Values that are arriving, and the memory that they may take.
//!
//! They cannot be evicted, so they may take a part of the tenant's memory and a part of the store's.
//! If a value needs more than the tenant's part, it ends others of its tenant. If all take more than
//! their part, it ends values of the tenant that takes most beside this value; if its own takes as much
//! as another, those of the other. The value that has waited longest for its client goes first. So
//! clients that announce values and send nothing keep no other client from storing one, and no other
//! tenant from storing as much at a time as the largest of their tenants takes. A value that a thread is
//! writing to is not ended, nor is another one for a tenant's only value: beyond the parts, there may be
//! one value for each tenant and one for each thread.

use super::{
    class::Class,
    common::Owner,
    error::Refused,
    key_space::KeySpace,
    segment::SegmentRef,
    work::{self, LOOK},
};
use crate::lock::lock;
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering},
};

/// The part of its memory that a tenant's unfinished values may take, and the part of the limit that
/// those of all tenants may take.
const CHARGED_OWN: u64 = 4;
const CHARGED_ALL: u64 = 2;

/// The part of the store's address space that a tenant's unfinished values may reserve, and the part
/// that those of all tenants may reserve.
const ANNOUNCED_OWN: u64 = 8;
const ANNOUNCED_ALL: u64 = 4;

/// Unfinished values of all tenants that no thread is writing to.
#[derive(Debug, Default)]
pub struct Waiting(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// Number of the next value.
    next: u64,
    values: BTreeMap<Place, Arriving>,
}

/// The place of a value: within a tenant, those that are charged for nothing come first, and then by
/// how long they have waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Address of the tenant's `Owner`, which its values keep.
    tenant: usize,
    is_charged: bool,
    number: u64,
}

impl Place {
    fn first(tenant: usize, is_charged: bool) -> Self {
        Self {
            tenant,
            is_charged,
            number: 0,
        }
    }
}

/// What unfinished values take more of than they may.
enum Over {
    /// Those of the tenant take more than its part.
    Own,
    /// Those of all tenants do. The tenant's take `beside` bytes, not counting the value that needs more.
    All { beside: u64 },
}

impl Queue {
    /// Returns the tenant whose unfinished values take most, of those that have one to end and `own`,
    /// whose values count as `beside` bytes. On a tie, returns the tenant whose first value has waited
    /// longest, and not `own`.
    fn largest(&self, own: &Arc<Owner>, beside: u64, only_charged: bool) -> usize {
        let sum = |owner: &Owner| match only_charged {
            true => owner.sum(|sums| &sums.charged)[0],
            false => owner.sum(|sums| &sums.announced)[0],
        };
        let own = address(own);
        let (mut largest, mut most) = (own, (beside, Reverse(u64::MAX)));
        let mut from = Place::first(0, only_charged);
        while let Some((&place, value)) = self.values.range(from..).next() {
            work::add(LOOK);
            if only_charged && !place.is_charged {
                from = Place::first(place.tenant, true);
                continue;
            }
            let sum = (sum(&value.taken.owner), Reverse(place.number));
            if place.tenant != own && sum > most {
                (largest, most) = (place.tenant, sum);
            }
            from = Place::first(place.tenant + 1, false);
        }
        largest
    }

    /// Takes the value of the tenant that goes first.
    fn take_first(&mut self, tenant: usize, only_charged: bool) -> Option<Arriving> {
        let places = Place::first(tenant, only_charged)..Place::first(tenant + 1, false);
        let first = *self.values.range(places).next()?.0;
        self.values.remove(&first)
    }
}

impl Waiting {
    /// Adds a value: at the place that it had, or behind the others. Returns its place.
    fn put(&self, value: Arriving, before: Option<Place>) -> Place {
        let mut queue = lock(&self.0);
        let place = before.unwrap_or_else(|| {
            queue.next += 1;
            Place {
                tenant: address(&value.taken.owner),
                is_charged: value.taken.charged > 0,
                number: queue.next,
            }
        });
        queue.values.insert(place, value);
        place
    }

    fn take(&self, place: Place) -> Option<Arriving> {
        lock(&self.0).values.remove(&place)
    }

    /// Ends values that wait, until `over` returns `None` or there is none to end. Values that are only
    /// announced go before the others, and stay if `only_charged`.
    fn end_while(&self, own: &Arc<Owner>, only_charged: bool, over: impl Fn() -> Option<Over>) {
        while let Some(over) = over() {
            let ended = {
                let mut queue = lock(&self.0);
                let tenant = match over {
                    Over::Own => address(own),
                    Over::All { beside } => queue.largest(own, beside, only_charged),
                };
                queue.take_first(tenant, only_charged)
            };
            work::add(LOOK);
            // It is dropped here, without the lock.
            if ended.is_none() {
                return;
            }
        }
    }
}

fn address(owner: &Arc<Owner>) -> usize {
    Arc::as_ptr(owner).addr()
}

/// An unfinished value. Dropping it gives its memory back.
#[derive(Debug)]
pub struct Unfinished {
    waiting: Arc<Waiting>,
    /// Its place in `waiting`, which is empty once another value has ended it.
    place: Place,
}

impl Unfinished {
    /// Reserves a segment for an item of `size` bytes. Nothing is charged or evicted.
    pub fn announce(
        space: &Arc<KeySpace>,
        waiting: &Arc<Waiting>,
        size: usize,
    ) -> Result<Self, Refused> {
        let (owner, common) = (&space.owner, &space.owner.common);
        let bytes = Class::OWN.bytes(size) as u64;
        for (is_own, limit) in [(true, &owner.limit), (false, &common.limit)] {
            if bytes > limit.max() {
                owner.events.refused.fetch_add(1, Ordering::Relaxed);
                return Err(owner.over(is_own));
            }
        }
        let mut taken = Taken::new(owner, bytes);
        let space_of_all = common.pool.address_space();
        let over = || {
            let [own, all] = owner.sum(|sums| &sums.announced);
            match own.saturating_sub(bytes) {
                0 => None,
                _ if own > space_of_all / ANNOUNCED_OWN => Some(Over::Own),
                beside if all > space_of_all / ANNOUNCED_ALL => Some(Over::All { beside }),
                _ => None,
            }
        };
        waiting.end_while(owner, false, over);
        let (segment, lent) = space.lend_segment(size)?;
        taken.lent = lent;
        let place = waiting.put(Arriving { taken, segment }, None);
        Ok(Self {
            waiting: Arc::clone(waiting),
            place,
        })
    }

    /// Calls `work` with the value's memory and the other values. Meanwhile none of them can end this one.
    /// Afterwards the value has its place again, or a new one if `work` has charged it for more. Returns
    /// `None` if another value has ended this one.
    pub fn with<R>(&mut self, work: impl FnOnce(&mut Arriving, &Waiting) -> R) -> Option<R> {
        let mut arriving = self.take()?;
        let before = arriving.taken.charged;
        let result = work(&mut arriving, &self.waiting);
        let place = (arriving.taken.charged == before).then_some(self.place);
        self.place = self.waiting.put(arriving, place);
        Some(result)
    }

    /// Takes the value's memory out, to store it. Returns `None` if another value has ended this one.
    pub fn take(&self) -> Option<Arriving> {
        self.waiting.take(self.place)
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
    /// Charges the segment for `bytes` in all. May evict, and end values in `waiting`.
    pub fn charge(&mut self, bytes: usize, waiting: &Waiting) -> Result<(), Refused> {
        let more = (bytes as u64).saturating_sub(self.taken.charged);
        if more == 0 {
            return Ok(());
        }
        self.taken.add_charged(more);
        let charged = self.taken.charged;
        let (owner, common) = (&self.taken.owner, &self.taken.owner.common);
        let (max, limit) = (owner.limit.max(), common.limit.max());
        let over = || {
            let [own, all] = owner.sum(|sums| &sums.charged);
            // One value can always be stored, even one that is larger than these parts.
            match own.saturating_sub(charged) {
                0 => None,
                _ if own > limit.min(max) / CHARGED_OWN => Some(Over::Own),
                beside if all > limit / CHARGED_ALL => Some(Over::All { beside }),
                _ => None,
            }
        };
        waiting.end_while(owner, true, over);
        let mut charge = self.segment.take_charge();
        let result = owner.charging(more as usize, || match &mut charge {
            Some(charge) => charge.resize(bytes),
            None => owner
                .limit
                .memcg
                .charge(bytes)
                .map(|first| charge = Some(first)),
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
        owner.add(|sums| &sums.announced, announced);
        Self {
            owner: Arc::clone(owner),
            announced,
            charged: 0,
            lent: 0,
        }
    }

    fn add_charged(&mut self, more: u64) {
        self.owner.add(|sums| &sums.charged, more);
        self.charged += more;
    }

    /// Moves up to `bytes` of lent memory to the tenant's charge.
    fn settle(&mut self, bytes: u64) {
        let settled = bytes.min(self.lent);
        self.lent -= settled;
        self.owner.common.pool.settle(settled);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.settle(u64::MAX);
        let owner = &self.owner;
        owner.subtract(|sums| &sums.announced, self.announced);
        owner.subtract(|sums| &sums.charged, self.charged);
    }
}
