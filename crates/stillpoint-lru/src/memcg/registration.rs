//! Registering and unregistering shrinkers.

use super::{
    Memcg,
    error::TooManyShrinkers,
    hierarchy::Hierarchy,
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
    /// Does not wait for passes under way, which may not ask it yet.
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

/// A registered shrinker. Dropping it ends that: no call begins afterwards, and it waits for those
/// under way but, inside one, the calling thread's own, which is asked for nothing more. The
/// kernel's `shrinker_free()`.
///
/// The wait ends with the calls: drop it where nothing is held that they need. So not in a
/// read-side critical section if they wait for a grace period, and not on a thread that a call
/// joins; and two shrinkers that end each other's registrations at a time wait for each other.
///
/// Made by [`Hierarchy::register`](super::Hierarchy::register).
#[derive(Debug)]
#[must_use = "the shrinker is registered until this is dropped"]
pub struct Registration {
    tree: Arc<Tree>,
    registered: Arc<Registered>,
}

impl Registration {
    pub(crate) fn hierarchy(&self) -> usize {
        self.tree.address()
    }

    pub(crate) fn number(&self) -> usize {
        self.registered.number
    }

    /// From now on the shrinker is asked only where the tenants' shrinker maps say that there may
    /// be something.
    pub(crate) fn use_map(&self) {
        self.registered.use_map();
    }

    /// How often the shrinker has panicked.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.registered.panics()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.tree.has_lost_lock() {
            // It stays registered, and is asked no more.
            return self.registered.end_calls();
        }
        self.tree.remove_shrinker(&self.registered);
        self.registered.end_calls();
        self.tree
            .all_lists()
            .iter()
            .for_each(|lists| lists.forget_shrinker(self.registered.number));
        // It is asked no more; its number may be used again once nothing is remembered under it.
        self.tree.for_each_tenant(|tenant: &Memcg| {
            Node::all().for_each(|node| {
                tenant
                    .shrinker_map()
                    .forget(Index::of(node.0, self.registered.number))
            });
        });
        self.tree.release_shrinker(self.registered.number);
    }
}
