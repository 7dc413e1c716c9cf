//! Shrinkers: how they are asked, and that the library survives what they do: panic, end their
//! registration, and call the library.

mod setup;

use setup::{
    Cache, children,
    common::{self, eventually, expected_panic, panic_message, returns},
};
use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};
use stillpoint_lru::{ChargeError, Entry, Hierarchy, ListLru, Registration, Scope, Shrink};

/// A shrinker that answers what a test wants, and runs the test's code inside its functions.
#[derive(Default)]
struct Odd {
    count: AtomicUsize,
    frees: AtomicUsize,
    stops: AtomicBool,
    scanned: AtomicUsize,
    inside: OnceLock<Box<dyn Fn(&'static str) + Send + Sync>>,
    calls: Mutex<Vec<&'static str>>,
    per_tenant: bool,
    _end: End,
}

impl Odd {
    /// A shrinker of tenants that promises everything, and frees nothing.
    fn of_tenants(inside: impl Fn(&'static str) + Send + Sync + 'static) -> Arc<Self> {
        Self {
            per_tenant: true,
            ..Self::of_all(usize::MAX)
        }
        .running(inside)
    }

    fn of_all(count: usize) -> Self {
        Self {
            count: count.into(),
            ..Self::default()
        }
    }

    fn running(self, inside: impl Fn(&'static str) + Send + Sync + 'static) -> Arc<Self> {
        assert!(self.inside.set(Box::new(inside)).is_ok());
        Arc::new(self)
    }

    fn call(&self, name: &'static str) {
        self.calls.lock().unwrap().push(name);
        self.inside.get().iter().for_each(|inside| inside(name));
    }

    fn calls_of(&self, name: &str) -> usize {
        self.calls
            .lock()
            .unwrap()
            .iter()
            .filter(|call| **call == name)
            .count()
    }
}

impl Shrink for Odd {
    fn count(&self, _scope: &Scope<'_>) -> usize {
        self.call("count");
        self.count.load(Ordering::SeqCst)
    }

    fn scan(&self, _scope: &Scope<'_>, objects: usize) -> Option<usize> {
        self.scanned.fetch_add(objects, Ordering::SeqCst);
        self.call("scan");
        (!self.stops.load(Ordering::SeqCst)).then(|| self.frees.load(Ordering::SeqCst))
    }

    fn seeks(&self) -> u32 {
        self.call("seeks");
        2
    }

    fn batch(&self) -> usize {
        self.call("batch");
        128
    }

    fn per_tenant(&self) -> bool {
        self.call("per_tenant");
        self.per_tenant
    }
}

/// Panics in its destructor if the field is true.
#[derive(Default)]
struct End(bool);

impl Drop for End {
    fn drop(&mut self) {
        if self.0 {
            expected_panic();
        }
    }
}

/// A registration that a shrinker's own code may end.
type Kept = Arc<Mutex<Option<Registration>>>;

fn register(hierarchy: &Hierarchy, odd: &Arc<Odd>, kept: &Kept) {
    *kept.lock().unwrap() = Some(hierarchy.register(Arc::clone(odd)).unwrap());
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn misbehaving_shrinker_ends_its_scan() {
    let hierarchy = Hierarchy::new();
    let panics = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&panics);
    let inside = move |name| assert!(name != "scan" || !told.load(Ordering::SeqCst), "expected");
    let odd = Odd::of_all(0).running(inside);
    let registration = hierarchy.register(Arc::clone(&odd)).unwrap();
    let reclaim = || {
        odd.calls.lock().unwrap().clear();
        let reclaimed = hierarchy.reclaim();
        (odd.calls_of("scan"), reclaimed.objects)
    };
    assert_eq!(reclaim(), (0, 0), "nothing to free");
    odd.count.store(usize::MAX, Ordering::SeqCst);
    let (scans, objects) = reclaim();
    assert!(
        scans > 0 && objects == 0,
        "it promised everything and freed nothing"
    );
    assert!(
        scans <= 11 * (1 << 20) / 128,
        "a million objects for each priority"
    );
    odd.frees.store(usize::MAX, Ordering::SeqCst);
    let (scans, objects) = reclaim();
    assert_eq!(
        objects,
        128 * scans as u64,
        "it cannot have freed more than it was asked about"
    );
    odd.stops.store(true, Ordering::SeqCst);
    assert_eq!(reclaim(), (11, 0), "once for each priority");
    panics.store(true, Ordering::SeqCst);
    assert_eq!(reclaim(), (11, 0));
    assert_eq!(registration.panics(), 11);
}

#[test]
fn scan_is_proportional_and_defers_small_batches() {
    let hierarchy = Hierarchy::new();
    let odd = Arc::new(Odd::of_all(1000));
    let _registration = hierarchy.register(Arc::clone(&odd)).unwrap();
    hierarchy.reclaim();
    // Priorities 12 to 2: 0, 0, 2, 6, 14, 30, 62, 124, 250, ..., and the deferred work, shifted by
    // the priority; in batches of 128.
    let scanned = odd.scanned.load(Ordering::SeqCst);
    assert!(
        (500..=1500).contains(&scanned) && scanned.is_multiple_of(128),
        "{scanned}"
    );
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
fn reclaim_without_charges() {
    // 1 - 1/2 * 3/4 * 7/8 * ..., and the same without the first factor; at no cost half of the
    // rest, eleven times.
    for (seeks, hundredths) in [(2, 70..=72), (4, 41..=43), (0, 99..=100)] {
        let hierarchy = Hierarchy::new();
        let stock = Arc::new(Stock {
            left: AtomicUsize::new(1_000_000),
            seeks,
        });
        let _registration = hierarchy.register(Arc::clone(&stock)).unwrap();
        let freed = hierarchy.reclaim().objects as usize;
        assert_eq!(freed, 1_000_000 - stock.left.load(Ordering::SeqCst));
        assert!(
            hundredths.contains(&(freed / 10_000)),
            "at a cost of {seeks}: {freed}"
        );
    }
}

#[test]
fn shrinker_that_charges_reclaims_and_unregisters() {
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    tenant.set_max(0);
    let registration = Kept::default();
    let (inner, kept) = (hierarchy.clone(), Arc::clone(&registration));
    let odd = Odd::of_all(1000).running(move |name| {
        if name != "scan" {
            return;
        }
        let refused = tenant.charge(1).unwrap_err();
        assert_eq!(
            refused,
            ChargeError::OverLimit {
                requested: 1,
                usage: 0,
                max: 0
            }
        );
        tenant.set_max(10);
        let _held = tenant.charge(10).unwrap();
        assert_eq!(tenant.charge(1).unwrap_err(), ChargeError::InShrinker);
        tenant.set_max(0);
        assert_eq!(inner.reclaim().objects, 0, "a pass within the pass");
        drop(kept.lock().unwrap().take());
    });
    register(&hierarchy, &odd, &registration);
    returns(move || hierarchy.reclaim());
    assert!(registration.lock().unwrap().is_none());
    assert_eq!(odd.calls_of("scan"), 1, "it has left in its first call");
}

#[test]
fn unregister_waits_for_calls() {
    let hierarchy = Hierarchy::new();
    let running = Arc::new(AtomicUsize::new(0));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = common::Over(&over);
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    hierarchy.reclaim();
                }
            });
        }
        for _ in 0..if cfg!(miri) { 3 } else { 200 } {
            let calls = Arc::clone(&running);
            let odd = Odd::of_all(1000).running(move |_| {
                calls.fetch_add(1, Ordering::SeqCst);
                thread::yield_now();
                calls.fetch_sub(1, Ordering::SeqCst);
            });
            let registration = hierarchy.register(Arc::clone(&odd)).unwrap();
            eventually(|| odd.calls_of("scan") > 0);
            drop(registration);
            assert_eq!(running.load(Ordering::SeqCst), 0, "a call is under way");
            let scans = odd.calls_of("scan");
            thread::yield_now();
            assert_eq!(odd.calls_of("scan"), scans, "a call has begun");
        }
    });
}

