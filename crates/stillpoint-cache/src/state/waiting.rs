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

use super::{ROOT, State};
use crate::node::Id;

/// Says which insert is to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

#[derive(Debug)]
pub struct Waiting {
    ticket: Ticket,
    id: Id,
    number: u32,
    /// The bytes that `number` is charged for it.
    reserved: u64,
}

impl State {
    /// Notes that there is not all the room yet for an entry of a tenant, and reserves what there is.
    pub fn wait(&mut self, id: Id, number: u32, reserved: u64) -> Ticket {
        self.charge(number, reserved, false);
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.waiting.push(Waiting {
            ticket,
            id,
            number,
            reserved,
        });
        ticket
    }

    /// Returns the entry of a ticket, and what was reserved for it, which is free again. `None` if it was
    /// claimed meanwhile.
    pub fn resume(&mut self, ticket: Ticket) -> Option<(Id, u64)> {
        let is_it = |waiting: &Waiting| waiting.ticket == ticket;
        let at = self.waiting.iter().position(is_it)?;
        Some(self.stop_waiting(at))
    }

    /// Returns the tenant in which an entry waits.
    pub(super) fn waiting_in(&self, id: Id) -> Option<u32> {
        let waiting = self.waiting.iter().find(|waiting| waiting.id == id)?;
        Some(waiting.number)
    }

    fn stop_waiting(&mut self, at: usize) -> (Id, u64) {
        let waiting = self.waiting.swap_remove(at);
        self.uncharge(waiting.number, waiting.reserved, false);
        (waiting.id, waiting.reserved)
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
                number, reserved, ..
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

    /// Gives back what is reserved in a tenant, which ends.
    pub(super) fn give_up_reserved(&mut self, number: u32) {
        for at in 0..self.waiting.len() {
            if self.waiting[at].number == number {
                let reserved = std::mem::take(&mut self.waiting[at].reserved);
                self.waiting[at].number = ROOT;
                self.uncharge(number, reserved, false);
            }
        }
    }
}
