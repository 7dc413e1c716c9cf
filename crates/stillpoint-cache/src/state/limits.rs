//! Which tenant gives way: limits, effective protection, and what memory earns.

#[cfg(all(test, not(stillpoint_loom)))]
mod tests;

use super::{NoRoom, ROOT, State, Tenant, account, tree::List};
use crate::{
    cause::InsertError,
    node::{Id, Locked},
};
use std::sync::Arc;

/// What a tenant may use, in bytes. The kernel's `memory.min`, `low`, `high` and `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub min: u64,
    pub low: u64,
    pub high: u64,
    pub max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            min: 0,
            low: 0,
            high: u64::MAX,
            max: u64::MAX,
        }
    }
}

/// What the children of a tenant are promised together, or what of that they use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Claims {
    // Sums of limits that are set may be larger than the largest limit.
    min: u128,
    low: u128,
}

impl Claims {
    /// What a tenant with these limits uses of what it is promised.
    fn used(limits: &Limits, usage: u64) -> Self {
        Self {
            min: limits.min.min(usage).into(),
            low: limits.low.min(usage).into(),
        }
    }

    /// With a child's part changed.
    fn change(&mut self, old: Self, new: Self) {
        self.min = self.min - old.min + new.min;
        self.low = self.low - old.low + new.low;
    }

    fn of(&self, protect: Protect) -> u128 {
        match protect {
            Protect::Min => self.min,
            Protect::MinAndLow => self.low,
            Protect::Nothing => 0,
        }
    }
}

/// An insert, and what its entry weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserter {
    pub number: u32,
    pub weight: u64,
}

/// Ghost hits, and hits of entries that would have been next to go, decayed: the last ones count
/// most.
#[derive(Debug, Clone, Copy, Default)]
pub struct Worth {
    earned: f64,
    /// When that was so, in inserts.
    at: u64,
}

impl Worth {
    pub fn earn(&mut self, hits: u64, now: u64, half_life: u64) {
        self.earned = self.get(now, half_life) + hits as f64;
        self.at = now;
    }

    fn get(&self, now: u64, half_life: u64) -> f64 {
        self.earned * (-((now - self.at) as f64) / half_life as f64).exp2()
    }
}

/// A choice that stays for a while.
#[derive(Debug, Clone, Copy, Default)]
pub struct Victim {
    number: Option<u32>,
    /// For how many evictions.
    left: u32,
}

/// Which protection counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protect {
    MinAndLow,
    Min,
    /// None does: a limit was set that is below what is protected, or between two entries.
    Nothing,
}

impl Protect {
    /// What a tenant with these limits is promised.
    fn of(self, limits: &Limits) -> u64 {
        match self {
            Self::Min => limits.min,
            Self::MinAndLow => limits.low,
            Self::Nothing => 0,
        }
    }
}

/// What an eviction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// To make room for an entry, whose tenant may take from itself.
    Insert(Inserter),
    /// A limit that was set, which holds at once, whatever was promised below it.
    Limit,
    /// Memory pressure.
    Pressure,
}

/// What a search for a victim may take.
#[derive(Debug, Clone, Copy)]
struct Search {
    /// Room is made below its limit.
    above: u32,
    /// What room is made for, if it is for an entry.
    inserter: Option<Inserter>,
    /// Whether what the inserter shares guarantees with does not count as protected from it.
    among_own: bool,
    /// Whether the guarantees of `above` itself count.
    spares_own: bool,
    protect: Protect,
}

/// How many tenants are tried by what their memory earns, before any will do.
const TRIES: usize = 4;

/// How many evictions a choice stays for.
const STAYS: u32 = 16;

/// How many tenants that may give way are compared, at most: the next ones each time.
const COMPARED: usize = 64;

/// The tenant that was chosen before keeps giving way unless another one's memory earns less than
/// this part of what its own does.
const HYSTERESIS: f64 = 0.8;

