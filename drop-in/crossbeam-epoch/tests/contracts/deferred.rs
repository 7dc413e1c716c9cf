//! Deferred functions: when they run, on which thread, and what they may do.

use crate::common::{Drops, Reader, destroy, registered, some};
use crossbeam_epoch::{self as epoch, Collector, Owned, unprotected};
use std::{
    panic,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Contract 4: functions deferred through `unprotected()` run at once.
#[test]
fn unprotected_defers_nothing() {
    let drops = Drops::default();
    // SAFETY: no other thread knows anything here.
    unsafe {
        let guard = unprotected();
        drops.defer(guard);
        assert_eq!(drops.count(), 1);
        let ten = Box::new([const { 7_u64 }; 10]);
        let noted = drops.clone();
        guard.defer_unchecked(move || {
            assert_eq!(ten.len(), 10);
            noted.note();
        });
        assert_eq!(drops.count(), 2);
        guard.defer_destroy(Owned::new(drops.one()).into_shared(guard));
        assert_eq!(drops.count(), 3);
        guard.flush();
        assert!(!epoch::is_pinned());
    }
}

/// Contract 7: deferred functions pin, defer, flush, and panic.
#[test]
fn deferred_functions_do_what_they_like() {
    let drops = Drops::default();
    let (collector, handle) = registered();
    {
        let guard = handle.pin();
        let (theirs, mine) = (collector.clone(), drops.clone());
        guard.defer(move || {
            let handle = theirs.register();
            let guard = handle.pin();
            mine.defer(&guard);
            guard.flush();
            let guard = epoch::pin();
            mine.defer(&guard);
            guard.flush();
        });
        let noted = drops.clone();
        guard.defer(move || noted.note());
    }
    handle.pin().flush();
    handle.pin().flush();
    drops.wait_for(3);
}

/// A panic does not unwind through a pin or a flush, and later functions run.
#[test]
fn a_deferred_function_that_panics_is_contained() {
    let drops = Drops::default();
    let (collector, handle) = registered();
    {
        let guard = handle.pin();
        for _ in 0..3 {
            guard.defer(|| panic::resume_unwind(Box::new("expected")));
            drops.defer(&guard);
        }
    }
    handle.pin().flush();
    handle.pin().flush();
    drops.wait_for(3);
    drop(handle);
    drop(collector);
}

/// Contract 8: once the last handle has been dropped, all threads' functions have run.
#[test]
fn the_last_handle_runs_everything() {
    let drops = Drops::default();
    let collector = Collector::new();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let handle = collector.register();
                for _ in 0..some(1000) {
                    let guard = handle.pin();
                    drops.defer(&guard);
                    destroy(&guard, drops.one());
                }
            });
        }
    });
    drop(collector);
    assert_eq!(drops.count(), 6 * some(1000));
}

/// Contract 10: two flushes, each through its own guard, run the thread's deferred functions.
#[test]
fn two_flushes_run_all() {
    let drops = Drops::default();
    let (_collector, handle) = registered();
    for count in [1, 2, 63, 64, 65, 300, some(2000)] {
        let before = drops.count();
        let at_once = || {
            let before = drops.count();
            {
                let guard = handle.pin();
                for _ in 0..count {
                    drops.defer(&guard);
                }
            }
            handle.pin().flush();
            handle.pin().flush();
            drops.count() == before + count
        };
        // On a busy machine the service thread may take some, and still run them when the next try
        // has run its own.
        let tries = (1..=20).find(|_| at_once()).expect("a flush that runs all");
        drops.wait_for(before + tries * count);
    }
}

/// None of them runs while an earlier guard exists.
#[test]
fn a_guard_is_waited_for() {
    let drops = Drops::default();
    let (collector, handle) = registered();
    let theirs = collector.clone();
    let reader = Reader::start("reader", move || theirs.register().pin());
    for _ in 0..some(5000) {
        drops.defer(&handle.pin());
    }
    for _ in 0..5 {
        handle.pin().flush();
    }
    assert_eq!(drops.count(), 0);
    reader.leave();
    drops.wait_for(some(5000));
}

