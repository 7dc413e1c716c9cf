//! Tables of ghosts and counts that are too large for what there is. They become smaller in parts, each
//! under one hold of the lock.

use super::{State, Tenant};
use crate::policy::{PART, Trimmed};

/// Number of ghosts, or words of counts, whose move costs as much as a look at a tenant: one hold of the lock
/// has some hundred looks.
const LOOK: usize = PART / 512;

impl State {
    /// Makes what tenants know beside their entries as small as these need it: of a tenant and all
    /// below it those that have the number `next`, or a larger one. A part of that, after which `next`
    /// says where to go on. `None` once there is nothing left to do.
    pub fn trim(&mut self, above: u32, next: &mut u32) -> Option<Trimmed> {
        let end = self.tenants.len() as u32;
        let mut left = PART;
        while *next < end && left > 0 {
            if self.is_there(*next) && self.is_within(*next, above) {
                match self.tenant_mut(*next).policy.trim() {
                    Trimmed::Part(Some(freed)) if freed.is_small() => {
                        left = left.saturating_sub(freed.len());
                        continue;
                    }
                    part @ Trimmed::Part(_) => return Some(part),
                    Trimmed::Done => {}
                }
            }
            left = left.saturating_sub(LOOK);
            *next += 1;
        }
        (*next < end).then_some(Trimmed::Done)
    }

    /// Queues a tenant of which most entries have gone, for the service thread to trim.
    #[cold]
    pub(super) fn queue_trim(&mut self, number: u32) {
        self.oversized.push(number);
        self.tenant_mut(number).is_to_be_trimmed = true;
    }

    /// Trims one tenant of those that are to be: a part. `None` if there is none.
    pub fn trim_oversized(&mut self) -> Option<Trimmed> {
        let number = *self.oversized.last()?;
        let tenant = self.tenant_mut(number);
        let trimmed = tenant.policy.trim();
        if matches!(trimmed, Trimmed::Done) {
            tenant.is_to_be_trimmed = false;
            self.oversized.pop();
        }
        Some(trimmed)
    }

    /// Forgets a tenant that has ended.
    pub(super) fn forget_oversized(&mut self, number: u32) {
        self.oversized.retain(|&other| other != number);
    }

    /// Returns whether there is work for the service thread now.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.has_high() || !self.oversized.is_empty()
    }
}

impl Tenant {
    /// Returns whether most entries have gone for which its tables were made, and `oversized` does not have it.
    #[inline(always)]
    pub(super) fn is_to_be_queued_for_trim(&self) -> bool {
        self.policy.is_oversized() && !self.is_to_be_trimmed
    }
}

#[cfg(all(test, not(miri), not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{Cache, clock::ManualClock, shared::eventually, state::ROOT};

    const ENTRIES: u64 = 1 << 16;

    fn filled() -> Cache<u64, u64> {
        let cache = Cache::builder().max_entries(ENTRIES);
        let cache = cache.clock(ManualClock::default()).build();
        (0..ENTRIES).for_each(|key| cache.insert(key, key));
        cache
    }

    /// Other caches wait for the service thread.
    #[test]
    fn a_visit_trims_some_and_leads_to_another_one() {
        let cache = filled();
        let shared = &cache.inner.shared;
        {
            let mut state = shared.lock();
            state.tenant_mut(ROOT).is_to_be_trimmed = true;
        }
        cache.invalidate_all();
        shared.lock().queue_trim(ROOT);
        assert!(cache.trim_oversized(1), "it is all done");
        assert!(shared.lock().tenant(ROOT).policy.is_oversized());
        while cache.trim_oversized(1) {}
        assert!(!shared.lock().has_work());
        assert_eq!(shared.lock().tenant(ROOT).policy.entries(), 0);
        // More than one visit does.
        let tenants = (0..100).map(|name: u32| cache.tenant(&name.to_string()));
        let tenants: Vec<_> = tenants.collect();
        {
            let mut state = shared.lock();
            for tenant in &tenants {
                let number = tenant.handle.own_number();
                state.queue_trim(number.expect("it is there"));
            }
        }
        cache.inner.ask_for_visit(Some(0));
        eventually(|| !shared.lock().has_work());
    }

    #[test]
    fn a_trim_of_all_below_a_tenant_leaves_others_alone() {
        let cache = filled();
        let [one, other] = ["one", "other"].map(|name| cache.tenant(name));
        // More than are looked at under one hold, each with a small table.
        let several = PART / LOOK * 5 / 4;
        for name in 0..several {
            let small = one.tenant(&name.to_string());
            (0..100).for_each(|key| small.insert(key, key));
            cache.invalidate_all();
        }
        // The end of one of its trims would clear a mark below.
        eventually(|| !cache.inner.shared.lock().has_work());
        let below = one.tenant("below");
        let all = [&cache, &other, &below];
        for view in all {
            // The service thread leaves it to this one.
            view.with_own(|state, number| state.tenant_mut(number).is_to_be_trimmed = true);
            cache.invalidate_all();
            (0..ENTRIES).for_each(|key| view.insert(key, key));
        }
        cache.invalidate_all();
        let room = |view: &Cache<u64, u64>| {
            view.with_present(|state, number| state.tenant(number).policy.room() as u64)
        };
        let is_large = || all.map(|view| room(view) >= ENTRIES);
        assert_eq!(is_large(), [true; 3]);
        let trim = |view: &Cache<u64, u64>| {
            let (mut next, mut holds) = (ROOT, 1);
            let mut part = || view.with_own(|state, number| state.trim(number, &mut next));
            while part().flatten().is_some() {
                holds += 1;
            }
            holds
        };
        let holds = trim(&one);
        let few = several / 16;
        assert!(
            holds < few,
            "{holds} for {several} small tables and a large one"
        );
        assert_eq!(is_large(), [true, true, false]);
        trim(&cache);
        assert_eq!(is_large(), [false; 3]);
    }
}
