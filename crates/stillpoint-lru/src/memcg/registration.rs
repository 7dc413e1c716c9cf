//! [`Registration`]: registers and unregisters shrinkers.

use super::{
    Memcg,
    error::TooManyShrinkers,
    hierarchy::Hierarchy,
    lists::Lists,
    node::Node,
    shrinker::{Registered, Shrink},
    tree::Tree,
};
use crate::shrinker_map::Index;
use std::sync::Arc;

impl Hierarchy {
    /// Registers a shrinker: from now on it is asked when memory is short. The kernel's
    /// `shrinker_register()`.
    ///
    /// Does not wait. Passes under way may not ask the shrinker yet.
    ///
    /// # Errors
    ///
    /// If there are 1,024 already.
    ///
    /// # Panics
    ///
    /// If [`Shrink::per_tenant`] does.
    pub fn register(&self, shrinker: Arc<impl Shrink>) -> Result<Registration, TooManyShrinkers> {
        let registered = self.tree().add_shrinker(shrinker)?;
        Ok(Registration {
            tree: Arc::clone(self.tree()),
            registered,
        })
    }
}

/// A registered shrinker. Dropping it ends the registration: no call begins afterwards, and the drop
/// waits for calls under way. If a call of the shrinker drops it, that call is not waited for, and
/// asks the shrinker for nothing more. The kernel's `shrinker_free()`.
///
/// Drop it where nothing is held that the calls need: not in a read-side critical section if they
/// wait for a grace period, and not on a thread that a call joins. Two shrinkers that end each
/// other's registrations at the same time wait for each other.
///
/// Made by [`Hierarchy::register`](super::Hierarchy::register).
#[derive(Debug)]
#[must_use = "the shrinker is registered until this is dropped"]
pub struct Registration {
    tree: Arc<Tree>,
    registered: Arc<Registered>,
}

impl Registration {
    /// See [`Registration::covers`].
    #[track_caller]
    pub(crate) fn covers_lists(&self, lists: &Lists) {
        assert!(
            lists.hierarchy() == self.tree.address(),
            "stillpoint: the lists are not for the tenants of the hierarchy that the shrinker is registered with; make them with \
             ListLru::for_tenants(&hierarchy)"
        );
        assert!(
            lists.tell_shrinker(self.registered.number),
            "stillpoint: the lists are covered by another registration; drop that first, or let one shrinker serve both purposes"
        );
        self.registered.use_map();
    }

    /// Returns how often the shrinker has panicked.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.registered.panics()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.tree.has_lost_lock() {
            // It stays registered, and is not asked again.
            return self.registered.end_calls();
        }
        self.tree.remove_shrinker(&self.registered);
        self.registered.end_calls();
        self.tree
            .all_lists()
            .iter()
            .for_each(|lists| lists.forget_shrinker(self.registered.number));
        // Its number may be used again once nothing is remembered under it.
        self.tree.for_each_tenant(|tenant: &Memcg| {
            Node::all().for_each(|node| {
                tenant
                    .shrinker_map
                    .forget(Index::of(node.0, self.registered.number))
            });
        });
        self.tree.release_shrinker(self.registered.number);
    }
}
