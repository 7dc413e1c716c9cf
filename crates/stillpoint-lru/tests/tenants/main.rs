//! Tenants, their limits, and the shrinkers that keep usage below them.

#[path = "../../../stillpoint/tests/common/mod.rs"]
mod common;
mod shrinkers;

use common::{eventually, returns};
use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};
use stillpoint_lru::{
    Charge, ChargeError, CreateError, DeleteError, Entry, Hierarchy, Isolate, ListLru, Node,
    Registration, Scope, Shrink, Tenant,
};

/// A cache of charged objects, which are all on its lists.
struct Cache {
    lru: ListLru<Charge>,
    batch: usize,
}

impl Shrink for Cache {
    fn count(&self, scope: &Scope<'_>) -> usize {
        self.lru.count_one(scope.tenant, scope.node)
    }

    fn scan(&self, scope: &Scope<'_>, objects: usize) -> Option<usize> {
        Some(
            self.lru
                .walk_one(scope.tenant, scope.node, objects, |_| Isolate::Removed),
        )
    }

    fn batch(&self) -> usize {
        self.batch
    }
}

impl Cache {
    fn new(hierarchy: &Hierarchy, batch: usize) -> (Arc<Self>, Registration) {
        let cache = Arc::new(Self {
            lru: ListLru::for_tenants(hierarchy),
            batch,
        });
        let registration = hierarchy.register(Arc::clone(&cache)).unwrap();
        registration.covers(&cache.lru);
        (cache, registration)
    }

    fn insert(&self, tenant: &Tenant, bytes: usize) -> Result<(), ChargeError> {
        let charge = tenant.charge(bytes)?;
        assert!(self.lru.add(tenant, Arc::new(Entry::new(charge))));
        Ok(())
    }

    fn objects(&self, tenant: &Tenant) -> usize {
        Node::all()
            .map(|node| self.lru.count_one(tenant, node))
            .sum()
    }
}

#[test]
fn charge_and_uncharge() {
    let hierarchy = Hierarchy::new();
    let parent = hierarchy.root().create().unwrap();
    let (left, right) = (parent.create().unwrap(), parent.create().unwrap());
    let mut charges = Vec::new();
    for size in [1, 100, 5_000, 16 << 10, 100_000] {
        charges.push(left.charge(size).unwrap());
        charges.push(right.charge(2 * size).unwrap());
    }
    let all = 1 + 100 + 5_000 + (16 << 10) + 100_000;
    assert_eq!(
        (
            left.usage(),
            right.usage(),
            parent.usage(),
            hierarchy.root().usage()
        ),
        (all, 2 * all, 3 * all, 3 * all)
    );
    let mut first = charges.swap_remove(0);
    first.resize(1_000).unwrap();
    assert_eq!((first.bytes(), left.usage()), (1_000, all + 999));
    first.resize(0).unwrap();
    assert_eq!(
        (first.resize(1), left.usage()),
        (Err(ChargeError::NoTenant), all - 1)
    );
    drop(charges);
    assert_eq!((parent.usage(), hierarchy.root().usage()), (0, 0));
    assert!(hierarchy.root().statistics().peak >= 3 * all);
    assert_eq!(left.charge(usize::MAX).unwrap_err(), ChargeError::TooLarge);
    drop(left.charge(0).unwrap());
}

#[test]
fn charge_outlives_its_tenant() {
    let hierarchy = Hierarchy::new();
    let parent = hierarchy.root().create().unwrap();
    let child = parent.create().unwrap();
    let (explicit, implicit) = (
        child.charge(1_000).unwrap(),
        parent.create().unwrap().charge(2_000).unwrap(),
    );
    child.delete().unwrap();
    child.delete().unwrap();
    assert_eq!((child.usage(), parent.usage()), (1_000, 3_000));
    let late = child.charge(500).unwrap();
    assert_eq!(
        (child.usage(), parent.usage()),
        (1_000, 3_500),
        "a deleted tenant's charges are its parent's"
    );
    assert_eq!(child.create().unwrap_err(), CreateError::ParentDeleted);
    drop(child);
    drop((explicit, implicit));
    assert_eq!(parent.usage(), 500);
    drop((parent, hierarchy));
    drop(late);
}

#[test]
fn delete_errors() {
    let hierarchy = Hierarchy::new();
    let parent = hierarchy.root().create().unwrap();
    let child = parent.create().unwrap();
    assert_eq!(hierarchy.root().delete(), Err(DeleteError::Root));
    assert_eq!(parent.delete(), Err(DeleteError::HasChildren));
    child.delete().unwrap();
    parent.delete().unwrap();
    assert!(parent.is_deleted() && child.is_deleted());
    assert_eq!(hierarchy.tenants(), 3);
    drop((parent, child));
    assert_eq!(hierarchy.tenants(), 1);
}

