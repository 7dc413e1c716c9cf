//! Limits that fall: the limit that was asked for, the one in force, and the eviction between them.
//!
//! A limit does not fall at once. The one in force follows the usage down, so that stores find room
//! meanwhile, or make it as at any limit. Items are evicted in rounds, each of a part of the excess.
//! Between rounds the indexes shrink with their items, and readers leave what was freed. Memory that an
//! index gives back once readers have left counts as freed, so that no item is evicted for it.

use super::{
    ceiling::Ceiling,
    pace::{self, Falling, Paced},
    shared::{Owner, Shared},
    tenant::Tenant,
};
use std::sync::Arc;

/// Part of what is above a limit that a round evicts. Of indexes that are not more than three
/// quarters of all, this and what they give back for it is not more than what has to go.
const ROUND_PART: u64 = 4;

/// Least number of bytes that a round evicts, if as much is above the limit.
const LEAST_ROUND: u64 = 64 << 10;

/// The store or tenant whose limit falls, with the tenants below it.
#[derive(Debug)]
pub enum Limit<'a> {
    Store(&'a Arc<Shared>, &'a [Tenant]),
    Tenant(&'a Tenant),
}

/// The result of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    Done,
    GoesOn,
    /// Nothing more can be evicted before readers leave.
    Waits,
    /// Nothing more can be evicted.
    Stuck,
}

impl Limit<'_> {
    fn shared(&self) -> &Arc<Shared> {
        match self {
            Self::Store(shared, _) => shared,
            Self::Tenant(tenant) => &tenant.state.owner.shared,
        }
    }

    fn owner(&self) -> Option<&Arc<Owner>> {
        match self {
            Self::Store(..) => None,
            Self::Tenant(tenant) => Some(&tenant.state.owner),
        }
    }

    fn ceiling(&self) -> &Ceiling {
        self.owner()
            .map_or(&self.shared().ceiling, |owner| &owner.ceiling)
    }

    fn memcg(&self) -> &stillpoint_lru::Tenant {
        self.owner()
            .map_or(self.shared().hierarchy.root(), |owner| &owner.memcg)
    }

    fn tenants(&self) -> &[Tenant] {
        match self {
            Self::Store(_, tenants) => tenants,
            Self::Tenant(tenant) => std::slice::from_ref(tenant),
        }
    }

    fn falling(&self) -> Falling {
        match self.owner() {
            Some(owner) => Falling::Tenant(Arc::clone(owner)),
            None => Falling::Store(Arc::clone(self.shared())),
        }
    }

    /// Returns the number of bytes above the limit.
    fn over(&self) -> u64 {
        let goal = self.ceiling().goal(&self.shared().config);
        self.memcg().usage().saturating_sub(goal)
    }

    /// Evicts a part of the excess.
    fn evict(&self) -> Round {
        if !self.ceiling().is_falling() {
            return Round::Done;
        }
        let mut excess = 0;
        for tenant in self.tenants() {
            let space = tenant.space();
            space.shrink_table(true);
            excess += space.table_excess();
        }
        let over = self.over();
        let wanted = over.saturating_sub(excess);
        if wanted == 0 {
            return if over == 0 { Round::Done } else { Round::Waits };
        }
        let part = (wanted / ROUND_PART).max(LEAST_ROUND).min(wanted);
        // What the usage has fallen by says little: other threads store.
        let evict = || _ = self.memcg().reclaim(part);
        match pace::evict_for(self.falling(), evict) {
            0 => Round::Stuck,
            _ => Round::GoesOn,
        }
    }

    /// Frees what readers have left.
    fn settle(&self) {
        for tenant in self.tenants() {
            tenant.space().settle_table(true);
        }
        self.falling().follow();
    }
}

/// Evicts until the limits hold as they were asked for, or nothing more can be evicted. Returns whether
/// readers prevent it. With `pace`, the calling thread rests in between, and ends early once `is_over`
/// returns true.
pub fn lower(
    shared: &Arc<Shared>,
    limits: &[Limit<'_>],
    pace: bool,
    is_over: impl Fn() -> bool,
) -> bool {
    let _paced = pace.then(|| {
        let bytes = limits.iter().map(Limit::over).max();
        Paced::begin(shared.hierarchy.root(), bytes.unwrap_or(0))
    });
    loop {
        let before: u64 = limits.iter().map(Limit::over).sum();
        let rounds: Vec<_> = limits.iter().map(Limit::evict).collect();
        shared.pool.wait_until_left();
        limits.iter().for_each(Limit::settle);
        shared.pool.release();
        shared.pool.drain_much();
        pace::rest();
        let after: u64 = limits.iter().map(Limit::over).sum();
        let goes_on = rounds.contains(&Round::GoesOn) || after < before;
        if after == 0 || !goes_on || is_over() {
            return rounds.contains(&Round::Waits);
        }
    }
}
