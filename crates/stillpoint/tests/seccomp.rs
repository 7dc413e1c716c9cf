//! Programs under a seccomp filter that takes `membarrier(2)` away: from the start, in part, or
//! when it is too late.
//!
//! Detects a missing check for a filter that comes too late, and a report of it that waits for std's
//! lock of stderr.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{Reader, Tally, apart, child, filter, is_child, retire, without_membarrier};
use std::{io, thread};
use stillpoint::{Domain, Rcu};

const ALL: Option<(u32, u32)> = None;
/// `PRIVATE_EXPEDITED`: asking and registering go through; the call itself does not.
const THE_CALL_ALONE: Option<(u32, u32)> = Some((0, 1 << 3));

/// Forbids membarrier to all threads of this process from now on.
fn deny_membarrier(denied: Option<(u32, u32)>) {
    filter::deny(libc::SYS_membarrier, denied, libc::EPERM);
}

/// Reads, replaces, waits and retires, on several threads.
fn assert_works() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let cell = Rcu::new_in(&domain, tally.value(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert!((0..1000).all(|_| cell.load(&domain.read_lock()).get() < 100)));
        }
        scope.spawn(|| {
            for number in 1..100 {
                drop(cell.swap(tally.value(number)).wait());
                retire(&domain, tally.value(number));
            }
        });
    });
    drop(cell);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
}

fn assert_works_denied(denied: Option<(u32, u32)>) {
    deny_membarrier(denied);
    assert!(!stillpoint::membarrier_active());
    assert_works();
}

#[test]
fn without_membarrier_from_the_start_readers_fence() {
    apart!();
    assert_works_denied(ALL);
}

#[test]
fn a_filter_that_lets_the_question_through_and_not_the_call_is_found_out() {
    apart!();
    assert_works_denied(THE_CALL_ALONE);
}

#[test]
fn a_filter_that_comes_too_late_ends_the_process_with_a_report() {
    if without_membarrier() {
        return;
    }
    if !is_child() {
        return child("a_filter_that_comes_too_late_ends_the_process_with_a_report")
            .by_abort_with("STILLPOINT_MEMBARRIER=off");
    }
    assert!(stillpoint::membarrier_active());
    assert_works();
    // Where no other thread is registered no barrier is needed. The report must not wait for that
    // thread's lock.
    let _holder = Reader::inside("holds stderr", |stay| {
        drop(stillpoint::read_lock());
        let _stderr = io::stderr().lock();
        stay();
    });
    deny_membarrier(ALL);
    stillpoint::synchronize();
}

/// The advice in the report about a filter that comes too late, followed.
#[test]
fn with_fences_by_choice_no_filter_can_come_too_late() {
    if without_membarrier() {
        return assert_works_denied(ALL);
    }
    common::rerun_without_membarrier().well();
}
