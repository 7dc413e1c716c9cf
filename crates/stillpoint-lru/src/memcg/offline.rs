//! Taking a tenant offline: what it has goes to its nearest ancestor that has not been deleted. The
//! kernel's `mem_cgroup_css_offline()`.

use super::{CHILD, DELETED, Memcg, REPARENTED, counter, lists::keep_for_readers};
use std::sync::{Arc, atomic::Ordering};

impl Memcg {
    /// The tenant has been marked as deleted by the caller: gives what it has to its parent.
    pub(super) fn offline(self: &Arc<Self>) {
        let mut dead = Vec::new();
        for lists in self.tree.all_lists() {
            lists.reparent(self, &mut dead);
        }
        keep_for_readers(dead);
        self.tree.stocks().drain(Some(self));
        let parent = self.parent.as_ref().expect("the root is not deleted");
        self.shrinker_map
            .reparent_deferred(&parent.live().shrinker_map);
        // Release, pairs with `release`: what it had is the parent's for a thread that sees the
        // mark.
        self.state.fetch_or(REPARENTED, Ordering::AcqRel);
        // Release, pairs with `delete`: the parent has what we leave before it can be deleted
        // itself.
        parent.state.fetch_sub(CHILD, Ordering::AcqRel);
    }

    /// The last handle is gone.
    fn release(self: &Arc<Self>) {
        if self.tree.has_lost_lock() {
            return;
        }
        // In the child of a fork, the deleting thread may have been lost before it gave the lists
        // to the parent. Acquire, pairs with `offline`: what it had is its parent's. Release, with
        // `is_deleted`.
        let state = self.state.fetch_or(DELETED, Ordering::AcqRel);
        if self.parent.is_none() {
            // Nothing goes into stock any more.
            self.tree.stocks().drain(Some(self));
        } else if state & REPARENTED == 0 {
            self.offline();
        }
        self.tree.release_number(self.number);
        // SAFETY: once, by the last handle; `self` keeps the tenant until this function returns.
        unsafe { counter::put_handles(Arc::as_ptr(self)) };
    }

    /// A tenant that ends gives back its parent's handle, and so on: one after the other, as a tree
    /// may be deeper than any stack. `self` keeps them all.
    pub(super) fn put(self: &Arc<Self>) {
        let mut at = Some(self);
        // Release and acquire, pairs with `put` of other threads: what was done through other
        // handles is done before the end.
        while let Some(tenant) =
            at.filter(|tenant| tenant.handles.fetch_sub(1, Ordering::AcqRel) == 1)
        {
            tenant.release();
            at = tenant.parent.as_ref();
        }
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
        tenant.memcg.state.fetch_or(DELETED, Ordering::AcqRel);
        assert!(lru.add(&tenant, Arc::new(Entry::new(2))));
        drop(tenant);
        let items: usize = Node::all()
            .map(|node| lru.count_one(hierarchy.root(), node))
            .sum();
        assert_eq!((items, lru.count()), (2, 2));
        assert!(!hierarchy.root().memcg.has_children());
    }
}
