//! Floods of deferred functions: how they are bounded, and for whom a pin waits.

use crate::common::{Drops, destroy, some, wait_until};
use crossbeam_epoch::Collector;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// A thread that defers through one short-lived handle after the other never frees: each pin is the
/// first of its handle. The service thread frees its garbage meanwhile.
#[test]
#[cfg_attr(miri, ignore = "the service thread comes between any two of its steps")]
fn garbage_of_short_lived_handles_goes_while_they_come() {
    garbage_goes_while(|collector, drops| {
        drops.defer(&collector.register().pin());
    });
}

/// The same for a thread that only repins.
#[test]
#[cfg_attr(miri, ignore = "the service thread comes between any two of its steps")]
fn garbage_of_a_guard_that_repins_goes_while_it_does() {
    let mut guard = None;
    garbage_goes_while(|collector, drops| {
        let guard = guard.get_or_insert_with(|| collector.register().pin());
        drops.defer(guard);
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

/// Contract 12: however much a guard holds up, no thread waits for it, and nothing runs.
#[test]
fn a_flood_under_a_guard_goes_on() {
    let drops = Drops::default();
    let collector = Collector::new();
    let held = collector.register().pin();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let handle = collector.register();
            for _ in 0..some(30_000) {
                destroy(&handle.pin(), (drops.one(), [0_u8; 1000]));
            }
            done.store(true, Ordering::Release);
        });
        // If it waited for the guard, this would never end.
        wait_until(|| done.load(Ordering::Acquire));
        assert_eq!(drops.count(), 0);
        drop(held);
    });
    drops.wait_for(some(30_000));
}

/// A pin waits a little for a guard that is not held for long, so that a flood with such guards
/// stays within the budget.
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
                destroy(&handle.pin(), [n; 128]);
                if n % 100 == 0 {
                    peak = peak.max(collector.statistics().bytes_pending);
                }
            }
            over.store(true, Ordering::Release);
            peak
        })
    };
    // On a busy machine, a guard is held for as long as its thread is preempted.
    assert!((0..20).any(|_| peak() <= BUDGET + (1 << 20)));
}

/// Once a guard has been held for ten milliseconds, no thread's pin waits until that guard has
/// ended.
#[test]
#[cfg(all(feature = "reports", not(miri)))]
fn pins_do_not_sleep_for_a_guard_that_is_held_for_long() {
    /// The sleeps of 50 microseconds that fit into 10 milliseconds and a rounded one, and one more.
    const MOST: u64 = 225;
    /// A longer flood that did not sleep proves nothing: on a busy machine, its thread may have
    /// been preempted until the guard had been held for long.
    const QUICK: Duration = Duration::from_millis(9);
    let collector = Collector::new();
    let flood = |is_held: &AtomicBool| {
        let handle = collector.register();
        while !is_held.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let begin = Instant::now();
        // Large, so that a few exceed the budget.
        for _ in 0..20 {
            destroy(&handle.pin(), [0_u64; 32 << 10]);
        }
        begin.elapsed()
    };
    let waits = || collector.statistics().waits;
    let sleeps_beside_a_guard = || {
        let (before, is_held) = (waits(), AtomicBool::new(false));
        let holds = collector.register();
        let (sleeps, took) = thread::scope(|scope| {
            let first = scope.spawn(|| flood(&is_held));
            let held = holds.pin();
            is_held.store(true, Ordering::Release);
            let took = first.join().unwrap();
            for _ in 0..3 {
                thread::scope(|scope| scope.spawn(|| flood(&is_held)).join().unwrap());
            }
            drop(held);
            (waits() - before, took)
        });
        assert!(sleeps <= MOST, "{sleeps} sleeps");
        wait_until(|| collector.statistics().objects_pending == 0);
        (sleeps, took)
    };
    // Pins wait for the next guard again.
    for _ in 0..2 {
        let quick_without_sleep = (0..60)
            .map(|_| sleeps_beside_a_guard())
            .take_while(|&(sleeps, _)| sleeps == 0)
            .filter(|&(_, took)| took < QUICK)
            .count();
        assert!(quick_without_sleep < 10, "no pin waits");
    }
}

/// A flush of a few objects takes no page for them.
#[test]
#[cfg(all(feature = "reports", not(miri)))]
fn flushes_under_a_guard_share_a_page() {
    const COUNT: usize = 600;
    let drops = Drops::default();
    let collector = Collector::new();
    let held = collector.register().pin();
    let handle = collector.register();
    for _ in 0..COUNT {
        let guard = handle.pin();
        drops.defer(&guard);
        guard.flush();
    }
    assert_eq!(drops.count(), 0);
    // The service thread adopts the open one now and then.
    let pages = collector.statistics().pages;
    assert!(pages < 100, "{pages} pages");
    drop(held);
    drops.wait_for(COUNT);
}