/// A part of what is available, as large as `own` is of `all`.
fn share(available: u64, own: u64, all: u128) -> u64 {
    // `own` is no more than `all`.
    (u128::from(available) * u128::from(own) / all).min(available.into()) as u64
}

impl State {
    /// Changes the limits of a tenant, and what its parent has promised.
    pub fn set_limits(&mut self, number: u32, change: impl FnOnce(&mut Limits)) {
        let tenant = self.tenant_mut(number);
        let (old, usage) = (tenant.limits, tenant.usage);
        change(&mut tenant.limits);
        let (new, parent) = (tenant.limits, tenant.place.parent);
        if let Some(parent) = parent {
            let above = self.tenant_mut(parent);
            let all = u64::MAX;
            above
                .claims
                .change(Claims::used(&old, all), Claims::used(&new, all));
            let used = |limits| Claims::used(limits, usage);
            above.claims_used.change(used(&old), used(&new));
        }
        self.forget_victims(number);
        self.consider_high(number);
    }

    /// Has a tenant and all above it choose anew which one gives way.
    pub(super) fn forget_victims(&mut self, number: u32) {
        let mut level = Some(number);
        while let Some(number) = level {
            let tenant = self.tenant_mut(number);
            tenant.victim = Victim::default();
            level = tenant.place.parent;
        }
    }

    /// Changes what a tenant and all above it use.
    pub(super) fn account(&mut self, number: u32, change: impl Fn(&mut Tenant)) {
        let mut level = Some(number);
        while let Some(number) = level {
            let tenant = self.tenant_mut(number);
            let (old, gave) = (tenant.usage, tenant.gives());
            let (limits, parent) = (tenant.limits, tenant.place.parent);
            change(tenant);
            let (new, gives) = (tenant.usage, tenant.gives());
            if new <= limits.high {
                tenant.stuck_at = 0;
            } else if new < old {
                tenant.stuck_at = tenant.stuck_at.min(account::above(new));
            } else if tenant.is_above_high() {
                self.queue_high(number);
            }
            if let Some(parent) = parent {
                if gives != gave {
                    self.set_giving(number, parent, gives);
                }
                if (limits.min, limits.low) != (0, 0) {
                    let used = |usage| Claims::used(&limits, usage);
                    self.tenant_mut(parent)
                        .claims_used
                        .change(used(old), used(new));
                }
            }
            level = parent;
        }
    }

    /// What of its min, or of its low, a tenant has: see [`protection_below`](Self::protection_below).
    fn protection(&self, number: u32, of: Protect, inserter: Option<Inserter>) -> u64 {
        let mut own = self.max();
        self.protections(number, of, inserter, |_, protection| own = protection);
        own
    }

    /// Calls `each` with the tenants from right below the root to `number`, and what of its min, or of its
    /// low, each has. Not recursive: a tree may be deeper than any stack.
    fn protections(
        &self,
        number: u32,
        of: Protect,
        inserter: Option<Inserter>,
        mut each: impl FnMut(u32, u64),
    ) {
        let mut path = Vec::new();
        let is_shallow = self.tenant(number).place.parent == Some(ROOT);
        if !is_shallow {
            path = self.path_to.take();
            path.clear();
            path.extend(self.path(number).take_while(|&level| level != ROOT));
        }
        let path_or_one = if is_shallow { &[number][..] } else { &path };
        let (mut available, mut above, mut common) = (self.max(), ROOT, None);
        for &level in path_or_one.iter().rev() {
            let sharing = || {
                let inserter = inserter?;
                let find = || self.common(number, inserter.number);
                let (lowest, below) = *common.get_or_insert_with(find);
                let sibling = if lowest == above {
                    below?
                } else {
                    (self.depth(above) < self.depth(lowest)).then_some(level)?
                };
                Some((inserter, sibling))
            };
            available = self.protection_below(available, level, of, sharing);
            above = level;
            each(level, available);
        }
        if !is_shallow {
            self.path_to.replace(path);
        }
    }

