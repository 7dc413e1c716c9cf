//! Tenants, their limits, and the shrinkers that keep them.

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{eventually, returns};
use std::{
    collections::VecDeque,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};
use stillpoint_lru::{
    Charge, ChargeError, CreateError, DeleteError, Entry, Hierarchy, Isolate, ListLru, Node, Registration, Scope, Shrink, Tenant,
};

/// A cache of charged objects: what is on its lists, and nothing else.
struct Cache {
    lru: ListLru<Charge>,
    batch: usize,
}

impl Shrink for Cache {
    fn count(&self, scope: &Scope<'_>) -> usize {
        self.lru.count_one(scope.tenant, scope.node)
    }

    fn scan(&self, scope: &Scope<'_>, objects: usize) -> Option<usize> {
        Some(self.lru.walk_one(scope.tenant, scope.node, objects, |_| Isolate::Removed))
    }

    fn batch(&self) -> usize {
        self.batch
    }
}

impl Cache {
    fn new(hierarchy: &Hierarchy, batch: usize) -> (Arc<Self>, Registration) {
        let cache = Arc::new(Self { lru: ListLru::for_tenants(hierarchy), batch });
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
        Node::all().map(|node| self.lru.count_one(tenant, node)).sum()
    }
}

#[test]
fn charges_add_up_and_are_given_back() {
    let hierarchy = Hierarchy::new();
    let parent = hierarchy.root().create().unwrap();
    let (left, right) = (parent.create().unwrap(), parent.create().unwrap());
    let mut charges = Vec::new();
    for size in [1, 100, 5_000, 16 << 10, 100_000] {
        charges.push(left.charge(size).unwrap());
        charges.push(right.charge(2 * size).unwrap());
    }
    let all = 1 + 100 + 5_000 + (16 << 10) + 100_000;
    assert_eq!((left.usage(), right.usage(), parent.usage(), hierarchy.root().usage()), (all, 2 * all, 3 * all, 3 * all));
    let mut first = charges.swap_remove(0);
    first.resize(1_000).unwrap();
    assert_eq!((first.bytes(), left.usage()), (1_000, all + 999));
    first.resize(0).unwrap();
    assert_eq!((first.resize(1), left.usage()), (Err(ChargeError::NoTenant), all - 1));
    drop(charges);
    assert_eq!((parent.usage(), hierarchy.root().usage()), (0, 0));
    assert!(hierarchy.root().statistics().peak >= 3 * all);
    assert_eq!(left.charge(usize::MAX).unwrap_err(), ChargeError::TooLarge);
    drop(left.charge(0).unwrap());
}

#[test]
fn many_threads_charge_one_tenant() {
    let hierarchy = Hierarchy::new();
    let tenants: Vec<_> = (0..6).map(|_| hierarchy.root().create().unwrap()).collect();
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    thread::scope(|scope| {
        for first in 0..4 {
            let tenants = &tenants;
            scope.spawn(move || {
                let mut held = VecDeque::new();
                for round in 0..rounds {
                    held.push_back(tenants[(first + round) % tenants.len()].charge(1 + round % 9_000).unwrap());
                    if held.len() > 20 {
                        held.pop_front();
                    }
                }
            });
        }
    });
    assert_eq!((hierarchy.root().usage(), tenants.iter().map(Tenant::usage).sum::<u64>()), (0, 0));
}

#[test]
fn a_charge_outlives_its_tenant() {
    let hierarchy = Hierarchy::new();
    let parent = hierarchy.root().create().unwrap();
    let child = parent.create().unwrap();
    let (explicit, implicit) = (child.charge(1_000).unwrap(), parent.create().unwrap().charge(2_000).unwrap());
    child.delete().unwrap();
    child.delete().unwrap();
    assert_eq!((child.usage(), parent.usage()), (1_000, 3_000));
    let late = child.charge(500).unwrap();
    assert_eq!((child.usage(), parent.usage()), (1_000, 3_500), "a deleted tenant's charges are its parent's");
    assert_eq!(child.create().unwrap_err(), CreateError::ParentDeleted);
    drop(child);
    drop((explicit, implicit));
    assert_eq!(parent.usage(), 500);
    drop((parent, hierarchy));
    drop(late);
}

