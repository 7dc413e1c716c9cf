//! Misuse: what would wait for itself panics, says what to do, and leaves the domain working.

mod common;

use common::{
    Count, Hear, Reader, Tally, Tell, Tracked, eventually, panic_message, quietly, retire, returns,
};
use std::{
    io,
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    thread,
};
use stillpoint::{Domain, Guard, Rcu};

/// The end of every refusal: what else to do.
const REMEDY: &str = "first, or hand the wait to another thread";

/// Checks that `call` panics, and that the message names it by `what`, and what to do.
#[track_caller]
fn assert_refused<R>(what: &str, call: impl FnOnce() -> R) {
    assert_tells(what, &panic_message(call));
}

#[track_caller]
fn assert_tells(what: &str, message: &str) {
    assert!(message.contains(what), "{message:?} names the call");
    assert!(message.contains(REMEDY), "{message:?} names the remedy");
}

const WAITING: &str = "waiting for a grace period";

/// Checks that everything in `domain` still works.
fn assert_works(domain: &Domain) {
    let domain = domain.clone();
    returns(move || {
        let tally = Tally::new();
        let cell = Rcu::new_in(&domain, tally.value(1));
        assert_eq!(cell.load(&domain.read_lock()).get(), 1);
        domain.synchronize();
        let calls = Count::default();
        domain.call(calls.raise());
        domain.barrier();
        assert_eq!(calls.get(), 1, "a barrier waits for callbacks");
        drop(cell);
        domain.kvfree_barrier();
        assert!(tally.all_dropped());
        assert_eq!(domain.statistics().objects_pending, 0);
    });
}

#[test]
fn waits_for_a_grace_period_inside_a_section_panic() {
    let domain = Domain::new();
    let guard = domain.read_lock();
    let (named, started) = (domain.get_state(), domain.start_poll());
    assert_refused(WAITING, || domain.synchronize());
    assert_refused(WAITING, || domain.synchronize_expedited());
    assert_refused(WAITING, || domain.cond_synchronize(named));
    assert_refused(WAITING, || domain.cond_synchronize(started));
    drop(guard);
    assert_works(&domain);
}

#[test]
fn waits_inside_a_section_of_the_global_domain_panic() {
    let guard = stillpoint::read_lock();
    assert_refused(WAITING, stillpoint::synchronize);
    assert_refused(WAITING, || stillpoint::read(|_| stillpoint::synchronize()));
    drop(guard);
    stillpoint::synchronize();
}

#[test]
fn synchronize_inside_a_nested_section_panics_until_the_last_guard_is_dropped() {
    let domain = Domain::new();
    let outer = domain.read_lock();
    let inner = domain.read_lock();
    drop(outer);
    assert_refused(WAITING, || domain.synchronize());
    drop(inner);
    domain.synchronize();
}

#[test]
fn a_wait_for_a_value_inside_a_section_panics_and_the_value_is_freed_later() {
    let waits: [fn(Rcu<Tracked>, Tracked); 2] = [
        |cell, other| drop(cell.swap(other).wait()),
        |cell, _| drop(cell.into_inner()),
    ];
    for wait in waits {
        let (domain, tally) = (Domain::new(), Tally::new());
        let cell = Rcu::new_in(&domain, tally.value(1));
        let other = Tally::new().value(2);
        let guard = domain.read_lock();
        assert_refused(WAITING, || wait(cell, other));
        assert_eq!(tally.dropped(), 0, "the section is still open");
        drop(guard);
        domain.kvfree_barrier();
        assert_eq!(tally.dropped(), 1);
        assert_works(&domain);
    }
}

#[test]
fn a_barrier_inside_a_section_from_before_a_call_panics() {
    let domain = Domain::new();
    let calls = Count::default();
    let guard = domain.read_lock();
    domain.call(calls.raise());
    assert_refused("barrier()", || domain.barrier());
    assert_eq!(calls.get(), 0, "the callback waits for the section");
    drop(guard);
    domain.barrier();
    assert_eq!(calls.get(), 1, "a barrier waits for callbacks");
    assert_works(&domain);
}

