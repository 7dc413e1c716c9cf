//! Which tenant gives way: limits, effective protection, and what memory earns.

#[cfg(all(test, not(stillpoint_loom)))]
mod tests;

use super::{ROOT, Refusal, State, Tenant};
use crate::{
    node::{Id, Locked},
    policy::{Nodes, TURNS},
    removal::InsertError,
};
use std::sync::Arc;

/// The limits of a tenant, in bytes: the kernel's `memory.min`, `low`, `high` and `max`.
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

/// Sums over the children of a tenant: of what they are promised, or of what they use of that.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Claims {
    // Sums of limits that are set may be larger than the largest limit.
    min: u128,
    low: u128,
    /// Bytes that no insert takes from them: what they use of their min, or what is pinned if that is more.
    /// Pins in one of them and minima below it may keep more together.
    kept: u64,
}

impl Claims {
    /// Returns what a tenant with these limits is promised.
    fn promised(limits: &Limits) -> Self {
        Self {
            min: limits.min.into(),
            low: limits.low.into(),
            kept: 0,
        }
    }

    /// Returns the part of its promises that a tenant uses.
    #[inline]
    fn used(tenant: &Tenant) -> Self {
        let Tenant { limits, usage, .. } = tenant;
        let min = limits.min.min(*usage);
        Self {
            min: min.into(),
            low: limits.low.min(*usage).into(),
            kept: min.max(tenant.pinned_bytes),
        }
    }

    /// Changes the part of a child.
    fn change(&mut self, old: Self, new: Self) {
        self.min = self.min - old.min + new.min;
        self.low = self.low - old.low + new.low;
        self.kept = self.kept - old.kept + new.kept;
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
    /// Time at which that was so, in inserts.
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
    /// Number of evictions for which it stays.
    left: u32,
}

/// The protection that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protect {
    MinAndLow,
    Min,
    /// None does: a limit was set that is below what is protected, or between two entries.
    Nothing,
}

impl Protect {
    /// Returns the promise to a tenant with these limits.
    fn of(self, limits: &Limits) -> u64 {
        match self {
            Self::Min => limits.min,
            Self::MinAndLow => limits.low,
            Self::Nothing => 0,
        }
    }
}

/// The reason for an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// It makes room for an entry, whose tenant may take from itself.
    Insert(Inserter),
    /// A limit that was set, which holds at once, whatever was promised below it.
    Limit,
    /// Memory pressure.
    Pressure,
}

/// A search for a victim.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// The tenant below whose limit room is made.
    pub above: u32,
    /// The insert that room is made for, if any.
    pub inserter: Option<Inserter>,
    /// Whether the guarantees of `above` itself count.
    spares_own: bool,
    pub protect: Protect,
    /// Whether it looks at more entries of tenants whose oldest were too large when a search looked last.
    pub looks_again: bool,
}

#[cfg(test)]
impl Search {
    /// Returns a search that may take anything below `above`.
    pub fn for_any(above: u32) -> Self {
        Self {
            above,
            inserter: None,
            spares_own: false,
            protect: Protect::Nothing,
            looks_again: false,
        }
    }
}

/// Number of tenants that a search tries by what their memory earns, before it takes any.
const TRIES: usize = 4;

/// Number of the oldest entries of each queue of a tenant near its guarantee among which a search finds one that
/// is not too large. Before a search finds nothing it looks at [`TURNS`].
const LOOKS: usize = 4;

/// Number of evictions for which a choice stays.
const STAYS: u32 = 16;

/// Upper bound on the tenants that one choice compares: the next ones each time.
const COMPARED: usize = 64;

/// The tenant that was chosen before keeps giving way unless another one's memory earns less than
/// this part of what its own does.
const HYSTERESIS: f64 = 0.8;

/// Returns a part of what is available, as large as `own` is of `all`.
fn share(available: u64, own: u64, all: u128) -> u64 {
    // `own` is no more than `all`.
    (u128::from(available) * u128::from(own) / all).min(available.into()) as u64
}

