//! Deferred frees: everything that is retired is freed once, in bounded memory, while threads start
//! and exit.

mod common;

use common::{Over, Reader, Tally, Tracked, eventually, returns};
use std::{
    alloc::{self, Layout},
    mem::offset_of,
    panic,
    ptr::NonNull,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    thread::{self, JoinHandle, ThreadId},
    time::Duration,
};
use stillpoint::{CallbackHead, Domain, EmbedsHead};

/// A page of the library holds about 250 objects; this is several pages, and no whole number of
/// them.
const SOME: usize = if cfg!(miri) { 300 } else { 3_001 };

fn leak<T>(value: T) -> NonNull<T> {
    NonNull::from(Box::leak(Box::new(value)))
}

fn retire<T: Send + 'static>(domain: &Domain, value: T) {
    // SAFETY: no other thread has ever known the object.
    unsafe { domain.retire(leak(value)) };
}

fn retire_some(domain: &Domain, tally: &Tally) {
    (0..SOME).for_each(|number| retire(domain, tally.value(number as u64)));
}

/// Threads that have done `work` and stay, without another call, until they are dropped.
struct Idle(Vec<(Sender<()>, Option<JoinHandle<()>>)>);

impl Idle {
    fn after(threads: usize, work: impl Fn(usize) + Clone + Send + 'static) -> Self {
        let idle = (0..threads).map(|number| {
            let work = work.clone();
            let (done, is_done) = channel();
            let (end, may_end) = channel::<()>();
            let thread = thread::spawn(move || {
                work(number);
                done.send(()).expect("the receiver is there");
                may_end.recv().expect_err("nothing is sent");
            });
            (end, is_done, thread)
        });
        let idle: Vec<_> = idle.collect();
        idle.iter()
            .for_each(|(_, is_done, _)| is_done.recv().expect("no panic"));
        Self(
            idle.into_iter()
                .map(|(end, _, thread)| (end, Some(thread)))
                .collect(),
        )
    }

    fn end(self) {
        for (end, mut thread) in self.0 {
            drop(end);
            thread
                .take()
                .expect("joined once")
                .join()
                .expect("no panic");
        }
    }
}

mod flood {
    //! Ten million objects of 64 threads that come and go.

    use super::*;

    const THREADS: usize = 64;
    const OBJECTS: usize = if cfg!(miri) { 128 } else { 10_000_000 };
    const EACH: usize = OBJECTS / THREADS;

    /// Sixteen threads at a time, each of which ends when it has retired its part.
    fn by_short_lived_threads(work: impl Fn(usize) + Sync) {
        for wave in 0..4 {
            thread::scope(|scope| {
                for thread in 0..THREADS / 4 {
                    let work = &work;
                    scope.spawn(move || work(wave * (THREADS / 4) + thread));
                }
            });
        }
    }

    #[test]
    fn ten_million_plain_objects_are_all_freed() {
        let domain = Domain::new();
        by_short_lived_threads(|_| (0..EACH).for_each(|number| retire(&domain, number)));
        eventually(|| domain.statistics().objects_pending == 0);
        domain.kvfree_barrier();
        let statistics = domain.statistics();
        assert_eq!(statistics.objects_freed, (EACH * THREADS) as u64);
        assert_eq!(
            (
                statistics.objects_pending,
                statistics.bytes_pending,
                statistics.panics
            ),
            (0, 0, 0)
        );
    }

    #[test]
    fn ten_million_destructors_run_once_each() {
        /// A counter a thread, so that they do not wait for one another's cache lines.
        #[repr(align(64))]
        struct Shard(AtomicUsize);
        static DROPS: [Shard; THREADS] = [const { Shard(AtomicUsize::new(0)) }; THREADS];
        struct Counted(usize);
        impl Drop for Counted {
            fn drop(&mut self) {
                // What it held is poison for a second run.
                DROPS[std::mem::replace(&mut self.0, usize::MAX)]
                    .0
                    .fetch_add(1, Ordering::Relaxed);
            }
        }
        let domain = Domain::new();
        by_short_lived_threads(|thread| (0..EACH).for_each(|_| retire(&domain, Counted(thread))));
        eventually(|| domain.statistics().objects_pending == 0);
        domain.kvfree_barrier();
        assert!(
            DROPS
                .iter()
                .all(|shard| shard.0.load(Ordering::Relaxed) == EACH)
        );
        assert_eq!(
            (
                domain.statistics().objects_freed,
                domain.statistics().panics
            ),
            ((EACH * THREADS) as u64, 0)
        );
    }
}