/// Deferred functions run only in an outermost pin, in a flush, or on a thread of the library:
/// other callers may hold a lock that the functions need.
#[test]
fn nothing_runs_in_defer_or_at_an_unpin() {
    let (held, ran) = (Arc::new(Mutex::new(())), Drops::default());
    let collector = Collector::new();
    let (handle, holder) = (collector.register(), collector.register());
    let defer_some = |guard: &epoch::Guard| {
        for _ in 0..some(300) {
            let (held, ran) = (Arc::clone(&held), ran.clone());
            let me = thread::current().id();
            guard.defer(move || {
                // On another thread it waits.
                assert!(thread::current().id() != me || held.try_lock().is_ok());
                ran.note();
            });
        }
    };
    for _ in 0..some(50) {
        let holds = holder.pin();
        defer_some(&handle.pin());
        // Nothing is due yet for this pin; then another thread makes everything due.
        let guard = handle.pin();
        drop(holds);
        thread::scope(|scope| {
            scope.spawn(|| {
                let handle = collector.register();
                handle.pin().defer(|| ());
                handle.pin().flush();
            });
        });
        let lock = held.lock().unwrap();
        defer_some(&guard);
        drop(handle.pin());
        drop(guard);
        drop(lock);
        handle.pin().flush();
    }
    drop((handle, holder, collector));
    assert_eq!(
        ran.count(),
        some(50) * 2 * some(300),
        "none of them has panicked"
    );
}

/// Deferred functions run pinned, which the default collector shows.
#[test]
fn deferred_functions_run_pinned() {
    let (ran, unpinned) = (Drops::default(), Drops::default());
    for _ in 0..some(3000) {
        let guard = epoch::pin();
        let (ran, unpinned) = (ran.clone(), unpinned.clone());
        guard.defer(move || {
            if !epoch::is_pinned() {
                unpinned.note();
            }
            ran.note();
        });
    }
    epoch::pin().flush();
    // The service thread runs the rest.
    ran.wait_for(some(3000));
    assert_eq!(unpinned.count(), 0);
}

/// Contract 11: functions of all sizes, with padding, with drops, without any capture.
#[test]
fn functions_of_all_sizes_run_once() {
    #[repr(align(64))]
    struct Aligned(u8);
    let sum = Arc::new(AtomicUsize::new(0));
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let (collector, handle) = registered();
    let guard = handle.pin();
    guard.defer(|| CALLS.fetch_add(1, Ordering::Relaxed));
    let (a, b) = (3_u8, 4_u32);
    guard.defer(move || CALLS.fetch_add(usize::from(a) + b as usize, Ordering::Relaxed));
    let theirs = Arc::clone(&sum);
    guard.defer(move || theirs.fetch_add(1, Ordering::Relaxed));
    let theirs = Arc::clone(&sum);
    let words = [2_usize; 9];
    guard.defer(move || theirs.fetch_add(words.iter().sum(), Ordering::Relaxed));
    let (theirs, aligned) = (Arc::clone(&sum), Aligned(5));
    guard.defer(move || {
        assert_eq!((&raw const aligned).addr() % 64, 0);
        theirs.fetch_add(usize::from(aligned.0), Ordering::Relaxed)
    });
    drop((guard, handle, collector));
    assert_eq!(CALLS.load(Ordering::Relaxed), 8);
    assert_eq!(
        (sum.load(Ordering::Relaxed), Arc::strong_count(&sum)),
        (24, 1)
    );
}

/// Threads that flush at each step, with guards that are sometimes in the way, and the service
/// thread: every function runs once.
#[test]
fn flushes_run_everything_once() {
    const THREADS: usize = 4;
    let drops = Drops::default();
    let collector = Collector::new();
    let each = some(4000);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (drops, collector) = (drops.clone(), &collector);
            scope.spawn(move || {
                let handle = collector.register();
                for n in 0..each {
                    let guard = handle.pin();
                    for _ in 0..=n % 2 {
                        drops.defer(&guard);
                    }
                    if n % 700 == 100 * thread {
                        // Long enough for all threads' functions to be adopted.
                        thread::sleep(Duration::from_millis(30));
                    }
                    guard.flush();
                }
            });
        }
    });
    drops.wait_for(THREADS * (each + each / 2));
}

/// A thread's last deferred function runs without another call.
#[test]
fn what_is_left_runs_by_itself() {
    let drops = Drops::default();
    drops.defer(&epoch::pin());
    drops.wait_for(1);
    let theirs = drops.clone();
    thread::spawn(move || {
        theirs.defer(&epoch::pin());
    })
    .join()
    .unwrap();
    drops.wait_for(2);
}
