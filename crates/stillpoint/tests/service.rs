//! The service thread fails, by a fault of the library's own: it begins again, and after three
//! failures it stays down; nothing hangs.
//!
//! Detects no restart, endless restarts, and a domain that is finished too early or never.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::forking::fork;
use common::{
    Count, Reader, Tally, Tell, apart, assert_counts, child, eventually, is_child, leak, number,
    panic_message, quietly, returns, service_threads,
    tasks::{block_on, is_ready},
};
use std::{
    panic,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::channel,
    },
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};
use stillpoint::lab::{Domain, GracePeriodPolicy, Policy};

/// How often the service threads of `Failing<N>`'s domains fail from now on; each test has an N of
/// its own.
static LEFT: [AtomicUsize; 9] = [const { AtomicUsize::new(0) }; 9];

/// The service thread panics before it looks at anything. Quietly: without the hook that prints.
#[derive(Debug)]
struct Failing<const N: usize>;

// SAFETY: nothing is left out.
unsafe impl<const N: usize> GracePeriodPolicy for Failing<N> {
    fn service_comes() {
        if let Ok(left) = LEFT[N].fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1)
        }) {
            if N == HELD && left == 1 {
                eventually(|| GO.load(Ordering::SeqCst));
            }
            panic::resume_unwind(Box::new("a fault"));
        }
    }
}
// SAFETY: of deferred frees everything is present.
unsafe impl<const N: usize> Policy for Failing<N> {}

/// That one's last failure comes when the test says so.
const HELD: usize = 6;
static GO: AtomicBool = AtomicBool::new(false);

/// A domain whose service thread fails `times` times from now on.
fn failing<const N: usize>(times: usize) -> Domain<Failing<N>> {
    LEFT[N].store(times, Ordering::SeqCst);
    Domain::new()
}

/// The same, and it is down.
fn down<const N: usize>() -> Domain<Failing<N>> {
    let domain = failing(usize::MAX);
    domain.call(|| ());
    eventually(|| domain.statistics().service_failures == 3);
    domain
}

fn reader<const N: usize>(domain: &Domain<Failing<N>>) -> Reader {
    let theirs = domain.clone();
    Reader::inside("reader", move |stay| {
        let _guard = theirs.read_lock();
        stay();
    })
}

/// An object with a destructor, which the service thread runs.
fn retire<const N: usize>(domain: &Domain<Failing<N>>, tally: &Tally) {
    // SAFETY: no other thread has ever known the object.
    unsafe { domain.retire(leak(tally.value(1))) };
}

#[test]
fn a_service_thread_that_has_failed_begins_again() {
    let (domain, tally) = (failing::<0>(2), Tally::new());
    let called = Count::default();
    let reader = reader(&domain);
    let mut future = Box::pin(domain.synchronize_async());
    assert!(!is_ready(future.as_mut()));
    domain.call(called.raise());
    retire(&domain, &tally);
    reader.leave();
    // No other call asks for it.
    eventually(|| called.get() == 1 && tally.all_dropped());
    block_on(future);
    let theirs = domain.clone();
    returns(move || {
        theirs.barrier();
        theirs.kvfree_barrier();
        block_on(theirs.barrier_async());
    });
    // `panics` counts user code only.
    assert_counts!(domain, service_failures: 2, panics: 0);
}

#[test]
fn after_three_failures_the_callers_do_its_work() {
    let (domain, tally) = (down::<1>(), Tally::new());
    let called = Count::default();
    for _ in 0..10 {
        domain.call(called.raise());
        retire(&domain, &tally);
    }
    let theirs = domain.clone();
    returns(move || {
        theirs.barrier();
        theirs.kvfree_barrier();
        theirs.synchronize();
        theirs.cond_synchronize(theirs.start_poll());
    });
    assert_eq!(called.get(), 10);
    assert!(tally.all_dropped());
    assert_eq!(domain.statistics().service_failures, 3, "it stays down");
    block_on(domain.synchronize_async());
    let reader = reader(&domain);
    let mut future = Box::pin(domain.synchronize_async());
    assert!(!is_ready(future.as_mut()));
    domain.call(|| ());
    let message = quietly(|| panic_message(|| is_ready(pin!(domain.barrier_async()))));
    assert!(
        message.contains("stays down") && message.contains("barrier()"),
        "{message}"
    );
    reader.leave();
    block_on(future);
}

#[test]
fn what_waits_for_a_reader_goes_on_waiting_when_the_thread_goes_down() {
    let (domain, tally) = (failing::<5>(0), Tally::new());
    let reader = reader(&domain);
    let value = tally.value(1);
    domain.call(move || drop(value));
    retire(&domain, &tally);
    LEFT[5].store(usize::MAX, Ordering::SeqCst);
    let cookie = domain.start_poll();
    eventually(|| {
        domain.statistics().service_failures == 3 && service_threads(number(&domain)) == 0
    });
    assert!(!domain.poll(cookie) && tally.dropped() == 0);
    let theirs = domain.clone();
    let barrier = thread::spawn(move || {
        theirs.barrier();
        theirs.kvfree_barrier();
    });
    reader.leave();
    returns(move || barrier.join().expect("no panic"));
    assert!(tally.all_dropped());
}

#[test]
fn several_who_wait_do_the_work_of_one_that_is_down() {
    let domain = down::<2>();
    let called = Count::default();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 1..=50 {
                    let tally = Tally::new();
                    domain.call(called.raise());
                    retire(&domain, &tally);
                    domain.barrier();
                    assert!(called.get() >= number);
                    domain.kvfree_barrier();
                    assert!(tally.all_dropped());
                }
            });
        }
    });
    assert_eq!(called.get(), 200);
}

