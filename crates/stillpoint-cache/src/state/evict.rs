//! Evicting: to make room for an entry, and for limits.
//!
//! An insert that needs more room than one batch makes it in several holds of the lock.
//! The room that such an insert has made is reserved for it and charged to its tenant. Otherwise inserts of
//! smaller entries would take that room between two holds, and the large insert might never end. An insert
//! that finds nothing else takes room that is reserved for others: so no thread waits for another one. In the
//! child of a fork, inserts also take the room that threads which are gone had reserved.
//!
//! Between two holds the thread is in no section, so that what it has evicted is freed. The entry that
//! it inserts is in the map, and other threads may take it out. It is kept by the rule of
//! [`crate::node`]: an entry that is claimed leaves this list, and is retired after that.

use super::{
    Claimed, ROOT, State,
    limits::{For, Inserter},
};
use crate::{
    node::{Id, Locked, Stage},
    policy::{Nodes, Standing},
    removal::{Cause, InsertError},
};
use std::num::NonZeroU64;

/// The tenant, expiry and standing with which an entry is linked.
#[derive(Debug, Clone, Copy)]
pub struct Entrant {
    /// Number of its tenant.
    pub number: u32,
    pub expires: u64,
    /// Standing of the entry that it has replaced.
    pub standing: Option<Standing>,
}

/// Why an insert was refused. Boxed, so that the result stays two words.
pub type Refusal = Box<InsertError>;

/// Names an insert that has not made all its room yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(NonZeroU64);

#[derive(Debug)]
pub struct Waiting {
    ticket: Ticket,
    id: Id,
    entrant: Entrant,
    /// The bytes that its tenant is charged for it.
    reserved: u64,
}

impl State {
    /// Makes room for an entry that is in the map, and links it; unless it was claimed meanwhile. Evicts
    /// a batch at most: if that is too little, returns a ticket, with which to go on under the next hold
    /// of the lock. `reserved` is what was reserved for it until now. An entry that is refused is claimed.
    pub fn admit(
        &mut self,
        locked: &mut Locked,
        id: Id,
        entrant: Entrant,
        reserved: u64,
        claimed: &mut Claimed,
    ) -> Result<Option<Ticket>, Refusal> {
        if locked.of(id).stage == Stage::New {
            let (number, weight) = (entrant.number, locked.weight(id));
            let inserter = Inserter { number, weight };
            match self.make_room(locked, inserter, reserved, claimed) {
                Ok(None) => {}
                Ok(Some(free)) => return Ok(Some(self.wait(id, entrant, free))),
                Err(refused) => {
                    self.claim(locked, id, None);
                    return Err(self.refusal(inserter, refused));
                }
            }
        }
        self.link(locked, id, entrant);
        Ok(None)
    }

    /// Makes room by evicting, a batch at most. `freed` has been freed for it before. If the batch is too little,
    /// returns how much is free on all levels.
    ///
    /// A limit that is being lowered is kept by the thread that lowers it. This one evicts a batch of what
    /// is above it, and is done if that is as much as it needs itself.
    ///
    /// # Errors
    ///
    /// The tenant whose limit leaves no room for it.
    #[inline(always)]
    fn make_room(
        &mut self,
        locked: &mut Locked,
        inserter: Inserter,
        mut freed: u64,
        claimed: &mut Claimed,
    ) -> Result<Option<u64>, u32> {
        // All levels, before anything is evicted for nothing.
        self.may_fit(inserter)?;
        let (mut level, weight) = (Some(inserter.number), inserter.weight);
        while let Some(above) = level {
            let mut tenant = self.tenant(above);
            let (left, parent) = (tenant.limits.max - weight, tenant.place.parent);
            while tenant.usage > left {
                if claimed.is_full() && freed >= weight {
                    break;
                }
                if claimed.is_full() {
                    return Ok(Some(self.free_from(above, freed).min(weight)));
                }
                let evicted = self.evict_below(locked, above, For::Insert(inserter), claimed);
                // Single entries may be larger than what is not protected.
                freed += match evicted {
                    Some(weight) => weight,
                    None => self
                        .take_reserved(above, self.tenant(above).usage - left)
                        .ok_or(above)?,
                };
                tenant = self.tenant(above);
            }
            level = parent;
        }
        Ok(None)
    }

    /// Returns what is free in a tenant and in each above it, where `freed` has been freed in those below it.
    #[cold]
    fn free_from(&self, number: u32, freed: u64) -> u64 {
        let free = |level| {
            let tenant = self.tenant(level);
            freed.max(tenant.limits.max.saturating_sub(tenant.usage))
        };
        self.path(number).map(free).min().unwrap_or(0)
    }

