//! Forking: the child has one thread, and a library that works; what waited before the fork is the
//! parent's alone.
//!
//! Every test forks in a separate process. Forks by user code that the library calls are in
//! `fork_user_code.rs`.
//!
//! 37 variants without a reset or a check were tried on the two; all but 4 were seen to fail.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::forking::{Bare, SOME, assert_works, elsewhere, fork, in_both, waiting};
use common::{
    Count, Over, Random, Reader, Tally, Tell, Tracked, apart, assert_counts, eventually,
    panic_message, retire, retire_inline, tasks::waker, until_it_waits,
};
use std::{
    mem, panic,
    pin::pin,
    ptr,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        mpsc::channel,
    },
    task::{Context, Waker},
    thread,
    time::Duration,
};
use stillpoint::{
    Domain, Rcu, RcuOption,
    lab::{self, GracePeriodPolicy, Policy},
};
use stillpoint_platform::thread::tid;

/// Retires `objects` objects, and frees them on this thread.
fn free_some(domain: &Domain, objects: u64) {
    (0..objects).for_each(|number| retire(domain, number));
    eventually(|| {
        domain.flush();
        domain.statistics().objects_pending == 0
    });
}

/// Work of all kinds that waits, of this thread and of another that has ended by now, and of one
/// that goes on.
fn let_much_wait(domain: &Domain, tally: &Tally, calls: &Count) {
    let some = || {
        for number in 0..SOME {
            retire(domain, tally.value(number));
            retire_inline(domain, tally.value(number));
            let (value, call) = (tally.value(number), calls.raise());
            domain.call(move || {
                drop(value);
                call();
            });
        }
    };
    some();
    elsewhere(some);
}

#[test]
fn grace_periods_do_not_wait_for_the_sections_of_vanished_threads() {
    apart!();
    let domain = Domain::new();
    let readers: Vec<_> = (0..3).map(|_| Reader::enter(&domain)).collect();
    let cookie = domain.start_poll();
    assert!(!domain.poll(cookie));
    fork(|| {
        domain.synchronize();
        assert!(domain.poll(cookie));
        assert_works(&domain);
    })
    .well();
    assert!(!domain.poll(cookie), "in the parent they are open");
    readers.into_iter().for_each(Reader::leave);
    assert!(domain.poll(cookie));
    assert_works(&domain);
}

#[test]
fn a_thread_that_sleeps_for_a_grace_period_does_so_in_the_parent_alone() {
    apart!();
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    thread::scope(|scope| {
        let (tell, told) = channel();
        let waiters = [(); 4].map(|()| {
            let (tell, domain) = (tell.clone(), &domain);
            scope.spawn(move || {
                tell.tell(tid());
                domain.synchronize();
            })
        });
        told.iter()
            .take(waiters.len())
            .for_each(|waiter| until_it_waits(waiter, || false));
        fork(|| assert_works(&domain)).well();
        assert!(!waiters.iter().any(|waiter| waiter.is_finished()));
        reader.leave();
    });
}

#[test]
fn what_waited_before_the_fork_is_neither_run_nor_freed_in_the_child() {
    apart!();
    let domain = Domain::new();
    let (tally, calls) = (Tally::new(), Count::default());
    free_some(&domain, 100);
    elsewhere(|| free_some(&domain, 200));
    assert_eq!(domain.statistics().objects_freed, 300);
    let reader = Reader::enter(&domain);
    let_much_wait(&domain, &tally, &calls);
    let before = domain.statistics();
    assert_eq!(
        (before.objects_pending, before.callbacks_pending),
        (4 * SOME, 2 * SOME)
    );
    fork(|| {
        let statistics = domain.statistics();
        assert_eq!(waiting(statistics), [0; 4]);
        assert_eq!(
            statistics.objects_freed, before.objects_freed,
            "what has happened stays"
        );
        domain.synchronize();
        domain.barrier();
        domain.kvfree_barrier();
        for _ in 0..3 {
            assert_works(&domain);
        }
        assert_eq!((tally.dropped(), calls.get()), (0, 0));
    })
    .well();
    assert_eq!(tally.dropped(), 0, "the child's memory is its own");
    reader.leave();
    domain.barrier();
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    assert_eq!(calls.get(), 2 * SOME as usize);
    assert_works(&domain);
}

