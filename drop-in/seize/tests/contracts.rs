//! What the interface promises beyond its signatures, and its users rely on.

mod common;

use common::{Counted, Drops, reclaim_all};
use seize::{Collector, Guard, OwnedGuard, reclaim};
use std::{
    cell::RefCell,
    mem,
    panic::{self, AssertUnwindSafe},
    rc::Rc,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicPtr, Ordering},
    },
    thread,
};

/// A chain: each link retires the next when it is dropped.
struct Link {
    next: Option<Box<Link>>,
    _one: Counted,
}

fn chain(length: usize, drops: &Drops) -> *mut Link {
    let mut next = None;
    for _ in 0..length {
        let _one = Counted(Arc::clone(&drops.0));
        next = Some(Box::new(Link { next, _one }));
    }
    Box::into_raw(next.expect("not empty"))
}

/// Frees a link and retires the one behind it.
unsafe fn unlink(link: *mut Link, collector: &Collector) {
    // SAFETY: out of a box.
    let mut link = unsafe { Box::from_raw(link) };
    if let Some(next) = link.next.take() {
        // SAFETY: out of a box, and found by no thread.
        unsafe { collector.retire(Box::into_raw(next), unlink) };
    }
}

#[test]
fn reclaim_all_frees_what_destructors_retire() {
    for batch_size in [1, 7, usize::MAX] {
        let (collector, drops) = (Collector::new().batch_size(batch_size), Drops::default());
        // SAFETY: out of a box.
        unsafe { collector.retire(chain(100, &drops), unlink) };
        reclaim_all(&collector);
        assert_eq!(drops.count(), 100, "batches of {batch_size}");
    }
}

#[test]
fn chains_need_no_stack() {
    let length = if cfg!(miri) { 40 } else { 100_000 };
    let (collector, drops) = (Collector::new().batch_size(1), Drops::default());
    // SAFETY: out of a box.
    unsafe { collector.retire(chain(length, &drops), unlink) };
    assert_eq!(drops.count(), length, "no guard is in the way");
    let guard = collector.enter();
    // SAFETY: out of a box.
    unsafe { guard.defer_retire(chain(length, &drops), unlink) };
    assert_eq!(drops.count(), length);
    drop(guard);
    assert_eq!(drops.count(), 2 * length);
}

#[test]
fn a_guard_of_one_collector_holds_up_nothing_of_another() {
    let (one, two, drops) = (
        Collector::new(),
        Collector::new().batch_size(1),
        Drops::default(),
    );
    let guards = (one.enter(), one.enter_owned());
    drops.retire(&two);
    assert_eq!(drops.count(), 1);
    drops.retire(&one);
    reclaim_all(&two);
    assert_eq!(drops.count(), 1, "the other's is not touched");
    drop(guards);
}

#[test]
fn what_is_retired_may_be_borrowed() {
    let count = RefCell::new(0);
    struct Borrows<'a>(&'a RefCell<usize>);
    impl Drop for Borrows<'_> {
        fn drop(&mut self) {
            *self.0.borrow_mut() += 1;
        }
    }
    let collector = Collector::new();
    for n in 0..100 {
        let guard = collector.enter();
        let object = Box::into_raw(Box::new(Borrows(&count)));
        // SAFETY: out of a box, and no thread knows it.
        unsafe { guard.defer_retire(object, reclaim::boxed) };
        if n % 10 == 0 {
            guard.flush();
        }
    }
    drop(collector);
    assert_eq!(count.into_inner(), 100);
}

/// Objects that are not Send are freed by the one thread that uses the collector.
#[test]
fn no_other_thread_frees() {
    let (collector, shared) = (Collector::new().batch_size(4), Rc::new(()));
    for _ in 0..50 {
        let guard = collector.enter();
        let object = Box::into_raw(Box::new(Rc::clone(&shared)));
        // SAFETY: out of a box, and no thread knows it.
        unsafe { guard.defer_retire(object, reclaim::boxed) };
    }
    drop(collector);
    assert_eq!(Rc::strong_count(&shared), 1);
}

