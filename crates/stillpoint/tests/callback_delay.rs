//! Callbacks that are kept for a while: never early, and due at once when a barrier asks for them.

mod common;

use common::{Count, Reader, Tally, Tell, eventually, in_environments, returns};
use std::{
    env,
    pin::pin,
    sync::{Arc, Mutex, mpsc::channel},
    task::{Context, Waker},
    thread,
    time::Duration,
};
use stillpoint::{Domain, Rcu};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(24 * 3600);
const CALLS: usize = 100;

/// Waits until the service thread has made a pass since the call.
fn pass(domain: &Domain) {
    let tally = Tally::new();
    let cell = Rcu::new_in(domain, tally.value(0));
    cell.store(tally.value(1));
    eventually(|| tally.dropped() == 1);
}

fn barrier(domain: &Domain) {
    let domain = domain.clone();
    returns(move || domain.barrier());
}

#[test]
fn callbacks_are_kept_and_are_due_with_no_delay() {
    let (domain, calls) = (Domain::new(), Count::default());
    assert_eq!(domain.callback_delay(), Duration::ZERO);
    domain.set_callback_delay(LONG);
    assert_eq!(domain.callback_delay(), LONG);
    for round in 1..=3 {
        (0..CALLS).for_each(|_| domain.call(calls.raise()));
        pass(&domain);
        assert_eq!(
            domain.statistics().callbacks_pending,
            (round * CALLS) as u64
        );
    }
    assert_eq!(calls.get(), 0);
    domain.set_callback_delay(Duration::ZERO);
    eventually(|| calls.get() == 3 * CALLS);
    // Nothing is left of the other delay.
    domain.set_callback_delay(LONG);
    domain.call(calls.raise());
    pass(&domain);
    assert_eq!(domain.statistics().callbacks_pending, 1);
}

#[test]
fn callbacks_run_in_their_order_when_the_delay_is_over() {
    let (domain, order) = (Domain::new(), Arc::new(Mutex::new(Vec::new())));
    domain.set_callback_delay(Duration::from_millis(1));
    for number in 0..3 * CALLS {
        if number % CALLS == 0 {
            // More than one batch.
            pass(&domain);
        }
        let order = Arc::clone(&order);
        domain.call(move || order.lock().expect("not poisoned").push(number));
    }
    eventually(|| order.lock().expect("not poisoned").len() == 3 * CALLS);
    assert!(order.lock().expect("not poisoned").is_sorted());
}

#[test]
fn barriers_cut_the_delay_short_for_what_they_wait_for() {
    let (domain, calls) = (Domain::new(), Count::default());
    domain.set_callback_delay(LONG);
    barrier(&domain);
    for round in 1..=3 {
        domain.call(calls.raise());
        pass(&domain);
        domain.call(calls.raise());
        barrier(&domain);
        assert_eq!(calls.get(), 2 * round);
    }
    domain.call(calls.raise());
    let mut barrier = pin!(domain.barrier_async());
    let mut context = Context::from_waker(Waker::noop());
    eventually(|| barrier.as_mut().poll(&mut context).is_ready());
    assert_eq!(calls.get(), 7);
    domain.call(calls.raise());
    let theirs = domain.clone();
    returns(move || theirs.kvfree_barrier());
    // And not for callbacks that are queued later.
    domain.call(calls.raise());
    pass(&domain);
    assert_eq!(calls.get(), 8);
}

/// A barrier was there before the delay: it waits for readers alone.
#[test]
fn a_delay_that_is_set_meanwhile_keeps_no_barrier() {
    for before in [Duration::ZERO, LONG] {
        let (domain, calls) = (Domain::new(), Count::default());
        domain.set_callback_delay(before);
        let reader = Reader::enter(&domain);
        domain.call(calls.raise());
        let mut task = pin!(domain.barrier_async());
        let theirs = domain.clone();
        let barrier = thread::spawn(move || theirs.barrier());
        eventually(|| domain.statistics().callbacks_pending == 2);
        domain.set_callback_delay(2 * LONG);
        reader.leave();
        returns(move || barrier.join().expect("no panic"));
        let mut context = Context::from_waker(Waker::noop());
        eventually(|| task.as_mut().poll(&mut context).is_ready());
        assert_eq!(calls.get(), 1);
        // The next ones are kept.
        domain.call(calls.raise());
        pass(&domain);
        assert_eq!(domain.statistics().callbacks_pending, 1);
    }
}

#[test]
fn a_domain_that_ends_runs_delayed_callbacks() {
    let (domain, calls) = (Domain::new(), Count::default());
    domain.set_callback_delay(LONG);
    domain.call(calls.raise());
    pass(&domain);
    domain.call(calls.raise());
    returns(move || drop(domain));
    assert_eq!(calls.get(), 2);
}

#[test]
fn a_callback_may_set_the_delay() {
    let domain = Domain::new();
    domain.set_callback_delay(Duration::from_millis(1));
    let (tell, told) = channel();
    let theirs = domain.clone();
    domain.call(move || {
        theirs.set_callback_delay(LONG);
        tell.tell(theirs.callback_delay());
    });
    assert_eq!(told.recv(), Ok(LONG));
}

const VARIABLE: &str = "STILLPOINT_CALLBACK_DELAY_MS";

/// In a separate process, for the environment variable.
#[cfg(not(miri))]
#[test]
fn the_environment_sets_the_delay_of_all_domains() {
    let name = "the_environment_sets_the_delay_of_all_domains";
    if let Some(value) = env::var_os(VARIABLE) {
        let expected = value
            .to_str()
            .and_then(|text| text.parse().ok())
            .map_or(Duration::ZERO, Duration::from_millis);
        let expected = expected.min(Duration::from_nanos(u64::MAX));
        for domain in [
            Domain::new(),
            Domain::with_fences(),
            stillpoint::global().clone(),
        ] {
            assert_eq!(domain.callback_delay(), expected);
            let calls = Count::default();
            domain.call(calls.raise());
            if !expected.is_zero() {
                pass(&domain);
                assert_eq!(calls.get(), 0);
            }
            barrier(&domain);
            assert_eq!(calls.get(), 1);
        }
        return;
    }
    let good = ["", "0", "off", "86400000", "18446744073709551615"];
    let bad = ["on", "soon", "-1", "1.5", "10 ms", "18446744073709551616"];
    for value in good.iter().chain(&bad) {
        let ended = in_environments(name, &[(VARIABLE, value)]);
        let warnings = ended.stderr.matches(VARIABLE).count();
        assert_eq!(warnings, usize::from(bad.contains(value)), "{ended:?}");
        ended.well();
    }
}
