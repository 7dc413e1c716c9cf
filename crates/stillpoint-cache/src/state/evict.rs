//! Evicting: to make room for an entry, and for limits.

use super::{
    Claimed, ROOT, State,
    limits::{For, Inserter},
    waiting::Ticket,
};
use crate::{
    node::{Id, Locked, Stage},
    policy::{Nodes, Standing},
    removal::{Cause, InsertError},
};

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
                Ok(None) => {}
                Ok(Some(free)) => return Ok(Some(self.wait(id, entrant, free))),
                Err(refused) => {
                    self.claim(locked, id, None);
                    return Err(refused);
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
    fn make_room(
        &mut self,
        locked: &mut Locked,
        inserter: Inserter,
        mut freed: u64,
        claimed: &mut Claimed,
    ) -> Result<Option<u64>, InsertError> {
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
                    return Ok(Some(least.unwrap_or(0).min(weight)));
                }
                let evicted = self.evict_below(locked, above, For::Insert(inserter), claimed);
                // Single entries may be larger than what is not protected.
                freed += match evicted {
                    Some(weight) => weight,
                    None => self
                        .take_reserved(above, self.tenant(above).usage - (max - weight))
                        .ok_or_else(|| self.full(above, weight))?,
                };
            }
            level = parent;
        }
        Ok(None)
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
}