#[test]
fn a_leaked_guard_holds_up_its_own_collector_until_that_goes() {
    let (collector, other, drops) = (
        Collector::new().batch_size(1),
        Collector::new().batch_size(1),
        Drops::default(),
    );
    mem::forget(collector.enter());
    mem::forget(collector.enter_owned());
    drops.retire(&collector);
    drops.retire(&other);
    assert_eq!(drops.count(), 1);
    reclaim_all(&collector);
    assert_eq!(drops.count(), 2);
    drops.retire(&collector);
    drop(collector);
    assert_eq!(drops.count(), 3);
}

/// Its number is not given to another thread, whose guards would share its slot.
#[test]
fn a_guard_leaked_by_a_thread_that_ends_stays_a_guard() {
    let (collector, drops) = (Collector::new().batch_size(1), Drops::default());
    let leak = || {
        let guard = collector.enter();
        let id = guard.thread_id();
        mem::forget(guard);
        id
    };
    let id = thread::scope(|scope| scope.spawn(leak).join().unwrap());
    for _ in 0..3 {
        let other = thread::scope(|scope| {
            let work = || {
                let guard = collector.enter();
                drops.retire(&collector);
                guard.thread_id()
            };
            scope.spawn(work).join().unwrap()
        });
        assert_ne!(id, other);
    }
    assert_eq!(drops.count(), 0);
    reclaim_all(&collector);
    assert_eq!(drops.count(), 3);
}

static LATE: Mutex<Option<&'static Collector>> = Mutex::new(None);

/// A guard that ends, and another that is made and ends, when the thread's other state is gone.
#[test]
fn guards_in_thread_local_destructors() {
    struct Late(RefCell<Option<seize::LocalGuard<'static>>>, Drops);
    impl Drop for Late {
        fn drop(&mut self) {
            let collector = LATE.lock().unwrap().expect("set by the test");
            let again = collector.enter();
            self.1.retire(collector);
            self.0.take();
            assert_eq!(again.thread_id(), collector.enter().thread_id());
            drop(again);
            self.1.retire(collector);
        }
    }
    thread_local! {
        static STATE: Late = Late(RefCell::new(None), Drops::default());
    }
    let collector: &'static Collector = Box::leak(Box::new(Collector::new().batch_size(1)));
    *LATE.lock().unwrap() = Some(collector);
    for keeps in [true, false, true] {
        let dropped = thread::spawn(move || {
            STATE.with(|state| {
                if keeps {
                    *state.0.borrow_mut() = Some(collector.enter());
                }
                Arc::clone(&state.1.0)
            })
        });
        let dropped = dropped.join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn a_panic_of_a_reclaimer_loses_nothing() {
    unsafe fn panics(ptr: *mut Counted, _: &Collector) {
        // SAFETY: out of a box.
        drop(unsafe { Box::from_raw(ptr) });
        panic::resume_unwind(Box::new("of a reclaimer"));
    }
    let (collector, drops) = (Collector::new().batch_size(8), Drops::default());
    let retire = |collector: &Collector| {
        for _ in 0..8 {
            // SAFETY: out of a box, and no thread knows it.
            unsafe { collector.retire(drops.one(), panics) };
        }
    };
    let guard = collector.enter();
    retire(&collector);
    assert_eq!(drops.count(), 0);
    let panicked = panic::catch_unwind(AssertUnwindSafe(|| drop(guard)));
    assert_eq!(
        panicked.unwrap_err().downcast_ref(),
        Some(&"of a reclaimer")
    );
    assert_eq!(drops.count(), 8, "all of the batch");
    // The thread's number and slot are as they were.
    drop(collector.enter());
    let guard = collector.enter();
    retire(&collector);
    let unwinding = panic::catch_unwind(AssertUnwindSafe(|| {
        let _guard = guard;
        panic::resume_unwind(Box::new("of the program"));
    }));
    assert_eq!(
        unwinding.unwrap_err().downcast_ref(),
        Some(&"of the program")
    );
    assert_eq!(drops.count(), 16, "and no second panic");
    // SAFETY: out of a box, and no thread knows it.
    unsafe { collector.retire(drops.one(), panics) };
    drops.retire(&collector);
    assert!(panic::catch_unwind(AssertUnwindSafe(|| drop(collector))).is_err());
    assert_eq!(drops.count(), 18);
}

#[test]
fn a_collector_dropped_during_unwinding_frees_everything() {
    let drops = Drops::default();
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        let collector = Collector::new();
        (0..100).for_each(|_| drops.retire(&collector));
        panic::resume_unwind(Box::new(()));
    }));
    assert!(result.is_err());
    assert_eq!(drops.count(), 100);
}

