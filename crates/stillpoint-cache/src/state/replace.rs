//! What becomes of an entry that has replaced another one in the map.

use super::State;
use crate::{
    node::{Id, Locked, Stage},
    policy::{Nodes, Standing},
    removal::Cause,
};
use std::sync::atomic::Ordering;

/// The inheritance of a new entry from the one that it has replaced in the map.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inheritance {
    /// Number of the tenant that it gets; `None` if the old one had none, or one that is being deleted.
    pub tenant: Option<u32>,
    /// Number of the tenant that has counted the claim of the old one, if it was claimed for this one.
    pub counted: Option<u32>,
    /// Whether it has the old one's place already.
    pub is_linked: bool,
    /// Place and frequency of the old one.
    pub standing: Option<Standing>,
}

impl State {
    /// Puts a new entry into the place in the queue of the one that it has replaced in the map, and claims
    /// that one. If the new one weighs more, or the tenant is being deleted, only returns what to
    /// [link](Self::link) it with once there is room.
    pub fn replace(
        &mut self,
        locked: &mut Locked,
        [old, new]: [Id; 2],
        cause: Cause,
        expires: u64,
    ) -> Inheritance {
        let guarded = locked.of(old);
        let (stage, number, pinned) = (guarded.stage, guarded.tenant, guarded.pinned);
        // The old one is retired after this hold.
        locked.set_prev(new, None);
        if stage == Stage::Claimed {
            // Its tenant may have been deleted since.
            return Inheritance::default();
        }
        // Whatever the cause: its compute is not to replace what the program has inserted.
        self.forget_watched(old, Some(Cause::Replaced));
        let mut inherited = Inheritance {
            counted: Some(number),
            ..Inheritance::default()
        };
        // Nothing comes to a tenant whose deletion has begun, or in place of an outdated entry.
        let tenant = self.tenant(number);
        let inherits = stage == Stage::Linked
            && cause == Cause::Replaced
            && !tenant.handle.deleted.load(Ordering::Relaxed)
            && !tenant.is_outdated(locked, old);
        if !inherits {
            self.claim(locked, old, Some(cause));
            return inherited;
        }
        inherited.tenant = Some(number);
        let weights = [locked.weight(old), locked.weight(new)];
        let guarded = locked.of(new);
        let is_alike = guarded.stage == Stage::New && guarded.pinned == pinned;
        if !is_alike || weights[1] > weights[0] {
            inherited.standing = (is_alike && !pinned).then(|| Standing::of(locked, old));
            self.claim(locked, old, Some(cause));
            return inherited;
        }
        inherited.is_linked = true;
        guarded.link(number, tenant.policy.round());
        locked.of(old).stage = Stage::Claimed;
        self.remove_timer(locked, old);
        self.set_timer(locked, new, expires);
        let tenant = self.tenant_mut(number);
        tenant.events.inserts += 1;
        tenant.events.count(cause);
        if pinned {
            tenant.pinned.replace(locked, old, new);
        } else {
            tenant.policy.replace(locked, old, new);
        }
        if weights[1] < weights[0] {
            self.uncharge(number, weights[0] - weights[1], pinned);
        }
        inherited
    }

    /// Counts that an entry was removed, and not replaced: what was to replace it is refused.
    pub fn recount_replaced(&mut self, inherited: Inheritance) {
        if let Some(number) = inherited.counted {
            let events = &mut self.tenant_mut(number).events;
            events.replaced -= 1;
            events.removed += 1;
        }
    }
}
