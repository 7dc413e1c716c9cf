//! The entries that computes have seen.
//!
//! A compute shows the value of an entry to user code, and then replaces or removes that entry, and no other.
//! It is in no section meanwhile, so the entry may be freed, and another one may lie at its address. So each
//! compute has a note here, under the entry that it has seen. What claims that entry takes the note out. While
//! the note is here, the entry has not been claimed, and so it has not been retired.

use super::State;
use crate::{
    node::{Id, Locked},
    removal::Cause,
    tenant::Handle,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use stillpoint_platform::sync::{Mutex, lock};

/// The part of a load or a compute that other calls change.
#[derive(Debug)]
pub struct Load {
    /// Whether its value is not to be kept: its key was invalidated after it had begun, or the entry that it
    /// has seen was removed or replaced. Changed under the lock of the queues. A read without the lock is a
    /// hint only, so Relaxed.
    pub is_outdated: AtomicBool,
    /// The tenant whose view loads.
    tenant: Arc<Handle>,
    /// The tenant of the entry that a compute has seen. That may have been evicted when the tenant is invalidated.
    /// Used under the lock of the queues only.
    seen_in: Mutex<Option<Arc<Handle>>>,
}

impl Load {
    /// Makes the part of a load by a view of `tenant`.
    pub fn of(tenant: Arc<Handle>) -> Arc<Self> {
        Arc::new(Self {
            is_outdated: AtomicBool::new(false),
            tenant,
            seen_in: Mutex::new(None),
        })
    }

    /// Returns whether an invalidation of the tenant `number` makes the load outdated.
    pub fn is_within(&self, state: &State, number: u32) -> bool {
        let is_within = |tenant: &Arc<Handle>| state.is_within(tenant.number(), number);
        is_within(&self.tenant) || lock(&self.seen_in).as_ref().is_some_and(is_within)
    }

    /// Notes the tenant of the entry that a compute has seen: again when an entry is linked, as it may be of
    /// another tenant than the one that it has replaced.
    pub(super) fn set_seen_in(&self, tenant: &Arc<Handle>) {
        *lock(&self.seen_in) = Some(Arc::clone(tenant));
    }

    /// Marks the load as outdated: its value will not be kept.
    pub fn outdate(&self) {
        self.is_outdated.store(true, Ordering::Relaxed);
    }
}

impl State {
    /// Notes that a compute has seen an entry. Returns false if the entry is not to stay.
    pub fn watch(&mut self, locked: &mut Locked, id: Id, load: &Arc<Load>) -> bool {
        let is_current = self.is_current(locked, id);
        if is_current {
            self.watched.insert(id, Arc::clone(load));
            if let Some(owner) = self.owner(locked, id) {
                load.set_seen_in(&self.tenant(owner).handle);
            }
        }
        is_current
    }

    /// Takes the note of a compute out. Returns whether it was there: then the entry has not been claimed.
    pub fn forget_compute(&mut self, id: Id, load: &Arc<Load>) -> bool {
        // Otherwise another entry may lie there by now, which another compute has seen.
        let noted = self.watched.get(&id);
        let is_there = noted.is_some_and(|noted| Arc::ptr_eq(noted, load));
        if is_there {
            self.watched.remove(&id);
        }
        is_there
    }

    /// Takes the note of a compute out that is about to change the entry. Returns whether that is to stay: then
    /// it has not been retired.
    pub fn unwatch(&mut self, locked: &mut Locked, id: Id, load: &Arc<Load>) -> bool {
        if !self.forget_compute(id, load) {
            return false;
        }
        let is_current = self.is_current(locked, id);
        if !is_current {
            load.outdate();
        }
        is_current
    }

    /// Takes the note of an entry out that was claimed. Its compute is outdated, unless the entry has only made
    /// room, or expired.
    #[inline]
    pub(super) fn forget_watched(&mut self, id: Id, cause: Option<Cause>) {
        if !self.watched.is_empty()
            && let Some(load) = self.watched.remove(&id)
            && !matches!(cause, Some(Cause::Evicted | Cause::Expired))
        {
            load.outdate();
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{Cache, Entry, ManualClock, Op, state::ROOT};
    use std::{
        future::{Future, pending},
        panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
        pin::pin,
        sync::Barrier,
        task::{Context, Waker},
        thread,
        time::Duration,
    };

    fn start(compute: impl Future) {
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(compute).poll(&mut context).is_pending());
    }

    #[test]
    fn no_note_stays_however_a_compute_ends() {
        let cache = Cache::<u64, u64>::with_entries(10);
        let notes = || cache.with_state(|state| state.watched.len());
        let ops = [Op::Nop, Op::Put(2), Op::Remove];
        for op in ops {
            cache.insert(1, 1);
            cache.entry(&1).and_compute_with(|_| {
                assert_eq!(notes(), 1);
                op
            });
            assert_eq!(notes(), 0);
        }
        type Change = fn(&Cache<u64, u64>);
        let changes: [(Change, usize); 4] = [
            (|_| resume_unwind(Box::new("expected")), 0),
            (|cache| cache.insert(1, 3), 1),
            (|cache| cache.invalidate_all(), 1),
            (
                |cache| (100..1000).for_each(|key| cache.insert(key, key)),
                1,
            ),
        ];
        for (change, expected) in changes {
            cache.insert(1, 1);
            let mut claimed = 0;
            let _ = catch_unwind(AssertUnwindSafe(|| {
                cache.entry(&1).and_upsert_with(|_| {
                    change(&cache);
                    claimed = 1 - notes();
                    4
                })
            }));
            assert_eq!((claimed, notes()), (expected, 0));
        }
        cache.insert(1, 1);
        start(cache.entry(&1).and_upsert_with_async(|_| pending()));
        assert_eq!(notes(), 0);
    }

    /// The address of an entry is not the entry.
    #[test]
    fn a_compute_does_not_take_another_ones_note_for_its_own() {
        let cache = Cache::<u64, u64>::with_entries(10);
        cache.insert(1, 1);
        let store = &cache.inner.section();
        let id = Id::of(cache.find(&1, store).expect("an entry"));
        let loads = [(); 2].map(|()| Load::of(Arc::clone(&cache.handle)));
        let (mut state, mut locked) = cache.inner.lock(store);
        assert!(state.watch(&mut locked, id, &loads[0]));
        assert!(state.claim(&mut locked, id, Some(Cause::Evicted)));
        assert!(!state.watch(&mut locked, id, &loads[0]));
        // As another entry there would be noted.
        state.watched.insert(id, Arc::clone(&loads[1]));
        assert!(!state.unwatch(&mut locked, id, &loads[0]));
        assert!(state.forget_compute(id, &loads[1]));
    }

    /// Notes that a compute has seen the entry of key 1 which `view` inserts: before it is in a queue, as the insert
    /// waits for the lock. Returns the tenant that it had then.
    fn watch_before_the_link(
        cache: &Cache<u64, u64>,
        view: &Cache<u64, u64>,
        load: &Arc<Load>,
    ) -> Option<u32> {
        thread::scope(|scope| {
            let store = &cache.inner.section();
            let (mut state, mut locked) = cache.inner.lock(store);
            let insert = || scope.spawn(|| view.insert(1, 8));
            cache.inner.shared.until_asked(insert);
            let id = Id::of(cache.find(&1, store).expect("an entry"));
            let owner = state.owner(&mut locked, id);
            assert!(state.watch(&mut locked, id, load));
            owner
        })
    }

    #[test]
    fn a_compute_learns_the_tenant_of_an_entry_that_is_linked_later() {
        let cache = Cache::<u64, u64>::with_entries(10);
        let (tenant, other) = (cache.tenant("tenant"), cache.tenant("other"));
        let load = Load::of(Arc::clone(&other.handle));
        assert_eq!(watch_before_the_link(&cache, &tenant, &load), None);
        let number = tenant.handle.number();
        assert!(cache.with_state(|state| load.is_within(state, number)));
    }

    /// The compute has seen the new entry while the old one was still in its queue, which leaves it no tenant.
    #[test]
    fn a_compute_learns_the_tenant_of_an_entry_that_does_not_inherit_its_own() {
        let (clock, hour) = (ManualClock::default(), Duration::from_secs(3600));
        let cache = Cache::<u64, u64>::builder().max_entries(10);
        let cache = cache.time_to_live(hour).clock(clock.clone()).build();
        let [a, b, c] = ["a", "b", "c"].map(|name| cache.tenant(name));
        a.insert(1, 7);
        clock.advance(hour);
        let load = Load::of(Arc::clone(&c.handle));
        let number = |view: &Cache<u64, u64>| view.handle.number();
        assert_eq!(watch_before_the_link(&cache, &b, &load), Some(number(&a)));
        assert_eq!(b.evict_some(1), 1);
        let is_within = |view| cache.with_state(|state| load.is_within(state, number(view)));
        assert_eq!([&a, &b, &c].map(is_within), [false, true, true]);
    }

    /// An invalidation works in batches: some entries are found that it is about to take.
    #[test]
    fn what_an_invalidation_under_way_is_about_to_take_is_not_computed_from() {
        let cache = Cache::<u64, u64>::with_entries(1000);
        (0..200).for_each(|key| cache.insert(key, 7));
        let until = cache.with_state(|state| state.tenant(ROOT).policy.rounds()) + 1;
        let invalidate_some = || {
            cache.in_batches(1, Cause::Removed, |state, locked, claimed| {
                state.invalidate(locked, ROOT, until, claimed)
            })
        };
        let next = |entry: Option<Entry<u64, u64>>| entry.map_or(0, Entry::into_value) + 1;
        let last = (0..200).rev();
        // Begins before the invalidation, and ends in the middle of it.
        cache.entry(&199).and_upsert_with(|entry| {
            assert!(invalidate_some());
            next(entry)
        });
        let left: Vec<u64> = last.filter(|key| cache.contains_key(key)).collect();
        assert!(left.len() > 100 && left.contains(&199));
        assert_eq!(cache.get(&199), Some(7), "it is still to be taken");
        // Begins in the middle of it.
        let before = cache.statistics();
        let computed = cache.entry(&left[1]).and_upsert_with(next);
        assert_eq!(*computed.value(), 1);
        let all = cache.statistics();
        assert_eq!((all.hits, all.misses), (before.hits, before.misses + 1));
        while invalidate_some() {}
        assert_eq!(cache.entry_count(), 0);
    }

    #[test]
    fn what_a_deletion_under_way_is_about_to_take_is_not_computed_from() {
        let cache = Cache::<u64, u64>::with_entries(1000);
        let mut tenant = cache.tenant("tenant");
        let number = tenant.handle.number();
        tenant.extend([(1, 7), (2, 7)]);
        let next = |entry: Option<Entry<u64, u64>>| entry.map_or(0, Entry::into_value) + 1;
        // Begins before the deletion.
        cache.entry(&1).and_upsert_with(|entry| {
            let begun = cache.with_state(|state| state.begin_delete(number));
            assert_eq!(begun, Some(number));
            next(entry)
        });
        assert_eq!(cache.get(&1), Some(7), "it is still to be taken");
        let computed = cache.entry(&2).and_upsert_with(next);
        assert_eq!(*computed.value(), 1);
        cache.in_batches(usize::MAX, Cause::Removed, |state, locked, claimed| {
            state.drain(locked, number, claimed)
        });
        assert_eq!(cache.entry_count(), 0);
    }

    /// Otherwise an invalidation of its tenant could be over before its inserter has the lock: so the value is
    /// not found before that, and there is one hold of the lock for all.
    #[test]
    fn a_computed_value_is_found_and_linked_under_one_hold_of_the_lock() {
        let (cache, step) = (Cache::<u64, u64>::with_entries(10), Barrier::new(2));
        let shared = &cache.inner.shared;
        cache.insert(1, 7);
        thread::scope(|scope| {
            let compute = scope.spawn(|| {
                let mut asked = 0;
                cache.entry(&1).and_upsert_with(|_| {
                    step.wait();
                    step.wait();
                    asked = shared.asked();
                    8
                });
                shared.asked() - asked
            });
            step.wait();
            let held = shared.lock();
            shared.until_asked(|| step.wait());
            assert_eq!(cache.peek(&1).map(|found| *found), Some(7));
            drop(held);
            assert_eq!(compute.join().expect("it computes"), 1);
        });
        assert_eq!(cache.get(&1), Some(8));
    }
}
