//! Readers by quiescent states: grace periods wait for their next quiescent state, and for nothing
//! else.

mod common;

use common::{Tally, elsewhere, eventually, panic_message, returns};
use std::{
    mem,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use stillpoint::{Domain, Rcu};

/// Both kinds of domain; a QSBR reader works in either.
fn domains() -> [Domain; 2] {
    [Domain::with_fences(), Domain::new()]
}

#[test]
fn a_grace_period_waits_for_the_next_quiescent_state() {
    for domain in domains() {
        let mut reader = domain.qsbr_reader();
        let cookie = domain.start_poll();
        let theirs = domain.clone();
        assert!(!elsewhere(|| theirs.poll(cookie)));
        reader.quiescent_state();
        assert!(elsewhere(|| theirs.poll(cookie)));
    }
}

#[test]
fn a_quiescent_state_wakes_who_sleeps_for_it() {
    for domain in domains() {
        let mut reader = domain.qsbr_reader();
        let theirs = domain.clone();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| theirs.synchronize());
            // Long enough for it to fall asleep, most of the time; where it has not begun, the next
            // one is the one that counts.
            while !waiter.is_finished() {
                thread::sleep(Duration::from_millis(20));
                reader.quiescent_state();
            }
            waiter.join().expect("no panic");
        });
    }
}

#[test]
fn no_thread_waits_for_a_reader_that_is_offline() {
    for domain in domains() {
        let mut reader = domain.qsbr_reader();
        {
            let _offline = reader.offline();
            domain.synchronize();
        }
        assert!(reader.is_online());
        drop(reader);
        domain.synchronize();
    }
}

#[test]
fn waiting_while_online_is_refused() {
    for domain in domains() {
        let reader = domain.qsbr_reader();
        assert!(panic_message(|| domain.synchronize()).contains("Go offline"));
        assert!(panic_message(|| domain.synchronize_expedited()).contains("Go offline"));
        domain.call(|| ());
        assert!(panic_message(|| domain.barrier()).contains("Go offline"));
        drop(reader);
        domain.barrier();
    }
}

#[test]
fn two_readers_that_synchronize_crosswise_do_not_wait_for_each_other() {
    for domain in domains() {
        returns(move || {
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        let mut reader = domain.qsbr_reader();
                        (0..1000).for_each(|_| reader.synchronize());
                    });
                }
            });
        });
    }
}

#[test]
fn a_leaked_offline_leaves_a_reader_that_protects_nothing_and_says_so() {
    let domain = Domain::with_fences();
    let cell = Rcu::new_in(&domain, 1);
    let mut reader = domain.qsbr_reader();
    mem::forget(reader.offline());
    assert!(!reader.is_online());
    assert!(panic_message(|| *cell.load(&reader)).contains("offline"));
    reader.quiescent_state();
    assert!(
        !reader.is_online(),
        "a quiescent state brings no reader online"
    );
    domain.synchronize();
    drop(reader.offline());
    assert_eq!(cell.load(&reader), &1);
}

#[test]
fn a_reader_of_another_domain_protects_nothing_here() {
    let (domain, other) = (Domain::with_fences(), Domain::with_fences());
    let cell = Rcu::new_in(&domain, 1);
    let reader = other.qsbr_reader();
    assert!(panic_message(|| *cell.load(&reader)).contains("cannot protect"));
}

#[test]
fn a_leaked_reader_holds_what_it_has_lent() {
    let domain: &'static Domain = Box::leak(Box::new(Domain::with_fences()));
    let tally = Tally::new();
    let cell = Rcu::new_in(domain, tally.value(7));
    let lent = cell.load(Box::leak(Box::new(domain.qsbr_reader()))).get();
    drop(cell);
    let cookie = domain.start_poll();
    assert!(!elsewhere(|| domain.poll(cookie)));
    assert_eq!((lent, tally.dropped()), (7, 0));
}

#[test]
fn retiring_while_online_never_waits_and_everything_is_freed_in_the_end() {
    for domain in domains() {
        domain.set_budget(0);
        let tally = Tally::new();
        let cell = Rcu::new_in(&domain, tally.value(0));
        let mut reader = domain.qsbr_reader();
        for number in 1..10_000 {
            cell.store(tally.value(number));
            if number % 100 == 0 {
                reader.quiescent_state();
            }
        }
        assert_eq!(domain.statistics().waits, 0, "it would wait for itself");
        drop(reader);
        drop(cell);
        domain.kvfree_barrier();
        assert!(tally.all_dropped());
    }
}

/// Readers that read all the time, updaters that free what they replace; every value read must be
/// alive.
#[test]
fn what_readers_hold_is_alive_until_their_next_quiescent_state() {
    for domain in domains() {
        let tally = Tally::new();
        let cell = Arc::new(Rcu::new_in(&domain, tally.value(0)));
        let start = Barrier::new(4);
        let readers = AtomicUsize::new(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut reader = domain.qsbr_reader();
                    start.wait();
                    for round in 0..if cfg!(miri) { 20 } else { 20_000 } {
                        let value = cell.load(&reader);
                        assert!((0..10).all(|_| value.get() == value.number));
                        if round % 3 == 0 {
                            reader.quiescent_state();
                        }
                        if round % 1000 == 0 {
                            let _offline = reader.offline();
                            thread::yield_now();
                        }
                    }
                    readers.fetch_sub(1, Ordering::SeqCst);
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    let mut number = 0;
                    while readers.load(Ordering::SeqCst) > 0 {
                        number += 1;
                        drop(cell.swap(tally.value(number)).wait());
                    }
                });
            }
        });
        drop(cell);
        eventually(|| tally.all_dropped());
    }
}

#[test]
fn guards_and_qsbr_readers_share_a_domain() {
    for domain in domains() {
        let reader = domain.qsbr_reader();
        let guard = domain.read_lock();
        let cell = Rcu::new_in(&domain, 5);
        assert_eq!((cell.load(&guard), cell.load(&reader)), (&5, &5));
        drop(reader);
        assert!(panic_message(|| domain.synchronize()).contains("Drop the guard"));
        drop(guard);
        domain.synchronize();
    }
}
