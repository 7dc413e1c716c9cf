//! Shrinkers: how they are asked, and that the library survives what they do.

use super::*;

/// A shrinker that answers what a test wants.
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
fn misbehaving_shrinker_ends_its_scan() {
    let hierarchy = Hierarchy::new();
    let odd = Arc::new(Odd::default());
    let registration = hierarchy.register(Arc::clone(&odd)).unwrap();
    let reclaim = || {
        odd.scans.store(0, Ordering::SeqCst);
        let reclaimed = hierarchy.reclaim();
        (odd.scans.load(Ordering::SeqCst), reclaimed.objects)
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
    odd.panics.store(true, Ordering::SeqCst);
    assert_eq!(reclaim(), (11, 0));
    assert_eq!(registration.panics(), 11);
}

#[test]
fn scan_is_proportional_and_defers_small_batches() {
    let hierarchy = Hierarchy::new();
    let odd = Arc::new(Odd::default());
    let _registration = hierarchy.register(Arc::clone(&odd)).unwrap();
    odd.count.store(1000, Ordering::SeqCst);
    hierarchy.reclaim();
    // Priorities 12 to 2: 0, 0, 2, 6, 14, 30, 62, 124, 250, ..., and the deferred work, shifted by
    // the priority; in batches of 128.
    let scanned = odd.scanned.load(Ordering::SeqCst);
    assert!(
        (500..=1500).contains(&scanned) && scanned % 128 == 0,
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
    let odd = Arc::new(Odd {
        count: AtomicUsize::new(1000),
        ..Odd::default()
    });
    let tenant = hierarchy.root().create().unwrap();
    tenant.set_max(0);
    let registration = Arc::new(Mutex::new(Some(
        hierarchy.register(Arc::clone(&odd)).unwrap(),
    )));
    let (inner, kept) = (hierarchy.clone(), Arc::clone(&registration));
    let inside = move || {
        assert_eq!(
            tenant.charge(1).unwrap_err(),
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
    };
    assert!(odd.inside.set(Box::new(inside)).is_ok());
    returns(move || hierarchy.reclaim());
    assert!(registration.lock().unwrap().is_none());
    assert_eq!(
        odd.scans.load(Ordering::SeqCst),
        1,
        "it has left in its first call"
    );
}

#[test]
fn unregister_waits_for_calls() {
    let hierarchy = Hierarchy::new();
    let running = Arc::new(AtomicUsize::new(0));
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let over = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let _over = common::Over(&over);
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    hierarchy.reclaim();
                }
            });
        }
        for _ in 0..rounds {
            let odd = Arc::new(Odd {
                count: AtomicUsize::new(1000),
                ..Odd::default()
            });
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

/// The bits lead to all items: added before and after `covers`, and of deleted tenants.
#[test]
fn no_item_behind_a_clear_bit() {
    let hierarchy = Hierarchy::new();
    let cache = Arc::new(Cache {
        lru: ListLru::for_tenants(&hierarchy),
        batch: 1,
    });
    let tenants: Vec<_> = (0..5).map(|_| hierarchy.root().create().unwrap()).collect();
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

/// A shrinker that says that it has nothing while it is busy.
struct Busy {
    lru: ListLru<()>,
    busy: AtomicBool,
    asked: AtomicUsize,
}

impl Shrink for Busy {
    fn count(&self, scope: &Scope<'_>) -> usize {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.busy.load(Ordering::SeqCst) {
            0
        } else {
            self.lru.count_one(scope.tenant, scope.node)
        }
    }

    fn scan(&self, scope: &Scope<'_>, objects: usize) -> Option<usize> {
        Some(
            self.lru
                .walk_one(scope.tenant, scope.node, objects, |_| Isolate::Removed),
        )
    }
}

#[test]
fn busy_shrinker_is_asked_again() {
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    let busy = Arc::new(Busy {
        lru: ListLru::for_tenants(&hierarchy),
        busy: AtomicBool::new(true),
        asked: AtomicUsize::new(0),
    });
    let registration = hierarchy.register(Arc::clone(&busy)).unwrap();
    registration.covers(&busy.lru);
    for _ in 0..100 {
        busy.lru.add(&tenant, Arc::new(Entry::new(())));
    }
    let _ = hierarchy.reclaim();
    let asked = busy.asked.load(Ordering::SeqCst);
    assert!(asked > 0);
    busy.busy.store(false, Ordering::SeqCst);
    let _ = hierarchy.reclaim();
    assert!(
        busy.asked.load(Ordering::SeqCst) > asked,
        "it was not asked again"
    );
}

#[test]
fn covers_one_shrinker_at_a_time() {
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    let (cache, first) = Cache::new(&hierarchy, 1);
    first.covers(&cache.lru);
    let second = hierarchy.register(Arc::clone(&cache)).unwrap();
    let refused = panic::catch_unwind(AssertUnwindSafe(|| second.covers(&cache.lru))).unwrap_err();
    assert!(
        refused
            .downcast_ref::<&str>()
            .unwrap()
            .contains("covered by another registration")
    );
    drop(first);
    second.covers(&cache.lru);
    cache.insert(&tenant, 100).unwrap();
    hierarchy.reclaim_to(0);
    assert_eq!(cache.lru.count(), 0, "the second is asked");
}
