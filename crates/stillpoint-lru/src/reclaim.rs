//! Reclaim passes: which tenants are asked, in which order, how hard, and when it is enough.
//!
//! A pass goes over a subtree again and again, at first asking each shrinker for a 4,096th of what it has (priority 12), then for twice as
//! much each time, until the target uses no more than the goal. So all give in proportion to what they have. Tenants that use no more than
//! their min are left alone; those under their low are, unless all others have been asked for everything. Those above are asked for the part
//! of their objects that their overage is of their usage, as by the kernel's `get_scan_count()`: so what is taken is in proportion to the
//! overages, and protection does not begin all at once. At priority 0 they are asked for everything that they have: if the goal can be
//! reached at all without passing a protection, it is, also where many objects are found in use and few of those looked at are freed.
//!
//! It holds nothing while shrinkers run, and takes a break after each [`SLICE`].

use super::{
    shrinker::{Node, Scope},
    tenant::{Inner, Tenant},
};
use std::{cell::Cell, collections::HashMap, sync::atomic::Ordering, thread, time::Duration};
use stillpoint_platform::{
    clock::{self, Nanos},
    memory,
};

/// A pass runs for so long without a break.
pub(super) const SLICE: Duration = Duration::from_micros(500);

/// The break of a thread that nobody waits for.
const BREAK: Duration = Duration::from_micros(100);

/// The gentlest priority. The kernel's `DEF_PRIORITY`.
const GENTLEST: u32 = 12;

/// What the lists of a pass take for each tenant, at most.
const MEMBER_BYTES: usize = 256;

/// So many tenants at a time where there is no memory for that.
const PART: usize = 64;

thread_local! {
    static RECLAIMING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is in a pass, that is, inside a shrinker.
pub(super) fn is_reclaiming() -> bool {
    RECLAIMING.get()
}

/// When a pass takes its breaks.
#[derive(Debug)]
pub(super) struct Pace {
    began: Nanos,
    /// In a thread whose charge waits the break is but a chance for others to run.
    rest: Duration,
}

impl Pace {
    pub(super) fn direct() -> Self {
        Self { began: clock::now(), rest: Duration::ZERO }
    }

    pub(super) fn background() -> Self {
        Self { began: clock::now(), rest: BREAK }
    }

    /// Takes a break if it is time.
    pub(super) fn breathe(&mut self) {
        if clock::now().saturating_sub(self.began) < clock::nanos(SLICE) {
            return;
        }
        if self.rest.is_zero() {
            thread::yield_now()
        } else {
            thread::sleep(self.rest)
        }
        self.began = clock::now();
    }
}

/// Reclaims from `target` and all below it until its usage is at most `goal`, or nothing more can be had. How many objects were freed.
pub(super) fn reclaim(target: &Inner, goal: u64, pace: &mut Pace) -> u64 {
    pass(target, 0, pace, &|| target.counter().usage() <= goal)
}

/// Asks all below `target` for some `1 / 2^hardest` part of what they have, half of it at `hardest` 2, whatever the usage.
pub(super) fn sweep(target: &Inner, hardest: u32, pace: &mut Pace) -> u64 {
    pass(target, hardest, pace, &|| false)
}

fn pass(target: &Inner, hardest: u32, pace: &mut Pace, enough: &dyn Fn() -> bool) -> u64 {
    struct Reclaiming;
    impl Drop for Reclaiming {
        fn drop(&mut self) {
            RECLAIMING.set(false);
        }
    }
    if RECLAIMING.replace(true) {
        return 0;
    }
    let _reclaiming = Reclaiming;
    if enough() {
        return 0;
    }
    let freed = match subtree(target) {
        Some(members) => Pass { target, members: &members, hardest, enough }.run(pace),
        None => in_parts(target, hardest, pace, enough),
    };
    for level in target.and_ancestors() {
        level.events.reclaimed.fetch_add(freed, Ordering::Relaxed);
    }
    freed
}

/// A pass where there is no memory for the list of all members: over some of them after the others. Each has all the protection that was
/// asked for it, as what is due to it of its parent's takes the others to know.
fn in_parts(target: &Inner, hardest: u32, pace: &mut Pace, enough: &dyn Fn() -> bool) -> u64 {
    let mut freed = 0;
    for first in (0..target.shared.tenant_numbers()).step_by(PART) {
        if enough() {
            break;
        }
        let mut members = Vec::new();
        target.shared.for_tenant_handles(first..first + PART, |tenant| {
            if !tenant.is_deleted() && tenant.inner().is_within(target) {
                let (min, low) = (tenant.inner().min(), tenant.inner().low());
                members.push(Member { tenant, min, low });
            }
        });
        if !members.is_empty() {
            freed += Pass { target, members: &members, hardest, enough }.run(pace);
        }
    }
    freed
}

struct Pass<'a> {
    target: &'a Inner,
    members: &'a [Member],
    hardest: u32,
    enough: &'a dyn Fn() -> bool,
}