    /// Evicts until a tenant uses no more than `goal`, or a batch is full. Returns whether there is
    /// more to do, and something that can be done.
    pub fn shrink(
        &mut self,
        locked: &mut Locked,
        (above, goal): (u32, u64),
        what_for: For,
        claimed: &mut Claimed,
    ) -> bool {
        while self.tenant(above).usage > goal {
            if claimed.is_full() {
                return true;
            }
            if self.evict_below(locked, above, what_for, claimed).is_none() {
                return false;
            }
        }
        false
    }

    /// Returns the limit of the whole cache.
    pub fn max(&self) -> u64 {
        self.tenant(ROOT).limits.max
    }

    /// Evicts one entry of a tenant or one below it that no min protects.
    pub fn give_back(&mut self, locked: &mut Locked, above: u32, claimed: &mut Claimed) -> bool {
        self.evict_below(locked, above, For::Pressure, claimed)
            .is_some()
    }

    /// Evicts one entry of a tenant or one below it. Returns its weight.
    #[inline(always)]
    fn evict_below(
        &mut self,
        locked: &mut Locked,
        above: u32,
        what_for: For,
        claimed: &mut Claimed,
    ) -> Option<u64> {
        let id = self.choose(locked, above, what_for)?;
        self.claim_linked(locked, id, Some(Cause::Evicted));
        claimed.push(locked, id);
        Some(locked.weight(id))
    }

    /// Notes that there is not all the room yet for an entry, and reserves what there is.
    #[cold]
    pub fn wait(&mut self, id: Id, entrant: Entrant, reserved: u64) -> Ticket {
        self.charge(entrant.number, reserved, false);
        let ticket = Ticket(self.next_ticket);
        self.next_ticket = self.next_ticket.saturating_add(1);
        self.waiting.push(Waiting {
            ticket,
            id,
            entrant,
            reserved,
        });
        ticket
    }

    /// Returns the entry of a ticket, and the bytes that were reserved for it, which are free again. `None`
    /// if it was claimed meanwhile.
    pub fn resume(&mut self, ticket: Ticket) -> Option<(Id, Entrant, u64)> {
        let is_it = |waiting: &Waiting| waiting.ticket == ticket;
        let at = self.waiting.iter().position(is_it)?;
        let mut it = self.stop_waiting(at);
        // Nothing comes to a tenant whose deletion has begun.
        it.entrant.number = self.tenant(it.entrant.number).handle.number();
        Some((it.id, it.entrant, it.reserved))
    }

    /// Returns the tenant in which an entry waits.
    pub(super) fn waiting_in(&self, id: Id) -> Option<u32> {
        let waiting = self.waiting.iter().find(|waiting| waiting.id == id)?;
        Some(waiting.entrant.number)
    }

    /// Returns an entry that waits in a tenant.
    pub(super) fn any_waiting(&self, number: u32) -> Option<Id> {
        let is_its = |waiting: &&Waiting| waiting.entrant.number == number;
        Some(self.waiting.iter().find(is_its)?.id)
    }

    fn stop_waiting(&mut self, at: usize) -> Waiting {
        let waiting = self.waiting.swap_remove(at);
        self.uncharge(waiting.entrant.number, waiting.reserved, false);
        waiting
    }

    /// Ends the insert of an entry that is being claimed, if it waits.
    pub(super) fn forget_waiting(&mut self, id: Id) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.id == id) {
            self.stop_waiting(at);
            // Taken out before it was any tenant's, and counted so as the root's.
            self.tenant_mut(ROOT).events.inserts += 1;
        }
    }

    /// Takes up to `wanted` of the room that is reserved below a tenant. Returns `None` if none is reserved.
    #[cold]
    pub(super) fn take_reserved(&mut self, above: u32, wanted: u64) -> Option<u64> {
        let mut taken = 0;
        for at in 0..self.waiting.len() {
            let number = self.waiting[at].entrant.number;
            if self.is_within(number, above) {
                let part = self.waiting[at].reserved.min(wanted - taken);
                self.waiting[at].reserved -= part;
                self.uncharge(number, part, false);
                taken += part;
            }
        }
        (taken > 0).then_some(taken)
    }

    /// Gives back the room that is reserved in a tenant, which ends. Entries that wait there move to the tenant above.
    pub(super) fn give_up_reserved(&mut self, number: u32) {
        let above = self.tenant(number).place.parent.unwrap_or(ROOT);
        for at in 0..self.waiting.len() {
            let waiting = &mut self.waiting[at];
            if waiting.entrant.number == number {
                let reserved = std::mem::take(&mut waiting.reserved);
                waiting.entrant.number = above;
                self.uncharge(number, reserved, false);
            }
        }
    }
}
