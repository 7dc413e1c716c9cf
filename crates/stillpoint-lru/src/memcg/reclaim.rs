//! Reclaim passes: which tenants are asked, in which order, how hard, and when it is enough.
//!
//! A pass goes over a subtree again and again, at first asking each shrinker for a 4,096th of its
//! objects (priority 12), then for twice as many each time, until the target's usage is at the
//! goal. So all give in proportion to what they have. Tenants whose usage is at most their min are
//! left alone, and so are those under their low, unless all others have been asked for everything.
//! Tenants above are asked for a part of their objects, the ratio of their overage to their usage,
//! as by the kernel's `get_scan_count()`: so what is taken is in proportion to the overages, and
//! protection does not begin all at once. At priority 0 they are asked for all their objects: if the
//! goal can be reached without passing a protection, it is, even if many objects are found in use
//! and few of those looked at are freed.
//!
//! A pass holds no lock while shrinkers run, and takes a break after each
//! [`SLICE`](super::resched::SLICE).

use super::{
    Event, Memcg, Tenant,
    counter::Account,
    node::Node,
    resched::{Reclaiming, Resched},
    scan_plan::Unprotected,
    shrinker::Scope,
    tree::Tree,
};
use std::{collections::HashMap, sync::atomic::Ordering};
use stillpoint_platform::memory;

/// The gentlest priority. The kernel's `DEF_PRIORITY`.
const DEF_PRIORITY: u32 = 12;

/// Upper bound on the bytes that the lists of a pass take per tenant.
const MEMBER_BYTES: usize = 256;

/// Number of tenants in a list if there is no memory for a list of all.
const CHUNK: usize = 64;

/// Reclaims from `target` and its descendants until `enough` returns true, or nothing more can be
/// had. Its last round asks for about `1 / 2^last_priority` of the objects at a time, and for half of
/// them at priority 2. Returns the number of objects that were freed.
pub(crate) fn reclaim(
    tree: &Tree,
    target: &Memcg,
    last_priority: u32,
    enough: &dyn Fn() -> bool,
    resched: &mut Resched,
) -> u64 {
    let Some(_reclaiming) = Reclaiming::begin() else {
        return 0;
    };
    if enough() {
        return 0;
    }
    let pass = Pass {
        tree,
        target,
        last_priority,
        enough,
    };
    let freed = match subtree(tree, target) {
        Some(members) => pass.run(&members, resched),
        None => pass.run_in_chunks(resched),
    };
    for level in target.and_ancestors() {
        level.count(Event::Reclaimed, freed);
    }
    freed
}

struct Pass<'a> {
    tree: &'a Tree,
    target: &'a Memcg,
    last_priority: u32,
    enough: &'a dyn Fn() -> bool,
}

impl Pass<'_> {
    /// Runs the pass if there is no memory for the list of all members: over [`CHUNK`] of them at a
    /// time. Each is then protected by its whole min or low, because its share of its parent's
    /// protection depends on all members.
    fn run_in_chunks(&self, resched: &mut Resched) -> u64 {
        let mut freed = 0;
        for first in (0..self.tree.tenant_numbers()).step_by(CHUNK) {
            let mut members = Vec::new();
            if (self.enough)() || members.try_reserve_exact(CHUNK).is_err() {
                break;
            }
            self.tree
                .for_tenant_handles(first..first + CHUNK, |tenant| {
                    if is_member(&tenant, self.target) {
                        let (min, low) = (tenant.memcg().min(), tenant.memcg().low());
                        members.push(Member { tenant, min, low });
                    }
                });
            if !members.is_empty() {
                freed += self.run(&members, resched);
            }
        }
        freed
    }

    fn run(&self, members: &[Member], resched: &mut Resched) -> u64 {
        if !memory::is_there_for(self.tree.pass_bytes()) {
            return 0;
        }
        let shrinkers = self.tree.present_shrinkers();
        let lists = || self.tree.present_lists();
        let whole = self.target.parent().is_none();
        let mut freed = 0;
        for protect_low in [true, false] {
            for priority in (self.last_priority..=DEF_PRIORITY).rev() {
                for member in self.round_robin(members) {
                    let memcg = member.tenant.memcg();
                    if !protect_low
                        && priority == DEF_PRIORITY
                        && matches!(member.protection(), Protection::Low)
                    {
                        memcg.count(Event::Low, 1);
                    }
                    let enough = || (self.enough)() || member.is_protected(protect_low);
                    let is_root = memcg.parent().is_none();
                    for node in Node::all() {
                        let scope = Scope {
                            tenant: &member.tenant,
                            node,
                        };
                        for shrinker in shrinkers
                            .iter()
                            .filter(|shrinker| shrinker.per_tenant || is_root && whole)
                        {
                            if !enough() {
                                let part = if priority == 0 {
                                    Unprotected::WHOLE
                                } else {
                                    member.overage(protect_low)
                                };
                                freed += shrinker
                                    .shrink(&scope, priority, part, resched, &enough, &lists);
                            }
                        }
                    }
                    if (self.enough)() {
                        return freed;
                    }
                    resched.cond_resched();
                }
            }
            // Only now, because many get down to their low in the last round.
            let is_low = |member: &Member| matches!(member.protection(), Protection::Low);
            if !members.iter().any(is_low) {
                break;
            }
        }
        freed
    }

    /// Returns the members, beginning with a different one each time.
    fn round_robin<'m>(&self, members: &'m [Member]) -> impl Iterator<Item = &'m Member> + use<'m> {
        let first = self.target.turn.fetch_add(1, Ordering::Relaxed) % members.len().max(1);
        members[first..].iter().chain(&members[..first])
    }
}

