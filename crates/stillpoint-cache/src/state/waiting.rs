//! Inserts that make room for an entry in several holds of the lock.
//!
//! What such an insert has freed is reserved for it: its tenant is charged. Otherwise inserts of smaller
//! entries take that between two holds, and it may never end. If an insert finds nothing else, it takes
//! what is reserved for others: no thread waits for another one, and the one that takes it ends. In the
//! child of a fork so is what inserts of other threads have left behind.
//!
//! Between two holds the thread is in no section, so that what it has evicted is freed. The entry that
//! it inserts is in the map, and other threads may take it out. It is kept by the rule of
//! [`crate::node`]: an entry that is claimed leaves this list, and is retired after that.

use super::{Entrant, ROOT, State};
use crate::node::Id;
use std::num::NonZeroU64;

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
    /// Notes that there is not all the room yet for an entry, and reserves what there is.
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
        let Waiting {
            id,
            mut entrant,
            reserved,
            ..
        } = self.stop_waiting(at);
        // Nothing comes to a tenant whose deletion has begun.
        entrant.number = self.tenant(entrant.number).handle.number();
        Some((id, entrant, reserved))
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

    /// Takes up to `wanted` of what is reserved below a tenant. `None` if nothing is.
    pub(super) fn take_reserved(&mut self, above: u32, wanted: u64) -> Option<u64> {
        let mut taken = 0;
        for at in 0..self.waiting.len() {
            let Waiting {
                entrant: Entrant { number, .. },
                reserved,
                ..
            } = self.waiting[at];
            if self.is_within(number, above) {
                let part = reserved.min(wanted - taken);
                self.waiting[at].reserved -= part;
                self.uncharge(number, part, false);
                taken += part;
            }
        }
        (taken > 0).then_some(taken)
    }

    /// Gives back what is reserved in a tenant, which ends. Entries that wait there get the one above.
    pub(super) fn give_up_reserved(&mut self, number: u32) {
        let above = self.tenant(number).place.parent.unwrap_or(ROOT);
        for at in 0..self.waiting.len() {
            let Waiting {
                entrant, reserved, ..
            } = &mut self.waiting[at];
            if entrant.number == number {
                let reserved = std::mem::take(reserved);
                entrant.number = above;
                self.uncharge(number, reserved, false);
            }
        }
    }
}