#[test]
fn a_domain_that_ends_in_the_child_frees_what_is_the_childs() {
    apart!();
    for with_service_thread in [true, false] {
        let domain = Domain::new();
        if with_service_thread {
            domain.call(|| ());
            domain.barrier();
        }
        let tally = Tally::new();
        (0..SOME / 3).for_each(|number| retire_inline(&domain, tally.value(number)));
        let mut domain = Some(domain);
        fork(|| {
            let domain = domain.take().expect("taken once a process");
            let before = tally.dropped();
            let theirs = Tally::new();
            let guard = domain.read_lock();
            for number in 0..SOME {
                retire(&domain, theirs.value(number));
                retire_inline(&domain, theirs.value(number));
                let value = theirs.value(number);
                domain.call(move || drop(value));
            }
            drop(guard);
            drop(domain);
            assert!(theirs.all_dropped());
            assert_eq!(tally.dropped(), before);
            assert_works(&Domain::new());
        })
        .well();
        drop(domain);
        assert!(tally.all_dropped());
    }
}

#[test]
fn a_section_of_the_forking_thread_stays_open() {
    apart!();
    let (domain, tally) = (Domain::new(), Tally::new());
    let cell = RcuOption::new_in(&domain, tally.value(7));
    let global = Rcu::new(8);
    domain.set_stall_timeout(Duration::from_millis(1));
    let reported = Arc::new(AtomicU32::new(0));
    let tell = Arc::clone(&reported);
    domain.on_stall(move |report| {
        report
            .holdouts
            .iter()
            .for_each(|reader| tell.store(reader.thread.tid, Ordering::SeqCst))
    });
    let (guard, nested, of_global) = (
        domain.read_lock(),
        domain.read_lock(),
        stillpoint::read_lock(),
    );
    let found = ptr::from_ref(cell.load(&guard).expect("just made"));
    // Reported in the parent, and then anew in the child, for which this thread has another number.
    let _ = domain.start_poll();
    eventually(|| reported.load(Ordering::SeqCst) != 0);
    in_both(|| {
        let value = cell.load(&guard).expect("not emptied");
        assert!(ptr::eq(value, found));
        let cookie = domain.start_poll();
        drop(cell.take());
        let refused = panic_message(|| domain.synchronize());
        assert!(refused.contains("waiting for a grace period"), "{refused}");
        assert!(panic_message(|| domain.kvfree_barrier()).contains("kvfree_barrier()"));
        drop(nested);
        assert!(!elsewhere(|| domain.poll(cookie)));
        assert_eq!(
            (value.get(), global.load(&of_global), tally.dropped()),
            (7, &8, 0)
        );
        // SAFETY: asks for a number.
        let me = unsafe { libc::gettid() }.cast_unsigned();
        eventually(|| reported.load(Ordering::SeqCst) == me);
        drop((guard, of_global));
        assert!(domain.poll(cookie));
        assert_works(&domain);
        assert!(tally.all_dropped());
        assert_works(stillpoint::global());
    });
}

#[test]
fn a_guard_that_an_ended_thread_leaked_holds_nothing_up_in_the_child() {
    apart!();
    let domain = Domain::new();
    elsewhere(|| mem::forget(domain.read_lock()));
    let cookie = domain.start_poll();
    assert!(!domain.poll(cookie));
    fork(|| assert_works(&domain)).well();
    assert!(!domain.poll(cookie));
}