/// A tenant of the subtree, and its protected bytes.
struct Member {
    tenant: Tenant,
    min: u64,
    low: u64,
}

enum Protection {
    None,
    Low,
    Min,
}

impl Member {
    fn is_protected(&self, protect_low: bool) -> bool {
        match self.protection() {
            Protection::None => false,
            Protection::Low => protect_low,
            Protection::Min => true,
        }
    }

    /// Returns the part of its usage that is not protected.
    fn overage(&self, protect_low: bool) -> Unprotected {
        let protected = if protect_low {
            self.min.max(self.low)
        } else {
            self.min
        };
        match self.tenant.memcg().usage() {
            0 => Unprotected::WHOLE,
            usage => Unprotected {
                protected,
                usage: usage.max(protected),
            },
        }
    }

    fn protection(&self) -> Protection {
        let usage = self.tenant.memcg().usage();
        match usage {
            // If nothing is charged, nothing is protected, as a limit of 0 protects nothing.
            0 => Protection::None,
            _ if usage <= self.min => Protection::Min,
            _ if usage <= self.low => Protection::Low,
            _ => Protection::None,
        }
    }
}

/// Returns whether a pass over `target` asks `tenant`.
fn is_member(tenant: &Tenant, target: &Memcg) -> bool {
    !tenant.is_deleted() && tenant.memcg().is_within(target)
}

/// Returns the members of a pass over `target`, parents first.
///
/// `None` if there is no memory for the lists that this takes: a pass is made when memory is short,
/// and must not wait for any.
fn subtree(tree: &Tree, target: &Memcg) -> Option<Vec<Member>> {
    let mut tenants = Vec::new();
    let has_children = target.has_children();
    let most = if has_children {
        tree.tenant_numbers()
    } else {
        1
    };
    if !memory::is_there_for(most * MEMBER_BYTES) {
        return None;
    }
    if has_children {
        tree.for_tenant_handles(0..usize::MAX, |tenant| {
            if is_member(&tenant, target) {
                tenants.push(tenant);
            }
        });
        tenants.sort_by_cached_key(|tenant| tenant.memcg().and_ancestors().count());
    } else {
        tenants.extend(tree.handle_of(target));
    }
    let min = effective_protection(&tenants, target, Memcg::min);
    let low = effective_protection(&tenants, target, Memcg::low);
    let members = tenants.into_iter().zip(min.into_iter().zip(low));
    Some(
        members
            .map(|(tenant, (min, low))| Member { tenant, min, low })
            .collect(),
    )
}

/// Returns the bytes of each of `tenants` (parents first) that a pass over `target` protects, by one
/// kind of `limit`.
fn effective_protection(tenants: &[Tenant], target: &Memcg, limit: fn(&Memcg) -> u64) -> Vec<u64> {
    let claim = |tenant: &Tenant| limit(tenant.memcg()).min(tenant.memcg().usage());
    let parent = |tenant: &Tenant| tenant.memcg().parent().map(Memcg::number);
    let mut claimed: HashMap<_, u64> = HashMap::new();
    for tenant in tenants {
        *claimed.entry(parent(tenant)).or_default() += claim(tenant);
    }
    let mut effective = HashMap::new();
    let share = |tenant: &Tenant| {
        let memcg = tenant.memcg();
        let share = match memcg.parent() {
            _ if std::ptr::eq(&**memcg, target) => 0,
            Some(above) if !std::ptr::eq(above, target) => {
                let available = effective.get(&above.number()).copied().unwrap_or(0);
                let claims = claimed[&parent(tenant)];
                if claims <= available {
                    limit(memcg)
                } else {
                    // Both are below 2^64, so this fits.
                    (u128::from(available) * u128::from(claim(tenant)) / u128::from(claims)) as u64
                }
            }
            _ => limit(memcg),
        };
        effective.insert(memcg.number(), share);
        share
    };
    tenants.iter().map(share).collect()
}
