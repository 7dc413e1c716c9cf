//! Lists, tenants and shrinkers in the child of a fork.
//!
//! Every test forks in a separate process.
#![cfg(all(target_os = "linux", not(miri)))]

mod setup;

use setup::{
    Cache, children,
    common::{
        self, apart, eventually,
        forking::{Forked, assert_works, end_after, fork, fork_here, fork_muted},
    },
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use stillpoint::global;
use stillpoint_lru::{Hierarchy, Isolate, Node, Registration, Scope, Shrink, Tenant};

#[test]
fn all_of_this_holds_without_membarrier_too() {
    if common::without_membarrier() {
        assert!(!stillpoint::membarrier_active());
    } else {
        common::rerun_without_membarrier().well();
    }
}

struct Subject {
    _registration: Registration,
    cache: Arc<Cache>,
    tenants: [Tenant; 4],
    hierarchy: Hierarchy,
}

impl Subject {
    fn new() -> Self {
        let hierarchy = Hierarchy::new();
        let (cache, _registration) = Cache::new(&hierarchy, 4);
        let tenants = children(hierarchy.root());
        tenants.iter().for_each(|tenant| {
            tenant.set_high(300_000);
            tenant.set_max(500_000);
        });
        Self {
            _registration,
            cache,
            tenants,
            hierarchy,
        }
    }

    /// Changes all that locks guard.
    fn change(&self, number: u64) {
        let _ = self.cache.insert(&self.tenants[number as usize % 4], 1_000);
        if number.is_multiple_of(64) {
            let mut verdicts = [Isolate::Rotate, Isolate::Removed].into_iter().cycle();
            self.cache.lru.walk(40, |_| verdicts.next().unwrap());
            let short = self.hierarchy.root().create().unwrap();
            let _ = self.cache.insert(&short, 1_000);
            let _ = short.delete();
            self.tenants[0].set_max(400_000 + number % 100_000);
        }
    }
}

/// Threads add, delete, walk, charge and reclaim, while another one forks: in the child the core
/// works, counts can be read, and drops end.
#[test]
fn child_of_busy_threads_counts_and_drops() {
    let subject = Box::into_raw(Box::new(Subject::new()));
    // SAFETY: freed below, once no thread uses it any more.
    let shared = unsafe { &*subject };
    let forks = if common::without_membarrier() { 8 } else { 24 };
    let over = AtomicBool::new(false);
    let change_and_count = || {
        (0..500).for_each(|number| shared.change(number));
        shared.hierarchy.reclaim_to(0);
        let lru = &shared.cache.lru;
        lru.walk(usize::MAX, |_| Isolate::Removed);
        assert_eq!(lru.count(), 0);
        shared.cache.insert(&shared.tenants[1], 1_000).unwrap();
        shared.tenants[1].set_high(0);
        eventually(|| lru.count() == 0);
    };
    thread::scope(|scope| {
        let _over = common::Over(&over);
        for first in 0..8 {
            let over = &over;
            scope.spawn(move || {
                for number in (first..).step_by(8) {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    shared.change(number);
                    if number.is_multiple_of(64) {
                        // Callbacks free what a deleted tenant leaves, and no thread waits for
                        // them: this pause keeps their number down.
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
        for _ in 0..forks {
            let child = fork(|| {
                let lru = &shared.cache.lru;
                let sum = Node::all().map(|node| lru.count_node(node)).sum();
                assert_eq!(lru.count(), sum);
                // An item is charged before it is on a list, and until it is off.
                assert!(sum as u64 * 1_000 <= shared.hierarchy.root().usage());
                fork_muted(change_and_count).well_or_aborted();
                assert_works(global());
                // SAFETY: no other thread of this process uses it.
                drop(unsafe { Box::from_raw(subject) });
                global().kvfree_barrier();
            });
            child.well();
        }
    });
    // Now only the service thread may hold a lock, and it seldom does.
    assert!((0..10).any(|_| fork_muted(change_and_count).well_or_aborted()));
    // SAFETY: the threads have ended.
    drop(unsafe { Box::from_raw(subject) });
}

/// A shrinker forks while another thread is in a call of it: the child goes on with its pass, ends
/// the registration, and registers another shrinker.
#[test]
fn shrinker_that_forks() {
    apart!();
    #[derive(Default)]
    struct Forking {
        others: AtomicUsize,
        forked: Mutex<Option<Option<Forked>>>,
        registration: Mutex<Option<Registration>>,
        leaves: bool,
    }
    impl Shrink for Forking {
        fn count(&self, _scope: &Scope<'_>) -> usize {
            if thread::current().name() == Some("other") {
                self.others.fetch_add(1, Ordering::SeqCst);
                eventually(|| self.forked.lock().unwrap().is_some());
            }
            1_000
        }
        fn scan(&self, _scope: &Scope<'_>, _objects: usize) -> Option<usize> {
            eventually(|| self.others.load(Ordering::SeqCst) > 0);
            let forked = self.forked.lock().unwrap().is_some();
            if !forked {
                let child = fork_here();
                let reset_in_child = child.is_none();
                *self.forked.lock().unwrap() = Some(child);
                if reset_in_child && self.leaves {
                    drop(self.registration.lock().unwrap().take());
                }
            }
            None
        }
    }
    for leaves in [true, false] {
        let hierarchy = Hierarchy::new();
        let forking = Arc::new(Forking {
            leaves,
            ..Forking::default()
        });
        let registration = hierarchy.register(Arc::clone(&forking)).unwrap();
        *forking.registration.lock().unwrap() = Some(registration);
        let within = hierarchy.clone();
        let other = thread::Builder::new().name("other".into());
        let other = other.spawn(move || within.reclaim()).unwrap();
        hierarchy.reclaim();
        let child = forking
            .forked
            .lock()
            .unwrap()
            .take()
            .expect("it has been asked");
        let leave = || drop(forking.registration.lock().unwrap().take());
        if let Some(child) = child {
            child.well();
            *forking.forked.lock().unwrap() = Some(None);
            other.join().unwrap();
            leave();
        } else {
            end_after(|| {
                leave();
                let (others, forked) = (AtomicUsize::new(1), Mutex::new(Some(None)));
                let fresh = Forking {
                    others,
                    forked,
                    ..Forking::default()
                };
                let registration = hierarchy.register(Arc::new(fresh)).unwrap();
                hierarchy.reclaim();
                drop(registration);
            });
        }
    }
}
