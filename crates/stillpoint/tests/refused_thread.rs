//! The system refuses the service thread, for a while or for good: the work is done once a thread can be
//! had, by barriers, or by the domain's end; and the program is told.
//!
//! Each test is the only one of a process, whose limit on memory keeps threads from starting.
//!
//! Detects, one by one: waits, retires and service threads that do not try again; a service thread that does
//! another domain's work; a refusal that is not reported, or twice; a stall report without it; a destructor that
//! runs inside a retire; a kept thread that ends idle; a pool whose second thread is refused once and never
//! tried again, or not by the end of a domain.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{
    Count, Tally, Tell, apart, child, eventually, is_child, leak, number, retire, service_threads,
    sleeps, test_of, without_new_threads,
};
use std::{
    path::Path,
    sync::{Arc, Mutex, mpsc::channel},
    thread,
    time::Duration,
};
use stillpoint::{
    Domain, StallReport, Stalled,
    internal::epoch::{self, Fences},
};

/// A domain with work for a service thread: `WORK` callbacks and as many objects with destructors.
struct Busy {
    domain: Domain,
    called: Count,
    tally: Tally,
}

const WORK: usize = 10;

impl Busy {
    fn new() -> Self {
        let this = Self {
            domain: Domain::new(),
            called: Count::default(),
            tally: Tally::new(),
        };
        for _ in 0..WORK {
            this.domain.call(this.called.raise());
            this.retire();
        }
        this
    }

    fn retire(&self) {
        retire(&self.domain, self.tally.value(1));
    }

    fn is_done(&self) -> bool {
        self.called.get() == WORK && self.tally.all_dropped()
    }

    fn is_untouched(&self) -> bool {
        self.called.get() == 0 && self.tally.dropped() == 0
    }
}

/// Runs `work`, which is all of the calling test, in a separate process. Fails unless that says on stderr, once, what was refused.
fn says_once(work: impl FnOnce()) {
    if is_child() {
        return work();
    }
    let ended = child(test_of(&work));
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
    says_once(|| {
        let served = served();
        let busy = without_new_threads(Busy::new);
        eventually(|| {
            // No wait and no queue, in which the calling thread would try.
            let (tell, told) = channel();
            served.call(move || tell.tell(()));
            told.recv().expect("no panic");
            busy.is_done()
        });
    });
}

#[test]
fn another_domains_thread_does_none_of_the_work() {
    says_once(|| {
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
            assert_eq!(called.get(), WORK);
            assert!(tally.all_dropped());
        });
    });
}

#[test]
fn a_wait_in_any_domain_starts_what_was_refused() {
    says_once(|| {
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
    says_once(|| {
        let (busy, other) = (without_new_threads(Busy::new), Domain::new());
        assert!(busy.is_untouched());
        eventually(|| {
            // More than a page holds.
            for _ in 0..300 {
                // SAFETY: no other thread has ever known the object.
                unsafe { other.retire(leak(0_u64)) };
            }
            busy.is_done()
        });
    });
}

#[test]
fn without_any_thread_barriers_do_the_work_and_retires_do_not() {
    says_once(|| {
        without_new_threads(|| {
            let busy = Busy::new();
            busy.domain.set_budget(64 << 10);
            let told = Arc::new(Mutex::new(None::<StallReport>));
            let tell = Arc::clone(&told);
            busy.domain
                .on_stall(move |report| *tell.lock().unwrap() = Some(report.clone()));
            busy.domain.set_stall_timeout(Duration::from_millis(1));
            eventually(|| {
                // Past the budget.
                (0..4000).for_each(|_| busy.retire());
                told.lock().unwrap().is_some()
            });
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
    });
}

/// Returns two domains that share their service threads. The first has the only one, which waits in a
/// callback until the second has run its callback. The system had no thread when that was queued, and
/// has none during `meanwhile`, which gets the second domain.
fn with_a_blocked_pool<R>(meanwhile: impl FnOnce(Domain) -> R) -> (Domain, R) {
    let domain = || epoch::domain("shared", Fences::None, 1 << 20, |work| work());
    let (blocked, behind) = (domain(), domain());
    let ((enter, entered), (leave, may_leave)) = (channel(), channel());
    blocked.call(move || {
        enter.send(()).expect("the test waits");
        may_leave.recv().expect("the other callback runs");
    });
    entered.recv().expect("it runs");
    let result = without_new_threads(|| {
        behind.call(move || leave.send(()).expect("the first callback waits"));
        meanwhile(behind)
    });
    (blocked, result)
}

#[test]
fn a_wait_starts_the_thread_that_the_pool_was_refused() {
    apart!();
    let (blocked, behind) = with_a_blocked_pool(|behind| behind);
    eventually(|| {
        // In neither of the two.
        stillpoint::global().synchronize();
        blocked.statistics().callbacks_pending == 0
    });
    drop(behind);
}

#[test]
fn the_end_of_a_domain_starts_the_thread_that_the_pool_was_refused() {
    apart!();
    let ((give, given), (tell, told)) = (channel::<Domain>(), channel());
    let ends = thread::spawn(move || {
        let domain = given.recv().expect("the domain");
        let me = std::fs::read_link("/proc/thread-self").expect("Linux");
        tell.send(me).expect("the test waits");
        drop(domain);
    });
    let (blocked, ()) = with_a_blocked_pool(|behind| {
        give.send(behind).expect("the thread waits");
        let thread = Path::new("/proc").join(told.recv().expect("it ends the domain"));
        // In that end: it has made its first attempt.
        eventually(|| sleeps(&thread));
    });
    eventually(|| ends.is_finished());
    ends.join().expect("no panic");
    drop(blocked);
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
    // Threads without work end twice meanwhile.
    for _ in 0..2 {
        begun(&other);
        assert_eq!(service_threads(number(&other)), 1);
        eventually(|| service_threads(number(&other)) == 0);
    }
    assert_eq!(service_threads(number(&kept)), 1);
    let number = number(&kept);
    drop(kept);
    eventually(|| service_threads(number) == 0);
}
