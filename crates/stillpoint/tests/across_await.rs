//! A guard of a thread that is held across an `.await`: the compiler refuses it where tasks move
//! between threads, and reports say where it does not.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{PATIENCE, Tell, stalls::Stalls};
use std::{
    fs,
    future::Future,
    pin::pin,
    ptr,
    sync::mpsc::channel,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};
use stillpoint::{AcrossAwait, Domain};

/// Returns whether this kernel says what threads sleep in.
fn is_known() -> bool {
    fs::exists("/proc/self/syscall").expect("Linux")
}

/// C has no `.await`: its build, which `--workspace` selects for all, gives no hints.
const HINTS: bool = !cfg!(feature = "c-symbols");

#[test]
fn a_future_that_waits_for_its_own_threads_guard_is_recognised() {
    let (domain, told) = Stalls::watch(Domain::new());
    let guard = domain.read_lock();
    let mut future = pin!(domain.synchronize_async());
    let mut context = Context::from_waker(Waker::noop());
    let start = Instant::now();
    let report = loop {
        assert_eq!(future.as_mut().poll(&mut context), Poll::Pending);
        if let Some(report) = told.try_next() {
            break report;
        }
        assert!(start.elapsed() < PATIENCE, "a stall is reported");
        thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(
        report.holdouts[0].across_await,
        Some(AcrossAwait::PolledBySameThread)
    );
    let text = report.to_string();
    assert_eq!(
        text.contains("polls a future that waits: "),
        HINTS,
        "{text}"
    );
    assert_eq!(text.contains("across an `.await`"), HINTS, "{text}");
    drop(guard);
}

#[test]
fn a_thread_that_waits_for_events_or_tasks_in_its_section_is_recognised() {
    let (domain, told) = Stalls::watch(Domain::new());
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let (leave, may_leave) = tokio::sync::oneshot::channel::<()>();
    thread::scope(|scope| {
        let theirs = &domain;
        scope.spawn(move || {
            tokio.block_on(async {
                let guard = theirs.read_lock();
                let _ = may_leave.await;
                drop(guard);
            });
        });
        while domain.statistics().stalls == 0 {
            domain.call(|| ());
            thread::sleep(Duration::from_millis(1));
        }
        let report = told.next();
        if is_known() {
            assert_eq!(report.holdouts[0].blocked_in, Some("futex"), "{report}");
            assert_eq!(
                report.holdouts[0].across_await,
                Some(AcrossAwait::MayWaitForTask)
            );
        }
        drop(leave);
    });

    let (domain, told) = Stalls::watch(Domain::new());
    let (write, read) = std::os::unix::net::UnixStream::pair().expect("a pair");
    thread::scope(|scope| {
        let theirs = &domain;
        let (entered, has_entered) = channel();
        scope.spawn(move || {
            let _guard = theirs.read_lock();
            entered.tell(());
            let mut file = libc::pollfd {
                fd: std::os::fd::AsRawFd::as_raw_fd(&read),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one descriptor.
            unsafe { libc::ppoll(&raw mut file, 1, ptr::null(), ptr::null()) };
        });
        has_entered.recv().expect("it enters");
        domain.call(|| ());
        let report = told.next();
        if is_known() {
            assert_eq!(report.holdouts[0].blocked_in, Some("ppoll"), "{report}");
            assert_eq!(
                report.holdouts[0].across_await,
                Some(AcrossAwait::WaitsForEvents)
            );
            let text = report.to_string();
            assert!(text.contains("blocked in ppoll()"), "{text}");
            assert_eq!(text.contains("hint: "), HINTS, "{text}");
        }
        drop(write);
    });
    domain.barrier();
}

/// A reader that runs says nothing of the kind.
#[test]
fn a_thread_that_computes_in_its_section_gets_no_hint() {
    let (domain, told) = Stalls::watch(Domain::new());
    let over = std::sync::atomic::AtomicBool::new(false);
    let (entered, has_entered) = channel();
    thread::scope(|scope| {
        let _over = common::Over(&over);
        scope.spawn(|| {
            let _guard = domain.read_lock();
            entered.tell(());
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                std::hint::spin_loop();
            }
        });
        has_entered.recv().expect("it enters");
        domain.call(|| ());
        let report = told.next();
        assert_eq!(
            (
                report.holdouts[0].blocked_in,
                report.holdouts[0].across_await
            ),
            (None, None)
        );
        assert!(!report.to_string().contains("hint"), "{report}");
    });
}