#[test]
fn idle_threads_objects_are_freed() {
    for some in [1, SOME] {
        let domain = Domain::new();
        let tally = Tally::new();
        let (theirs, counted) = (domain.clone(), tally.clone());
        let idle = Idle::after(4, move |_| {
            for number in 0..some {
                retire(&theirs, number);
                retire(&theirs, counted.value(number as u64));
            }
        });
        eventually(|| tally.all_dropped());
        eventually(|| domain.statistics().objects_pending == 0);
        assert_eq!(domain.statistics().objects_freed, 8 * some as u64);
        idle.end();
    }
}

#[test]
fn idle_threads_objects_are_freed_each_time() {
    let domain = Domain::new();
    for round in 1..=20 {
        retire(&domain, round);
        eventually(|| domain.statistics().objects_freed == round);
    }
}

#[test]
fn exited_threads_objects_are_freed() {
    let domain = Domain::new();
    let tally = Tally::new();
    for _ in 0..20 {
        let (theirs, counted) = (domain.clone(), tally.clone());
        thread::spawn(move || {
            retire(&theirs, 1);
            retire(&theirs, counted.value(1));
        })
        .join()
        .expect("no panic");
    }
    eventually(|| tally.all_dropped() && domain.statistics().objects_freed == 40);
}

#[test]
fn barrier_leaves_nothing_pending() {
    let domain = Domain::new();
    let tally = Tally::new();
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
    let domain = Domain::new();
    let tally = Tally::new();
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
    /// So far a producer runs ahead of the drops, for the memory's sake: many pages.
    const LEAD: usize = 20_000;
    let domain = Domain::new();
    domain.free_whole_batches(whole_batches);
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

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn domain_end_covers_exiting_threads() {
    if !common::is_child() {
        // A thread that fails at its very end takes the process with it.
        return common::child("domain_end_covers_exiting_threads").well();
    }
    for round in 0..2_000 {
        let tally = Tally::new();
        let domain = Domain::new();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| retire(&domain, tally.value(1)));
            }
        });
        drop(domain);
        assert_eq!(
            tally.dropped(),
            2,
            "round {round}: the domain is gone and its objects are not"
        );
    }
}

#[test]
fn destructor_panic_is_counted_and_the_others_run() {
    struct Sometimes(
        bool,
        #[expect(dead_code, reason = "counts its drop")] Tracked,
    );
    impl Drop for Sometimes {
        fn drop(&mut self) {
            if self.0 {
                panic::resume_unwind(Box::new("without a message"));
            }
        }
    }
    let domain = Domain::new();
    let tally = Tally::new();
    for round in 1..=3 {
        (0..SOME).for_each(|number| retire(&domain, Sometimes(number % 3 == 0, tally.value(1))));
        domain.kvfree_barrier();
        assert!(tally.all_dropped(), "unwinding drops the fields");
        assert_eq!(domain.statistics().panics, round * SOME.div_ceil(3) as u64);
        assert_eq!(domain.statistics().objects_freed, round * SOME as u64);
    }
    retire_some(&domain, &tally);
    drop(domain);
    assert!(tally.all_dropped());
}

