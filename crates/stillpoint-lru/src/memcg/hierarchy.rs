//! [`Hierarchy`]: a handle of a tree of tenants, and what a tenant asks of its tree.

use super::{
    CHILD, Controller, DELETED, Memcg, REPARENTED, Tenant, error::CreateError,
    lists::keep_for_readers, reclaim, resched::Resched, tree::Tree,
};
use crate::statistics::Reclaimed;
use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

/// The last priority of [`Hierarchy::reclaim`] if nothing is charged: then no usage says when enough is
/// freed. At the usual cost, this round frees half of what is left, the round before it a quarter, the
/// one before that an eighth, and so on: together 1 - 1/2 * 3/4 * 7/8 * ... = 71 %.
const LAST_SWEEP_PRIORITY: u32 = 2;

/// A tree of [`Tenant`]s, and the shrinkers and LRU lists that serve them: most programs have one.
/// The kernel's control-group hierarchy.
///
/// This is a handle; a clone names the same tree, which lives as long as any handle of it or of one
/// of its tenants.
///
/// ```
/// use stillpoint_lru::{Entry, Hierarchy, Isolate, ListLru, Node};
/// use std::sync::Arc;
/// let hierarchy = Hierarchy::new();
/// let alice = hierarchy.root().create()?;
/// let lru = ListLru::for_tenants(&hierarchy);
/// assert!(lru.add(&alice, Arc::new(Entry::new("page"))));
/// assert_eq!(lru.count_one(&alice, Node::current()), 1);
/// assert_eq!(lru.walk(usize::MAX, |_page| Isolate::Removed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Hierarchy {
    root: Tenant,
    tree: Arc<Tree>,
}

impl Hierarchy {
    /// Creates a hierarchy that has only a root. Starts no thread.
    ///
    /// # Panics
    ///
    /// If there is no memory for it.
    #[must_use]
    pub fn new() -> Self {
        Self::try_new().expect("there is memory for a few hundred bytes")
    }

    /// Like [`Hierarchy::new`]; returns `None` if there is no memory for its arrays.
    #[must_use]
    pub fn try_new() -> Option<Self> {
        let tree = Tree::new()?;
        let root = Tenant::new(tree.new_tenant(tree.take_number().ok()?, None));
        Some(Self { root, tree })
    }

    /// Returns the tenant that is above all others.
    #[must_use]
    pub fn root(&self) -> &Tenant {
        &self.root
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Frees memory: a quarter of what is charged or, if nothing is charged, about 71 % of the
    /// objects of each shrinker of the usual cost (42 % at twice that cost, nearly all at no cost:
    /// [`Shrink::seeks`](super::Shrink::seeks)). A [pressure watch](crate::PressureWatch) does this
    /// at each notification. The kernel's `drop_caches`, in part.
    ///
    /// Runs on the calling thread, with a break after every 500 us; does not wait for grace
    /// periods. Does nothing inside a shrinker.
    pub fn reclaim(&self) -> Reclaimed {
        let usage = self.root.memcg().usage();
        self.reclaim_to(usage - usage / 4)
    }

    /// Like [`Hierarchy::reclaim`], until at most `target` bytes are charged.
    pub fn reclaim_to(&self, target: u64) -> Reclaimed {
        let root = self.root.memcg();
        let usage = || root.usage();
        let before = usage();
        let mut resched = Resched::background();
        let objects = if before == 0 {
            reclaim::reclaim(
                &self.tree,
                root,
                LAST_SWEEP_PRIORITY,
                &|| false,
                &mut resched,
            )
        } else {
            root.stocks.drain(None);
            let enough = || usage() <= target;
            let objects = reclaim::reclaim(&self.tree, root, 0, &enough, &mut resched);
            root.stocks.drain(None);
            objects
        };
        Reclaimed {
            objects,
            bytes: before.saturating_sub(usage()),
        }
    }

    /// Returns the number of tenants that have a handle, the root included.
    #[must_use]
    pub fn tenants(&self) -> usize {
        let mut tenants = 0;
        self.tree.for_each_tenant(|_| tenants += 1);
        tenants
    }
}

impl PartialEq for Hierarchy {
    /// Returns true if both are handles of the same tree.
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root
    }
}

