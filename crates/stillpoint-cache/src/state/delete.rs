//! The end of a tenant. Its views stay: they are those of the tenant above from then on.
//!
//! A look-up counts in the handle of its view, and does not ask whether the tenant has been deleted:
//! that would cost each hit. So the tenant above knows the handles of those that it has succeeded,
//! until no view has them, and takes over what has been counted there since.

use super::{Cause, Claimed, State, Tenant};
use crate::{node::Locked, statistics::Event, tenant::Handle};
use std::sync::{Arc, atomic::Ordering};
use stillpoint_platform::memory::refusable;

/// A tenant whose deletion has begun: the thread that has begun it ends it.
#[derive(Debug, Clone, Copy)]
pub struct Doomed {
    number: u32,
    /// Of the state that has it.
    generation: u64,
}

/// The handles of deleted tenants, as the tenant knows them that has succeeded them.
#[derive(Debug, Default)]
pub struct Departed {
    all: Vec<Successor>,
    /// How many there may be before those are looked for that no view has.
    most: usize,
}

/// What a tenant has of a deleted one.
#[derive(Debug)]
struct Successor {
    of: Arc<Handle>,
    /// What of its counts the tenant has counted as its own.
    counted: [u64; Event::ALL.len()],
}

/// Of so few handles it is not asked whether views have them.
const FEW: usize = 16;

impl Successor {
    /// Counts what is new.
    fn settle(&mut self, into: &Handle) {
        for event in Event::ALL {
            let all = self.of.counters.get(event);
            let before = std::mem::replace(&mut self.counted[event as usize], all);
            if all != before {
                into.counters.add(event, all.wrapping_sub(before));
            }
        }
    }
}

impl Tenant {
    /// It takes over what has been counted in a tenant below it that has been deleted, and will be.
    fn succeed(&mut self, deleted: &Arc<Handle>, departed: Departed) {
        let own = Successor {
            of: Arc::clone(deleted),
            counted: Default::default(),
        };
        for mut other in departed.all.into_iter().chain([own]) {
            other.settle(&self.handle);
            // Without memory, what its views count from now on is lost.
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
        let into = &self.handle;
        self.departed.all.retain_mut(|deleted| {
            // First: what is counted until its last view goes is there, then.
            let has_views = Arc::get_mut(&mut deleted.of).is_none();
            deleted.settle(into);
            has_views
        });
    }
}

impl State {
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
        handle.published.end();
        self.names.remove(&(parent, Arc::clone(&handle.name)));
        Some(Doomed {
            number,
            generation: self.generation,
        })
    }

    /// Claims what a tenant has left whose deletion has begun. Once that is nothing, ends the
    /// deletion, and returns false.
    pub fn drain(&mut self, locked: &mut Locked, doomed: Doomed, claimed: &mut Claimed) -> bool {
        let Doomed { number, generation } = doomed;
        // Of a state that a fork has lost.
        if generation != self.generation {
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
        above.succeed(&tenant.handle, tenant.departed);
        above.show_all();
        self.high.retain(|&other| other != number);
        self.free.push(number);
        false
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
    use crate::{Cache, state::ROOT};

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
}
