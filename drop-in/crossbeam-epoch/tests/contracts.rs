//! What the interface promises beyond its signatures, and its users rely on.

mod common;

use common::{Drops, some, wait_until};
use crossbeam_epoch::{self as epoch, Atomic, Collector, Owned, Pointable, Shared, unprotected};
use std::{
    cell::Cell,
    mem::{self, MaybeUninit},
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
    time::{Duration, Instant},
};
#[cfg(all(feature = "reports", not(miri)))]
use {
    common::Counted,
    crossbeam_epoch::{Guard, LocalHandle},
    std::cell::RefCell,
};

/// Contract 1: a nested pin is none of those that fence, and `is_pinned` says which it will be.
/// (`tests/fence.rs` has the fence.)
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

/// The same of the thread's own handle, beside a section of the program's in the global domain.
#[test]
fn a_section_of_the_programs_own_is_no_pin() {
    let section = stillpoint::read_lock();
    assert!(!epoch::is_pinned());
    let guard = epoch::pin();
    assert!(epoch::is_pinned());
    drop(section);
    assert!(epoch::is_pinned());
    drop(guard);
    assert!(!epoch::is_pinned());
}

/// And a guard does not hold up the program's own grace periods, nor are these refused in one.
#[test]
fn a_guard_does_not_hold_up_the_global_domain() {
    let guard = epoch::pin();
    stillpoint::synchronize();
    drop(guard);
}

/// A thread that defers through one short-lived handle after the other asks for nothing: each pin is
/// the first of its handle. Its garbage is the service thread's, and goes while it goes on.
#[test]
#[cfg_attr(miri, ignore = "the service thread comes between any two of its steps")]
fn garbage_of_short_lived_handles_goes_while_they_come() {
    garbage_goes_while(|collector, drops| {
        let garbage = drops.one();
        collector.register().pin().defer(move || drop(garbage));
    });
}

/// Nor does one that only repins.
#[test]
#[cfg_attr(miri, ignore = "the service thread comes between any two of its steps")]
fn garbage_of_a_guard_that_repins_goes_while_it_does() {
    let mut guard = None;
    garbage_goes_while(|collector, drops| {
        let guard = guard.get_or_insert_with(|| collector.register().pin());
        let garbage = drops.one();
        guard.defer(move || drop(garbage));
        guard.repin();
    });
}

/// Runs `step` until something has been dropped, without a pause in which the thread would count as
/// idle.
fn garbage_goes_while(mut step: impl FnMut(&Collector, &Drops)) {
    let (collector, drops) = (Collector::new(), Drops::default());
    let until = Instant::now() + Duration::from_secs(60);
    while drops.count() == 0 {
        assert!(Instant::now() < until, "nothing goes");
        (0..1_000).for_each(|_| step(&collector, &drops));
    }
}