#[test]
fn charge_past_max_reclaims_or_fails() {
    const OBJECTS: u64 = if cfg!(miri) { 200 } else { 1_000 };
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy, 16);
    let tenant = hierarchy.root().create().unwrap();
    assert_eq!(tenant.set_max(100_000), 0);
    for _ in 0..OBJECTS {
        cache.insert(&tenant, 1_000).unwrap();
        assert!(tenant.usage() <= 100_000);
    }
    let statistics = tenant.statistics();
    assert!(
        statistics.objects_reclaimed >= OBJECTS - 100
            && statistics.max_events > 0
            && statistics.failed_charges == 0,
        "{statistics:?}"
    );
    assert!(matches!(
        tenant.charge(100_001),
        Err(ChargeError::OverLimit { max: 100_000, .. })
    ));
    // Memory that cannot be reclaimed.
    let held = tenant.charge(90_000).unwrap();
    let error = returns({
        let tenant = tenant.clone();
        move || tenant.charge(20_000).unwrap_err()
    });
    assert!(error.to_string().contains("raise the limit"), "{error}");
    assert_eq!(tenant.statistics().failed_charges, 2);
    assert_eq!(tenant.set_max(50_000), 40_000, "below what is used");
    assert!(tenant.charge(1).is_err());
    drop(held);
    drop(tenant.charge(50_000).unwrap());
}

#[test]
fn ancestors_limits_apply() {
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy, 1);
    let parent = hierarchy.root().create().unwrap();
    let (one, other) = (parent.create().unwrap(), parent.create().unwrap());
    parent.set_max(64_000);
    (0..32).for_each(|_| cache.insert(&one, 1_000).unwrap());
    (0..96).for_each(|_| cache.insert(&other, 1_000).unwrap());
    assert!(parent.usage() <= 64_000);
    assert!(parent.statistics().max_events > 0 && other.statistics().max_events == 0);
    assert_eq!(one.usage() + other.usage(), parent.usage());
    assert_eq!(
        1_000 * (cache.objects(&one) + cache.objects(&other)) as u64,
        parent.usage()
    );
}

/// A floods, B stays below its min: B loses nothing, no matter whose limit is met.
#[test]
fn min_protects_from_a_flood() {
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy, 32);
    let (a, b, c) = (
        hierarchy.root().create().unwrap(),
        hierarchy.root().create().unwrap(),
        hierarchy.root().create().unwrap(),
    );
    hierarchy.root().set_max(400_000);
    a.set_max(200_000);
    b.set_min(100_000);
    c.set_low(100_000);
    (0..90).for_each(|_| cache.insert(&b, 1_000).unwrap());
    (0..90).for_each(|_| cache.insert(&c, 1_000).unwrap());
    (0..if cfg!(miri) { 250 } else { 2_000 }).for_each(|_| cache.insert(&a, 1_000).unwrap());
    assert_eq!((cache.objects(&b), cache.objects(&c)), (90, 90));
    assert_eq!((b.usage(), b.statistics().objects_reclaimed), (90_000, 0));
    // The whole hierarchy is reclaimed from, and nothing else is left: low gives way, min does not.
    a.set_max(0);
    assert_eq!(a.usage(), 0);
    hierarchy.reclaim_to(0);
    assert_eq!((cache.objects(&b), cache.objects(&c)), (90, 0));
    assert!(c.statistics().low_events > 0 && b.statistics().low_events == 0);
    // A tenant's min does not protect it from its own max.
    b.set_max(10_000);
    assert!(b.usage() <= 10_000);
}

#[test]
fn protection_is_shared_among_children() {
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy, 1);
    let parent = hierarchy.root().create().unwrap();
    let (one, other) = (parent.create().unwrap(), parent.create().unwrap());
    parent.set_min(60_000);
    one.set_min(80_000);
    other.set_min(40_000);
    (0..80).for_each(|_| cache.insert(&one, 1_000).unwrap());
    (0..40).for_each(|_| cache.insert(&other, 1_000).unwrap());
    hierarchy.reclaim_to(0);
    // 60,000 for two that claim 80,000 and 40,000.
    assert_eq!((one.usage(), other.usage()), (40_000, 20_000));
}

#[test]
fn background_reclaims_past_high() {
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy, 8);
    let tenant = hierarchy.root().create().unwrap();
    tenant.set_high(100_000);
    for _ in 0..5 {
        (0..300).for_each(|_| cache.insert(&tenant, 1_000).unwrap());
        eventually(|| tenant.usage() <= 100_000);
    }
    assert!(tenant.statistics().high_events > 0);
    let before = cache.objects(&tenant);
    tenant.set_high(10_000);
    eventually(|| tenant.usage() <= 10_000);
    assert!(cache.objects(&tenant) < before);
}