impl State {
    /// Changes the limits of a tenant, and what its parent has promised.
    pub fn set_limits(&mut self, number: u32, change: impl FnOnce(&mut Limits)) {
        let tenant = self.tenant_mut(number);
        let claims = |tenant: &Tenant| (Claims::promised(&tenant.limits), Claims::used(tenant));
        let old = claims(tenant);
        change(&mut tenant.limits);
        let new = claims(tenant);
        if let Some(parent) = tenant.place.parent {
            let above = self.tenant_mut(parent);
            above.claims.change(old.0, new.0);
            above.claims_used.change(old.1, new.1);
        }
        self.sort_in(number);
        self.forget_victims(number);
        self.consider_high(number);
    }

    /// Makes a tenant and all above it choose again which one gives way.
    pub(super) fn forget_victims(&mut self, number: u32) {
        let mut level = Some(number);
        while let Some(number) = level {
            let tenant = self.tenant_mut(number);
            tenant.victim = Victim::default();
            level = tenant.place.parent;
        }
    }

    /// Changes what a tenant and all above it use, as entries of the tenant have changed.
    #[inline(always)]
    pub(super) fn account(&mut self, mut number: u32, change: impl Fn(&mut Tenant) + Copy) {
        let mut tenant = self.tenant_mut(number);
        // Another entry may be the next to go.
        tenant.next_weight = 1;
        while let Some(parent) = tenant.place.parent {
            self.account_child(number, parent, change);
            number = parent;
            tenant = self.tenant_mut(number);
        }
        if tenant.change_usage(change) {
            self.queue_high(number);
        }
    }

    /// Changes a tenant's usage, and updates its parent's sums.
    #[inline(never)]
    fn account_child(&mut self, number: u32, parent: u32, change: impl Fn(&mut Tenant)) {
        let tenant = self.tenant_mut(number);
        let old = Claims::used(tenant);
        if tenant.change_usage(change) {
            self.queue_high(number);
        }
        self.sort_in(number);
        let new = Claims::used(self.tenant(number));
        if new != old {
            self.tenant_mut(parent).claims_used.change(old, new);
        }
    }

    /// Returns the protection that a tenant has by its min, or its low: see
    /// [`protection_below`](Self::protection_below).
    fn protection(&self, number: u32, of: Protect, inserter: Option<Inserter>) -> u64 {
        let mut own = self.max();
        self.protections(number, of, inserter, |_, protection| own = protection);
        own
    }

    /// Calls `each` with the tenants from right below the root to `number`, and the protection of each. Not
    /// recursive: a tree may be deeper than any stack.
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