/// Contract 2: all bytes 0 is null.
#[test]
fn zeroed_memory_is_null() {
    // SAFETY: that is what is tested.
    let zeroed: [Atomic<String>; 3] = unsafe { MaybeUninit::zeroed().assume_init() };
    let guard = &epoch::pin();
    assert!(
        zeroed
            .iter()
            .all(|atomic| atomic.load(Ordering::Relaxed, guard).is_null())
    );
    assert_eq!(size_of::<Atomic<String>>(), size_of::<*mut String>());
    assert_eq!(align_of::<Atomic<String>>(), align_of::<*mut String>());
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

/// Contract 4: through `unprotected()` all is done at once.
#[test]
fn unprotected_defers_nothing() {
    let drops = Drops::default();
    // SAFETY: nothing here is known to another thread.
    unsafe {
        let guard = unprotected();
        let one = drops.one();
        guard.defer(move || drop(one));
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

/// Contract 5: in destructors of thread-local objects, whichever comes first.
#[test]
fn pins_work_at_a_threads_end() {
    struct Late(Drops);
    impl Drop for Late {
        fn drop(&mut self) {
            let guard = epoch::pin();
            let one = self.0.one();
            guard.defer(move || drop(one));
            drop(guard);
            let _ = epoch::is_pinned();
            epoch::pin().flush();
        }
    }
    thread_local!(static LATE: Cell<Option<Late>> = const { Cell::new(None) });
    let drops = Drops::default();
    // The last: the thread's buffer is given back before the destructor defers.
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
    let collector = Collector::new();
    let handle = collector.register();
    let guard = handle.pin();
    drop(collector);
    drop(handle);
    let one = drops.one();
    guard.defer(move || drop(one));
    assert_eq!(drops.count(), 0);
    drop(guard);
    assert_eq!(drops.count(), 1, "it was the last handle");
}

/// The same of a guard that is kept in a thread-local object until after the thread's handle.
#[test]
fn a_guard_outlives_the_threads_handle() {
    thread_local!(static KEPT: Cell<Option<epoch::Guard>> = const { Cell::new(None) });
    let drops = Drops::default();
    let theirs = drops.clone();
    let work = move || {
        // The destructor that is registered first runs last.
        KEPT.set(None);
        let guard = epoch::pin();
        let one = theirs.one();
        guard.defer(move || drop(one));
        KEPT.set(Some(guard));
    };
    thread::spawn(work).join().unwrap();
    drops.wait_for(1);
}

/// Contract 7: deferred functions pin, defer, flush, and panic.
#[test]
fn deferred_functions_do_what_they_like() {
    let drops = Drops::default();
    let collector = Collector::new();
    let handle = collector.register();
    {
        let guard = handle.pin();
        let (theirs, mine) = (collector.clone(), drops.clone());
        guard.defer(move || {
            let handle = theirs.register();
            let guard = handle.pin();
            let one = mine.one();
            guard.defer(move || drop(one));
            guard.flush();
            let guard = epoch::pin();
            let one = mine.one();
            guard.defer(move || drop(one));
            guard.flush();
        });
        let noted = drops.clone();
        guard.defer(move || noted.note());
    }
    handle.pin().flush();
    handle.pin().flush();
    drops.wait_for(3);
}

/// A panic does not unwind through a pin or a flush, and what comes after it runs.
#[test]
fn a_deferred_function_that_panics_is_contained() {
    let drops = Drops::default();
    let collector = Collector::new();
    let handle = collector.register();
    {
        let guard = handle.pin();
        for _ in 0..3 {
            guard.defer(|| panic::resume_unwind(Box::new("expected")));
            let one = drops.one();
            guard.defer(move || drop(one));
        }
    }
    handle.pin().flush();
    handle.pin().flush();
    drops.wait_for(3);
    drop(handle);
    drop(collector);
}

/// Contract 8: when the last handle has been dropped, everything has run, of all threads.
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
                    let one = drops.one();
                    guard.defer(move || drop(one));
                    let two = Owned::new(drops.one()).into_shared(&guard);
                    // SAFETY: nothing else knows it.
                    unsafe { guard.defer_destroy(two) };
                }
            });
        }
    });
    drop(collector);
    assert_eq!(drops.count(), 6 * some(1000));
}

/// Contract 9: to pin again does something for the only guard alone.
#[test]
fn repin_acts_for_the_only_guard() {
    let drops = Drops::default();
    let collector = Collector::new();
    let (handle, other) = (collector.register(), collector.register());
    let mut guard = handle.pin();
    let nested = handle.pin();
    let one = drops.one();
    guard.defer(move || drop(one));
    // Its grace period begins, and a guard that begins now would not be in the way.
    other.pin().flush();
    guard.repin();
    other.pin().flush();
    assert_eq!(drops.count(), 0, "the nested guard is still there");
    drop(nested);
    // The guard stays. More than once, because the service thread may take the object over, which
    // gives it a grace period that begins then.
    wait_until(|| {
        guard.repin();
        other.pin().flush();
        drops.count() == 1
    });
    assert!(handle.is_pinned());
}