    /// What of its min, or of its low, a tenant has whose parent has `available` of its own. That is all of
    /// it, unless its parent has promised more than it has itself. Then it is what the tenant uses of it,
    /// and where the parent's children use more than it has, a share by what they use: so the kernel's
    /// `effective_protection` does it.
    ///
    /// From a sibling that has less than its share by what was promised, only as much counts as that
    /// share leaves. So a tenant that comes later gets its own. `sharing` finds the inserter, and which
    /// sibling it is within.
    fn protection_below(
        &self,
        available: u64,
        number: u32,
        of: Protect,
        sharing: impl FnOnce() -> Option<(Inserter, u32)>,
    ) -> u64 {
        let tenant = self.tenant(number);
        let own = of.of(&tenant.limits);
        let Some(parent) = tenant.place.parent.filter(|_| own > 0) else {
            return 0;
        };
        let above = self.tenant(parent);
        let claims = above.claims.of(of);
        if claims <= available.into() {
            return own;
        }
        let promised = |own| share(available, own, claims);
        let is_below = |(inserter, level): (Inserter, u32)| {
            let tenant = self.tenant(level);
            tenant.usage.saturating_add(inserter.weight) <= promised(of.of(&tenant.limits))
        };
        if sharing().is_some_and(is_below) {
            return promised(own);
        }
        let used = own.min(tenant.usage);
        match above.claims_used.of(of) {
            all if all > available.into() => share(available, used, all),
            _ => used,
        }
    }

    /// Whether an entry could be let in if all went that is not pinned, and that no min keeps from it.
    /// Looks at single tenants only where sums leave that open.
    pub(super) fn may_fit(&self, inserter: Inserter) -> Result<(), NoRoom> {
        let Inserter { number, weight } = inserter;
        let too_large = |&level: &u32| weight > self.tenant(level).limits.max;
        if let Some(level) = self.path(number).find(too_large) {
            return Err(NoRoom::TooLarge(level));
        }
        // With tenants below it, some of that may be protected as well.
        let pinned = match self.tenant(number) {
            own if !own.place.has_children() => own.pinned_bytes,
            _ => 0,
        };
        let (mut protected, mut below) = (pinned, None);
        let mut is_exact = true;
        for level in self.path(number) {
            let tenant = self.tenant(level);
            let own = below.map_or(0, |below| self.tenant(below).limits.min);
            let claimed = tenant.claims.min.saturating_sub(own.into());
            let claimed = u64::try_from(claimed).unwrap_or(u64::MAX);
            is_exact &= claimed == 0;
            protected = protected.saturating_add(claimed);
            below = Some(level);
            let left = tenant.limits.max - weight;
            if tenant.usage > left && tenant.pinned_bytes > left {
                return Err(NoRoom::Protected(level));
            }
            if tenant.usage <= left || protected <= left {
                continue;
            }
            if !is_exact {
                let from_others = self.protected_from(inserter, level);
                (protected, is_exact) = (pinned.saturating_add(from_others), true);
            }
            if protected > left {
                return Err(NoRoom::Protected(level));
            }
        }
        Ok(())
    }

    /// What minima keep from a tenant that makes room below `above`. Looks at the siblings of all
    /// between the two.
    fn protected_from(&self, inserter: Inserter, above: u32) -> u64 {
        let kept = |other: u32, available, sharing: Option<(Inserter, u32)>| {
            let protection = self.protection_below(available, other, Protect::Min, || sharing);
            self.tenant(other).usage.min(protection)
        };
        let (mut sum, mut available, mut parent) = (0_u64, self.max(), ROOT);
        let mut is_below = above == ROOT;
        let own = Some(inserter);
        self.protections(inserter.number, Protect::Min, own, |level, protection| {
            if is_below {
                let siblings = self.children(parent).filter(|&other| other != level);
                let all = siblings.map(|other| kept(other, available, Some((inserter, level))));
                sum = all.fold(sum, u64::saturating_add);
            }
            is_below |= level == above;
            (available, parent) = (protection, level);
        });
        // What is right below the inserter is its own, and kept from it as well.
        let below = self.children(inserter.number);
        let below = below.map(|other| kept(other, available, None));
        below.fold(sum, u64::saturating_add)
    }

