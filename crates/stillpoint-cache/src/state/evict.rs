//! Evicting: to make room for an entry, and for limits.

use super::{
    Claimed, ROOT, State,
    limits::{For, Inserter},
    waiting::Ticket,
};
use crate::{
    node::{Id, Locked, NO_TIMER, Stage},
    policy::{Nodes, Standing},
    removal::{Cause, InsertError},
};

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// More than the limit of that tenant.
    TooLarge(u32),
    /// All below the limit of that tenant is protected.
    Protected(u32),
}

/// The room that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Made,
    /// A batch of it, of which so much is free on all levels.
    Part(u64),
}

/// The tenant, expiry and standing with which an entry is linked.
#[derive(Debug, Clone, Copy)]
pub struct Entrant {
    /// Number of its tenant.
    pub number: u32,
    pub expires: u64,
    /// Standing of the entry that it has replaced.
    pub standing: Option<Standing>,
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
    ) -> Result<Option<Ticket>, InsertError> {
        if locked.of(id).stage == Stage::New {
            let (number, weight) = (entrant.number, locked.weight(id));
            let inserter = Inserter { number, weight };
            match self.make_room(locked, inserter, reserved, claimed) {
                Ok(Room::Made) => {}
                Ok(Room::Part(free)) => return Ok(Some(self.wait(id, entrant, free))),
                Err(no_room) => {
                    let refused = self.refusal(no_room, weight);
                    self.claim(locked, id, None);
                    return Err(refused);
                }
            }
        }
        self.link(locked, id, entrant);
        Ok(None)
    }

    /// Makes room by evicting, a batch at most. `freed` has been freed for it before.
    ///
    /// A limit that is being lowered is kept by the thread that lowers it. This one evicts a batch of what
    /// is above it, and is done if that is as much as it needs itself.
    fn make_room(
        &mut self,
        locked: &mut Locked,
        inserter: Inserter,
        mut freed: u64,
        claimed: &mut Claimed,
    ) -> Result<Room, NoRoom> {
        // All levels, before anything is evicted for nothing.
        self.may_fit(inserter)?;
        let (mut level, weight) = (Some(inserter.number), inserter.weight);
        while let Some(above) = level {
            let tenant = self.tenant(above);
            let (max, parent) = (tenant.limits.max, tenant.place.parent);
            while self.tenant(above).usage > max - weight {
                if claimed.is_full() && freed >= weight {
                    break;
                }
                if claimed.is_full() {
                    let free = |level| {
                        let tenant = self.tenant(level);
                        freed.max(tenant.limits.max.saturating_sub(tenant.usage))
                    };
                    let least = self.path(above).map(free).min();
                    return Ok(Room::Part(least.unwrap_or(0).min(weight)));
                }
                let evicted = self.evict_below(locked, above, For::Insert(inserter), claimed);
                // Single entries may be larger than what is not protected.
                freed += match evicted {
                    Some(weight) => weight,
                    None => self
                        .take_reserved(above, self.tenant(above).usage - (max - weight))
                        .ok_or(NoRoom::Protected(above))?,
                };
            }
            level = parent;
        }
        Ok(Room::Made)
    }

    /// Evicts until a tenant uses no more than `goal`, or a batch is full. Returns whether there is
    /// more to do, and something that can be done.
    pub fn shrink(
        &mut self,
        locked: &mut Locked,
        above: u32,
        goal: u64,
        claimed: &mut Claimed,
    ) -> bool {
        while self.tenant(above).usage > goal {
            if claimed.is_full() {
                return true;
            }
            if self
                .evict_below(locked, above, For::Limit, claimed)
                .is_none()
            {
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
    fn evict_below(
        &mut self,
        locked: &mut Locked,
        above: u32,
        what_for: For,
        claimed: &mut Claimed,
    ) -> Option<u64> {
        let (number, id) = self.choose(locked, above, what_for)?;
        let guarded = locked.of(id);
        guarded.stage = Stage::Claimed;
        let timer = std::mem::replace(&mut guarded.timer, NO_TIMER);
        if timer != NO_TIMER {
            self.remove_timer(locked, timer);
        }
        let weight = locked.weight(id);
        let tenant = self.tenant_mut(number);
        tenant.policy.evict(locked, id);
        locked.hide(id);
        tenant.events.count(Cause::Evicted);
        self.forget_watched(id, Some(Cause::Evicted));
        self.entries -= 1;
        self.uncharge(number, weight, false);
        self.consider_trim(number);
        claimed.push(locked, id);
        Some(weight)
    }
}