#[test]
fn repin_after_is_not_pinned_meanwhile() {
    let collector = Collector::new();
    let handle = collector.register();
    let mut guard = handle.pin();
    assert_eq!(guard.repin_after(|| (handle.is_pinned(), 7)), (false, 7));
    assert!(handle.is_pinned());
    let nested = handle.pin();
    assert!(guard.repin_after(|| handle.is_pinned()));
    drop(nested);
    let panics = || guard.repin_after(|| panic::resume_unwind(Box::new("expected")));
    assert!(panic::catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(handle.is_pinned());
    // And without the handle.
    drop(handle);
    drop(collector);
    guard.repin_after(|| ());
    assert!(guard.collector().is_some());
}

/// Contract 10: two flushes, each through a guard of its own, run what the thread has deferred.
#[test]
fn two_flushes_run_all() {
    let drops = Drops::default();
    let collector = Collector::new();
    let handle = collector.register();
    for count in [1, 2, 63, 64, 65, 300, some(2000)] {
        let before = drops.count();
        let at_once = || {
            let before = drops.count();
            {
                let guard = handle.pin();
                for _ in 0..count {
                    let one = drops.one();
                    guard.defer(move || drop(one));
                }
            }
            handle.pin().flush();
            handle.pin().flush();
            drops.count() == before + count
        };
        // On a machine with much else to do the service thread may come in between, and be still at
        // it when the next try has run its own.
        let tries = (1..=20).find(|_| at_once()).expect("a flush that runs all");
        drops.wait_for(before + tries * count);
    }
}

/// And none of it runs while a guard is there that was there before.
#[test]
fn a_guard_is_waited_for() {
    let drops = Drops::default();
    let collector = Collector::new();
    let (pinned, is_pinned) = channel();
    let (unpin, may_unpin) = channel::<()>();
    thread::scope(|scope| {
        let collector = &collector;
        scope.spawn(move || {
            let handle = collector.register();
            let guard = handle.pin();
            pinned.send(()).unwrap();
            may_unpin.recv().unwrap();
            drop(guard);
        });
        is_pinned.recv().unwrap();
        let handle = collector.register();
        for _ in 0..some(5000) {
            let guard = handle.pin();
            let one = drops.one();
            guard.defer(move || drop(one));
        }
        for _ in 0..5 {
            handle.pin().flush();
        }
        assert_eq!(drops.count(), 0);
        unpin.send(()).unwrap();
        drops.wait_for(some(5000));
    });
}

/// Deferred functions run in an outermost pin, in a flush, or on a thread of the library's: the
/// caller of all else may hold the lock that they want.
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
        // Nothing is due yet for this pin; and then all is, by what another thread does.
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

/// Deferred functions run pinned: in the default collector that can be seen.
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
    // What is left, the service thread runs.
    ran.wait_for(some(3000));
    assert_eq!(unpinned.count(), 0);
}

/// Contract 11: functions of all sizes, with padding, with drops, without any capture.
#[test]
fn functions_of_all_sizes_run_once() {
    #[repr(align(64))]
    struct Aligned(u8);
    let sum = Arc::new(AtomicUsize::new(0));
    let collector = Collector::new();
    let handle = collector.register();
    {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
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
        drop(guard);
        drop(handle);
        drop(collector);
        assert_eq!(CALLS.load(Ordering::Relaxed), 8);
    }
    assert_eq!(
        (sum.load(Ordering::Relaxed), Arc::strong_count(&sum)),
        (24, 1)
    );
}

