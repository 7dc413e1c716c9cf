//! The outermost pin is a sequentially consistent fence (not with `nofence`). crossbeam-deque
//! relies on it for stealing, but its own tests pass without it.
#![cfg(not(feature = "nofence"))]

mod common;

use common::some;
use crossbeam_epoch::{self as epoch, Collector, Guard, LocalHandle};
use std::{
    cell::OnceCell,
    hint,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// If two threads each write one word and read the other, with a fence in between, at least one
/// sees the other's write.
fn one_sees_the_other(pin: impl Fn() -> Guard + Sync) {
    let words = [const { AtomicUsize::new(0) }; 2];
    let (arrived, rounds) = (AtomicUsize::new(0), some(30_000));
    let meet = |count: usize| {
        arrived.fetch_add(1, Ordering::AcqRel);
        let mut looks = 0;
        while arrived.load(Ordering::Acquire) < count {
            looks += 1;
            // On a busy machine, let the other thread run.
            if cfg!(miri) || looks > 500 {
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
    };
    let run = |mine: usize| {
        // The first pin has other effects.
        drop(pin());
        let mut seen = Vec::with_capacity(rounds);
        for round in 1..=rounds {
            meet(4 * round - 2);
            words[mine].store(round, Ordering::Relaxed);
            let guard = pin();
            seen.push(words[1 - mine].load(Ordering::Relaxed) == round);
            drop(guard);
            meet(4 * round);
        }
        seen
    };
    let (one, two) = thread::scope(|scope| {
        let two = scope.spawn(|| run(1));
        (run(0), two.join().unwrap())
    });
    let missed = one
        .iter()
        .zip(&two)
        .filter(|seen| *seen == (&false, &false));
    assert_eq!(missed.count(), 0, "neither thread has seen the other");
}

#[test]
fn the_first_pin_of_a_thread_is_a_fence() {
    one_sees_the_other(epoch::pin);
}

thread_local! {
    static ONE: OnceCell<LocalHandle> = const { OnceCell::new() };
    static OTHER: OnceCell<Guard> = const { OnceCell::new() };
}

/// Pins with the thread's handle of `collector`.
fn pin_in(collector: &Collector) -> Guard {
    ONE.with(|one| one.get_or_init(|| collector.register()).pin())
}

/// Only `is_pinned` decides, whatever other sections the thread is in.
#[test]
fn it_is_in_a_section_of_the_programs_own_and_beside_another_handle() {
    let collector = Collector::new();
    one_sees_the_other(|| {
        // Once per thread, because registering does more than fence.
        OTHER.with(|other| {
            other.get_or_init(|| collector.register().pin());
        });
        let _section = stillpoint::read_lock();
        assert!(!epoch::is_pinned());
        epoch::pin()
    });
}

#[test]
fn the_first_pin_of_a_handle_is_a_fence() {
    let collector = Collector::new();
    one_sees_the_other(|| pin_in(&collector));
}

/// So is the restart of a guard.
#[test]
fn a_guard_that_begins_again_is_a_fence() {
    let collector = Collector::new();
    one_sees_the_other(|| {
        let mut guard = pin_in(&collector);
        guard.repin_after(|| ());
        guard
    });
}