#[test]
fn a_qsbr_reader_that_forks_stays_online() {
    apart!();
    for domain in [Domain::with_fences(), Domain::new()] {
        let cell = Rcu::new_in(&domain, 1);
        let (tell, told) = channel();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            // It vanishes.
            scope.spawn(|| {
                let reader = domain.qsbr_reader();
                tell.tell(());
                while !stop.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                drop(reader);
            });
            told.recv().expect("it is online");
            let mut reader = domain.qsbr_reader();
            fork(|| {
                let cookie = domain.start_poll();
                assert_eq!(cell.load(&reader), &1);
                assert!(!elsewhere(|| domain.poll(cookie)));
                reader.quiescent_state();
                assert!(domain.poll(cookie) || reader.is_online());
                reader.synchronize();
                let _offline = reader.offline();
                assert_works(&domain);
            })
            .well();
            let cookie = domain.start_poll();
            reader.quiescent_state();
            assert!(!domain.poll(cookie), "in the parent both are online");
            drop(reader);
            stop.store(true, Ordering::Release);
        });
        domain.synchronize();
    }
}

#[test]
fn a_child_may_fork_again() {
    apart!();
    let domain = Domain::new();
    let (tally, calls) = (Tally::new(), Count::default());
    let reader = Reader::enter(&domain);
    let_much_wait(&domain, &tally, &calls);
    fork(|| {
        let ((leave, may_leave), (entered, has_entered)) = (channel::<()>(), channel());
        let theirs = domain.clone();
        let reader = Bare::spawn(move || {
            let guard = theirs.read_lock();
            entered.tell(());
            let _ = may_leave.recv();
            drop(guard);
        });
        has_entered.recv().expect("a reader never waits");
        let_much_wait(&domain, &tally, &calls);
        let cookie = domain.start_poll();
        fork(|| {
            assert_eq!(waiting(domain.statistics()), [0; 4]);
            assert!(domain.poll(cookie));
            assert_works(&domain);
            fork(|| assert_works(&domain)).well();
            assert_eq!((tally.dropped(), calls.get()), (0, 0));
        })
        .well();
        assert!(!domain.poll(cookie));
        drop(leave);
        reader.join();
        domain.barrier();
        domain.kvfree_barrier();
        assert_eq!(calls.get(), 2 * SOME as usize, "its own, not its parent's");
        assert_eq!(tally.dropped(), 6 * SOME as usize);
        assert_works(&domain);
    })
    .well();
    reader.leave();
    domain.barrier();
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
}

/// How many pages this process has taken or copied.
fn page_faults() -> usize {
    // SAFETY: plain integers, for which zeroes are a value, and a place for them.
    unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage.ru_minflt as usize
    }
}

/// The child copies a page for each that it writes to: it writes to none of a domain in which there
/// have been no more than its own thread's sections.
#[test]
fn domains_without_work_are_not_copied() {
    const DOMAINS: usize = 500;
    apart!();
    let domains: Vec<_> = (0..DOMAINS).map(|_| Domain::new()).collect();
    for domain in &domains {
        domain.set_budget(1 << 20);
        drop(domain.read_lock());
    }
    let guard = domains[0].read_lock();
    let (tally, calls) = (Tally::new(), Count::default());
    let_much_wait(&domains[1], &tally, &calls);
    let reader = Reader::enter(&domains[2]);
    fork(|| {
        let copied = page_faults();
        assert!(copied < DOMAINS / 4, "{copied} pages");
        assert_eq!(waiting(domains[1].statistics()), [0; 4]);
        let cookie = domains[0].start_poll();
        assert!(!domains[0].poll(cookie), "its own section stays");
        drop(guard);
        domains[..8].iter().for_each(assert_works);
        // A domain that this child has not written to has to be reset in the next one if it is used here.
        let_much_wait(&domains[3], &tally, &calls);
        fork(|| domains[..8].iter().for_each(assert_works)).well();
    })
    .well();
    reader.leave();
    domains[1].barrier();
    domains[1].kvfree_barrier();
    assert!(tally.all_dropped());
}