/// The background reclaimer is woken once for several charges.
#[test]
fn background_reclaims_ahead_of_charges_past_high() {
    const BYTES: usize = 20_000;
    const HIGH: usize = 256 * 8;
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy, 1);
    let tenant = hierarchy.root().create().unwrap();
    tenant.set_high((HIGH * BYTES) as u64);
    (0..HIGH).for_each(|_| cache.insert(&tenant, BYTES).unwrap());
    for _ in 0..200 {
        cache.insert(&tenant, BYTES).unwrap();
        eventually(|| tenant.usage() <= (HIGH * BYTES) as u64);
    }
    let asked = tenant.statistics().high_events;
    assert!((1..100).contains(&asked), "{asked}");
}

/// The charging thread does the background reclaimer's work.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn charging_thread_reclaims_past_high_without_background() {
    if !common::is_child() {
        return common::child("charging_thread_reclaims_past_high_without_background").well();
    }
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy, 8);
    let tenant = hierarchy.root().create().unwrap();
    (0..200).for_each(|_| cache.insert(&tenant, 1_000).unwrap());
    assert_eq!(tenant.usage(), 200_000, "there is no limit yet");
    common::without_new_threads(|| {
        tenant.set_high(100_000);
        assert!(
            tenant.usage() <= 100_000,
            "{} when it has come back",
            tenant.usage()
        );
    });
    assert!(tenant.statistics().high_events > 0);
}

#[test]
fn reclaim_by_hand() {
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy, 8);
    let (tenant, other) = (
        hierarchy.root().create().unwrap(),
        hierarchy.root().create().unwrap(),
    );
    for _ in 0..100 {
        cache.insert(&tenant, 1_000).unwrap();
        cache.insert(&other, 1_000).unwrap();
    }
    let fallen = tenant.reclaim(30_000);
    assert!(
        (30_000..100_000).contains(&fallen),
        "{fallen}: a few batches at most more than was asked for"
    );
    assert_eq!(
        (tenant.usage(), cache.objects(&tenant) as u64),
        (100_000 - fallen, 100 - fallen / 1_000)
    );
    assert_eq!(tenant.reclaim(u64::MAX), 100_000 - fallen);
    assert_eq!(
        (cache.objects(&tenant), cache.objects(&other)),
        (0, 100),
        "another's is none of its business"
    );
    assert_eq!(tenant.reclaim(1), 0, "nothing is left");
}

#[test]
fn no_reclaim_inside_a_section() {
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy, 8);
    let tenant = hierarchy.root().create().unwrap();
    tenant.set_max(10_000);
    (0..10).for_each(|_| cache.insert(&tenant, 1_000).unwrap());
    let guard = stillpoint::read_lock();
    assert_eq!(tenant.charge(1_000).unwrap_err(), ChargeError::InSection);
    assert_eq!(cache.objects(&tenant), 10);
    drop(guard);
    drop(tenant.charge(1_000).unwrap());
}

/// Reclaimed objects are freed only after a grace period: the charge waits for it.
#[test]
fn charge_waits_for_a_grace_period() {
    struct Deferring(ListLru<Mutex<Option<Charge>>>);
    impl Shrink for Deferring {
        fn count(&self, scope: &Scope<'_>) -> usize {
            self.0.count_one(scope.tenant, scope.node)
        }
        fn scan(&self, scope: &Scope<'_>, objects: usize) -> Option<usize> {
            Some(self.0.walk_one(scope.tenant, scope.node, objects, |item| {
                let charge = item.lock().unwrap().take();
                stillpoint::call(move || drop(charge));
                Isolate::Removed
            }))
        }
        fn batch(&self) -> usize {
            4
        }
    }
    let hierarchy = Hierarchy::new();
    let cache = Arc::new(Deferring(ListLru::for_tenants(&hierarchy)));
    let _registration = hierarchy.register(Arc::clone(&cache)).unwrap();
    let tenant = hierarchy.root().create().unwrap();
    tenant.set_max(100_000);
    let mut met = 0;
    for _ in 0..if cfg!(miri) { 120 } else { 400 } {
        // Under a heavy load even a tenth of a second may not be enough.
        match tenant.charge(1_000) {
            Ok(charge) => {
                met += 1;
                assert!(
                    cache
                        .0
                        .add(&tenant, Arc::new(Entry::new(Mutex::new(Some(charge)))))
                );
            }
            Err(error) => assert!(matches!(error, ChargeError::OverLimit { .. }), "{error}"),
        }
    }
    assert!(met > 100, "{met}");
}
