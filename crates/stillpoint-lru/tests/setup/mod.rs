//! What the tests share: a cache of charged objects, which are all on its lists.
#![allow(dead_code, reason = "each test program uses a part of this")]

#[path = "../../../stillpoint/tests/common/mod.rs"]
pub mod common;

use std::{
    array,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use stillpoint_lru::{
    Charge, ChargeError, Entry, Hierarchy, Isolate, ListLru, Node, Registration, Scope, Shrink,
    Tenant,
};

/// An object's charge, and whether the object has been used since the last look.
pub type Object = (Charge, AtomicBool);

pub struct Cache {
    pub lru: ListLru<Object>,
    batch: usize,
}

impl Shrink for Cache {
    fn count(&self, scope: &Scope<'_>) -> usize {
        self.lru.count_one(scope.tenant, scope.node)
    }

    fn scan(&self, scope: &Scope<'_>, objects: usize) -> Option<usize> {
        let isolate = |object: &Arc<Entry<Object>>| match object.1.swap(false, Ordering::SeqCst) {
            true => Isolate::Rotate,
            false => Isolate::Removed,
        };
        Some(
            self.lru
                .walk_one(scope.tenant, scope.node, objects, isolate),
        )
    }

    fn batch(&self) -> usize {
        self.batch
    }
}

impl Cache {
    pub fn unregistered(hierarchy: &Hierarchy, batch: usize) -> Arc<Self> {
        let lru = ListLru::for_tenants(hierarchy);
        Arc::new(Self { lru, batch })
    }

    pub fn new(hierarchy: &Hierarchy, batch: usize) -> (Arc<Self>, Registration) {
        let cache = Self::unregistered(hierarchy, batch);
        let registration = hierarchy.register(Arc::clone(&cache)).unwrap();
        registration.covers(&cache.lru);
        (cache, registration)
    }

    pub fn insert(&self, tenant: &Tenant, bytes: usize) -> Result<(), ChargeError> {
        self.add(tenant, bytes, false)
    }

    pub fn add(&self, tenant: &Tenant, bytes: usize, used: bool) -> Result<(), ChargeError> {
        let object = (tenant.charge(bytes)?, AtomicBool::new(used));
        assert!(self.lru.add(tenant, Arc::new(Entry::new(object))));
        Ok(())
    }

    pub fn objects(&self, tenant: &Tenant) -> usize {
        Node::all()
            .map(|node| self.lru.count_one(tenant, node))
            .sum()
    }
}

/// Creates `N` tenants below `parent`.
pub fn children<const N: usize>(parent: &Tenant) -> [Tenant; N] {
    array::from_fn(|_| parent.create().unwrap())
}

/// Creates a hierarchy with a cache, and with `N` tenants below its root.
pub fn world<const N: usize>(batch: usize) -> (Hierarchy, Arc<Cache>, Registration, [Tenant; N]) {
    let hierarchy = Hierarchy::new();
    let (cache, registration) = Cache::new(&hierarchy, batch);
    let tenants = children(hierarchy.root());
    (hierarchy, cache, registration, tenants)
}
