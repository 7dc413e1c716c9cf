//! What tenants use, with all below them: of it what is pinned, and what is above high limits.

use super::{BATCH, Claimed, State, Tenant, limits::For};
use crate::{
    node::{Id, Locked, Stage},
    policy::Nodes,
};

impl State {
    /// Pins an entry, or lets it be evicted again. Returns false if it was claimed, or is about to be,
    /// as it is outdated: in another queue it would not be found.
    pub fn pin(&mut self, locked: &mut Locked, id: Id, pinned: bool) -> bool {
        let guarded = locked.of(id);
        let (number, stage, was_pinned) = (guarded.tenant, guarded.stage, guarded.pinned);
        let is_there = self.is_current(locked, id);
        if !is_there || was_pinned == pinned {
            return is_there;
        }
        locked.of(id).pinned = pinned;
        if stage == Stage::New {
            // Its inserter links it so.
            return true;
        }
        let weight = locked.weight(id);
        let tenant = self.tenant_mut(number);
        if pinned {
            tenant.policy.remove(locked, id);
            tenant.pinned.push(locked, id);
            if tenant.is_to_be_queued_for_trim() {
                self.queue_trim(number);
            }
            self.account(number, move |tenant| tenant.pinned_bytes += weight);
        } else {
            tenant.pinned.remove(locked, id);
            tenant.policy.insert(locked, id);
            self.account(number, move |tenant| tenant.pinned_bytes -= weight);
            self.consider_high(number);
        }
        true
    }

    #[inline(always)]
    pub(super) fn charge(&mut self, number: u32, weight: u64, pinned: bool) {
        let pinned = if pinned { weight } else { 0 };
        self.account(number, move |tenant| {
            tenant.usage += weight;
            tenant.pinned_bytes += pinned;
        });
    }

    #[inline(always)]
    pub(super) fn uncharge(&mut self, number: u32, weight: u64, pinned: bool) {
        let pinned = if pinned { weight } else { 0 };
        self.account(number, move |tenant| {
            tenant.usage -= weight;
            tenant.pinned_bytes -= pinned;
        });
    }

    /// Queues a tenant for the service thread, which brings it below its high limit.
    #[cold]
    pub(super) fn queue_high(&mut self, number: u32) {
        self.high.push(number);
        self.tenant_mut(number).is_queued = true;
    }

    /// Returns whether tenants wait to be brought below their high limits.
    pub fn has_high(&self) -> bool {
        !self.high.is_empty()
    }

    /// Queues a tenant, and those above it, that are above their high limits, after a change of what
    /// may be taken from them.
    pub(super) fn consider_high(&mut self, number: u32) {
        let mut level = Some(number);
        while let Some(number) = level {
            let tenant = self.tenant_mut(number);
            tenant.stuck_at = 0;
            level = tenant.place.parent;
            if self.tenant(number).is_above_high() {
                self.queue_high(number);
            }
        }
    }

    /// Returns whether a tenant, or one above it, uses more than its max.
    pub fn is_above_max(&self, number: u32) -> bool {
        let mut path = self.path(number);
        path.any(|level| self.tenant(level).usage > self.tenant(level).limits.max)
    }

    /// Evicts what a tenant and those above it use beyond their max, or a batch of that. Returns
    /// whether there is more to do, and something that can be done.
    pub fn keep_max(&mut self, locked: &mut Locked, number: u32, claimed: &mut Claimed) -> bool {
        let mut level = self.is_there(number).then_some(number);
        while let Some(number) = level {
            let Tenant { limits, place, .. } = self.tenant(number);
            level = place.parent;
            let max = limits.max;
            if self.shrink(locked, (number, max), For::Limit, claimed) {
                return true;
            }
        }
        false
    }

    /// Evicts what is above high limits and not protected, and a little more: a batch, or until a
    /// search has found nothing in one tenant. Returns whether there is more.
    pub fn reclaim_high(&mut self, locked: &mut Locked, claimed: &mut Claimed) -> bool {
        for _ in 0..BATCH {
            let Some(&number) = self.high.last() else {
                return false;
            };
            let mut searched = false;
            while self.is_there(number) && self.tenant(number).is_above_high_goal() {
                if claimed.is_full() {
                    return true;
                }
                // Where all is pinned, no search is made.
                searched = self.tenant(number).gives();
                if !self.give_back(locked, number, claimed) {
                    let tenant = self.tenant_mut(number);
                    tenant.stuck_at = above(tenant.usage);
                    break;
                }
                searched = false;
            }
            self.high.pop();
            if self.is_there(number) {
                self.tenant_mut(number).is_queued = false;
            }
            if searched {
                // It may have looked at all tenants below, and there may be many like it.
                break;
            }
        }
        self.has_high()
    }
}

/// Returns the usage at which a tenant is tried again from which nothing could be taken: a little more.
fn above(usage: u64) -> u64 {
    usage.saturating_add(usage / 64)
}

impl Tenant {
    /// Changes what it uses. Returns whether it is above its high limit now and has to be queued.
    #[inline(always)]
    pub(super) fn change_usage(&mut self, change: impl Fn(&mut Self)) -> bool {
        let old = self.usage;
        change(self);
        if self.usage <= self.limits.high {
            self.stuck_at = 0;
            return false;
        }
        if self.usage < old {
            self.stuck_at = self.stuck_at.min(above(self.usage));
            return false;
        }
        self.is_above_high()
    }

    /// Returns whether it is above its high limit and has to be queued.
    fn is_above_high(&self) -> bool {
        self.usage > self.limits.high.max(self.stuck_at) && !self.is_queued
    }

    /// Returns whether it is above the usage that the service thread brings it to. That is a little below the
    /// limit, so that not every insert wakes the thread.
    fn is_above_high_goal(&self) -> bool {
        self.usage > self.limits.high - self.limits.high / 64
    }
}
