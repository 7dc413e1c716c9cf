//! Programs under a seccomp filter that takes `membarrier(2)` away: from the start, in part, or
//! when it is too late.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{Tally, child, is_child, without_membarrier};
use std::{ptr::NonNull, sync::mpsc, thread};
use stillpoint::{Domain, Rcu};

/// What a filter forbids.
#[derive(Clone, Copy)]
enum Denied {
    All,
    /// Asking and registering go through; the call itself does not.
    TheCallAlone,
}

const PRIVATE_EXPEDITED: u32 = 1 << 3;

/// Forbids membarrier to all threads of this process from now on.
fn deny_membarrier(denied: Denied) {
    let load = |offset: u32| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equal = |value: u32, otherwise: u8| {
        instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            otherwise,
            value,
        )
    };
    let answer = |value: u32| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let refuse = answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let allow = answer(libc::SECCOMP_RET_ALLOW);
    // The number of the call is the first word of what a filter sees, its first argument the fifth.
    let membarrier = libc::SYS_membarrier as u32;
    let mut program = match denied {
        Denied::All => vec![load(0), equal(membarrier, 1), refuse, allow],
        Denied::TheCallAlone => vec![
            load(0),
            equal(membarrier, 3),
            load(16),
            equal(PRIVATE_EXPEDITED, 1),
            refuse,
            allow,
        ],
    };
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: plain integers; the kernel copies the program that the pointer leads to.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
        assert_eq!(
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const filter
            ),
            0
        );
    }
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

/// Reads, replaces, waits and retires, on several threads.
fn assert_works() {
    let domain = Domain::new();
    let tally = Tally::new();
    let cell = Rcu::new_in(&domain, tally.value(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert!((0..1000).all(|_| cell.load(&domain.read_lock()).get() < 100)));
        }
        scope.spawn(|| {
            for number in 1..100 {
                drop(cell.swap(tally.value(number)).wait());
                // SAFETY: no other thread has ever known the object.
                unsafe { domain.retire(NonNull::from(Box::leak(Box::new(tally.value(number))))) };
            }
        });
    });
    drop(cell);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
}

#[test]
fn without_membarrier_from_the_start_readers_fence() {
    if !is_child() {
        return child("without_membarrier_from_the_start_readers_fence").well();
    }
    deny_membarrier(Denied::All);
    assert!(!stillpoint::membarrier_active());
    assert_works();
}

#[test]
fn a_filter_that_lets_the_question_through_and_not_the_call_is_found_out() {
    if !is_child() {
        return child("a_filter_that_lets_the_question_through_and_not_the_call_is_found_out")
            .well();
    }
    deny_membarrier(Denied::TheCallAlone);
    assert!(!stillpoint::membarrier_active());
    assert_works();
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
    // Where no other thread is registered no barrier is needed.
    let (read, has_read) = mpsc::channel();
    thread::spawn(move || {
        drop(stillpoint::read_lock());
        read.send(()).unwrap();
        loop {
            thread::park();
        }
    });
    has_read.recv().unwrap();
    deny_membarrier(Denied::All);
    stillpoint::synchronize();
}

/// What the report of the too late filter tells its reader to do.
#[test]
fn with_fences_by_choice_no_filter_can_come_too_late() {
    if without_membarrier() {
        assert!(!stillpoint::membarrier_active());
        deny_membarrier(Denied::All);
        assert_works();
        return;
    }
    common::rerun_without_membarrier().well();
}