#[test]
fn inline_destructor_panic_is_contained() {
    struct Sudden(#[expect(dead_code, reason = "counts its drop")] Tracked);
    impl Drop for Sudden {
        fn drop(&mut self) {
            panic::resume_unwind(Box::new("without a message"));
        }
    }
    let domain = Domain::new();
    let tally = Tally::new();
    for _ in 0..SOME {
        // SAFETY: no other thread has ever known the object.
        unsafe { domain.retire_inline(leak(Sudden(tally.value(1)))) };
    }
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    assert_eq!(domain.statistics().panics, SOME as u64);
}

/// An object whose destructor retires the next one.
struct Chain {
    left: usize,
    domain: Domain,
    tally: Tally,
    #[expect(dead_code, reason = "counts its drop")]
    own: Tracked,
}

impl Chain {
    fn new(left: usize, domain: &Domain, tally: &Tally) -> Self {
        Self {
            left,
            domain: domain.clone(),
            tally: tally.clone(),
            own: tally.value(left as u64),
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        if self.left > 0 {
            retire(
                &self.domain,
                Chain::new(self.left - 1, &self.domain, &self.tally),
            );
        }
    }
}

#[test]
fn destructor_retires_on_service_thread() {
    let domain = Domain::new();
    let tally = Tally::new();
    (0..100).for_each(|_| retire(&domain, Chain::new(10, &domain, &tally)));
    eventually(|| tally.dropped() == 1_100);
    // The last objects' own handles of the domain are gone when they are freed.
    domain.kvfree_barrier();
    assert_eq!(domain.statistics().objects_freed, 1_100);
}

#[test]
fn domain_lives_until_destructors_retires_are_freed() {
    let domain = Domain::new();
    let tally = Tally::new();
    (0..100).for_each(|_| retire(&domain, Chain::new(10, &domain, &tally)));
    drop(domain);
    eventually(|| tally.dropped() == 1_100);
}

#[test]
fn inline_destructor_retires_on_retiring_thread() {
    let domain = Domain::new();
    let tally = Tally::new();
    for _ in 0..SOME {
        // SAFETY: no other thread has ever known the object.
        unsafe { domain.retire_inline(leak(Chain::new(2, &domain, &tally))) };
    }
    eventually(|| tally.dropped() == 3 * SOME);
}

#[test]
fn inline_destructor_retires_during_a_barrier() {
    /// Retires, on the retiring thread, what is to be dropped on the service thread.
    struct Handover(Domain, Tally);
    impl Drop for Handover {
        fn drop(&mut self) {
            retire(&self.0, self.1.value(1));
        }
    }
    let domain = Domain::new();
    domain.set_budget(64 << 10);
    let tally = Tally::new();
    let threads = if cfg!(miri) { 2 } else { 300 };
    let over = Arc::new(AtomicBool::new(false));
    let waiter = {
        let (domain, over) = (domain.clone(), Arc::clone(&over));
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                domain.kvfree_barrier();
            }
        })
    };
    let (theirs, counted) = (domain.clone(), tally.clone());
    returns(move || {
        for _ in 0..threads {
            let (domain, tally) = (theirs.clone(), counted.clone());
            let retirer = thread::spawn(move || {
                for _ in 0..SOME {
                    // SAFETY: no other thread has ever known the object.
                    unsafe { domain.retire_inline(leak(Handover(domain.clone(), tally.clone()))) };
                }
            });
            retirer.join().expect("no panic");
        }
    });
    over.store(true, Ordering::Relaxed);
    returns(move || waiter.join().expect("no panic"));
    eventually(|| tally.dropped() == threads * SOME);
}

#[test]
fn retire_in_section_is_freed_after_it() {
    let domain = Domain::new();
    domain.set_budget(64 << 10);
    let tally = Tally::new();
    let (theirs, counted) = (domain.clone(), tally.clone());
    let idle = Idle::after(1, move |_| {
        let guard = theirs.read_lock();
        for number in 0..10 * SOME {
            retire(&theirs, [number; 8]);
        }
        retire_some(&theirs, &counted);
        assert_eq!(counted.dropped(), 0, "the section is open");
        let statistics = theirs.statistics();
        assert!(
            statistics.objects_pending >= 11 * SOME as u64 && statistics.objects_freed == 0,
            "{statistics:?}"
        );
        assert_eq!(
            (statistics.waits, statistics.assists),
            (0, 0),
            "no thread waits inside a section"
        );
        drop(guard);
    });
    eventually(|| tally.all_dropped() && domain.statistics().objects_pending == 0);
    idle.end();
}

#[test]
fn a_very_heavy_object_is_freed_by_the_service_thread() {
    /// A quarter of the budget is less.
    struct Table {
        _slots: [u8; 300 << 10],
        freed_on: Sender<ThreadId>,
    }
    impl Drop for Table {
        fn drop(&mut self) {
            let _ = self.freed_on.send(thread::current().id());
        }
    }

    let domain = Domain::new();
    domain.set_budget(1 << 20);
    let (freed_on, was_freed_on) = channel();
    let table = leak(Table {
        _slots: [0; 300 << 10],
        freed_on,
    });
    // SAFETY: no other thread has ever known the table, which may be dropped on any thread.
    unsafe { domain.retire_inline(table) };
    domain.synchronize();
    // At every seal a thread frees what is due of its own.
    (0..SOME).for_each(|number| retire(&domain, [number; 8]));
    let freed_on = was_freed_on.recv().expect("it is freed");
    assert_ne!(freed_on, thread::current().id());
}