#[test]
fn what_cannot_be_deleted_says_why() {
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
fn past_max_a_charge_makes_room_or_fails() {
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
        statistics.objects_reclaimed >= OBJECTS - 100 && statistics.max_events > 0 && statistics.failed_charges == 0,
        "{statistics:?}"
    );
    assert!(matches!(tenant.charge(100_001), Err(ChargeError::OverLimit { max: 100_000, .. })));
    // What nobody can reclaim.
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
fn limits_of_ancestors_count() {
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
    assert_eq!(1_000 * (cache.objects(&one) + cache.objects(&other)) as u64, parent.usage());
}

/// A floods, B lives below its min: B loses nothing, whoever's limit is met.
#[test]
fn a_flood_takes_nothing_from_who_is_below_its_min() {
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy, 32);
    let (a, b, c) = (hierarchy.root().create().unwrap(), hierarchy.root().create().unwrap(), hierarchy.root().create().unwrap());
    hierarchy.root().set_max(400_000);
    a.set_max(200_000);
    b.set_min(100_000);
    c.set_low(100_000);
    (0..90).for_each(|_| cache.insert(&b, 1_000).unwrap());
    (0..90).for_each(|_| cache.insert(&c, 1_000).unwrap());
    (0..if cfg!(miri) { 250 } else { 2_000 }).for_each(|_| cache.insert(&a, 1_000).unwrap());
    assert_eq!((cache.objects(&b), cache.objects(&c)), (90, 90));
    assert_eq!((b.usage(), b.statistics().objects_reclaimed), (90_000, 0));
    // The whole machine is short of memory; and now nothing else can be had, so low gives way, and min does not.
    a.set_max(0);
    assert_eq!(a.usage(), 0);
    hierarchy.relieve_to(0);
    assert_eq!((cache.objects(&b), cache.objects(&c)), (90, 0));
    assert!(c.statistics().low_events > 0 && b.statistics().low_events == 0);
    // Its own limit is no exception for itself.
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
    hierarchy.relieve_to(0);
    // 60,000 for two that claim 80,000 and 40,000.
    assert_eq!((one.usage(), other.usage()), (40_000, 20_000));
}

#[test]
fn past_high_the_background_reclaims() {
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

/// Who charges does what the background would.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn past_high_without_a_thread_the_charging_one_reclaims() {
    if !common::is_child() {
        return common::child("past_high_without_a_thread_the_charging_one_reclaims").well();
    }
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy, 8);
    let tenant = hierarchy.root().create().unwrap();
    (0..200).for_each(|_| cache.insert(&tenant, 1_000).unwrap());
    assert_eq!(tenant.usage(), 200_000, "there is no limit yet");
    common::without_new_threads(|| {
        tenant.set_high(100_000);
        assert!(tenant.usage() <= 100_000, "{} when it has come back", tenant.usage());
    });
    assert!(tenant.statistics().high_events > 0);
}

#[test]
fn a_reclaim_takes_what_is_asked_for_and_no_more_than_there_is() {
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy, 8);
    let (tenant, other) = (hierarchy.root().create().unwrap(), hierarchy.root().create().unwrap());
    for _ in 0..100 {
        cache.insert(&tenant, 1_000).unwrap();
        cache.insert(&other, 1_000).unwrap();
    }
    let fallen = tenant.reclaim(30_000);
    assert!((30_000..100_000).contains(&fallen), "{fallen}: a few batches at most more than was asked for");
    assert_eq!((tenant.usage(), cache.objects(&tenant) as u64), (100_000 - fallen, 100 - fallen / 1_000));
    assert_eq!(tenant.reclaim(u64::MAX), 100_000 - fallen);
    assert_eq!((cache.objects(&tenant), cache.objects(&other)), (0, 100), "another's is none of its business");
    assert_eq!(tenant.reclaim(1), 0, "nothing is left");
}

