//! Grace periods: what they wait for and what they do not.
//!
//! Every test that `everywhere!` lists runs three times: from the start of the sequence, across its
//! wrap, and (in a child process, with all the rest) without membarrier.

mod common;

use common::{Reader, Tally, eventually, returns};
use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};
use stillpoint::{Cookie, Domain, Rcu};

/// Few enough to be quick, enough to pass the wrap from where `across_the_wrap` starts.
const ROUNDS: usize = 24;

macro_rules! everywhere {
    ($($test:ident)*) => {
        mod from_the_start {
            $(#[test] fn $test() { super::$test(&stillpoint::Domain::new()); })*
        }
        mod across_the_wrap {
            $(#[test] fn $test() { super::$test(&super::just_below_the_wrap()); })*
        }
    };
}

everywhere! {
    an_idle_synchronize_ends_a_grace_period
    synchronize_and_cond_synchronize_wait_for_a_reader_in_another_thread
    synchronize_does_not_wait_for_a_section_that_began_later
    nested_guards_may_be_dropped_in_any_order
    a_state_is_reached_once_the_section_that_was_open_has_ended
    polling_inside_a_section_from_before_says_no
    polling_inside_a_section_from_after_says_yes
    a_cookie_stays_true
    an_older_cookie_is_true_no_later_than_a_newer_one
    cond_synchronize_costs_nothing_once_the_grace_period_has_ended
    a_state_that_was_not_started_is_started_by_a_waiter
    two_domains_do_not_delay_one_another
    what_was_unlinked_before_synchronize_is_not_read_after_it
    many_who_wait_all_return
}

fn just_below_the_wrap() -> Domain {
    Domain::starting_at(Cookie::from_raw(0_u64.wrapping_sub(8 << 16)))
}

#[test]
fn the_domain_across_the_wrap_does_wrap() {
    let domain = just_below_the_wrap();
    let before = domain.get_state();
    (0..ROUNDS).for_each(|_| domain.synchronize());
    let after = domain.get_state();
    assert!(
        after.into_raw() < before.into_raw(),
        "{after:?} is past the wrap, {before:?} is not"
    );
    assert!(domain.poll(before));
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn all_of_this_holds_without_membarrier_too() {
    common::assert_holds_without_membarrier();
}

fn an_idle_synchronize_ends_a_grace_period(domain: &Domain) {
    for _ in 0..ROUNDS {
        let cookie = domain.get_state();
        let before = domain.statistics().grace_periods;
        domain.synchronize();
        assert!(domain.statistics().grace_periods > before);
        assert!(domain.poll(cookie));
    }
}

/// Runs `wait`, which starts a grace period, on another thread. Returns once it has started one.
fn start_waiting<R: Send + 'static>(
    domain: &Domain,
    wait: impl FnOnce(&Domain) -> R + Send + 'static,
) -> JoinHandle<R> {
    let theirs = domain.clone();
    let next = domain.get_state();
    let waiter = thread::spawn(move || wait(&theirs));
    eventually(|| domain.get_state() != next);
    waiter
}

/// A reader, and whether it has left. Relaxed: the grace period orders it before the waiter's look.
fn reader_with_a_flag(domain: &Domain) -> (Reader, Arc<AtomicBool>) {
    let (domain, left) = (domain.clone(), Arc::new(AtomicBool::new(false)));
    let theirs = Arc::clone(&left);
    let reader = Reader::inside("reader", move |stay| {
        let _guard = domain.read_lock();
        stay();
        theirs.store(true, Ordering::Relaxed);
    });
    (reader, left)
}

fn synchronize_and_cond_synchronize_wait_for_a_reader_in_another_thread(domain: &Domain) {
    let waits: [fn(&Domain, Cookie); 2] =
        [|domain, _| domain.synchronize(), Domain::cond_synchronize];
    for wait in waits.into_iter().cycle().take(2 * ROUNDS) {
        let (mut reader, left) = reader_with_a_flag(domain);
        let state = domain.get_state();
        let waiter = start_waiting(domain, move |domain| {
            wait(domain, state);
            left.load(Ordering::Relaxed)
        });
        assert!(!waiter.is_finished(), "the reader is still there");
        reader.tell_to_leave();
        assert!(
            waiter.join().expect("no panic"),
            "it returned before the reader's section had ended"
        );
        reader.leave();
    }
}

fn synchronize_does_not_wait_for_a_section_that_began_later(domain: &Domain) {
    for _ in 0..ROUNDS {
        let early = Reader::enter(domain);
        let waiter = start_waiting(domain, Domain::synchronize);
        let late = Reader::enter(domain);
        early.leave();
        returns(move || waiter.join().expect("no panic"));
        late.leave();
    }
}

fn nested_guards_may_be_dropped_in_any_order(domain: &Domain) {
    for order in ["012", "021", "102", "120", "201", "210"] {
        let mut guards = [(); 3].map(|()| Some(domain.read_lock()));
        let cookie = domain.start_poll();
        for (dropped, which) in order.bytes().enumerate() {
            assert!(!domain.poll(cookie), "{dropped} of 3 guards are dropped");
            guards[usize::from(which - b'0')] = None;
        }
        assert!(domain.poll(cookie));
    }
}

fn a_state_is_reached_once_the_section_that_was_open_has_ended(domain: &Domain) {
    for _ in 0..ROUNDS {
        let reader = Reader::enter(domain);
        let state = domain.get_state();
        (0..10).for_each(|_| assert!(!domain.poll(state)));
        reader.leave();
        assert!(domain.poll(state), "there are no readers");
    }
}

fn polling_inside_a_section_from_before_says_no(domain: &Domain) {
    for _ in 0..ROUNDS {
        let guard = domain.read_lock();
        let (started, named) = (domain.start_poll(), domain.get_state());
        (0..10).for_each(|_| assert!(!domain.poll(started) && !domain.poll(named)));
        drop(guard);
        assert!(domain.poll(started) && domain.poll(named));
    }
}

fn polling_inside_a_section_from_after_says_yes(domain: &Domain) {
    for _ in 0..ROUNDS {
        let cookie = domain.start_poll();
        let other = Reader::enter(domain);
        let guard = domain.read_lock();
        assert!(
            domain.poll(cookie),
            "both sections began after the grace period"
        );
        drop(guard);
        other.leave();
    }
}

fn a_cookie_stays_true(domain: &Domain) {
    let cookie = domain.start_poll();
    domain.synchronize();
    for _ in 0..ROUNDS {
        assert!(domain.poll(cookie));
        let guard = domain.read_lock();
        assert!(domain.poll(cookie));
        assert!(!domain.poll(domain.start_poll()));
        drop(guard);
        domain.synchronize();
    }
}

fn an_older_cookie_is_true_no_later_than_a_newer_one(domain: &Domain) {
    let mut cookies = Vec::new();
    for round in 0..ROUNDS {
        cookies.push(domain.start_poll());
        cookies.push(domain.get_state());
        if round % 5 == 4 {
            let reader = Reader::enter(domain);
            let newest = domain.get_state();
            let reached = cookies
                .iter()
                .map(|&cookie| domain.poll(cookie))
                .collect::<Vec<_>>();
            assert!(reached.is_sorted_by_key(|reached| !reached), "{reached:?}");
            assert!(!domain.poll(newest));
            reader.leave();
            assert!(cookies.drain(..).all(|cookie| domain.poll(cookie)));
        }
    }
}

fn cond_synchronize_costs_nothing_once_the_grace_period_has_ended(domain: &Domain) {
    // A thread's first section makes records, which statistics count.
    drop(domain.read_lock());
    for _ in 0..ROUNDS {
        let cookie = domain.get_state();
        domain.synchronize();
        let before = domain.statistics();
        domain.cond_synchronize(cookie);
        let guard = domain.read_lock();
        domain.cond_synchronize(cookie);
        drop(guard);
        assert_eq!(domain.statistics(), before);
    }
}

fn a_state_that_was_not_started_is_started_by_a_waiter(domain: &Domain) {
    for _ in 0..ROUNDS {
        let state = domain.get_state();
        assert_eq!(state, domain.get_state(), "naming starts nothing");
        let theirs = domain.clone();
        returns(move || theirs.cond_synchronize(state));
        assert_ne!(state, domain.get_state());
    }
}

fn two_domains_do_not_delay_one_another(domain: &Domain) {
    let other = Domain::new();
    for (one, two) in [(domain, &other), (&other, domain)] {
        for _ in 0..ROUNDS / 2 {
            let guard = one.read_lock();
            let reader = Reader::enter(one);
            let cookie = one.start_poll();
            two.synchronize();
            let theirs = two.clone();
            returns(move || theirs.synchronize());
            assert!(!one.poll(cookie));
            drop(guard);
            assert!(!one.poll(cookie));
            reader.leave();
            assert!(one.poll(cookie));
        }
    }
}

fn what_was_unlinked_before_synchronize_is_not_read_after_it(domain: &Domain) {
    const UPDATES: u64 = if cfg!(miri) { 20 } else { 2_000 };
    let tally = Tally::new();
    let cell = Rcu::new_in(domain, tally.value(0));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let outer = domain.read_lock();
                    let inner = domain.read_lock();
                    let value = cell.load(&inner);
                    let number = value.get();
                    drop(outer);
                    assert_eq!(
                        value.get(),
                        number,
                        "the inner guard keeps the section open"
                    );
                    drop(inner);
                    thread::yield_now();
                }
            });
        }
        for update in 1..=UPDATES {
            // The box comes back after the grace period and is dropped here: from then on a
            // reader's check fails.
            drop(cell.swap(tally.value(update)).wait());
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(tally.dropped() as u64, UPDATES);
}