/// Contract 12: however much a guard holds up, no thread waits for it, and nothing runs.
#[test]
fn a_flood_under_a_guard_goes_on() {
    let drops = Drops::default();
    let collector = Collector::new();
    let holds = collector.register();
    let held = holds.pin();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let handle = collector.register();
            for _ in 0..some(30_000) {
                let guard = handle.pin();
                let one = Owned::new((drops.one(), [0_u8; 1000])).into_shared(&guard);
                // SAFETY: nothing else knows it.
                unsafe { guard.defer_destroy(one) };
            }
            done.store(true, Ordering::Release);
        });
        // If it waited for the guard this never ended.
        wait_until(|| done.load(Ordering::Acquire));
        assert_eq!(drops.count(), 0);
        drop(held);
    });
    drops.wait_for(some(30_000));
}

/// But a pin waits a little for a guard that is not held for long, so that a flood beside such
/// guards stays within the budget.
#[test]
#[cfg(all(feature = "reports", not(miri)))]
fn a_flood_beside_short_guards_is_bounded() {
    const BUDGET: u64 = 2 << 20;
    let peak = || {
        let collector = Collector::new();
        let over = AtomicBool::new(false);
        let begin = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let handle = collector.register();
                begin.wait();
                while !over.load(Ordering::Acquire) {
                    let _held = handle.pin();
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let handle = collector.register();
            begin.wait();
            let mut peak = 0;
            for n in 0..40_000 {
                let guard = handle.pin();
                let one = Owned::new([n; 128]).into_shared(&guard);
                // SAFETY: nothing else knows it.
                unsafe { guard.defer_destroy(one) };
                if n % 100 == 0 {
                    peak = peak.max(collector.statistics().bytes_pending);
                }
            }
            over.store(true, Ordering::Release);
            peak
        })
    };
    // On a machine with much else to do a guard may be held for as long as its thread has no
    // processor.
    assert!((0..20).any(|_| peak() <= BUDGET + (1 << 20)));
}

/// And for one that has been held for ten milliseconds it waits no more, on whichever thread, until
/// that guard has ended.
#[test]
#[cfg(all(feature = "reports", not(miri)))]
fn pins_do_not_sleep_for_a_guard_that_is_held_for_long() {
    /// The sleeps of 50 microseconds that fit into 10 milliseconds and a rounded one, and one more.
    const MOST: u64 = 225;
    let collector = Collector::new();
    let flood = |is_held: &AtomicBool| {
        let handle = collector.register();
        while !is_held.load(Ordering::Acquire) {
            thread::yield_now();
        }
        // Large, so that a few are past the budget: the yields before that may take as long, on a
        // machine with much else to do.
        for _ in 0..80 {
            let one = Owned::new([0_u64; 32 << 10]);
            let guard = handle.pin();
            // SAFETY: nothing else knows it.
            unsafe { guard.defer_destroy(one.into_shared(&guard)) };
        }
    };
    let waits = || collector.statistics().waits;
    let sleeps_beside_a_guard = || {
        let (before, is_held) = (waits(), AtomicBool::new(false));
        let holds = collector.register();
        let sleeps = thread::scope(|scope| {
            let first = scope.spawn(|| flood(&is_held));
            let held = holds.pin();
            is_held.store(true, Ordering::Release);
            first.join().unwrap();
            for _ in 0..3 {
                thread::scope(|scope| scope.spawn(|| flood(&is_held)).join().unwrap());
            }
            drop(held);
            waits() - before
        });
        assert!(sleeps <= MOST, "{sleeps} sleeps");
        wait_until(|| collector.statistics().objects_pending == 0);
        sleeps
    };
    // The next guard is waited for anew, unless the thread has no processor before it would be.
    for _ in 0..2 {
        wait_until(|| sleeps_beside_a_guard() > 0);
    }
}

/// Threads that flush at each step, beside guards that are in the way now and then, and beside the
/// service thread: all runs, once.
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
                        let one = drops.one();
                        guard.defer(move || drop(one));
                    }
                    if n % 700 == 100 * thread {
                        // Long enough for what the others have, and this one, to be adopted.
                        thread::sleep(Duration::from_millis(30));
                    }
                    guard.flush();
                }
            });
        }
    });
    drops.wait_for(THREADS * (each + each / 2));
}