#[test]
fn inside_a_section_nothing_is_reclaimed() {
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

/// What is reclaimed is freed only after a grace period: the charge waits for that.
#[test]
fn a_charge_waits_for_what_is_freed_after_a_grace_period() {
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
                assert!(cache.0.add(&tenant, Arc::new(Entry::new(Mutex::new(Some(charge))))));
            }
            Err(error) => assert!(matches!(error, ChargeError::OverLimit { .. }), "{error}"),
        }
    }
    assert!(met > 100, "{met}");
}

/// What a test wants of a shrinker.
#[derive(Default)]
struct Odd {
    count: AtomicUsize,
    scans: AtomicUsize,
    scanned: AtomicUsize,
    panics: AtomicBool,
    stops: AtomicBool,
    frees: AtomicUsize,
    inside: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Shrink for Odd {
    fn count(&self, _scope: &Scope<'_>) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn scan(&self, _scope: &Scope<'_>, objects: usize) -> Option<usize> {
        self.scans.fetch_add(1, Ordering::SeqCst);
        self.scanned.fetch_add(objects, Ordering::SeqCst);
        self.inside.get().iter().for_each(|inside| inside());
        assert!(!self.panics.load(Ordering::SeqCst), "expected");
        (!self.stops.load(Ordering::SeqCst)).then(|| self.frees.load(Ordering::SeqCst))
    }

    fn per_tenant(&self) -> bool {
        false
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_shrinker_that_lies_panics_or_stops_ends_the_pass() {
    let hierarchy = Hierarchy::new();
    let odd = Arc::new(Odd::default());
    let registration = hierarchy.register(Arc::clone(&odd)).unwrap();
    let relieve = || {
        odd.scans.store(0, Ordering::SeqCst);
        let relieved = hierarchy.relieve();
        (odd.scans.load(Ordering::SeqCst), relieved.objects)
    };
    assert_eq!(relieve(), (0, 0), "nothing to free");
    odd.count.store(usize::MAX, Ordering::SeqCst);
    let (scans, objects) = relieve();
    assert!(scans > 0 && objects == 0, "it promised everything and freed nothing");
    assert!(scans <= 11 * (1 << 20) / 128, "a million objects for each priority");
    odd.frees.store(usize::MAX, Ordering::SeqCst);
    let (scans, objects) = relieve();
    assert_eq!(objects, 128 * scans as u64, "it cannot have freed more than it was asked about");
    odd.stops.store(true, Ordering::SeqCst);
    assert_eq!(relieve(), (11, 0), "once for each priority");
    odd.panics.store(true, Ordering::SeqCst);
    assert_eq!(relieve(), (11, 0));
    assert_eq!(registration.panics(), 11);
}

#[test]
fn a_pass_asks_in_proportion_and_puts_off_what_is_too_little() {
    let hierarchy = Hierarchy::new();
    let odd = Arc::new(Odd::default());
    let _registration = hierarchy.register(Arc::clone(&odd)).unwrap();
    odd.count.store(1000, Ordering::SeqCst);
    hierarchy.relieve();
    // Priorities 12 to 2: 0, 0, 2, 6, 14, 30, 62, 124, 250, ... by halves, and what was put off shifted likewise; in batches of 128.
    let scanned = odd.scanned.load(Ordering::SeqCst);
    assert!((500..=1500).contains(&scanned) && scanned % 128 == 0, "{scanned}");
}

/// Objects that are all freed when they are asked for, at a cost.
struct Stock {
    left: AtomicUsize,
    seeks: u32,
}

impl Shrink for Stock {
    fn count(&self, _scope: &Scope<'_>) -> usize {
        self.left.load(Ordering::SeqCst)
    }

    fn scan(&self, _scope: &Scope<'_>, objects: usize) -> Option<usize> {
        let freed = objects.min(self.left.load(Ordering::SeqCst));
        self.left.fetch_sub(freed, Ordering::SeqCst);
        Some(freed)
    }

    fn seeks(&self) -> u32 {
        self.seeks
    }

    fn per_tenant(&self) -> bool {
        false
    }
}

#[test]
fn relieve_frees_what_it_says_where_nothing_is_charged() {
    // 1 - 1/2 * 3/4 * 7/8 * ..., and the same without the first factor; at no cost half of the rest, eleven times.
    for (seeks, hundredths) in [(2, 70..=72), (4, 41..=43), (0, 99..=100)] {
        let hierarchy = Hierarchy::new();
        let stock = Arc::new(Stock { left: AtomicUsize::new(1_000_000), seeks });
        let _registration = hierarchy.register(Arc::clone(&stock)).unwrap();
        let freed = hierarchy.relieve().objects as usize;
        assert_eq!(freed, 1_000_000 - stock.left.load(Ordering::SeqCst));
        assert!(hundredths.contains(&(freed / 10_000)), "at a cost of {seeks}: {freed}");
    }
}

#[test]
fn a_shrinker_that_charges_reclaims_and_leaves() {
    let hierarchy = Hierarchy::new();
    let odd = Arc::new(Odd { count: AtomicUsize::new(1000), ..Odd::default() });
    let tenant = hierarchy.root().create().unwrap();
    tenant.set_max(0);
    let registration = Arc::new(Mutex::new(Some(hierarchy.register(Arc::clone(&odd)).unwrap())));
    let (inner, kept) = (hierarchy.clone(), Arc::clone(&registration));
    let inside = move || {
        assert_eq!(tenant.charge(1).unwrap_err(), ChargeError::OverLimit { requested: 1, usage: 0, max: 0 });
        tenant.set_max(10);
        let _held = tenant.charge(10).unwrap();
        assert_eq!(tenant.charge(1).unwrap_err(), ChargeError::InShrinker);
        tenant.set_max(0);
        assert_eq!(inner.relieve().objects, 0, "a pass within the pass");
        drop(kept.lock().unwrap().take());
    };
    assert!(odd.inside.set(Box::new(inside)).is_ok());
    returns(move || hierarchy.relieve());
    assert!(registration.lock().unwrap().is_none());
    assert_eq!(odd.scans.load(Ordering::SeqCst), 1, "it has left in its first call");
}

#[test]
fn leaving_waits_for_calls_under_way() {
    let hierarchy = Hierarchy::new();
    let running = Arc::new(AtomicUsize::new(0));
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let over = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let _over = common::Over(&over);
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    hierarchy.relieve();
                }
            });
        }
        for _ in 0..rounds {
            let odd = Arc::new(Odd { count: AtomicUsize::new(1000), ..Odd::default() });
            let calls = Arc::clone(&running);
            let inside = move || {
                calls.fetch_add(1, Ordering::SeqCst);
                thread::yield_now();
                calls.fetch_sub(1, Ordering::SeqCst);
            };
            assert!(odd.inside.set(Box::new(inside)).is_ok());
            let registration = hierarchy.register(Arc::clone(&odd)).unwrap();
            eventually(|| odd.scans.load(Ordering::SeqCst) > 0);
            drop(registration);
            assert_eq!(running.load(Ordering::SeqCst), 0, "a call is under way");
            let scans = odd.scans.load(Ordering::SeqCst);
            thread::yield_now();
            assert_eq!(odd.scans.load(Ordering::SeqCst), scans, "a call has begun");
        }
    });
}