/// Threads that come beside a reader that stays, retire less than a page each, and exit: past the
/// budget each waits, so they add no more to it than threads that stay.
mod churn {
    use super::*;

    const BUDGET: usize = 256 << 10;
    const THREADS: u64 = 40;
    const OBJECTS: usize = 200;
    /// So many of them are within the budget: what each leaves is 40 KiB and more.
    const WITHIN: u64 = 7;

    /// Retires objects of 200 bytes by `retire`, each thread from its first on inside a section if
    /// told so.
    fn come_and_go(domain: &Domain, retire: fn(&Domain, [u8; 200]), in_section: bool) {
        domain.set_budget(BUDGET);
        domain.set_stall_timeout(Duration::MAX);
        let reader = Reader::enter(domain);
        let before = domain.statistics();
        for _ in 0..THREADS {
            let theirs = domain.clone();
            let thread = thread::spawn(move || {
                let section = in_section.then(|| theirs.read_lock());
                (0..OBJECTS).for_each(|_| retire(&theirs, [7; 200]));
                drop(section);
            });
            thread.join().expect("no panic");
        }
        let after = domain.statistics();
        assert_eq!(after.objects_freed, before.objects_freed);
        assert!(after.waits - before.waits >= THREADS - WITHIN, "{after:?}");
        reader.leave();
        domain.kvfree_barrier();
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn threads_that_exit_early_wait_for_their_first_page() {
        come_and_go(&Domain::new(), retire, false);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn and_for_what_they_retire_in_a_section() {
        come_and_go(&Domain::new(), retire, true);
    }

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn the_same_in_the_global_domain() {
        if !common::is_child() {
            return common::child("churn::the_same_in_the_global_domain").well();
        }
        for in_section in [false, true] {
            // SAFETY: no other thread has ever known the object.
            let retire = |_: &Domain, value| unsafe { stillpoint::retire(leak(value)) };
            come_and_go(stillpoint::global(), retire, in_section);
        }
    }
}

#[test]
fn section_past_budget_reclaims_at_unlock() {
    let domain = Domain::new();
    domain.set_budget(64 << 10);
    // The service thread may be faster, but not every time.
    eventually(|| {
        let guard = domain.read_lock();
        let before = domain.statistics().assists;
        (0..10 * SOME).for_each(|number| retire(&domain, [number; 8]));
        assert_eq!(
            domain.statistics().assists,
            before,
            "no thread can wait inside a section"
        );
        drop(guard);
        domain.statistics().assists > before
    });
}

#[test]
fn stalled_reader_past_budget_is_reported_once() {
    let domain = Domain::new();
    domain.set_stall_timeout(Duration::MAX);
    domain.set_budget(256 << 10);
    let reader = Reader::enter(&domain);
    let tally = Tally::new();
    let over = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..4)
        .map(|_| {
            let (domain, tally, over) = (domain.clone(), tally.clone(), Arc::clone(&over));
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    retire(&domain, [7_u64; 8]);
                    retire(&domain, tally.value(1));
                    thread::yield_now();
                }
            })
        })
        .collect();
    eventually(|| domain.statistics().waits > 0);
    assert_eq!(domain.statistics().stalls, 0);
    domain.on_stall(|_| ());
    domain.set_stall_timeout(Duration::from_millis(20));
    eventually(|| domain.statistics().stalls == 1);
    // The stall is known: producers are not slowed down any more.
    let made = tally.made();
    eventually(|| tally.made() > made + 10 * SOME);
    over.store(true, Ordering::Relaxed);
    producers
        .into_iter()
        .for_each(|producer| producer.join().expect("no panic"));
    let statistics = domain.statistics();
    assert!(statistics.bytes_pending > 256 << 10, "{statistics:?}");
    assert_eq!(
        (statistics.objects_freed, tally.dropped(), statistics.stalls),
        (0, 0, 1),
        "one stall is reported once"
    );
    reader.leave();
    eventually(|| domain.statistics().objects_pending == 0);
    assert_eq!(
        (
            domain.statistics().bytes_pending,
            domain.statistics().stalls
        ),
        (0, 1)
    );
    assert!(tally.all_dropped());
}