fn many_who_wait_all_return(domain: &Domain) {
    const WAITERS: usize = 16;
    let (mut reader, left) = reader_with_a_flag(domain);
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let left = Arc::clone(&left);
            start_waiting(domain, move |domain| {
                domain.synchronize();
                left.load(Ordering::Relaxed)
            })
        })
        .collect();
    assert!(
        !waiters.iter().any(JoinHandle::is_finished),
        "the reader is still there"
    );
    reader.tell_to_leave();
    let after_the_reader = returns(move || {
        waiters
            .into_iter()
            .all(|waiter| waiter.join().expect("no panic"))
    });
    assert!(after_the_reader);
    reader.leave();
}

#[test]
#[cfg_attr(miri, ignore = "too many threads")]
fn synchronize_waits_for_each_of_a_thousand_readers() {
    const READERS: usize = 1_000;
    const TIMES: usize = 3;
    let domain = Arc::new(Domain::new());
    let [entered, left] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let [enter, leave] = [(); 2].map(|()| Arc::new(Barrier::new(READERS + 1)));
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (domain, entered, left) =
                (Arc::clone(&domain), Arc::clone(&entered), Arc::clone(&left));
            let (enter, leave) = (Arc::clone(&enter), Arc::clone(&leave));
            let reader = move || {
                for _ in 0..TIMES {
                    enter.wait();
                    let guard = domain.read_lock();
                    entered.fetch_add(1, Ordering::Relaxed);
                    leave.wait();
                    left.fetch_add(1, Ordering::Relaxed);
                    drop(guard);
                }
            };
            thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(reader)
                .expect("a thread")
        })
        .collect();
    for time in 1..=TIMES {
        enter.wait();
        eventually(|| entered.load(Ordering::Relaxed) == time * READERS);
        let theirs = Arc::clone(&left);
        let waiter = start_waiting(&domain, move |domain| {
            domain.synchronize();
            theirs.load(Ordering::Relaxed)
        });
        assert!(!waiter.is_finished(), "a thousand readers are still there");
        leave.wait();
        assert_eq!(
            waiter.join().expect("no panic"),
            time * READERS,
            "synchronize returned before all had left"
        );
    }
    readers
        .into_iter()
        .for_each(|reader| reader.join().expect("no panic"));
    let cookie = domain.start_poll();
    assert!(domain.poll(cookie), "there are no readers");
}

/// The wait finds no reader, and yet has to be counted.
#[test]
fn what_was_named_before_a_whole_wait_has_ended_whatever_readers_there_are() {
    let domain = Domain::new();
    let cookie = domain.get_state();
    domain.synchronize();
    let _reading = domain.read_lock();
    assert!(domain.poll(cookie));
}
