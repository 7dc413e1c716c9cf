//! Collectors share a few threads, and a deferred function that blocks holds up no other collector.
//!
//! Detects a thread for each collector, a pool without a second thread or whose second thread does
//! not take over, and a drop of a collector that does not wait.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{Drops, wait_until};
use crossbeam_epoch::Collector;
use std::sync::{Arc, Barrier, mpsc::channel};

/// Returns the number of the library's threads in this process.
fn service_threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task")
        .expect("Linux")
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names
        .filter(|name| name.trim_end() == "rcu/crossbeam-e")
        .count()
}

/// Threads that are preempted for long count as blocked, so there may be some more.
#[test]
fn a_thousand_collectors_have_a_few_threads() {
    const COLLECTORS: usize = 1000;
    let ran = Drops::default();
    let collectors: Vec<_> = (0..COLLECTORS).map(|_| Collector::new()).collect();
    let mut most = 0;
    for collector in &collectors {
        ran.defer(&collector.register().pin());
        most = most.max(service_threads());
    }
    wait_until(|| {
        most = most.max(service_threads());
        ran.count() == COLLECTORS
    });
    assert!((1..=20).contains(&most), "{most} threads");
    drop(collectors);
}

#[test]
fn collectors_whose_functions_wait_for_each_other_go_on() {
    const COLLECTORS: usize = 4;
    let collectors: Vec<_> = (0..COLLECTORS).map(|_| Collector::new()).collect();
    let barrier = Arc::new(Barrier::new(COLLECTORS + 1));
    for collector in &collectors {
        let barrier = Arc::clone(&barrier);
        collector.register().pin().defer(move || barrier.wait());
    }
    // Returns once all functions run at the same time.
    barrier.wait();
    drop(collectors);
}

#[test]
fn the_end_of_a_collector_does_not_wait_for_another_ones_function() {
    let (blocked, one, another) = (Collector::new(), Collector::new(), Collector::new());
    let ((enter, entered), (leave, may_leave)) = (channel(), channel::<()>());
    blocked.register().pin().defer(move || {
        enter.send(()).expect("the test waits");
        let _ = may_leave.recv();
    });
    entered.recv().expect("it runs");
    // One ends while the function waits for its turn, the other after that.
    for (other, runs_before) in [(one, false), (another, true)] {
        let ran = Drops::default();
        ran.defer(&other.register().pin());
        if runs_before {
            ran.wait_for(1);
        }
        drop(other);
        assert_eq!(ran.count(), 1, "the end runs it, or waits for it");
    }
    drop(leave);
    drop(blocked);
}
