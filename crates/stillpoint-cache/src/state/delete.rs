//! The end of a tenant. Its views stay: they are those of the tenant above from then on.
//!
//! A look-up counts in the handle of its view, and does not ask whether the tenant has been deleted:
//! that would cost each hit. So the tenant above has the handles of those that it has succeeded, and what is
//! counted there is its own.

use super::{Cause, Claimed, State, Tenant};
use crate::{node::Locked, statistics::Event, tenant::Handle};
use std::sync::{Arc, atomic::Ordering};

/// The handles of the deleted tenants that a tenant has succeeded, each before the handle of the tenant
/// that was above it.
#[derive(Debug, Default)]
pub struct Departed {
    all: Vec<Arc<Handle>>,
    /// Number of views that have gone since handles without views were last removed.
    gone: usize,
    /// Sums of the counters of the handles that were removed.
    past: [u64; Event::ALL.len()],
}

impl Departed {
    /// Takes over the counts of a deleted tenant, and of those that it has succeeded itself.
    fn succeed(&mut self, deleted: Arc<Handle>, departed: Self) {
        self.all.extend(departed.all);
        self.all.push(deleted);
        self.gone += departed.gone;
        for (own, past) in self.past.iter_mut().zip(departed.past) {
            *own += past;
        }
    }

    /// Removes the handles that no view has.
    fn remove_unused(&mut self) {
        self.gone = 0;
        self.all.retain_mut(|handle| {
            let Some(handle) = Arc::get_mut(handle) else {
                return true;
            };
            for event in Event::ALL {
                self.past[event as usize] += handle.counters.get(event);
            }
            false
        });
        self.all.shrink_to(2 * self.all.len());
    }
}

impl Drop for Handle {
    /// Drops the handles above that go with this one in a loop: a tree may be deeper than any stack.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut handle) = above.and_then(Arc::into_inner) {
            above = handle.parent.take();
        }
    }
}

impl Tenant {
    /// Returns how often an event was counted through its views, those of the tenants that it has succeeded included.
    pub fn counted(&self, event: Event) -> u64 {
        let own = self.handle.counters.get(event) + self.departed.past[event as usize];
        let departed = self.departed.all.iter();
        departed.fold(own, |sum, handle| sum + handle.counters.get(event))
    }
}

impl State {
    /// Notes that a view of a deleted tenant has gone, which the tenant `number` has succeeded. Its handle may stay,
    /// for other views or a load. Once half as many views have gone as there are handles, removes those that no view
    /// has.
    pub fn forget_view(&mut self, number: u32) {
        let departed = &mut self.tenant_mut(number).departed;
        departed.gone += 1;
        if 2 * departed.gone >= departed.all.len() {
            departed.remove_unused();
        }
    }

    /// Begins to delete a tenant without children: its views are views of the one above from now
    /// on, and nothing is promised to it. Returns its number, to be [drained](Self::drain) by the caller;
    /// `None` if it has children, or is the root.
    pub fn begin_delete(&mut self, number: u32) -> Option<u32> {
        let tenant = self.tenant(number);
        let place = tenant.place;
        let parent = place.parent.filter(|_| !place.has_children())?;
        let handle = Arc::clone(&tenant.handle);
        self.set_limits(number, |limits| (limits.min, limits.low) = (0, 0));
        handle.deleted.store(true, Ordering::Relaxed);
        self.names.remove(&(parent, Arc::clone(&handle.name)));
        Some(number)
    }

    /// Claims what a tenant has left whose deletion has begun. Once that is nothing, ends the
    /// deletion, and returns false.
    pub fn drain(&mut self, locked: &mut Locked, number: u32, claimed: &mut Claimed) -> bool {
        if self.claim_all(locked, number, claimed) {
            return true;
        }
        // Inserts may have chosen it since its deletion began.
        self.forget_victims(number);
        self.give_up_reserved(number);
        let parent = self.tenant(number).place.parent;
        self.unhang(number);
        let tenant = self.take(number);
        let above = self.tenant_mut(parent.expect("it is not the root"));
        above.events.add(tenant.events);
        above.policy.add_ghost_hits(tenant.policy.ghost_hits());
        above.departed.succeed(tenant.handle, tenant.departed);
        self.high.retain(|&other| other != number);
        self.forget_oversized(number);
        false
    }

    /// Claims what a tenant had when its [round](crate::policy::Policy::rounds) `until` began, or does:
    /// a batch. Returns whether there is more. What others insert meanwhile stays, so this ends.
    pub fn invalidate(
        &mut self,
        locked: &mut Locked,
        number: u32,
        until: u64,
        claimed: &mut Claimed,
    ) -> bool {
        while !claimed.is_full() {
            let tenant = self.tenant(number);
            let rounds = tenant.policy.rounds();
            if rounds > until {
                return false;
            }
            let next = match tenant.outdated(locked) {
                // An entry that waits for room has no round yet: linked later, it would get the new one and stay.
                None if rounds < until => self.any_waiting(number),
                next => next,
            };
            if let Some(id) = next {
                self.claim(locked, id, Some(Cause::Removed));
                claimed.push(locked, id);
            } else if rounds < until {
                self.tenant_mut(number).policy.begin_round();
            } else {
                return false;
            }
        }
        true
    }

