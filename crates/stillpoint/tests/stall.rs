//! Stalls are reported once, with names, and nothing is freed under the readers that cause them.
#![cfg(not(miri))]

mod common;

use common::{
    Bomb, Hear, Reader, Tally, Tell, apart, assert_counts, elsewhere, eventually,
    keeps::Blocked,
    quietly, retire, returns, service_threads,
    stalls::{Stalls, TIMEOUT, assert_waits},
};
use std::{
    sync::{Arc, Mutex, mpsc::channel},
    thread,
};
use stillpoint::{Domain, Flavour, Rcu, Stalled};

fn named<R: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .expect("a thread")
}

#[test]
fn a_guard_that_is_kept_is_reported_by_name_with_who_waits() {
    let (domain, told) = Stalls::watch(Domain::new());
    let theirs = domain.clone();
    let reader = Reader::inside("long-reader", move |stay| {
        let _guard = theirs.read_lock();
        stay();
    });
    let theirs = domain.clone();
    let waiter = named("long-waiter", move || theirs.synchronize());
    let report = told.next();
    assert!(matches!(report.stalled, Stalled::GracePeriod(_)));
    assert!(report.lasted >= TIMEOUT);
    assert_eq!(report.holdouts.len(), 1);
    assert_eq!(report.holdouts[0].flavour, Flavour::Thread);
    assert_eq!(
        report.holdouts[0].thread.name.as_deref(),
        Some("long-reader")
    );
    assert_waits(&report, "long-waiter");
    let text = report.to_string();
    assert!(
        text.contains("'long-reader'")
            && text.contains("holds a guard")
            && text.contains("'long-waiter'"),
        "{text}"
    );
    #[cfg(feature = "stall-backtrace")]
    assert!(text.contains("a_guard_that_is_kept"), "{text}");
    assert_eq!(domain.statistics().stalls, 1);
    reader.leave();
    waiter.join().expect("no panic");
    assert!(told.try_next().is_none(), "once a stall");
    // The next one is another.
    let reader = Reader::enter(&domain);
    let _ = domain.start_poll();
    told.next();
    reader.leave();
}

#[test]
fn a_qsbr_reader_that_blocks_online_is_named() {
    let (domain, told) = Stalls::watch(Domain::with_fences());
    let theirs = domain.clone();
    let reader = Reader::inside("qsbr-blocker", move |stay| {
        let _reader = theirs.qsbr_reader();
        stay();
    });
    let _ = domain.start_poll();
    let report = told.next();
    assert_eq!(report.holdouts[0].flavour, Flavour::Qsbr);
    assert_eq!(
        report.holdouts[0].thread.name.as_deref(),
        Some("qsbr-blocker")
    );
    reader.leave();
}

#[test]
fn a_reader_that_leaves_in_time_is_not_reported() {
    let (domain, told) = Stalls::watch(Domain::new());
    domain.set_stall_timeout(common::PATIENCE);
    for _ in 0..20 {
        let reader = Reader::enter(&domain);
        let _ = domain.start_poll();
        reader.leave();
        domain.synchronize();
    }
    assert!(told.try_next().is_none());
    assert_counts!(domain, stalls: 0, service_stalls: 0);
}

/// The waiter holds what the reader wants. The library cannot refuse that; the report names both
/// sides.
#[test]
fn a_deadlock_by_a_lock_is_reported_with_both_sides() {
    apart!();
    let (domain, told) = Stalls::watch(Domain::new());
    let mutex = Arc::new(Mutex::new(()));
    let (entered, has_entered) = channel();
    let (locked, is_locked) = channel();
    let (theirs, wanted) = (domain.clone(), Arc::clone(&mutex));
    named("wants-lock", move || {
        let _guard = theirs.read_lock();
        entered.tell(());
        is_locked.recv().expect("the other side");
        drop(wanted.lock());
    });
    has_entered.recv().expect("it enters");
    let theirs = domain.clone();
    named("holds-lock", move || {
        let _held = mutex.lock().expect("no panic");
        locked.tell(());
        theirs.synchronize();
    });
    let report = told.next();
    assert_eq!(
        report.holdouts[0].thread.name.as_deref(),
        Some("wants-lock")
    );
    assert_waits(&report, "holds-lock");
    // The two stay where they are; the process need not.
    std::process::exit(0);
}

/// The wait at the end of such a section is so short that it hardly looks for the reader in the
/// way. The thread never falls idle for long, and has no object with a destructor, so the service
/// thread need not know of its pages.
#[test]
fn a_reader_that_holds_up_sections_which_retire_one_object_each_is_reported() {
    let (domain, told) = Stalls::watch(Domain::new());
    domain.set_budget(0);
    let reader = Reader::enter(&domain);
    let is_reported = |_: &u64| {
        let guard = domain.read_lock();
        retire(&domain, 1);
        drop(guard);
        domain.statistics().stalls > 0
    };
    // Many more waits than fit into the time-out.
    (0..200_000).find(is_reported).expect("a stall is reported");
    assert!(matches!(told.next().stalled, Stalled::GracePeriod(_)));
    // No thread waits for it any more.
    let before = domain.statistics().waits;
    (0..1_000).for_each(|number| _ = is_reported(&number));
    assert_eq!(domain.statistics().waits, before);
    reader.leave();
}

