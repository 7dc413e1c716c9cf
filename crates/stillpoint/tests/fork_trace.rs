//! Forking with owned guards: they belong to no thread, so they are open in the child as they were
//! in the parent.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{
    Tally, Tell, apart, eventually,
    forking::{Bare, assert_works, elsewhere, fork, in_both},
};
use std::{
    mem,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::channel,
    },
    thread,
    time::Duration,
};
use stillpoint::{
    Rcu,
    tasks_trace::{self, TraceDomain},
};

#[test]
fn an_owned_guard_goes_on_in_the_child() {
    apart!();
    for domain in [TraceDomain::new(), TraceDomain::with_fences()] {
        let tally = Tally::new();
        let cell = Rcu::new_in(&domain, tally.value(1));
        // Made by another thread, which the fork removes, and handed over.
        let (give, given) = channel();
        let theirs = domain.clone();
        let _ = Bare::spawn(move || {
            give.tell(theirs.read_lock_static().named("handed over"));
            loop {
                thread::park();
            }
        });
        let guard = given.recv().expect("it was sent");
        let mine = domain.read_lock_owned();
        let mut guards = Some((guard, mine));
        in_both(|| {
            let (guard, mine) = guards.take().expect("taken once a process");
            let value = cell.load(&guard);
            let number = value.get();
            drop(cell.swap(tally.value(number + 1)));
            let cookie = domain.start_poll();
            drop(mine);
            assert!(!domain.poll(cookie), "the other one holds it up");
            assert_eq!(value.get(), number);
            drop(guard);
            domain.cond_synchronize(cookie);
            assert_works(&domain);
            let again: Vec<_> = (0..100)
                .map(|_| domain.read_lock_owned().named("in the child"))
                .collect();
            assert!(!domain.poll(domain.get_state()));
            elsewhere(|| drop(again));
            assert_works(&domain);
        });
    }
}

#[test]
fn guards_of_vanished_tasks_are_sections_until_they_are_abandoned() {
    apart!();
    let domain = TraceDomain::new();
    let (entered, has_entered) = channel();
    let theirs = domain.clone();
    let _ = Bare::spawn(move || {
        let _guards: Vec<_> = (0..50).map(|_| theirs.read_lock_owned()).collect();
        entered.tell(());
        loop {
            thread::park();
        }
    });
    has_entered.recv().expect("it enters");
    let records = domain.statistics().records;
    fork(|| {
        let (reported, told) = (Arc::new(AtomicBool::new(false)), domain.start_poll());
        let tell = Arc::clone(&reported);
        domain.set_stall_timeout(Duration::from_millis(1));
        domain.on_stall(move |report| {
            tell.store(
                report.holdouts.len() + report.more_holdouts == 50,
                Ordering::SeqCst,
            )
        });
        assert!(!domain.poll(told));
        let cookie = domain.start_poll();
        eventually(|| reported.load(Ordering::SeqCst));
        // SAFETY: the guards were on the stack of a thread that is gone, and nothing was found
        // through them.
        unsafe { domain.abandon_owned_guards() };
        domain.cond_synchronize(cookie);
        assert_works(&domain);
        drop(
            (0..50)
                .map(|_| domain.read_lock_owned())
                .collect::<Vec<_>>(),
        );
        assert_eq!(
            domain.statistics().records,
            records,
            "the abandoned ones serve again"
        );
    })
    .well();
    assert!(
        !domain.poll(domain.get_state()),
        "in the parent they are open"
    );
}

#[test]
fn a_fork_at_any_moment_of_threads_that_make_and_drop_guards_loses_no_record() {
    apart!();
    let domain = TraceDomain::new();
    let cell = Rcu::new_in(&domain, 1_u64);
    let (over, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Barrier::new(4);
    thread::scope(|scope| {
        let _over = common::Over(&over);
        for _ in 0..3 {
            scope.spawn(|| {
                start.wait();
                while !over.load(Ordering::Relaxed) {
                    let guards: Vec<_> = (0..20)
                        .map(|_| domain.read_lock_owned().named("busy"))
                        .collect();
                    assert!(guards.iter().all(|guard| *cell.load(guard) > 0));
                    made.fetch_add(20, Ordering::Relaxed);
                }
            });
        }
        start.wait();
        for round in 0..30 {
            let before = made.load(Ordering::Relaxed);
            eventually(|| made.load(Ordering::Relaxed) > before);
            cell.store(round + 2);
            let mine = domain.read_lock_owned();
            fork(|| {
                let value = cell.load(&mine);
                cell.store(1000);
                assert_eq!(*value, round + 2);
                // SAFETY: this thread's guard is forgotten here, the others' threads are no more;
                // what was found is not used again.
                unsafe { domain.abandon_owned_guards() };
                assert_works(&domain);
                assert_works(tasks_trace::global());
                let records = domain.statistics().records;
                let all: Vec<_> = (0..records).map(|_| domain.read_lock_owned()).collect();
                let grown = domain.statistics().records - records;
                assert!(grown <= 31 + 16, "{grown} of {records} records are lost");
                drop(all);
                assert_works(&domain);
            })
            .well();
            drop(mine);
        }
    });
    mem::drop(cell);
    domain.synchronize();
}
