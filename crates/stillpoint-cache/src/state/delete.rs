//! The end of a tenant. Its views stay: they are those of the tenant above from then on.
//!
//! A look-up counts in the handle of its view, and does not ask whether the tenant has been deleted:
//! that would cost each hit. So the tenant above knows the handles of those that it has succeeded,
//! until no view has them, and takes over what has been counted there since. What it has not taken over
//! when the last view goes, that leaves to it: so no handle is kept for what is to be
//! counted.

use super::{Cause, Claimed, ROOT, State, Tenant};
use crate::{node::Locked, statistics::Event, tenant::Handle};
use std::sync::{Arc, Weak, atomic::Ordering};
use stillpoint_platform::memory::refusable;

/// A tenant whose deletion has begun: the thread that has begun it ends it. In the child of a fork that
/// has lost that thread, the service thread does; where the thread itself has forked, in its listener,
/// whichever of the two comes first.
#[derive(Debug, Clone, Copy)]
pub struct Doomed {
    number: u32,
    /// Which deletion it is: the number is another tenant's later.
    deletion: u64,
    /// Of the state that has it.
    generation: u64,
}

/// The handles of deleted tenants, as the tenant knows them that has succeeded them: each before that
/// of the tenant that was above it.
#[derive(Debug, Default)]
pub struct Departed {
    all: Vec<Weak<Handle>>,
    /// How many there may be before those are looked for that no view has.
    most: usize,
}

/// The handles of all tenants, each behind that of the one above it: beside the [`State`], so that a
/// fork which loses that leaves them.
#[derive(Debug, Default)]
pub struct Handles {
    all: Vec<Weak<Handle>>,
    /// As in [`Departed`].
    most: usize,
}

impl Handles {
    /// Without memory, what is counted in it is not counted in the whole after such a fork.
    pub fn add(&mut self, handle: &Arc<Handle>) {
        if self.all.len() > self.most {
            self.all.retain(|other| other.strong_count() > 0);
            self.most = FEW.max(2 * self.all.len());
        }
        if refusable(|| self.all.try_reserve(1)).is_ok() {
            self.all.push(Arc::downgrade(handle));
        }
    }
}

/// Of so few handles it is not asked whether views have them.
const FEW: usize = 16;

