//! Tenants and their limits: what charges do, and how much each tenant gives when memory is reclaimed.

mod setup;

use setup::{
    Cache, children,
    common::{self, eventually, returns},
    world,
};
use std::{
    sync::{Arc, Mutex},
    thread,
};
use stillpoint_lru::{
    Charge, ChargeError, CreateError, DeleteError, Entry, Hierarchy, Isolate, ListLru, Scope,
    Shrink, Tenant,
};

#[test]
fn charge_and_uncharge() {
    let hierarchy = Hierarchy::new();
    let parent = hierarchy.root().create().unwrap();
    let [left, right] = children(&parent);
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
    let (_, cache, _registration, [tenant]) = world(16);
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
    let (_, cache, _registration, [parent]) = world(1);
    let [one, other] = children(&parent);
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
    let (hierarchy, cache, _registration, [a, b, c]) = world(32);
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
    let (hierarchy, cache, _registration, [parent]) = world(1);
    let [one, other] = children(&parent);
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
    let (_, cache, _registration, [tenant]) = world(8);
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
    let (_, cache, _registration, [tenant]) = world(1);
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
    let (_, cache, _registration, [tenant]) = world(8);
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
    let (hierarchy, cache, _registration, [tenant, other]) = world(8);
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
    let bytes = hierarchy.reclaim().bytes;
    assert!(
        (25_000..75_000).contains(&bytes),
        "a quarter, not everything: {bytes}"
    );
}

