//! A stall without a handler is reported on stderr, once, whatever stalls and whatever stderr is.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{
    CHILD, Reader, Tally, child_of, eventually, forking::fork, in_environments, keeps::Blocked,
    returns,
};
use std::{
    fs::File,
    io::{self, Read},
    os::fd::FromRawFd,
    thread,
    time::Duration,
};
use stillpoint::{Domain, Rcu, global, tasks_trace, tasks_trace::TraceDomain};

const STALL: &str = "STILLPOINT_STALL";

/// Waits for the stall, and for much longer.
fn stalls(domain: &Domain) {
    eventually(|| domain.statistics().stalls == 1);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(domain.statistics().stalls, 1);
}

fn hangs_in_synchronize() {
    let reader = Reader::enter(global());
    let waiter = thread::Builder::new().name("hangs".to_owned());
    let waiter = waiter.spawn(stillpoint::synchronize).expect("a thread");
    stalls(global());
    reader.leave();
    waiter.join().expect("no panic");
}

/// Nothing waits but the service thread.
fn keeps_what_was_retired() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let cell = Rcu::new_in(&domain, tally.value(1));
    let reader = Reader::enter(&domain);
    cell.store(tally.value(2));
    stalls(&domain);
    assert_eq!(tally.dropped(), 0);
    reader.leave();
}

fn stays_online() {
    let domain = Domain::with_fences();
    let theirs = domain.clone();
    let reader = Reader::inside("reader", move |stay| {
        let _reader = theirs.qsbr_reader();
        stay();
    });
    thread::scope(|scope| {
        scope.spawn(|| domain.synchronize());
        stalls(&domain);
        reader.leave();
    });
}

fn keeps_an_owned_guard(domain: &TraceDomain) {
    let guard = domain.read_lock_owned().named("request 7");
    let theirs = domain.clone();
    let waiter = thread::spawn(move || theirs.synchronize());
    stalls(domain);
    drop(guard);
    waiter.join().expect("no panic");
}

fn blocks_in_a_callback() {
    let domain = Domain::new();
    let blocked = Blocked::on(&domain);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| domain.barrier());
        eventually(|| domain.statistics().service_stalls == 1);
        drop(blocked);
        waiter.join().expect("no panic");
    });
}

fn hangs_in_a_forks_child() {
    fork(hangs_in_synchronize).well();
}

#[test]
fn each_hang_is_reported_once() {
    let name = "each_hang_is_reported_once";
    match child_of().as_deref() {
        Some("synchronize") => return hangs_in_synchronize(),
        Some("retired") => return keeps_what_was_retired(),
        Some("qsbr") => return stays_online(),
        Some("trace") => return keeps_an_owned_guard(&TraceDomain::new()),
        Some("global trace") => return keeps_an_owned_guard(tasks_trace::global()),
        Some("callback") => return blocks_in_a_callback(),
        Some("fork") => return hangs_in_a_forks_child(),
        _ => (),
    }
    for (what, said) in [
        ("synchronize", "waiters: thread 'hangs'"),
        ("retired", "holds a guard"),
        ("qsbr", "is an online QSBR reader"),
        ("trace", "task 'request 7' holds an owned guard"),
        ("global trace", "of domain 2 stalled for "),
        ("callback", "service thread of domain"),
        ("fork", "waiters: thread 'hangs'"),
    ] {
        let ended = in_environments(name, &[(CHILD, what), (STALL, "0.05")]);
        ended.well();
        let reports = ended.stderr.lines();
        let reports = reports
            .filter(|line| line.starts_with("stillpoint: ") && line.contains(" stalled for "));
        let reports: Vec<_> = reports.collect();
        assert_eq!(reports.len(), 1, "{what}: {}", ended.stderr);
        assert!(reports[0].contains(said), "{what}: {}", ended.stderr);
        let names = reports[0].matches("stillpoint: ").count();
        assert_eq!(names, 1, "{what}: {}", ended.stderr);
    }
}

/// A pipe, in the place of stderr: where it is read.
fn stderr_to_a_pipe() -> File {
    let mut ends = [0; 2];
    // SAFETY: a place for two descriptors, which are then ours; the other copy of the end that is
    // written to is closed.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        assert_eq!(libc::dup2(ends[1], 2), 2);
        assert_eq!(libc::close(ends[1]), 0);
        File::from_raw_fd(ends[0])
    }
}

/// A stall that a waiting thread or the service thread finds. Both go on when the reader has left.
fn stalls_and_goes_on(domain: &Domain, reader: Reader) {
    let theirs = domain.clone();
    let waiter = thread::spawn(move || theirs.synchronize());
    domain.call(|| ());
    eventually(|| domain.statistics().stalls == 1);
    reader.leave();
    let theirs = domain.clone();
    returns(move || {
        waiter.join().expect("no panic");
        theirs.barrier();
    });
}

#[test]
fn a_report_hangs_no_thread_whatever_stderr_is() {
    let name = "a_report_hangs_no_thread_whatever_stderr_is";
    let domain = Domain::new();
    domain.set_stall_timeout(Duration::from_millis(20));
    match child_of().as_deref() {
        Some("closed") => {
            // SAFETY: nothing of this process minds.
            assert_eq!(unsafe { libc::close(2) }, 0);
            return stalls_and_goes_on(&domain, Reader::enter(&domain));
        }
        Some("unread") => {
            // As in a program in C.
            // SAFETY: the default.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            drop(stderr_to_a_pipe());
            return stalls_and_goes_on(&domain, Reader::enter(&domain));
        }
        Some("full") => {
            let read = stderr_to_a_pipe();
            // SAFETY: plain calls on our own descriptor.
            let fill = |flags: libc::c_int| unsafe {
                assert_eq!(libc::fcntl(2, libc::F_SETFL, flags), 0);
                while libc::write(2, [0_u8; 4096].as_ptr().cast(), 4096) > 0 {}
                assert_eq!(libc::fcntl(2, libc::F_SETFL, 0), 0);
            };
            fill(libc::O_NONBLOCK);
            stalls_and_goes_on(&domain, Reader::enter(&domain));
            return drop(read);
        }
        Some("locked") => {
            let mut read = stderr_to_a_pipe();
            let held = io::stderr().lock();
            stalls_and_goes_on(&domain, Reader::enter(&domain));
            let mut said = [0; 4096];
            let length = read.read(&mut said).expect("a line");
            assert!(said[..length].ends_with(b"\n"));
            assert!(String::from_utf8_lossy(&said[..length]).contains("holds a guard"));
            drop(held);
            return;
        }
        Some("long") => {
            let mut read = stderr_to_a_pipe();
            let trace = TraceDomain::new();
            trace.set_stall_timeout(Duration::from_millis(20));
            let guards: Vec<_> = (0..100)
                .map(|_| trace.read_lock_owned().named("n".repeat(1_000)))
                .collect();
            let _ = trace.start_poll();
            let mut said = vec![0; 1 << 16];
            let length = read.read(&mut said).expect("a line");
            assert!(said[..length].ends_with(b" ...\n") && length <= 4096);
            return drop(guards);
        }
        _ => (),
    }
    for what in ["closed", "unread", "full", "locked", "long"] {
        in_environments(name, &[(CHILD, what)]).well();
    }
}