#[test]
fn futures_of_before_the_fork_are_ready_in_the_child() {
    apart!();
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    let mut context = Context::from_waker(Waker::noop());
    domain.call(|| ());
    let mut grace_period = pin!(domain.synchronize_async());
    let mut barrier = pin!(domain.barrier_async());
    let mut own = pin!(domain.synchronize_async());
    assert!(grace_period.as_mut().poll(&mut context).is_pending());
    assert!(barrier.as_mut().poll(&mut context).is_pending());
    assert!(own.as_mut().poll(&mut context).is_pending());
    assert_eq!(domain.statistics().futures_pending, 3);
    fork(|| {
        assert_eq!(
            domain.statistics().futures_pending,
            0,
            "they are the parent's"
        );
        assert!(barrier.as_mut().poll(&mut context).is_ready());
        assert!(grace_period.as_mut().poll(&mut context).is_ready());
        // One that a section of the child's holds up, as the reader's did.
        let guard = domain.read_lock();
        let mut later = pin!(domain.synchronize_async());
        let (woken, waker) = waker();
        assert!(
            later
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        drop(guard);
        eventually(|| woken.1.load(Ordering::SeqCst) > 0);
        eventually(|| {
            later.as_mut().poll(&mut context).is_ready()
                && own.as_mut().poll(&mut context).is_ready()
        });
        assert_works(&domain);
    })
    .well();
    reader.leave();
    eventually(|| {
        grace_period.as_mut().poll(&mut context).is_ready()
            && barrier.as_mut().poll(&mut context).is_ready()
    });
}

#[test]
fn the_first_use_of_the_library_may_be_under_way() {
    apart!();
    for round in 0..100 {
        // A process that has never used it.
        fork(|| {
            let start = Barrier::new(3);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        start.wait();
                        retire(stillpoint::global(), 1);
                        stillpoint::synchronize();
                        drop(Domain::new());
                    });
                }
                start.wait();
                (0..round * 10).for_each(|_| std::hint::spin_loop());
                fork(|| {
                    assert_works(stillpoint::global());
                    assert_works(&Domain::new());
                })
                .well();
            });
        })
        .well();
    }
}

#[test]
fn the_first_uses_of_a_domain_may_be_under_way() {
    apart!();
    const THREADS: usize = 6;
    let newest: Mutex<Option<Domain>> = Mutex::new(None);
    let [made, start, end] = [(); 3].map(|()| Barrier::new(THREADS + 1));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    made.wait();
                    let Some(domain) = newest.lock().expect("no panic").clone() else {
                        return;
                    };
                    start.wait();
                    // Registers, which allocates readers' records; starts a service thread; opens
                    // pages.
                    domain.read(|_| ());
                    retire(&domain, vec![1]);
                    domain.call(|| ());
                    drop(domain);
                    end.wait();
                }
            });
        }
        let mut random = Random(7);
        for _ in 0..forks() {
            let domain = Domain::new();
            *newest.lock().expect("no panic") = Some(domain.clone());
            made.wait();
            start.wait();
            (0..random.below(10_000)).for_each(|_| std::hint::spin_loop());
            let child = fork(|| assert_works(&domain));
            end.wait();
            child.well();
        }
        *newest.lock().expect("no panic") = None;
        made.wait();
    });
}

#[test]
fn domains_and_threads_may_come_and_go_meanwhile() {
    apart!();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..4 {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    match number % 2 {
                        0 => drop(Domain::new()),
                        _ => thread::spawn(|| ()).join().expect("no panic"),
                    }
                }
            });
        }
        let _stop = Over(&stop);
        let mut random = Random(3);
        for _ in 0..forks() {
            let domain = Domain::new();
            thread::sleep(Duration::from_micros(random.below(500)));
            let child = fork(|| {
                drop([Domain::new(), Domain::new()]);
                domain.call(|| ());
                domain.barrier();
                drop(domain);
            });
            child.well();
        }
    });
}