#[test]
fn a_barrier_inside_a_section_from_after_the_calls_returns() {
    for _ in 0..100 {
        let (domain, calls) = (Domain::new(), Count::default());
        domain.call(calls.raise());
        returns(move || domain.read(|_| domain.barrier()));
        assert_eq!(calls.get(), 1, "a barrier waits for callbacks");
    }
}

#[test]
fn a_barrier_inside_a_section_waits_for_the_readers_of_others() {
    let domain = Domain::new();
    let calls = Count::default();
    let mut reader = Reader::enter(&domain);
    domain.call(calls.raise());
    let theirs = domain.clone();
    let waiter = thread::spawn(move || theirs.read(|_| theirs.barrier()));
    // The barrier's own callback is the second.
    eventually(|| domain.statistics().callbacks_pending == 2);
    assert!(!waiter.is_finished());
    reader.tell_to_leave();
    returns(move || waiter.join().expect("no panic"));
    assert_eq!(calls.get(), 1, "a barrier waits for callbacks");
    reader.leave();
}

#[test]
fn a_barrier_inside_a_section_with_nothing_queued_returns() {
    let domain = Domain::new();
    let theirs = domain.clone();
    returns(move || theirs.read(|_| theirs.barrier()));
    assert_works(&domain);
}

#[test]
fn kvfree_barrier_inside_a_section_panics_while_something_waits() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let cell = Rcu::new_in(&domain, tally.value(1));
    let guard = domain.read_lock();
    cell.store(tally.value(2));
    assert_refused("kvfree_barrier()", || domain.kvfree_barrier());
    assert_eq!(tally.dropped(), 0);
    drop(guard);
    domain.kvfree_barrier();
    assert_eq!(tally.dropped(), 1);
    assert_works(&domain);
}

#[test]
fn kvfree_barrier_inside_a_section_returns_while_nothing_waits() {
    let domain = Domain::new();
    let theirs = domain.clone();
    returns(move || {
        theirs.read(|_| theirs.kvfree_barrier());
        drop(Rcu::new_in(&theirs, 1));
        theirs.kvfree_barrier();
        theirs.read(|_| theirs.kvfree_barrier());
    });
    assert_works(&domain);
}

/// The reason that applies, and no other.
#[test]
fn a_refusal_names_its_reason_and_the_domain() {
    let reasons = [
        "critical section of domain",
        "QSBR reader of domain",
        "a callback or a deferred destructor of domain",
    ];
    let domain = Domain::builder().name("routes").build();
    let assert_says = |message: &str, reason: usize, remedy: &str| {
        for (number, text) in reasons.iter().enumerate() {
            assert_eq!(message.contains(text), number == reason, "{message}");
        }
        assert!(message.contains("'routes'"), "{message}");
        assert!(message.contains(&format!("{remedy} {REMEDY}")), "{message}");
    };
    let guard = domain.read_lock();
    domain.call(|| ());
    assert_says(&panic_message(|| domain.synchronize()), 0, "Drop the guard");
    assert_says(&panic_message(|| domain.barrier()), 0, "Drop the guard");
    drop(guard);
    let mut reader = domain.qsbr_reader();
    assert_says(&panic_message(|| domain.synchronize()), 1, "Go offline");
    let guard = domain.read_lock();
    let message = panic_message(|| reader.synchronize());
    assert_says(&message, 0, "Drop the guard");
    drop((guard, reader));
    let message = refused_in_a_callback(&domain, Domain::barrier);
    assert_says(&message, 2, "Return from it");
    let message = refused_in_a_callback(&domain, |domain| {
        domain.read(|_| domain.synchronize());
    });
    assert_says(&message, 0, "Drop the guard");
    assert_works(&domain);
}

/// Returns the message with which `refused` panics on a thread of the library, whose output nothing
/// captures.
fn refusal(refused: impl FnOnce()) -> String {
    panic_message(|| quietly(refused))
}

/// Returns the message with which `refused` panics in a callback of `domain`.
fn refused_in_a_callback(
    domain: &Domain,
    refused: impl FnOnce(&Domain) + Send + 'static,
) -> String {
    let (tell, told) = channel();
    let theirs = domain.clone();
    domain.call(move || tell.tell(refusal(|| refused(&theirs))));
    told.hear("the call is refused at once")
}

