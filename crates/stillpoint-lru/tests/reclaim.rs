//! Reclaim: how much each tenant gives, and shrinkers that panic, end their registration, and call
//! the library.

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{eventually, expected_panic, panic_message, returns};
use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};
use stillpoint_lru::{
    Charge, Entry, Hierarchy, Isolate, ListLru, Node, Registration, Scope, Shrink, Tenant,
};

/// An object with its charge, and whether it has been used since the last look.
type Object = (Charge, AtomicBool);

struct Cache {
    lru: ListLru<Object>,
    looks: AtomicUsize,
}

impl Shrink for Cache {
    fn count(&self, scope: &Scope<'_>) -> usize {
        self.lru.count_one(scope.tenant, scope.node)
    }

    fn scan(&self, scope: &Scope<'_>, objects: usize) -> Option<usize> {
        Some(
            self.lru
                .walk_one(scope.tenant, scope.node, objects, |object| {
                    self.looks.fetch_add(1, Ordering::SeqCst);
                    if object.1.swap(false, Ordering::SeqCst) {
                        Isolate::Rotate
                    } else {
                        Isolate::Removed
                    }
                }),
        )
    }

    fn batch(&self) -> usize {
        1
    }
}

impl Cache {
    fn new(hierarchy: &Hierarchy) -> (Arc<Self>, Registration) {
        let cache = Arc::new(Self {
            lru: ListLru::for_tenants(hierarchy),
            looks: AtomicUsize::new(0),
        });
        let registration = hierarchy.register(Arc::clone(&cache)).unwrap();
        registration.covers(&cache.lru);
        (cache, registration)
    }

    /// Adds objects that are too large for the stock: the charged bytes are those of the objects.
    fn fill(&self, tenant: &Tenant, objects: usize, used: bool) {
        for _ in 0..objects {
            let object = (
                tenant.charge(BYTES as usize).unwrap(),
                AtomicBool::new(used),
            );
            assert!(self.lru.add(tenant, Arc::new(Entry::new(object))));
        }
    }

    fn objects(&self, tenant: &Tenant) -> usize {
        Node::all()
            .map(|node| self.lru.count_one(tenant, node))
            .sum()
    }
}

const BYTES: u64 = 100_000;
const OBJECTS: usize = if cfg!(miri) { 100 } else { 1_000 };

/// Two tenants use a hundred megabytes each, 90 of one are protected, and 20 are reclaimed. By the
/// overages, 100 and 10, that is 18.2 and 1.8 (in equal parts it would be 10 each). The last round may
/// end before both have been asked.
#[test]
fn siblings_are_reclaimed_by_overage() {
    let limits: [fn(&Tenant, u64); 2] = [Tenant::set_min, Tenant::set_low];
    for limit in limits {
        let hierarchy = Hierarchy::new();
        let (cache, _registration) = Cache::new(&hierarchy);
        let (kept, open) = (
            hierarchy.root().create().unwrap(),
            hierarchy.root().create().unwrap(),
        );
        limit(&kept, OBJECTS as u64 * BYTES * 9 / 10);
        for _ in 0..OBJECTS {
            cache.fill(&kept, 1, false);
            cache.fill(&open, 1, false);
        }
        let fallen = hierarchy.root().reclaim(OBJECTS as u64 * BYTES / 5);
        assert_eq!(fallen, OBJECTS as u64 * BYTES / 5);
        let (of_kept, of_open) = (
            OBJECTS - cache.objects(&kept),
            OBJECTS - cache.objects(&open),
        );
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
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy);
    let tenant = hierarchy.root().create().unwrap();
    cache.fill(&tenant, OBJECTS, false);
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
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy);
    let tenant = hierarchy.root().create().unwrap();
    tenant.set_min(OBJECTS as u64 * BYTES * 9 / 10);
    cache.fill(&tenant, OBJECTS, true);
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
    let hierarchy = Hierarchy::new();
    let (cache, _registration) = Cache::new(&hierarchy);
    let (one, other) = (
        hierarchy.root().create().unwrap(),
        hierarchy.root().create().unwrap(),
    );
    one.set_low(OBJECTS as u64 * BYTES * 9 / 10);
    cache.fill(&one, OBJECTS, true);
    cache.fill(&other, OBJECTS, false);
    // All of the other's goes before anything below the low.
    hierarchy.root().reclaim(OBJECTS as u64 * BYTES * 11 / 10);
    assert_eq!(
        (
            cache.objects(&one),
            cache.objects(&other),
            one.statistics().low_events
        ),
        (OBJECTS * 9 / 10, 0, 0)
    );
    hierarchy.root().reclaim(OBJECTS as u64 * BYTES / 2);
    assert_eq!(
        (cache.objects(&one), one.statistics().low_events),
        (OBJECTS * 4 / 10, 1)
    );
    cache.fill(&other, OBJECTS, true);
    cache.fill(&one, OBJECTS * 6 / 10, true);
    hierarchy.root().reclaim(u64::MAX);
    assert_eq!((cache.objects(&one), cache.objects(&other)), (0, 0));
}