    /// Whether `weight` may be taken from a tenant to make room below `above`.
    fn may_take(&self, number: u32, weight: u64, search: Search) -> bool {
        // Guarantees from there up do not count.
        let end = match search.inserter {
            Some(inserter) if search.among_own => self.common(number, inserter.number).0,
            _ => search.above,
        };
        let end = (!search.spares_own || end == ROOT).then_some(end);
        let kinds = match search.protect {
            Protect::Nothing => &[][..],
            Protect::Min => &[Protect::Min],
            Protect::MinAndLow => &[Protect::Min, Protect::MinAndLow],
        };
        let is_guaranteed = |&level: &u32| {
            let limits = self.tenant(level).limits;
            kinds.iter().any(|kind| kind.of(&limits) > 0)
        };
        let mut below_end = self.path(number).take_while(|&level| Some(level) != end);
        // Most have no guarantees.
        if !below_end.any(|level| is_guaranteed(&level)) {
            return true;
        }
        kinds.iter().all(|&kind| {
            let (mut counts, mut may_take) = (end == Some(ROOT), true);
            self.protections(number, kind, search.inserter, |level, protection| {
                counts |= level == search.above && end.is_none();
                let left = self.tenant(level).usage.saturating_sub(weight);
                may_take &= !counts || left >= protection;
                counts |= Some(level) == end;
            });
            may_take
        })
    }

    /// Chooses the entry that goes next below a limit, and returns whose it is.
    pub(super) fn choose(
        &mut self,
        locked: &mut Locked,
        above: u32,
        what_for: For,
    ) -> Option<(u32, Id)> {
        if !self.has_evictable(above) {
            return None;
        }
        if self.tenants.len() == 1 {
            return Some((ROOT, self.tenant_mut(ROOT).policy.candidate(locked)?));
        }
        let all = [Protect::MinAndLow, Protect::Min, Protect::Nothing];
        let kinds = if what_for == For::Limit { 3 } else { 2 };
        let mut search = Search {
            above,
            inserter: match what_for {
                For::Insert(inserter) => Some(inserter),
                For::Limit | For::Pressure => None,
            },
            among_own: false,
            spares_own: what_for == For::Pressure,
            protect: Protect::Nothing,
        };
        for protect in &all[..kinds] {
            search.protect = *protect;
            if let Some(chosen) = self.choose_with(locked, search) {
                return Some(chosen);
            }
        }
        let For::Insert(Inserter { number: own, .. }) = what_for else {
            return None;
        };
        // An inserter that has less than its guarantees takes from others before itself and what it
        // shares these with: but the others have no more to give.
        search.among_own = true;
        for protect in &all[..kinds] {
            search.protect = *protect;
            if let Some(chosen) = self.choose_with(locked, search) {
                return Some(chosen);
            }
        }
        // Only what is protected from others is left: the inserter makes room among its own.
        let id = self.tenant_mut(own).policy.candidate(locked)?;
        Some((own, id))
    }

    /// Chooses an entry that the search may take.
    fn choose_with(&mut self, locked: &mut Locked, search: Search) -> Option<(u32, Id)> {
        self.searches += 1;
        for _ in 0..TRIES {
            let Some(number) = self.choose_tenant(search) else {
                break;
            };
            if let Some(id) = self.candidate_of(locked, number, search) {
                let victim = &mut self.tenant_mut(search.above).victim;
                victim.left = victim.left.saturating_sub(1);
                return Some((number, id));
            }
            // The entry is larger than what is not protected: another tenant is to give way.
            self.tenant_mut(search.above).victim = Victim::default();
            self.tenant_mut(number).passed = self.searches;
        }
        // Many are so, or were when a search looked last: any that is not. Each is looked at once.
        let mut next = Some(search.above);
        while let Some(number) = next {
            if self.gives_way(number, 1, search)
                && let Some(id) = self.candidate_of(locked, number, search)
            {
                return Some((number, id));
            }
            next = self.after(number, search.above, List::Giving);
        }
        None
    }

