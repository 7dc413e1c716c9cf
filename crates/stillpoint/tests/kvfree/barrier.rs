//! What `kvfree_barrier` covers.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self},
    time::Duration,
};

use stillpoint::{Domain, lab::free_whole_batches};

use crate::{
    Idle, SOME,
    common::{Tally, retire_inline},
    retire, retire_some,
};

#[test]
fn barrier_leaves_nothing_pending() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let rounds = if cfg!(miri) { 3 } else { 50 };
    for _ in 0..rounds {
        retire_some(&domain, &tally);
        (0..SOME).for_each(|number| retire(&domain, number));
        domain.kvfree_barrier();
        assert!(tally.all_dropped());
        let statistics = domain.statistics();
        assert_eq!(
            (statistics.objects_pending, statistics.bytes_pending),
            (0, 0)
        );
    }
    assert_eq!(domain.statistics().objects_freed, 2 * rounds * SOME as u64);
}

#[test]
fn barrier_covers_idle_threads() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let (theirs, counted) = (domain.clone(), tally.clone());
    let idle = Idle::after(8, move |_| retire_some(&theirs, &counted));
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    idle.end();
}

#[test]
fn barriers_of_producers_cover_their_own() {
    let domain = Domain::new();
    let rounds = if cfg!(miri) { 2 } else { 30 };
    thread::scope(|scope| {
        for _ in 0..if cfg!(miri) { 3 } else { 8 } {
            scope.spawn(|| {
                let tally = Tally::new();
                for _ in 0..rounds {
                    retire_some(&domain, &tally);
                    domain.kvfree_barrier();
                    assert!(tally.all_dropped());
                }
            });
        }
    });
}

/// Each barrier waits for everything that another thread reported as retired before it.
fn barriers_cover_active_threads(whole_batches: bool) {
    /// Number of objects by which a producer may be ahead of the drops, to bound memory: many
    /// pages.
    const LEAD: usize = 20_000;
    let domain = Domain::new();
    free_whole_batches(&domain, whole_batches);
    let over = AtomicBool::new(false);
    let producers: [_; 4] = std::array::from_fn(|_| (Tally::new(), AtomicUsize::new(0)));
    thread::scope(|scope| {
        for (tally, told) in &producers {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    retire(&domain, tally.value(1));
                    told.fetch_add(1, Ordering::Release);
                    while tally.made() > tally.dropped() + LEAD && !over.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                }
            });
        }
        let covered = (0..if cfg!(miri) { 3 } else { 300 }).all(|_| {
            let told = producers
                .each_ref()
                .map(|(_, told)| told.load(Ordering::Acquire));
            domain.kvfree_barrier();
            producers
                .iter()
                .zip(told)
                .all(|((tally, _), told)| tally.dropped() >= told)
        });
        over.store(true, Ordering::Relaxed);
        assert!(
            covered,
            "kvfree_barrier returned before what was retired had been freed"
        );
    });
}

#[test]
fn barrier_covers_active_threads() {
    barriers_cover_active_threads(false);
}

#[test]
fn barrier_covers_whole_batches() {
    barriers_cover_active_threads(true);
}

/// A scope returns when its threads have returned from their functions; their thread-local state
/// may still be on its way.
#[test]
fn barrier_covers_exiting_threads() {
    let domain = Domain::new();
    for round in 0..if cfg!(miri) { 10 } else { 2_000 } {
        let tally = Tally::new();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| retire(&domain, tally.value(1)));
            }
        });
        domain.kvfree_barrier();
        assert_eq!(
            tally.dropped(),
            2,
            "round {round}: kvfree_barrier returned before what was retired had been freed"
        );
    }
}

/// A list whose parts each retire the next when they are dropped: on the service thread, or inline.
struct RetiringList {
    left: usize,
    inline: bool,
    domain: Domain,
    dropped: Arc<AtomicUsize>,
}

impl RetiringList {
    fn retire(self) {
        let domain = self.domain.clone();
        if self.inline {
            retire_inline(&domain, self);
        } else {
            retire(&domain, self);
        }
    }
}

impl Drop for RetiringList {
    fn drop(&mut self) {
        if self.left > 0 {
            let rest = RetiringList {
                left: self.left - 1,
                domain: self.domain.clone(),
                dropped: Arc::clone(&self.dropped),
                ..*self
            };
            rest.retire();
        }
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_nested_barrier_waits_for_what_destructors_retire() {
    const PARTS: usize = 12;
    for inline in [false, true] {
        let domain = Domain::new();
        let dropped = Arc::new(AtomicUsize::new(0));
        let chain = || RetiringList {
            left: PARTS - 1,
            inline,
            domain: domain.clone(),
            dropped: Arc::clone(&dropped),
        };
        for chains in 1..=20 {
            chain().retire();
            if chains % 2 == 0 {
                // Runs some inline, of the first of which nothing but their retires is left.
                domain.flush();
            }
            domain.kvfree_barrier_nested();
            assert_eq!(dropped.load(Ordering::SeqCst), chains * PARTS);
        }
        domain.kvfree_barrier_nested();
        assert_eq!(domain.statistics().objects_pending, 0);
    }
}

/// The barrier also covers an object whose destructor is just being run by the thread that has
/// retired it, and retires the next.
#[test]
fn the_nested_barrier_waits_for_what_another_thread_frees_inline() {
    // Out of its open page, and with a page that is full.
    for more in [0, 300] {
        nested_beside_frees_inline(more);
    }
}

fn nested_beside_frees_inline(more: usize) {
    struct Slow {
        domain: Domain,
        runs: Arc<Barrier>,
        may_end: Arc<Barrier>,
        tally: Tally,
    }
    impl Drop for Slow {
        fn drop(&mut self) {
            self.runs.wait();
            self.may_end.wait();
            retire(&self.domain, self.tally.value(0));
        }
    }
    let (domain, tally) = (Domain::new(), Tally::new());
    let [runs, may_end, over] = [(); 3].map(|()| Arc::new(Barrier::new(2)));
    thread::scope(|scope| {
        let object = Slow {
            domain: domain.clone(),
            runs: Arc::clone(&runs),
            may_end: Arc::clone(&may_end),
            tally: tally.clone(),
        };
        let (domain, over) = (&domain, &over);
        scope.spawn(move || {
            // The object's destructor waits for a thread that retires nothing.
            retire_inline(domain, object);
            (0..more).for_each(|number| retire(domain, number));
            // Otherwise the service thread frees it, and this is the other test.
            domain.flush();
            over.wait();
        });
        runs.wait();
        let waits = scope.spawn(|| domain.kvfree_barrier_nested());
        // The barrier is most often under way by then.
        thread::sleep(Duration::from_millis(5));
        may_end.wait();
        waits.join().expect("no panic");
        let seen = (tally.made(), tally.dropped());
        over.wait();
        assert_eq!(seen, (1, 1));
    });
}