/// Makes one of all the calls that the library has.
fn do_something(random: &mut Random, domain: &Domain, cell: &Rcu<Tracked>, tally: &Tally) {
    match random.below(13) {
        0 => domain.synchronize(),
        1 => domain.synchronize_expedited(),
        2 => (0..300).for_each(|number| retire(domain, number)),
        3 => (0..50).for_each(|number| retire(domain, tally.value(number))),
        4 => (0..50).for_each(|number| retire_inline(domain, tally.value(number))),
        5 => {
            let value = tally.value(1);
            domain.call(move || drop(value));
        }
        6 => domain.barrier(),
        7 => domain.kvfree_barrier(),
        8 => drop(domain.statistics()),
        9 => {
            let own = Domain::new();
            let value = tally.value(2);
            retire(&own, tally.value(1));
            own.call(move || drop(value));
        }
        10 => domain.set_callback_delay(Duration::from_micros(100 * random.below(2))),
        11 => thread::scope(|scope| {
            scope.spawn(|| {
                domain.read(|guard| assert!(cell.load(guard).get() < 100));
                retire(domain, tally.value(3));
            });
        }),
        _ => {
            let guard = domain.read_lock();
            let value = cell.load(&guard);
            cell.store(tally.value(random.below(100)));
            assert!(value.get() < 100);
        }
    }
}

#[test]
fn any_moment_will_do() {
    apart!();
    let domains = [Domain::new(), Domain::with_fences()];
    let tally = Tally::new();
    let cells: Vec<_> = domains
        .iter()
        .map(|domain| Rcu::new_in(domain, tally.value(0)))
        .collect();
    // While a child works they rest, or it would take minutes.
    let (stop, rest) = (AtomicBool::new(false), AtomicBool::new(false));
    let ops = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..8 {
            let (domains, cells, tally, stop, rest, ops) =
                (&domains, &cells, &tally, &stop, &rest, &ops);
            scope.spawn(move || {
                let mut random = Random(0x9E37_79B9 + thread);
                while !stop.load(Ordering::Relaxed) {
                    while rest.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_micros(500));
                    }
                    let which = random.below(2) as usize;
                    do_something(&mut random, &domains[which], &cells[which], tally);
                    ops.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = Over(&stop);
        let mut random = Random(42);
        for _ in 0..forks() {
            for (domain, cell) in domains.iter().zip(&cells) {
                do_something(&mut random, domain, cell, &tally);
            }
            let child = fork(|| {
                let before = tally.dropped();
                for (domain, cell) in domains.iter().zip(&cells) {
                    assert_eq!(waiting(domain.statistics()), [0; 4]);
                    assert_works(domain);
                    assert!(domain.read(|guard| cell.load(guard).get() < 100));
                }
                assert_works(&Domain::new());
                assert_eq!(tally.dropped(), before);
            });
            rest.store(true, Ordering::Relaxed);
            child.well();
            rest.store(false, Ordering::Relaxed);
            thread::sleep(Duration::from_micros(100 + random.below(3000)));
        }
    });
    drop(cells);
    domains.iter().for_each(Domain::barrier);
    domains.iter().for_each(Domain::kvfree_barrier);
    assert!(tally.all_dropped(), "after {ops:?} operations");
    domains.iter().for_each(assert_works);
}

/// How many children each of the long tests forks.
fn forks() -> usize {
    if common::without_membarrier() { 20 } else { 60 }
}

#[test]
fn all_of_this_holds_without_membarrier_too() {
    common::assert_holds_without_membarrier();
}

/// A domain whose service thread fails while this says so, by a fault of the library's own.
static FAILS: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
enum Failing {}

// SAFETY: nothing is left out.
unsafe impl GracePeriodPolicy for Failing {
    fn service_comes() {
        if FAILS.load(Ordering::SeqCst) {
            panic::resume_unwind(Box::new("a fault"));
        }
    }
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for Failing {}

#[test]
fn a_service_thread_that_stays_down_is_tried_again_in_the_child() {
    apart!();
    FAILS.store(true, Ordering::SeqCst);
    let domain = lab::Domain::<Failing>::new();
    domain.call(|| ());
    eventually(|| domain.statistics().service_failures == 3);
    fork(|| {
        FAILS.store(false, Ordering::SeqCst);
        // Only the service thread waits for it.
        let called = Count::default();
        domain.call(called.raise());
        eventually(|| called.get() == 1);
        domain.barrier();
        assert_eq!(
            domain.statistics().service_failures,
            3,
            "what has happened has"
        );
    })
    .well();
    domain.barrier();
    assert_counts!(domain, service_failures: 3);
    // The barrier's own callback is counted until it has returned.
    eventually(|| domain.statistics().callbacks_pending == 0);
}