impl Pass<'_> {
    fn run(&self, pace: &mut Pace) -> u64 {
        let shrinkers = self.target.shared.shrinkers();
        let whole = self.target.parent().is_none();
        let mut freed = 0;
        for spare_low in [true, false] {
            for priority in (self.hardest..=GENTLEST).rev() {
                for member in self.in_turn() {
                    let inner = member.tenant.inner();
                    if !spare_low && priority == GENTLEST && matches!(member.protection(), Protection::Low) {
                        inner.events.low.fetch_add(1, Ordering::Relaxed);
                    }
                    let enough = || (self.enough)() || member.is_spared(spare_low);
                    let is_root = inner.parent().is_none();
                    for node in Node::all() {
                        let scope = Scope { tenant: &member.tenant, node };
                        for shrinker in shrinkers.iter().filter(|shrinker| shrinker.per_tenant || is_root && whole) {
                            if !enough() {
                                let part = if priority == 0 { Part::WHOLE } else { member.overage(spare_low) };
                                freed += shrinker.shrink(&scope, priority, part, pace, &enough);
                            }
                        }
                    }
                    if (self.enough)() {
                        return freed;
                    }
                    pace.breathe();
                }
            }
            // Looked at now, because many get down to it in the last round alone.
            if !self.members.iter().any(|member| matches!(member.protection(), Protection::Low)) {
                break;
            }
        }
        freed
    }

    /// The members, from another one each time.
    fn in_turn(&self) -> impl Iterator<Item = &Member> {
        let first = self.target.turn.fetch_add(1, Ordering::Relaxed) % self.members.len().max(1);
        self.members[first..].iter().chain(&self.members[..first])
    }
}

/// A tenant of the subtree, and what is left alone of it.
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
    fn is_spared(&self, spare_low: bool) -> bool {
        match self.protection() {
            Protection::None => false,
            Protection::Low => spare_low,
            Protection::Min => true,
        }
    }

    /// What part of its usage is not protected.
    fn overage(&self, spare_low: bool) -> Part {
        let protected = if spare_low { self.min.max(self.low) } else { self.min };
        match self.tenant.inner().counter().usage() {
            0 => Part::WHOLE,
            usage => Part { protected, usage: usage.max(protected) },
        }
    }

    fn protection(&self) -> Protection {
        let usage = self.tenant.inner().counter().usage();
        match usage {
            // Nothing is charged: then nothing is protected either, as a limit of 0 protects nothing.
            0 => Protection::None,
            _ if usage <= self.min => Protection::Min,
            _ if usage <= self.low => Protection::Low,
            _ => Protection::None,
        }
    }
}

/// A part of a tenant's objects: all but what is protected of its usage.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    protected: u64,
    usage: u64,
}

impl Part {
    pub(super) const WHOLE: Self = Self { protected: 0, usage: 0 };

    /// How many of `objects` that is; at least one, so that a small overage is asked for as well.
    pub(super) fn of(self, objects: u64) -> u64 {
        // The product fits; the quotient is less than `objects`.
        objects - (u128::from(objects) * u128::from(self.protected) / (u128::from(self.usage) + 1)) as u64
    }
}

/// The tenants from `target` downwards that have not been deleted, parents first, with the protection that they have in a pass over it.
///
/// `None` if there is no memory for the lists that this takes: a pass is made when memory is short, and must not wait for any.
fn subtree(target: &Inner) -> Option<Vec<Member>> {
    if target.has_children() && !memory::is_there_for(target.shared.tenant_numbers() * MEMBER_BYTES) {
        return None;
    }
    let mut tenants = Vec::new();
    if target.has_children() {
        target.shared.for_each_tenant_handle(|tenant| {
            if !tenant.is_deleted() && tenant.inner().is_within(target) {
                tenants.push(tenant);
            }
        });
        tenants.sort_by_cached_key(|tenant| tenant.inner().and_ancestors().count());
    } else {
        tenants.extend(target.shared.handle_of(target));
    }
    let min = shares(&tenants, target, Inner::min);
    let low = shares(&tenants, target, Inner::low);
    let members = tenants.into_iter().zip(min.into_iter().zip(low));
    Some(members.map(|(tenant, (min, low))| Member { tenant, min, low }).collect())
}

/// What each of `tenants` (parents first) has of one kind of protection in a pass over `target`.
fn shares(tenants: &[Tenant], target: &Inner, limit: fn(&Inner) -> u64) -> Vec<u64> {
    let claim = |tenant: &Tenant| limit(tenant.inner()).min(tenant.inner().counter().usage());
    let parent = |tenant: &Tenant| tenant.inner().parent().map(Inner::number);
    let mut claimed: HashMap<_, u64> = HashMap::new();
    for tenant in tenants {
        *claimed.entry(parent(tenant)).or_default() += claim(tenant);
    }
    let mut shares = HashMap::new();
    let share = |tenant: &Tenant| {
        let inner = tenant.inner();
        let share = match inner.parent() {
            _ if std::ptr::eq(&**inner, target) => 0,
            Some(above) if !std::ptr::eq(above, target) => {
                let available = shares.get(&above.number()).copied().unwrap_or(0);
                let claims = claimed[&parent(tenant)];
                if claims <= available {
                    limit(inner)
                } else {
                    // Both are below 2^64, so this fits.
                    (u128::from(available) * u128::from(claim(tenant)) / u128::from(claims)) as u64
                }
            }
            _ => limit(inner),
        };
        shares.insert(inner.number(), share);
        share
    };
    tenants.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_overages() {
        let part = |protected, usage| Part { protected, usage };
        assert_eq!((Part::WHOLE.of(7), Part::WHOLE.of(0), Part::WHOLE.of(u64::MAX)), (7, 0, u64::MAX));
        assert_eq!(part(90 << 20, 100 << 20).of(1_000), 101);
        assert_eq!((part(100, 100).of(5), part(u64::MAX, u64::MAX).of(u64::MAX)), (1, 1), "something, however little is left");
    }
}