/// A shrinker with which a test runs code inside its functions.
#[derive(Default)]
struct Odd {
    inside: OnceLock<Box<dyn Fn(&'static str) + Send + Sync>>,
    calls: Mutex<Vec<&'static str>>,
    explodes: bool,
}

impl Odd {
    fn new(inside: impl Fn(&'static str) + Send + Sync + 'static) -> Arc<Self> {
        let odd = Self::default();
        assert!(odd.inside.set(Box::new(inside)).is_ok());
        Arc::new(odd)
    }

    fn call(&self, name: &'static str) {
        self.calls.lock().unwrap().push(name);
        self.inside.get().iter().for_each(|inside| inside(name));
    }
}

impl Shrink for Odd {
    fn count(&self, _scope: &Scope<'_>) -> usize {
        self.call("count");
        100_000
    }

    fn scan(&self, _scope: &Scope<'_>, _objects: usize) -> Option<usize> {
        self.call("scan");
        Some(0)
    }

    fn seeks(&self) -> u32 {
        self.call("seeks");
        2
    }

    fn batch(&self) -> usize {
        self.call("batch");
        16
    }

    fn per_tenant(&self) -> bool {
        self.call("per_tenant");
        true
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        if self.explodes {
            expected_panic();
        }
    }
}

#[test]
fn per_tenant_is_asked_once_by_register() {
    let hierarchy = Hierarchy::new();
    let again = hierarchy.clone();
    // It may call the library: no lock is held meanwhile.
    let odd = Odd::new(move |name| {
        if name == "per_tenant" {
            drop(again.register(Odd::new(|_| ())).unwrap());
            expected_panic();
        }
    });
    let message = returns({
        let (hierarchy, odd) = (hierarchy.clone(), Arc::clone(&odd));
        move || panic_message(|| hierarchy.register(odd))
    });
    assert_eq!(message, "expected");
    assert_eq!(*odd.calls.lock().unwrap(), ["per_tenant"]);
    hierarchy.reclaim();
    let calm = Odd::new(|_| ());
    let registration = hierarchy.register(Arc::clone(&calm)).unwrap();
    hierarchy.reclaim();
    drop(registration);
    let calls = calm.calls.lock().unwrap();
    assert!(
        calls.contains(&"scan") && calls.iter().filter(|&&name| name == "per_tenant").count() == 1
    );
}

#[test]
fn unregistering_inside_a_call_ends_the_scan() {
    for (leaves, then) in [
        ("count", vec!["per_tenant", "count"]),
        ("batch", vec!["per_tenant", "count", "batch", "seeks"]),
        ("seeks", vec!["per_tenant", "count", "batch", "seeks"]),
        (
            "scan",
            vec!["per_tenant", "count", "batch", "seeks", "scan"],
        ),
    ] {
        let hierarchy = Hierarchy::new();
        let registration: Arc<Mutex<Option<Registration>>> = Arc::default();
        let own = Arc::clone(&registration);
        let odd = Odd::new(move |name| {
            if name == leaves {
                drop(own.lock().unwrap().take());
            }
        });
        let quiet = |calls: Vec<_>| {
            calls
                .into_iter()
                .skip_while(|name| *name != leaves)
                .collect::<Vec<_>>()
        };
        *registration.lock().unwrap() = Some(hierarchy.register(Arc::clone(&odd)).unwrap());
        returns({
            let hierarchy = hierarchy.clone();
            move || hierarchy.reclaim()
        });
        assert!(
            registration.lock().unwrap().is_none(),
            "{leaves} was called"
        );
        let calls = odd.calls.lock().unwrap().clone();
        let last = then.iter().position(|name| *name == leaves).unwrap();
        assert_eq!(quiet(calls), then[last..], "after {leaves}");
    }
}

/// The end waits for the other threads' calls, and not for the one that it is in.
#[test]
fn unregistering_inside_a_call_waits_for_other_calls() {
    for _ in 0..if cfg!(miri) { 2 } else { 50 } {
        let hierarchy = Hierarchy::new();
        let registration: Arc<Mutex<Option<Registration>>> = Arc::default();
        // Calls that have begun, and those of the other threads that are under way.
        let (begun, others, leaving) = (
            AtomicUsize::new(0),
            Arc::new(AtomicUsize::new(0)),
            AtomicBool::new(false),
        );
        let (own, counted) = (Arc::clone(&registration), Arc::clone(&others));
        let odd = Odd::new(move |_| {
            if begun.fetch_add(1, Ordering::SeqCst) == 1 {
                eventually(|| others.load(Ordering::SeqCst) == 2);
                leaving.store(true, Ordering::SeqCst);
                drop(own.lock().unwrap().take());
                assert_eq!(others.load(Ordering::SeqCst), 0, "a call is under way");
            } else {
                others.fetch_add(1, Ordering::SeqCst);
                eventually(|| leaving.load(Ordering::SeqCst) || begun.load(Ordering::SeqCst) == 1);
                thread::yield_now();
                others.fetch_sub(1, Ordering::SeqCst);
            }
        });
        *registration.lock().unwrap() = Some(hierarchy.register(Arc::clone(&odd)).unwrap());
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let hierarchy = hierarchy.clone();
                thread::spawn(move || hierarchy.reclaim())
            })
            .collect();
        returns(move || {
            threads
                .into_iter()
                .for_each(|thread| assert_eq!(thread.join().unwrap().objects, 0))
        });
        assert!(registration.lock().unwrap().is_none());
        assert_eq!(
            (counted.load(Ordering::SeqCst), odd.calls.lock().unwrap()[0]),
            (0, "per_tenant")
        );
    }
}