#[test]
fn a_callback_that_blocks_the_service_thread_is_reported() {
    let (domain, told) = Stalls::watch(Domain::new());
    let blocked = Blocked::on(&domain);
    let theirs = domain.clone();
    let waiter = named("barrier", move || theirs.barrier());
    let report = loop {
        let report = told.next();
        if report.stalled == Stalled::Service {
            break report;
        }
    };
    assert!(report.holdouts.is_empty());
    assert_waits(&report, "barrier");
    assert!(domain.statistics().service_stalls >= 1);
    drop(blocked);
    waiter.join().expect("no panic");
}

#[test]
fn a_leaked_guard_of_a_thread_that_has_ended_is_reported_and_nothing_is_freed_under_it() {
    let domain: &'static Domain = Box::leak(Box::new(Domain::new()));
    let (_, told) = Stalls::watch(domain.clone());
    let tally = Tally::new();
    let cell = Rcu::new_in(domain, tally.value(7));
    let lent = elsewhere(|| cell.load(Box::leak(Box::new(domain.read_lock()))).number);
    drop(cell);
    let _ = domain.start_poll();
    let report = told.next();
    assert_eq!(report.holdouts[0].thread.name, None);
    assert!(report.to_string().contains("exited thread"), "{report}");
    assert_eq!((lent, tally.dropped()), (7, 0));
}

#[test]
fn a_handler_may_read_and_may_panic() {
    let (domain, _) = Stalls::watch(Domain::new());
    let cell = Arc::new(Rcu::new_in(&domain, 5));
    let (tell, told) = channel();
    let (theirs, seen) = (domain.clone(), Arc::clone(&cell));
    domain.on_stall(move |_| {
        tell.tell(*seen.load(&theirs.read_lock()));
        std::panic::resume_unwind(Box::new("without a message"));
    });
    let reader = Reader::enter(&domain);
    let _ = domain.start_poll();
    assert_eq!(told.recv_timeout(common::PATIENCE), Ok(5));
    eventually(|| domain.statistics().panics == 1);
    reader.leave();
    domain.synchronize();
    // The handler owns a handle of its domain and a cell of it, which this takes apart again.
    domain.on_stall(|_| ());
}

#[test]
fn a_handler_that_would_wait_for_the_service_thread_is_refused() {
    let (domain, _) = Stalls::watch(Domain::new());
    let theirs = domain.clone();
    domain.on_stall(move |_| quietly(|| theirs.barrier()));
    let reader = Reader::enter(&domain);
    domain.call(|| ());
    eventually(|| domain.statistics().panics == 1);
    reader.leave();
    domain.on_stall(|_| ());
    domain.barrier();
}

/// The handler owns something whose destructor uses the library; it goes with the domain, while the
/// thread is bound to both.
#[test]
fn what_a_handler_owns_is_dropped_with_the_domain() {
    struct Reads(Domain);
    impl Drop for Reads {
        fn drop(&mut self) {
            drop(self.0.read_lock());
            drop(Domain::new().read_lock());
        }
    }
    for _ in 0..20 {
        let (first, second) = (Domain::new(), Domain::new());
        drop(first.read_lock());
        drop(second.read_lock());
        let owned = Reads(first);
        second.on_stall(move |_| drop(owned.0.read_lock()));
        drop(second);
        drop(Domain::new().read_lock());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_domain_ends_whole_whatever_its_handlers_destructor_does() {
    let (domain, told) = Stalls::watch(Domain::new());
    let reader = Reader::enter(&domain);
    let _ = domain.start_poll();
    let number = told.next().domain;
    assert_eq!(service_threads(number), 1);
    let bomb = Bomb(());
    domain.on_stall(move |_| _ = &bomb);
    reader.leave();
    let tally = Tally::new();
    for _ in 0..10 {
        let value = tally.value(1);
        domain.call(move || drop(value));
        Rcu::new_in(&domain, tally.value(2)).store(tally.value(3));
    }
    returns(move || drop(domain));
    assert!(
        tally.all_dropped(),
        "the service thread was joined when it had done all"
    );
    eventually(|| service_threads(number) == 0);
}

#[test]
fn a_handler_that_is_replaced_may_panic_when_it_is_dropped() {
    let (domain, _) = Stalls::watch(Domain::new());
    let bomb = Bomb(());
    domain.on_stall(move |_| _ = &bomb);
    domain.on_stall(|_| ());
    assert_eq!(domain.statistics().panics, 1);
    // And during its report, of which it is the last thing.
    let bomb = Bomb(());
    let ((tell, told), (go, may_go)) = (channel(), channel::<()>());
    let may_go = Mutex::new(may_go);
    domain.on_stall(move |_| {
        let _whole = &bomb;
        let _ = tell.send(());
        let _ = may_go.lock().expect("no panic").recv();
    });
    let reader = Reader::enter(&domain);
    let _ = domain.start_poll();
    told.hear("a stall is reported");
    domain.on_stall(|_| ());
    drop(go);
    eventually(|| domain.statistics().panics == 2);
    reader.leave();
    returns(move || domain.barrier());
}
