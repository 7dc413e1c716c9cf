//! Waiting as a task: woken in the end, whatever is polled, dropped or moved.

mod common;

use common::{Reader, Tally, eventually};
use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};
use stillpoint::Domain;

/// Wakes the thread that blocks on a future, and counts.
struct Unpark(Thread, AtomicUsize);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

fn waker() -> (Arc<Unpark>, Waker) {
    let unpark = Arc::new(Unpark(thread::current(), AtomicUsize::new(0)));
    (Arc::clone(&unpark), Waker::from(unpark))
}

/// The smallest executor: polls only when woken, so that a lost wake-up hangs.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let (_, waker) = waker();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

fn poll(future: Pin<&mut impl Future<Output = ()>>, waker: &Waker) -> bool {
    future.poll(&mut Context::from_waker(waker)).is_ready()
}

#[test]
fn an_idle_grace_period_is_ready_at_once() {
    for domain in [Domain::new(), Domain::with_fences()] {
        let mut future = pin!(domain.synchronize_async());
        assert!(poll(future.as_mut(), Waker::noop()));
        assert!(poll(future.as_mut(), Waker::noop()), "and stays so");
    }
}

#[test]
fn a_grace_period_is_ready_when_its_reader_has_left_and_not_before() {
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    let mut future = pin!(domain.synchronize_async());
    let (woken, waker) = waker();
    assert!(!poll(future.as_mut(), &waker));
    assert!(!poll(future.as_mut(), &waker));
    assert_eq!(woken.1.load(Ordering::SeqCst), 0);
    reader.leave();
    block_on(future);
    assert!(domain.poll(domain.get_state()) || domain.poll(domain.start_poll()));
}

#[test]
fn the_last_waker_is_the_one_that_is_called() {
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    let mut future = pin!(domain.synchronize_async());
    let ((first, waker_of_first), (second, waker_of_second)) = (waker(), waker());
    assert!(!poll(future.as_mut(), &waker_of_first));
    assert!(!poll(future.as_mut(), &waker_of_second));
    reader.leave();
    eventually(|| second.1.load(Ordering::SeqCst) == 1);
    assert_eq!(first.1.load(Ordering::SeqCst), 0);
    assert!(poll(future.as_mut(), &waker_of_second));
}

#[test]
fn a_future_that_is_dropped_wakes_nobody_and_costs_nothing() {
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    let (woken, waker) = waker();
    {
        let mut future = pin!(domain.synchronize_async());
        assert!(!poll(future.as_mut(), &waker));
        let mut barrier = pin!(domain.barrier_async());
        assert!(!poll(barrier.as_mut(), &waker));
    }
    reader.leave();
    domain.barrier();
    assert_eq!(woken.1.load(Ordering::SeqCst), 0);
    drop(waker);
    assert_eq!(Arc::strong_count(&woken), 1, "nothing keeps the task");
}

#[test]
fn a_grace_period_ends_though_nobody_polls() {
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    let future = domain.synchronize_async();
    let before = domain.statistics().grace_periods;
    reader.leave();
    eventually(|| domain.statistics().grace_periods > before);
    block_on(future);
}

#[test]
fn a_known_cookie_is_awaited() {
    let domain = Domain::new();
    for cookie in [domain.get_state(), domain.start_poll()] {
        let reader = Reader::enter(&domain);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| block_on(domain.cond_synchronize_async(cookie)));
            reader.leave();
            waiter.join().expect("no panic");
        });
        assert!(domain.poll(cookie));
    }
}

#[test]
fn a_barrier_is_ready_when_all_callbacks_have_run() {
    let domain = Domain::new();
    for _ in 0..100 {
        let called = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let called = Arc::clone(&called);
            domain.call(move || _ = called.fetch_add(1, Ordering::SeqCst));
        }
        block_on(domain.barrier_async());
        assert_eq!(called.load(Ordering::SeqCst), 10);
    }
}

#[test]
fn a_thousand_tasks_wait_and_no_thread_is_started_for_them() {
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    let (woken, waker) = waker();
    let mut futures: Vec<_> = (0..1000).map(|_| Box::pin(domain.synchronize_async())).collect();
    assert!(futures.iter_mut().all(|future| !poll(future.as_mut(), &waker)));
    #[cfg(target_os = "linux")]
    if !cfg!(miri) {
        let name = format!("{domain:?}");
        let threads = std::fs::read_dir("/proc/self/task").expect("a directory").count();
        assert!(threads < 200, "{threads} threads for {name}");
    }
    reader.leave();
    eventually(|| woken.1.load(Ordering::SeqCst) == 1000);
    assert!(futures.iter_mut().all(|future| poll(future.as_mut(), &waker)));
}

#[test]
fn a_future_moves_between_threads() {
    let domain = Domain::new();
    let tally = Tally::new();
    let cell = stillpoint::Rcu::new_in(&domain, tally.value(1));
    let reader = Reader::enter(&domain);
    let old = cell.take().expect("it holds one");
    let mut future = Box::pin(domain.synchronize_async());
    assert!(!poll(future.as_mut(), Waker::noop()));
    thread::scope(|scope| {
        scope.spawn(|| block_on(future));
        reader.leave();
    });
    drop(old.wait());
    assert!(tally.all_dropped());
}

#[test]
fn a_cookie_of_another_domain_holds_nothing_up() {
    let (domain, other): (&'static Domain, _) = (Box::leak(Box::new(Domain::new())), Domain::new());
    (0..100).for_each(|_| other.synchronize());
    let reader = Reader::enter(domain);
    let mut stray = pin!(domain.cond_synchronize_async(other.start_poll()));
    let mut wild = pin!(domain.cond_synchronize_async(stillpoint::Cookie::from_raw(1 << 60)));
    assert!(!poll(stray.as_mut(), Waker::noop()) && !poll(wild.as_mut(), Waker::noop()));
    reader.leave();
    domain.call(|| ());
    common::returns(move || {
        domain.barrier();
        domain.cond_synchronize(stillpoint::Cookie::from_raw(1 << 60));
    });
}
