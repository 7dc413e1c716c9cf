//! Reports of a guard that is held for long.

use crate::common::{Counted, Drops, Reader, destroy, wait_until};
use crossbeam_epoch::{Atomic, Collector, Guard, LocalHandle, Shared};
use std::{
    cell::{Cell, RefCell},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    thread,
    time::Duration,
};

/// A guard that holds deferred functions up for long is reported, with its thread's name.
#[test]
fn a_guard_that_is_held_for_long_is_reported() {
    let collector = Collector::new();
    collector.set_stall_timeout(Duration::from_millis(1));
    let (tell, told) = channel();
    collector.on_stall(move |report| {
        let _ = tell.send(report.to_string());
    });
    let theirs = collector.clone();
    let reader = Reader::start("long-reader", move || theirs.register().pin());
    let drops = Drops::default();
    drops.defer(&collector.register().pin());
    let report = told.recv().unwrap();
    assert!(
        report.contains("long-reader") && report.contains("crossbeam-epoch"),
        "{report}"
    );
    assert!(collector.statistics().stalls > 0);
    assert_eq!(drops.count(), 0);
    reader.leave();
    drops.wait_for(1);
}

/// A pin may run a stall handler, which may pin, too, and keep its guard: then the pin does not
/// leave the section to wait for others.
#[test]
fn a_guard_of_a_stall_handler_is_kept_by_the_pin_that_runs_it() {
    /// More than the budget, and more than a page.
    const EARLIER: usize = 4_000;
    const SOME: usize = 600;
    thread_local! {
        static PINS: Cell<bool> = const { Cell::new(false) };
        static HANDLE: RefCell<Option<LocalHandle>> = const { RefCell::new(None) };
        static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
    }
    /// The handler, on the thread that pins: keeps a guard under which it has removed a value.
    fn pin_and_keep(value: &Atomic<Counted>) {
        HANDLE.with_borrow(|handle| {
            let guard = handle.as_ref().unwrap().pin();
            let found = value.swap(Shared::null(), Ordering::AcqRel, &guard);
            // SAFETY: nothing finds it any more, and this happens once.
            unsafe { guard.defer_destroy(found) };
            // Fills its page.
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
        // The service thread blocks in a function, and so in a section.
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
            destroy(&guard, (earlier.one(), [0_u8; 1 << 10]));
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