    /// Returns the protection of a tenant by its min, or its low, where its parent has `available` bytes.
    /// That is all of its min, unless its parent has promised more than it has itself. Then it is what the
    /// tenant uses of it, and where the parent's children use more than it has, a share by what they use: so
    /// the kernel's `effective_protection` does it.
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
        let is_below = |(inserter, level)| self.is_below_share(level, inserter, available, of);
        if sharing().is_some_and(is_below) {
            return share(available, own, claims);
        }
        let used = own.min(tenant.usage);
        match above.claims_used.of(of) {
            all if all > available.into() => share(available, used, all),
            _ => used,
        }
    }

    /// Returns whether a tenant, with the entry of an insert, has no more than its share by what was promised
    /// of the `available` bytes that its parent has.
    fn is_below_share(&self, level: u32, inserter: Inserter, available: u64, of: Protect) -> bool {
        let tenant = self.tenant(level);
        let parent = tenant.place.parent.expect("not the root");
        let claims = self.tenant(parent).claims.of(of);
        let share = share(available, of.of(&tenant.limits), claims);
        tenant.usage.saturating_add(inserter.weight) <= share
    }

    /// Returns whether the children of a tenant keep all that they use of their min, or of their low.
    pub(super) fn keep_what_they_use(
        &self,
        parent: u32,
        of: Protect,
        inserter: Option<Inserter>,
    ) -> bool {
        let available = match parent {
            ROOT => self.max(),
            _ => self.protection(parent, of, inserter),
        };
        self.keep_of(available, parent, of, inserter)
    }

    /// Returns the same for a tenant that has `available` bytes. An insert by one that has less than its
    /// share takes from its siblings: see [`protection_below`](Self::protection_below).
    fn keep_of(
        &self,
        available: u64,
        parent: u32,
        of: Protect,
        inserter: Option<Inserter>,
    ) -> bool {
        let tenant = self.tenant(parent);
        if tenant.claims.of(of) <= available.into() {
            return true;
        }
        let takes = |inserter: Inserter| {
            let is_child = |&level: &u32| self.tenant(level).place.parent == Some(parent);
            let child = self.path(inserter.number).find(is_child);
            child.is_some_and(|child| self.is_below_share(child, inserter, available, of))
        };
        tenant.claims_used.of(of) <= available.into() && !inserter.is_some_and(takes)
    }

    /// Returns whether an entry could be let in if all went that is not pinned, and that no min keeps from
    /// it. Looks at single tenants only where sums leave that open. Of a tenant beside its way it counts the
    /// larger of pins and min, so an insert that passes may evict what it can and be refused then: if pins in
    /// one tenant and minima below it keep more together, or if entries are too large.
    ///
    /// # Errors
    ///
    /// The tenant whose limit leaves no room for it.
    #[inline(always)]
    pub(super) fn may_fit(&self, inserter: Inserter) -> Result<(), u32> {
        let (mut level, mut below) = (Some(inserter.number), None);
        let (mut protected, mut is_exact) = (0_u64, true);
        while let Some(number) = level {
            let tenant = self.tenant(number);
            // A tenant's min protects no more than the tenant uses.
            let kept = self.kept_beside(tenant, below);
            is_exact &= kept == 0;
            protected = protected.saturating_add(kept);
            let left = tenant.limits.max.checked_sub(inserter.weight);
            let left = left.ok_or(number)?;
            if tenant.usage > left && protected > left {
                if !is_exact {
                    (protected, is_exact) = (self.protected_from(inserter, number), true);
                }
                if protected > left {
                    return Err(number);
                }
            }
            (below, level) = (level, tenant.place.parent);
        }
        Ok(())
    }

    /// Returns the error for an insert that the limit of tenant `full` refuses. Call it before releasing the lock:
    /// later the tenant may be gone.
    #[cold]
    pub(super) fn refusal(&self, inserter: Inserter, full: u32) -> Refusal {
        let Inserter { number, weight } = inserter;
        let is_too_large = |&level: &u32| weight > self.tenant(level).limits.max;
        let too_large = self.path(number).find(is_too_large);
        let refused_by = self.tenant(too_large.unwrap_or(full));
        let (tenant, limit) = (Arc::clone(&refused_by.handle.name), refused_by.limits.max);
        Box::new(match too_large {
            Some(_) => InsertError::TooLarge {
                tenant,
                limit,
                weight,
            },
            None => InsertError::Full {
                tenant,
                limit,
                weight,
            },
        })
    }

    /// Returns the bytes that no insert takes from a tenant, without those of one child, if each tenant below
    /// it keeps what it uses of its min.
    #[inline]
    fn kept_beside(&self, tenant: &Tenant, child: Option<u32>) -> u64 {
        let own = child.map_or(0, |child| Claims::used(self.tenant(child)).kept);
        tenant.claims_used.kept - own + tenant.pinned.weight()
    }

    /// Returns the bytes that pins and minima keep from an insert that makes room below `above`, as
    /// [`Claims::kept`] counts them. Looks at the siblings of all between the two only where minima are more
    /// than there is.
    #[cold]
    fn protected_from(&self, inserter: Inserter, above: u32) -> u64 {
        let own = Some(inserter);
        let add_kept = |sum: u64, available, parent, child: Option<u32>| {
            let tenant = self.tenant(parent);
            if self.keep_of(available, parent, Protect::Min, own) {
                return sum.saturating_add(self.kept_beside(tenant, child));
            }
            let others = self.children(parent).filter(|&other| Some(other) != child);
            others.fold(sum.saturating_add(tenant.pinned.weight()), |sum, other| {
                let sharing = || Some((inserter, child?));
                let protection = self.protection_below(available, other, Protect::Min, sharing);
                let other = self.tenant(other);
                sum.saturating_add(other.usage.min(protection).max(other.pinned_bytes))
            })
        };
        let (mut sum, mut available, mut parent) = (0, self.max(), ROOT);
        let mut is_below = above == ROOT;
        self.protections(inserter.number, Protect::Min, own, |level, protection| {
            if is_below {
                sum = add_kept(sum, available, parent, Some(level));
            }
            is_below |= level == above;
            (available, parent) = (protection, level);
        });
        // What is right below the inserter is its own, and kept from it as well.
        add_kept(sum, available, parent, None)
    }

    /// Returns whether `weight` may be taken from a tenant to make room below `above`.
    fn may_take(&self, number: u32, weight: u64, search: Search) -> bool {
        self.spare(number, search)
            .is_some_and(|spare| weight <= spare)
    }

    /// Returns the most that may be taken from a tenant to make room below `above`: `u64::MAX` if nothing is
    /// guaranteed, `None` if it has less than is.
    fn spare(&self, number: u32, search: Search) -> Option<u64> {
        // Guarantees from there up do not count.
        let end = search.above;
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
        let mut spare = Some(u64::MAX);
        // Most have no guarantees.
        if !below_end.any(|level| is_guaranteed(&level)) {
            return spare;
        }
        for &kind in kinds {
            let mut counts = end == Some(ROOT);
            self.protections(number, kind, search.inserter, |level, protection| {
                counts |= level == search.above && end.is_none();
                if counts && protection > 0 {
                    let left = self.tenant(level).usage.checked_sub(protection);
                    spare = spare.min(left);
                }
                counts |= Some(level) == end;
            });
        }
        spare
    }

    /// Chooses the entry that goes next below a limit.
    #[inline(always)]
    pub(super) fn choose(&mut self, locked: &mut Locked, above: u32, what_for: For) -> Option<Id> {
        if self.tenants.len() == 1 {
            return self.tenant_mut(ROOT).policy.candidate(locked);
        }
        self.choose_among_tenants(locked, above, what_for)
    }

    /// Chooses the entry that goes next below a limit, in the tenant whose memory earns least.
    #[inline(never)]
    fn choose_among_tenants(
        &mut self,
        locked: &mut Locked,
        above: u32,
        what_for: For,
    ) -> Option<Id> {
        if !self.tenant(above).gives() {
            return None;
        }
        let all = [Protect::MinAndLow, Protect::Min, Protect::Nothing];
        let kinds = if what_for == For::Limit { 3 } else { 2 };
        let mut search = Search {
            above,
            inserter: match what_for {
                For::Insert(inserter) => Some(inserter),
                For::Limit | For::Pressure => None,
            },
            spares_own: what_for == For::Pressure,
            protect: Protect::Nothing,
            looks_again: false,
        };
        for protect in &all[..kinds] {
            search.protect = *protect;
            if let Some(chosen) = self.choose_with(locked, search) {
                return Some(chosen);
            }
        }
        match what_for {
            For::Insert(inserter) => {
                self.choose_further(locked, search, inserter.number, &all[..kinds])
            }
            For::Pressure => self.choose_further(locked, search, above, &all[..kinds]),
            // Its last search may take anything.
            For::Limit => None,
        }
    }

    /// Chooses an entry where a search below a limit has found nothing: below the tenants that `own`, the one
    /// that inserts, is within. If there is none, searches again and looks at all tenants.
    #[cold]
    fn choose_further(
        &mut self,
        locked: &mut Locked,
        mut search: Search,
        own: u32,
        kinds: &[Protect],
    ) -> Option<Id> {
        let mut path = std::mem::take(&mut self.own_path);
        path.clear();
        path.extend(self.path(own).take_while(|&level| level != search.above));
        // Others have no more to give. Only now the inserter takes from itself, and from those that it shares
        // its guarantees with.
        let mut chosen = self.choose_on(locked, &path, search, kinds);
        if chosen.is_none() {
            search.looks_again = true;
            chosen = self.choose_on(locked, &[search.above], search, kinds);
        }
        if chosen.is_none() {
            chosen = self.choose_on(locked, &path, search, kinds);
        }
        self.own_path = path;
        if chosen.is_none() {
            self.rotate_below(locked, search);
        }
        chosen
    }

    /// Moves on the entries of each tenant that had none light enough, so that the next try looks at others.
    /// Called once, after all searches for one insert or under one pressure have found nothing: they must look
    /// at the same entries, because one search may take what another may not.
    fn rotate_below(&mut self, locked: &mut Locked, search: Search) {
        let mut next = Some(search.above);
        while let Some(number) = next {
            next = self.next_giving(number, search);
            let tenant = self.tenant_mut(number);
            if tenant.next_weight > 1 {
                tenant.policy.rotate(locked);
            }
        }
    }

    /// Chooses an entry that the search may take below one of the tenants of a path, from its end on.
    fn choose_on(
        &mut self,
        locked: &mut Locked,
        path: &[u32],
        search: Search,
        kinds: &[Protect],
    ) -> Option<Id> {
        kinds.iter().find_map(|&protect| {
            let mut below = path.iter().rev().skip(1);
            path.iter().rev().find_map(|&above| {
                // Otherwise a chain of tenants is searched once for each of them.
                if self.only_leads_to(above, below.next().copied()) {
                    return None;
                }
                let search = Search {
                    above,
                    protect,
                    ..search
                };
                self.choose_with(locked, search)
            })
        })
    }

    /// Chooses an entry that the search may take.
    fn choose_with(&mut self, locked: &mut Locked, search: Search) -> Option<Id> {
        self.searches += 1;
        let mut standing = self.standing_victim(search);
        for _ in 0..TRIES {
            let chosen = standing.take().or_else(|| self.choose_tenant(search));
            let Some(number) = chosen else {
                break;
            };
            if let Some(id) = self.candidate_of(locked, number, search) {
                let victim = &mut self.tenant_mut(search.above).victim;
                victim.left = victim.left.saturating_sub(1);
                return Some(id);
            }
            // Its entries are larger than what is not protected: another tenant is to give way.
            self.tenant_mut(search.above).victim = Victim::default();
            self.tenant_mut(number).passed = self.searches;
        }
        // Many are so: any that is not. Each is looked at once.
        let mut next = Some(search.above);
        while let Some(number) = next {
            // If its entries are too large, it comes into another list.
            next = self.next_giving(number, search);
            if self.gives_next(number, search) {
                let candidate = self.candidate_of(locked, number, search);
                if candidate.is_some() {
                    return candidate;
                }
                self.tenant_mut(number).passed = self.searches;
            }
        }
        None
    }

    /// Returns the entry of a tenant that goes next among those that the search may take. If there is none, the
    /// entries keep their frequencies, and count nothing.
    fn candidate_of(&mut self, locked: &mut Locked, number: u32, search: Search) -> Option<Id> {
        let spare = self.spare(number, search)?;
        let (now, half_life) = (self.inserts, self.half_life());
        let tenant = self.tenant_mut(number);
        let mut light = None;
        if spare < u64::MAX {
            let looks = if search.looks_again { TURNS } else { LOOKS };
            match tenant.policy.fitting(locked, spare, looks) {
                Ok(id) => light = Some(id),
                Err(least) => {
                    tenant.next_weight = least;
                    self.sort_in(number);
                    return None;
                }
            }
        }
        let next = tenant.policy.candidate(locked)?;
        let passed = tenant.policy.take_passed();
        if passed > 0 {
            tenant.worth.earn(passed, now, half_life);
        }
        light.filter(|_| locked.weight(next) > spare).or(Some(next))
    }

    /// Returns the tenant that was chosen before, if that is to stay, and may give way.
    fn standing_victim(&self, search: Search) -> Option<u32> {
        let victim = self.tenant(search.above).victim;
        victim.number.filter(|&number| {
            victim.left > 0
                && self.is_there(number)
                && self.is_within(number, search.above)
                && self.gives_next(number, search)
        })
    }

    /// Chooses the tenant whose memory earns least.
    fn choose_tenant(&mut self, search: Search) -> Option<u32> {
        let above = search.above;
        let victim = self.tenant(above).victim;
        let (now, half_life) = (self.inserts, self.half_life());
        let mut last = above;
        let best = self
            .round(search, self.tenant(above).cursor)
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
        let next = self.next_giving(last, search);
        let chooses = self.tenant_mut(above);
        chooses.cursor = next.unwrap_or(above);
        chooses.victim = Victim {
            number: Some(best),
            left: STAYS,
        };
        Some(best)
    }

    /// Returns whether an entry of a tenant may be taken, as far as their weights are known, and the tenant was
    /// not passed over in this search.
    fn gives_next(&self, number: u32, search: Search) -> bool {
        let tenant = self.tenant(number);
        let weight = if search.looks_again {
            1
        } else {
            tenant.next_weight
        };
        tenant.policy.entries() > 0
            && tenant.passed != self.searches
            && self.may_take(number, weight, search)
    }
}
