//! The system refuses the service thread, for a while or for good: the work is done once a thread can be
//! had, by barriers, or by the domain's end; and the program is told.
//!
//! Each test is the only one of a process, whose limit on memory keeps threads from starting.
//!
//! Detects, one by one: waits, retires and service threads that do not try again; a service thread that
//! does another domain's work; a refusal that is not said, or said twice; a report without it; a destructor that
//! runs inside a retire; a kept thread that ends idle.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{Tally, child, eventually, is_child, number, service_threads, without_new_threads};
use std::{
    ptr::NonNull,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
    time::Duration,
};
use stillpoint::{Domain, StallReport, Stalled};

/// A domain with work for a service thread: `WORK` callbacks and as many objects with destructors.
struct Busy {
    domain: Domain,
    called: Arc<AtomicUsize>,
    tally: Tally,
}

const WORK: usize = 10;

impl Busy {
    fn new() -> Self {
        let this = Self {
            domain: Domain::new(),
            called: Arc::default(),
            tally: Tally::new(),
        };
        for _ in 0..WORK {
            let called = Arc::clone(&this.called);
            this.domain
                .call(move || _ = called.fetch_add(1, Ordering::SeqCst));
            this.retire();
        }
        this
    }

    fn retire(&self) {
        let object = NonNull::from(Box::leak(Box::new(self.tally.value(1))));
        // SAFETY: no other thread has ever known the object.
        unsafe { self.domain.retire(object) };
    }

    fn is_done(&self) -> bool {
        self.called.load(Ordering::SeqCst) == WORK && self.tally.all_dropped()
    }

    fn is_untouched(&self) -> bool {
        self.called.load(Ordering::SeqCst) == 0 && self.tally.dropped() == 0
    }
}

/// Runs `work` in a process of its own, and returns what that has written to stderr.
fn apart(name: &str, work: impl FnOnce()) {
    if is_child() {
        return work();
    }
    let ended = child(name);
    ended.well();
    let refusals = ended.stderr.matches("refuses a service thread for").count();
    assert_eq!(refusals, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("(os error 11)"), "{}", ended.stderr);
}

/// A domain whose service thread runs.
fn served() -> Domain {
    let domain = Domain::new();
    domain.start_service().expect("a thread");
    domain
}

#[test]
fn another_domains_thread_starts_what_was_refused() {
    apart("another_domains_thread_starts_what_was_refused", || {
        let served = served();
        let busy = without_new_threads(Busy::new);
        eventually(|| {
            // No wait and no queue, in which the calling thread would try.
            let (tell, told) = channel();
            served.call(move || tell.send(()).expect("the receiver is there"));
            told.recv().expect("no panic");
            busy.is_done()
        });
    });
}

#[test]
fn another_domains_thread_does_none_of_the_work() {
    apart("another_domains_thread_does_none_of_the_work", || {
        let served = served();
        without_new_threads(|| {
            let busy = Busy::new();
            for _ in 0..10 {
                // A round, and a grace period.
                served.call(|| ());
                served.barrier();
                busy.domain.synchronize();
            }
            assert!(
                busy.is_untouched(),
                "it may block, and hold up the other domain"
            );
            let Busy {
                domain,
                called,
                tally,
            } = busy;
            drop(domain);
            assert_eq!(called.load(Ordering::SeqCst), WORK);
            assert!(tally.all_dropped());
        });
    });
}

#[test]
fn a_wait_in_any_domain_starts_what_was_refused() {
    apart("a_wait_in_any_domain_starts_what_was_refused", || {
        let (busy, other) = (without_new_threads(Busy::new), Domain::new());
        assert!(busy.is_untouched());
        eventually(|| {
            other.synchronize();
            busy.is_done()
        });
        let busy = without_new_threads(Busy::new);
        eventually(|| {
            other.cond_synchronize(other.start_poll());
            busy.is_done()
        });
    });
}

#[test]
fn a_retire_in_another_domain_starts_what_was_refused() {
    apart("a_retire_in_another_domain_starts_what_was_refused", || {
        let (busy, other) = (without_new_threads(Busy::new), Domain::new());
        assert!(busy.is_untouched());
        eventually(|| {
            // More than a page holds.
            for _ in 0..300 {
                // SAFETY: no other thread has ever known the object.
                unsafe { other.retire(NonNull::from(Box::leak(Box::new(0_u64)))) };
            }
            busy.is_done()
        });
    });
}

#[test]
fn without_any_thread_barriers_do_the_work_and_retires_do_not() {
    apart(
        "without_any_thread_barriers_do_the_work_and_retires_do_not",
        || {
            without_new_threads(|| {
                let busy = Busy::new();
                busy.domain.set_budget(64 << 10);
                let told = Arc::new(Mutex::new(None::<StallReport>));
                let tell = Arc::clone(&told);
                busy.domain
                    .on_stall(move |report| *tell.lock().unwrap() = Some(report.clone()));
                busy.domain.set_stall_timeout(Duration::from_millis(1));
                thread::sleep(Duration::from_millis(2));
                // Past the budget.
                (0..4000).for_each(|_| busy.retire());
                assert!(
                    busy.is_untouched(),
                    "a lock of the user's may be held there"
                );
                let report = told.lock().unwrap().take().expect("a report");
                assert_eq!(report.stalled, Stalled::Service);
                assert_eq!(report.refusal, Some(libc::EAGAIN));
                assert_eq!(report.callbacks_pending, WORK as u64);
                assert!(report.objects_pending > 0);
                let text = report.to_string();
                assert!(
                    text.contains("refuses to start it (Resource temporarily unavailable")
                        && text.contains(&format!(
                            "{WORK} callbacks, {} objects",
                            report.objects_pending
                        )),
                    "{text}"
                );
                busy.domain.barrier();
                busy.domain.kvfree_barrier();
                assert!(busy.is_done());
            });
        },
    );
}

/// Nothing is refused here.
#[test]
fn a_thread_that_was_asked_for_does_not_end_idle() {
    let (kept, other) = (served(), Domain::new());
    kept.start_service().expect("it runs");
    let begun = |domain: &Domain| {
        domain.call(|| ());
        domain.barrier();
    };
    begun(&kept);
    begun(&other);
    assert_eq!(service_threads(number(&other)), 1);
    // It has looked for work until then, as the other one has.
    eventually(|| service_threads(number(&other)) == 0);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(service_threads(number(&kept)), 1);
    let number = number(&kept);
    drop(kept);
    eventually(|| service_threads(number) == 0);
}