    /// The entry of a tenant that goes next, if the search may take it.
    fn candidate_of(&mut self, locked: &mut Locked, number: u32, search: Search) -> Option<Id> {
        let (now, half_life) = (self.inserts, self.half_life());
        let tenant = self.tenant_mut(number);
        let id = tenant.policy.candidate(locked)?;
        let passed = tenant.policy.take_passed();
        if passed > 0 {
            tenant.worth.earn(passed, now, half_life);
        }
        let weight = crate::policy::Nodes::weight(locked, id);
        tenant.next_weight = weight;
        self.may_take(number, weight, search).then_some(id)
    }

    fn is_within_if_there(&self, number: u32, above: u32) -> bool {
        self.is_there(number) && self.is_within(number, above)
    }

    fn choose_tenant(&mut self, search: Search) -> Option<u32> {
        let above = search.above;
        let victim = self.tenant(above).victim;
        if let Some(number) = victim.number
            && victim.left > 0
            && self.is_within_if_there(number, above)
            && self.gives_next(number, search)
        {
            return Some(number);
        }
        let (now, half_life) = (self.inserts, self.half_life());
        let mut last = above;
        let best = self
            .round(above, self.tenant(above).cursor)
            .filter(|&number| self.gives_next(number, search))
            .take(COMPARED)
            .inspect(|&number| last = number)
            .map(|number| {
                let tenant = self.tenant(number);
                let over_high = self
                    .path(number)
                    .any(|level| self.tenant(level).usage > self.tenant(level).limits.high);
                let mut worth =
                    tenant.worth.get(now, half_life) / tenant.policy.weight().max(1) as f64;
                if victim.number == Some(number) {
                    worth *= HYSTERESIS;
                }
                let protected = self.protection(number, Protect::Min, search.inserter);
                let excess = tenant.usage.saturating_sub(protected);
                (!over_high, worth, excess, number)
            })
            .min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(b.2.cmp(&a.2)))?
            .3;
        let next = self.after(last, above, List::Giving);
        let chooses = self.tenant_mut(above);
        chooses.cursor = next.unwrap_or(above);
        chooses.victim = Victim {
            number: Some(best),
            left: STAYS,
        };
        Some(best)
    }

    /// Whether the entry of a tenant that goes next may be taken, as far as its weight is known. So
    /// tenants that are just above what is protected are not tried again and again.
    fn gives_next(&self, number: u32, search: Search) -> bool {
        let weight = self.tenant(number).next_weight;
        self.gives_way(number, weight, search)
    }

    /// Whether so much may be taken from a tenant, which was not passed over in this search.
    fn gives_way(&self, number: u32, weight: u64, search: Search) -> bool {
        let tenant = self.tenants[number as usize].as_deref();
        tenant.is_some_and(|tenant| tenant.policy.entries() > 0 && tenant.passed != self.searches)
            && self.may_take(number, weight, search)
    }

    /// Tells a user why there is no room: under the hold of the lock that has found it so, after
    /// which the tenant may be gone.
    pub fn refusal(&self, refused: NoRoom, weight: u64) -> InsertError {
        let (NoRoom::TooLarge(number) | NoRoom::Protected(number)) = refused;
        let limiting = self.tenant(number);
        let (tenant, limit) = (Arc::clone(&limiting.handle.name), limiting.limits.max);
        match refused {
            NoRoom::TooLarge(_) => InsertError::TooLarge {
                tenant,
                limit,
                weight,
            },
            NoRoom::Protected(_) => InsertError::Full {
                tenant,
                limit,
                weight,
            },
        }
    }
}