/// The background thread goes on whatever shrinkers do: they panic in every function, and in the
/// destructor, which runs on that thread.
#[test]
fn background_survives_panicking_shrinkers() {
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    let (cache, _registration) = Cache::new(&hierarchy);
    for panics in ["count", "batch", "seeks", "scan", "destructor"] {
        let registration: Arc<Mutex<Option<Registration>>> = Arc::default();
        let (own, within, leaves) = (
            Arc::clone(&registration),
            hierarchy.clone(),
            panics == "destructor",
        );
        let met = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&met);
        let mut odd = Odd::default();
        odd.explodes = leaves;
        let inside = move |name| {
            if leaves && name == "scan" {
                // Calls all functions that lead to reclaim, and ends the registration.
                let other = within.register(Odd::new(|_| ())).unwrap();
                let child = within.root().create().unwrap();
                child.set_high(0);
                drop(child.charge(10));
                assert_eq!(
                    (within.reclaim().objects, child.reclaim(10)),
                    (0, 0),
                    "a pass within the pass"
                );
                drop((other, child, own.lock().unwrap().take()));
                // Waits until this pass is the last that knows the shrinker.
                stillpoint::global().kvfree_barrier();
                tell.store(true, Ordering::SeqCst);
            } else if name == panics {
                tell.store(true, Ordering::SeqCst);
                expected_panic();
            }
        };
        assert!(odd.inside.set(Box::new(inside)).is_ok());
        *registration.lock().unwrap() = Some(hierarchy.register(Arc::new(odd)).unwrap());
        for _ in 0..2 {
            tenant.set_high(10 * BYTES);
            cache.fill(&tenant, 50, false);
            eventually(|| tenant.usage() <= 10 * BYTES);
        }
        eventually(|| met.load(Ordering::SeqCst));
        drop(registration.lock().unwrap().take());
    }
}