#[test]
fn a_domain_ends_whole_whenever_its_service_thread_fails() {
    for times in 0..200 {
        let fails = [0, 1, 2, usize::MAX][times % 4];
        let (domain, tally) = (failing::<3>(fails), Tally::new());
        for _ in 0..3 {
            let value = tally.value(times as u64);
            domain.call(move || drop(value));
            retire(&domain, &tally);
        }
        if times % 8 > 4 {
            eventually(|| domain.statistics().service_failures > 0);
        }
        drop(domain);
        // It has been joined, or does what is left on this thread.
        assert!(tally.all_dropped());
    }
}

/// The thread fails for the third time when it has been asked to stop: the caller leaves the rest
/// to it.
#[test]
fn a_domain_ends_whole_when_its_service_thread_goes_down_meanwhile() {
    let (domain, tally) = (failing::<HELD>(3), Tally::new());
    let value = tally.value(1);
    domain.call(move || drop(value));
    retire(&domain, &tally);
    eventually(|| LEFT[HELD].load(Ordering::SeqCst) == 0);
    let ends = thread::spawn(move || drop(domain));
    // Long enough, mostly, for it to be asked; if not, this shows nothing.
    thread::sleep(Duration::from_millis(100));
    GO.store(true, Ordering::SeqCst);
    returns(move || ends.join().expect("no panic"));
    assert!(tally.all_dropped());
}

#[test]
fn a_task_that_waits_when_the_thread_goes_down_asks_again_by_itself() {
    let domain: &Domain<_> = Box::leak(Box::new(failing::<4>(0)));
    let reader = reader(domain);
    let mut future = Box::pin(domain.synchronize_async());
    assert!(!is_ready(future.as_mut()));
    domain.call(|| ());
    let mut barrier = Box::pin(domain.barrier_async());
    assert!(!is_ready(barrier.as_mut()));
    LEFT[4].store(usize::MAX, Ordering::SeqCst);
    let _ = domain.start_poll();
    eventually(|| domain.statistics().service_failures == 3);
    reader.leave();
    // Polled again only when woken.
    returns(move || block_on(future));
    for _ in 0..2 {
        let message = quietly(|| panic_message(|| is_ready(barrier.as_mut())));
        assert!(message.contains("stays down"), "{message}");
        assert_eq!(
            domain.statistics().futures_pending,
            0,
            "nothing is left behind"
        );
    }
    // Its event can come in another way; then it is ready.
    domain.barrier();
    assert!(is_ready(barrier.as_mut()));
}

/// An executor of one task that goes on inside its wakers. At the first wake-up it calls `first`
/// before.
struct Inline<const N: usize> {
    task: Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>,
    wakes: AtomicUsize,
    first: Box<dyn Fn() + Send + Sync>,
}

impl<const N: usize> Inline<N> {
    fn start(
        domain: &'static Domain<Failing<N>>,
        first: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        let task = Mutex::new(Box::pin(domain.synchronize_async()) as Pin<Box<_>>);
        let inline = Arc::new(Self {
            task,
            wakes: AtomicUsize::new(0),
            first: Box::new(first),
        });
        Self::go_on(&inline);
        inline
    }

    fn go_on(self: &Arc<Self>) {
        // Not while it is polled: woken there, it leaves it at that.
        if let Ok(mut task) = self.task.try_lock() {
            let _ = task
                .as_mut()
                .poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))));
        }
    }
}

impl<const N: usize> Wake for Inline<N> {
    fn wake(self: Arc<Self>) {
        if self.wakes.fetch_add(1, Ordering::SeqCst) == 0 {
            (self.first)();
        }
        self.go_on();
    }
}

/// It waits again inside its waker, for a reader that stays: the thread that goes down does not
/// wake it over and over.
#[test]
fn a_thread_that_goes_down_wakes_each_task_once() {
    let domain: &Domain<_> = Box::leak(Box::new(failing::<7>(0)));
    let reader = reader(domain);
    let task = Inline::start(domain, || ());
    LEFT[7].store(usize::MAX, Ordering::SeqCst);
    let _ = domain.start_poll();
    eventually(|| task.wakes.load(Ordering::SeqCst) > 0 && service_threads(number(domain)) == 0);
    // By the thread, and by the poll that found none.
    assert_eq!(task.wakes.load(Ordering::SeqCst), 2);
    reader.leave();
}

/// The thread that goes down has woken a task that forks: in the child it is no service thread, and
/// another one starts.
#[test]
fn a_task_may_fork_when_it_is_woken_by_a_thread_that_goes_down() {
    apart!();
    let domain: &Domain<_> = Box::leak(Box::new(failing::<8>(0)));
    let reader = reader(domain);
    let (tell, told) = channel();
    let first = move || {
        let child = fork(|| {
            LEFT[8].store(0, Ordering::SeqCst);
            let called = Count::default();
            domain.call(called.raise());
            eventually(|| called.get() == 1);
        });
        tell.tell(child);
    };
    let task = Inline::start(domain, first);
    let mut other = Box::pin(domain.synchronize_async());
    assert!(!is_ready(other.as_mut()));
    LEFT[8].store(usize::MAX, Ordering::SeqCst);
    let _ = domain.start_poll();
    told.recv().expect("it is woken").well();
    reader.leave();
    drop(task);
    block_on(other);
}

/// The forced unwinding of `pthread_exit` cannot be caught. It ends the process, which at least
/// does not hang.
#[test]
#[cfg(target_env = "gnu")]
fn a_callback_that_ends_its_thread_ends_the_process() {
    if !is_child() {
        return child("a_callback_that_ends_its_thread_ends_the_process").by_abort_with("");
    }
    let domain = stillpoint::Domain::new();
    // SAFETY: it is what this test is about.
    domain.call(|| unsafe { libc::pthread_exit(std::ptr::null_mut()) });
    domain.barrier();
}