#[test]
fn a_thousand_threads_share_slots_and_lose_nothing() {
    let threads = if cfg!(miri) { 8 } else { 1000 };
    let (collector, drops) = (Collector::new(), Drops::default());
    let all_in = Barrier::new(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            let work = || {
                let guard = collector.enter();
                all_in.wait();
                (0..10).for_each(|_| drops.retire(&collector));
                drop(guard);
            };
            thread::Builder::new()
                .stack_size(128 << 10)
                .spawn_scoped(scope, work)
                .unwrap();
        }
    });
    for _ in 0..3 {
        thread::scope(|scope| scope.spawn(|| drops.retire(&collector)).join().unwrap());
    }
    drop(collector);
    assert_eq!(drops.count(), 10 * threads + 3);
}

#[test]
fn a_million_collectors_cost_little_and_numbers_are_used_again() {
    let count = if cfg!(miri) { 6 } else { 1_000_000 };
    let all: Vec<Collector> = (0..count).map(|_| Collector::new()).collect();
    assert!(mem::size_of::<Collector>() <= 24);
    assert_ne!(all[0], all[count - 1]);
    let drops = Drops::default();
    for collector in all.iter().take(count.min(1000)) {
        drop(collector.enter());
        drops.retire(collector);
    }
    drop(all);
    assert_eq!(drops.count(), count.min(1000));
}

/// What is found through guards is alive: two threads that replace, two that read, guards of both
/// kinds.
#[test]
fn what_a_guard_protects_is_alive() {
    let rounds = if cfg!(miri) { 12 } else { 20_000 };
    let (collector, drops) = (Collector::new().batch_size(4), Drops::default());
    let shared = AtomicPtr::new(drops.one());
    let read = |guard: &dyn Fn(&AtomicPtr<Counted>) -> *mut Counted| {
        // SAFETY: never null, and the guard keeps it.
        assert!(Arc::ptr_eq(&unsafe { &*guard(&shared) }.0, &drops.0));
    };
    thread::scope(|scope| {
        for n in 0..2 {
            let (collector, read) = (&collector, &read);
            scope.spawn(move || {
                for _ in 0..rounds {
                    if n == 0 {
                        let mut guard = collector.enter();
                        read(&|at| guard.protect(at, Ordering::Acquire));
                        guard.refresh();
                        read(&|at| guard.protect(at, Ordering::Acquire));
                    } else {
                        let mut guard = collector.enter_owned();
                        read(&|at| guard.protect(at, Ordering::Acquire));
                        guard.refresh();
                        read(&|at| guard.protect(at, Ordering::Acquire));
                    }
                }
            });
            scope.spawn(|| {
                for _ in 0..rounds {
                    let guard = collector.enter();
                    let old = guard.swap(&shared, drops.one(), Ordering::AcqRel);
                    // SAFETY: out of a box, and found by no thread that enters from now on.
                    unsafe { guard.defer_retire(old, reclaim::boxed) };
                }
            });
        }
    });
    // SAFETY: the last one.
    drop(unsafe { Box::from_raw(shared.into_inner()) });
    drop(collector);
    assert_eq!(drops.count(), 2 * rounds + 1);
}

#[test]
fn an_owned_guard_ends_on_another_thread_which_frees() {
    let (collector, drops) = (Collector::new().batch_size(2), Drops::default());
    let guard: OwnedGuard<'_> = collector.enter_owned();
    drops.retire(&collector);
    drops.retire(&collector);
    assert_eq!(drops.count(), 0);
    thread::scope(|scope| scope.spawn(|| drop(guard)).join().unwrap());
    assert_eq!(drops.count(), 2);
}