#[test]
fn each_stall_is_reported() {
    let domain = Domain::new();
    domain.on_stall(|_| ());
    domain.set_stall_timeout(Duration::from_millis(1));
    for stall in 1..=3 {
        let reader = Reader::enter(&domain);
        domain.call(|| ());
        eventually(|| domain.statistics().stalls == stall);
        reader.leave();
        domain.barrier();
        assert_eq!(domain.statistics().stalls, stall);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_flood_stays_near_the_budget() {
    const BUDGET: usize = 1 << 20;
    let domain = Domain::new();
    domain.set_budget(BUDGET);
    let over = AtomicBool::new(false);
    let most = AtomicUsize::new(0);
    thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(
                    domain.statistics().bytes_pending as usize,
                    Ordering::Relaxed,
                );
                thread::yield_now();
            }
        });
        let producers: Vec<_> = (0..8)
            .map(|_| {
                let domain = &domain;
                scope.spawn(move || {
                    for number in 0..100 * SOME {
                        retire(domain, [number; 8]);
                        if number % 512 == 0 {
                            drop(domain.read_lock());
                        }
                    }
                })
            })
            .collect();
        producers
            .into_iter()
            .for_each(|producer| producer.join().expect("no panic"));
    });
    // A target, not a wall: 192 MB went through.
    assert!(
        most.load(Ordering::Relaxed) < 16 * BUDGET,
        "{most:?} bytes waited at a time"
    );
    domain.kvfree_barrier();
    assert_eq!(domain.statistics().objects_freed, 8 * 100 * SOME as u64);
}

/// Destructors slower than the retiring threads: only back-pressure keeps memory bounded, and in a
/// section it must be deferred, not skipped.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn destructor_retire_in_section_throttles_at_unlock() {
    struct Slow;
    impl Drop for Slow {
        fn drop(&mut self) {
            thread::yield_now();
        }
    }
    let domain = Domain::new();
    domain.set_budget(32 << 10);
    let mut retired = 0;
    while domain.statistics().waits == 0 {
        let guard = domain.read_lock();
        (0..100).for_each(|_| retire(&domain, Slow));
        drop(guard);
        retired += 100;
        assert!(
            retired < 10_000_000,
            "the retiring thread is never throttled"
        );
    }
    domain.kvfree_barrier();
    assert_eq!(domain.statistics().objects_freed, retired);
}

#[test]
fn online_qsbr_reader_is_never_throttled() {
    let domain = Domain::new();
    domain.set_budget(0);
    let reader = domain.qsbr_reader();
    (0..SOME).for_each(|number| retire(&domain, number));
    assert_eq!(domain.statistics().waits, 0, "it would wait for itself");
    drop(reader);
    domain.kvfree_barrier();
}

#[test]
fn whole_batches_free_everything() {
    let domain = Domain::new();
    domain.free_whole_batches(true);
    let tally = Tally::new();
    for _ in 0..5 {
        let (theirs, counted) = (domain.clone(), tally.clone());
        let idle = Idle::after(4, move |_| {
            retire_some(&theirs, &counted);
            (0..SOME).for_each(|number| retire(&theirs, number));
        });
        eventually(|| tally.all_dropped() && domain.statistics().objects_pending == 0);
        idle.end();
    }
    retire_some(&domain, &tally);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
}

/// A first batch waits for a reader; what is retired meanwhile becomes the second; then there are
/// no more calls.
#[test]
fn batch_behind_a_held_up_one_is_freed() {
    for _ in 0..5 {
        let domain = Domain::new();
        domain.free_whole_batches(true);
        let tally = Tally::new();
        let retire_elsewhere = || {
            let (theirs, counted) = (domain.clone(), tally.clone());
            thread::spawn(move || retire_some(&theirs, &counted))
                .join()
                .expect("no panic");
        };
        let guard = domain.read_lock();
        let before = domain.statistics().heavy_barriers;
        retire_elsewhere();
        // The service thread looks at what holds the first batch up.
        eventually(|| domain.statistics().heavy_barriers > before + 2);
        retire_elsewhere();
        // Not instead of an event: keeps the service thread from its next look at idle threads
        // until that is overdue. There are none by then, so nothing but the second batch itself is
        // a reason to go on.
        domain.call(|| thread::sleep(Duration::from_millis(50)));
        assert!(!domain.poll(domain.start_poll()) && tally.dropped() == 0);
        drop(guard);
        eventually(|| tally.all_dropped());
    }
}