/// A flush takes no page of its own for the little that there is.
#[test]
#[cfg(all(feature = "reports", not(miri)))]
fn flushes_under_a_guard_share_a_page() {
    const COUNT: usize = 600;
    let drops = Drops::default();
    let collector = Collector::new();
    let holds = collector.register();
    let held = holds.pin();
    let handle = collector.register();
    for _ in 0..COUNT {
        let guard = handle.pin();
        let one = drops.one();
        guard.defer(move || drop(one));
        guard.flush();
    }
    assert_eq!(drops.count(), 0);
    // The service thread adopts the open one now and then.
    let pages = collector.statistics().pages;
    assert!(pages < 100, "{pages} pages");
    drop(held);
    drops.wait_for(COUNT);
}

/// A guard that holds deferred functions up for long is reported, with its thread's name.
#[test]
#[cfg(all(feature = "reports", not(miri)))]
fn a_guard_that_is_held_for_long_is_reported() {
    let collector = Collector::new();
    collector.set_stall_timeout(std::time::Duration::from_millis(1));
    let (tell, told) = channel();
    collector.on_stall(move |report| {
        let _ = tell.send(report.to_string());
    });
    let (unpin, may_unpin) = channel::<()>();
    let (pinned, is_pinned) = channel();
    let theirs = collector.clone();
    let reader = move || {
        let handle = theirs.register();
        let guard = handle.pin();
        pinned.send(()).unwrap();
        let _ = may_unpin.recv();
        drop(guard);
    };
    let reader = thread::Builder::new()
        .name("long-reader".into())
        .spawn(reader)
        .unwrap();
    is_pinned.recv().unwrap();
    let drops = Drops::default();
    let one = drops.one();
    collector.register().pin().defer(move || drop(one));
    let report = told.recv().unwrap();
    assert!(
        report.contains("long-reader") && report.contains("crossbeam-epoch"),
        "{report}"
    );
    assert!(collector.statistics().stalls > 0);
    assert_eq!(drops.count(), 0);
    unpin.send(()).unwrap();
    reader.join().unwrap();
    drops.wait_for(1);
}