#[test]
fn barriers_inside_a_callback_panic() {
    let domain = Domain::new();
    let barrier = refused_in_a_callback(&domain, Domain::barrier);
    assert_tells("barrier()", &barrier);
    let kvfree_barrier = refused_in_a_callback(&domain, Domain::kvfree_barrier);
    assert_tells("kvfree_barrier()", &kvfree_barrier);
    assert_works(&domain);
}

#[test]
fn synchronize_inside_a_callback_returns() {
    let (domain, calls) = (Domain::new(), Count::default());
    let (theirs, call) = (domain.clone(), calls.raise());
    domain.call(move || {
        theirs.synchronize();
        call();
    });
    eventually(|| calls.get() == 1);
    assert_works(&domain);
}

/// Calls its function when it is dropped.
struct OnDrop<F: FnOnce() + Send>(Option<F>);

impl<F: FnOnce() + Send> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0.take().expect("dropped once"))();
    }
}

fn retire_with_destructor(domain: &Domain, destructor: impl FnOnce() + Send + 'static) {
    retire(domain, OnDrop(Some(destructor)));
}

#[test]
fn barriers_inside_a_deferred_destructor_panic() {
    let domain = Domain::new();
    let (tell, told): (Sender<String>, _) = channel();
    let theirs = domain.clone();
    retire_with_destructor(&domain, move || {
        tell.tell(refusal(|| theirs.barrier()));
        tell.tell(refusal(|| theirs.kvfree_barrier()));
    });
    for what in ["barrier()", "kvfree_barrier()"] {
        let message = told.recv_timeout(common::PATIENCE);
        assert_tells(what, &message.expect("refused at once"));
    }
    assert_works(&domain);
}

#[test]
fn a_barrier_of_another_domain_inside_a_callback_returns() {
    let (one, two) = (Domain::new(), Domain::new());
    let (tell, told) = channel();
    let other = two.clone();
    one.call(move || {
        other.barrier();
        other.kvfree_barrier();
        tell.tell(());
    });
    told.hear("the domains do not wait for one another");
    assert_works(&one);
    assert_works(&two);
}

#[test]
fn a_guard_of_the_wrong_domain_is_refused_with_both_named_and_what_to_use() {
    let domain = Domain::new();
    let (mine, global) = (Rcu::new_in(&domain, 1), Rcu::new(2));
    let check = |cell: &Rcu<i32>, guard: &Guard<'_>| {
        let loading = panic_message(|| *cell.load(guard));
        let exchanging = panic_message(|| cell.compare_exchange(&1, Box::new(3), guard).is_ok());
        for message in [loading, exchanging] {
            assert!(
                message.contains("use the read_lock() of the domain that the cell was made in"),
                "{message}"
            );
            assert!(message.contains("domain 1 "), "{message}");
        }
    };
    check(&mine, &stillpoint::read_lock());
    check(&global, &domain.read_lock());
    assert_eq!(mine.load(&domain.read_lock()), &1);
    assert_eq!(global.load(&stillpoint::read_lock()), &2);
}

const DEEPEST: usize = 65_535;

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn sections_nest_65_535_deep() {
    let domain = Domain::new();
    let mut guards: Vec<_> = (0..DEEPEST).map(|_| domain.read_lock()).collect();
    let cookie = domain.start_poll();
    guards.truncate(1);
    assert!(!domain.poll(cookie));
    drop(guards);
    assert!(domain.poll(cookie));
    assert_works(&domain);
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn one_level_more_than_65_535_aborts() {
    if common::is_child() {
        let domain = Arc::new(Domain::new());
        // The message must not wait for it: a handler may have interrupted its holder.
        let _holder = Reader::inside("holds stderr", |stay| {
            let _stderr = io::stderr().lock();
            stay();
        });
        let guards: Vec<_> = (0..=DEEPEST).map(|_| domain.read_lock()).collect();
        panic!("{} guards", guards.len());
    }
    common::child("one_level_more_than_65_535_aborts")
        .by_abort_with("nested more than 65,535 deep");
}