/// The bits lead to all items: added before and after `covers`, and of deleted tenants.
#[test]
fn no_item_behind_a_clear_bit() {
    let hierarchy = Hierarchy::new();
    let cache = Cache::unregistered(&hierarchy, 1);
    let tenants = children::<5>(hierarchy.root());
    let nested = tenants[0].create().unwrap();
    cache.insert(&tenants[1], 100).unwrap();
    let registration = hierarchy.register(Arc::clone(&cache)).unwrap();
    registration.covers(&cache.lru);
    tenants[2..4]
        .iter()
        .for_each(|tenant| cache.insert(tenant, 100).unwrap());
    cache.insert(&nested, 100).unwrap();
    nested.delete().unwrap();
    assert_eq!(cache.objects(&tenants[0]), 1);
    hierarchy.reclaim_to(0);
    assert_eq!((cache.lru.count(), hierarchy.root().usage()), (0, 0));
    // Empty lists' bits are clear by now; they are set again.
    tenants
        .iter()
        .for_each(|tenant| cache.insert(tenant, 100).unwrap());
    hierarchy.reclaim_to(0);
    assert_eq!(cache.lru.count(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn too_many_shrinkers() {
    let hierarchy = Hierarchy::new();
    let mut registrations: Vec<_> = (0..1024)
        .map(|_| hierarchy.register(Arc::new(Odd::default())).unwrap())
        .collect();
    let error = hierarchy.register(Arc::new(Odd::default())).unwrap_err();
    assert!(error.to_string().contains("1024"));
    registrations.pop();
    drop(hierarchy.register(Arc::new(Odd::default())).unwrap());
}

#[test]
fn busy_shrinker_is_asked_again() {
    let hierarchy = Hierarchy::new();
    // It says that it has nothing while it is busy.
    let odd = Odd {
        per_tenant: true,
        ..Odd::of_all(0)
    }
    .running(|_| ());
    let lru = ListLru::for_tenants(&hierarchy);
    let registration = hierarchy.register(Arc::clone(&odd)).unwrap();
    registration.covers(&lru);
    let tenant = hierarchy.root().create().unwrap();
    assert!(lru.add(&tenant, Arc::new(Entry::new(()))));
    let _ = hierarchy.reclaim();
    let asked = odd.calls_of("count");
    assert!(asked > 0);
    let _ = hierarchy.reclaim();
    assert!(odd.calls_of("count") > asked, "it was not asked again");
}

#[test]
fn covers_one_shrinker_at_a_time() {
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    let (cache, first) = Cache::new(&hierarchy, 1);
    first.covers(&cache.lru);
    let second = hierarchy.register(Arc::clone(&cache)).unwrap();
    let refused = panic_message(|| second.covers(&cache.lru));
    assert!(
        refused.contains("covered by another registration"),
        "{refused}"
    );
    drop(first);
    second.covers(&cache.lru);
    cache.insert(&tenant, 100).unwrap();
    hierarchy.reclaim_to(0);
    assert_eq!(cache.lru.count(), 0, "the second is asked");
}

#[test]
fn per_tenant_is_asked_once_by_register() {
    let hierarchy = Hierarchy::new();
    let again = hierarchy.clone();
    // It may call the library: no lock is held meanwhile.
    let odd = Odd::of_tenants(move |name| {
        if name == "per_tenant" {
            drop(again.register(Odd::of_tenants(|_| ())).unwrap());
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
    let calm = Odd::of_tenants(|_| ());
    let registration = hierarchy.register(Arc::clone(&calm)).unwrap();
    hierarchy.reclaim();
    drop(registration);
    assert!(calm.calls_of("scan") > 0 && calm.calls_of("per_tenant") == 1);
}

#[test]
fn unregistering_inside_a_call_ends_the_scan() {
    for (leaves, last) in [
        ("count", &["count"][..]),
        ("batch", &["batch", "seeks"]),
        ("seeks", &["seeks"]),
        ("scan", &["scan"]),
    ] {
        let hierarchy = Hierarchy::new();
        let registration = Kept::default();
        let own = Arc::clone(&registration);
        let odd = Odd::of_tenants(move |name| {
            if name == leaves {
                drop(own.lock().unwrap().take());
            }
        });
        register(&hierarchy, &odd, &registration);
        returns(move || hierarchy.reclaim());
        assert!(
            registration.lock().unwrap().is_none(),
            "{leaves} was called"
        );
        let calls = odd.calls.lock().unwrap();
        let at = calls.iter().position(|name| *name == leaves).unwrap();
        assert_eq!(calls[at..], *last, "after {leaves}");
    }
}

/// The end waits for the other threads' calls, and not for the one that it is in.
#[test]
fn unregistering_inside_a_call_waits_for_other_calls() {
    for _ in 0..if cfg!(miri) { 2 } else { 50 } {
        let hierarchy = Hierarchy::new();
        let registration = Kept::default();
        // Calls that have begun, and those of the other threads that are under way.
        let (begun, leaving) = (AtomicUsize::new(0), AtomicBool::new(false));
        let others = Arc::new(AtomicUsize::new(0));
        let (own, counted) = (Arc::clone(&registration), Arc::clone(&others));
        let odd = Odd::of_tenants(move |_| {
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
        register(&hierarchy, &odd, &registration);
        let threads = [(); 3].map(|()| {
            let hierarchy = hierarchy.clone();
            thread::spawn(move || hierarchy.reclaim())
        });
        returns(move || threads.map(|thread| assert_eq!(thread.join().unwrap().objects, 0)));
        assert!(registration.lock().unwrap().is_none());
        assert_eq!(counted.load(Ordering::SeqCst), 0);
    }
}

/// The background thread goes on whatever shrinkers do: they panic in every function, and in the
/// destructor, which runs on that thread.
#[test]
fn background_survives_panicking_shrinkers() {
    const BYTES: usize = 100_000;
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    let (cache, _registration) = Cache::new(&hierarchy, 1);
    for panics in ["count", "batch", "seeks", "scan", "destructor"] {
        let registration = Kept::default();
        let (own, within) = (Arc::clone(&registration), hierarchy.clone());
        let met = Arc::new(AtomicBool::new(false));
        let (tell, leaves) = (Arc::clone(&met), panics == "destructor");
        let inside = move |name| {
            if leaves && name == "scan" {
                // Calls all functions that lead to reclaim, and ends the registration.
                let other = within.register(Odd::of_tenants(|_| ())).unwrap();
                let child = within.root().create().unwrap();
                child.set_high(0);
                drop(child.charge(10));
                let reclaimed = (within.reclaim().objects, child.reclaim(10));
                assert_eq!(reclaimed, (0, 0), "a pass within the pass");
                drop((other, child, own.lock().unwrap().take()));
                // Waits until this pass is the last that knows the shrinker.
                stillpoint::global().kvfree_barrier();
                tell.store(true, Ordering::SeqCst);
            } else if name == panics {
                tell.store(true, Ordering::SeqCst);
                expected_panic();
            }
        };
        let odd = Odd {
            per_tenant: true,
            _end: End(leaves),
            ..Odd::of_all(usize::MAX)
        };
        register(&hierarchy, &odd.running(inside), &registration);
        for _ in 0..2 {
            tenant.set_high(10 * BYTES as u64);
            (0..50).for_each(|_| cache.insert(&tenant, BYTES).unwrap());
            eventually(|| tenant.usage() <= 10 * BYTES as u64);
        }
        eventually(|| met.load(Ordering::SeqCst));
        drop(registration.lock().unwrap().take());
    }
}