/// A pin may run a stall handler, which may pin as well, and keep its guard: the pin does not leave
/// the section to wait for others.
#[test]
#[cfg(all(feature = "reports", not(miri)))]
fn a_guard_of_a_stall_handler_is_kept_by_the_pin_that_runs_it() {
    /// More than the budget, and more than a page.
    const EARLIER: usize = 4_000;
    const SOME: usize = 600;
    thread_local! {
        static PINS: Cell<bool> = const { Cell::new(false) };
        static HANDLE: RefCell<Option<LocalHandle>> = const { RefCell::new(None) };
        static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
    }
    /// The handler, on the thread that pins: it keeps a guard under which it has removed a value.
    fn pin_and_keep(value: &Atomic<Counted>) {
        HANDLE.with_borrow(|handle| {
            let guard = handle.as_ref().unwrap().pin();
            let found = value.swap(Shared::null(), Ordering::AcqRel, &guard);
            // SAFETY: nothing finds it any more, and this happens once.
            unsafe { guard.defer_destroy(found) };
            // So that its page is full.
            (0..SOME).for_each(|_| guard.defer(|| ()));
            KEPT.set(Some(guard));
        });
    }
    let is_kept = || {
        let collector = Collector::new();
        collector.set_stall_timeout(Duration::MAX);
        let (found, earlier) = (Drops::default(), Drops::default());
        let value = Atomic::new(found.one());
        let once = AtomicBool::new(false);
        collector.on_stall(move |_| {
            if PINS.get() && !once.swap(true, Ordering::Relaxed) {
                pin_and_keep(&value);
            }
        });
        // The service thread is inside a function that blocks, and so in a section.
        let ((begin, begun), (end, may_end)) = (channel(), channel::<()>());
        let theirs = collector.clone();
        let blocks = move || {
            theirs.register().pin().defer(move || {
                begin.send(()).unwrap();
                let _ = may_end.recv();
            });
        };
        thread::spawn(blocks).join().unwrap();
        begun.recv().unwrap();
        HANDLE.set(Some(collector.register()));
        let pin = || HANDLE.with_borrow(|handle| handle.as_ref().unwrap().pin());
        let guard = pin();
        for _ in 0..EARLIER {
            let one = (earlier.one(), [0_u8; 1 << 10]);
            // SAFETY: nothing else knows it.
            unsafe { guard.defer_destroy(Owned::new(one).into_shared(&guard)) };
        }
        drop(guard);
        // Long enough for the next pin to report the service thread, most of the time.
        collector.set_stall_timeout(Duration::from_millis(1));
        thread::sleep(Duration::from_millis(5));
        PINS.set(true);
        let guard = pin();
        PINS.set(false);
        let Some(kept) = KEPT.take() else {
            return false;
        };
        drop(end);
        // They had been deferred before that pin. And then for a while.
        wait_until(|| {
            kept.flush();
            earlier.count() > EARLIER - SOME
        });
        for _ in 0..20 {
            kept.flush();
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(found.count(), 0, "the handler's guard is there");
        drop((guard, kept));
        found.wait_for(1);
        true
    };
    assert!((0..20).any(|_| is_kept()), "no pin has run the handler");
}

/// What a thread has deferred last runs without another call.
#[test]
fn what_is_left_runs_by_itself() {
    let drops = Drops::default();
    let one = drops.one();
    epoch::pin().defer(move || drop(one));
    drops.wait_for(1);
    let theirs = drops.clone();
    thread::spawn(move || {
        let one = theirs.one();
        epoch::pin().defer(move || drop(one));
    })
    .join()
    .unwrap();
    drops.wait_for(2);
}

/// Guards are counted, and not nested in the engine: no limit, and no abort.
#[test]
fn a_million_guards_nest() {
    let collector = Collector::new();
    let handle = collector.register();
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

#[test]
fn unsized_objects_have_their_length_with_them() {
    let guard = &epoch::pin();
    for len in [0, 1, 7, 1000] {
        let mut owned = Owned::<[MaybeUninit<u16>]>::init(len);
        assert_eq!(owned.len(), len);
        owned.iter_mut().enumerate().for_each(|(n, element)| {
            element.write(n as u16);
        });
        let atomic: Atomic<[MaybeUninit<u16>]> = Atomic::from(owned.with_tag(1));
        let shared = atomic.load(Ordering::Acquire, guard);
        assert_eq!(shared.tag(), 1);
        // SAFETY: written above; no other thread knows it.
        unsafe {
            let last = shared.deref().last().map(|last| last.assume_init());
            assert_eq!(last, len.checked_sub(1).map(|last| last as u16));
            guard.defer_destroy(shared);
        }
    }
    assert_eq!(<[MaybeUninit<u8>]>::ALIGN, align_of::<usize>());
    #[repr(align(32))]
    struct Aligned;
    assert_eq!(<[MaybeUninit<Aligned>]>::ALIGN, 32);
    let owned = Owned::<[MaybeUninit<Aligned>]>::init(3);
    assert_eq!(owned.as_ptr().addr() % 32, 0);
}

/// A user's type behind a pointer.
struct Pair(Arc<AtomicUsize>);

#[repr(transparent)]
struct Unsized([u8]);

impl Pointable for Unsized {
    const ALIGN: usize = 8;
    type Init = Pair;

    unsafe fn init(init: Pair) -> usize {
        Box::into_raw(Box::new((init, 8_u64))).expose_provenance()
    }
    unsafe fn deref<'a>(ptr: usize) -> &'a Self {
        let at = std::ptr::with_exposed_provenance::<(Pair, u64)>(ptr);
        // SAFETY: eight bytes of a box of this type; transparent.
        unsafe {
            let bytes = std::ptr::slice_from_raw_parts((&raw const (*at).1).cast::<u8>(), 8);
            &*(bytes as *const Self)
        }
    }
    unsafe fn deref_mut<'a>(ptr: usize) -> &'a mut Self {
        let at = std::ptr::with_exposed_provenance_mut::<(Pair, u64)>(ptr);
        // SAFETY: as in `deref`.
        unsafe {
            let bytes = std::ptr::slice_from_raw_parts_mut((&raw mut (*at).1).cast::<u8>(), 8);
            &mut *(bytes as *mut Self)
        }
    }
    unsafe fn drop(ptr: usize) {
        let at = std::ptr::with_exposed_provenance_mut::<(Pair, u64)>(ptr);
        // SAFETY: of a box of this type.
        let both = unsafe { Box::from_raw(at) };
        both.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_users_own_pointable_is_freed_by_itself() {
    let freed = Arc::new(AtomicUsize::new(0));
    let collector = Collector::new();
    let handle = collector.register();
    {
        let guard = handle.pin();
        let atomic = Atomic::<Unsized>::init(Pair(Arc::clone(&freed)));
        let shared = atomic.load(Ordering::Acquire, &guard);
        // SAFETY: no other thread knows it.
        unsafe {
            assert_eq!(shared.deref().0.len(), 8);
            // With a tag, which is none of the address.
            guard.defer_destroy(shared.with_tag(5));
        }
    }
    drop((handle, collector));
    assert_eq!(freed.load(Ordering::Relaxed), 1);
}

#[test]
fn objects_of_all_kinds_are_freed_whatever_their_tag() {
    let drops = Drops::default();
    let collector = Collector::new();
    let handle = collector.register();
    {
        let guard = &handle.pin();
        // SAFETY: no other thread knows any of them.
        unsafe {
            guard.defer_destroy(Owned::new(7_u64).with_tag(3).into_shared(guard));
            guard.defer_destroy(Owned::new(()).into_shared(guard));
            guard.defer_destroy(Owned::new([0_u8; 5000]).into_shared(guard));
            guard.defer_destroy(
                Owned::new(String::from("a string"))
                    .with_tag(7)
                    .into_shared(guard),
            );
            guard.defer_destroy(
                Owned::new((drops.one(), [0_u64; 500]))
                    .with_tag(1)
                    .into_shared(guard),
            );
            struct Nothing(std::marker::PhantomData<u8>);
            static GONE: AtomicUsize = AtomicUsize::new(0);
            impl Drop for Nothing {
                fn drop(&mut self) {
                    GONE.fetch_add(1, Ordering::Relaxed);
                }
            }
            guard.defer_destroy(Owned::new(Nothing(std::marker::PhantomData)).into_shared(guard));
        }
    }
    drop((handle, collector));
    assert_eq!(drops.count(), 1);
}

#[test]
fn tags_have_the_bits_that_the_alignment_leaves() {
    let guard = &epoch::pin();
    assert_eq!(Shared::<u8>::null().with_tag(usize::MAX).tag(), 0);
    assert_eq!(Shared::<u64>::null().with_tag(usize::MAX).tag(), 7);
    let atomic = Atomic::new(5_u64);
    atomic.fetch_or(usize::MAX, Ordering::Relaxed, guard);
    assert_eq!(atomic.load(Ordering::Relaxed, guard).tag(), 7);
    assert_eq!(atomic.fetch_and(5, Ordering::Relaxed, guard).tag(), 7);
    assert_eq!(
        atomic.fetch_xor(usize::MAX, Ordering::Relaxed, guard).tag(),
        5
    );
    let shared = atomic.load(Ordering::Relaxed, guard);
    assert_eq!(shared.tag(), 2);
    // SAFETY: no other thread knows it.
    unsafe {
        assert_eq!(shared.deref(), &5);
        assert_ne!(shared, shared.with_tag(0), "compared with their tags");
        drop(atomic.into_owned());
    }
    assert!(Shared::<u64>::null().with_tag(3).is_null());
    // SAFETY: there is nothing.
    assert!(unsafe { Shared::<u64>::null().with_tag(3).try_into_owned() }.is_none());
}

#[test]
#[should_panic(expected = "unaligned pointer")]
fn a_raw_pointer_is_aligned() {
    let _ = Shared::from(std::ptr::without_provenance::<u64>(9));
}

/// A pointer that is shown is not followed.
#[test]
fn pointers_are_shown_without_a_look_at_what_is_there() {
    assert_eq!(format!("{:p}", Atomic::<u64>::null()), "0x0");
    assert_eq!(format!("{:p}", Shared::<[MaybeUninit<u8>]>::null()), "0x0");
    let dangling = Shared::from(std::ptr::without_provenance::<u64>(0x1000)).with_tag(3);
    assert_eq!(format!("{dangling:p}"), "0x1000");
    assert_eq!(format!("{:p}", Atomic::<u64>::from(dangling)), "0x1000");
    assert_eq!(format!("{dangling:?}"), "Shared { raw: 4096, tag: 3 }");
    assert_eq!(
        format!("{:?}", Atomic::<u64>::from(dangling)),
        "Atomic { raw: 4096, tag: 3 }"
    );
    assert_eq!(format!("{:?}", epoch::pin()), "Guard { .. }");
    assert_eq!(format!("{:?}", Collector::new()), "Collector { .. }");
    assert_eq!(
        format!("{:?}", Collector::new().register()),
        "LocalHandle { .. }"
    );
}

/// Exchanges, and what a failed one gives back.
#[test]
fn exchanges_give_back_what_was_not_stored() {
    let guard = &epoch::pin();
    let atomic = Atomic::<u32>::null();
    let (strong, weak) = (Ordering::AcqRel, Ordering::Acquire);
    let stored = atomic
        .compare_exchange(Shared::null(), Owned::new(1), strong, weak, guard)
        .unwrap();
    let error = atomic
        .compare_exchange(Shared::null(), Owned::new(2), strong, weak, guard)
        .unwrap_err();
    assert_eq!((error.current, *error.new), (stored, 2));
    let updated = atomic.fetch_update(strong, weak, guard, |seen| Some(seen.with_tag(1)));
    assert_eq!(updated, Ok(stored));
    let refused = atomic.fetch_update(strong, weak, guard, |_| None);
    assert_eq!(refused, Err(stored.with_tag(1)));
    let swapped = atomic.swap(Shared::null(), strong, guard);
    assert_eq!(swapped, stored.with_tag(1));
    // SAFETY: no other thread knows it.
    drop(unsafe { swapped.into_owned() });
    assert_eq!(atomic.load_consume(guard), Shared::null());
}

/// Many threads replace one object; each that is found is whole.
#[test]
fn threads_find_whole_objects() {
    let (drops, made) = (Drops::default(), AtomicUsize::new(1));
    let atomic = Atomic::new((drops.one(), [1_u64; 8]));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..some(20_000) as u64 {
                    let guard = &epoch::pin();
                    let found = atomic.load(Ordering::Acquire, guard);
                    // SAFETY: not null, and the guard keeps it.
                    let numbers = unsafe { found.deref() }.1;
                    assert!(numbers.iter().all(|&each| each == numbers[0]));
                    if n % 3 == 0 {
                        let new = Owned::new((drops.one(), [n; 8]));
                        made.fetch_add(1, Ordering::Relaxed);
                        let old = atomic.swap(new, Ordering::AcqRel, guard);
                        // SAFETY: no thread finds it any more.
                        unsafe { guard.defer_destroy(old) };
                    }
                }
            });
        }
    });
    drops.wait_for(made.load(Ordering::Relaxed) - 1);
    // SAFETY: no other thread knows it.
    drop(unsafe { atomic.into_owned() });
}
