//! Back-pressure: what a thread waits for that retires while a reader is slow.

use std::{
    alloc::{self, Layout},
    ptr::NonNull,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use stillpoint::Domain;

use crate::{
    Idle, SOME,
    common::{Over, Reader, Tally, assert_counts, eventually, retire_inline},
    retire, retire_some,
};

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
fn a_large_object_is_freed_by_the_service_thread() {
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
    let _slots = [0; 300 << 10];
    retire_inline(&domain, Table { _slots, freed_on });
    domain.synchronize();
    // At every seal a thread frees its pages that are due.
    (0..SOME).for_each(|number| retire(&domain, [number; 8]));
    let freed_on = was_freed_on.recv().expect("it is freed");
    assert_ne!(freed_on, thread::current().id());
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
    assert_counts!(domain, bytes_pending: 0, stalls: 1);
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
    // A target, not a limit: 192 MB were retired.
    assert!(
        most.load(Ordering::Relaxed) < 16 * BUDGET,
        "{most:?} bytes waited at a time"
    );
    domain.kvfree_barrier();
    assert_eq!(domain.statistics().objects_freed, 8 * 100 * SOME as u64);
}

/// One slice of small objects is smaller than one block. Freed by slices alone, the queue would grow by a block per retire.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn blocks_behind_small_objects_stay_within_the_budget() {
    const BLOCK: usize = 1 << 20;
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    let pending = || domain.statistics().bytes_pending as usize;
    while pending() < BLOCK {
        retire(&domain, 1_u64);
    }
    reader.leave();
    for number in 0..32 {
        let block = Layout::from_size_align(BLOCK - 64, 8).expect("a layout");
        // SAFETY: the size is not zero; no reader knows the block, which is retired once.
        unsafe {
            let start = NonNull::new(alloc::alloc(block)).expect("memory");
            domain.retire_sized(start, block);
        }
        assert!(
            pending() <= domain.budget() + BLOCK,
            "{} bytes wait after {number} blocks",
            pending()
        );
    }
}

/// The retiring thread holds the lock that a destructor waits for.
#[test]
fn a_stuck_service_thread_is_waited_for_only_until_it_is_reported() {
    static HELD: Mutex<()> = Mutex::new(());
    struct Locks;
    impl Drop for Locks {
        fn drop(&mut self) {
            drop(HELD.lock());
        }
    }
    let domain = Domain::new();
    domain.on_stall(|_| ());
    domain.set_budget(0);
    let held = HELD.lock().expect("no panic");
    let a_page = || (0..SOME).for_each(|_| retire(&domain, Locks));
    domain.set_stall_timeout(Duration::MAX);
    eventually(|| {
        a_page();
        domain.statistics().waits > 0
    });
    domain.set_stall_timeout(Duration::from_millis(1));
    eventually(|| {
        a_page();
        domain.statistics().service_stalls > 0
    });
    let waits = domain.statistics().waits;
    (0..10).for_each(|_| a_page());
    assert_eq!(domain.statistics().waits, waits);
    drop(held);
    domain.kvfree_barrier();
    assert_eq!(domain.statistics().objects_pending, 0);
}

/// A flush seals a page before it is full, and a thread is held back when it has filled one.
#[test]
fn a_thread_that_flushes_after_each_batch_is_held_back() {
    let kinds: [fn(&Domain); 4] = [
        |domain| retire_inline(domain, String::new()),
        |domain| retire(domain, String::new()),
        |domain| retire(domain, [0_u64; 25]),
        |domain| match domain.statistics().objects_pending % 4 {
            0 => retire(domain, [0_u64; 5_000]),
            _ => retire_inline(domain, String::new()),
        },
    ];
    for (number, kind) in kinds.into_iter().enumerate() {
        for budget in [256 << 10, 1 << 20] {
            let domain = Domain::new();
            domain.set_budget(budget);
            let reader = Reader::enter(&domain);
            while domain.statistics().waits == 0 {
                (0..100).for_each(|_| kind(&domain));
                domain.flush();
                let pending = domain.statistics().bytes_pending;
                assert!(
                    pending < 16 << 20,
                    "kind {number}, a budget of {budget}: {pending} bytes"
                );
            }
            reader.leave();
        }
    }
}
