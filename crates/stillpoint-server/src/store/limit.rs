//! The limits of a store or a tenant, as they were asked for and as they are in force.

use super::{
    ceiling::{Ceiling, with_headroom},
    config::{Config, Limits},
};
use crate::lock::lock;
use std::sync::{Mutex, MutexGuard};
use stillpoint_lru::Tenant;

/// The limits of the store, which has only a max, or of a tenant.
#[derive(Debug)]
pub struct Limit {
    /// What is charged, and evicted from.
    pub memcg: Tenant,
    /// The max, for readers, which must not wait for the lock.
    ceiling: Ceiling,
    /// The limits as they were asked for. Held while a limit changes.
    limits: Mutex<Limits>,
}

impl Limit {
    /// Creates one without limits.
    pub fn new(memcg: Tenant) -> Self {
        Self {
            memcg,
            ceiling: Ceiling::none(),
            limits: Mutex::default(),
        }
    }

    /// Returns the limits as they were asked for.
    pub fn limits(&self) -> Limits {
        *lock(&self.limits)
    }

    /// Returns the max as it was asked for.
    pub fn max(&self) -> u64 {
        self.ceiling.asked()
    }

    /// Returns the max in force, which is higher while it falls.
    pub fn in_force(&self) -> u64 {
        self.ceiling.holds()
    }

    /// Returns whether the max in force is higher than the one that was asked for.
    pub fn is_falling(&self) -> bool {
        self.ceiling.is_falling()
    }

    /// Returns the number of bytes above the max.
    pub fn over(&self, config: &Config) -> u64 {
        let goal = self.ceiling.goal(config);
        self.memcg.usage().saturating_sub(goal)
    }

    /// Changes the limits. With eviction, a lower max comes into force in steps: the max in force follows
    /// the usage down at each call of [`Limit::follow`]. Without eviction it is in force at once or, if
    /// `later`, from the next call of [`Limit::follow`], so that the caller can compact first. Returns
    /// whether the max is falling.
    pub fn ask(&self, limits: Limits, config: &Config, later: bool) -> bool {
        let mut now = lock(&self.limits);
        *now = limits;
        self.memcg.set_min(limits.min);
        self.memcg.set_low(limits.low);
        self.ceiling
            .ask(limits.max, |max| _ = self.memcg.set_max(max));
        if config.evict || !later || !self.is_falling() {
            self.follow_locked(true, config, &now);
        }
        self.is_falling()
    }

    /// Lowers the max in force to the usage, or with `room` to a little more, for what other threads
    /// store meanwhile.
    pub fn follow(&self, room: bool, config: &Config) {
        self.follow_locked(room, config, &lock(&self.limits));
    }

    fn follow_locked(&self, room: bool, config: &Config, limits: &MutexGuard<'_, Limits>) {
        let max = self.ceiling.follow(self.memcg.usage(), room, config);
        if config.evicts_ahead() {
            self.memcg.set_high(limits.high.min(with_headroom(max)));
        }
        self.memcg.set_max(max);
    }
}