impl Eq for Hierarchy {}

impl Default for Hierarchy {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Hierarchy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hierarchy")
            .field("tenants", &self.tenants())
            .field("root", &self.root.statistics())
            .finish()
    }
}

impl Controller for Tree {
    fn create(self: Arc<Self>, parent: &Arc<Memcg>) -> Result<Arc<Memcg>, CreateError> {
        let count = |state: usize| (state & DELETED == 0).then_some(state + CHILD);
        // Relaxed: the word alone decides which of this and `delete` comes first.
        parent
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count)
            .map_err(|_| CreateError::ParentDeleted)?;
        let number = self.take_number().inspect_err(|_| {
            // Relaxed: there is no child that left anything.
            parent.state.fetch_sub(CHILD, Ordering::Relaxed);
        })?;
        // The child's: given back with its last handle.
        parent.handles.fetch_add(1, Ordering::Relaxed);
        Ok(self.new_tenant(number, Some(Arc::clone(parent))))
    }

    /// The kernel's `mem_cgroup_css_offline()`.
    fn offline(&self, tenant: &Arc<Memcg>) {
        let mut dead = Vec::new();
        for lists in self.all_lists() {
            lists.reparent(tenant, &mut dead);
        }
        keep_for_readers(dead);
        tenant.stocks.drain(Some(tenant));
        let parent = tenant.parent.as_ref().expect("the root is not deleted");
        tenant
            .shrinker_map
            .reparent_deferred(&parent.live().shrinker_map);
        // Release, pairs with `release`: what it had is the parent's for a thread that sees the
        // mark.
        tenant.state.fetch_or(REPARENTED, Ordering::Release);
        // Release, pairs with `delete`: the parent has what we leave before it can be deleted
        // itself.
        parent.state.fetch_sub(CHILD, Ordering::Release);
    }

    fn release(&self, tenant: &Arc<Memcg>) -> bool {
        if self.has_lost_lock() {
            return false;
        }
        // In the child of a fork, the deleting thread may have been lost before it gave the lists
        // to the parent. Acquire, pairs with `offline`: what it had is its parent's. Release, pairs
        // with `is_deleted`.
        let state = tenant.state.fetch_or(DELETED, Ordering::AcqRel);
        if tenant.parent.is_none() {
            // Nothing goes into stock any more.
            tenant.stocks.drain(Some(tenant));
        } else if state & REPARENTED == 0 {
            self.offline(tenant);
        }
        self.release_number(tenant.number);
        true
    }

    fn reclaim(&self, target: &Memcg, enough: &dyn Fn() -> bool, resched: &mut Resched) -> u64 {
        reclaim::reclaim(self, target, 0, enough, resched)
    }

    fn wake_background(&self, tenant: &Memcg) {
        self.background
            .tell(tenant, || Some(Arc::clone(self.handle_of(tenant)?.memcg())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Hierarchy, ListLru, Node};

    /// This is the state in the child of a fork whose deleting thread was lost between the mark and
    /// the rest.
    #[test]
    fn last_handle_completes_an_interrupted_delete() {
        let hierarchy = Hierarchy::new();
        let lru = ListLru::for_tenants(&hierarchy);
        let tenant = hierarchy.root().create().unwrap();
        assert!(lru.add(&tenant, Arc::new(Entry::new(1))));
        tenant.memcg().state.fetch_or(DELETED, Ordering::AcqRel);
        assert!(lru.add(&tenant, Arc::new(Entry::new(2))));
        drop(tenant);
        let items: usize = Node::all()
            .map(|node| lru.count_one(hierarchy.root(), node))
            .sum();
        assert_eq!((items, lru.count()), (2, 2));
        assert!(!hierarchy.root().memcg().has_children());
    }
}