    /// Claims entries of one tenant, for any reason. Returns false once it has none.
    fn claim_all(&mut self, locked: &mut Locked, number: u32, claimed: &mut Claimed) -> bool {
        while !claimed.is_full() {
            let Some(id) = self.tenant(number).any() else {
                return false;
            };
            self.claim(locked, id, Some(Cause::Removed));
            claimed.push(locked, id);
        }
        true
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{
        Cache,
        state::{BATCH, ROOT},
    };

    /// Makes a batch of an invalidation of the whole cache, up to a round.
    fn invalidate_some(cache: &Cache<u64, u64>, until: u64) -> bool {
        cache.in_batches(1, Cause::Removed, |state, locked, claimed| {
            state.invalidate(locked, ROOT, until, claimed)
        })
    }

    #[test]
    fn of_two_invalidations_at_once_each_removes_what_was_there_when_it_began() {
        let cache = Cache::builder().max_entries(300).build();
        let rounds = || cache.with_state(|state| state.tenant(ROOT).policy.rounds());
        let count = |keys: std::ops::Range<u64>| keys.filter(|key| cache.contains_key(key)).count();
        (0..200).for_each(|key| cache.insert(key, key));
        assert!((0..600).all(|key| cache.get(&(key % 200)).is_some()));
        let first = rounds() + 1;
        assert!(invalidate_some(&cache, first));
        assert_eq!(count(0..200), 200 - BATCH);
        // What has been invalidated goes first, whatever it was used, and is not pinned.
        (1000..1200).for_each(|key| cache.insert(key, key));
        assert_eq!((count(0..200), count(1000..1200)), (100, 200));
        assert!((0..200).all(|key| !cache.pin(&key)) && cache.pin(&1000));
        // What is inserted in place of such an entry stays as well.
        let replaced = (0..200)
            .find(|key| cache.contains_key(key))
            .expect("some are left");
        cache.insert(replaced, 1);
        let second = rounds() + 1;
        while invalidate_some(&cache, second) {}
        assert_eq!(cache.entry_count(), 0);
        cache.insert(2000, 1);
        assert!(!invalidate_some(&cache, first) && !invalidate_some(&cache, second));
        assert_eq!(count(2000..2001), 1);
    }

    #[test]
    fn deleted_tenants_leave_no_memory_behind() {
        let cache = Cache::<u64, u64>::with_entries(1000);
        let many = if cfg!(miri) { 50 } else { 1000 };
        let tenants: Vec<_> = (0..many)
            .map(|name: u32| cache.tenant(&name.to_string()))
            .collect();
        let size = || cache.with_state(|state| (state.tenants.len(), state.free.len()));
        assert_eq!(size(), (many as usize + 1, 0));
        // The numbers of the first ones are used again while the last one is there.
        let (last, others) = tenants.split_last().unwrap();
        assert!(others.iter().all(Cache::delete));
        assert_eq!(size(), (many as usize + 1, many as usize - 1));
        assert_eq!(cache.tenant("new").handle.own_number(), Some(1));
        assert!(last.delete());
        assert_eq!(size(), (2, 0));
        assert!(cache.tenant("new").delete());
        assert_eq!(size(), (1, 0));
        let capacity = cache.with_state(|state| state.tenants.capacity());
        assert!(capacity <= 8, "{capacity}");
    }

    #[test]
    fn handles_that_no_view_has_are_forgotten() {
        let cache = Cache::<u64, u64>::with_bytes(1000);
        let kept: Vec<_> = (0..3)
            .map(|number| cache.tenant(&format!("kept {number}")))
            .collect();
        kept.iter().for_each(|view| assert!(view.delete()));
        let known = || cache.with_state(|state| state.tenant(ROOT).departed.all.len());
        for number in 0..100 {
            assert!(cache.tenant(&number.to_string()).delete());
            assert!(known() <= 6, "{} after {number}", known());
        }
        // Also where the tenants were deleted before.
        let views: Vec<_> = (0..100)
            .map(|number| cache.tenant(&number.to_string()))
            .collect();
        assert!(views.iter().all(Cache::delete) && known() >= 100);
        drop(views);
        assert!(known() <= 6, "{}", known());
        // Also where a load, or a walk of all tenants, has had the handle longer than any view.
        for number in 0..100 {
            let tenant = cache.tenant(&number.to_string());
            assert!(tenant.delete());
            let handle = Arc::clone(&tenant.handle);
            drop(tenant);
            drop(handle);
            assert!(known() <= 7, "{} after {number}", known());
        }
        drop(kept);
        assert_eq!((cache.statistics().misses, known()), (0, 0));
        // Also where most views go before the tenant is deleted that has succeeded theirs.
        let above = cache.tenant("above");
        let mut views: Vec<_> = (0..100)
            .map(|number| above.tenant(&number.to_string()))
            .collect();
        assert!(views.iter().all(Cache::delete));
        views.truncate(51);
        assert!(above.delete());
        drop(above);
        assert_eq!(known(), 101);
        // The handles that are left have that of `above`.
        views.truncate(50);
        assert_eq!(known(), 51);
    }
}
