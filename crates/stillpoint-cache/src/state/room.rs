//! Evicting: to make room for an entry, and for limits.

use super::{
    Claimed, ROOT, State,
    limits::{For, Inserter},
};
use crate::{
    cause::Cause,
    node::{Locked, NO_TIMER, Stage},
    policy::Nodes,
};

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// More than the limit of that tenant.
    TooLarge(u32),
    /// All below the limit of that tenant is protected.
    Protected(u32),
}

/// What room was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Made,
    /// There is more to do once the claimed entries are out of the map.
    Again,
}

impl State {
    /// Makes room for so much in a tenant, by evicting: at most a batch at a time.
    pub fn make_room(
        &mut self,
        locked: &mut Locked,
        number: u32,
        weight: u64,
        claimed: &mut Claimed,
    ) -> Result<Room, NoRoom> {
        // All levels, before anything is evicted for nothing.
        let inserter = Inserter { number, weight };
        self.may_fit(inserter)?;
        let mut level = Some(number);
        while let Some(above) = level {
            let tenant = self.tenant(above);
            let (max, parent) = (tenant.limits.max, tenant.place.parent);
            while self.tenant(above).usage > max - weight {
                if claimed.is_full() {
                    return Ok(Room::Again);
                }
                if !self.evict_below(locked, above, For::Insert(inserter), claimed) {
                    // Single entries may be larger than what is not protected.
                    return Err(NoRoom::Protected(above));
                }
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
            if !self.evict_below(locked, above, For::Limit, claimed) {
                return false;
            }
        }
        false
    }

    /// What all tenants may have together.
    pub fn max(&self) -> u64 {
        self.tenant(ROOT).limits.max
    }

    /// Evicts one entry of a tenant or one below it that no min protects.
    pub fn give_back(&mut self, locked: &mut Locked, above: u32, claimed: &mut Claimed) -> bool {
        self.evict_below(locked, above, For::Pressure, claimed)
    }

    /// Evicts one entry of a tenant or one below it.
    fn evict_below(
        &mut self,
        locked: &mut Locked,
        above: u32,
        what_for: For,
        claimed: &mut Claimed,
    ) -> bool {
        let Some((number, id)) = self.choose(locked, above, what_for) else {
            return false;
        };
        let guarded = locked.of(id);
        guarded.stage = Stage::Claimed;
        let timer = std::mem::replace(&mut guarded.timer, NO_TIMER);
        if timer != NO_TIMER {
            self.wheel.remove(timer);
        }
        let weight = locked.weight(id);
        let tenant = self.tenant_mut(number);
        tenant.policy.evict(locked, id);
        tenant.events.count(Cause::Evicted);
        self.entries -= 1;
        self.uncharge(number, weight, false);
        self.consider_trim(number);
        claimed.push(id);
        true
    }
}