impl Handle {
    /// Has the tenant above count what is new in this one, which has been deleted and has left the
    /// tree. Under the lock, or when the last view goes: one thread at a time.
    fn settle(&self) {
        let Some(above) = &self.parent else { return };
        for event in Event::ALL {
            let (all, settled) = (self.counters.get(event), &self.settled[event as usize]);
            let before = settled.load(Ordering::Relaxed);
            if all != before {
                settled.store(all, Ordering::Relaxed);
                above.counters.add(event, all.wrapping_sub(before));
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // While it is in the tree the state has it.
        if *self.deleted.get_mut() {
            self.settle();
        }
    }
}

impl Tenant {
    /// It takes over what has been counted in a tenant below it that has been deleted, and will be.
    fn succeed(&mut self, deleted: &Arc<Handle>, departed: Departed) {
        let own = Arc::downgrade(deleted);
        for other in departed.all.into_iter().chain([own]) {
            if let Some(other) = other.upgrade() {
                other.settle();
            }
            // Without memory, what its views count from now on is counted when the last one goes.
            if refusable(|| self.departed.all.try_reserve(1)).is_ok() {
                self.departed.all.push(other);
            }
        }
        if self.departed.all.len() > self.departed.most {
            self.settle();
            self.departed.most = FEW.max(2 * self.departed.all.len());
        }
    }

    /// Counts what views of deleted tenants have counted since, and forgets those that no view has.
    fn settle(&mut self) {
        self.departed.all.retain(|deleted| {
            let deleted = deleted.upgrade();
            deleted.is_some_and(|deleted| {
                deleted.settle();
                true
            })
        });
    }
}

impl State {
    /// Has the root succeed all tenants, of states that are lost.
    pub fn succeed_lost(&mut self, handles: &Handles) {
        let departed = &mut self.tenant_mut(ROOT).departed.all;
        if refusable(|| departed.try_reserve(handles.all.len())).is_ok() {
            departed.extend(handles.all.iter().rev().cloned());
        }
    }

    /// Has a tenant and all below it count what views of deleted ones have counted.
    pub fn settle(&mut self, above: u32) {
        let mut next = Some(above);
        while let Some(number) = next {
            let tenant = self.tenant_mut(number);
            if !tenant.departed.all.is_empty() {
                tenant.settle();
            }
            next = self.after(number, above, true);
        }
    }

    /// Begins to delete a tenant without children: its views are views of the one above from now
    /// on, and nothing is promised to it. `None` if it has children, or is the root.
    pub fn begin_delete(&mut self, number: u32) -> Option<Doomed> {
        let tenant = self.tenant(number);
        let place = tenant.place;
        let parent = place.parent.filter(|_| !place.has_children())?;
        let handle = Arc::clone(&tenant.handle);
        self.set_limits(number, |limits| (limits.min, limits.low) = (0, 0));
        handle.deleted.store(true, Ordering::Relaxed);
        self.deletions += 1;
        let deletion = self.deletions;
        self.tenant_mut(number).deletion = Some(deletion);
        self.names.remove(&(parent, Arc::clone(&handle.name)));
        Some(Doomed {
            number,
            deletion,
            generation: self.generation,
        })
    }

    /// In the child of a fork: the threads that are deleting tenants may be lost.
    pub fn lose_deletions(&mut self) {
        let mut all = self.tenants.iter().flatten();
        self.abandoned = all.any(|tenant| tenant.deletion.is_some());
    }

    /// Whether there may be deletions that no thread is about to end.
    pub fn has_abandoned(&self) -> bool {
        self.abandoned
    }

    /// A deletion that may have been abandoned.
    pub fn take_abandoned(&mut self) -> Option<Doomed> {
        if !self.abandoned {
            return None;
        }
        let generation = self.generation;
        let found = (0..).zip(&self.tenants).find_map(|(number, tenant)| {
            let deletion = tenant.as_ref()?.deletion?;
            Some(Doomed {
                number,
                deletion,
                generation,
            })
        });
        self.abandoned = found.is_some();
        found
    }

    /// Claims what a tenant has left whose deletion has begun. Once that is nothing, ends the
    /// deletion, and returns false.
    pub fn drain(&mut self, locked: &mut Locked, doomed: Doomed, claimed: &mut Claimed) -> bool {
        let Doomed {
            number,
            deletion,
            generation,
        } = doomed;
        // Of a state that a fork has lost, or ended by another thread.
        if generation != self.generation || !self.is_being_deleted(number, deletion) {
            return false;
        }
        if self.claim_all(locked, number, claimed) {
            return true;
        }
        // Inserts may have chosen it since its deletion began.
        self.forget_victims(number);
        let parent = self.tenant(number).place.parent;
        self.unhang(number);
        let tenant = self.tenants[number as usize].take().expect("it is there");
        let above = self.tenant_mut(parent.expect("it is not the root"));
        above.events.add(tenant.events);
        above.policy.add_ghost_hits(tenant.policy.ghost_hits());
        above.succeed(&tenant.handle, tenant.departed);
        self.high.retain(|&other| other != number);
        self.forget_oversized(number);
        self.free.push(number);
        false
    }

    fn is_being_deleted(&self, number: u32, deletion: u64) -> bool {
        let tenant = self.tenants[number as usize].as_ref();
        tenant.is_some_and(|tenant| tenant.deletion == Some(deletion))
    }

    /// Claims entries of one tenant, for any reason. Returns false once it has none.
    pub fn claim_all(&mut self, locked: &mut Locked, number: u32, claimed: &mut Claimed) -> bool {
        while !claimed.is_full() {
            let Some(id) = self.tenant(number).any() else {
                return false;
            };
            self.claim(locked, id, Some(Cause::Removed));
            claimed.push(id);
        }
        true
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::Cache;

    #[test]
    fn handles_that_no_view_has_are_forgotten() {
        let cache = Cache::<u64, u64>::new(1000);
        let kept: Vec<_> = (0..3)
            .map(|number| cache.tenant(&format!("kept {number}")))
            .collect();
        kept.iter().for_each(|view| assert!(view.delete()));
        let known = || cache.with_state(|state| state.tenant(ROOT).departed.all.len());
        for number in 0..10 * FEW {
            assert!(cache.tenant(&number.to_string()).delete());
            assert!(known() <= FEW + 1, "{} after {number}", known());
        }
        // To ask forgets as well.
        assert_eq!((cache.statistics().misses, known()), (0, 3));
        drop(kept);
        assert_eq!((cache.statistics().misses, known()), (0, 0));
    }

    #[test]
    fn handles_of_tenants_that_are_gone_are_forgotten_and_no_others() {
        let mut handles = Handles::default();
        let kept: Vec<_> = (0..3).map(|_| Handle::root()).collect();
        kept.iter().for_each(|handle| handles.add(handle));
        for _ in 0..10 * FEW {
            handles.add(&Handle::root());
            assert!(handles.all.len() <= FEW + 1, "{}", handles.all.len());
        }
        let there = handles.all.iter().filter_map(Weak::upgrade);
        assert!(
            there
                .map(|it| Arc::as_ptr(&it))
                .eq(kept.iter().map(Arc::as_ptr))
        );
    }
}
