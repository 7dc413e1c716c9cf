//! Histograms of what a domain has timed: each kind counts its own events, and no others.
//!
//! Detects a held-up grace period that is not counted, and a sample that counts for one.

mod common;

use common::{Reader, Tally, eventually, retire};
use std::{thread, time::Duration};
use stillpoint::Domain;

/// More than are needed for several that are timed, of which one in 128 is.
const MANY: u64 = 128 * 8;

#[test]
fn a_grace_period_that_a_reader_holds_up_is_timed() {
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    let theirs = domain.clone();
    let waiter = thread::spawn(move || theirs.synchronize());
    // Each sleep of a waiter comes after its look at the clock, and flags the reader by a barrier.
    eventually(|| domain.statistics().heavy_barriers > 1);
    assert_eq!(domain.statistics().grace_period_times.count(), 0);
    reader.leave();
    waiter.join().expect("no panic");
    let times = domain.statistics().grace_period_times;
    assert_eq!(times.count(), 1);
    assert!(times.sum() > Duration::ZERO && times.quantile(1.0) > times.sum());
}

#[test]
fn of_the_others_some_are_timed_and_stand_for_all() {
    let domain = Domain::new();
    // Another thread has a record: alone, a wait would return at once.
    let theirs = domain.clone();
    let other = Reader::inside("other", move |stay| {
        drop(theirs.read_lock());
        stay();
    });
    (0..MANY).for_each(|_| domain.synchronize());
    let statistics = domain.statistics();
    let (count, times) = (statistics.grace_periods, statistics.grace_period_times);
    assert_eq!(count, MANY);
    assert_eq!((times.count() / 128, times.count() % 128), (MANY / 128, 0));
    other.leave();
}

#[test]
fn every_callback_is_timed() {
    let domain = Domain::new();
    for _ in 0..3 {
        (0..MANY).for_each(|_| domain.call(|| ()));
        // Its own callback comes behind the others, and is none of the program's.
        domain.barrier();
    }
    eventually(|| domain.statistics().callback_times.count() == 3 * MANY);
    assert!(domain.statistics().callback_times.sum() > Duration::ZERO);
    assert_eq!(domain.statistics().wait_times.count(), 0);
}

#[test]
fn waits_and_passes_that_free_are_timed() {
    let (domain, tally) = (Domain::new(), Tally::new());
    domain.set_budget(0);
    let reader = Reader::enter(&domain);
    // Past the budget a thread waits when it opens a page or has filled one.
    let retired = (1..=1_000).find(|&number| {
        retire(&domain, tally.value(number));
        domain.statistics().waits > 0
    });
    let (retired, statistics) = (retired.expect("a wait"), domain.statistics());
    assert_eq!(statistics.wait_times.count(), statistics.waits);
    assert_eq!(statistics.reclaim_times.count(), 0, "nothing can be freed");
    reader.leave();
    domain.kvfree_barrier();
    assert_eq!(tally.dropped() as u64, retired);
    eventually(|| domain.statistics().reclaim_times.count() > 0);
}

#[test]
fn a_new_domain_has_timed_nothing() {
    let statistics = Domain::new().statistics();
    for times in [
        statistics.grace_period_times,
        statistics.callback_times,
        statistics.wait_times,
        statistics.reclaim_times,
    ] {
        assert_eq!(times, stillpoint::Histogram::default());
    }
}