#[test]
fn whole_batches_may_change_at_any_time() {
    let domain = Domain::new();
    let tally = Tally::new();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..10 {
                    retire_some(&domain, &tally);
                    (0..SOME).for_each(|number| retire(&domain, number));
                }
                over.store(true, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                domain.free_whole_batches(true);
                thread::yield_now();
                domain.free_whole_batches(false);
                thread::yield_now();
            }
        });
    });
    eventually(|| domain.statistics().objects_pending == 0);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    assert_eq!(domain.statistics().objects_freed, 60 * SOME as u64);
}

#[test]
fn blocks_of_any_layout_are_freed() {
    let domain = Domain::new();
    let mut blocks = 0;
    for size in [1, 7, 8, 24, 100, 4_096, 70_000] {
        for align in [1, 8, 64, 4_096] {
            let layout = Layout::from_size_align(size, align).expect("a layout");
            for _ in 0..20 {
                // SAFETY: the size is not 0.
                let block = NonNull::new(unsafe { alloc::alloc(layout) }).expect("memory");
                // SAFETY: allocated with that layout, and no other thread has ever known it.
                unsafe { domain.retire_sized(block, layout) };
                blocks += 1;
            }
        }
    }
    domain.kvfree_barrier();
    assert_eq!(
        (
            domain.statistics().objects_freed,
            domain.statistics().bytes_pending
        ),
        (blocks, 0)
    );
}

#[test]
fn inline_destructors_free_nested_memory() {
    let domain = Domain::new();
    let tally = Tally::new();
    for number in 0..SOME {
        let object = leak(vec![tally.value(number as u64), tally.value(0)]);
        // SAFETY: no other thread has ever known the object.
        unsafe { domain.retire_inline(object) };
        // SAFETY: the same.
        unsafe { domain.retire_inline(leak(number.to_string())) };
    }
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    assert_eq!(domain.statistics().objects_freed, 2 * SOME as u64);
}

#[test]
fn objects_with_a_head_are_freed() {
    struct Node {
        value: Tracked,
        head: CallbackHead,
    }
    // SAFETY: that is where the head is, and nothing else touches it.
    unsafe impl EmbedsHead for Node {
        const HEAD_OFFSET: usize = offset_of!(Node, head);
    }
    let domain = Domain::new();
    let tally = Tally::new();
    let reader = Reader::enter(&domain);
    for number in 0..SOME {
        let node = leak(Node {
            value: tally.value(number as u64),
            head: CallbackHead::new(),
        });
        // SAFETY: only we retire it.
        assert_eq!(unsafe { node.as_ref() }.value.get(), number as u64);
        // SAFETY: no other thread has ever known the node.
        unsafe { domain.retire_with_head(node) };
    }
    assert_eq!(tally.dropped(), 0);
    reader.leave();
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
}

#[test]
fn objects_without_a_size_are_freed() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Nothing;
    impl Drop for Nothing {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Ordering::Relaxed);
        }
    }
    let domain = Domain::new();
    for _ in 0..SOME {
        retire(&domain, Nothing);
        retire(&domain, ());
        // SAFETY: no other thread has ever known the object.
        unsafe { domain.retire_inline(leak(Nothing)) };
    }
    domain.kvfree_barrier();
    assert_eq!(DROPS.load(Ordering::Relaxed), 2 * SOME);
    assert_eq!(domain.statistics().objects_freed, 3 * SOME as u64);
}

#[test]
fn large_objects_seal_pages_early() {
    const MIB: usize = 1 << 20;
    struct Big(Vec<u8>);
    let domain = Domain::new();
    let layout = Layout::from_size_align(MIB, 8).expect("a layout");
    let retire_big = || {
        // SAFETY: the size is not 0.
        let block = NonNull::new(unsafe { alloc::alloc(layout) }).expect("memory");
        // SAFETY: allocated with that layout, and no other thread has ever known it.
        unsafe { domain.retire_sized(block, layout) };
    };
    let reader = Reader::enter(&domain);
    (0..6).for_each(|_| retire_big());
    let statistics = domain.statistics();
    assert!(
        statistics.bytes_pending >= 6 * MIB as u64 && statistics.pages >= 6,
        "each seals a page: {statistics:?}"
    );
    assert_eq!(statistics.objects_freed, 0);
    reader.leave();
    // Far fewer than a page holds, so only pages that are sealed early keep this from waiting all
    // at once.
    for _ in 0..64 {
        retire_big();
        let waiting = domain.statistics().bytes_pending;
        assert!(waiting <= 16 * MIB as u64, "{waiting} bytes wait");
    }
    retire(&domain, Big(vec![1; MIB]).0);
    domain.kvfree_barrier();
    assert_eq!(
        (
            domain.statistics().objects_freed,
            domain.statistics().bytes_pending
        ),
        (71, 0)
    );
}