#[test]
fn no_reclaim_inside_a_section() {
    let (_, cache, _registration, [tenant]) = world(8);
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

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn huge_charges_are_refused() {
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    // A count that wrapped would free the tenant under its charges.
    assert!(matches!(
        tenant.charge(1 << 52),
        Err(ChargeError::TooLarge | ChargeError::OverLimit { .. })
    ));
    let charges: Vec<_> = (0..40_000)
        .map_while(|_| tenant.charge(1 << 48).ok())
        .collect();
    assert!(charges.len() < 20_000, "{} of 2^48 bytes", charges.len());
    drop(tenant);
    stillpoint::synchronize();
    drop(charges);
}

const BYTES: u64 = 100_000;
const OBJECTS: usize = if cfg!(miri) { 100 } else { 1_000 };

/// Adds objects that are too large for the stock: the charged bytes are those of the objects.
fn fill(cache: &Cache, tenant: &Tenant, objects: usize, used: bool) {
    (0..objects).for_each(|_| cache.add(tenant, BYTES as usize, used).unwrap());
}

/// Two tenants use a hundred megabytes each, 90 of one are protected, and 20 are reclaimed. By the
/// overages, 100 and 10, that is 18.2 and 1.8 (in equal parts it would be 10 each). The last round may
/// end before both have been asked.
#[test]
fn siblings_are_reclaimed_by_overage() {
    let limits: [fn(&Tenant, u64); 2] = [Tenant::set_min, Tenant::set_low];
    for limit in limits {
        let (hierarchy, cache, _registration, [kept, open]) = world(1);
        limit(&kept, OBJECTS as u64 * BYTES * 9 / 10);
        for _ in 0..OBJECTS {
            fill(&cache, &kept, 1, false);
            fill(&cache, &open, 1, false);
        }
        let fallen = hierarchy.root().reclaim(OBJECTS as u64 * BYTES / 5);
        assert_eq!(fallen, OBJECTS as u64 * BYTES / 5);
        let [of_kept, of_open] = [&kept, &open].map(|tenant| OBJECTS - cache.objects(tenant));
        assert_eq!(of_kept + of_open, OBJECTS / 5);
        assert!(
            (1..=OBJECTS * 3 / 100).contains(&of_kept),
            "{of_kept} and {of_open} of {OBJECTS} each"
        );
    }
}

/// Objects go one by one, and none after the caller has had enough.
#[test]
fn reclaiming_ends_when_the_caller_has_had_enough() {
    let (_, cache, _registration, [tenant]) = world(1);
    fill(&cache, &tenant, OBJECTS, false);
    let gone = || OBJECTS - cache.objects(&tenant);
    let reclaimed = tenant.reclaim_while(u64::MAX, || gone() < 5);
    assert_eq!((reclaimed.objects, reclaimed.bytes), (5, 5 * BYTES));
    let reclaimed = tenant.reclaim_while(BYTES, || true);
    assert_eq!((reclaimed.objects, gone()), (1, 6));
    assert_eq!(tenant.reclaim_while(BYTES, || false).objects, 0);
}

/// Nearly all is protected, and every object is in use at the first look: all of the overage goes in
/// one pass.
#[test]
fn used_overage_is_reclaimed_at_priority_0() {
    let (hierarchy, cache, _registration, [tenant]) = world(1);
    tenant.set_min(OBJECTS as u64 * BYTES * 9 / 10);
    fill(&cache, &tenant, OBJECTS, true);
    hierarchy.root().reclaim(u64::MAX);
    assert_eq!(
        cache.objects(&tenant),
        OBJECTS * 9 / 10,
        "all above min, and nothing below"
    );
}

/// A tenant gets down to its low at the last priority, and a later pass reclaims the rest.
#[test]
fn low_is_overridden_at_last() {
    let (hierarchy, cache, _registration, [one, other]) = world(1);
    one.set_low(OBJECTS as u64 * BYTES * 9 / 10);
    fill(&cache, &one, OBJECTS, true);
    fill(&cache, &other, OBJECTS, false);
    // All of the other's goes before anything below the low.
    hierarchy.root().reclaim(OBJECTS as u64 * BYTES * 11 / 10);
    let left = || {
        (
            cache.objects(&one),
            cache.objects(&other),
            one.statistics().low_events,
        )
    };
    assert_eq!(left(), (OBJECTS * 9 / 10, 0, 0));
    hierarchy.root().reclaim(OBJECTS as u64 * BYTES / 2);
    assert_eq!(left(), (OBJECTS * 4 / 10, 0, 1));
    fill(&cache, &other, OBJECTS, true);
    fill(&cache, &one, OBJECTS * 6 / 10, true);
    hierarchy.root().reclaim(u64::MAX);
    assert_eq!((cache.objects(&one), cache.objects(&other)), (0, 0));
}

/// Levels of a tree that is deeper than a stack.
const LEVELS: usize = if cfg!(miri) { 300 } else { 20_000 };

/// Stack size in bytes: less than a frame of 16 bytes for each level.
const STACK: usize = 256 << 10;

/// Returns the only handle of the lowest of a chain of tenants, each below the one before.
fn deepest(hierarchy: &Hierarchy) -> Tenant {
    let mut tenant = hierarchy.root().create().unwrap();
    for _ in 1..LEVELS {
        tenant = tenant.create().unwrap();
    }
    tenant
}

fn with_a_small_stack(work: impl FnOnce() + Send + 'static) {
    thread::Builder::new()
        .stack_size(STACK)
        .spawn(work)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn deep_tree_ends_with_its_last_handle() {
    let hierarchy = Hierarchy::new();
    let tenant = deepest(&hierarchy);
    assert_eq!(hierarchy.tenants(), LEVELS + 1);
    with_a_small_stack(move || drop(tenant));
    assert_eq!(hierarchy.tenants(), 1);
    // Frees what they have left, on a thread with a stack of the usual size.
    stillpoint::barrier();
}

#[test]
fn deep_tree_ends_with_its_last_charge() {
    let hierarchy = Hierarchy::new();
    let tenant = deepest(&hierarchy);
    let charge = tenant.charge(100_000).unwrap();
    assert!(!format!("{tenant:?} {:?}", tenant.parent()).is_empty());
    drop(tenant);
    drop(hierarchy);
    stillpoint::barrier();
    with_a_small_stack(move || drop(charge));
}
