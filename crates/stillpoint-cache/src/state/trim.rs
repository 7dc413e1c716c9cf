//! Tables of ghosts and counts that are too large for what there is. They become smaller in parts, each
//! under one hold of the lock.

use super::State;
use crate::{
    node::Id,
    policy::{PART, Policy, Trimmed},
};
use stillpoint_platform::memory::refusable;

/// As much as a look at a tenant are so many ghosts, or words of counts, that are moved: under one
/// hold of the lock are some hundred looks.
const LOOK: usize = PART / 512;

/// The tenants whose tables are to be made smaller by the service thread.
#[derive(Debug, Default)]
pub struct Oversized {
    tenants: Vec<u32>,
    /// There was no memory for a smaller table: the next visit that is due tries again, and no change
    /// asks for one.
    is_put_off: bool,
}

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
                    Trimmed::Done | Trimmed::Refused => {}
                }
            }
            left = left.saturating_sub(LOOK);
            *next += 1;
        }
        (*next < end).then_some(Trimmed::Done)
    }

    /// Has the service thread [trim](Self::trim) a tenant of which most entries have gone.
    #[inline]
    pub(super) fn consider_trim(&mut self, number: u32) {
        let tenant = self.tenant_mut(number);
        if tenant.policy.is_oversized() && !tenant.is_to_be_trimmed {
            self.queue_trim(number);
        }
    }

    #[cold]
    fn queue_trim(&mut self, number: u32) {
        let tenants = &mut self.oversized.tenants;
        if refusable(|| tenants.try_reserve(1)).is_ok() {
            tenants.push(number);
            self.tenant_mut(number).is_to_be_trimmed = true;
        }
    }

    /// Trims one tenant of those that are to be: a part. `None` if there is none, or there was no
    /// memory.
    pub fn trim_oversized(&mut self) -> Option<Trimmed> {
        self.trim_oversized_by(Policy::trim)
    }

    fn trim_oversized_by(
        &mut self,
        trim: impl FnOnce(&mut Policy<Id>) -> Trimmed,
    ) -> Option<Trimmed> {
        let number = *self.oversized.tenants.last()?;
        let tenant = self.tenant_mut(number);
        let trimmed = trim(&mut tenant.policy);
        match trimmed {
            Trimmed::Part(_) => {}
            Trimmed::Done => {
                tenant.is_to_be_trimmed = false;
                self.oversized.tenants.pop();
            }
            Trimmed::Refused => {
                // The others come before it then: theirs may need less.
                self.oversized.tenants.rotate_right(1);
                self.oversized.is_put_off = true;
                return None;
            }
        }
        Some(trimmed)
    }

    /// A tenant has ended.
    pub(super) fn forget_oversized(&mut self, number: u32) {
        self.oversized.tenants.retain(|&other| other != number);
    }

    /// Whether tenants are to be trimmed, and have been put off.
    pub fn has_put_off(&self) -> bool {
        self.oversized.is_put_off
    }

    /// Tries again what has been put off.
    pub fn end_putting_off(&mut self) {
        self.oversized.is_put_off = false;
    }

    /// Whether the service thread is to come at once.
    pub fn has_work(&self) -> bool {
        let is_to_trim = !self.oversized.tenants.is_empty() && !self.oversized.is_put_off;
        self.has_high() || is_to_trim
    }
}

#[cfg(all(test, not(miri), not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{Cache, clock::ManualClock, node::NEVER, shared::FORGOTTEN, state::ROOT};
    use std::{
        sync::atomic::Ordering,
        thread,
        time::{Duration, Instant},
    };

    const ENTRIES: u64 = 1 << 16;

    fn filled() -> Cache<u64, u64> {
        let cache = Cache::builder().max_bytes(ENTRIES).weigher(|_, _| 1);
        let cache = cache.clock(ManualClock::default()).build();
        (0..ENTRIES).for_each(|key| cache.insert(key, key));
        cache
    }

    #[test]
    fn what_was_refused_memory_is_put_off_and_asks_for_nothing() {
        let cache = filled();
        let mut state = cache.inner().shared.lock();
        state.queue_trim(ROOT);
        assert!(state.has_work());
        assert!(state.trim_oversized_by(|_| Trimmed::Refused).is_none());
        assert!(state.has_put_off() && !state.has_work());
        assert!(state.tenant(ROOT).is_to_be_trimmed, "it is asked for once");
        let next = |state: &State| cache.inner().next_visit(state, NEVER);
        assert_eq!(next(&state), None);
        // What a fork's child has lost is asked for by its first change.
        let visit = &cache.inner().shared.visit;
        visit.store(FORGOTTEN, Ordering::Relaxed);
        assert_eq!(next(&state), Some(0));
        state.end_putting_off();
        assert!(state.has_work());
        // What is not too large any more is done.
        assert!(matches!(state.trim_oversized(), Some(Trimmed::Done)));
        assert!(!state.has_work() && !state.has_put_off());
        assert!(!state.tenant(ROOT).is_to_be_trimmed);
    }

    /// Other caches wait for the service thread.
    #[test]
    fn a_visit_trims_some_and_leads_to_another_one() {
        let cache = filled();
        let shared = &cache.inner().shared;
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
                let number = tenant.handle().own_number();
                state.queue_trim(number.expect("it is there"));
            }
        }
        cache.inner().ask_for_visit(Some(0));
        let begun = Instant::now();
        while shared.lock().has_work() {
            assert!(begun.elapsed() < Duration::from_secs(60), "no other visit");
            thread::yield_now();
        }
    }

    #[test]
    fn a_table_that_is_refused_memory_does_not_keep_others_large() {
        let cache = filled();
        let small = cache.tenant("small");
        let mut state = cache.inner().shared.lock();
        let number = small.handle().own_number().unwrap();
        state.queue_trim(number);
        state.queue_trim(ROOT);
        assert!(state.trim_oversized_by(|_| Trimmed::Refused).is_none());
        state.end_putting_off();
        assert!(state.trim_oversized().is_some());
        assert!(!state.tenant(number).is_to_be_trimmed);
        assert!(state.tenant(ROOT).is_to_be_trimmed);
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
