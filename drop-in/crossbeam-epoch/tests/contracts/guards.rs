//! Guards, handles and collectors: how long each lasts, and what it reports.

use crate::common::{Drops, registered, some, wait_until};
use crossbeam_epoch::{self as epoch, Collector, unprotected};
use std::{
    cell::Cell,
    mem,
    panic::{self, AssertUnwindSafe},
    thread,
};

/// Contract 1: a nested pin does not fence, and `is_pinned` tells whether a pin will be nested.
/// (`tests/fence.rs` tests the fence.)
#[test]
fn a_handle_counts_its_own_guards() {
    let collector = Collector::new();
    let (one, two) = (collector.register(), collector.register());
    assert!(!one.is_pinned());
    let outer = one.pin();
    let inner = one.pin();
    assert!(one.is_pinned() && !two.is_pinned() && !epoch::is_pinned());
    drop(outer);
    assert!(one.is_pinned(), "guards end in any order");
    drop(inner);
    assert!(!one.is_pinned());
}

/// The same for the thread's own handle, while the program has a section in the global domain. A
/// guard does not hold up the program's own grace periods.
#[test]
fn sections_of_the_programs_own_are_no_pins() {
    let section = stillpoint::read_lock();
    assert!(!epoch::is_pinned());
    let guard = epoch::pin();
    assert!(epoch::is_pinned());
    drop(section);
    assert!(epoch::is_pinned());
    stillpoint::synchronize();
    drop(guard);
    assert!(!epoch::is_pinned());
}

/// Contract 3: which collector a guard belongs to.
#[test]
fn a_guard_names_its_collector() {
    // SAFETY: nothing is loaded through it.
    assert!(unsafe { unprotected() }.collector().is_none());
    let (one, other) = (Collector::new(), Collector::new());
    assert!(one == one.clone() && one != other && one != *epoch::default_collector());
    let handle = one.register();
    assert!(handle.pin().collector() == Some(&one) && handle.collector() == &one);
    assert!(epoch::pin().collector() == Some(epoch::default_collector()));
}

/// Contract 5: pins work in destructors of thread-local objects, in any order.
#[test]
fn pins_work_at_a_threads_end() {
    struct Late(Drops);
    impl Drop for Late {
        fn drop(&mut self) {
            let guard = epoch::pin();
            self.0.defer(&guard);
            drop(guard);
            let _ = epoch::is_pinned();
            epoch::pin().flush();
        }
    }
    thread_local!(static LATE: Cell<Option<Late>> = const { Cell::new(None) });
    let drops = Drops::default();
    // Runs last: the thread's buffer is given back before this destructor defers.
    for (pins_first, defers) in [(false, false), (true, false), (true, true)] {
        let theirs = drops.clone();
        let work = move || {
            if pins_first {
                drop(epoch::pin());
            }
            LATE.set(Some(Late(theirs)));
            let guard = epoch::pin();
            if defers {
                guard.defer(|| ());
            }
        };
        thread::spawn(work).join().unwrap();
    }
    drops.wait_for(3);
}

/// Contract 6: a guard keeps its participant and its collector.
#[test]
fn a_guard_outlives_its_handle_and_collector() {
    let drops = Drops::default();
    let (collector, handle) = registered();
    let guard = handle.pin();
    drop(collector);
    drop(handle);
    drops.defer(&guard);
    assert_eq!(drops.count(), 0);
    drop(guard);
    assert_eq!(drops.count(), 1, "it was the last handle");
}

/// The same for a guard in a thread-local object that outlives the thread's handle.
#[test]
fn a_guard_outlives_the_threads_handle() {
    thread_local!(static KEPT: Cell<Option<epoch::Guard>> = const { Cell::new(None) });
    let drops = Drops::default();
    let theirs = drops.clone();
    let work = move || {
        // The destructor registered first runs last.
        KEPT.set(None);
        let guard = epoch::pin();
        theirs.defer(&guard);
        KEPT.set(Some(guard));
    };
    thread::spawn(work).join().unwrap();
    drops.wait_for(1);
}

/// Contract 9: a repin has an effect only for the only guard.
#[test]
fn repin_acts_for_the_only_guard() {
    let drops = Drops::default();
    let collector = Collector::new();
    let (handle, other) = (collector.register(), collector.register());
    let mut guard = handle.pin();
    let nested = handle.pin();
    drops.defer(&guard);
    // The object's grace period begins; a guard that begins now would not be in the way.
    other.pin().flush();
    guard.repin();
    other.pin().flush();
    assert_eq!(drops.count(), 0, "the nested guard is still there");
    drop(nested);
    // The guard stays. Retries, because the service thread may take over the object, whose grace
    // period then begins anew.
    wait_until(|| {
        guard.repin();
        other.pin().flush();
        drops.count() == 1
    });
    assert!(handle.is_pinned());
}

#[test]
fn repin_after_is_not_pinned_meanwhile() {
    let (collector, handle) = registered();
    let mut guard = handle.pin();
    assert_eq!(guard.repin_after(|| (handle.is_pinned(), 7)), (false, 7));
    assert!(handle.is_pinned());
    let nested = handle.pin();
    assert!(guard.repin_after(|| handle.is_pinned()));
    drop(nested);
    let panics = || guard.repin_after(|| panic::resume_unwind(Box::new("expected")));
    assert!(panic::catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(handle.is_pinned());
    // Works without the handle, too.
    drop(handle);
    drop(collector);
    guard.repin_after(|| ());
    assert!(guard.collector().is_some());
}

/// Guards are counted, not nested in the engine: there is no limit and no abort.
#[test]
fn a_million_guards_nest() {
    let (collector, handle) = registered();
    let guards: Vec<_> = (0..some(1_000_000)).map(|_| handle.pin()).collect();
    drop(guards);
    assert!(!handle.is_pinned());
    let theirs = collector.clone();
    // A thread that forgets as many, and ends.
    thread::spawn(move || {
        let handle = theirs.register();
        (0..some(1_000_000)).for_each(|_| mem::forget(handle.pin()));
        assert!(handle.is_pinned());
    })
    .join()
    .unwrap();
}
