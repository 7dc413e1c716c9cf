//! Waiting as a task: woken in the end, whatever is polled, dropped or moved.

mod common;

use common::{
    Count, Hear, Reader, Tally, Tell, assert_counts, eventually,
    tasks::{block_on, waker},
};
use std::{
    pin::{Pin, pin},
    sync::{Arc, Mutex, atomic::Ordering, mpsc::channel},
    task::{Context, Wake, Waker},
    thread,
};
use stillpoint::Domain;

fn poll(future: Pin<&mut (impl Future<Output = ()> + ?Sized)>, waker: &Waker) -> bool {
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
fn a_future_that_is_dropped_wakes_no_task_and_costs_nothing() {
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    let (woken, waker) = waker();
    {
        let mut future = pin!(domain.synchronize_async());
        assert!(!poll(future.as_mut(), &waker));
        domain.call(|| ());
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
fn a_grace_period_ends_without_polls() {
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
fn a_barrier_for_no_callbacks_is_ready_at_once() {
    let domain = Domain::new();
    assert!(poll(pin!(domain.barrier_async()), Waker::noop()));
    domain.call(|| ());
    domain.barrier();
    // The barrier's own callback is counted after it has woken the barrier.
    eventually(|| domain.statistics().callbacks_pending == 0);
    let reader = Reader::enter(&domain);
    let barrier = domain.barrier_async();
    domain.call(|| ());
    assert!(poll(pin!(barrier), Waker::noop()), "that one came later");
    reader.leave();
}

#[test]
fn a_barrier_is_ready_when_all_callbacks_have_run() {
    let domain = Domain::new();
    for _ in 0..100 {
        let called = Count::default();
        (0..10).for_each(|_| domain.call(called.raise()));
        block_on(domain.barrier_async());
        assert_eq!(called.get(), 10);
    }
}

#[test]
fn a_thousand_tasks_wait_and_no_thread_is_started_for_them() {
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    let (woken, waker) = waker();
    let mut futures: Vec<_> = (0..1000)
        .map(|_| Box::pin(domain.synchronize_async()))
        .collect();
    let mut polled = futures.iter_mut();
    assert!(polled.all(|future| !poll(future.as_mut(), &waker)));
    #[cfg(target_os = "linux")]
    if !cfg!(miri) {
        let name = format!("{domain:?}");
        let threads = std::fs::read_dir("/proc/self/task")
            .expect("a directory")
            .count();
        assert!(threads < 200, "{threads} threads for {name}");
    }
    reader.leave();
    eventually(|| woken.1.load(Ordering::SeqCst) == 1000);
    let mut polled = futures.iter_mut();
    assert!(polled.all(|future| poll(future.as_mut(), &waker)));
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

#[test]
fn a_future_is_woken_though_younger_ones_and_callbacks_wait_for_another_reader() {
    let domain = Domain::new();
    let called = Count::default();
    let first = Reader::enter(&domain);
    domain.call(called.raise());
    let mut older = pin!(domain.synchronize_async());
    let mut barrier = pin!(domain.barrier_async());
    let second = Reader::enter(&domain);
    domain.call(called.raise());
    let mut younger = pin!(domain.synchronize_async());
    let ((woken, waker_of_older), (done, waker_of_barrier), (late, waker_of_younger)) =
        (waker(), waker(), waker());
    // In the order that puts the older one behind all others.
    assert!(!poll(younger.as_mut(), &waker_of_younger));
    assert!(!poll(barrier.as_mut(), &waker_of_barrier));
    assert!(!poll(older.as_mut(), &waker_of_older));
    assert_eq!(domain.statistics().futures_pending, 3);
    first.leave();
    eventually(|| woken.1.load(Ordering::SeqCst) == 1 && done.1.load(Ordering::SeqCst) == 1);
    assert!(poll(older, &waker_of_older) && poll(barrier, &waker_of_barrier));
    assert_eq!(
        (late.1.load(Ordering::SeqCst), called.get()),
        (0, 1),
        "the second reader is still there"
    );
    second.leave();
    eventually(|| late.1.load(Ordering::SeqCst) == 1);
    assert!(poll(younger, &waker_of_younger));
    domain.barrier();
    assert_eq!(called.get(), 2);
    assert_counts!(domain, futures_pending: 0, panics: 0);
}

#[test]
fn futures_are_woken_in_the_order_of_their_ends_however_they_were_polled_and_dropped() {
    let domain = Domain::new();
    let count = if cfg!(miri) { 8 } else { 100 };
    let mut waiting: Vec<_> = (0..count)
        .map(|_| {
            let reader = Reader::enter(&domain);
            (reader, Box::pin(domain.synchronize_async()), waker())
        })
        .collect();
    // The youngest first, so that each comes before all others; and every third is dropped.
    waiting
        .iter_mut()
        .rev()
        .for_each(|(_, future, (_, waker))| assert!(!poll(future.as_mut(), waker)));
    let mut number = 0;
    waiting.retain(|_| {
        number += 1;
        number % 3 > 0
    });
    assert_eq!(domain.statistics().futures_pending, waiting.len() as u64);
    while !waiting.is_empty() {
        let (reader, mut future, (woken, waker)) = waiting.remove(0);
        assert_eq!(woken.1.load(Ordering::SeqCst), 0, "its reader is there");
        reader.leave();
        eventually(|| woken.1.load(Ordering::SeqCst) == 1);
        assert!(poll(future.as_mut(), &waker));
    }
    assert_eq!(domain.statistics().futures_pending, 0);
}

/// An executor that goes on with a task inside its waker.
struct Inline(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Inline {
    fn waker(next: impl FnOnce() + Send + 'static) -> Waker {
        Waker::from(Arc::new(Self(Mutex::new(Some(Box::new(next))))))
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let next = self.0.lock().expect("not poisoned").take();
        next.into_iter().for_each(|next| next());
    }
}

#[test]
fn a_task_that_goes_on_inside_its_waker_may_wait_for_callbacks_and_frees() {
    let domain: &'static Domain = Box::leak(Box::new(Domain::new()));
    for of_callbacks in [false, true] {
        let (called, tally) = (Count::default(), Tally::new());
        let first = Reader::enter(domain);
        domain.call(called.raise());
        let mut future: Pin<Box<dyn Future<Output = ()>>> = if of_callbacks {
            Box::pin(domain.barrier_async())
        } else {
            Box::pin(domain.synchronize_async())
        };
        let second = Reader::enter(domain);
        domain.call(called.raise());
        drop(stillpoint::Rcu::new_in(domain, tally.value(1)));
        let (tell, told) = channel();
        let (theirs, counted) = (called.clone(), tally.clone());
        let waker = Inline::waker(move || {
            tell.tell((0, false));
            domain.barrier();
            tell.tell((theirs.get(), counted.all_dropped()));
            domain.kvfree_barrier();
            // From here on, callbacks of others have to run here, too.
            domain.call(theirs.raise());
            domain.barrier();
            tell.tell((theirs.get(), counted.all_dropped()));
        });
        assert!(!poll(future.as_mut(), &waker));
        drop(waker);
        first.leave();
        let next = || told.hear("the task goes on");
        assert_eq!(next(), (0, false));
        second.leave();
        assert_eq!(next().0, 2);
        assert_eq!(next(), (3, true));
        assert!(poll(future.as_mut(), Waker::noop()));
    }
    common::returns(|| domain.barrier());
    assert_eq!(domain.statistics().panics, 0);
}

#[test]
fn a_waker_that_panics_is_counted_and_the_others_are_called() {
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    let (woken, waker) = waker();
    let mut futures: Vec<_> = (0..20)
        .map(|_| Box::pin(domain.synchronize_async()))
        .collect();
    for pair in futures.chunks_mut(2) {
        assert!(!poll(
            pair[0].as_mut(),
            &Inline::waker(|| std::panic::resume_unwind(Box::new("without a message")))
        ));
        assert!(!poll(pair[1].as_mut(), &waker));
    }
    reader.leave();
    eventually(|| woken.1.load(Ordering::SeqCst) == 10 && domain.statistics().panics == 10);
    domain.call(|| ());
    domain.barrier();
    let mut polled = futures.iter_mut();
    assert!(polled.all(|future| poll(future.as_mut(), &waker)));
}

/// Does something when the last of its wakers is dropped.
struct AtEnd(Inline);

impl Wake for AtEnd {
    fn wake(self: Arc<Self>) {}
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0
            .0
            .get_mut()
            .expect("not poisoned")
            .take()
            .into_iter()
            .for_each(|last| last());
    }
}

#[test]
fn wakers_may_poll_and_drop_other_futures() {
    let domain: &'static Domain = Box::leak(Box::new(Domain::new()));
    let (tell, told) = channel();
    let uses = || {
        // A future that waits, one that will, and one that is told of.
        let (mut waiting, mut other) = (
            Box::pin(domain.synchronize_async()),
            Box::pin(domain.barrier_async()),
        );
        assert!(!poll(waiting.as_mut(), Waker::noop()));
        let tell = tell.clone();
        move || {
            let _ = poll(waiting.as_mut(), &waker().1);
            let _ = poll(other.as_mut(), Waker::noop());
            drop((waiting, other));
            tell.tell(());
        }
    };
    let reader = Reader::enter(domain);
    domain.call(|| ());
    // One that is called, one that is dropped with its future, and one that another replaces.
    let mut futures: Vec<_> = (0..3)
        .map(|_| Box::pin(domain.synchronize_async()))
        .collect();
    assert!(!poll(futures[0].as_mut(), &Inline::waker(uses())));
    for at in [1, 2] {
        let last = AtEnd(Inline(Mutex::new(Some(Box::new(uses())))));
        assert!(!poll(futures[at].as_mut(), &Waker::from(Arc::new(last))));
    }
    drop(futures.remove(1));
    told.hear("the first waker is dropped");
    assert!(!poll(futures[1].as_mut(), Waker::noop()));
    told.hear("the second one is");
    reader.leave();
    told.hear("the third one is called");
    eventually(|| domain.statistics().futures_pending == 0);
    assert_eq!(domain.statistics().panics, 0);
}

#[test]
fn a_waker_may_drop_the_last_handle() {
    for _ in 0..if cfg!(miri) { 3 } else { 50 } {
        let domain = Domain::new();
        let (tally, last) = (Tally::new(), domain.clone());
        let reader = Reader::enter(&domain);
        drop(stillpoint::Rcu::new_in(&domain, tally.value(1)));
        let (tell, told) = channel();
        let waker = Inline::waker(move || {
            drop(last);
            tell.tell(());
        });
        let mut future = Box::pin(domain.synchronize_async());
        assert!(!poll(future.as_mut(), &waker));
        // Forgotten, so that it borrows from no handle any more. (Its box is leaked.)
        std::mem::forget(future);
        drop((waker, domain));
        reader.leave();
        told.hear("the task is woken all the same");
        eventually(|| tally.all_dropped());
    }
}