/// Items of before and after the shrinker learnt of the lists, of tenants that have gone: the bits lead to all of them.
#[test]
fn no_item_is_overlooked() {
    let hierarchy = Hierarchy::new();
    let cache = Arc::new(Cache { lru: ListLru::for_tenants(&hierarchy), batch: 1 });
    let tenants: Vec<_> = (0..5).map(|_| hierarchy.root().create().unwrap()).collect();
    let nested = tenants[0].create().unwrap();
    cache.insert(&tenants[1], 100).unwrap();
    let registration = hierarchy.register(Arc::clone(&cache)).unwrap();
    registration.covers(&cache.lru);
    tenants[2..4].iter().for_each(|tenant| cache.insert(tenant, 100).unwrap());
    cache.insert(&nested, 100).unwrap();
    nested.delete().unwrap();
    assert_eq!(cache.objects(&tenants[0]), 1);
    hierarchy.relieve_to(0);
    assert_eq!((cache.lru.count(), hierarchy.root().usage()), (0, 0));
    // Empty lists' bits are clear by now; they are set again.
    tenants.iter().for_each(|tenant| cache.insert(tenant, 100).unwrap());
    hierarchy.relieve_to(0);
    assert_eq!(cache.lru.count(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn there_is_an_end_to_shrinkers() {
    let hierarchy = Hierarchy::new();
    let mut registrations: Vec<_> = (0..1024).map(|_| hierarchy.register(Arc::new(Odd::default())).unwrap()).collect();
    let error = hierarchy.register(Arc::new(Odd::default())).unwrap_err();
    assert!(error.to_string().contains("1024"));
    registrations.pop();
    drop(hierarchy.register(Arc::new(Odd::default())).unwrap());
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn charges_past_all_numbers_are_refused() {
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    // Refused, or 2^48 each; a count that wrapped would free the tenant under its charges.
    assert!(matches!(tenant.charge(1 << 52), Err(ChargeError::TooLarge | ChargeError::OverLimit { .. })));
    let charges: Vec<_> = (0..40_000).map_while(|_| tenant.charge(1 << 48).ok()).collect();
    assert!(charges.len() < 20_000, "{} of 2^48 bytes", charges.len());
    drop(tenant);
    stillpoint::synchronize();
    drop(charges);
}

#[test]
fn a_charge_may_be_the_last_of_its_tenant() {
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    let charge = tenant.charge(100_000).unwrap();
    drop(tenant);
    assert_eq!(hierarchy.root().usage(), 100_000);
    drop(charge);
}

/// Says that it has nothing while it is busy.
struct Busy {
    lru: ListLru<()>,
    busy: AtomicBool,
    asked: AtomicUsize,
}

impl Shrink for Busy {
    fn count(&self, scope: &Scope<'_>) -> usize {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.busy.load(Ordering::SeqCst) { 0 } else { self.lru.count_one(scope.tenant, scope.node) }
    }

    fn scan(&self, scope: &Scope<'_>, objects: usize) -> Option<usize> {
        Some(self.lru.walk_one(scope.tenant, scope.node, objects, |_| Isolate::Removed))
    }
}

#[test]
fn a_shrinker_that_was_busy_once_is_asked_again() {
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    let busy = Arc::new(Busy { lru: ListLru::for_tenants(&hierarchy), busy: AtomicBool::new(true), asked: AtomicUsize::new(0) });
    let registration = hierarchy.register(Arc::clone(&busy)).unwrap();
    registration.covers(&busy.lru);
    for _ in 0..100 {
        busy.lru.add(&tenant, Arc::new(Entry::new(())));
    }
    let _ = hierarchy.relieve();
    let asked = busy.asked.load(Ordering::SeqCst);
    assert!(asked > 0);
    busy.busy.store(false, Ordering::SeqCst);
    let _ = hierarchy.relieve();
    assert!(busy.asked.load(Ordering::SeqCst) > asked, "it was not asked again");
}

#[test]
fn a_lru_tells_one_shrinker_at_a_time() {
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    let (cache, first) = Cache::new(&hierarchy, 1);
    first.covers(&cache.lru);
    let second = hierarchy.register(Arc::clone(&cache)).unwrap();
    let refused = panic::catch_unwind(AssertUnwindSafe(|| second.covers(&cache.lru))).unwrap_err();
    assert!(refused.downcast_ref::<&str>().unwrap().contains("covered by another registration"));
    drop(first);
    second.covers(&cache.lru);
    cache.insert(&tenant, 100).unwrap();
    hierarchy.relieve_to(0);
    assert_eq!(cache.lru.count(), 0, "the second is asked");
}
