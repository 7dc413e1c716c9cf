//! The library's lists.

use std::sync::Arc;

use stillpoint_lru::{
    Entry, Hierarchy, Isolate, ListLru, Node, Registration, Scope, Shrink, Tenant, lab,
};

use super::profile;
use super::workload::{MOVED, Place, RESIDENTS, Subject};

type Lru = ListLru<usize>;

/// An LRU whose items are used all the time: a pass looks at them and leaves them as the newest
/// ones.
struct InUse(Arc<Lru>);

impl Shrink for InUse {
    fn count(&self, scope: &Scope<'_>) -> usize {
        self.0.count_one(scope.tenant, scope.node)
    }

    fn scan(&self, scope: &Scope<'_>, objects: usize) -> Option<usize> {
        Some(
            self.0
                .walk_one(scope.tenant, scope.node, objects, |_| Isolate::Rotate),
        )
    }

    fn batch(&self) -> usize {
        // The lists are short, and each is to be looked at.
        1
    }
}

/// A `ListLru` each, for the tenants of one hierarchy.
pub struct Lists {
    // Dropped first: their registrations hold the lists.
    _shrinkers: Vec<Registration>,
    lists: Vec<Arc<Lru>>,
    tenants: Vec<Tenant>,
    hierarchy: Hierarchy,
    items: Vec<Vec<Arc<Entry<usize>>>>,
    node: Node,
}

impl Subject for Lists {
    fn new(lists: usize, tenants: usize, mutators: usize) -> Self {
        lab::watch_waits(profile::waiting, profile::waited);
        let hierarchy = Hierarchy::new();
        let tenants: Vec<_> = (0..tenants)
            .map(|_| hierarchy.root().create().expect("there is memory"))
            .collect();
        let lists: Vec<_> = (0..lists)
            .map(|_| Arc::new(Lru::for_tenants(&hierarchy)))
            .collect();
        for lru in &lists {
            for tenant in &tenants {
                for resident in 0..RESIDENTS {
                    assert!(
                        lru.add(tenant, Arc::new(Entry::new(resident))),
                        "the item is new"
                    );
                }
            }
        }
        let register = |lru: &Arc<Lru>| {
            let registration = hierarchy
                .register(Arc::new(InUse(Arc::clone(lru))))
                .expect("the command line allows 1000 lists");
            registration.covers(&**lru);
            registration
        };
        let items = (0..mutators)
            .map(|_| (0..MOVED).map(|item| Arc::new(Entry::new(item))).collect())
            .collect();
        Self {
            _shrinkers: lists.iter().map(register).collect(),
            lists,
            tenants,
            hierarchy,
            items,
            node: Node::current(),
        }
    }

    #[inline]
    fn count(&self, place: Place) -> usize {
        self.lists[place.list].count_one(&self.tenants[place.tenant], self.node)
    }

    fn add(&self, place: Place, mutator: usize, item: usize) {
        let added = self.lists[place.list].add(
            &self.tenants[place.tenant],
            Arc::clone(&self.items[mutator][item]),
        );
        assert!(added, "a mutator's item is on no list");
    }

    fn delete(&self, place: Place, mutator: usize, item: usize) {
        assert!(
            self.lists[place.list]
                .del(&self.items[mutator][item])
                .is_some(),
            "it is where the mutator put it"
        );
    }

    fn reclaim_pass(&self) {
        self.hierarchy.reclaim();
    }
}
