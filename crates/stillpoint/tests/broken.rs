//! A check catches the machinery with a part left out; the complete machinery passes it.
//!
//! The elements are type-stable: cells of an array that are alive or dead, so finding a dead one is
//! a fault that the test sees, not undefined behaviour. A reader finds the current element and
//! watches it for a moment; an updater makes another one current, waits for a grace period, and
//! kills the old one.
//!
//! Detects no waiting and a missing W3 on real hardware.
#![cfg(not(miri))]

mod common;

use std::{
    hint,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};
use stillpoint::lab::{Domain, GracePeriodPolicy, Policy, Sound};

#[derive(Debug)]
enum Busted {}

// SAFETY: the only objects are type-stable elements, whose state alone is wrong when a reader is
// missed.
unsafe impl GracePeriodPolicy for Busted {
    const WAITS_FOR_READERS: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for Busted {}

#[derive(Debug)]
enum Unfenced {}

// SAFETY: as for `Busted`.
unsafe impl GracePeriodPolicy for Unfenced {
    const HEAVY_BARRIER: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for Unfenced {}

/// How long the sound machinery is watched, and how long a broken one may go uncaught.
const SOUND: Duration = Duration::from_millis(500);
const CAUGHT: Duration = Duration::from_secs(120);

/// How often a reader looks at the element that it has found.
const LOOKS: usize = 64;

/// Aligned to two cache lines, because processors fetch the neighbouring line as well.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

#[derive(Debug, Default)]
struct Torture {
    alive: [Apart<AtomicBool>; 8],
    current: Apart<AtomicUsize>,
    over: Apart<AtomicBool>,
    violations: Apart<AtomicUsize>,
    has_read: Apart<AtomicBool>,
}

impl Torture {
    /// Returns whether one of the readers saw a dead element before `limit` had passed.
    fn catches<P: Policy>(readers: usize, limit: Duration, wait: fn(&Domain<P>)) -> bool {
        let torture = Self::default();
        torture.alive[0].0.store(true, Ordering::Relaxed);
        let domain = Domain::<P>::new();
        let mut updates = 0;
        thread::scope(|scope| {
            for _ in 0..readers {
                scope.spawn(|| torture.read(&domain));
            }
            // On a busy machine that may take a while.
            while !torture.has_read.0.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            let start = Instant::now();
            while torture.violations.0.load(Ordering::Relaxed) == 0 && start.elapsed() < limit {
                for _ in 0..100 {
                    updates += 1;
                    torture.update(&domain, updates, wait);
                }
            }
            torture.over.0.store(true, Ordering::Relaxed);
        });
        torture.violations.0.into_inner() > 0
    }

    fn read<P: Policy>(&self, domain: &Domain<P>) {
        let clutter = Clutter::default();
        while !self.over.0.load(Ordering::Relaxed) {
            clutter.delay_later_stores();
            let guard = domain.read_lock();
            let alive = &self.alive[self.current.0.load(Ordering::Acquire)];
            let lived = (0..LOOKS).all(|_| {
                hint::spin_loop();
                alive.0.load(Ordering::Relaxed)
            });
            drop(guard);
            if !self.has_read.0.load(Ordering::Relaxed) {
                self.has_read.0.store(true, Ordering::Relaxed);
            }
            if !lived {
                self.violations.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn update<P: Policy>(&self, domain: &Domain<P>, number: usize, wait: fn(&Domain<P>)) {
        // Pauses of all lengths, in which readers get `current` into their caches again.
        (0..number.wrapping_mul(0x9E37) % 300).for_each(|_| hint::spin_loop());
        let next = number % self.alive.len();
        self.alive[next].0.store(true, Ordering::Relaxed);
        let old = self.current.0.swap(next, Ordering::AcqRel);
        wait(domain);
        self.alive[old].0.store(false, Ordering::Relaxed);
    }
}

/// Cache lines to be flushed.
#[derive(Debug, Default)]
struct Clutter(
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "nothing to flush")
    )]
    [Apart<AtomicUsize>; 8],
);

impl Clutter {
    /// Makes the next stores of this thread, such as that of its record's word, wait for their
    /// turn: on x86-64 they become visible in order, behind flushes of some 100 ns each, while
    /// loads go ahead. Other processors reorder without being asked.
    #[inline(always)]
    fn delay_later_stores(&self) {
        #[cfg(target_arch = "x86_64")]
        for line in &self.0 {
            line.0.store(1, Ordering::Relaxed);
            // SAFETY: an address that is ours; every x86-64 has the instruction.
            unsafe { std::arch::x86_64::_mm_clflush(line.0.as_ptr().cast::<u8>()) };
        }
    }
}

/// A grace period in the fewest instructions.
fn poll<P: Policy>(domain: &Domain<P>) {
    let cookie = domain.start_poll();
    while !domain.poll(cookie) {}
}

/// Returns whether two threads run at once here; without that nothing is reordered, and little is
/// missed.
fn has_two_cpus() -> bool {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        eprintln!("skipped: one CPU");
    }
    cpus >= 2
}

#[test]
fn a_machinery_that_does_not_wait_for_readers_is_caught() {
    assert!(
        !has_two_cpus() || Torture::catches::<Busted>(2, CAUGHT, Domain::synchronize),
        "the fault was not detected"
    );
}

/// Unoptimized, a reader makes more stores than a store buffer holds before it loads anything: its
/// word is out by then.
#[test]
#[cfg_attr(debug_assertions, ignore = "only optimized code shows it")]
fn a_machinery_without_the_heavy_barrier_is_caught() {
    if !stillpoint::membarrier_active() {
        return eprintln!("skipped: without membarrier readers fence by themselves");
    }
    if !has_two_cpus() {
        return;
    }
    assert!(
        Torture::catches::<Unfenced>(1, CAUGHT, poll),
        "the fault was not detected"
    );
}

#[test]
fn the_whole_machinery_passes() {
    for readers in [1, 2] {
        assert!(
            !Torture::catches::<Sound>(readers, SOUND, Domain::synchronize),
            "a reader saw a dead element"
        );
        assert!(
            !Torture::catches::<Sound>(readers, SOUND, poll),
            "a reader saw a dead element"
        );
    }
}

#[test]
fn all_of_this_holds_without_membarrier_too() {
    common::assert_holds_without_membarrier();
}