#[test]
fn domain_end_frees_pending_objects() {
    for whole_batches in [false, true] {
        let tally = Tally::new();
        let domain = Domain::new();
        domain.free_whole_batches(whole_batches);
        retire_some(&domain, &tally);
        let (theirs, counted) = (domain.clone(), tally.clone());
        let start = Arc::new(Barrier::new(2));
        let started = Arc::clone(&start);
        let other = thread::spawn(move || {
            retire_some(&theirs, &counted);
            drop(theirs);
            started.wait();
        });
        start.wait();
        returns(move || drop(domain));
        assert!(tally.all_dropped(), "in whole batches: {whole_batches}");
        other.join().expect("no panic");
    }
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn two_thousand_domains_leave_nothing_behind() {
    if !common::is_child() {
        // In a process where no other test starts threads.
        return common::child("two_thousand_domains_leave_nothing_behind").well();
    }
    let threads = || std::fs::read_dir("/proc/self/task").expect("Linux").count();
    let tally = Tally::new();
    let before = threads();
    for number in 0..2_000 {
        let domain = Domain::new();
        let cell = stillpoint::Rcu::new_in(&domain, tally.value(number));
        assert_eq!(cell.load(&domain.read_lock()).get(), number);
        cell.store(tally.value(number));
        retire(&domain, number);
        if number % 16 == 0 {
            let count = tally.value(number);
            domain.call(move || drop(count));
            domain.synchronize();
        }
    }
    assert!(tally.all_dropped());
    eventually(|| threads() == before);
}

/// Each thread counts for itself: the sum is that of one moment, whichever thread frees meanwhile,
/// also while threads come and go.
#[test]
fn statistics_of_a_flood_are_exact() {
    const THREADS: usize = 4;
    const LOOKS: usize = if cfg!(miri) { 3 } else { 300 };
    const EACH: usize = if cfg!(miri) { SOME } else { 10 * SOME };
    /// Objects of pages that are being freed, or copied from an idle thread's.
    const ON_THE_WAY: usize = 16 * 256;
    let domain = Domain::new();
    let tally = Tally::new();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        for number in 0..THREADS {
            let (domain, tally, over) = (&domain, &tally, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let work = || {
                        (0..EACH).for_each(|_| {
                            let object = leak(tally.value(0));
                            // SAFETY: no other thread has ever known the object, whose destructor
                            // only counts.
                            unsafe {
                                if number % 2 == 0 {
                                    domain.retire(object)
                                } else {
                                    domain.retire_inline(object)
                                }
                            };
                        })
                    };
                    thread::scope(|scope| drop(scope.spawn(work)));
                }
            });
        }
        for _ in 0..LOOKS {
            let (made, dropped) = (tally.made(), tally.dropped());
            let seen = domain.statistics();
            let (dropped_since, made_since) = (tally.dropped(), tally.made());
            let pending = seen.objects_pending as usize;
            let freed = seen.objects_freed as usize;
            let shown = format!("{made}..{made_since} - {dropped}..{dropped_since}: {seen:?}");
            assert!(pending + THREADS + dropped_since >= made, "{shown}");
            assert!(pending + dropped <= made_since + ON_THE_WAY, "{shown}");
            assert!(freed <= dropped_since, "{shown}");
            assert!(freed + ON_THE_WAY >= dropped, "{shown}");
            thread::sleep(Duration::from_millis(1));
        }
    });
    domain.kvfree_barrier();
    let seen = domain.statistics();
    assert_eq!((seen.objects_pending, seen.bytes_pending), (0, 0));
    assert_eq!(seen.objects_freed as usize, tally.made());
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
        let (domain, inline) = (self.domain.clone(), self.inline);
        let part = leak(self);
        // SAFETY: no other thread has ever known the part, whose destructor retires and counts.
        unsafe {
            if inline {
                domain.retire_inline(part);
            } else {
                domain.retire(part);
            }
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

/// Also if that is just being called by the thread that has retired it, which retires the next.
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
            // SAFETY: no other thread has ever known the object, whose destructor waits for a thread
            // that retires nothing.
            unsafe { domain.retire_inline(leak(object)) };
            (0..more).for_each(|number| retire(domain, number));
            // Or else the service thread does, and this is the other test.
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
